//! Statistics for small numbers of runs: means, interquartile means and probabilities with 95 % confidence intervals.
//!
//! ```text
//! IQM          mean of the middle half of all runs of all tasks (a run at the edge has a fractional weight)
//! interval     θ̂ + f (q − θ̂),  q: the 2.5 % and 97.5 % points of the bootstrap, resampled within each task
//! stretch      f = g · t_{.975}(ν) / t_{.975}(N−K),   N runs of K tasks
//!              g: factor with which 95 % of simulated intervals of this size contain the true value (normally
//!                 distributed runs, the same true spread in every task)
//!              ν = (Σ vₖ)² / Σ vₖ²/(nₖ−1),   vₖ = nₖ sₖ²; ν = N−K if all vₖ/(nₖ−1) are equal (Welch–Satterthwaite)
//! P(A beats B) θ̂ = mean over tasks of U/(n m), ties count ½; score interval |θ̂ − θ| = z √V(θ)
//!              V(θ) = θ(1−θ)/(n m) · (1 + ((n+m)/2 − 1)((1−θ)/(2−θ) + θ/(1+θ)))
//! feasibility  Wilson's score interval of k out of n
//! ```
//! Sources: Agarwal et al. 2021 (IQM, stratified bootstrap, probability of improvement); Hesterberg 2015 (the
//! bootstrap is too narrow for small samples); Newcombe 2006, method 5 (U/nm); Wilson 1927.
//!
//! Agarwal et al. use the plain percentiles of the bootstrap. With 3 seeds such intervals contain the true value in
//! about 75 % of all cases instead of 95 %. The factor `f` corrects this (a calibrated interval: Loh 1987). It is
//! simulated, because no simple formula fits both statistics. For few runs, the bootstrap is too narrow for the mean
//! and too wide for the interquartile mean. The coverage tests below check these statements.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use epo_core::{Purpose, Stream};
use rayon::prelude::*;

/// Number of resamples of a bootstrap. The Monte Carlo error of an interval end is about 3 % of the half-width.
const RESAMPLES: usize = 4000;
/// Number of simulated experiments for a factor `g`. The coverage of 95 % is then met to about 0.5 %.
const EXPERIMENTS: u64 = 2000;
/// Number of resamples in each simulated experiment.
const EXPERIMENT_RESAMPLES: usize = 400;
/// Maximum number of draws of one bootstrap. Many runs have fewer resamples, but at least a quarter of [`RESAMPLES`].
const MOST_DRAWS: usize = 20_000_000;
/// Number of runs from which `g` is not simulated. For a mean it then differs from 1 by less than 1 %.
const MANY_RUNS: usize = 200;
/// 97.5 % quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// An estimate with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub point: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Interval {
    /// Returns the part of the interval that is at least `bound`.
    ///
    /// If the true value cannot be below `bound` (a cost cannot be negative), the coverage does not change.
    pub fn at_least(self, bound: f64) -> Self {
        Self { lo: self.lo.max(bound), hi: self.hi.max(bound), ..self }
    }
}

/// Statistic that is computed from all runs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Interquartile mean.
    Iqm,
}

impl Statistic {
    fn of(self, values: &mut [f64]) -> f64 {
        match self {
            Self::Mean => mean(values),
            Self::Iqm => {
                values.sort_unstable_by(f64::total_cmp);
                iqm_of_sorted(values)
            }
        }
    }
}

/// Returns the arithmetic mean; NaN if there are no values.
///
/// ```
/// assert_eq!(epo_report::stats::mean(&[1.0, 2.0, 6.0]), 3.0);
/// ```
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sample standard deviation (with `n − 1` in the denominator); `None` for fewer than two values.
///
/// ```
/// assert_eq!(epo_report::stats::std_dev(&[1.0, 3.0]), Some(2.0_f64.sqrt()));
/// ```
pub fn std_dev(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| {
        let m = mean(values);
        (values.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
    })
}

