//! The list of tasks: the published ones and those that a program adds, each made from its id.

use std::collections::BTreeSet;
use std::sync::{LazyLock, PoisonError, RwLock};

use epo_core::{Env, EnvError, TaskFamily};

use crate::navigation::NavigationTask;
use crate::{Physics, TaskEnv, navigation, velocity};

/// One task of the list.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Id, by which commands and configurations name the task.
    pub id: String,
    /// Length of an observation.
    pub obs_len: usize,
    /// Length of an action.
    pub act_len: usize,
    /// Number of steps after which an episode is truncated.
    pub max_steps: usize,
    /// Description of the reward in one line.
    pub reward: String,
    /// Description of the cost in one line.
    pub cost: String,
    /// Speed in m/s above which a step of a velocity task has a cost; `None` for other tasks.
    pub speed_limit: Option<f64>,
    pub(crate) source: Source,
}

/// The definition that a task is made from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Navigation(NavigationTask),
    Velocity(&'static velocity::VelocityTask),
    /// An environment that the program registered, without our simulator.
    Own(MakeEnv),
}

/// A function that makes one environment.
pub type MakeEnv = fn() -> Result<Box<dyn Env>, EnvError>;

/// A function that makes environments of one task; see [`env_maker`].
pub type EnvMaker = Box<dyn Fn() -> Result<Box<dyn Env>, TaskError>>;

impl TaskInfo {
    /// The family that decides the presets of a run on this task; `None` for an environment that
    /// was added with [`register_env`], which has no presets.
    pub fn family(&self) -> Option<TaskFamily> {
        match self.source {
            Source::Navigation(_) => Some(TaskFamily::Navigation),
            Source::Velocity(_) => Some(TaskFamily::Velocity),
            Source::Own(_) => None,
        }
    }

    /// Whether MuJoCo simulates the task, so that [`make`] builds it.
    pub fn is_simulated(&self) -> bool {
        !matches!(self.source, Source::Own(_))
    }
}

impl From<NavigationTask> for TaskInfo {
    fn from(task: NavigationTask) -> Self {
        Self {
            id: task.id.clone(),
            obs_len: task.obs_len(),
            act_len: task.robot.act_len,
            max_steps: task.scene.max_steps,
            reward: task.reward.clone(),
            cost: task.cost.clone(),
            speed_limit: None,
            source: Source::Navigation(task),
        }
    }
}

/// The reason why a task could not be made or added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// No task has that id.
    #[error("unknown task `{id}`{} (`epo tasks` lists all)", suggestion(nearest.as_deref()))]
    Unknown {
        /// The id that was asked for.
        id: String,
        /// The most similar id, if one is similar.
        nearest: Option<String>,
    },
    /// The id of a new task already belongs to another task.
    #[error("the id `{id}` belongs to another task already: choose another id")]
    Taken {
        /// The id.
        id: String,
    },
    /// The task has no MuJoCo simulation, which the caller needs.
    #[error("`{id}` is not simulated by MuJoCo, so its bodies and its physics cannot be read")]
    NotSimulated {
        /// Task id.
        id: String,
    },
    /// The scene of a new task is invalid.
    #[error("{id}: {why}")]
    Scene {
        /// Task id.
        id: String,
        /// The reason.
        why: String,
    },
    /// MuJoCo refused the model.
    #[error("{id}: {cause}")]
    Mujoco {
        /// Task id.
        id: String,
        /// The message of MuJoCo.
        cause: epo_mujoco::Error,
    },
    /// An environment that was added with [`register_env`] could not be made.
    #[error("{id}: {cause}")]
    Env {
        /// Task id.
        id: String,
        /// The message of the environment.
        cause: EnvError,
    },
}

static PUBLISHED: LazyLock<Vec<TaskInfo>> =
    LazyLock::new(|| navigation::published().map(TaskInfo::from).chain(velocity::published()).collect());

static ADDED: RwLock<Vec<&'static TaskInfo>> = RwLock::new(Vec::new());

/// Returns every task: the published ones, then the added ones in the order in which they were added.
pub fn tasks() -> Vec<&'static TaskInfo> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    PUBLISHED.iter().chain(added.iter().copied()).collect()
}

