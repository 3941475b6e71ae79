//! Configuration of a run: the keys, their defaults, and how layers of settings become a [`ResolvedRun`].
//!
//! ```text
//! defaults (this file; the algorithm's own in its file)  <  preset of the task's family  <  file  <  --set key=value
//! ```
//! `docs/configuration.md` lists the defaults, and `docs/decisions.md` has the reasons. Code that computes uses
//! only a [`ResolvedRun`]: every number is concrete and checked against the others. It is saved as
//! `config.toml`, and training with that file repeats the run.

use epo_algos::{AlgoConfig, Algorithm, Discount, UpdateConfig, UpdateError};
use epo_core::TaskFamily;
use epo_report::history::VERSION_KEY;
use epo_tasks::Physics;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::episodes::WINDOW;
use crate::layers::{assignment, nearest, overlay};

/// Physics of a new run, unless its configuration sets another one. A run folder without the key was made with
/// published physics.
pub const TRAINING_PHYSICS: Physics = Physics::Published;

epo_core::parameters! {
    /// Task, algorithm, seed, length and limit of a run.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct RunTable {
        /// Task id. `epo tasks` lists all tasks.
        pub task: String = "SafetyPointGoal1-v0".to_owned(),
        /// Algorithm. `epo algos` lists all algorithms.
        pub algo: String = "epo".to_owned(),
        /// Root seed of all random streams.
        pub seed: u64 = 0,
        /// Number of environment steps, over all environments. It is rounded up to a multiple of `train.envs`.
        /// The last epoch is shorter if the steps are not a multiple of `train.steps_per_epoch`.
        pub steps: u64 = 10_000_000,
        /// Limit d on the mean undiscounted cost of an episode, at least 0.
        pub limit: f64 = 25.0,
        /// Physics of the simulation: `published`, as in the published tasks, or `fast`, where
        /// bodies at rest sleep. Your own environments ignore this key.
        pub physics: Physics = TRAINING_PHYSICS,
    }
}

epo_core::parameters! {
    /// Training settings shared by all algorithms.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct TrainTable {
        /// Number of environment steps between two updates, over all environments: the size of an epoch. It must be a
        /// multiple of `envs`.
        pub steps_per_epoch: usize = 16_000,
        /// Number of environments that are stepped side by side. Changes the results. With the default, each
        /// environment plays whole episodes of 1,000 steps in an epoch.
        pub envs: usize = 16,
        /// Number of threads. It does not change the results. 0 means one thread per core.
        pub threads: usize = 0,
        /// Widths of the hidden layers of the policy and of the critics.
        pub hidden: Vec<usize> = vec![64, 64],
        /// Normalise observations by their running mean and standard deviation.
        pub normalize_obs: bool = true,
        /// Divide the targets of the critics by a running estimate of the scale of the discounted
        /// sums of reward and cost. Learning then does not depend on the units of reward and cost.
        pub normalize_values: bool = true,
        /// Minimum number of finished episodes that are averaged in J_c, the cost that the update
        /// receives. If an epoch finishes fewer, earlier episodes are added. A larger number gives
        /// less noise but a longer delay. 0 means only the episodes of the epoch.
        pub cost_window: usize = 32,
        /// Number of epochs between two checkpoints.
        pub save_every: u32 = 1,
        /// Save the policy of every epoch in `policies.bin`, so that every episode of training can be replayed exactly. It
        /// does not change the results.
        pub save_policies: bool = true,
        /// Number of epochs between two evaluations with the mean action during training. 0 means none.
        pub eval_every: u32 = 0,
        /// Number of episodes of an evaluation during training.
        pub eval_episodes: usize = 10,
        /// Number of episodes of the evaluation at the end of the run, for each of the mean and the sampled action. 0
        /// means no evaluation.
        pub final_eval_episodes: usize = 100;
        /// Discounts and GAE factors.
        ..discount: Discount,
        /// Settings of the update.
        ..update: UpdateConfig,
    }
}

