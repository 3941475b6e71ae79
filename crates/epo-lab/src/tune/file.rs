//! The file that describes a search for parameters.
//!
//! ```toml
//! [base]                       # settings of every run
//! run.task = "SafetyPointGoal1-v0"
//! run.steps = 1e6
//! [tune]
//! method = "tpe"               # or "random", "sobol"
//! trials = 24                  # number of points that are tried
//! seeds = [0, 1, 2]            # seeds of each trial
//! rungs = [1e5, 3e5]           # steps at which the worst trials are stopped; none by default
//! keep = 0.5                   # share of the trials that continue at each rung
//! [space]                      # the parameters and their values
//! train.lr = { low = 1e-5, high = 1e-3, log = true }
//! train.passes = { low = 2, high = 20, integer = true }
//! train.minibatch = [32, 64, 128]
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Trial;
use crate::config::ResolvedRun;
use crate::sweep::{MOST_RUNS, PlannedRun, SweepFile};

/// How the points of a search are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchMethod {
    /// Independent random points.
    Random,
    /// Points of a scrambled Sobol sequence, which cover the space more evenly than random ones.
    Sobol,
    /// The tree-structured Parzen estimator: more points where earlier trials were good.
    #[default]
    Tpe,
}

/// The values that a parameter may take.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// Numbers from `low` to `high`.
    Number {
        /// Smallest value.
        low: f64,
        /// Largest value.
        high: f64,
        /// Whether values are spread evenly on a logarithmic scale instead of a linear one.
        log: bool,
        /// Whether only integers are taken.
        integer: bool,
    },
    /// A list of values without an order.
    Choice(Vec<Value>),
}

/// A parameter of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedParameter {
    /// Key of the configuration, such as `train.lr`.
    pub key: String,
    /// Its values.
    pub range: Range,
}

impl TunedParameter {
    /// Returns the value at a position `u` in [0, 1).
    pub fn at(&self, u: f64) -> Value {
        match &self.range {
            Range::Choice(values) => {
                values[((u * values.len() as f64) as usize).min(values.len() - 1)].clone()
            }
            Range::Number { low, high, log, integer } => {
                // each integer has an interval of width 1, so that both ends are as likely as the other values
                let (from, to) = if *integer { (low - 0.5, high + 0.5) } else { (*low, *high) };
                let from = if *integer && *log { from.max(low * 0.5) } else { from };
                let value = if *log { from * (to / from).powf(u) } else { from + (to - from) * u };
                match integer {
                    true => Value::Integer(value.round().clamp(*low, *high) as i64),
                    false => Value::Float(six_digits(value).clamp(*low, *high)),
                }
            }
        }
    }

    /// Number of values of a choice; `None` for numbers.
    pub fn choices(&self) -> Option<usize> {
        match &self.range {
            Range::Choice(values) => Some(values.len()),
            Range::Number { .. } => None,
        }
    }
}

/// Rounds to six significant digits, so that a configuration can be read and typed.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The table `[tune]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    method: SearchMethod,
    trials: usize,
    batch: usize,
    seed: u64,
    seeds: Vec<u64>,
    rungs: Vec<f64>,
    keep: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            method: SearchMethod::Tpe,
            trials: 32,
            batch: 8,
            seed: 0,
            seeds: vec![0, 1, 2],
            rungs: Vec::new(),
            keep: 0.5,
        }
    }
}

/// A parsed and checked search file.
#[derive(Clone, Debug)]
pub struct TuneFile {
    /// How points are chosen. Default: tpe.
    pub method: SearchMethod,
    /// Number of trials. Default: 32.
    pub trials: usize,
    /// Number of trials of a generation of `tpe`: they are chosen at the same time and can run at the same time. Smaller
    /// generations learn from earlier results sooner. Default: 8.
    pub batch: usize,
    /// Seed of the search itself. Default: 0.
    pub seed: u64,
    /// Seeds of the runs of each trial. Default: 0, 1 and 2.
    pub seeds: Vec<u64>,
    /// Steps at which trials are compared and the worst are stopped. Default: none.
    pub rungs: Vec<u64>,
    /// Share of the trials that continue at each rung. Default: 0.5.
    pub keep: f64,
    /// Number of steps of a whole run.
    pub steps: u64,
    /// The parameters, in the order of the file.
    pub parameters: Vec<TunedParameter>,
    base: Table,
    engines: SweepFile,
    text: String,
}

