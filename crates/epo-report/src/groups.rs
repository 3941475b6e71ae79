//! Sorts runs into groups that differ only in the seed, and computes the results of each run.
//!
//! ```text
//! group          runs that are equal in everything but the seed; other settings of an algorithm make another group
//! final          mean over the last part of a run's steps (default: the last 10 %)
//! feasible       final cost ≤ d
//! above          fraction of epochs with J_c > d
//! excess         Σ over epochs of max(0, J_c − d)
//! stays from     first epoch from which on no epoch is above the limit
//! score          max(0, (R − R₀) / (R* − R₀)) if feasible, else 0     (equal safety)
//!                R₀: mean return of the first epochs of the task's runs (untrained)
//!                R*: best mean final return among the algorithms whose mean final cost is within the limit
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use epo_algos::AlgoConfig;

use crate::history::{Note, Point, Run, Source};
use crate::plot::figure::Series;
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

/// Results of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunResults {
    /// Final return.
    pub ret: f64,
    /// Final cost.
    pub cost: f64,
    /// Cost limit of the run.
    pub limit: f64,
    /// Fraction of epochs with a cost above the limit.
    pub above: f64,
    /// Sum over epochs of `max(0, cost − limit)`.
    pub excess: f64,
    /// First epoch from which on no epoch is above the limit; `None` if the last epoch is above it.
    pub stays_from: Option<usize>,
}

impl RunResults {
    /// Returns the results of `run`. Final values are means over the last `share` (a fraction) of its steps.
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

    /// Returns true if the final cost is within the limit.
    pub fn feasible(&self) -> bool {
        self.cost <= self.limit
    }

    /// Returns `Greater` if this run is better.
    ///
    /// A feasible run is better than an infeasible one. Of two feasible runs, the one with the higher return is better.
    /// Of two infeasible runs, the one that exceeds its limit by less is better.
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
    /// Settings that differ from other runs of the algorithm. `Some` only if the label has a letter in their place.
    pub variant: Option<String>,
    /// All runs, sorted by seed.
    pub runs: Vec<Run>,
    /// Indices of the runs with final values, which are those about as long as the longest run of the task.
    pub reached: Vec<usize>,
    /// Results of each run in `reached`.
    pub achieved: Vec<RunResults>,
    /// Score at equal safety of each entry of `achieved`. Empty if the task has no score (see the notes of the report).
    pub scores: Vec<f64>,
}