/// The range of every count: key, smallest and largest value.
const COUNTS: [(&str, i64, i64); 16] = [
    ("run.seed", 0, i64::MAX),
    ("run.steps", 1, 1_000_000_000_000_000),
    ("train.steps_per_epoch", 1, 100_000_000),
    ("train.envs", 1, 10_000),
    ("train.threads", 0, MAX_THREADS as i64),
    ("train.cost_window", 0, WINDOW as i64),
    ("train.save_every", 1, 1_000_000),
    ("train.eval_every", 0, 1_000_000),
    ("train.eval_episodes", 1, 1_000_000),
    ("train.final_eval_episodes", 0, 1_000_000),
    ("train.passes", 1, 1_000_000),
    ("train.minibatch", 1, 100_000_000),
    ("algo.critic_passes", 1, 1_000_000),
    ("algo.critic_minibatch", 1, 100_000_000),
    ("algo.cg_iters", 0, 10_000),
    ("algo.search_trials", 0, 10_000),
];

/// Largest number of threads.
const MAX_THREADS: usize = 1024;
/// Largest number of hidden layers.
const MAX_LAYERS: usize = 64;
/// Largest width of a hidden layer.
const MAX_WIDTH: usize = 65_536;

/// A run with every number concrete and checked.
///
/// ```
/// use epo_lab::config::ResolvedRun;
/// let file = "[run]\ntask = \"SafetyCarGoal1-v0\"\nsteps = 2e6";
/// let run = ResolvedRun::from_layers(Some(file), &["train.gamma=0.995".to_owned()])?;
/// assert_eq!((run.run.steps, run.train.discount.gamma, run.run.algo.as_str()), (2_000_000, 0.995, "epo"));
/// assert_eq!(run.epochs(), 125);
/// let again = ResolvedRun::from_layers(Some(&run.to_toml()), &[])?; // the saved file repeats the run
/// assert_eq!(again, run);
/// let wrong = ResolvedRun::from_layers(None, &["train.gama=0.995".to_owned()]);
/// assert_eq!(wrong.unwrap_err().to_string(), "there is no `train.gama`; did you mean `train.gamma`?");
/// # Ok::<(), epo_lab::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedRun {
    /// Task, algorithm, seed, length and limit.
    pub run: RunTable,
    /// Training settings shared by all algorithms.
    pub train: TrainTable,
    /// The algorithm with its own parameters.
    pub algo: AlgoConfig,
}

impl ResolvedRun {
    /// Resolves the defaults, the preset of the task's family, the text of a TOML file, and `key=value` assignments;
    /// later layers win.
    ///
    /// A file that a run has saved is complete, so no preset applies to it. Its keys may be those of an earlier version.
    ///
    /// # Errors
    /// If a key does not exist, or a value has the wrong type or is invalid.
    pub fn from_layers(file: Option<&str>, set: &[String]) -> Result<Self, ConfigError> {
        let mut table = file.map(parse).transpose()?.unwrap_or_default();
        let saved = table.remove(VERSION_KEY).is_some(); // the version is not a setting
        if saved {
            epo_algos::modernise(&mut table);
        }
        Self::from_tables(table, set, !saved)
    }

    /// Resolves the text of `config.toml` of a run folder, of this version or of an older one.
    ///
    /// # Errors
    /// If a key does not exist, or a value has the wrong type or is invalid.
    pub fn from_saved(text: &str) -> Result<Self, ConfigError> {
        let mut table = parse(text)?;
        table.remove(VERSION_KEY);
        epo_algos::modernise(&mut table);
        Self::from_tables(table, &[], false)
    }

    fn from_tables(file: Table, set: &[String], use_preset: bool) -> Result<Self, ConfigError> {
        let mut layers = vec![file];
        for text in set {
            layers.push(assignment(text)?);
        }
        // task and algorithm come first: they determine the preset and the keys of `algo`
        let named = |key| layers.iter().rev().find_map(|layer| layer.get("run")?.get(key)?.as_str());
        let default = RunTable::default();
        let algo = algo_named(named("algo").unwrap_or(&default.algo))?;
        let family = family_of(named("task").unwrap_or(&default.task)).filter(|_| use_preset);
        // runs of versions without this key had published physics
        let physics = if use_preset { TRAINING_PHYSICS } else { Physics::Published };
        let run = RunTable { algo: algo.name().to_owned(), physics, ..default };
        let defaults = tables(&run, &TrainTable::default(), &algo)?;
        let mut merged = match family {
            Some(family) => tables(&run, &TrainTable::preset(family), &algo.preset(family))?,
            None => defaults.clone(),
        };
        for layer in &layers {
            overlay(&mut merged, layer, &defaults)?;
        }
        check_counts(&merged)?;
        Self::from_table(&merged, &defaults)?.checked()
    }

