//! Curves over the runs of each group, as JSON and CSV.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLockReadGuard;

use epo_report::{csv_text, stats};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rows::{QUANTITIES, RET, TIME};
use crate::run::Run;
use crate::store::{Group, Store, read};
use crate::view::Filter;

/// Maximum number of groups in one answer with curves.
const MOST_GROUPS: usize = 40;
/// Maximum number of points of a line on the page.
const MOST_POINTS: usize = 2048;
/// Number of points of all lines in one answer, if each has more than [`FEWEST_POINTS`].
const POINTS_IN_ALL: usize = 2 << 20;
/// Number of points that every line may have, however many lines there are.
const FEWEST_POINTS: usize = 250;
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

/// Returns the curves of the wanted groups. If `whole` is true, they have all rows that are kept;
/// otherwise lines with many points are thinned.
fn group_curves(store: &Store, query: &CurvesQuery, whole: bool) -> Vec<GroupCurves> {
    let (table, filter) = (store.table(), Filter::parse(&query.q));
    let wanted: BTreeSet<&str> = query.groups.split(',').filter(|id| !id.is_empty()).collect();
    let asked: BTreeSet<&str> = query.y.split(',').collect();
    let quantities: Vec<usize> =
        (0..QUANTITIES.len()).filter(|&q| asked.contains(QUANTITIES[q].key)).collect();
    let groups = table.groups.iter().filter(|g| g.task == query.task);
    let groups = groups.filter(|g| wanted.is_empty() || wanted.contains(g.id.as_str())).take(MOST_GROUPS);
    let groups: Vec<&Group> = groups.collect();
    let seeds = |group: &&Group| if query.seeds { group.runs.len().min(MOST_SEEDS) } else { 0 };
    let lines: usize = groups.iter().map(|group| (3 + seeds(group)) * quantities.len()).sum();
    let share = (POINTS_IN_ALL / lines.max(1)).clamp(FEWEST_POINTS, MOST_POINTS);
    let most = if whole { usize::MAX } else { share };
    groups
        .into_iter()
        .map(|group| {
            let runs: Vec<_> = group.runs.iter().map(|&i| read(&table.runs[i])).collect();
            let runs: Vec<_> = runs.into_iter().filter(|run| filter.keeps(run, &group.label.name)).collect();
            let curve = |&q: &usize| Some((QUANTITIES[q].key, curve(&runs, q, query, most)?));
            (group.id.clone(), group.label.name.clone(), quantities.iter().filter_map(curve).collect())
        })
        .collect()
}

