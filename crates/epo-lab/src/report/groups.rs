//! Runs sorted into comparable groups, and what each run achieved.
//!
//! ```text
//! group          everything but the seed is equal; runs of one algorithm that differ in the config are told apart
//! final          mean over the last share of a run's steps (10 % unless told)
//! feasible       final cost ≤ d
//! above          share of epochs with J_c > d
//! excess         Σ over epochs of max(0, J_c − d)
//! stays from     first epoch after which no epoch is above the limit again
//! score          max(0, (R − R₀) / (R* − R₀)) if feasible, else 0     (equal safety)
//!                R₀: mean return of the first epochs of the task's runs (untrained)
//!                R*: best mean final return among the algorithms whose mean final cost is within the limit
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use epo_algos::AlgoConfig;

use super::figure::Series;
use crate::history::{Note, Run, Source};
use crate::stats;

/// What the shaded band of a curve shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Band {
    /// Mean ± one standard deviation over the seeds, as in the paper.
    #[default]
    Std,
    /// 95 % interval of the mean over the seeds (Student's t).
    Ci95,
}

/// What a run achieved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Achieved {
    /// Final return.
    pub ret: f64,
    /// Final cost.
    pub cost: f64,
    /// Limit that it was given.
    pub limit: f64,
    /// Share of epochs above the limit.
    pub above: f64,
    /// Sum over epochs of the cost above the limit.
    pub excess: f64,
    /// First epoch after which it stays feasible; `None` if the last one is above the limit.
    pub stays_from: Option<usize>,
}

impl Achieved {
    /// What `run` achieved, final values taken over the last `share` of its steps.
    pub fn of(run: &Run, share: f64) -> Self {
        let end = run.points.last().map_or(0.0, |p| p.steps);
        let last: Vec<_> = run.points.iter().filter(|p| p.steps > end * (1.0 - share)).collect();
        let over = |cost: f64| (cost - run.limit).max(0.0);
        let n = run.points.len() as f64;
        let last_above = run.points.iter().rposition(|p| p.cost > run.limit);
        Self {
            ret: last.iter().map(|p| p.ret).sum::<f64>() / last.len() as f64,
            cost: last.iter().map(|p| p.cost).sum::<f64>() / last.len() as f64,
            limit: run.limit,
            above: run.points.iter().filter(|p| p.cost > run.limit).count() as f64 / n,
            excess: run.points.iter().map(|p| over(p.cost)).sum(),
            stays_from: match last_above {
                None => run.points.first().map(|p| p.epoch),
                Some(i) => run.points.get(i + 1).map(|p| p.epoch),
            },
        }
    }

    /// Is the final cost within the limit?
    pub fn feasible(&self) -> bool {
        self.cost <= self.limit
    }

    /// `Greater` if this run is better: a feasible one beats one that is not; among feasible ones the return decides,
    /// among the others the lower cost above the limit.
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        match (self.feasible(), other.feasible()) {
            (true, true) => self.ret.total_cmp(&other.ret),
            (false, false) => (other.cost - other.limit).total_cmp(&(self.cost - self.limit)),
            (a, b) => a.cmp(&b),
        }
    }
}

/// The runs of one algorithm (or variant) on one task.
#[derive(Clone, Debug)]
pub struct Group {
    /// Task id.
    pub task: String,
    /// Name in legends and tables.
    pub label: String,
    /// What the name stands for, if it is a letter: the values that differ from other runs of the algorithm.
    pub variant: Option<String>,
    /// All its runs, by seed.
    pub runs: Vec<Run>,
    /// What the runs achieved that got as far as the others of the task.
    pub achieved: Vec<Achieved>,
    /// Score at equal safety of each of `achieved`; empty if the task has no safe algorithm to compare with.
    pub scores: Vec<f64>,
}

/// Config paths that never tell two experiments apart.
fn is_incidental(path: &str) -> bool {
    const KEYS: [&str; 8] = [
        "run.seed",
        "run.task",
        "run.name",
        "run.dir",
        "train.threads",
        crate::config::VERSION_KEY,
        "seed",
        "env_id",
    ];
    const TABLES: [&str; 4] = ["meta.", "logger_cfgs.", "exp_increment_cfgs.", "train_cfgs."];
    KEYS.contains(&path) || TABLES.iter().any(|t| path.starts_with(t)) || path == "exp_name"
}

