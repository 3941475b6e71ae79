//! Compares algorithms at the same cost, and pair by pair.
//!
//! ```text
//! b        slope of the final return over the final cost on a task:
//!          Σ (C − C̄)(R − R̄) / Σ (C − C̄)², over the runs of every algorithm that was trained at several limits;
//!          C̄, R̄ are means of the same algorithm
//! R(d) = R − b (C − d)    the return that a run would have at the cost d
//! pairs    two runs of the same task and seed
//! ```
//! An algorithm that ends at a cost of 20 pays for its safety with return, and one that ends at 27 has return that it was
//! not allowed to have. With the slope both can be compared at d.

use std::collections::{BTreeMap, BTreeSet};

use crate::groups::{Group, RunResults};
use crate::labels::is_incidental;
use crate::stats::{self, Interval};

/// The groups of one task at the limit that most of its runs have, and the slope of their return over the cost.
#[derive(Debug)]
pub(crate) struct EqualCost<'a> {
    /// The limit d.
    pub(crate) limit: f64,
    /// The slope b with its 95 % interval; `None` if no algorithm was trained at several limits.
    pub(crate) slope: Option<Interval>,
    /// The groups with this limit, in the order of the legend.
    pub(crate) groups: Vec<&'a Group>,
}

impl<'a> EqualCost<'a> {
    /// `groups` are those of one task.
    pub(crate) fn of(groups: &'a [Group]) -> Option<Self> {
        let mut limits: Vec<(f64, usize)> = Vec::new();
        for (limit, runs) in groups.iter().map(|g| (g.runs[0].limit, g.achieved.len())) {
            match limits.iter_mut().find(|(known, _)| *known == limit) {
                Some((_, n)) => *n += runs,
                None => limits.push((limit, runs)),
            }
        }
        let most = |a: &(f64, usize), b: &(f64, usize)| a.1.cmp(&b.1).then(b.0.total_cmp(&a.0));
        let (limit, _) = limits.into_iter().max_by(most)?;
        let at_limit = groups.iter().filter(|g| g.runs[0].limit == limit && !g.achieved.is_empty()).collect();
        Some(Self { limit, slope: slope(groups), groups: at_limit })
    }

    /// The return of a run at the cost d; `None` without a slope.
    pub(crate) fn adjusted(&self, run: &RunResults) -> Option<f64> {
        Some(run.ret - self.slope?.point * (run.cost - self.limit))
    }

    /// The results of `a` and `b` for each seed that both have.
    pub(crate) fn pairs(a: &Group, b: &Group) -> Vec<(RunResults, RunResults)> {
        let results = |g: &Group| -> BTreeMap<u64, RunResults> {
            g.reached.iter().zip(&g.achieved).map(|(&i, results)| (g.runs[i].seed, *results)).collect()
        };
        let other = results(b);
        results(a).into_iter().filter_map(|(seed, mine)| Some((mine, *other.get(&seed)?))).collect()
    }
}

/// The pooled slope of the return over the cost, with its interval, from algorithms that were trained at several limits.
fn slope(groups: &[Group]) -> Option<Interval> {
    // runs of one algorithm that differ in the limit only
    let mut families: BTreeMap<Vec<(&str, &str)>, Vec<&Group>> = BTreeMap::new();
    for group in groups {
        let run = &group.runs[0];
        let others = run.config.iter().filter(|(key, _)| !is_incidental(key) && !key.ends_with("limit"));
        let mut key = vec![("algo", run.algo.as_str())];
        key.extend(others.map(|(k, v)| (k.as_str(), v.as_str())));
        families.entry(key).or_default().push(group);
    }
    let (mut cc, mut cr, mut rr, mut degrees) = (0.0, 0.0, 0.0, -1.0);
    for family in families.into_values() {
        let limits: BTreeSet<u64> = family.iter().map(|g| g.runs[0].limit.to_bits()).collect();
        if limits.len() < 2 {
            continue;
        }
        let runs: Vec<RunResults> = family.iter().flat_map(|g| g.achieved.iter().copied()).collect();
        let mean = |f: fn(&RunResults) -> f64| runs.iter().map(f).sum::<f64>() / runs.len() as f64;
        let (c, r) = (mean(|a| a.cost), mean(|a| a.ret));
        for run in &runs {
            cc += (run.cost - c).powi(2);
            cr += (run.cost - c) * (run.ret - r);
            rr += (run.ret - r).powi(2);
        }
        degrees += runs.len() as f64 - 1.0;
    }
    if cc <= 0.0 || degrees < 1.0 {
        return None;
    }
    let point = cr / cc;
    let variance = ((rr - point * cr) / degrees).max(0.0) / cc;
    let half = stats::student_t(0.95, degrees) * variance.sqrt();
    Some(Interval { point, lo: point - half, hi: point + half })
}

