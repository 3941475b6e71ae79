//! Curves over the runs of each group, as JSON and CSV.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLockReadGuard;

use epo_report::{csv_text, stats};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rows::{COST, QUANTITIES, RET, TIME};
use crate::run::Run;
use crate::store::{Store, read};
use crate::view::Filter;

/// Maximum number of groups in one answer with curves.
const MOST_GROUPS: usize = 40;
/// Maximum number of points of a mean.
const MOST_POINTS: usize = 500;
/// Maximum number of points of a single seed.
const MOST_SEED_POINTS: usize = 250;
/// Maximum number of single seeds of a group.
const MOST_SEEDS: usize = 30;

/// Quantity on the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum X {
    /// Environment steps.
    #[default]
    Steps,
    /// Hours of training.
    Time,
}

/// Meaning of the band around a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Band {
    /// One standard deviation over the seeds.
    #[default]
    Std,
    /// 95 % interval of the mean (Student's t).
    Ci95,
    /// Smallest and largest value.
    Range,
}

/// Query of `/api/curves` and `/api/curves.csv`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CurvesQuery {
    pub(crate) task: String,
    /// Filter of the runs.
    #[serde(default)]
    q: String,
    #[serde(default)]
    x: X,
    #[serde(default)]
    band: Band,
    /// Width of the moving average over returns, in rows. Costs are never smoothed.
    #[serde(default)]
    smooth: usize,
    /// True if the lines of single seeds are wanted.
    #[serde(default)]
    seeds: bool,
    /// Ids of the wanted groups, separated by commas; the first groups of the task if it is empty.
    #[serde(default)]
    groups: String,
    /// Wanted quantities, separated by commas.
    #[serde(default)]
    y: String,
}

/// Mean and band of one quantity over the runs of a group.
#[derive(Debug, Serialize)]
struct Curve {
    /// Positions on the horizontal axis.
    x: Vec<f32>,
    mean: Vec<f32>,
    lo: Vec<f32>,
    hi: Vec<f32>,
    /// Number of runs behind each point.
    n: Vec<u32>,
    /// The mean without smoothing; only if it is smoothed.
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<Vec<f32>>,
    /// Lines of single seeds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seeds: Vec<SeedLine>,
}

#[derive(Debug, Serialize)]
struct SeedLine {
    run: String,
    seed: u64,
    x: Vec<f32>,
    y: Vec<f32>,
}

