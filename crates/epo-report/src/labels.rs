//! Names groups of runs for legends and tables, and gives the order of the groups.
//!
//! The name of a group is that of its algorithm, followed by the settings in which it differs from other runs of the
//! algorithm on the same task.

use std::collections::{BTreeMap, BTreeSet};

use epo_algos::AlgoConfig;

use crate::history::Source;

/// Returns true for configuration keys that do not separate groups, such as the seed.
pub fn is_incidental(path: &str) -> bool {
    const KEYS: [&str; 9] = [
        "run.seed",
        "run.task",
        "run.name",
        "run.dir",
        "train.threads",
        "train.save_policies",
        crate::history::VERSION_KEY,
        "seed",
        "env_id",
    ];
    const TABLES: [&str; 4] = ["meta.", "logger_cfgs.", "exp_increment_cfgs.", "train_cfgs."];
    KEYS.contains(&path) || TABLES.iter().any(|t| path.starts_with(t)) || path == "exp_name"
}

/// Returns the name of an algorithm as papers write it.
fn display(source: Source, algo: &str) -> String {
    match source {
        Source::OmniSafe => format!("{algo} (OmniSafe)"),
        Source::Epo => AlgoConfig::by_name(algo)
            .map_or_else(|| algo.to_uppercase(), |known| known.info().label.to_owned()),
    }
}

/// Returns the rank in the legend: known algorithms in their order, then unknown names, then OmniSafe's runs.
fn rank(source: Source, algo: &str) -> usize {
    let order = AlgoConfig::all_defaults();
    match source {
        Source::OmniSafe => order.len() + 1,
        Source::Epo => order.iter().position(|known| known.name() == algo).unwrap_or(order.len()),
    }
}

/// Returns the rank of a task: the order of the paper; all other tasks come last.
fn task_rank(task: &str) -> usize {
    const ORDER: [&str; 8] = [
        "SafetyPointGoal1",
        "SafetyPointGoal2",
        "SafetyPointButton2",
        "SafetyCarGoal1",
        "SafetyAntVelocity",
        "SafetyHalfCheetahVelocity",
        "SafetyHumanoidVelocity",
        "SafetySwimmerVelocity",
    ];
    let name = task.rsplit_once("-v").map_or(task, |(name, _)| name);
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

/// Maximum length of the differing settings in a legend. If they are longer, variants are called A, B, …
const LONGEST: usize = 40;

/// Name of a group of runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Name in legends and tables.
    pub name: String,
    /// Settings that differ from other runs of the algorithm. `Some` only if the name has a letter in their place.
    pub variant: Option<String>,
}

/// The data that determine the group of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Program that wrote the run folder.
    pub source: Source,
    /// Name of the algorithm.
    pub algo: &'a str,
    /// Task id.
    pub task: &'a str,
    /// All settings as text, by dotted name.
    pub config: &'a BTreeMap<String, String>,
}

/// Sorting key of a group: task, then place in the legend.
pub type Place = ((usize, String), usize, Label);

/// Returns the sorting key of a group. Equal keys mean the same group.
pub fn place(run: &Settings<'_>, label: Label) -> Place {
    ((task_rank(run.task), run.task.to_owned()), rank(run.source, run.algo), label)
}

/// Text that is shown for a key that a run does not have.
const NOT_SET: &str = "not set";