#[cfg(test)]
mod tests {
    use super::super::groups::groups;
    use super::super::groups::tests::run;
    use super::*;

    fn at_limit(algo: &str, seed: u64, limit: f64, (ret, cost): (f64, f64)) -> crate::history::Run {
        let mut run = run("A-v0", algo, seed, &[(0.0, 60.0), (ret, cost)]);
        run.limit = limit;
        run.config = [("run.limit".to_owned(), limit.to_string())].into();
        run
    }

    /// EPO at three limits on the line R = 10 + ½ C; PPO, two above it, at the limit 25 only.
    fn two_algorithms() -> Vec<Group> {
        let mut runs = Vec::new();
        for (limit, costs) in [(20.0, [18.0, 20.0]), (25.0, [22.0, 26.0]), (30.0, [28.0, 31.0])] {
            for (seed, cost) in costs.into_iter().enumerate() {
                runs.push(at_limit("epo", seed as u64, limit, (10.0 + 0.5 * cost, cost)));
            }
        }
        for (seed, cost) in [(0, 30.0), (1, 27.0), (2, 25.0)] {
            runs.push(at_limit("ppo", seed, 25.0, (12.0 + 0.5 * cost, cost)));
        }
        groups(runs, 0.1, &mut Vec::new())
    }

    #[test]
    fn returns_on_one_line_are_equal_at_equal_cost() {
        let groups = two_algorithms();
        let equal = EqualCost::of(&groups).unwrap();
        let slope = equal.slope.unwrap();
        assert!((slope.point - 0.5).abs() < 1e-12 && (slope.hi - slope.lo).abs() < 1e-6, "{slope:?}");
        assert_eq!(equal.limit, 25.0, "most runs have this limit");
        let all: Vec<Vec<f64>> = (equal.groups.iter())
            .map(|g| g.achieved.iter().filter_map(|a| equal.adjusted(a)).collect())
            .collect();
        assert_eq!(all.len(), 2);
        assert!(all[0].iter().all(|r| (r - 22.5).abs() < 1e-9), "EPO at 25: {all:?}");
        assert!(all[1].iter().all(|r| (r - 24.5).abs() < 1e-9), "PPO, two above: {all:?}");
    }

    /// This test fails if runs of different seeds are paired.
    #[test]
    fn pairs_have_the_same_seed() {
        let groups = two_algorithms();
        let equal = EqualCost::of(&groups).unwrap();
        let pairs = EqualCost::pairs(equal.groups[0], equal.groups[1]);
        let costs: Vec<_> = pairs.iter().map(|(a, b)| (a.cost, b.cost)).collect();
        assert_eq!(costs, [(22.0, 30.0), (26.0, 27.0)], "seed 2 has no partner");
    }

    /// This test fails if algorithms are mixed in the slope: the line through the means of two algorithms is another.
    #[test]
    fn without_several_limits_there_is_no_slope() {
        let runs = vec![
            at_limit("epo", 0, 25.0, (10.0, 20.0)),
            at_limit("epo", 1, 25.0, (12.0, 22.0)),
            at_limit("ppo", 0, 25.0, (30.0, 60.0)),
        ];
        let groups = groups(runs, 0.1, &mut Vec::new());
        let equal = EqualCost::of(&groups).unwrap();
        assert_eq!(equal.slope, None);
        assert_eq!(equal.adjusted(&equal.groups[0].achieved[0]), None);
    }

    #[test]
    fn the_interval_of_the_slope_by_hand() {
        // C = 0, 1, 2 and R = 0, 1, 1: b = ½, residual sum 2/3 − ½·1 = 1/6 with 1 degree, variance of b = 1/12
        let runs = vec![
            at_limit("epo", 0, 1.0, (0.0, 0.0)),
            at_limit("epo", 1, 1.0, (1.0, 1.0)),
            at_limit("epo", 0, 2.0, (1.0, 2.0)),
        ];
        let slope = EqualCost::of(&groups(runs, 0.1, &mut Vec::new())).unwrap().slope.unwrap();
        let half = 12.7062 * (1.0_f64 / 12.0).sqrt();
        assert!((slope.point - 0.5).abs() < 1e-12 && (slope.hi - 0.5 - half).abs() < 1e-3, "{slope:?}");
    }
}