    fn from_table(table: &Table, defaults: &Table) -> Result<Self, ConfigError> {
        let run: RunTable = part("run", table, defaults, &[])?;
        let name = [("name", Value::String(run.algo.clone()))];
        let algo = part("algo", table, defaults, &name)?;
        Ok(Self { algo, train: part("train", table, defaults, &[])?, run })
    }

    /// Returns the text of a file that repeats this run.
    pub fn to_toml(&self) -> String {
        self.to_table().to_string()
    }

    /// Returns the three tables of this run.
    pub(crate) fn to_table(&self) -> Table {
        tables(&self.run, &self.train, &self.algo).unwrap_or_default() // numbers and texts cannot fail
    }

    /// The algorithm at the start of training.
    pub(crate) fn build(&self) -> Result<Box<dyn Algorithm>, UpdateError> {
        self.algo.build(&self.train.update, &self.train.discount)
    }

    /// Number of environment steps of the run: `run.steps`, rounded up to a multiple of `train.envs`.
    pub fn total_steps(&self) -> u64 {
        self.run.steps.next_multiple_of(self.train.envs as u64)
    }

    /// Number of epochs of the run. The last one may be shorter than the others.
    pub fn epochs(&self) -> u32 {
        self.epochs_after(0, 0)
    }

    /// Number of epochs of the whole run, given that `epochs` epochs with `steps` steps are done.
    pub(crate) fn epochs_after(&self, epochs: u32, steps: u64) -> u32 {
        let left = self.total_steps().saturating_sub(steps).div_ceil(self.train.steps_per_epoch as u64);
        epochs.saturating_add(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Number of steps of the epoch that begins after `steps` steps: `train.steps_per_epoch`, or the steps that
    /// are left.
    pub fn steps_of_epoch(&self, steps: u64) -> usize {
        let left = self.total_steps().saturating_sub(steps);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.train.steps_per_epoch)
    }

    /// Checks every number alone and in combination with the others, and replaces `threads = 0` by
    /// the number of cores.
    pub(crate) fn checked(mut self) -> Result<Self, ConfigError> {
        let (run, train) = (&self.run, &self.train);
        let limit_ok = run.limit >= 0.0 && run.limit.is_finite();
        require(limit_ok, "run.limit", run.limit, "must be a finite number of at least 0")?;
        let per_epoch = train.steps_per_epoch;
        let why = format!("must be a multiple of train.envs = {}", train.envs);
        require(per_epoch.is_multiple_of(train.envs), "train.steps_per_epoch", per_epoch, &why)?;
        let minibatch = train.update.minibatch;
        let why = format!("must be from 1 to train.steps_per_epoch = {per_epoch}");
        require(minibatch <= per_epoch, "train.minibatch", minibatch, &why)?;
        let fits = self.total_steps().div_ceil(per_epoch as u64) < u64::from(u32::MAX);
        require(fits, "run.steps", run.steps, "makes more than 4294967294 epochs of train.steps_per_epoch")?;
        let hidden = format!("{:?}", train.hidden);
        let why = format!("must be at most {MAX_LAYERS} widths from 1 to {MAX_WIDTH}");
        let widths = train.hidden.iter().all(|w| (1..=MAX_WIDTH).contains(w));
        require(widths && train.hidden.len() <= MAX_LAYERS, "train.hidden", hidden, &why)?;
        // the update and the algorithm check their own settings
        self.build().map_err(|error| match error {
            UpdateError::Config { key, value, reason } => {
                ConfigError::Value { key: key.to_owned(), got: value.to_string(), why: reason.to_owned() }
            }
            other => ConfigError::Syntax(other.to_string()),
        })?;
        self.train.threads = threads("train.threads", self.train.threads)?;
        Ok(self)
    }
}

impl TrainTable {
    /// The default settings for a family of tasks (the preset).
    pub fn preset(family: TaskFamily) -> Self {
        Self { update: UpdateConfig::preset(family), ..Self::default() }
    }
}

/// Returns the family of a task of the registry. An id outside the registry has no family, even if it contains
/// the name of one.
fn family_of(task: &str) -> Option<TaskFamily> {
    epo_tasks::task(task).ok()?.family()
}

fn parse(text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|e| ConfigError::Syntax(e.to_string()))
}

