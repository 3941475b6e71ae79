//! Button: an orange ball to be pressed. Touching a charged button has a cost.
//!
//! ```text
//! cost_buttons = 1[the robot touches a button that is charged]     the rules of the task say which are
//! ```

use super::{Object, Objects, touched};

/// An orange ball to be pressed. The rules of the task decide step by step which buttons have a cost
/// ([`Stage::set_charged`](crate::navigation::Stage::set_charged)).
#[derive(Clone, Copy, Debug)]
pub struct Button;

impl Object for Button {
    fn name(&self) -> &'static str {
        "button"
    }

    fn height(&self) -> f64 {
        0.1
    }

    fn geoms(&self, name: &str) -> String {
        format!(
            r#"<geom name="{name}" type="sphere" size="0.1" rgba="1 .5 0 1" contype="1" conaffinity="1"/>"#
        )
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_buttons"]
    }

    fn cost(&self, buttons: &Objects<'_>, terms: &mut [f64]) {
        terms[0] = touched(buttons);
    }
}