/// A group, its label, and its curves by quantity.
type GroupCurves = (String, String, Vec<(&'static str, Curve)>);

fn group_curves(store: &Store, query: &CurvesQuery) -> Vec<GroupCurves> {
    let (table, filter) = (store.table(), Filter::parse(&query.q));
    let wanted: BTreeSet<&str> = query.groups.split(',').filter(|id| !id.is_empty()).collect();
    let asked: BTreeSet<&str> = query.y.split(',').collect();
    let quantities: Vec<usize> =
        (0..QUANTITIES.len()).filter(|&q| asked.contains(QUANTITIES[q].key)).collect();
    let groups = table.groups.iter().filter(|g| g.task == query.task);
    let groups = groups.filter(|g| wanted.is_empty() || wanted.contains(g.id.as_str())).take(MOST_GROUPS);
    groups
        .map(|group| {
            let runs: Vec<_> = group.runs.iter().map(|&i| read(&table.runs[i])).collect();
            let runs: Vec<_> = runs.into_iter().filter(|run| filter.keeps(run, &group.label.name)).collect();
            let curve = |&q: &usize| Some((QUANTITIES[q].key, curve(&runs, q, query)?));
            (group.id.clone(), group.label.name.clone(), quantities.iter().filter_map(curve).collect())
        })
        .collect()
}

fn curve(runs: &[RwLockReadGuard<'_, Run>], q: usize, query: &CurvesQuery) -> Option<Curve> {
    let window = if q == RET { query.smooth } else { 1 };
    let plain: Vec<(usize, Vec<(f64, f64)>)> =
        runs.iter().enumerate().filter_map(|(i, run)| Some((i, line(run, q, query.x)?))).collect();
    let longest = plain.iter().max_by_key(|(_, line)| line.len())?;
    let stride = longest.1.len().div_ceil(MOST_POINTS);
    let last = longest.1.len() - 1;
    // the newest point is always shown
    let grid: Vec<f64> = (0..=last).filter(|i| i % stride == last % stride).map(|i| longest.1[i].0).collect();
    let smooth: Vec<(usize, Vec<(f64, f64)>)> =
        plain.iter().map(|(i, line)| (*i, smoothed(line, window))).collect();
    let never_negative = q == COST && plain.iter().all(|(_, line)| line.iter().all(|p| p.1 >= 0.0));
    let mut curve = mean_of(&grid, &smooth, query.band, never_negative);
    if window > 1 {
        curve.raw = Some(mean_of(&grid, &plain, query.band, false).mean);
    }
    if query.seeds {
        let seed = |(i, line): &(usize, Vec<(f64, f64)>)| {
            let (stride, last) = (line.len().div_ceil(MOST_SEED_POINTS), line.len() - 1);
            let kept = line.iter().enumerate().filter(|(k, _)| k % stride == last % stride);
            let (x, y) = kept.map(|(_, p)| (p.0 as f32, p.1 as f32)).unzip();
            let run = &runs[*i];
            SeedLine { run: run.id.clone(), seed: run.identity.as_ref().map_or(0, |i| i.seed), x, y }
        };
        curve.seeds = smooth.iter().take(MOST_SEEDS).map(seed).collect();
    }
    Some(curve)
}

/// Positions and values of a quantity in one run, without missing values; `None` if there are none.
fn line(run: &Run, q: usize, x: X) -> Option<Vec<(f64, f64)>> {
    let values = run.rows.values.get(q).filter(|v| !v.is_empty())?;
    let time = run.rows.values.get(TIME);
    let at = |i: usize| match x {
        X::Steps => Some(run.rows.steps[i]),
        X::Time => time?.get(i).map(|&s| f64::from(s) / 3600.0),
    };
    let mut points: Vec<(f64, f64)> = Vec::with_capacity(values.len());
    for (i, &v) in values.iter().enumerate().filter(|(_, v)| v.is_finite()) {
        // time must increase, as steps do
        if let Some(x) = at(i).filter(|x| points.last().is_none_or(|p| *x > p.0)) {
            points.push((x, f64::from(v)));
        }
    }
    (!points.is_empty()).then_some(points)
}

/// Centred moving average over `window` rows; 0 and 1 leave the values unchanged.
fn smoothed(line: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    if window <= 1 {
        return line.to_vec();
    }
    let (before, after) = ((window - 1) / 2, window / 2);
    let mut sums = vec![0.0];
    sums.extend(line.iter().scan(0.0, |sum, p| {
        *sum += p.1;
        Some(*sum)
    }));
    let mean = |i: usize| {
        let (from, to) =
            (i.saturating_sub(before), i.saturating_add(after).saturating_add(1).min(line.len()));
        (sums[to] - sums[from]) / (to - from) as f64
    };
    (0..line.len()).map(|i| (line[i].0, mean(i))).collect()
}

/// Mean and band at the positions `grid`. A run counts where it has rows on both sides.
fn mean_of(grid: &[f64], lines: &[(usize, Vec<(f64, f64)>)], band: Band, never_negative: bool) -> Curve {
    let n = grid.len();
    let new = || Vec::with_capacity(n);
    let mut curve =
        Curve { x: new(), mean: new(), lo: new(), hi: new(), n: Vec::new(), raw: None, seeds: Vec::new() };
    let mut places = vec![0; lines.len()];
    let mut quantiles: BTreeMap<usize, f64> = BTreeMap::new();
    let mut values = Vec::with_capacity(lines.len());
    for &x in grid {
        values.clear();
        for ((_, line), place) in lines.iter().zip(&mut places) {
            while *place < line.len() && line[*place].0 < x {
                *place += 1;
            }
            match (place.checked_sub(1).map(|j| line[j]), line.get(*place)) {
                (_, Some(&(at, v))) if at == x => values.push(v),
                (Some((x0, v0)), Some(&(x1, v1))) => values.push(v0 + (v1 - v0) * (x - x0) / (x1 - x0)),
                _ => {}
            }
        }
        let (mean, runs) = (stats::mean(&values), values.len());
        let half = |factor: f64| stats::std_dev(&values).map_or(f64::NAN, |sd| sd * factor);
        let (mut lo, hi) = match band {
            Band::Std => (mean - half(1.0), mean + half(1.0)),
            Band::Ci95 => {
                let t = quantiles.entry(runs).or_insert_with(|| match runs {
                    0 | 1 => f64::NAN,
                    n => stats::student_t(0.95, (n - 1) as f64) / (n as f64).sqrt(),
                });
                (mean - half(*t), mean + half(*t))
            }
            Band::Range if runs > 1 => {
                values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)))
            }
            Band::Range => (f64::NAN, f64::NAN),
        };
        if never_negative && lo < 0.0 {
            lo = 0.0;
        }
        curve.x.push(x as f32);
        curve.mean.push(mean as f32);
        curve.lo.push(lo as f32);
        curve.hi.push(hi as f32);
        curve.n.push(runs as u32);
    }
    curve
}

