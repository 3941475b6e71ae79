//! Goal: a green cylinder to be reached. Nothing collides with it.

use super::{Object, numbers};

/// A green cylinder to be reached. Nothing collides with it.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Radius in metres.
    pub radius: f64,
}

impl Object for Goal {
    fn name(&self) -> &'static str {
        "goal"
    }

    // the cylinder is as high as its radius, and its foot is 1 cm above the floor
    fn height(&self) -> f64 {
        self.radius / 2.0 + 0.01
    }

    fn geoms(&self, name: &str) -> String {
        let size = numbers(&[self.radius, self.radius / 2.0]);
        format!(
            r#"<geom name="{name}" type="cylinder" size="{size}" rgba="0 1 0 .25" contype="0" conaffinity="0"/>"#
        )
    }
}