impl TuneFile {
    /// Parses and checks a search file. An error message names the mistake.
    ///
    /// Every parameter is checked at both ends of its range, or at every choice, so that a mistake is found before the
    /// first run.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let settings: Settings = match table.remove("tune") {
            None => Settings::default(),
            Some(value) => value
                .try_into()
                .map_err(|e| format!("[tune]: {}", e.to_string().trim().replace('\n', " ")))?,
        };
        let mut parameters = Vec::new();
        match table.remove("space") {
            Some(Value::Table(space)) => read_space("", &space, &mut parameters)?,
            Some(_) => return Err("`space` must be a table: write [space]".to_owned()),
            None => {}
        }
        if parameters.is_empty() {
            return Err("there is nothing to search: write the parameters in [space]".to_owned());
        }
        for key in table.keys() {
            if !["base", "slurm", "ray"].contains(&key.as_str()) {
                return Err(format!(
                    "there is no `{key}` in the file of a search; it has the tables base, tune and space"
                ));
            }
        }
        let base = table.get("base").and_then(Value::as_table).cloned().unwrap_or_default();
        // the rest is a sweep file with one run: its base and the tables of the engines
        table.entry("base").or_insert_with(|| Value::Table(Table::new()));
        let mut one = table;
        if let Some(Value::Table(base)) = one.get_mut("base") {
            place(base, "run.seed", Value::Integer(0));
        }
        let engines = SweepFile::parse(&one.to_string()).map_err(|e| e.to_string())?;
        let run =
            ResolvedRun::from_layers(Some(&base.to_string()), &[]).map_err(|e| format!("[base]: {e}"))?;

        let Settings { method, trials, batch, seed, seeds, rungs, keep } = settings;
        let steps = run.run.steps;
        let refuse = |ok: bool, why: &str| if ok { Ok(()) } else { Err(why.to_owned()) };
        refuse(trials > 0, "`tune.trials` must be at least 1")?;
        refuse(batch > 0, "`tune.batch` must be at least 1")?;
        refuse(keep > 0.0 && keep <= 1.0, "`tune.keep` must be above 0 and at most 1")?;
        refuse(!seeds.is_empty(), "`tune.seeds` must have at least one seed")?;
        let different: BTreeSet<&u64> = seeds.iter().collect();
        refuse(different.len() == seeds.len(), "`tune.seeds` must not repeat a seed")?;
        let whole = rungs.iter().all(|rung| rung.fract() == 0.0 && *rung >= 1.0 && *rung < steps as f64);
        refuse(whole, "`tune.rungs` must be whole numbers from 1 up to, but not including, run.steps")?;
        refuse(rungs.windows(2).all(|pair| pair[0] < pair[1]), "`tune.rungs` must increase")?;
        let all = trials.saturating_mul(seeds.len());
        refuse(all <= MOST_RUNS, &format!("the search has {all} runs, at most {MOST_RUNS} are allowed"))?;
        let rungs = rungs.iter().map(|rung| *rung as u64).collect();
        let text = text.to_owned();
        let file =
            Self { method, trials, batch, seed, seeds, rungs, keep, steps, parameters, base, engines, text };
        file.check_ends()?;
        Ok(file)
    }

    /// Checks each parameter at its ends, with the others in the middle.
    fn check_ends(&self) -> Result<(), String> {
        let middle = vec![0.5; self.parameters.len()];
        for (i, parameter) in self.parameters.iter().enumerate() {
            let n = parameter.choices().unwrap_or(2);
            for k in 0..n {
                let mut point = middle.clone();
                let last = 1.0 - f64::EPSILON;
                point[i] = parameter.choices().map_or(k as f64 * last, |n| (k as f64 + 0.5) / n as f64);
                let value = parameter.at(point[i]);
                self.trial(0, point).map_err(|why| format!("{} = {value}: {why}", parameter.key))?;
            }
        }
        Ok(())
    }

    /// Returns the value of each parameter at a point of the search space.
    pub fn values(&self, point: &[f64]) -> Vec<Value> {
        self.parameters.iter().zip(point).map(|(parameter, u)| parameter.at(*u)).collect()
    }

    /// Returns the trial at a point of the search space.
    pub(crate) fn trial(&self, number: usize, point: Vec<f64>) -> Result<Trial, String> {
        let values = self.values(&point);
        let mut config = self.base.clone();
        for (parameter, value) in self.parameters.iter().zip(&values) {
            place(&mut config, &parameter.key, value.clone());
        }
        let run = |seed: &u64| {
            let mut config = config.clone();
            place(&mut config, "run.seed", Value::Integer(*seed as i64));
            PlannedRun::from_config(&config)
        };
        let runs = self.seeds.iter().map(run).collect::<Result<_, _>>()?;
        self.check_first_rung(&config)?;
        Ok(Trial { number, point, values, runs, results: Vec::new(), failure: None })
    }

    /// Returns an error if a run may have no whole episode at the first rung. Nothing could then be compared.
    fn check_first_rung(&self, config: &Table) -> Result<(), String> {
        let Some(rung) = self.rungs.first() else { return Ok(()) };
        let run = ResolvedRun::from_layers(Some(&config.to_string()), &[]).map_err(|e| e.to_string())?;
        let task = epo_tasks::task(&run.run.task).map_err(|e| e.to_string())?;
        let (envs, epoch) = (run.train.envs as u64, run.train.steps_per_epoch as u64);
        let least = envs * task.max_steps as u64;
        if rung.next_multiple_of(epoch) >= least {
            return Ok(());
        }
        Err(format!(
            "`tune.rungs` begins with {rung} steps, before the first episode has ended: {envs} environments need {least} \
             steps for an episode of {} steps each; use a later first rung, or fewer `train.envs`",
            task.max_steps
        ))
    }

    /// Returns the configuration of a trial without a seed, as TOML for `epo train --config`.
    pub fn config(&self, trial: &Trial) -> String {
        let mut config = self.base.clone();
        for (parameter, value) in self.parameters.iter().zip(&trial.values) {
            place(&mut config, &parameter.key, value.clone());
        }
        config.to_string()
    }

    /// Returns how many of `alive` trials continue after a rung: at least one.
    pub fn kept(&self, alive: usize) -> usize {
        ((alive as f64 * self.keep).ceil() as usize).min(alive).max(alive.min(1))
    }

    /// Returns the tables of the engines, such as `[slurm]`.
    pub fn engines(&self) -> &SweepFile {
        &self.engines
    }

    /// Returns the text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if this search has all trials of `before`; it may have more.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        let same = |a: &Self, b: &Self| {
            (a.method, a.batch, a.seed, &a.seeds, &a.rungs, a.keep.to_bits(), &a.parameters, &a.base)
                == (b.method, b.batch, b.seed, &b.seeds, &b.rungs, b.keep.to_bits(), &b.parameters, &b.base)
        };
        // with these methods there are no generations, so all trials compete with each other at a rung
        let compete = self.method != SearchMethod::Tpe && !self.rungs.is_empty();
        same(self, before)
            && match compete {
                true => self.trials == before.trials,
                false => self.trials >= before.trials,
            }
    }
}

