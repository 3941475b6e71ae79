//! Sorts runs into groups that differ only in the seed, and computes the results of each run.
//!
//! ```text
//! group          runs that are equal in everything but the seed; other settings of an algorithm make another group
//! final          mean over the last part of a run's steps (default: the last 10 %)
//! feasible       final cost ≤ d
//! above          fraction of epochs with J_c > d
//! excess         Σ over epochs of max(0, J_c − d)
//! stays from     first of the final epochs that are all within the limit
//! score          max(0, (R − R₀) / (R* − R₀)) if feasible, else 0     (equal safety)
//!                R₀: mean return of the first epochs of the task's runs (untrained)
//!                R*: best mean final return among the algorithms whose mean final cost is within the limit
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::history::{Note, Run};
use crate::labels::{Label, Place, Settings, labels, place};
use crate::stats;

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
    /// First of the final epochs that are all within the limit; `None` if the last epoch is above
    /// it.
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
    let settings: Vec<Settings<'_>> = settings.collect();
    let places: Vec<Place> =
        settings.iter().zip(labels(&settings)).map(|(run, label)| place(run, label)).collect();
    let mut sorted: BTreeMap<Place, Vec<Run>> = BTreeMap::new();
    for (run, place) in runs.into_iter().zip(places) {
        sorted.entry(place).or_default().push(run);
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::history::{Point, Source};

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
}
