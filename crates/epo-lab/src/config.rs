//! Configuration of a run: what can be set, the defaults, and how layers of it become a [`ResolvedRun`].
//!
//! ```text
//! defaults (this file; the algorithm's own in its file)  <  preset of the task  <  file  <  --set key=value
//! ```
//! The defaults are those of the paper where it states them. Only a [`ResolvedRun`] reaches code that computes: every
//! number is concrete and checked against the others. It is saved as `config.toml`, and that file repeats the run.

use epo_algos::{AlgoConfig, Algorithm, Discount, UpdateConfig, UpdateError};
use epo_report::history::VERSION_KEY;
use epo_tasks::Physics;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::episodes::WINDOW;
use crate::layers::{assignment, nearest, overlay};

/// Physics of a new run, unless its configuration says otherwise. A run folder without the key was made with
/// published physics.
pub const TRAINING_PHYSICS: Physics = Physics::Published;

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTable {
    /// Task id. `SafetyPointGoal1-v0`.
    pub task: String,
    /// Algorithm. `epo`.
    pub algo: String,
    /// Names everything random. 0.
    pub seed: u64,
    /// Environment steps, rounded up to whole epochs. 10 million.
    pub steps: u64,
    /// d, the limit on the mean undiscounted cost of an episode. 25.
    pub limit: f64,
    /// How the bodies of the task are simulated: `published`, as the published tasks do, or `fast`, where bodies at
    /// rest sleep. Only for the tasks that `epo tasks` lists. Default: [`TRAINING_PHYSICS`].
    pub physics: Physics,
}

impl Default for RunTable {
    fn default() -> Self {
        let (task, algo) = ("SafetyPointGoal1-v0".to_owned(), "epo".to_owned());
        Self { task, algo, seed: 0, steps: 10_000_000, limit: 25.0, physics: TRAINING_PHYSICS }
    }
}

/// How it is trained: what does not belong to one algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainTable {
    /// Environment steps between updates, over all environments. 32,000.
    pub steps_per_epoch: usize,
    /// Environments side by side. Changes the numbers. 32.
    pub envs: usize,
    /// Threads. Does not change the numbers. 0 takes one per core.
    pub threads: usize,
    /// Widths of the hidden layers, of policy and critics. [64, 64].
    pub hidden: Vec<usize>,
    /// Whether observations are normalised by their running mean and deviation. True.
    pub normalize_obs: bool,
    /// Episodes that the cost reading J_c looks back on, if the epoch finished fewer: more is steadier and lags. 100, the
    /// most; 0 takes those of the epoch.
    pub cost_window: usize,
    /// Epochs between checkpoints. 1.
    pub save_every: u32,
    /// Epochs between evaluations; 0 evaluates never. 0.
    pub eval_every: u32,
    /// Episodes of an evaluation during training. Default: 10.
    pub eval_episodes: usize,
    /// Episodes of the evaluation at the end of the run, for each of the mean and the sampled action; 0 plays none.
    /// Default: 100.
    pub final_eval_episodes: usize,
    /// Discounts and traces.
    #[serde(flatten)]
    pub discount: Discount,
    /// The update.
    #[serde(flatten)]
    pub update: UpdateConfig,
}

impl Default for TrainTable {
    fn default() -> Self {
        Self {
            steps_per_epoch: 32_000,
            envs: 32,
            threads: 0,
            hidden: vec![64, 64],
            normalize_obs: true,
            cost_window: WINDOW,
            save_every: 1,
            eval_every: 0,
            eval_episodes: 10,
            final_eval_episodes: 100,
            discount: Discount::default(),
            update: UpdateConfig::default(),
        }
    }
}

/// What a family of tasks has instead of the defaults.
///
/// The cost of a velocity task varies less between episodes, so there is less noise that late passes could learn; there the δ of
/// OmniSafe learnt twice as fast. It also answers EPO's weight within a few epochs, so μ may move faster; and with a clip each for reward
/// and cost the δ was never reached and the weight grew without end (trials in `docs/results.md`).
fn preset(task: &str, algo: &str) -> &'static [&'static str] {
    match (task.contains("Velocity"), algo) {
        (true, "epo") => &["train.target_kl=0.02", "algo.mu_rate=0.3", "algo.joint_clip=true"],
        (true, _) => &["train.target_kl=0.02"],
        (false, _) => &[],
    }
}