/// Name of an algorithm as papers write it.
fn display(source: Source, algo: &str) -> String {
    match source {
        Source::OmniSafe => format!("{algo} (OmniSafe)"),
        Source::Epo => AlgoConfig::by_name(algo)
            .map_or_else(|| algo.to_uppercase(), |known| known.info().label.to_owned()),
    }
}

/// Order of the legend: the order of the list of algorithms, then unknown names, then OmniSafe's runs.
fn rank(label: &str) -> usize {
    let order = AlgoConfig::all_defaults();
    let name = label.split([' ', ',']).next().unwrap_or(label);
    let rank = order.iter().position(|known| known.info().label == name).unwrap_or(order.len());
    if label.contains("(OmniSafe)") { order.len() + 1 } else { rank }
}

/// Order of the tasks: as the paper shows them, then the rest by name.
fn task_rank(task: &str) -> usize {
    const ORDER: [&str; 8] = [
        "PointGoal1",
        "PointGoal2",
        "PointButton2",
        "CarGoal1",
        "AntVelocity",
        "HalfCheetahVelocity",
        "HumanoidVelocity",
        "SwimmerVelocity",
    ];
    ORDER.iter().position(|o| task.contains(o)).unwrap_or(ORDER.len())
}

/// A run falls short if it has fewer than this share of the steps of the longest run of its task.
const REACHED: f64 = 0.9;

/// Sorts runs into groups, by task and then in the order of the legend.
pub(crate) fn groups(runs: Vec<Run>, share: f64, notes: &mut Vec<Note>) -> Vec<Group> {
    let labels = labels(&runs);
    let mut sorted: BTreeMap<((usize, String), usize, Label), Vec<Run>> = BTreeMap::new();
    for (run, label) in runs.into_iter().zip(labels) {
        let place = ((task_rank(&run.task), run.task.clone()), rank(&label.name), label);
        sorted.entry(place).or_default().push(run);
    }
    let mut groups: Vec<Group> = sorted
        .into_iter()
        .map(|(((_, task), _, label), runs)| {
            let runs = one_per_seed(runs, notes);
            let Label { name: label, variant } = label;
            Group { task, label, variant, runs, achieved: Vec::new(), scores: Vec::new() }
        })
        .collect();
    for group in groups.chunk_by_mut(|a, b| a.task == b.task) {
        achieve(group, share, notes);
        score(group, notes);
    }
    groups
}

/// Longest text of differences that is shown in a legend; beyond it variants are called A, B, …
const LONGEST: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    name: String,
    variant: Option<String>,
}

/// Stands for the value of a key that a run does not have.
const NOT_SET: &str = "not set";