fn tables(run: &RunTable, train: &TrainTable, algo: &AlgoConfig) -> Result<Table, ConfigError> {
    Ok(Table::from_iter([
        ("run".to_owned(), to_value(run)?),
        ("train".to_owned(), to_value(train)?),
        ("algo".to_owned(), Value::Table(params(algo)?)),
    ]))
}

/// Returns an error if a count is out of its range.
fn check_counts(tables: &Table) -> Result<(), ConfigError> {
    for (key, least, most) in COUNTS {
        let Some((table, name)) = key.split_once('.') else { continue };
        let value = tables.get(table).and_then(|t| t.get(name)?.as_integer());
        if let Some(value) = value.filter(|v| !(least..=most).contains(v)) {
            let why = if value < least {
                format!("must be at least {least}")
            } else {
                format!("must be at most {most}")
            };
            return Err(ConfigError::Value { key: key.to_owned(), got: value.to_string(), why });
        }
    }
    Ok(())
}

/// Returns the smallest and largest value of a count, by its dotted key.
pub(crate) fn range_of(key: &str) -> Option<(i64, i64)> {
    COUNTS.iter().find(|(name, ..)| *name == key).map(|&(_, least, most)| (least, most))
}

/// Returns the number of threads that a setting asks for; 0 means one per core. `key` names the setting in the error.
///
/// # Errors
/// If it asks for more than 1024 threads.
pub fn threads(key: &str, asked: usize) -> Result<usize, ConfigError> {
    let why = format!("must be at most {MAX_THREADS}");
    require(asked <= MAX_THREADS, key, asked, &why)?;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    Ok(if asked > 0 { asked } else { cores() })
}

fn require(ok: bool, key: &str, got: impl ToString, why: &str) -> Result<(), ConfigError> {
    if ok {
        return Ok(());
    }
    Err(ConfigError::Value { key: key.to_owned(), got: got.to_string(), why: why.to_owned() })
}

/// Every algorithm with its defaults.
pub fn algorithms() -> Vec<AlgoConfig> {
    AlgoConfig::all_defaults()
}

/// The algorithm of that name with its defaults.
///
/// # Errors
/// If there is none; the error names the most similar one.
pub fn algo_named(name: &str) -> Result<AlgoConfig, ConfigError> {
    AlgoConfig::by_name(name).ok_or_else(|| ConfigError::UnknownAlgo {
        name: name.to_owned(),
        nearest: nearest(name, AlgoConfig::all_defaults().iter().map(AlgoConfig::name)),
    })
}

/// The algorithm's own parameters as a table.
///
/// # Errors
/// If a parameter cannot be written as TOML.
pub fn params(algo: &AlgoConfig) -> Result<Table, ConfigError> {
    match to_value(algo)? {
        Value::Table(mut table) => {
            table.remove("name");
            Ok(table)
        }
        _ => Ok(Table::new()),
    }
}

fn to_value(part: &impl Serialize) -> Result<Value, ConfigError> {
    Value::try_from(part).map_err(|e| ConfigError::Syntax(e.to_string()))
}

/// Reads one table of a configuration. `more` has entries that are not in any file.
///
/// If the table is invalid, the wrong value is found by setting each value alone in the table of defaults.
fn part<T: DeserializeOwned>(
    name: &str,
    table: &Table,
    defaults: &Table,
    more: &[(&str, Value)],
) -> Result<T, ConfigError> {
    let entries = |table: &Table| {
        let mut part = table.get(name).and_then(Value::as_table).cloned().unwrap_or_default();
        part.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        part
    };
    let given = entries(table);
    let error = match Value::Table(given.clone()).try_into::<T>() {
        Ok(part) => return Ok(part),
        Err(error) => error,
    };
    for (key, value) in given {
        let mut alone = entries(defaults);
        alone.insert(key.clone(), value.clone());
        if let Err(error) = Value::Table(alone).try_into::<T>() {
            let why = match (value.as_integer(), error.message().split_once(", expected ")) {
                (Some(..0), _) => "must be at least 0".to_owned(),
                (Some(_), _) => "is too large".to_owned(),
                // "unknown variant `slow`, expected `published` or `fast`"
                (None, Some((_, names))) => format!("must be {names}"),
                (None, None) => error.message().to_owned(),
            };
            let (key, got) = (format!("{name}.{key}"), value.to_string());
            return Err(ConfigError::Value { key, got, why });
        }
    }
    Err(ConfigError::Syntax(format!("[{name}] {}", error.message())))
}