/// Returns the task with this id. If there is none, the error names the most similar id.
pub fn task(id: &str) -> Result<&'static TaskInfo, TaskError> {
    let all = tasks();
    if let Some(info) = all.iter().find(|task| task.id == id) {
        return Ok(info);
    }
    let distance =
        |task: &&&TaskInfo| strsim::damerau_levenshtein(&task.id.to_lowercase(), &id.to_lowercase());
    let nearest = all.iter().min_by_key(distance).filter(|task| 2 * distance(task) <= task.id.len());
    Err(TaskError::Unknown { id: id.to_owned(), nearest: nearest.map(|task| task.id.clone()) })
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |id| format!("; did you mean `{id}`?"))
}

/// Adds a navigation task to the list. Every function and command of this process then finds it by its id.
///
/// A program calls it once, before anything else. No other task may have this id.
///
/// # Errors
/// If another task has this id, if two groups of objects have the same name, or if the name of a cost term does
/// not begin with `cost_`.
pub fn register(task: NavigationTask) -> Result<&'static TaskInfo, TaskError> {
    let wrong = |why| Err(TaskError::Scene { id: task.id.clone(), why });
    let mut names = BTreeSet::new();
    for group in &task.scene.groups {
        if !names.insert(group.object.name()) {
            return wrong(format!("two groups of objects have the name `{}`", group.object.name()));
        }
        if let Some(term) = group.cost_terms().iter().find(|term| !term.starts_with("cost_")) {
            return wrong(format!("the name of the cost term `{term}` must begin with `cost_`"));
        }
    }
    add(task.into())
}

/// Adds your own environment, with or without a simulator, to the list. Its id is that of its
/// [`EnvSpec`](epo_core::EnvSpec). `reward` and `cost` describe reward and cost in one line each.
///
/// Training, evaluation, sweeps and reports find it by its id. Commands that need the bodies of a MuJoCo simulation
/// (such as `rollout`) refuse it.
pub fn register_env(reward: &str, cost: &str, make: MakeEnv) -> Result<&'static TaskInfo, TaskError> {
    let env = make().map_err(|cause| TaskError::Env { id: "the new environment".into(), cause })?;
    let spec = env.spec();
    add(TaskInfo {
        id: spec.id.clone(),
        obs_len: spec.obs_len,
        act_len: spec.action.len(),
        max_steps: spec.max_steps,
        reward: reward.to_owned(),
        cost: cost.to_owned(),
        speed_limit: None,
        source: Source::Own(make),
    })
}

fn add(info: TaskInfo) -> Result<&'static TaskInfo, TaskError> {
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    if PUBLISHED.iter().chain(added.iter().copied()).any(|task| task.id == info.id) {
        return Err(TaskError::Taken { id: info.id });
    }
    // the list lives as long as the process, and so do its entries
    let info: &'static TaskInfo = Box::leak(Box::new(info));
    added.push(info);
    Ok(info)
}

/// Compiles the task of that id with the published physics. For more environments of it, use [`TaskEnv::try_clone`].
///
/// It makes tasks that MuJoCo simulates; [`env_maker`] makes environments of any task.
pub fn make(id: &str) -> Result<TaskEnv, TaskError> {
    make_with(id, Physics::Published)
}

/// Compiles the task of that id with the given physics.
pub fn make_with(id: &str, physics: Physics) -> Result<TaskEnv, TaskError> {
    TaskEnv::new(task(id)?, physics)
}

/// Returns a function that makes environments of the task with this id. The task is compiled once and then
/// copied.
///
/// An environment that was added with [`register_env`] has its own physics and ignores `physics`.
pub fn env_maker(id: &str, physics: Physics) -> Result<EnvMaker, TaskError> {
    let info = task(id)?;
    if let Source::Own(make) = info.source {
        return Ok(Box::new(move || make().map_err(|cause| TaskError::Env { id: info.id.clone(), cause })));
    }
    let compiled = TaskEnv::new(info, physics)?;
    Ok(Box::new(move || Ok(Box::new(compiled.try_clone()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_id_is_refused_with_the_nearest_one() {
        let error = make("SafetyPointgoal1-v1").map(|_| ()).unwrap_err();
        let said = "unknown task `SafetyPointgoal1-v1`; did you mean `SafetyPointGoal1-v0`?";
        assert!(error.to_string().starts_with(said), "{error}");
        let error = make("").map(|_| ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown task `` (`epo tasks` lists all)",
            "an empty id has no suggestion"
        );
    }

    #[test]
    fn a_task_names_its_family() {
        let family = |id| task(id).unwrap().family();
        assert_eq!(family("SafetyAntVelocity-v1"), Some(TaskFamily::Velocity));
        assert_eq!(family("SafetyCarGoal1-v0"), Some(TaskFamily::Navigation));
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = tasks().iter().map(|t| &t.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), tasks().len());
    }
}