/// Returns the median; NaN if there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns the interquartile mean, which leaves out the lowest and the highest quarter.
///
/// If a quarter is not a whole number of values, a value at the edge has a fractional weight.
///
/// ```
/// // four values: the middle two count; five values: weight 1 in the middle, 0.75 for both neighbours
/// assert_eq!(epo_report::stats::iqm(&[100.0, 1.0, 3.0, -7.0]), 2.0);
/// assert_eq!(epo_report::stats::iqm(&[0.0, 4.0, 8.0, 10.0, 99.0]), (3.0 + 8.0 + 7.5) / 2.5);
/// ```
pub fn iqm(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    Statistic::Iqm.of(&mut sorted)
}

fn iqm_of_sorted(sorted: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let (from, to) = (0.25 * n, 0.75 * n);
    let kept = |i: usize| ((i as f64 + 1.0).min(to) - (i as f64).max(from)).max(0.0);
    sorted.iter().enumerate().map(|(i, x)| kept(i) * x).sum::<f64>() / (to - from)
}

/// Returns a statistic of all runs with its 95 % interval. `tasks` holds the values of the runs of each task.
///
/// Runs are resampled within their task, never across tasks. `None` if there is no task, or if a task has fewer than
/// two runs, because its spread is then unknown.
pub fn interval(tasks: &[Vec<f64>], statistic: Statistic, seed: u64) -> Option<Interval> {
    if tasks.is_empty() || tasks.iter().any(|runs| runs.len() < 2) {
        return None;
    }
    let f = calibrated(tasks.iter().map(Vec::len).collect(), statistic) * unequal_spread(tasks);
    let runs: usize = tasks.iter().map(Vec::len).sum();
    let resamples = (MOST_DRAWS / runs).clamp(RESAMPLES / 4, RESAMPLES);
    Some(resampled(tasks, statistic, seed, resamples, f))
}

/// Returns the bootstrap percentiles with their distances from the estimate multiplied by `stretch`.
fn resampled(
    tasks: &[Vec<f64>],
    statistic: Statistic,
    seed: u64,
    resamples: usize,
    stretch: f64,
) -> Interval {
    let mut sample = tasks.concat();
    let point = statistic.of(&mut sample);
    let mut stream = Stream::new(seed, Purpose::Bootstrap, 0);
    let mut replicates: Vec<f64> = (0..resamples)
        .map(|_| {
            sample.clear();
            for runs in tasks {
                sample.extend((0..runs.len()).map(|_| runs[stream.below(runs.len())]));
            }
            statistic.of(&mut sample)
        })
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let end = |q: f64| point + stretch * (quantile_of_sorted(&replicates, q) - point);
    Interval { point, lo: end(0.025), hi: end(0.975) }
}

/// Returns the factor `g` of the module documentation. `sizes` are the numbers of runs of the tasks.
///
/// It is computed once per process.
///
/// For [`MANY_RUNS`] or more runs it is `t(N−K)/z · √(N/(N−K))`, the limit of the simulated value for a mean.
fn calibrated(sizes: Vec<usize>, statistic: Statistic) -> f64 {
    let (runs, tasks) = (sizes.iter().sum::<usize>() as f64, sizes.len() as f64);
    if runs >= MANY_RUNS as f64 && runs - tasks >= 0.5 * runs {
        return student_t(0.95, runs - tasks) / Z * (runs / (runs - tasks)).sqrt();
    }
    static KNOWN: Mutex<BTreeMap<(Vec<usize>, Statistic), f64>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry((sizes, statistic)).or_insert_with_key(|(sizes, statistic)| {
        let needed = |experiment: u64| {
            let mut stream = Stream::new(experiment, Purpose::Bootstrap, 1);
            let runs: Vec<Vec<f64>> =
                sizes.iter().map(|&n| (0..n).map(|_| stream.normal()).collect()).collect();
            let got = resampled(&runs, *statistic, experiment, EXPERIMENT_RESAMPLES, unequal_spread(&runs));
            let reach = if got.point > 0.0 { got.point - got.lo } else { got.hi - got.point };
            got.point.abs() / reach // with this factor the interval ends at the true value, 0
        };
        let mut stretches: Vec<f64> = (0..EXPERIMENTS).into_par_iter().map(needed).collect();
        stretches.sort_unstable_by(f64::total_cmp);
        quantile_of_sorted(&stretches, 0.95)
    })
}