/// The reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key does not exist.
    #[error("there is no `{key}`{}", did_you_mean(nearest))]
    UnknownKey {
        /// Dotted key, as written.
        key: String,
        /// The most similar key, if one is similar.
        nearest: Option<String>,
    },
    /// A value has the wrong type.
    #[error("`{key}` takes {want}, not {got}")]
    Type {
        /// Dotted key.
        key: String,
        /// Value, as written.
        got: String,
        /// The type that it should have.
        want: &'static str,
    },
    /// A value is invalid, alone or in combination with the others.
    #[error("`{key} = {got}`: {why}")]
    Value {
        /// Dotted key.
        key: String,
        /// Value, as written.
        got: String,
        /// The rule that it breaks.
        why: String,
    },
    /// An algorithm does not exist.
    #[error("there is no algorithm `{name}`{} (`epo algos` lists all)", did_you_mean(nearest))]
    UnknownAlgo {
        /// Name, as written.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// An assignment does not have the form `key=value`.
    #[error("`{0}` is not `key=value`, such as `train.gamma=0.99`")]
    Assignment(String),
    /// The text is not valid TOML.
    #[error("{0}")]
    Syntax(String),
    /// The run needs more memory than is available.
    #[error("`{key} = {got}`: the run needs about {} of memory, and {} are available", size(*needs), size(*has))]
    Memory {
        /// The key that most of the memory depends on.
        key: &'static str,
        /// Its value.
        got: String,
        /// Bytes that the run needs.
        needs: u64,
        /// Bytes of the machine, or of the control group of this process.
        has: u64,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |key| format!("; did you mean `{key}`?"))
}

