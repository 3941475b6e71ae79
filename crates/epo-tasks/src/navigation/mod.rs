//! The navigation tasks.

use epo_core::{ActionSpace, EnvError};
use epo_mujoco::{Error, Sim};

use crate::registry::TaskInfo;
use crate::task_env::Moved;

/// One navigation task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskId;

/// The simulation of one navigation task.
#[derive(Debug)]
pub(crate) struct World {
    sim: Sim,
}

/// The entries of the navigation tasks in the list of tasks.
pub(crate) fn list() -> impl Iterator<Item = TaskInfo> {
    std::iter::empty()
}

impl World {
    pub(crate) fn new(_task: TaskId) -> Result<Self, Error> {
        Ok(Self { sim: Sim::from_xml("<mujoco/>")? })
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self { sim: self.sim.try_clone()? })
    }

    pub(crate) fn action_space(&self) -> ActionSpace {
        ActionSpace::symmetric(0)
    }

    /// Names of the terms that [`step`](Self::step) writes.
    pub(crate) fn cost_terms(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn sim(&self) -> &Sim {
        &self.sim
    }

    pub(crate) fn reset(&mut self, _seed: u64, _obs: &mut [f64]) -> Result<(), EnvError> {
        Ok(())
    }

    pub(crate) fn step(&mut self, _action: &[f64], _obs: &mut [f64], _terms: &mut [f64]) -> Moved {
        Moved { reward: 0.0, cost: 0.0, terminated: false, goal_met: false }
    }

    /// The bare physics calls of a step that the published task makes, one by one: what the benchmark compares with.
    pub(crate) fn bare_physics(&mut self, _action: &[f64]) {}
}
