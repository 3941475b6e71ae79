//! The task families, one file each. To add one: write its file and name it in [`FAMILIES`].

mod button;
mod circle;
mod goal;
mod push;
mod run;

use super::scene::Scene;
use super::stage::Stage;

/// The rules of a task beyond its scene: what is rewarded and when the goal is met.
pub(crate) trait Task: std::fmt::Debug + Send {
    /// Draws the next goal, at the start and whenever one was met; `false` if there is no room for it.
    fn new_goal(&mut self, _stage: &mut Stage) -> bool {
        true
    }
    /// The start of an episode, after its first goal was drawn.
    fn begin(&mut self, _stage: &Stage) {}
    /// Reward of the step that led to `stage`; called once per step.
    fn reward(&mut self, stage: &Stage) -> f64;
    /// Whether the goal is met now.
    fn goal_met(&self, _stage: &Stage) -> bool {
        false
    }
    /// End of a step, after its reward and cost, before the next goal.
    fn tick(&mut self) {}
    /// The button that is free of cost, or `None` while all are.
    fn button(&self) -> Option<usize> {
        None
    }
}

/// One family: the levels of a task with their rules.
#[derive(Debug)]
pub(crate) struct Family {
    /// Name in the ids.
    pub(crate) name: &'static str,
    pub(crate) levels: &'static [Scene],
    pub(crate) rules: fn() -> Box<dyn Task>,
    /// What is rewarded, in a line.
    pub(crate) reward: &'static str,
    /// What costs at each level, in a line.
    pub(crate) costs: &'static [&'static str],
}

/// Every family.
pub(crate) static FAMILIES: [Family; 5] = [goal::GOAL, button::BUTTON, push::PUSH, circle::CIRCLE, run::RUN];