/// Reads the parameters of `[space]`: a list is a choice, a table with `low` and `high` is a range, another table is a
/// part of a dotted key.
fn read_space(path: &str, space: &Table, found: &mut Vec<TunedParameter>) -> Result<(), String> {
    for (name, value) in space {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let range = match value {
            Value::Array(values) if !values.is_empty() => Range::Choice(values.clone()),
            Value::Table(table) if table.contains_key("low") || table.contains_key("high") => {
                number_range(&key, table)?
            }
            Value::Table(table) => {
                read_space(&key, table, found)?;
                continue;
            }
            _ => {
                return Err(format!(
                    "space.{key} must be a list of values, or a range such as {{ low = 0.1, high = 1.0 }}"
                ));
            }
        };
        if key == "run.seed" || key == "run.steps" || key == "run.limit" {
            return Err(format!(
                "space.{key}: trials with different values cannot be compared; use [base] or tune.seeds"
            ));
        }
        found.push(TunedParameter { key, range });
    }
    Ok(())
}

fn number_range(key: &str, table: &Table) -> Result<Range, String> {
    let number = |name: &str| match table.get(name) {
        Some(Value::Float(value)) => Ok(*value),
        Some(Value::Integer(value)) => Ok(*value as f64),
        _ => Err(format!("space.{key} needs the number `{name}`")),
    };
    let flag = |name: &str| match table.get(name) {
        None => Ok(false),
        Some(Value::Boolean(value)) => Ok(*value),
        Some(_) => Err(format!("space.{key}: `{name}` must be true or false")),
    };
    if let Some(other) = table.keys().find(|name| !["low", "high", "log", "integer"].contains(&name.as_str()))
    {
        return Err(format!("space.{key}: there is no `{other}`; a range has low, high, log and integer"));
    }
    let (low, high, log, integer) = (number("low")?, number("high")?, flag("log")?, flag("integer")?);
    if !(low.is_finite() && high.is_finite() && low < high) {
        return Err(format!("space.{key}: `low` must be smaller than `high`, and both finite"));
    }
    if log && low <= 0.0 {
        return Err(format!("space.{key}: a logarithmic range must be above 0"));
    }
    if integer && (low.fract() != 0.0 || high.fract() != 0.0 || high.abs().max(low.abs()) > 2_f64.powi(53)) {
        return Err(format!("space.{key}: the ends of a range of integers must be integers"));
    }
    Ok(Range::Number { low, high, log, integer })
}

