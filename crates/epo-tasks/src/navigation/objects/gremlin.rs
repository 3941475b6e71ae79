//! Gremlin: a light box that is carried around a circle. Touching it has a cost.
//!
//! ```text
//! cost_gremlins = 1[the robot touches a gremlin]
//! path            (0.35 sin t, 0.35 cos t, 0.1) metres from its initial position, t in seconds
//! ```
//! As in Safety-Gymnasium, the path lifts it by 0.1 m, so it floats.

use super::{Carrier, Motion, Object, Objects, touched};

const HEIGHT: f64 = 0.1;
/// Radius of the circle, in metres.
const RADIUS: f64 = 0.35;

/// A light box (8 mg) that is carried around a circle of radius 0.35 m in 2π seconds. Touching it has a cost.
#[derive(Clone, Copy, Debug)]
pub struct Gremlin;

impl Object for Gremlin {
    fn name(&self) -> &'static str {
        "gremlin"
    }

    fn height(&self) -> f64 {
        HEIGHT
    }

    fn geoms(&self, name: &str) -> String {
        format!(
            r#"<geom name="{name}" type="box" size="0.1 0.1 0.1" rgba=".5 0 1 1" contype="1" conaffinity="1" density="0.001"/>"#
        )
    }

    fn motion(&self) -> Motion {
        let path = |seconds: f64| {
            let (sin, cos) = seconds.sin_cos();
            [sin * RADIUS, cos * RADIUS, HEIGHT]
        };
        let geom = r#"type="box" size="0.1 0.1 0.1" rgba=".5 0 1 .1""#;
        Motion::Carried(Carrier { path, geom, height: HEIGHT })
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_gremlins"]
    }

    fn cost(&self, gremlins: &Objects<'_>, terms: &mut [f64]) {
        terms[0] = touched(gremlins);
    }
}
