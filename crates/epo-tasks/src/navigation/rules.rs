//! The rules of a navigation task: what it rewards and when its goal is met.

use super::stage::Stage;

/// The rules of a navigation task: what it rewards and when its goal is met. Costs are defined by the objects.
///
/// An environment calls them in this order:
///
/// ```text
/// reset   new_goal, begin, observation
/// step    physics, reward, cost of the objects, end_step, goal_met; if it is: new_goal; observation
/// ```
/// Rules must not keep state from one episode to the next, and must draw random numbers from the stage only.
/// They are called in every step, so they must not allocate.
pub trait Rules: std::fmt::Debug + Send {
    /// Chooses the next goal: at the start of an episode and whenever a goal was met. Returns `false` if there is no
    /// room for one, which ends the episode. Default: the task has no goal to choose.
    fn new_goal(&mut self, _stage: &mut Stage) -> bool {
        true
    }

    /// Starts an episode, after its first goal was chosen. Default: does nothing.
    fn begin(&mut self, _stage: &mut Stage) {}

    /// The reward of the step that led to the present state. Called once per step.
    fn reward(&mut self, stage: &Stage) -> f64;

    /// Ends a step, after its reward and cost and before the next goal is chosen. Default: does nothing.
    fn end_step(&mut self, _stage: &mut Stage) {}

    /// The distance that the goal requires to become small, in metres, for viewers. Default: `None`, the task
    /// has no goal.
    fn goal_distance(&self, _stage: &Stage) -> Option<f64> {
        None
    }

    /// Whether the goal is met in the present state. Default: never.
    fn goal_met(&self, _stage: &Stage) -> bool {
        false
    }
}