/// Sets a dotted key.
fn place(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = table.entry(first.to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                place(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(space: &str) -> Result<TuneFile, String> {
        TuneFile::parse(&format!("[base]\nrun.steps = 1e5\n[space]\n{space}\n"))
    }

    /// This test fails if an end of a range is never reached, is exceeded, or is less likely than the other values.
    #[test]
    fn a_position_is_mapped_to_the_whole_range() {
        let file = parse(
            "train.lr = { low = 1e-5, high = 1e-3, log = true }\ntrain.passes = { low = 2, high = 5, integer = true }\n\
             algo.mu_init = { low = 1, high = 4 }\ntrain.minibatch = [32, 64, 128]",
        )
        .unwrap();
        let at = |key: &str, u: f64| file.parameters.iter().find(|p| p.key == key).unwrap().at(u);
        assert_eq!(at("train.lr", 0.0), Value::Float(1e-5));
        assert_eq!(at("train.lr", 0.5), Value::Float(1e-4), "the geometric mean");
        assert_eq!(at("algo.mu_init", 0.5), Value::Float(2.5), "the arithmetic mean");
        let count = |value: i64| {
            (0..4000).filter(|i| at("train.passes", f64::from(*i) / 4000.0) == Value::Integer(value)).count()
        };
        assert_eq!([1, 2, 3, 4, 5, 6].map(count), [0, 1000, 1000, 1000, 1000, 0]);
        let chosen = [0.0, 0.34, 0.99].map(|u| at("train.minibatch", u));
        assert_eq!(chosen, [32, 64, 128].map(Value::Integer));
        assert_eq!(at("train.lr", 0.123_456_789), Value::Float(1.76569e-5), "six digits");
    }

    #[test]
    fn every_mistake_is_named_before_the_first_run() {
        for (space, part) in [
            ("", "nothing to search"),
            ("train.lrr = { low = 1e-5, high = 1e-3 }", "did you mean `train.lr`"),
            ("train.lr = { low = 1e-3, high = 1e-5 }", "`low` must be smaller"),
            ("train.lr = { low = 0, high = 1e-5, log = true }", "above 0"),
            ("train.lr = { low = 1e-5, high = 1e-3, logg = true }", "there is no `logg`"),
            ("train.lr = { low = 1e-5 }", "needs the number `high`"),
            ("train.lr = 3", "a list of values, or a range"),
            ("train.lr = []", "a list of values, or a range"),
            ("train.gamma = { low = 0.9, high = 1.5 }", "train.gamma = 1.5"),
            ("train.passes = { low = 1.5, high = 3, integer = true }", "must be integers"),
            ("run.algo = [\"epo\", \"epoo\"]", "epoo"),
            ("run.seed = [0, 1]", "cannot be compared"),
        ] {
            let said = parse(space).unwrap_err();
            assert!(said.contains(part), "{space:?}: “{said}” does not say “{part}”");
        }
        let good = "train.lr = { low = 1e-5, high = 1e-3 }";
        for (tune, part) in [
            ("trials = 0", "tune.trials"),
            ("batch = 0", "tune.batch"),
            ("keep = 0.0", "tune.keep"),
            ("seeds = []", "tune.seeds"),
            ("seeds = [1, 1]", "repeat"),
            ("rungs = [2e5]", "tune.rungs"),
            ("rungs = [3e4, 2e4]", "increase"),
            ("method = \"grid\"", "`tpe`"),
            ("trails = 3", "trails"),
            ("trials = 1000000", "at most"),
        ] {
            let said = parse(&format!("{good}\n[tune]\n{tune}")).unwrap_err();
            assert!(said.contains(part), "{tune:?}: “{said}” does not say “{part}”");
        }
        assert!(
            parse(&format!("{good}\n[grid]\nrun.seed = [0]")).unwrap_err().contains("there is no `grid`")
        );
        assert!(parse(&format!("{good}\n[slurm]\ntime = \"1:00:00\"")).is_ok());
    }

    #[test]
    fn at_least_one_trial_goes_on() {
        let file = parse("train.lr = [1e-4, 1e-3]\n[tune]\nkeep = 0.3").unwrap();
        assert_eq!([0, 1, 2, 3, 10].map(|n| file.kept(n)), [0, 1, 1, 1, 3]);
    }
}