/// Returns `t(ν) / t(N−K)`. It is larger if few tasks cause most of the spread, and 1 if all tasks spread equally.
fn unequal_spread(tasks: &[Vec<f64>]) -> f64 {
    let (mut sum, mut pooled, mut degrees) = (0.0, 0.0, 0.0);
    for runs in tasks {
        let n = runs.len() as f64;
        let v = n * std_dev(runs).unwrap_or(0.0).powi(2);
        sum += v;
        pooled += v * v / (n - 1.0);
        degrees += n - 1.0;
    }
    if sum == 0.0 {
        return 1.0; // all runs of each task are equal: the interval is a point for any factor
    }
    student_t(0.95, sum * sum / pooled) / student_t(0.95, degrees)
}

/// Returns a quantile with linear interpolation between order statistics.
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let i = (at as usize).min(sorted.len() - 2);
    sorted[i] + (at - i as f64) * (sorted[i + 1] - sorted[i])
}

/// Returns t such that a variable with Student's distribution of `nu ≥ 1` degrees of freedom lies within ±t with
/// probability `coverage`. For a coverage of 0.95 it is the 97.5 % quantile.
///
/// With `t = √ν tan φ` the density is proportional to `cos^{ν−1} φ`, so no gamma function is needed.
pub fn student_t(coverage: f64, nu: f64) -> f64 {
    const PANELS: usize = 400;
    let integral = |to: f64| {
        let h = to / PANELS as f64;
        let g = |i: usize| (i as f64 * h).cos().max(0.0).powf(nu - 1.0);
        let inner: f64 = (1..PANELS).map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * g(i)).sum();
        h / 3.0 * (g(0) + inner + g(PANELS)) // Simpson
    };
    let whole = integral(std::f64::consts::FRAC_PI_2);
    let (mut lo, mut hi) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..50 {
        let mid = (lo + hi) / 2.0;
        if integral(mid) < coverage * whole { lo = mid } else { hi = mid }
    }
    nu.sqrt() * lo.tan()
}

/// Returns the probability that a run of A is better than a run of B on the same task, averaged over tasks.
///
/// Ties count half. Each item holds the runs of A and of B on one task. `better` is a total order that returns
/// `Greater` if its first argument is better. `None` if there is no task, or if A or B has no run on a task.
pub fn probability_beats<R>(
    tasks: &[(Vec<R>, Vec<R>)],
    better: impl Fn(&R, &R) -> Ordering,
) -> Option<Interval> {
    if tasks.is_empty() || tasks.iter().any(|(a, b)| a.is_empty() || b.is_empty()) {
        return None;
    }
    let mut point = 0.0;
    for (a, b) in tasks {
        // B's runs are sorted from worst to best: those that a run of A beats come first, then its ties.
        let mut sorted: Vec<&R> = b.iter().collect();
        sorted.sort_by(|x, y| better(x, y));
        let wins: f64 = (a.iter())
            .map(|x| {
                let beaten = sorted.partition_point(|y| better(x, y).is_gt());
                let not_better = sorted.partition_point(|y| better(x, y).is_ge());
                (beaten + not_better) as f64 / 2.0
            })
            .sum();
        point += wins / (a.len() * b.len()) as f64 / tasks.len() as f64;
    }
    let variance = |theta: f64| {
        let one = |(a, b): &(Vec<R>, Vec<R>)| {
            let (n, m) = (a.len() as f64, b.len() as f64);
            let spread = (1.0 - theta) / (2.0 - theta) + theta / (1.0 + theta);
            theta * (1.0 - theta) / (n * m) * (1.0 + ((n + m) / 2.0 - 1.0) * spread)
        };
        tasks.iter().map(one).sum::<f64>() / (tasks.len() * tasks.len()) as f64
    };
    Some(score_interval(point, variance))
}

/// Returns the proportion `k / n` with Wilson's interval; `None` for `n = 0`.
///
/// ```
/// let p = epo_report::stats::proportion(3, 3).unwrap(); // 3 of 3 only shows "at least 0.44"
/// assert!((p.lo - 0.4385).abs() < 1e-4 && p.hi == 1.0);
/// ```
pub fn proportion(k: usize, n: usize) -> Option<Interval> {
    (n > 0).then(|| {
        let n = n as f64;
        score_interval(k as f64 / n, |p| p * (1.0 - p) / n)
    })
}

