//! The reference of the configuration: every key with its documentation, its default and its range.
//!
//! The texts are the doc comments of the parameters ([`epo_core::parameters!`]). This module
//! generates the output of `epo algos NAME` and `epo train --print-config`.

use epo_algos::AlgoConfig;
use epo_core::{Parameter, TaskFamily};
use toml::{Table, Value};

use crate::config::{ResolvedRun, RunTable, TrainTable, range_of};

/// A key of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyReference {
    /// Dotted key, such as `train.lr`.
    pub key: String,
    /// Description, as one paragraph.
    pub text: String,
    /// Default value in TOML.
    pub default: String,
    /// Task families that have another default, each with this default in TOML.
    pub presets: Vec<(TaskFamily, String)>,
    /// Smallest and largest valid value of an integer; `None` if the key has no such range.
    pub range: Option<(i64, i64)>,
}

impl KeyReference {
    /// Returns description, range and default in one paragraph.
    pub fn paragraph(&self) -> String {
        let mut text = self.text.clone();
        match self.range {
            Some((least, i64::MAX)) => text += &format!(" At least {least}."),
            Some((least, most)) => text += &format!(" From {least} to {most}."),
            None => {}
        }
        text += &format!(" Default: {}", self.default);
        for (family, value) in &self.presets {
            text += &format!(", on {} tasks {value}", family.name());
        }
        text + "."
    }
}

/// Returns the keys of the tables `run` and `train`.
pub fn shared_keys() -> Vec<KeyReference> {
    let run = ResolvedTables::new(&AlgoConfig::all_defaults()[0]);
    let mut keys = run.keys("run", &RunTable::parameters());
    keys.extend(run.keys("train", &TrainTable::parameters()));
    keys
}

/// Returns the keys of the table `algo` for an algorithm.
pub fn algo_keys(algo: &AlgoConfig) -> Vec<KeyReference> {
    ResolvedTables::new(algo).keys("algo", &algo.parameters())
}

/// Returns the configuration of a run as TOML, with the documentation of every key as a comment.
pub fn documented(run: &ResolvedRun) -> String {
    let (table, mut text) = (run.to_table(), String::new());
    let (run_keys, train_keys) = shared_keys().into_iter().partition(|key| key.key.starts_with("run."));
    let tables: [(&str, &str, Vec<KeyReference>); 3] = [
        ("run", "Task, algorithm, seed, length and limit of the run.", run_keys),
        ("train", "Training settings shared by all algorithms.", train_keys),
        ("algo", run.algo.info().summary, algo_keys(&run.algo)),
    ];
    for (name, summary, keys) in tables {
        text += &format!("# {summary}\n[{name}]\n");
        for key in keys {
            let leaf = key.key.rsplit('.').next().unwrap_or_default();
            let value = table.get(name).and_then(|t| t.get(leaf)).map(Value::to_string).unwrap_or_default();
            text += &format!("{}{leaf} = {value}\n", comment(&key.paragraph()));
        }
        text += "\n";
    }
    text
}

/// Returns a paragraph as a TOML comment. Lines have at most 100 characters, unless a single word is longer.
pub fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::from("#"));
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 && line.len() > 1 {
            lines += &format!("{line}\n");
            line = String::from("#");
        }
        line += &format!(" {word}");
    }
    lines + &line + "\n"
}

/// The table of the defaults, and the table of the presets of every task family.
struct ResolvedTables {
    defaults: Table,
    presets: Vec<(TaskFamily, Table)>,
}

impl ResolvedTables {
    fn new(algo: &AlgoConfig) -> Self {
        let preset = |family| (family, tables(&TrainTable::preset(family), &algo.preset(family)));
        let default = AlgoConfig::by_name(algo.name()).unwrap_or_else(|| algo.clone());
        Self {
            defaults: tables(&TrainTable::default(), &default),
            presets: TaskFamily::ALL.into_iter().map(preset).collect(),
        }
    }

    fn keys(&self, table: &str, parameters: &[Parameter]) -> Vec<KeyReference> {
        let value = |tables: &Table, key: &str| tables.get(table)?.get(key).map(Value::to_string);
        let reference = |parameter: &Parameter| {
            let key = format!("{table}.{}", parameter.key);
            let default = value(&self.defaults, parameter.key).unwrap_or_default();
            let presets = self.presets.iter().filter_map(|(family, tables)| {
                let preset = value(tables, parameter.key)?;
                (preset != default).then_some((*family, preset))
            });
            let (presets, range) = (presets.collect(), range_of(&key));
            KeyReference { key, text: parameter.text(), default, presets, range }
        };
        parameters.iter().map(reference).collect()
    }
}

fn tables(train: &TrainTable, algo: &AlgoConfig) -> Table {
    let run = ResolvedRun { run: RunTable::default(), train: train.clone(), algo: algo.clone() };
    run.to_table()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if a key or a preset has no documentation, if a documented key does not exist, or if a
    /// documented default is wrong.
    #[test]
    fn every_key_of_every_algorithm_is_documented_with_the_default_in_use() {
        for algo in AlgoConfig::all_defaults() {
            let run = ResolvedRun::from_layers(None, &[format!("run.algo={}", algo.name())]).unwrap();
            let tables = run.to_table();
            let mut keys = shared_keys();
            keys.extend(algo_keys(&algo));
            let mut found = 0;
            for key in &keys {
                let (table, leaf) = key.key.split_once('.').unwrap();
                let value = tables[table].get(leaf).unwrap_or_else(|| panic!("no {}", key.key)).to_string();
                let varies = ["run.algo", "train.threads"].contains(&key.key.as_str());
                assert!(varies || value == key.default, "{}: {value}, documented {}", key.key, key.default);
                found += 1;
            }
            let all: usize = tables.values().map(|t| t.as_table().unwrap().len()).sum();
            assert_eq!(found, all, "{}", algo.name());
        }
        let paragraph = |key: &str| {
            let all = [shared_keys(), algo_keys(&AlgoConfig::all_defaults()[0])].concat();
            all.iter().find(|k| k.key == key).unwrap().paragraph()
        };
        assert_eq!(
            paragraph("train.envs"),
            "Number of environments that are stepped side by side. Changes the results. With the default, each environment \
             plays whole episodes of 1,000 steps in an epoch. From 1 to 10000. Default: 16."
        );
        assert!(paragraph("train.target_kl").ends_with("Default: 0.01, on velocity tasks 0.02."));
    }

    #[test]
    fn the_documented_configuration_is_the_configuration() {
        for algo in AlgoConfig::all_defaults() {
            let set = [format!("run.algo={}", algo.name()), "train.gamma=0.9".to_owned()];
            let run = ResolvedRun::from_layers(None, &set).unwrap();
            let text = documented(&run);
            assert_eq!(ResolvedRun::from_layers(Some(&text), &[]).unwrap(), run, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }
}