/// A run with every number concrete and checked.
///
/// ```
/// use epo_lab::config::ResolvedRun;
/// let file = "[run]\ntask = \"SafetyCarGoal1-v0\"\nsteps = 2e6";
/// let run = ResolvedRun::from_layers(Some(file), &["train.gamma=0.995".to_owned()])?;
/// assert_eq!((run.run.steps, run.train.discount.gamma, run.run.algo.as_str()), (2_000_000, 0.995, "epo"));
/// assert_eq!(run.epochs(), 63); // 62.5, rounded up
/// let again = ResolvedRun::from_layers(Some(&run.to_toml()), &[])?; // the saved file repeats the run
/// assert_eq!(again, run);
/// let wrong = ResolvedRun::from_layers(None, &["train.gama=0.995".to_owned()]);
/// assert_eq!(wrong.unwrap_err().to_string(), "there is no `train.gama`; did you mean `train.gamma`?");
/// # Ok::<(), epo_lab::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedRun {
    /// What.
    pub run: RunTable,
    /// How.
    pub train: TrainTable,
    /// The algorithm with its own parameters.
    pub algo: AlgoConfig,
}

impl ResolvedRun {
    /// Defaults, then the preset of the task, then the text of a TOML file, then `key=value` assignments in their order.
    ///
    /// A file that a run has saved is complete: it says all that its version knew, and a preset that came later is not for it.
    pub fn from_layers(file: Option<&str>, set: &[String]) -> Result<Self, ConfigError> {
        Self::layered(file, set, false)
    }

    /// The configuration that a run folder holds.
    pub(crate) fn from_folder(text: &str) -> Result<Self, ConfigError> {
        Self::layered(Some(text), &[], true)
    }

    fn layered(file: Option<&str>, set: &[String], mut saved: bool) -> Result<Self, ConfigError> {
        let mut layers = Vec::new();
        if let Some(text) = file {
            let mut table = text.parse::<Table>().map_err(|e| ConfigError::Syntax(e.to_string()))?;
            saved |= table.remove(VERSION_KEY).is_some(); // says who wrote the file, not what to do
            layers.push(table);
        }
        for text in set {
            layers.push(assignment(text)?);
        }
        // task and algorithm come first: they decide on the preset and on which keys `algo` has
        let named = |key| layers.iter().rev().find_map(|layer| layer.get("run")?.get(key)?.as_str());
        let algo = algo_named(named("algo").unwrap_or("epo"))?;
        let task = named("task").unwrap_or_default();
        let preset = if saved { &[] } else { preset(task, algo.name()) };
        let preset = preset.iter().map(|text| assignment(text));
        // a run of a version that did not know the key had published physics
        let physics = if saved { Physics::Published } else { TRAINING_PHYSICS };
        let run = RunTable { algo: algo.name().to_owned(), physics, ..Default::default() };
        let defaults = Table::from_iter([
            ("run".to_owned(), to_value(&run)?),
            ("train".to_owned(), to_value(&TrainTable::default())?),
            ("algo".to_owned(), Value::Table(params(&algo)?)),
        ]);
        let mut merged = defaults.clone();
        for layer in preset.collect::<Result<Vec<_>, _>>()?.iter().chain(&layers) {
            overlay(&mut merged, layer, "", &defaults)?;
        }
        Self::from_table(&merged, &defaults)?.checked()
    }

    fn from_table(table: &Table, defaults: &Table) -> Result<Self, ConfigError> {
        let run: RunTable = part("run", table, defaults, &[])?;
        let name = [("name", Value::String(run.algo.clone()))];
        let algo = part("algo", table, defaults, &name)?;
        Ok(Self { algo, train: part("train", table, defaults, &[])?, run })
    }

    /// The file that repeats this run.
    pub fn to_toml(&self) -> String {
        let tables = || -> Result<Table, ConfigError> {
            Ok(Table::from_iter([
                ("run".to_owned(), to_value(&self.run)?),
                ("train".to_owned(), to_value(&self.train)?),
                ("algo".to_owned(), Value::Table(params(&self.algo)?)),
            ]))
        };
        tables().map(|t| t.to_string()).unwrap_or_default() // numbers and texts cannot fail
    }

