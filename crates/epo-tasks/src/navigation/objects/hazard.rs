//! Hazard: a blue disc on the floor. Being over it has a cost.
//!
//! ```text
//! cost_hazards = 1[|robot − disc| < radius]     for any disc; distance of the centres in the plane
//! ```

use super::{Object, Objects, numbers};

/// A blue disc on the floor. Being over it has a cost.
#[derive(Clone, Copy, Debug)]
pub struct Hazard {
    /// Radius in metres.
    pub radius: f64,
}

impl Object for Hazard {
    fn name(&self) -> &'static str {
        "hazard"
    }

    fn height(&self) -> f64 {
        0.02
    }

    fn geoms(&self, name: &str) -> String {
        let size = numbers(&[self.radius, 0.01]);
        format!(
            r#"<geom name="{name}" type="cylinder" size="{size}" rgba="0 0 1 .25" contype="0" conaffinity="0"/>"#
        )
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_hazards"]
    }

    fn cost(&self, discs: &Objects<'_>, terms: &mut [f64]) {
        // Safety-Gymnasium subtracts before it compares, so a robot exactly on the edge has no cost
        let over = |i| self.radius - discs.robot_distance(i) > 0.0;
        terms[0] = f64::from((0..discs.len()).any(over));
    }
}
