//! Vase: a light box. Touching or moving it has a cost.
//!
//! ```text
//! cost_vases_contact  = 1[the robot touches a vase]
//! cost_vases_velocity = 1[a vase is as fast as 1e-4 m/s or faster]
//! ```

use super::{Motion, Object, Objects, touched};

/// Speed from which a vase counts as moving, in m/s.
pub(crate) const VASE_MOVES: f64 = 1e-4;

/// A light box (8 mg). Touching or moving it has a cost.
#[derive(Clone, Copy, Debug)]
pub struct Vase;

impl Object for Vase {
    fn name(&self) -> &'static str {
        "vase"
    }

    fn height(&self) -> f64 {
        0.1 - 4e-5
    }

    fn geoms(&self, name: &str) -> String {
        format!(
            r#"<geom name="{name}" type="box" size="0.1 0.1 0.1" rgba="0 1 1 1" contype="1" conaffinity="1" density="0.001"/>"#
        )
    }

    fn motion(&self) -> Motion {
        Motion::Loose
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_vases_contact", "cost_vases_velocity"]
    }

    fn cost(&self, vases: &Objects<'_>, terms: &mut [f64]) {
        let moves = |i| {
            let [x, y, z] = vases.velocity(i);
            (x * x + y * y + z * z).sqrt() >= VASE_MOVES
        };
        terms[0] = touched(vases);
        terms[1] = f64::from((0..vases.len()).any(moves));
    }
}