/// Returns the share of pairs that are `Greater`, with Wilson's interval; ties count half. `None` if there is no pair.
///
/// ```
/// use std::cmp::Ordering::{Equal, Greater, Less};
/// let share = epo_report::stats::share_of_pairs(&[Greater, Greater, Equal, Less]).unwrap();
/// assert!(share.point == 0.625 && share.lo < 0.5 && share.hi < 1.0);
/// ```
pub fn share_of_pairs(pairs: &[Ordering]) -> Option<Interval> {
    let value = |order: &Ordering| if order.is_gt() { 1.0 } else { 0.5 * f64::from(order.is_eq()) };
    let n = pairs.len() as f64;
    let wins: f64 = pairs.iter().map(value).sum();
    (n > 0.0).then(|| score_interval(wins / n, |p| p * (1.0 - p) / n))
}

/// Returns the interval of all θ that a score test does not reject: `(θ̂ − θ)² ≤ z² V(θ)`.
fn score_interval(point: f64, variance: impl Fn(f64) -> f64) -> Interval {
    let rejected = |theta: f64| (point - theta).powi(2) > Z * Z * variance(theta);
    // Bisection between an accepted and a rejected value finds an end of the interval. V(0) = V(1) = 0, so 0 and 1
    // are rejected unless they equal the estimate.
    let end = |outer: f64| {
        if point == outer {
            return outer;
        }
        let (mut inside, mut outside) = (point + (outer - point) * 1e-9, outer);
        for _ in 0..60 {
            let mid = (inside + outside) / 2.0;
            if rejected(mid) { outside = mid } else { inside = mid }
        }
        inside
    };
    Interval { point, lo: end(0.0), hi: end(1.0) }
}