/// Returns a number of bytes in a readable unit.
fn size(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")];
    let (unit, name) = units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1 << 10, "KiB"));
    format!("{:.1} {name}", bytes as f64 / unit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_user_override_the_preset_of_the_task() {
        let run = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
            ResolvedRun::from_layers(Some("[run]\ntask = \"SafetyAntVelocity-v1\""), &set).unwrap()
        };
        let kl = |set: &[&str]| run(set).train.update.target_kl;
        assert_eq!(kl(&[]), 0.02);
        assert_eq!(kl(&["train.target_kl=0.5"]), 0.5);
        assert_eq!(kl(&["run.task=SafetyCarGoal1-v0"]), 0.01, "the preset is that of the task of the run");
        assert_eq!(kl(&["run.algo=cpo"]), 0.02, "CPO has the shared preset only");
        assert_eq!(kl(&["run.task=MyVelocityEnv"]), 0.01, "an id outside the registry has no preset");
        let algo = |set: &[&str]| run(set).algo;
        assert_eq!(
            algo(&[]),
            algo(&["run.task=SafetyCarGoal1-v0"]),
            "EPO has the same defaults for every task"
        );

        // the configuration of a run folder is complete, with or without a version
        let saved = "[run]\ntask = \"SafetyAntVelocity-v1\"\n";
        assert_eq!(ResolvedRun::from_saved(saved).unwrap().train.update.target_kl, 0.01);
    }

    /// This test fails if a count has no maximum: such a run would end in a crash, or never.
    #[test]
    fn every_count_of_every_algorithm_has_a_maximum() {
        let mut tried = 0;
        for algo in algorithms() {
            let tables = tables(&RunTable::default(), &TrainTable::default(), &algo).unwrap();
            for (table, keys) in &tables {
                for (name, _) in keys.as_table().unwrap().iter().filter(|(_, value)| value.is_integer()) {
                    let key = format!("{table}.{name}");
                    if key == "run.seed" {
                        continue; // any seed is as good as another
                    }
                    let set = [format!("run.algo={}", algo.name()), format!("{key}=4000000000000000000")];
                    let error = ResolvedRun::from_layers(None, &set).expect_err(&key).to_string();
                    assert!(error.contains(&key) && error.contains("at most"), "{error}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 50, "{tried} counts");
    }

    /// This test fails if a key of version 0.3 is rejected in a run folder, or silently accepted in a user's file.
    #[test]
    fn a_saved_configuration_of_version_0_3_is_read() {
        let old = "epo_version = \"0.3.0\"\n[run]\nalgo = \"epo\"\nsteps = 100000\n[train]\nbatch = 50\n\
                   steps_per_epoch = 32000\n[algo]\nvariant = \"released\"\nmu_init = 3.0\npmn = \"both\"\n";
        let run = ResolvedRun::from_saved(old).unwrap();
        assert_eq!(ResolvedRun::from_layers(Some(old), &[]).unwrap(), run);
        assert_eq!(
            (run.run.algo.as_str(), run.train.update.minibatch, run.run.steps),
            ("epo-released", 50, 128_000)
        );
        assert_eq!(params(&run.algo).unwrap()["mu"].as_float(), Some(3.0));
        let said = set(&["train.batch=50"]).unwrap_err().to_string();
        assert_eq!(said, "there is no `train.batch`; did you mean `train.minibatch`?");
    }

    #[test]
    fn the_last_epoch_is_as_long_as_the_steps_that_are_left() {
        let run = set(&["run.steps=100"]).unwrap();
        assert_eq!(
            (run.total_steps(), run.epochs(), run.steps_of_epoch(0)),
            (112, 1, 112),
            "a multiple of 16"
        );
        let run = set(&["run.steps=1e5"]).unwrap();
        assert_eq!((run.total_steps(), run.epochs()), (100_000, 7));
        assert_eq!([0, 64_000, 96_000, 100_000].map(|s| run.steps_of_epoch(s)), [16_000, 16_000, 4_000, 0]);
        assert_eq!(run.epochs_after(6, 96_000), 7);
        let longer = set(&["run.steps=2e5"]).unwrap();
        assert_eq!(longer.epochs_after(7, 100_000), 14, "100,000 steps more");
    }

    fn set(assignments: &[&str]) -> Result<ResolvedRun, ConfigError> {
        ResolvedRun::from_layers(None, &assignments.iter().map(|&s| s.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let run = set(&["train.threads=3"]).unwrap();
        assert_eq!((run.run.task.as_str(), run.run.algo.as_str()), ("SafetyPointGoal1-v0", "epo"));
        assert_eq!((run.run.steps, run.run.limit, run.run.seed), (10_000_000, 25.0, 0));
        let (train, update, discount) = (&run.train, &run.train.update, &run.train.discount);
        assert_eq!((train.steps_per_epoch, train.envs, &train.hidden[..]), (16_000, 16, &[64, 64][..]));
        assert_eq!((update.passes, update.minibatch, update.lr, update.target_kl), (4, 64, 3e-4, 0.01));
        assert_eq!((discount.gamma, discount.lambda, train.threads), (0.99, 0.95, 3));
        assert!(set(&[]).unwrap().train.threads > 0, "0 threads means the cores of this machine");
    }

    #[test]
    fn a_run_without_the_key_had_published_physics() {
        let physics = |file: &str| ResolvedRun::from_layers(Some(file), &[]).unwrap().run.physics;
        assert_eq!(physics("[run]\nseed = 1"), TRAINING_PHYSICS, "a new run");
        assert_eq!(physics("epo_version = \"0.3.0\"\n[run]\nseed = 1"), Physics::Published);
        assert_eq!(ResolvedRun::from_saved("[run]\nseed = 1").unwrap().run.physics, Physics::Published);
        for name in Physics::ALL {
            let text = format!("epo_version = \"0.3.0\"\n[run]\nphysics = \"{name}\"");
            assert_eq!(physics(&text), name);
            let run = set(&[&format!("run.physics={name}")]).unwrap();
            assert_eq!(ResolvedRun::from_saved(&run.to_toml()).unwrap(), run);
        }
    }

    #[test]
    fn later_layers_override_earlier_ones_and_keys_belong_to_the_algorithm() {
        let file = "[run]\nalgo = \"ppo-lag\"\nseed = 4\n[algo]\nlambda_lr = 0.1\n";
        let run = ResolvedRun::from_layers(Some(file), &["run.seed=5".into(), "run.seed=6".into()]).unwrap();
        assert_eq!((run.run.algo.as_str(), run.run.seed), ("ppo-lag", 6));
        assert_eq!(params(&run.algo).unwrap()["lambda_lr"].as_float(), Some(0.1));
        // the same file for another algorithm has a key too many
        let error = ResolvedRun::from_layers(Some(file), &["run.algo=ppo".into()]).unwrap_err();
        assert!(matches!(&error, ConfigError::UnknownKey { key, .. } if key == "algo.lambda_lr"), "{error}");
    }

    #[test]
    fn scales_whose_default_is_automatic_can_be_set() {
        for (algo, key) in [("cpo", "c_scale"), ("p3o", "violation_scale")] {
            let with = |value: &str| set(&[&format!("run.algo={algo}"), &format!("algo.{key}={value}")]);
            assert_eq!(params(&with("1").unwrap().algo).unwrap()[key].as_float(), Some(1.0));
            assert_eq!(params(&with("auto").unwrap().algo).unwrap()[key].as_str(), Some("auto"));
            for bad in ["0", "-1", "nan", "inf", "other"] {
                assert!(matches!(with(bad), Err(ConfigError::Value { .. })), "{algo} {bad}: {:?}", with(bad));
            }
        }
    }

    #[test]
    fn the_configuration_of_every_algorithm_can_be_written_and_read() {
        for algo in AlgoConfig::all_defaults() {
            let run = set(&[&format!("run.algo={}", algo.name())]).unwrap();
            assert_eq!(run.algo, algo);
            assert_eq!(ResolvedRun::from_layers(Some(&run.to_toml()), &[]).unwrap(), run);
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_key() {
        for (bad, key) in [
            ("run.steps=0", "run.steps"),
            ("run.limit=-1", "run.limit"),
            ("run.limit=nan", "run.limit"),
            ("train.envs=0", "train.envs"),
            ("train.envs=33", "train.steps_per_epoch"),
            ("train.steps_per_epoch=0", "train.steps_per_epoch"),
            ("train.minibatch=32001", "train.minibatch"),
            ("train.minibatch=0", "train.minibatch"),
            ("train.gamma=1.5", "train.gamma"),
            ("train.gamma=1", "train.gamma"),
            ("train.gamma_c=nan", "train.gamma_c"),
            ("train.entropy=nan", "train.entropy"),
            ("train.steps_per_epoch=9223372036854775804", "train.steps_per_epoch"),
            ("train.hidden=[4000000000000000000]", "train.hidden"),
            ("train.passes=1e15", "train.passes"),
            ("train.threads=100000", "train.threads"),
            ("train.save_every=1e10", "train.save_every"),
            ("run.limit=inf", "run.limit"),
            ("run.steps=1e30", "run.steps"),
            ("run.seed=-1", "run.seed"),
            ("train.lr=-1", "train.lr"),
            ("train.hidden=[0]", "train.hidden"),
        ] {
            match set(&[bad]) {
                Err(ConfigError::Value { key: found, .. }) => assert_eq!(found, key, "{bad}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
        let said = |algo: &str| set(&[&format!("run.algo={algo}")]).unwrap_err().to_string();
        assert_eq!(said("pppo"), "there is no algorithm `pppo`; did you mean `ppo`? (`epo algos` lists all)");
        assert_eq!(said("sac"), "there is no algorithm `sac` (`epo algos` lists all)");
        for (bad, want) in [
            ("run.steps=-5", "`run.steps = -5`: must be at least 1"),
            ("run.steps=0", "`run.steps = 0`: must be at least 1"),
            ("run.seed=-1", "`run.seed = -1`: must be at least 0"),
            ("run.steps=1e30", "`run.steps = 1e30`: is too large"),
            ("run.limit=inf", "`run.limit = inf`: must be a finite number of at least 0"),
            ("run.limit=-1", "`run.limit = -1`: must be a finite number of at least 0"),
            ("run.physics=slow", "`run.physics = \"slow\"`: must be `published` or `fast`"),
            ("algo.pmn=none", "`algo.pmn = \"none\"`: must be one of `both`"),
            ("train.envs=-1", "`train.envs = -1`: must be at least 1"),
        ] {
            let said = set(&[bad]).unwrap_err().to_string();
            assert!(said.starts_with(want), "{bad}: {said}");
        }
        assert!(matches!(set(&["run.steps=many"]), Err(ConfigError::Type { .. })));
        assert!(matches!(ResolvedRun::from_layers(Some("[run"), &[]), Err(ConfigError::Syntax(_))));
    }
}
