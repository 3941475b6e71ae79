//! Curves of a group of runs: mean and band over the seeds, and lines of single seeds.

use std::collections::BTreeMap;

use crate::groups::Group;
use crate::history::{Point, Run};
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

/// Maximum number of points of a line. If a run has more rows, every k-th row is shown; rows are
/// never averaged.
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
mod tests {
    use super::*;
    use crate::groups::groups;
    use crate::groups::tests::run;

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