/// A name for each run: its algorithm, and the config values in which it differs from runs of the same algorithm and
/// task.
fn labels(runs: &[Run]) -> Vec<Label> {
    let mut values: BTreeMap<(Source, &str, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    for run in runs {
        for (key, value) in run.config.iter().filter(|(key, _)| !is_incidental(key)) {
            values.entry((run.source, &run.algo, &run.task, key)).or_default().insert(value);
        }
    }
    // a key that only some of the runs have: of another version, with other defaults
    for ((source, algo, task, key), seen) in &mut values {
        let same = |run: &&Run| (run.source, &*run.algo, &*run.task) == (*source, *algo, *task);
        if runs.iter().filter(same).any(|run| !run.config.contains_key(*key)) {
            seen.insert(NOT_SET);
        }
    }
    let mut varying: BTreeMap<(Source, &str), BTreeSet<&str>> = BTreeMap::new();
    for ((source, algo, _, key), seen) in &values {
        if seen.len() > 1 {
            varying.entry((*source, algo)).or_default().insert(key);
        }
    }
    let differences = |run: &Run| {
        let keys = varying.get(&(run.source, run.algo.as_str())).into_iter().flatten();
        let parts = keys.filter_map(|key| {
            let name = key.rsplit('.').next().unwrap_or(key);
            let known = values.contains_key(&(run.source, &*run.algo, &*run.task, *key));
            let value = run.config.get(*key).map(String::as_str).or(known.then_some(NOT_SET))?;
            Some(format!("{name} {}", value.strip_suffix(".0").unwrap_or(value)))
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut variants: BTreeMap<(Source, &str), BTreeSet<String>> = BTreeMap::new();
    for run in runs {
        variants.entry((run.source, &run.algo)).or_default().insert(differences(run));
    }
    let label = |run: &Run| {
        let (algo, own) = (display(run.source, &run.algo), differences(run));
        let all = &variants[&(run.source, run.algo.as_str())];
        match all.iter().any(|d| d.len() > LONGEST) {
            _ if own.is_empty() => Label { name: algo, variant: None },
            false => Label { name: format!("{algo}, {own}"), variant: None },
            true => {
                let place = all.iter().position(|d| *d == own).unwrap_or(0);
                Label { name: format!("{algo} {}", letter(place)), variant: Some(own) }
            }
        }
    };
    runs.iter().map(label).collect()
}

/// A, B, …, Z, A2, B2, …
fn letter(place: usize) -> String {
    let letter = char::from(b'A' + (place % 26) as u8);
    if place < 26 { letter.to_string() } else { format!("{letter}{}", place / 26 + 1) }
}

/// Runs by seed; of two with the same seed the longer one stays.
fn one_per_seed(mut runs: Vec<Run>, notes: &mut Vec<Note>) -> Vec<Run> {
    let reach = |run: &Run| run.points.last().map_or(0.0, |p| p.steps);
    runs.sort_by(|a, b| a.seed.cmp(&b.seed).then(reach(b).total_cmp(&reach(a))));
    let mut kept: Vec<Run> = Vec::new();
    for run in runs {
        match kept.last() {
            Some(last) if last.seed == run.seed => {
                let shown = if reach(last) > reach(&run) { "longer" } else { "first" };
                let message = format!("Seed {} is there twice; the {shown} run is shown.", run.seed);
                notes.push(Note::new(&run.path, message));
            }
            _ => kept.push(run),
        }
    }
    kept
}

fn achieve(groups: &mut [Group], share: f64, notes: &mut Vec<Note>) {
    let reach = |run: &Run| run.points.last().map_or(0.0, |p| p.steps);
    let longest = groups.iter().flat_map(|g| &g.runs).map(reach).fold(0.0, f64::max);
    let all_seeds: BTreeSet<u64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.seed)).collect();
    for group in groups {
        for run in &group.runs {
            if reach(run) >= REACHED * longest {
                group.achieved.push(Achieved::of(run, share));
            } else {
                let message = format!(
                    "The run ends at {:.0} of {longest:.0} steps: its curve is drawn, its final values are left out.",
                    reach(run)
                );
                notes.push(Note::new(&run.path, message));
            }
        }
        let missing: Vec<String> = (all_seeds.iter().filter(|s| group.runs.iter().all(|r| r.seed != **s)))
            .map(u64::to_string)
            .collect();
        if !missing.is_empty() {
            let message = format!(
                "{} has no run of seed {} that others of the task have.",
                group.label,
                missing.join(", ")
            );
            notes.push(Note::new(Path::new(&group.task), message));
        }
    }
}

fn score(groups: &mut [Group], notes: &mut Vec<Note>) {
    let first: Vec<f64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.points[0].ret)).collect();
    let untrained = stats::mean(&first);
    let safe_return = |group: &Group| {
        let mean = |f: fn(&Achieved) -> f64| stats::mean(&group.achieved.iter().map(f).collect::<Vec<_>>());
        (mean(|a| a.cost) <= mean(|a| a.limit)).then(|| mean(|a| a.ret))
    };
    let best = groups.iter().filter_map(safe_return).fold(f64::NEG_INFINITY, f64::max);
    let Some(group) = groups.first() else { return };
    if groups.iter().any(|g| g.runs[0].limit != group.runs[0].limit) {
        let message =
            "The limits differ: returns are not compared, because they were not bought at equal safety.";
        return notes.push(Note::new(Path::new(&group.task), message));
    }
    if best <= untrained {
        let message = "No algorithm is safe and better than untrained: there is no score at equal safety.";
        return notes.push(Note::new(Path::new(&group.task), message));
    }
    for group in groups {
        let score = |a: &Achieved| {
            if a.feasible() { ((a.ret - untrained) / (best - untrained)).max(0.0) } else { 0.0 }
        };
        group.scores = group.achieved.iter().map(score).collect();
    }
}

/// Value of a run at a number of steps, on the straight line between two rows; `None` outside the run.
fn at(points: &[(f64, f64)], steps: f64) -> Option<f64> {
    let i = points.partition_point(|p| p.0 < steps);
    match (i.checked_sub(1).map(|j| points[j]), points.get(i)) {
        (_, Some(&(s, v))) if s == steps => Some(v),
        (Some((s0, v0)), Some(&(s1, v1))) => Some(v0 + (v1 - v0) * (steps - s0) / (s1 - s0)),
        _ => None,
    }
}

