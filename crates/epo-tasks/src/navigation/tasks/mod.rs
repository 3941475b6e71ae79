//! The published families of navigation tasks, one file each. To add one, write its file and name it in [`FAMILIES`].

mod button;
mod circle;
mod goal;
mod push;
mod run;

use super::robots::Robot;
use super::rules::Rules;
use super::scene::Scene;

/// A published family: one task per robot and level.
#[derive(Debug)]
pub(crate) struct Family {
    /// Name in the ids.
    pub(crate) name: &'static str,
    /// The levels for a robot, the easiest first.
    pub(crate) levels: fn(&Robot) -> Vec<Level>,
    /// The rules, which all levels share.
    pub(crate) rules: fn(&Scene) -> Box<dyn Rules>,
    /// Description of the reward in one line.
    pub(crate) reward: &'static str,
}

/// One level of a family.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) scene: Scene,
    /// Description of the cost in one line.
    pub(crate) cost: &'static str,
}

/// Every family, in the order of the list of tasks.
pub(crate) static FAMILIES: [Family; 5] = [goal::GOAL, button::BUTTON, push::PUSH, circle::CIRCLE, run::RUN];