    /// The algorithm at the start of training.
    pub(crate) fn build(&self) -> Result<Box<dyn Algorithm>, UpdateError> {
        self.algo.build(&self.train.update, &self.train.discount)
    }

    /// Epochs of the run.
    pub fn epochs(&self) -> u32 {
        self.run.steps.div_ceil(self.train.steps_per_epoch as u64) as u32
    }

    /// Steps of one environment in an epoch.
    pub fn steps_per_env(&self) -> usize {
        self.train.steps_per_epoch / self.train.envs
    }

    /// Checks every number by itself and beside the others, and takes the number of cores for `threads = 0`.
    fn checked(mut self) -> Result<Self, ConfigError> {
        let (run, train) = (&self.run, &self.train);
        let Discount { gamma, lambda, gamma_c, lambda_c } = train.discount;
        let unit = |x: f64| (0.0..=1.0).contains(&x);
        require(run.steps > 0, "run.steps", run.steps, "must be at least 1")?;
        require(run.limit >= 0.0 && run.limit.is_finite(), "run.limit", run.limit, "must be 0 or more")?;
        require(train.envs > 0, "train.envs", train.envs, "must be at least 1")?;
        let per_epoch = train.steps_per_epoch;
        let why = format!("must be a multiple of train.envs = {}", train.envs);
        require(
            per_epoch > 0 && per_epoch.is_multiple_of(train.envs),
            "train.steps_per_epoch",
            per_epoch,
            &why,
        )?;
        let batch = train.update.batch;
        let why = format!("must be from 1 to train.steps_per_epoch = {per_epoch}");
        require((1..=per_epoch).contains(&batch), "train.batch", batch, &why)?;
        require(self.epochs_fit(), "run.steps", run.steps, "makes more epochs than can be counted")?;
        let why = format!("must be at most {WINDOW}");
        require(train.cost_window <= WINDOW, "train.cost_window", train.cost_window, &why)?;
        let hidden = format!("{:?}", train.hidden);
        require(train.hidden.iter().all(|&w| w > 0), "train.hidden", hidden, "widths must be at least 1")?;
        require(train.save_every > 0, "train.save_every", train.save_every, "must be at least 1")?;
        require(train.eval_episodes > 0, "train.eval_episodes", train.eval_episodes, "must be at least 1")?;
        for (key, value, ok) in [
            ("train.gamma", gamma, unit(gamma)),
            ("train.lambda", lambda, unit(lambda)),
            ("train.gamma_c", gamma_c, unit(gamma_c)),
            ("train.lambda_c", lambda_c, unit(lambda_c)),
        ] {
            require(ok, key, value, "must be between 0 and 1")?;
        }
        // the algorithm knows the rest
        self.build().map_err(|error| match error {
            UpdateError::Config { key, value, reason } => {
                ConfigError::Value { key: key.to_owned(), got: value.to_string(), why: reason.to_owned() }
            }
            other => ConfigError::Syntax(other.to_string()),
        })?;
        self.train.threads = threads(self.train.threads);
        Ok(self)
    }

    fn epochs_fit(&self) -> bool {
        self.run.steps.div_ceil(self.train.steps_per_epoch as u64) < u64::from(u32::MAX)
    }
}