fn curve(runs: &[RwLockReadGuard<'_, Run>], q: usize, query: &CurvesQuery, most: usize) -> Option<Curve> {
    let window = if q == RET { query.smooth } else { 1 };
    let plain: Vec<(usize, Vec<(f64, f64)>)> =
        runs.iter().enumerate().filter_map(|(i, run)| Some((i, line(run, q, query.x)?))).collect();
    let longest = plain.iter().max_by_key(|(_, line)| line.len())?;
    let grid: Vec<f64> = longest.1.iter().map(|p| p.0).collect();
    let smooth: Vec<(usize, Vec<(f64, f64)>)> =
        plain.iter().map(|(i, line)| (*i, smoothed(line, window))).collect();
    // a task of a user may have values outside the usual range
    let values = || plain.iter().flat_map(|(_, line)| line.iter().map(|p| p.1));
    let [least, largest] = QUANTITIES[q].range;
    let range = [
        if values().all(|v| v >= least) { least } else { f64::NEG_INFINITY },
        if values().all(|v| v <= largest) { largest } else { f64::INFINITY },
    ];
    let mut curve = mean_of(&grid, &smooth, query.band, range);
    if window > 1 {
        curve.raw = Some(mean_of(&grid, &plain, query.band, range).mean);
    }
    if grid.len() > most {
        curve.keep(&extremes(curve.raw.as_ref().unwrap_or(&curve.mean), most));
    }
    if query.seeds {
        let seed = |(i, line): &(usize, Vec<(f64, f64)>)| {
            let values: Vec<f32> = line.iter().map(|p| p.1 as f32).collect();
            let (x, y) = extremes(&values, most).into_iter().map(|k| (line[k].0 as f32, values[k])).unzip();
            let run = &runs[*i];
            SeedLine { run: run.id.clone(), seed: run.identity.as_ref().map_or(0, |i| i.seed), x, y }
        };
        curve.seeds = smooth.iter().take(MOST_SEEDS).map(seed).collect();
    }
    Some(curve)
}

impl Curve {
    /// Keeps the points with these indices only.
    fn keep(&mut self, which: &[usize]) {
        let some = |list: &mut Vec<f32>| *list = which.iter().map(|&i| list[i]).collect();
        [&mut self.x, &mut self.mean, &mut self.lo, &mut self.hi].into_iter().for_each(some);
        self.raw.iter_mut().for_each(some);
        self.n = which.iter().map(|&i| self.n[i]).collect();
    }
}

/// Returns the indices of at most `most` values: the smallest and the largest value of each of many equally long parts,
/// and the last value. So no peak disappears.
fn extremes(values: &[f32], most: usize) -> Vec<usize> {
    if values.len() <= most {
        return (0..values.len()).collect();
    }
    let length = values.len().div_ceil((most.saturating_sub(1) / 2).max(1));
    let mut kept = BTreeSet::from([values.len() - 1]);
    for from in (0..values.len()).step_by(length) {
        let part = || (from..values.len().min(from + length)).filter(|&i| !values[i].is_nan());
        kept.extend(part().min_by(|&a, &b| values[a].total_cmp(&values[b])));
        kept.extend(part().max_by(|&a, &b| values[a].total_cmp(&values[b])));
    }
    kept.into_iter().collect()
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

/// Mean and band at the positions `grid`. A run counts where it has rows on both sides. The band does not leave `range`.
fn mean_of(grid: &[f64], lines: &[(usize, Vec<(f64, f64)>)], band: Band, range: [f64; 2]) -> Curve {
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
        let (lo, hi) = match band {
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
        curve.x.push(x as f32);
        curve.mean.push(mean as f32);
        curve.lo.push(lo.clamp(range[0], range[1]) as f32); // NaN stays NaN
        curve.hi.push(hi.clamp(range[0], range[1]) as f32);
        curve.n.push(runs as u32);
    }
    curve
}

/// Curves of a task.
pub(crate) fn curves(store: &Store, query: &CurvesQuery) -> Value {
    let groups = group_curves(store, query, false).into_iter().map(|(id, label, curves)| {
        let curves: BTreeMap<&str, Curve> = curves.into_iter().collect();
        json!({"id": id, "label": label, "curves": curves})
    });
    json!({"task": query.task, "groups": groups.collect::<Vec<_>>()})
}

/// The same curves as CSV, with all rows that are kept.
pub(crate) fn curves_csv(store: &Store, query: &CurvesQuery) -> String {
    let x = if query.x == X::Time { "hours" } else { "steps" };
    let mut out = format!("task,algorithm,quantity,{x},mean,lo,hi,runs\n");
    let task = csv_text(&query.task);
    for (_, label, curves) in group_curves(store, query, true) {
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
        let any = [f64::NEG_INFINITY, f64::INFINITY];
        let std = mean_of(&grid, &lines, Band::Std, any);
        assert_eq!((std.mean.as_slice(), std.n.as_slice()), (&[2.0, 3.0, 4.0, 3.0][..], &[2, 2, 2, 1][..]));
        assert_eq!(std.hi[0], (2.0 + 2.0_f64.sqrt()) as f32);
        assert!(std.hi[3].is_nan() && std.lo[3].is_nan(), "one run has no band");
        let range = mean_of(&grid, &lines, Band::Range, any);
        assert_eq!((range.lo[1], range.hi[1]), (1.5, 4.5));
        let interval = mean_of(&grid, &lines, Band::Ci95, any);
        assert!((interval.hi[0] - (2.0 + 12.7062)).abs() < 0.01, "{}", interval.hi[0]);
        let cost = mean_of(&grid, &lines, Band::Ci95, [0.0, 10.0]);
        assert_eq!((cost.lo[0], cost.hi[0]), (0.0, 10.0), "a band stays in the possible range");
    }

    /// This test fails if a cost of a single epoch disappears because a curve has many points.
    #[test]
    fn a_thinned_line_keeps_its_peaks_and_its_last_point() {
        let mut values = vec![1.0_f32; 10_001];
        (values[777], values[5001], values[9999], values[3]) = (99.0, -7.0, 50.0, f32::NAN);
        let kept = extremes(&values, 500);
        assert!(kept.len() <= 500 && kept.is_sorted(), "{}", kept.len());
        assert!([777, 5001, 9999, 10_000].iter().all(|i| kept.contains(i)), "{kept:?}");
        assert_eq!(extremes(&values[..625], MOST_POINTS).len(), 625, "every epoch");
    }
}