/// Returns the smallest two-sided p-value of a rank test with `n` and `m` runs: `2 / C(n+m, n)`, at full separation.
///
/// ```
/// assert_eq!(epo_report::stats::smallest_p(3, 3), 0.1); // 3 seeds each are never significant at 5 %
/// assert_eq!(epo_report::stats::smallest_p(5, 5), 2.0 / 252.0);
/// ```
pub fn smallest_p(n: usize, m: usize) -> f64 {
    let ways = (1..=n).fold(1.0, |c, i| c * (m + i) as f64 / i as f64);
    2.0 / ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_t_has_the_tabled_points() {
        let tabled = [
            (0.95, 1.0, 12.7062),
            (0.95, 2.0, 4.30265),
            (0.95, 4.0, 2.77645),
            (0.95, 10.0, 2.22814),
            (0.95, 99.0, 1.98422),
            (0.95, 120.0, 1.97993),
            (0.90, 3.0, 2.35336),
            (0.90, 30.0, 1.69726),
            (0.90, 1999.0, 1.6456),
        ];
        for (coverage, nu, t) in tabled {
            let got = student_t(coverage, nu);
            assert!((got - t).abs() < 2e-4 * t, "{coverage}, ν = {nu}: {got} instead of {t}");
        }
        assert!(student_t(0.95, 2.5) < student_t(0.95, 2.0) && student_t(0.95, 2.5) > student_t(0.95, 3.0));
    }

    #[test]
    fn wilson_agrees_with_its_closed_form() {
        for (k, n) in [(0, 3), (1, 3), (3, 5), (10, 10), (7, 40)] {
            let (p, m) = (k as f64 / n as f64, n as f64);
            let (mid, half) = (p + Z * Z / (2.0 * m), Z * (p * (1.0 - p) / m + Z * Z / (4.0 * m * m)).sqrt());
            let got = proportion(k, n).unwrap();
            let [lo, hi] = [(mid - half) / (1.0 + Z * Z / m), (mid + half) / (1.0 + Z * Z / m)];
            assert!(
                (got.lo - lo).abs() < 1e-9 && (got.hi - hi).abs() < 1e-9,
                "{k} of {n}: {got:?} {lo} {hi}"
            );
        }
    }

    #[test]
    fn the_bootstrap_of_a_mean_has_the_spread_of_theory() {
        // one task of n runs: the resampled mean is normal with variance s² (n−1)/n², by the central limit theorem
        let runs: Vec<f64> = (0..40).map(|i| f64::from(i * i % 17)).collect();
        let (n, s) = (40.0_f64, std_dev(&runs).unwrap());
        let got = resampled(&[runs], Statistic::Mean, 1, 40_000, 1.0);
        let half = Z * s * (n - 1.0).sqrt() / n;
        assert!((got.hi - got.point - half).abs() < 0.03 * half, "{got:?}, half-width {half}");
        assert!((got.point - got.lo - half).abs() < 0.03 * half, "{got:?}, half-width {half}");
    }

    #[test]
    fn tasks_are_strata() {
        // two tasks far apart, no spread within: resampling across tasks would give a wide interval
        let got = interval(&[vec![0.0; 4], vec![100.0; 4]], Statistic::Mean, 1).unwrap();
        assert_eq!(got, Interval { point: 50.0, lo: 50.0, hi: 50.0 });
        assert_eq!(interval(&[vec![1.0, 2.0], vec![1.0]], Statistic::Mean, 1), None);
        assert_eq!(interval(&[], Statistic::Mean, 1), None);
    }

    #[test]
    fn the_interval_depends_only_on_the_seed() {
        let runs = normals(&mut Stream::new(0, Purpose::Problem, 0), 3, 7);
        assert_eq!(interval(&runs, Statistic::Iqm, 1), interval(&runs, Statistic::Iqm, 1));
        assert_ne!(interval(&runs, Statistic::Iqm, 1), interval(&runs, Statistic::Iqm, 2));
    }

    #[test]
    fn beats_counts_pairs_and_its_interval_stays_wide() {
        let cmp = |a: &f64, b: &f64| a.total_cmp(b);
        // 3 > 1, 3 > 2, 2 > 1, 2 = 2: (1 + 1 + 1 + ½) / 4
        assert_eq!(probability_beats(&[(vec![3.0, 2.0], vec![1.0, 2.0])], cmp).unwrap().point, 0.875);
        // tasks weigh the same, however many runs they have
        let two = [(vec![1.0], vec![0.0]), (vec![0.0, 0.0, 0.0], vec![1.0, 1.0])];
        assert_eq!(probability_beats(&two, cmp).unwrap().point, 0.5);
        // complete separation of three seeds against three proves little
        let got = probability_beats(&[(vec![4.0, 5.0, 6.0], vec![1.0, 2.0, 3.0])], cmp).unwrap();
        assert!(got.point == 1.0 && got.hi == 1.0 && got.lo > 0.3 && got.lo < 0.65, "{got:?}");
        assert_eq!(probability_beats::<f64>(&[], cmp), None);
    }

    /// Returns the fraction of `trials` simulated experiments whose interval contains the true value.
    fn coverage(trials: u32, mut holds: impl FnMut(&mut Stream, u64) -> bool) -> f64 {
        let hits = (0..trials)
            .filter(|&i| holds(&mut Stream::new(u64::from(i), Purpose::Problem, 9), u64::from(i)))
            .count();
        hits as f64 / f64::from(trials)
    }

    fn normals(stream: &mut Stream, tasks: usize, seeds: usize) -> Vec<Vec<f64>> {
        (0..tasks).map(|_| (0..seeds).map(|_| stream.normal()).collect()).collect()
    }

    #[test]
    fn intervals_of_95_percent_cover_the_truth_in_93_to_97_percent() {
        // standard error of 1500 trials: 0.6 %
        for (tasks, seeds) in [(1, 3), (1, 5), (1, 10), (4, 5), (8, 3)] {
            for statistic in [Statistic::Mean, Statistic::Iqm] {
                let g = calibrated(vec![seeds; tasks], statistic);
                let c = coverage(1500, |stream, i| {
                    let runs = normals(stream, tasks, seeds);
                    let got = resampled(&runs, statistic, i, 400, g * unequal_spread(&runs));
                    got.lo <= 0.0 && 0.0 <= got.hi
                });
                assert!((0.93..=0.97).contains(&c), "{statistic:?}, {tasks} tasks, {seeds} seeds: {c}");
            }
        }
    }

    #[test]
    fn the_stretch_of_a_mean_is_near_its_closed_form() {
        // the mean of n normal runs: t(n−1)/z · √(n/(n−1)), but for the shape of the bootstrap of few runs
        for n in [5, 10, 40] {
            let m = n as f64;
            let form = student_t(0.95, m - 1.0) / Z * (m / (m - 1.0)).sqrt();
            let g = calibrated(vec![n], Statistic::Mean);
            assert!((g / form - 1.0).abs() < 0.1, "{n} runs: {g} instead of {form}");
        }
    }

    /// This test fails if the formula for many runs does not continue the simulated factor.
    #[test]
    fn the_formula_for_many_runs_agrees_with_simulation() {
        for (few, many, statistic) in [
            (vec![5; 39], vec![5; 40], Statistic::Mean),
            (vec![MANY_RUNS - 1], vec![MANY_RUNS], Statistic::Iqm),
        ] {
            let [simulated, formula] = [few, many].map(|sizes| calibrated(sizes, statistic));
            assert!((simulated / formula - 1.0).abs() < 0.06, "{statistic:?}: {simulated} and {formula}");
        }
    }

    #[test]
    fn an_interval_of_a_cost_is_never_negative() {
        let interval = Interval { point: 2.0, lo: -3.0, hi: 7.0 };
        assert_eq!(interval.at_least(0.0), Interval { point: 2.0, lo: 0.0, hi: 7.0 });
        assert_eq!(Interval { lo: 1.0, ..interval }.at_least(0.0).lo, 1.0);
    }

    #[test]
    fn tasks_with_unequal_spread_are_covered() {
        // one of four tasks has nearly all the spread: its 4 degrees of freedom count, not 16
        let g = calibrated(vec![5; 4], Statistic::Mean);
        let share = |welch: bool| {
            coverage(1500, |stream, i| {
                let mut runs = normals(stream, 4, 5);
                runs[2].iter_mut().for_each(|x| *x *= 30.0);
                let f = if welch { g * unequal_spread(&runs) } else { g };
                let got = resampled(&runs, Statistic::Mean, i, 400, f);
                got.lo <= 0.0 && 0.0 <= got.hi
            })
        };
        let (with, without) = (share(true), share(false));
        assert!((0.93..=0.97).contains(&with) && without < 0.91, "{with}, without it {without}");
    }

    #[test]
    fn plain_percentiles_cover_too_little() {
        let c = coverage(1000, |stream, i| {
            let got = resampled(&normals(stream, 1, 3), Statistic::Mean, i, 400, 1.0);
            got.lo <= 0.0 && 0.0 <= got.hi
        });
        assert!(c < 0.80, "the header says that 3 seeds cover about three of four: {c}");
    }

    #[test]
    fn beats_covers_the_truth() {
        // A is better by one standard deviation: P = Φ(1/√2)
        let truth = 0.760_250;
        for (tasks, seeds) in [(1, 5), (1, 10), (8, 3)] {
            let c = coverage(2000, |stream, _| {
                let pairs: Vec<_> = (0..tasks)
                    .map(|_| {
                        let a = (0..seeds).map(|_| stream.normal() + 1.0).collect::<Vec<_>>();
                        (a, (0..seeds).map(|_| stream.normal()).collect::<Vec<_>>())
                    })
                    .collect();
                let got = probability_beats(&pairs, |a, b| a.total_cmp(b)).unwrap();
                got.lo <= truth && truth <= got.hi
            });
            println!("beats {tasks}x{seeds} {c}");
            assert!((0.93..=0.97).contains(&c), "{tasks} tasks, {seeds} seeds: {c}");
        }
    }

    #[test]
    fn feasibility_covers_the_truth() {
        // a proportion of few runs is discrete: coverage is 93–97 % on average over p, not at each p
        let mut total = 0.0;
        for step in 1..50 {
            let p = f64::from(step) / 50.0;
            let n = 10;
            let binomial = |k: usize| {
                (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64)
                    * p.powi(k as i32)
                    * (1.0 - p).powi((n - k) as i32)
            };
            let hit = |k: &usize| proportion(*k, n).is_some_and(|got| got.lo <= p && p <= got.hi);
            total += (0..=n).filter(hit).map(binomial).sum::<f64>() / 49.0;
        }
        assert!((0.93..=0.97).contains(&total), "{total}");
    }
}