/// That many threads; 0: as many as there are cores.
pub(crate) fn threads(asked: usize) -> usize {
    if asked > 0 { asked } else { std::thread::available_parallelism().map_or(1, usize::from) }
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
pub fn algo_named(name: &str) -> Result<AlgoConfig, ConfigError> {
    AlgoConfig::by_name(name).ok_or_else(|| ConfigError::UnknownAlgo {
        name: name.to_owned(),
        nearest: nearest(name, AlgoConfig::all_defaults().iter().map(AlgoConfig::name)),
    })
}

/// An algorithm's own parameters.
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

/// One table of a configuration, with entries that no file has. What has the right type and is refused is found by
/// trying each value alone, among the defaults.
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
            let negative = value.as_integer().is_some_and(|i| i < 0);
            let why = if negative { "must be at least 0" } else { error.message() };
            let (key, got, why) = (format!("{name}.{key}"), value.to_string(), why.to_owned());
            return Err(ConfigError::Value { key, got, why });
        }
    }
    Err(ConfigError::Syntax(format!("[{name}] {}", error.message())))
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist.
    #[error("there is no `{key}`; did you mean `{nearest}`?")]
    UnknownKey {
        /// As written, dotted.
        key: String,
        /// The key most like it.
        nearest: String,
    },
    /// A value of the wrong type.
    #[error("`{key}` takes {want}, not {got}")]
    Type {
        /// Dotted key.
        key: String,
        /// As written.
        got: String,
        /// What it should be.
        want: &'static str,
    },
    /// A value that makes no sense by itself or beside the others.
    #[error("`{key} = {got}`: {why}")]
    Value {
        /// Dotted key.
        key: String,
        /// As written.
        got: String,
        /// What it should be.
        why: String,
    },
    /// An algorithm that does not exist.
    #[error("there is no algorithm `{name}`; did you mean `{nearest}`?")]
    UnknownAlgo {
        /// As written.
        name: String,
        /// The algorithm most like it.
        nearest: String,
    },
    /// Not `key=value`.
    #[error("`{0}` is not `key=value`, such as `train.gamma=0.99`")]
    Assignment(String),
    /// Not TOML.
    #[error("{0}")]
    Syntax(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_its_preset_under_what_the_user_says() {
        let run = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
            ResolvedRun::from_layers(Some("[run]\ntask = \"SafetyAntVelocity-v1\""), &set).unwrap()
        };
        let kl = |set: &[&str]| run(set).train.update.target_kl;
        assert_eq!(kl(&[]), 0.02);
        assert_eq!(kl(&["train.target_kl=0.5"]), 0.5);
        assert_eq!(kl(&["run.task=SafetyCarGoal1-v0"]), 0.006, "the task that counts is the one that is run");
        assert_eq!(kl(&["run.algo=cpo"]), 0.02, "nothing of EPO's for the others");
        let mu_rate = |set: &[&str]| params(&run(set).algo).unwrap()["mu_rate"].as_float();
        assert_eq!(mu_rate(&[]), Some(0.3));
        assert_eq!(mu_rate(&["algo.mu_rate=0.07"]), Some(0.07));
        assert_eq!(mu_rate(&["run.task=SafetyCarGoal1-v0"]), Some(0.07));
        let joint_clip = |set: &[&str]| params(&run(set).algo).unwrap()["joint_clip"].as_bool();
        assert_eq!([&[][..], &["run.task=SafetyCarGoal1-v0"]].map(joint_clip), [Some(true), Some(false)]);

        // a run of a version that did not know `joint_clip` goes on without it
        let old =
            "epo_version = \"0.2.0\"\n[run]\ntask = \"SafetyAntVelocity-v1\"\n[train]\ntarget_kl = 0.02";
        let old = ResolvedRun::from_layers(Some(old), &[]).unwrap();
        assert_eq!(params(&old.algo).unwrap()["joint_clip"].as_bool(), Some(false));
        assert_eq!(old.train.update.target_kl, 0.02);
    }

    fn set(assignments: &[&str]) -> Result<ResolvedRun, ConfigError> {
        ResolvedRun::from_layers(None, &assignments.iter().map(|&s| s.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let run = set(&["train.threads=3"]).unwrap();
        assert_eq!((run.run.task.as_str(), run.run.algo.as_str()), ("SafetyPointGoal1-v0", "epo"));
        assert_eq!((run.run.steps, run.run.limit, run.run.seed), (10_000_000, 25.0, 0));
        let (train, update, discount) = (&run.train, &run.train.update, &run.train.discount);
        assert_eq!((train.steps_per_epoch, train.envs, &train.hidden[..]), (32_000, 32, &[64, 64][..]));
        assert_eq!((update.passes, update.batch, update.lr, update.target_kl), (40, 64, 3e-4, 0.006));
        assert_eq!((discount.gamma, discount.lambda, train.threads), (0.99, 0.95, 3));
        assert!(set(&[]).unwrap().train.threads > 0, "0 threads means the cores of this machine");
    }

    #[test]
    fn a_run_without_the_key_had_published_physics() {
        let physics = |file: &str| ResolvedRun::from_layers(Some(file), &[]).unwrap().run.physics;
        assert_eq!(physics("[run]\nseed = 1"), TRAINING_PHYSICS, "a new run");
        assert_eq!(physics("epo_version = \"0.3.0\"\n[run]\nseed = 1"), Physics::Published);
        assert_eq!(ResolvedRun::from_folder("[run]\nseed = 1").unwrap().run.physics, Physics::Published);
        for name in Physics::ALL {
            let text = format!("epo_version = \"0.3.0\"\n[run]\nphysics = \"{name}\"");
            assert_eq!(physics(&text), name);
            let run = set(&[&format!("run.physics={name}")]).unwrap();
            assert_eq!(ResolvedRun::from_folder(&run.to_toml()).unwrap(), run);
        }
    }

    #[test]
    fn later_layers_win_and_the_algorithm_decides_its_keys() {
        let file = "[run]\nalgo = \"ppo-lag\"\nseed = 4\n[algo]\nlambda_lr = 0.1\n";
        let run = ResolvedRun::from_layers(Some(file), &["run.seed=5".into(), "run.seed=6".into()]).unwrap();
        assert_eq!((run.run.algo.as_str(), run.run.seed), ("ppo-lag", 6));
        assert_eq!(params(&run.algo).unwrap()["lambda_lr"].as_float(), Some(0.1));
        // the same file for another algorithm has a key too many
        let error = ResolvedRun::from_layers(Some(file), &["run.algo=ppo".into()]).unwrap_err();
        assert!(matches!(&error, ConfigError::UnknownKey { key, .. } if key == "algo.lambda_lr"), "{error}");
    }

    #[test]
    fn scales_that_default_to_one_minus_gamma_can_be_set() {
        for (algo, key) in [("cpo", "c_scale"), ("p3o", "violation_scale")] {
            let run = set(&[&format!("run.algo={algo}"), &format!("algo.{key}=1")]).unwrap();
            assert_eq!(params(&run.algo).unwrap()[key].as_float(), Some(1.0));
        }
    }

    #[test]
    fn every_algorithm_survives_its_file() {
        for algo in AlgoConfig::all_defaults() {
            let run = set(&[&format!("run.algo={}", algo.name())]).unwrap();
            assert_eq!(run.algo, algo);
            assert_eq!(ResolvedRun::from_layers(Some(&run.to_toml()), &[]).unwrap(), run);
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_key() {
        for (bad, key) in [
            ("run.steps=0", "run.steps"),
            ("run.limit=-1", "run.limit"),
            ("run.limit=nan", "run.limit"),
            ("train.envs=0", "train.envs"),
            ("train.envs=33", "train.steps_per_epoch"),
            ("train.steps_per_epoch=0", "train.steps_per_epoch"),
            ("train.batch=32001", "train.batch"),
            ("train.batch=0", "train.batch"),
            ("train.gamma=1.5", "train.gamma"),
            ("train.lr=-1", "train.lr"),
            ("train.hidden=[0]", "train.hidden"),
        ] {
            match set(&[bad]) {
                Err(ConfigError::Value { key: found, .. }) => assert_eq!(found, key, "{bad}"),
                other => panic!("{bad}: {other:?}"),
            }
        }
        assert!(matches!(set(&["run.algo=pppo"]), Err(ConfigError::UnknownAlgo { .. })));
        for (bad, want) in [
            ("run.steps=-5", "`run.steps = -5`: must be at least 0"),
            (
                "run.physics=slow",
                "`run.physics = \"slow\"`: unknown variant `slow`, expected `published` or `fast`",
            ),
            ("algo.pmn=none", "`algo.pmn = \"none\"`: unknown variant `none`, expected one of `both`"),
            ("train.envs=-1", "`train.envs = -1`: must be at least 0"),
        ] {
            let said = set(&[bad]).unwrap_err().to_string();
            assert!(said.starts_with(want), "{bad}: {said}");
        }
        assert!(matches!(set(&["run.steps=many"]), Err(ConfigError::Type { .. })));
        assert!(matches!(ResolvedRun::from_layers(Some("[run"), &[]), Err(ConfigError::Syntax(_))));
    }
}
