//! Sweep files: parsing, and the list of their runs. Every run is checked before the first one starts.
//!
//! ```toml
//! [base]                       # settings of every run
//! run.steps = 1e7
//! [grid]                       # all combinations of the values; each key has a list of values
//! run.task = ["SafetyPointGoal1-v0", "SafetyCarGoal1-v0"]
//! run.algo = ["epo", "cpo"]
//! run.seed = [0, 1, 2]
//! [[list]]                     # optional: each entry is combined with the whole grid
//! train.gamma = 0.995
//! [slurm]                      # optional: resources of the engine, see `engine::slurm`
//! time = "4:00:00"
//! ```
//! Runs are ordered by task, then by seed, then by the other settings. So all runs of a task with one seed come before
//! those with the next seed.

use std::collections::BTreeMap;

use epo_report::settings::{Tree, leaves};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use crate::config::{ConfigError, ResolvedRun, RunTable};
use crate::layers::nearest;

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Name of the run: algorithm, task, seed and a hash of the given configuration. The same configuration has the
    /// same name in every sweep.
    pub id: String,
    /// Configuration in TOML that `epo train --config` is given.
    pub config: String,
    /// Task id.
    pub task: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Root seed of the run.
    pub seed: u64,
    /// Total number of environment steps of the run.
    pub steps: u64,
    /// Total number of epochs of the run.
    pub epochs: u32,
    /// Settings that not all runs of the sweep share, such as `pmn linear, smooth softplus`. Task, algorithm and seed
    /// are left out because the name has them.
    pub variant: String,
    /// Number of environment steps after which the run is paused; `None` trains it to its end. It is not part
    /// of the configuration or of the name: pausing and continuing a run does not change its bytes.
    pub until: Option<u64>,
}

impl PlannedRun {
    /// Checks a configuration (TOML, as for `epo train --config`) and returns its run.
    ///
    /// # Errors
    /// If the configuration has a mistake. The message names it.
    pub fn from_config(config: &Table) -> Result<Self, String> {
        planned(config).map(|(run, _)| run)
    }

    /// Number of environment steps that an engine has to make for this plan: `until`, or all.
    pub fn goal(&self) -> u64 {
        self.until.map_or(self.steps, |until| until.min(self.steps))
    }

    /// Returns the number of whole epochs in a number of environment steps.
    pub(super) fn epochs_of(&self, steps: u64) -> u32 {
        let share = u128::from(steps) * u128::from(self.epochs) / u128::from(self.steps.max(1));
        u32::try_from(share).unwrap_or(u32::MAX).min(self.epochs)
    }

    /// Returns the name of the run, followed by its variant in parentheses if it has one.
    pub fn label(&self) -> String {
        if self.variant.is_empty() { self.id.clone() } else { format!("{} ({})", self.id, self.variant) }
    }
}

/// The mistakes in a sweep file, one message each. [`SweepFile::plan`] collects the mistakes of all runs.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct PlanError(pub Vec<String>);

/// Maximum number of runs of a sweep.
pub const MOST_RUNS: usize = 100_000;

/// Maximum number of mistakes that are named.
const MOST_MISTAKES: usize = 20;

/// A parsed sweep file. [`SweepFile::plan`] checks its values; they can be replaced before that.
#[derive(Clone, Debug, Default)]
pub struct SweepFile {
    base: Vec<(String, Value)>,
    grid: Vec<(String, Vec<Value>)>,
    list: Vec<Vec<(String, Value)>>,
    engines: Table,
}

