//! The list of tasks, and how one is made from its id.

use std::sync::LazyLock;

use epo_core::TaskFamily;

use crate::{TaskEnv, navigation, velocity};

/// One task of the list.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Published id.
    pub id: String,
    /// Length of an observation.
    pub obs_len: usize,
    /// Length of an action.
    pub act_len: usize,
    /// Steps after which an episode is cut off.
    pub max_steps: usize,
    /// What is rewarded, in a line.
    pub reward: &'static str,
    /// What costs, in a line.
    pub cost: &'static str,
    pub(crate) kind: Kind,
}

/// Which half of the package a task belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Navigation(navigation::TaskId),
    Velocity(&'static velocity::Task),
}

impl TaskInfo {
    /// The family that decides the presets of a training on this task.
    pub fn family(&self) -> TaskFamily {
        match self.kind {
            Kind::Navigation(_) => TaskFamily::Navigation,
            Kind::Velocity(_) => TaskFamily::Velocity,
        }
    }
}

/// Why a task could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// No task has that id.
    #[error("there is no task `{id}`; the nearest id is `{nearest}` (`epo tasks` lists all)")]
    Unknown {
        /// What was asked for.
        id: String,
        /// The most similar id.
        nearest: String,
    },
    /// The simulator refused.
    #[error("{id}: {source}")]
    Mujoco {
        /// Task id.
        id: String,
        /// What MuJoCo said.
        source: epo_mujoco::Error,
    },
}

static TASKS: LazyLock<Vec<TaskInfo>> =
    LazyLock::new(|| navigation::list().chain(velocity::list()).collect());

/// Every task.
pub fn tasks() -> &'static [TaskInfo] {
    &TASKS
}

/// The task of that id; otherwise an error that names the nearest one.
pub fn task(id: &str) -> Result<&'static TaskInfo, TaskError> {
    if let Some(info) = tasks().iter().find(|t| t.id == id) {
        return Ok(info);
    }
    let distance = |t: &&TaskInfo| strsim::damerau_levenshtein(&t.id.to_lowercase(), &id.to_lowercase());
    let nearest = tasks().iter().min_by_key(distance).map(|t| t.id.clone()).unwrap_or_default();
    Err(TaskError::Unknown { id: id.to_owned(), nearest })
}

/// Compiles the task of that id. For more environments of it, use [`TaskEnv::try_clone`].
pub fn make(id: &str) -> Result<TaskEnv, TaskError> {
    TaskEnv::new(task(id)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_id_is_refused_with_the_nearest_one() {
        let error = make("SafetyPointgoal1-v1").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("`SafetyPointGoal1-v0`"), "{error}");
    }

    #[test]
    fn a_task_names_its_family() {
        let family = |id| task(id).unwrap().family();
        assert_eq!(family("SafetyAntVelocity-v1"), TaskFamily::Velocity);
        assert_eq!(family("SafetyCarGoal1-v0"), TaskFamily::Navigation);
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = tasks().iter().map(|t| &t.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), tasks().len());
    }
}
