//! Pillar: a fixed column. Touching it has a cost.
//!
//! ```text
//! cost_pillars = 1[the robot touches a pillar]
//! ```

use super::{Object, Objects, touched};

/// A fixed column of radius 0.2 m and height 1 m. Touching it has a cost.
#[derive(Clone, Copy, Debug)]
pub struct Pillar;

impl Object for Pillar {
    fn name(&self) -> &'static str {
        "pillar"
    }

    fn height(&self) -> f64 {
        0.5
    }

    fn geoms(&self, name: &str) -> String {
        format!(
            r#"<geom name="{name}" type="cylinder" size="0.2 0.5" rgba=".5 .5 1 1" contype="1" conaffinity="1"/>"#
        )
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_pillars"]
    }

    fn cost(&self, pillars: &Objects<'_>, terms: &mut [f64]) {
        terms[0] = touched(pillars);
    }
}