impl SweepFile {
    /// Parses the text of a sweep file.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let one = |message: String| PlanError(vec![message]);
        let table: Table = text.parse().map_err(|e: toml::de::Error| one(e.to_string()))?;
        let mut file = Self::default();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("base", Value::Table(base)) => file.base.extend(owned_leaves(base)),
                ("grid", Value::Table(grid)) => {
                    for (path, values) in owned_leaves(grid) {
                        match values {
                            Value::Array(values) if !values.is_empty() => file.grid.push((path, values)),
                            _ => {
                                return Err(one(format!(
                                    "grid.{path} must be a list of at least one value, such as [0, 1, 2]"
                                )));
                            }
                        }
                    }
                }
                ("list", Value::Array(entries)) => {
                    for entry in entries {
                        let Value::Table(entry) = entry else {
                            return Err(one("each entry of `list` must be a table: write [[list]]".into()));
                        };
                        file.list.push(owned_leaves(entry).collect());
                    }
                }
                ("slurm" | "ray", Value::Table(_)) => drop(file.engines.insert(key.clone(), value.clone())),
                ("base" | "grid" | "slurm" | "ray", _) => {
                    return Err(one(format!("`{key}` must be a table: write [{key}]")));
                }
                ("list", _) => return Err(one("`list` must be tables: write [[list]]".into())),
                _ => return Err(one(unknown_key(key))),
            }
        }
        if file.base.is_empty() && file.grid.is_empty() && file.list.is_empty() {
            return Err(one("the sweep file describes no run: list the runs in [grid]".into()));
        }
        Ok(file)
    }

    /// Returns the table of an engine, such as `[slurm]`; empty if the file has none.
    pub fn engine(&self, name: &str) -> Table {
        self.engines.get(name).and_then(Value::as_table).cloned().unwrap_or_default()
    }

    /// Sets a value for every run. It replaces all values that the file has for this key.
    pub fn set(&mut self, path: &str, value: Value) {
        self.grid.retain(|(p, _)| p != path);
        for entry in &mut self.list {
            entry.retain(|(p, _)| p != path);
        }
        self.base.retain(|(p, _)| p != path);
        self.base.push((path.to_owned(), value));
    }

    /// Sets the list of values of a key in the grid. It replaces the values in the grid and in `[base]`.
    pub fn set_axis(&mut self, path: &str, values: Vec<Value>) {
        self.grid.retain(|(p, _)| p != path);
        self.base.retain(|(p, _)| p != path);
        self.grid.push((path.to_owned(), values));
    }

    /// Keeps the entries of the list that have one of these values of a key, in the order of the
    /// values. A value that no entry has becomes a new entry. If the list does not have the key,
    /// this is [`set_axis`](Self::set_axis).
    pub fn choose(&mut self, path: &str, values: Vec<Value>) {
        let value_of = |entry: &[(String, Value)]| {
            entry.iter().find(|(name, _)| name == path).map(|(_, value)| value.clone())
        };
        if !self.list.iter().any(|entry| value_of(entry).is_some()) {
            return self.set_axis(path, values);
        }
        let old = std::mem::take(&mut self.list);
        for value in values {
            let known = old.iter().filter(|entry| value_of(entry).as_ref() == Some(&value));
            let before = self.list.len();
            self.list.extend(known.cloned());
            if self.list.len() == before {
                self.list.push(vec![(path.to_owned(), value)]);
            }
        }
    }

    /// Returns all runs of the sweep in the order in which they start, or all mistakes.
    ///
    /// # Errors
    /// If a run has a mistake, or the sweep has more than [`MOST_RUNS`] runs.
    pub fn plan(&self) -> Result<Vec<PlannedRun>, PlanError> {
        let lengths = self.grid.iter().map(|(_, values)| values.len()).chain([self.list.len().max(1)]);
        let total = lengths.fold(1.0, |product, length| product * length as f64);
        if total > MOST_RUNS as f64 {
            let sizes: Vec<String> =
                self.grid.iter().map(|(path, values)| format!("{path}: {}", values.len())).collect();
            return Err(PlanError(vec![format!(
                "the sweep has {} runs, at most {MOST_RUNS} are allowed (number of values: {}; entries of list: {})",
                if total < 1e15 { total.to_string() } else { format!("{total:.1e}") },
                sizes.join(", "),
                self.list.len()
            )]));
        }
        let mut axes = self.grid.clone();
        axes.sort_by_key(|(path, _)| {
            let place = ["run.task", "run.seed"].iter().position(|p| p == path).unwrap_or(2);
            (place, path.clone())
        });
        let entries = if self.list.is_empty() { vec![Vec::new()] } else { self.list.clone() };
        let (mut runs, mut wrong): (Vec<PlannedRun>, Vec<String>) = (Vec::new(), Vec::new());
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut point = vec![0_usize; axes.len()];
        loop {
            for entry in &entries {
                let chosen =
                    axes.iter().zip(&point).map(|((path, values), &i)| (path.clone(), values[i].clone()));
                let mut config = Table::new();
                let layers = self.base.iter().cloned().chain(chosen).chain(entry.iter().cloned());
                let placed: Result<Vec<()>, String> =
                    layers.map(|(path, value)| place(&mut config, &path, value)).collect();
                match placed.and_then(|_| planned(&config)) {
                    Ok((run, whole)) => match known.insert(whole, run.id.clone()) {
                        Some(same) => wrong.push(format!("two runs are the same: {same} and {}", run.id)),
                        None => runs.push(run),
                    },
                    Err(message) if wrong.contains(&message) => {}
                    Err(message) => wrong.push(message),
                }
            }
            if wrong.len() > MOST_MISTAKES {
                wrong.truncate(MOST_MISTAKES);
                wrong.push("there are more mistakes of this kind".to_owned());
                return Err(PlanError(wrong));
            }
            // the next point of the grid; the last axis changes fastest
            let Some(axis) = (0..axes.len()).rev().find(|&k| point[k] + 1 < axes[k].1.len()) else { break };
            point[axis] += 1;
            point[axis + 1..].fill(0);
        }
        tell_apart(&mut runs);
        if wrong.is_empty() { Ok(runs) } else { Err(PlanError(wrong)) }
    }
}