/// Centred moving mean over `window` rows (1 leaves the values as they are).
fn smooth(values: &[f64], window: usize) -> Vec<f64> {
    let (before, after) = ((window.max(1) - 1) / 2, window.max(1) / 2);
    (0..values.len())
        .map(|i| stats::mean(&values[i.saturating_sub(before)..(i + after + 1).min(values.len())]))
        .collect()
}

/// Most points of a line; a run with more rows is thinned, never averaged.
const MAX_POINTS: usize = 2000;

/// Mean and band of a group over its runs, at the steps of its longest run.
pub(crate) fn curve(
    group: &Group,
    value: fn(&crate::history::Point) -> f64,
    window: usize,
    band: Band,
    entry: usize,
) -> Series {
    let lines: Vec<Vec<(f64, f64)>> = (group.runs.iter())
        .map(|run| {
            let values = smooth(&run.points.iter().map(value).collect::<Vec<_>>(), window);
            run.points.iter().map(|p| p.steps).zip(values).collect()
        })
        .collect();
    let Some(longest) = lines.iter().max_by(|a, b| a.len().cmp(&b.len())) else { return Series::default() };
    let stride = longest.len().div_ceil(MAX_POINTS);
    // t of the interval by the number of runs; two is the fewest that have a spread
    let t: Vec<f64> = (2..=lines.len()).map(|n| stats::student_t_975((n - 1) as f64)).collect();
    let mut series = Series { entry, ..Series::default() };
    for &(steps, _) in longest.iter().step_by(stride) {
        let values: Vec<f64> = lines.iter().filter_map(|line| at(line, steps)).collect();
        let mean = stats::mean(&values);
        let half = stats::std_dev(&values).map_or(f64::NAN, |sd| match band {
            Band::Std => sd,
            Band::Ci95 => t[values.len() - 2] * sd / (values.len() as f64).sqrt(),
        });
        series.steps.push(steps);
        series.mean.push(mean);
        series.band.push((mean - half, mean + half));
    }
    series
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::history::Point;

    pub(crate) fn run(task: &str, algo: &str, seed: u64, rows: &[(f64, f64)]) -> Run {
        let points = (rows.iter().enumerate())
            .map(|(epoch, &(ret, cost))| Point { epoch, steps: 1e6 * (epoch + 1) as f64, ret, cost })
            .collect();
        Run {
            path: format!("{task}/{algo}/{seed}").into(),
            source: Source::Epo,
            task: task.into(),
            algo: algo.into(),
            seed,
            limit: 25.0,
            config: BTreeMap::new(),
            columns: Vec::new(),
            points,
            seconds_per_million: None,
        }
    }

    #[test]
    fn achieved_counts_by_hand() {
        // costs 50, 20, 30, 25, 10 with limit 25: above in epochs 0 and 2, excess 25 + 5, stays feasible from epoch 3
        let rows = [(0.0, 50.0), (1.0, 20.0), (2.0, 30.0), (3.0, 25.0), (5.0, 10.0)];
        let got = Achieved::of(&run("T", "epo", 0, &rows), 0.4); // the last two of five
        let want =
            Achieved { ret: 4.0, cost: 17.5, limit: 25.0, above: 0.4, excess: 30.0, stays_from: Some(3) };
        assert_eq!(got, want);
        assert_eq!(Achieved::of(&run("T", "epo", 0, &[(0.0, 30.0)]), 0.1).stays_from, None);
        assert_eq!(Achieved::of(&run("T", "epo", 0, &[(0.0, 3.0)]), 0.1).stays_from, Some(0));
    }

    #[test]
    fn safety_comes_before_return() {
        let a = |ret, cost| Achieved { ret, cost, limit: 25.0, above: 0.0, excess: 0.0, stays_from: None };
        assert!(a(1.0, 25.0).compare(&a(9.0, 25.1)).is_gt(), "a feasible run beats one that is not");
        assert!(a(2.0, 20.0).compare(&a(1.0, 5.0)).is_gt(), "among feasible runs the return decides");
        assert!(a(1.0, 30.0).compare(&a(9.0, 40.0)).is_gt(), "among infeasible runs the cost decides");
        assert!(a(1.0, 30.0).compare(&a(9.0, 30.0)).is_eq());
    }

    #[test]
    fn score_is_zero_for_unsafe_and_one_for_the_best_safe() {
        let rows = |ret: f64, cost: f64| vec![(2.0, 60.0), (ret, cost)];
        let runs = vec![
            run("T", "epo", 0, &rows(12.0, 20.0)),
            run("T", "ipo", 0, &rows(7.0, 10.0)),
            run("T", "ppo", 0, &rows(30.0, 90.0)),
        ];
        let got = groups(runs, 0.1, &mut Vec::new());
        let scores: Vec<_> = got.iter().map(|g| (g.label.as_str(), g.scores[0])).collect();
        assert_eq!(scores, [("EPO", 1.0), ("IPO", 0.5), ("PPO", 0.0)]);
    }

    #[test]
    fn runs_with_different_limits_have_no_score() {
        let mut strict = run("T", "ipo", 0, &[(2.0, 60.0), (7.0, 5.0)]);
        strict.limit = 10.0;
        let mut notes = Vec::new();
        let got = groups(vec![run("T", "epo", 0, &[(2.0, 60.0), (9.0, 20.0)]), strict], 0.1, &mut notes);
        assert!(got.iter().all(|g| g.scores.is_empty()));
        assert!(notes[0].message.contains("limits differ"), "{notes:?}");
    }

    #[test]
    fn a_key_that_only_one_run_has_tells_them_apart() {
        // an older version did not have the key, and did what the newer one does not do by default
        let mut newer = run("T", "epo", 1, &[(1.0, 1.0)]);
        newer.config = BTreeMap::from([("algo.mu_law".to_owned(), "proportional".to_owned())]);
        let other_task = run("U", "epo", 0, &[(1.0, 1.0)]); // nobody has the key there
        let got = groups(vec![run("T", "epo", 0, &[(1.0, 1.0)]), newer, other_task], 0.1, &mut Vec::new());
        let labels: Vec<_> = got.iter().map(|g| (g.label.as_str(), g.runs.len())).collect();
        assert_eq!(got.len(), 3, "{labels:?}");
        assert!(labels.iter().any(|(label, _)| label.contains("mu_law not set")), "{labels:?}");
    }

    #[test]
    fn variants_are_told_apart_by_what_differs() {
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

    #[test]
    fn short_double_and_missing_runs_are_noted() {
        let long = vec![(1.0, 1.0); 10];
        let runs = vec![
            run("T", "epo", 0, &long),
            run("T", "epo", 1, &long[..5]),
            run("T", "ppo", 0, &long),
            run("T", "ppo", 0, &long[..2]),
        ];
        let mut notes = Vec::new();
        let got = groups(runs, 0.1, &mut notes);
        assert_eq!((got[0].runs.len(), got[0].achieved.len(), got[1].runs.len()), (2, 1, 1));
        let text: String = notes.iter().map(ToString::to_string).collect();
        for part in ["ends at 5000000 of 10000000", "Seed 0 is there twice", "PPO has no run of seed 1"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn curves_are_means_without_smoothing() {
        let runs = vec![
            run("T", "epo", 0, &[(0.0, 10.0), (4.0, 90.0)]),
            run("T", "epo", 1, &[(2.0, 10.0), (4.0, 30.0)]),
        ];
        let got = groups(runs, 0.1, &mut Vec::new());
        let cost = curve(&got[0], |p| p.cost, 1, Band::Std, 0);
        assert_eq!(cost.mean, [10.0, 60.0], "a peak stays a peak");
        let sd = 1800_f64.sqrt(); // of 90 and 30: deviations ±30
        assert!((cost.band[1].1 - 60.0 - sd).abs() < 1e-9 && cost.band[0] == (10.0, 10.0), "{:?}", cost.band);
        let ci = curve(&got[0], |p| p.cost, 1, Band::Ci95, 0); // t = 12.706 with one degree of freedom
        assert!((ci.band[1].1 - 60.0 - 12.7062 * 30.0).abs() < 0.1, "{:?}", ci.band);
        assert_eq!(smooth(&[0.0, 3.0, 6.0], 3), [1.5, 3.0, 4.5]);
        assert_eq!(at(&[(0.0, 0.0), (2.0, 8.0)], 0.5), Some(2.0));
        assert_eq!(at(&[(0.0, 0.0), (2.0, 8.0)], 2.5), None);
    }
}
