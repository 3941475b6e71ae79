//! Circle: the disc at the origin that the robot circles. Nothing collides with it, and it has no cost.

use super::{Object, Objects, Pose, numbers};

/// A faint green disc at the origin. Nothing collides with it, and it has no cost.
#[derive(Clone, Copy, Debug)]
pub struct Circle {
    /// Radius in metres.
    pub radius: f64,
}

impl Object for Circle {
    fn name(&self) -> &'static str {
        "circle"
    }

    fn height(&self) -> f64 {
        0.01
    }

    fn geoms(&self, name: &str) -> String {
        let size = numbers(&[self.radius, 0.01]);
        format!(
            r#"<geom name="{name}" type="cylinder" size="{size}" rgba="0 1 0 .1" contype="0" conaffinity="0"/>"#
        )
    }

    fn fixed_pose(&self, _i: usize) -> Option<Pose> {
        Some(Pose::default())
    }

    // the drawn disc is up to a nanometre away from the origin; the lidar of Safety-Gymnasium sees
    // the origin itself
    fn seen_at(&self, _objects: &Objects<'_>, _i: usize) -> [f64; 2] {
        [0.0, 0.0]
    }
}