/// Returns a run and its complete configuration. Two runs are the same if their complete configurations are equal.
fn planned(config: &Table) -> Result<(PlannedRun, String), String> {
    let text = config.to_string();
    let run = ResolvedRun::from_layers(Some(&text), &[]).map_err(|e| match &e {
        // the valid keys of `algo` depend on the algorithm, so the message names it: a sweep may have several
        ConfigError::UnknownKey { key, .. } if key.starts_with("algo.") => {
            let algo = config.get("run").and_then(|run| run.get("algo")?.as_str());
            format!("run.algo = \"{}\": {e}", algo.unwrap_or(&RunTable::default().algo))
        }
        _ => e.to_string(),
    });
    let mut run = run?;
    run.train.threads = 0; // the driver sets the number of threads, and the results do not depend on it
    // hash the parsed values, not their spelling: `1e7` and `10000000` are the same run
    let whole = run.to_toml();
    let resolved: Table = whole.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let text = as_in(config, &resolved).to_string();
    let epochs = run.epochs_after(0, 0);
    let run = run.run;
    epo_tasks::task(&run.task).map_err(|e| e.to_string())?;
    let hash = Sha256::digest(text.as_bytes());
    let hash: String = hash.iter().take(4).map(|b| format!("{b:02x}")).collect();
    let id = format!("{}-{}-seed-{:03}-{hash}", run.algo, run.task, run.seed);
    let (task, algo, seed, steps) = (run.task, run.algo, run.seed, run.steps);
    Ok((
        PlannedRun { id, config: text, task, algo, seed, steps, epochs, variant: String::new(), until: None },
        whole,
    ))
}

/// Sets the variant of each run: the settings that not all runs share, without task, algorithm and seed.
fn tell_apart(runs: &mut [PlannedRun]) {
    let given = |run: &PlannedRun| {
        let config: Table = run.config.parse().unwrap_or_default();
        let pairs = leaves(&config).into_iter().map(|(path, value)| (path, value.text()));
        pairs.filter(|(path, _)| !["run.task", "run.algo", "run.seed"].contains(&path.as_str())).collect()
    };
    let given: Vec<Vec<(String, String)>> = runs.iter().map(given).collect();
    let mut holders = BTreeMap::<&(String, String), usize>::new();
    given.iter().flatten().for_each(|pair| *holders.entry(pair).or_default() += 1);
    for (run, own) in runs.iter_mut().zip(&given) {
        let differs = own.iter().filter(|pair| holders[pair] < given.len());
        let part = |(path, value): &(String, String)| {
            let name = path.rsplit('.').next().unwrap_or(path);
            format!("{name} {}", value.strip_suffix(".0").unwrap_or(value))
        };
        run.variant = differs.map(part).collect::<Vec<_>>().join(", ");
    }
}