/// Returns a name for each run: its algorithm, and the settings that differ among runs of that algorithm and task.
pub fn labels(runs: &[Settings<'_>]) -> Vec<Label> {
    let mut experiments: BTreeMap<(Source, &str, &str), Vec<usize>> = BTreeMap::new();
    for (i, run) in runs.iter().enumerate() {
        experiments.entry((run.source, run.algo, run.task)).or_default().push(i);
    }
    let mut varying: BTreeMap<(Source, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut known: BTreeMap<(Source, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (&(source, algo, task), members) in &experiments {
        // for each key: the number of runs that have it, and its values
        let mut values: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
        for run in members.iter().map(|&i| &runs[i]) {
            for (key, value) in run.config.iter().filter(|(key, _)| !is_incidental(key)) {
                let (holders, seen) = values.entry(key).or_default();
                *holders += 1;
                seen.insert(value);
            }
        }
        // A key that only some runs have also differs: those runs come from another version, with other defaults.
        let differs = |holders: usize, seen: &BTreeSet<&str>| seen.len() > 1 || holders < members.len();
        for (key, (holders, seen)) in &values {
            if differs(*holders, seen) {
                varying.entry((source, algo)).or_default().insert(key);
            }
        }
        known.insert((source, algo, task), values.into_keys().collect());
    }
    let differences = |run: &Settings<'_>| {
        let keys = varying.get(&(run.source, run.algo)).into_iter().flatten();
        let parts = keys.filter_map(|key| {
            let name = key.rsplit('.').next().unwrap_or(key);
            let known = known[&(run.source, run.algo, run.task)].contains(key);
            let value = run.config.get(*key).map(String::as_str).or(known.then_some(NOT_SET))?;
            Some(format!("{name} {}", value.strip_suffix(".0").unwrap_or(value)))
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let own: Vec<String> = runs.iter().map(differences).collect();
    let mut variants: BTreeMap<(Source, &str), BTreeMap<&str, usize>> = BTreeMap::new();
    for (run, own) in runs.iter().zip(&own) {
        variants.entry((run.source, run.algo)).or_default().insert(own, 0);
    }
    let mut long = BTreeSet::new();
    for (algorithm, all) in &mut variants {
        all.values_mut().enumerate().for_each(|(place, number)| *number = place);
        if all.keys().any(|d| d.len() > LONGEST) {
            long.insert(*algorithm);
        }
    }
    let label = |(run, own): (&Settings<'_>, &String)| {
        let (algo, key) = (display(run.source, run.algo), (run.source, run.algo));
        match long.contains(&key) {
            _ if own.is_empty() => Label { name: algo, variant: None },
            false => Label { name: format!("{algo}, {own}"), variant: None },
            true => {
                let place = variants[&key][own.as_str()];
                Label { name: format!("{algo} {}", letter(place)), variant: Some(own.clone()) }
            }
        }
    };
    runs.iter().zip(&own).map(label).collect()
}

/// Returns the letter of a variant: A, B, …, Z, A2, B2, …
fn letter(place: usize) -> String {
    let letter = char::from(b'A' + (place % 26) as u8);
    if place < 26 { letter.to_string() } else { format!("{letter}{}", place / 26 + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::groups;
    use crate::groups::tests::run;

    /// This test fails if a task of a user is sorted among those of the paper because its id contains the name of one.
    #[test]
    fn tasks_and_algorithms_are_ranked_by_their_whole_names() {
        assert_eq!(task_rank("SafetyPointGoal2-v0"), 1);
        assert_eq!(task_rank("SafetySwimmerVelocity-v1"), 7);
        assert_eq!(task_rank("MySafetyPointGoal2-v0"), 8);
        let own = rank(Source::Epo, "mine");
        assert!(rank(Source::Epo, "ppo") < own && own < rank(Source::OmniSafe, "PPO"));
    }

    #[test]
    fn a_key_that_only_one_run_has_tells_them_apart() {
        // An older version has no such key, and its behaviour is not the default of the newer one.
        let mut newer = run("T", "epo", 1, &[(1.0, 1.0)]);
        newer.config = BTreeMap::from([("algo.mu_law".to_owned(), "proportional".to_owned())]);
        let other_task = run("U", "epo", 0, &[(1.0, 1.0)]); // no run of this task has the key
        let got = groups(vec![run("T", "epo", 0, &[(1.0, 1.0)]), newer, other_task], 0.1, &mut Vec::new());
        let labels: Vec<_> = got.iter().map(|g| (g.label.as_str(), g.runs.len())).collect();
        assert_eq!(got.len(), 3, "{labels:?}");
        assert!(labels.iter().any(|(label, _)| label.contains("mu_law not set")), "{labels:?}");
    }

    #[test]
    fn variants_are_named_by_the_settings_that_differ() {
        let with = |seed, pmn: &str| {
            let mut run = run("T", "epo", seed, &[(1.0, 1.0)]);
            run.config = [("algo.pmn", pmn), ("run.seed", "x"), ("train.gamma", "0.99")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into();
            run
        };
        let runs = vec![with(0, "both"), with(1, "both"), with(0, "linear")];
        let got = groups(runs, 0.1, &mut Vec::new());
        let labels: Vec<_> = got.iter().map(|g| (g.label.as_str(), g.runs.len())).collect();
        assert_eq!(labels, [("EPO, pmn both", 2), ("EPO, pmn linear", 1)]);
    }

    #[test]
    fn variants_with_a_long_description_are_called_by_letters() {
        let with = |pmn: &str, note: &str| {
            let mut run = run("T", "epo", 0, &[(1.0, 1.0)]);
            let config = [("algo.pmn", pmn), ("algo.a_rather_long_name", note), ("algo.another_one", note)];
            run.config = config.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            run
        };
        let runs = vec![with("linear", "2.0"), with("both", "1.0"), run("T", "ppo", 0, &[(1.0, 1.0)])];
        let got = groups(runs, 0.1, &mut Vec::new());
        let labels: Vec<_> = got.iter().map(|g| (g.label.as_str(), g.variant.as_deref())).collect();
        let said = [
            ("EPO A", Some("a_rather_long_name 1, another_one 1, pmn both")),
            ("EPO B", Some("a_rather_long_name 2, another_one 2, pmn linear")),
            ("PPO", None),
        ];
        assert_eq!(labels, said);
        assert_eq!([letter(0), letter(25), letter(26)], ["A", "Z", "A2"]);
    }
}