/// Returns true for configuration keys that do not separate groups, such as the seed.
pub fn is_incidental(path: &str) -> bool {
    const KEYS: [&str; 8] = [
        "run.seed",
        "run.task",
        "run.name",
        "run.dir",
        "train.threads",
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
fn rank(label: &str) -> usize {
    let order = AlgoConfig::all_defaults();
    let name = label.split([' ', ',']).next().unwrap_or(label);
    let rank = order.iter().position(|known| known.info().label == name).unwrap_or(order.len());
    if label.contains("(OmniSafe)") { order.len() + 1 } else { rank }
}

/// Returns the rank of a task: the order of the paper; all other tasks come last.
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

/// Fraction of the steps of the longest run of the task that a run needs to have final values.
///
/// A run that ends at most one epoch before the longest run has final values too. The longer epoch of the two counts.
const REACHED: f64 = 0.9;

/// Returns the groups of runs, sorted by task and then in the order of the legend.
pub(crate) fn groups(runs: Vec<Run>, share: f64, notes: &mut Vec<Note>) -> Vec<Group> {
    let settings = runs.iter().map(|run| Settings {
        source: run.source,
        algo: &run.algo,
        task: &run.task,
        config: &run.config,
    });
    let labels = labels(&settings.collect::<Vec<_>>());
    let mut sorted: BTreeMap<Place, Vec<Run>> = BTreeMap::new();
    for (run, label) in runs.into_iter().zip(labels) {
        sorted.entry(place(&run.task, label)).or_default().push(run);
    }
    let mut groups: Vec<Group> = sorted
        .into_iter()
        .map(|(((_, task), _, label), runs)| {
            let runs = one_per_seed(runs, notes);
            let Label { name: label, variant } = label;
            Group {
                task,
                label,
                variant,
                runs,
                reached: Vec::new(),
                achieved: Vec::new(),
                scores: Vec::new(),
            }
        })
        .collect();
    for group in groups.chunk_by_mut(|a, b| a.task == b.task) {
        achieve(group, share, notes);
        score(group, notes);
    }
    groups
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

/// What determines the group of a run.
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
pub fn place(task: &str, label: Label) -> Place {
    ((task_rank(task), task.to_owned()), rank(&label.name), label)
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

/// Returns the runs sorted by seed. If several have the same seed, only the longest is kept.
fn one_per_seed(mut runs: Vec<Run>, notes: &mut Vec<Note>) -> Vec<Run> {
    runs.sort_by(|a, b| a.seed.cmp(&b.seed).then(b.steps().total_cmp(&a.steps())));
    let mut kept: Vec<Run> = Vec::new();
    for run in runs {
        match kept.last() {
            Some(last) if last.seed == run.seed => {
                let shown = if last.steps() > run.steps() { "longer" } else { "first" };
                let message = format!("There are two runs of seed {}; the {shown} one is shown.", run.seed);
                notes.push(Note::new(&run.path, message));
            }
            _ => kept.push(run),
        }
    }
    kept
}

/// Returns true if a run has final values. `steps` and `epoch_steps` are those of the longest run of its task.
fn reaches(run: &Run, (steps, epoch_steps): (f64, f64)) -> bool {
    run.steps() >= REACHED * steps || steps - run.steps() <= run.epoch_steps.max(epoch_steps)
}

/// Maximum number of seeds that a note lists.
const SEEDS_LISTED: usize = 10;

fn achieve(groups: &mut [Group], share: f64, notes: &mut Vec<Note>) {
    let lengths = groups.iter().flat_map(|g| &g.runs).map(|run| (run.steps(), run.epoch_steps));
    let longest = lengths.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    let all_seeds: BTreeSet<u64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.seed)).collect();
    for group in groups {
        for (i, run) in group.runs.iter().enumerate() {
            if reaches(run, longest) {
                group.reached.push(i);
                group.achieved.push(RunResults::of(run, share));
            } else {
                let message = format!(
                    "The run ends at {:.0} of {:.0} steps: its curve is drawn, its final values are left out.",
                    run.steps(),
                    longest.0
                );
                notes.push(Note::new(&run.path, message));
            }
        }
        let own: BTreeSet<u64> = group.runs.iter().map(|r| r.seed).collect();
        let missing: Vec<String> = all_seeds.difference(&own).map(u64::to_string).collect();
        if !missing.is_empty() {
            let more = match missing.len().saturating_sub(SEEDS_LISTED) {
                0 => String::new(),
                n => format!(" and of {n} more"),
            };
            let message = format!(
                "{} has no run of seed {}{more} that others of the task have.",
                group.label,
                missing[..missing.len().min(SEEDS_LISTED)].join(", ")
            );
            notes.push(Note::new(Path::new(&group.task), message));
        }
    }
}

fn score(groups: &mut [Group], notes: &mut Vec<Note>) {
    let first: Vec<f64> = groups.iter().flat_map(|g| g.runs.iter().map(|r| r.points[0].ret)).collect();
    let untrained = stats::mean(&first);
    let safe_return = |group: &Group| {
        let mean = |f: fn(&RunResults) -> f64| stats::mean(&group.achieved.iter().map(f).collect::<Vec<_>>());
        (mean(|a| a.cost) <= mean(|a| a.limit)).then(|| mean(|a| a.ret))
    };
    let best = groups.iter().filter_map(safe_return).fold(f64::NEG_INFINITY, f64::max);
    let Some(group) = groups.first() else { return };
    if groups.iter().any(|g| g.runs[0].limit != group.runs[0].limit) {
        let message = "The cost limits differ, so the runs have no score: their returns cannot be compared.";
        return notes.push(Note::new(Path::new(&group.task), message));
    }
    if best <= untrained {
        let message = "No safe algorithm has a higher return than an untrained policy, so there is no score.";
        return notes.push(Note::new(Path::new(&group.task), message));
    }
    for group in groups {
        let score = |a: &RunResults| {
            if a.feasible() { ((a.ret - untrained) / (best - untrained)).max(0.0) } else { 0.0 }
        };
        group.scores = group.achieved.iter().map(score).collect();
    }
}

/// Returns the value at a number of steps by linear interpolation between two rows; `None` outside the run.
fn at(points: &[(f64, f64)], steps: f64) -> Option<f64> {
    let i = points.partition_point(|p| p.0 < steps);
    match (i.checked_sub(1).map(|j| points[j]), points.get(i)) {
        (_, Some(&(s, v))) if s == steps => Some(v),
        (Some((s0, v0)), Some(&(s1, v1))) => Some(v0 + (v1 - v0) * (steps - s0) / (s1 - s0)),
        _ => None,
    }
}

/// Returns the centred moving average over `window` rows; 1 leaves the values unchanged.
fn smooth(values: Vec<f64>, window: usize) -> Vec<f64> {
    if window <= 1 {
        return values;
    }
    let (before, after) = ((window - 1) / 2, window / 2);
    let mut sums = vec![0.0];
    sums.extend(values.iter().scan(0.0, |sum, v| {
        *sum += v;
        Some(*sum)
    }));
    let mean = |i: usize| {
        let (from, to) = (i.saturating_sub(before), i.saturating_add(after + 1).min(values.len()));
        (sums[to] - sums[from]) / (to - from) as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Maximum number of points of a line. Of a run with more rows, every k-th row is shown; rows are never averaged.
const MOST_POINTS: usize = 1000;

/// Maximum number of points of the thin line of a single seed.
const MOST_SEED_POINTS: usize = 200;

/// Maximum number of single seeds of a group that are drawn.
pub(crate) const MOST_SEEDS: usize = 20;

/// Returns one line per run of a group for a quantity such as the cost.
fn lines(group: &Group, value: fn(&Point) -> f64, window: usize) -> Vec<Vec<(f64, f64)>> {
    let line = |run: &Run| {
        let values = smooth(run.points.iter().map(value).collect(), window);
        run.points.iter().map(|p| p.steps).zip(values).collect()
    };
    group.runs.iter().map(line).collect()
}

/// Returns the mean and band over the runs of a group at the steps of its longest run, and lines of the first seeds.
///
/// If a quantity is not negative in any run, such as a cost, its band is cut at 0.
pub(crate) fn curve(
    group: &Group,
    value: fn(&Point) -> f64,
    window: usize,
    band: Band,
    entry: usize,
) -> Series {
    let lines = lines(group, value, window);
    let Some(longest) = lines.iter().max_by(|a, b| a.len().cmp(&b.len())) else { return Series::default() };
    let stride = longest.len().div_ceil(MOST_POINTS);
    let never_negative = group.runs.iter().all(|run| run.points.iter().all(|p| value(p) >= 0.0));
    let floor = if never_negative { 0.0 } else { f64::NEG_INFINITY };
    // quantile of Student's t for each number of runs
    let mut t: BTreeMap<usize, f64> = BTreeMap::new();
    let mut series = Series { entry, ..Series::default() };
    for &(steps, _) in longest.iter().step_by(stride) {
        let values: Vec<f64> = lines.iter().filter_map(|line| at(line, steps)).collect();
        let (mean, n) = (stats::mean(&values), values.len());
        let half = stats::std_dev(&values).map_or(f64::NAN, |sd| match band {
            Band::Std => sd,
            Band::Ci95 => {
                let t = t.entry(n).or_insert_with(|| stats::student_t(0.95, (n - 1) as f64));
                *t * sd / (n as f64).sqrt()
            }
        });
        series.steps.push(steps);
        series.mean.push(mean);
        // `f64::max` would replace the NaN of a missing band by `floor`
        let lo = mean - half;
        series.band.push((if lo < floor { floor } else { lo }, mean + half));
    }
    if lines.len() > 1 {
        let thin = |line: Vec<(f64, f64)>| {
            let stride = line.len().div_ceil(MOST_SEED_POINTS);
            line.into_iter().step_by(stride).collect()
        };
        let seeds = group.runs.iter().map(|run| run.seed);
        series.seeds = seeds.zip(lines).take(MOST_SEEDS).map(|(seed, line)| (seed, thin(line))).collect();
    }
    series
}

/// Returns the mean of one diagnostic over the runs that record it; `None` if no run does.
pub(crate) fn diagnostic(group: &Group, which: usize, entry: usize) -> Option<Series> {
    let line = |run: &Run| -> Vec<(f64, f64)> {
        let points = run.diagnostics.iter().map(|(steps, values)| (*steps, f64::from(values[which])));
        points.filter(|(_, v)| v.is_finite()).collect()
    };
    let lines: Vec<_> = group.runs.iter().map(line).filter(|line| !line.is_empty()).collect();
    let longest = lines.iter().max_by_key(|line| line.len())?;
    let mut series = Series { entry, ..Series::default() };
    for &(steps, _) in longest {
        let values: Vec<f64> = lines.iter().filter_map(|line| at(line, steps)).collect();
        series.steps.push(steps);
        series.mean.push(stats::mean(&values));
        series.band.push((f64::NAN, f64::NAN));
    }
    Some(series)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
            epoch_steps: 1e6,
            diagnostics: Vec::new(),
            seconds_per_million: None,
            evaluations: Vec::new(),
            hash: None,
            begun: None,
            written: None,
        }
    }

    #[test]
    fn achieved_counts_by_hand() {
        // costs 50, 20, 30, 25, 10 with limit 25: above in epochs 0 and 2, excess 25 + 5, stays feasible from epoch 3
        let rows = [(0.0, 50.0), (1.0, 20.0), (2.0, 30.0), (3.0, 25.0), (5.0, 10.0)];
        let got = RunResults::of(&run("T", "epo", 0, &rows), 0.4); // the last two of five
        let want =
            RunResults { ret: 4.0, cost: 17.5, limit: 25.0, above: 0.4, excess: 30.0, stays_from: Some(3) };
        assert_eq!(got, want);
        assert_eq!(RunResults::of(&run("T", "epo", 0, &[(0.0, 30.0)]), 0.1).stays_from, None);
        assert_eq!(RunResults::of(&run("T", "epo", 0, &[(0.0, 3.0)]), 0.1).stays_from, Some(0));
    }

    #[test]
    fn safety_comes_before_return() {
        let a = |ret, cost| RunResults { ret, cost, limit: 25.0, above: 0.0, excess: 0.0, stays_from: None };
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
        for part in
            ["ends at 5000000 of 10000000", "There are two runs of seed 0", "PPO has no run of seed 1"]
        {
            assert!(text.contains(part), "{text}");
        }
    }

    /// This test fails if only the rule of 90 % is used. Then an OmniSafe run of 100,000 steps in epochs of 20,000 has
    /// no final values beside a run of 128,000 steps in epochs of 32,000.
    #[test]
    fn runs_that_end_within_one_epoch_of_each_other_have_final_values() {
        let with = |algo: &str, epoch_steps: f64, epochs: usize| {
            let mut run = run("T", algo, 0, &vec![(1.0, 1.0); epochs]);
            run.points.iter_mut().for_each(|p| p.steps *= epoch_steps / 1e6);
            run.epoch_steps = epoch_steps;
            run
        };
        let reached = |other: Run| {
            let got = groups(vec![with("epo", 32e3, 4), other], 0.1, &mut Vec::new());
            (got[0].reached.len(), got[1].achieved.len())
        };
        assert_eq!(reached(with("ppo", 20e3, 5)), (1, 1), "28,000 steps earlier");
        assert_eq!(reached(with("ppo", 20e3, 4)), (1, 0), "48,000 steps earlier");
    }

    #[test]
    fn curves_are_means_without_smoothing() {
        let runs = vec![
            run("T", "epo", 0, &[(0.0, 10.0), (4.0, 90.0)]),
            run("T", "epo", 1, &[(2.0, 10.0), (4.0, 30.0)]),
        ];
        let got = groups(runs, 0.1, &mut Vec::new());
        let cost = curve(&got[0], |p| p.cost, 1, Band::Std, 0);
        assert_eq!(cost.mean, [10.0, 60.0], "the peak must not be smoothed");
        let sd = 1800_f64.sqrt(); // of 90 and 30: deviations ±30
        assert!((cost.band[1].1 - 60.0 - sd).abs() < 1e-9 && cost.band[0] == (10.0, 10.0), "{:?}", cost.band);
        let ci = curve(&got[0], |p| p.cost, 1, Band::Ci95, 0); // t = 12.706 with one degree of freedom
        assert!((ci.band[1].1 - 60.0 - 12.7062 * 30.0).abs() < 0.1, "{:?}", ci.band);
        assert_eq!(ci.band[1].0, 0.0, "a cost is never negative");
        let ret = curve(&got[0], |p| p.ret - 5.0, 1, Band::Ci95, 0);
        assert!(ret.band[0].0 < -4.0, "a return may be negative: {:?}", ret.band);
        assert_eq!(smooth(vec![0.0, 3.0, 6.0], 3), [1.5, 3.0, 4.5]);
        assert_eq!(smooth(vec![0.0, 3.0, 6.0], usize::MAX), [3.0; 3]);
        let seeds: Vec<_> = cost.seeds.iter().map(|(seed, line)| (*seed, line[1].1)).collect();
        assert_eq!(seeds, [(0, 90.0), (1, 30.0)], "single seeds are drawn too");
        assert_eq!(at(&[(0.0, 0.0), (2.0, 8.0)], 0.5), Some(2.0));
        assert_eq!(at(&[(0.0, 0.0), (2.0, 8.0)], 2.5), None);
    }
}