/// Returns the entries of `given` with their values from `resolved`. `threads` keeps the given value, because its
/// resolved value depends on this machine.
fn as_in(given: &Table, resolved: &Table) -> Table {
    let entry = |(key, value): (&String, &Value)| {
        let value = match (value, resolved.get(key)) {
            (Value::Table(given), Some(Value::Table(resolved))) => Value::Table(as_in(given, resolved)),
            (_, Some(resolved)) if key != "threads" => resolved.clone(),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    given.iter().map(entry).collect()
}

fn unknown_key(key: &str) -> String {
    const TABLES: [&str; 5] = ["base", "grid", "list", "slurm", "ray"];
    if ["run", "train", "algo"].contains(&key) {
        return format!(
            "`{key}` belongs to a configuration; in a sweep file write it below [base] or [grid]"
        );
    }
    match nearest(key, TABLES.into_iter()) {
        Some(near) => format!("there is no `{key}` in a sweep file; did you mean `{near}`?"),
        None => format!("there is no `{key}` in a sweep file; its tables are {}", TABLES.join(", ")),
    }
}

/// Returns a copy of every leaf of a table, with its dotted name.
fn owned_leaves(table: &Table) -> impl Iterator<Item = (String, Value)> {
    leaves(table).into_iter().map(|(name, value)| (name, value.clone()))
}

fn place(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            match table.entry(first.to_owned()).or_insert_with(|| Value::Table(Table::new())) {
                Value::Table(inner) => place(inner, rest, value)?,
                _ => return Err(format!("`{first}` is a value and a table at once, because of `{path}`")),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Vec<PlannedRun>, PlanError> {
        SweepFile::parse(text)?.plan()
    }

    const GRID: &str = "[base]\nrun.steps = 64000\n[grid]\nrun.algo = [\"epo\", \"ppo\"]\nrun.seed = [0, 1]\n\
                        run.task = [\"SafetyPointGoal1-v0\", \"SafetyCarGoal1-v0\"]\n";

    #[test]
    fn a_grid_is_every_combination_once_and_in_order() {
        let runs = plan(GRID).unwrap();
        let names: Vec<_> =
            runs.iter().map(|r| (r.task.as_str(), r.seed, r.algo.as_str(), r.steps)).collect();
        let (a, b) = ("SafetyPointGoal1-v0", "SafetyCarGoal1-v0");
        let four =
            |t| [(t, 0, "epo", 64_000), (t, 0, "ppo", 64_000), (t, 1, "epo", 64_000), (t, 1, "ppo", 64_000)];
        assert_eq!(names, [four(a), four(b)].concat());
        assert_eq!(plan(GRID).unwrap(), runs, "the names do not change");
        assert!(runs[0].id.starts_with("epo-SafetyPointGoal1-v0-seed-000-"), "{}", runs[0].id);
    }

    #[test]
    fn a_list_goes_with_the_whole_grid() {
        let text = "[grid]\nrun.seed = [0, 1, 2]\n[[list]]\nalgo.pmn = \"both\"\n[[list]]\nalgo.pmn = \"linear\"\n\
                    \"train.hidden\" = [32, 32]\n";
        let runs = plan(text).unwrap();
        assert_eq!(runs.len(), 6);
        assert!(runs[1].config.contains("pmn = \"linear\"") && runs[1].config.contains("hidden = [32, 32]"));
        assert_eq!((&*runs[0].variant, &*runs[1].variant), ("pmn both", "pmn linear, hidden [32, 32]"));
        assert_eq!(runs[3].label(), format!("{} (pmn linear, hidden [32, 32])", runs[3].id));
    }

    /// This test fails if a variant names a setting that all runs share or that is part of the run's name.
    #[test]
    fn a_variant_is_what_the_name_does_not_tell() {
        assert!(plan(GRID).unwrap().iter().all(|run| run.variant.is_empty() && run.label() == run.id));
        let runs = plan("[base]\nrun.steps = 64000\n[grid]\nrun.limit = [10, 2.5]\n").unwrap();
        let variants: Vec<_> = runs.iter().map(|run| run.variant.as_str()).collect();
        assert_eq!(variants, ["limit 10", "limit 2.5"]);
    }

    #[test]
    fn every_mistake_is_named_before_the_first_run() {
        for (text, part) in [
            ("[grid]\nrun.sed = [0]\n", "did you mean `run.seed`"),
            ("[base]\ntrain.gama = 0.9\n", "did you mean `train.gamma`"),
            ("[grid]\nrun.algo = [\"epoo\"]\n", "`epo`"),
            ("[grid]\nrun.task = [\"SafetyPointGoal9-v0\"]\n", "did you mean `SafetyPointGoal0-v0`?"),
            ("[grid]\nrun.seed = 3\n", "grid.run.seed must be a list"),
            ("[grid]\nrun.seed = []\n", "grid.run.seed must be a list"),
            ("", "describes no run"),
            ("[gird]\nrun.seed = [0]\n", "did you mean `grid`"),
            ("[sweep]\nrun.seed = [0]\n", "its tables are base, grid, list, slurm, ray"),
            ("[run]\nseed = [0]\n", "write it below [base] or [grid]"),
            ("grid = 3\n", "must be a table"),
            ("list = [1]\n", "write [[list]]"),
            ("[grid]\nrun.seed = [1, 1]\n", "two runs are the same"),
            ("[grid]\nrun.seed = [\"x\"]\n", "run.seed"),
            ("[grid\n", "grid"),
        ] {
            let said = plan(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text:?}: “{said}” does not say “{part}”");
        }
        let two = plan("[grid]\nrun.algo = [\"epoo\", \"pppo\"]\nrun.seed = [0, 1, 2]\n").unwrap_err();
        assert_eq!(two.0.len(), 2, "{two}");
    }

    #[test]
    fn a_run_has_one_name_however_it_is_spelled() {
        let id = |text: &str| plan(text).unwrap()[0].id.clone();
        assert_eq!(id("[base]\nrun.steps = 1e7\n"), id("[base]\nrun.steps = 10_000_000\n"));
        assert_ne!(id("[base]\nrun.steps = 1e7\n"), id("[base]\nrun.steps = 2e7\n"));
        let same = plan("[grid]\nrun.limit = [1, 1.0]\n").unwrap_err().to_string();
        assert!(same.contains("two runs are the same"), "{same}");
        // a default value that is written out, or a number of threads, does not make a different run
        for list in ["train.gamma = 0.99", "train.threads = 2"] {
            let said = plan(&format!("[[list]]\n{list}\n[[list]]\nrun.seed = 0\n")).unwrap_err().to_string();
            assert!(said.contains("two runs are the same"), "{list}: {said}");
        }
    }

    #[test]
    fn values_can_be_replaced() {
        let mut file = SweepFile::parse(GRID).unwrap();
        file.set("run.steps", Value::Integer(32_000));
        file.set_axis("run.seed", vec![Value::Integer(7)]);
        let runs = file.plan().unwrap();
        assert_eq!((runs.len(), runs[0].seed, runs[0].steps), (4, 7, 32_000));
    }

    /// Fails if the size is checked only after the runs have been listed: this test would then never end.
    #[test]
    fn a_sweep_of_too_many_runs_is_refused_in_one_line() {
        let values: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let keys = ["run.seed", "run.limit", "train.gamma", "train.lambda", "train.lr", "train.passes"];
        let keys = keys.iter().chain(&["train.minibatch", "train.envs"]);
        let grid: String = keys.map(|key| format!("{key} = [{}]\n", values.join(", "))).collect();
        let said = plan(&format!("[grid]\n{grid}")).unwrap_err().to_string();
        assert!(said.starts_with("the sweep has 656100000000 runs, at most 100000 are allowed"), "{said}");
        assert!(said.contains("run.seed: 30") && said.lines().count() == 1, "{said}");
    }

    /// Fails if every mistake is collected: a sweep of 100,000 wrong runs would take minutes and as many lines.
    #[test]
    fn only_the_first_mistakes_are_named() {
        let values: Vec<String> = (0..3000).map(|i| format!("\"x{i}\"")).collect();
        let wrong = plan(&format!("[grid]\nrun.task = [{}]\n", values.join(", "))).unwrap_err();
        assert_eq!(wrong.0.len(), MOST_MISTAKES + 1);
        assert!(wrong.0[0].contains("x0") && wrong.0[MOST_MISTAKES].contains("more mistakes"), "{wrong}");
    }
}