/// Curves of a task.
pub(crate) fn curves(store: &Store, query: &CurvesQuery) -> Value {
    let groups = group_curves(store, query).into_iter().map(|(id, label, curves)| {
        let curves: BTreeMap<&str, Curve> = curves.into_iter().collect();
        json!({"id": id, "label": label, "curves": curves})
    });
    json!({"task": query.task, "groups": groups.collect::<Vec<_>>()})
}

/// The same curves as CSV.
pub(crate) fn curves_csv(store: &Store, query: &CurvesQuery) -> String {
    let x = if query.x == X::Time { "hours" } else { "steps" };
    let mut out = format!("task,algorithm,quantity,{x},mean,lo,hi,runs\n");
    let task = csv_text(&query.task);
    for (_, label, curves) in group_curves(store, query) {
        let label = csv_text(&label);
        for (key, c) in curves {
            for i in 0..c.x.len() {
                let number = |v: f32| if v.is_finite() { v.to_string() } else { String::new() };
                let [mean, lo, hi] = [c.mean[i], c.lo[i], c.hi[i]].map(number);
                out += &format!("{task},{label},{key},{},{mean},{lo},{hi},{}\n", c.x[i], c.n[i]);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(i, &v)| (i as f64, v)).collect()
    }

    #[test]
    fn a_moving_average_is_centred_and_shorter_at_the_ends() {
        let line = points(&[0.0, 3.0, 6.0, 0.0]);
        assert_eq!(smoothed(&line, 1), line);
        assert_eq!(smoothed(&line, 3), points(&[1.5, 3.0, 3.0, 3.0]));
        assert_eq!(smoothed(&line, usize::MAX), points(&[2.25; 4]));
    }

    /// This test fails if runs count beyond their end, or if bands have the wrong width.
    #[test]
    fn a_mean_counts_the_runs_that_reach_it() {
        let lines = vec![(0, points(&[1.0, 2.0, 3.0])), (1, vec![(0.0, 3.0), (1.0, 6.0)])];
        let grid = [0.0, 0.5, 1.0, 2.0];
        let std = mean_of(&grid, &lines, Band::Std, false);
        assert_eq!((std.mean.as_slice(), std.n.as_slice()), (&[2.0, 3.0, 4.0, 3.0][..], &[2, 2, 2, 1][..]));
        assert_eq!(std.hi[0], (2.0 + 2.0_f64.sqrt()) as f32);
        assert!(std.hi[3].is_nan() && std.lo[3].is_nan(), "one run has no band");
        let range = mean_of(&grid, &lines, Band::Range, false);
        assert_eq!((range.lo[1], range.hi[1]), (1.5, 4.5));
        let interval = mean_of(&grid, &lines, Band::Ci95, false);
        assert!((interval.hi[0] - (2.0 + 12.7062)).abs() < 0.01, "{}", interval.hi[0]);
        assert_eq!(mean_of(&grid, &lines, Band::Ci95, true).lo[0], 0.0, "a cost is never negative");
    }
}
