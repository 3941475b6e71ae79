//! Compares algorithms at the same cost, and pair by pair.
//!
//! ```text
//! b        slope of the final return over the final cost on a task:
//!          Σ (C − C̄)(R − R̄) / Σ (C − C̄)², over the runs of every algorithm that was trained at several limits;
//!          C̄, R̄ are means of the same algorithm
//! R(d) = R − b (C − d)    the return that a run would have at the cost d
//! pairs    two runs of the same task and seed
//! ```
//! An algorithm whose final cost is below d has given up return for safety, and one whose final cost is above d
//! has gained return by violating the limit. The slope makes both comparable at the cost d.

use std::collections::{BTreeMap, BTreeSet};

use crate::groups::{Group, RunResults};
use crate::labels::is_incidental;
use crate::stats::{self, Interval, Statistic};
use crate::table::{Cell, ColumnKind, Table};
use crate::tables::{SEED, column, text};

/// Returns Tables 7 and 8, each if there are runs for it.
pub(crate) fn tables(groups: &[Group]) -> Vec<Table> {
    let tasks: Vec<EqualCost<'_>> =
        groups.chunk_by(|a, b| a.task == b.task).filter_map(EqualCost::of).collect();
    at_equal_cost(&tasks).into_iter().chain(pair_by_pair(&tasks)).collect()
}

/// The groups of one task at the limit that most of its runs have, and the slope of their return over the cost.
#[derive(Debug)]
struct EqualCost<'a> {
    /// The limit d.
    limit: f64,
    /// The slope b with its 95 % interval; `None` if no algorithm was trained at several limits.
    slope: Option<Interval>,
    /// The groups with this limit, in the order of the legend.
    groups: Vec<&'a Group>,
}

impl<'a> EqualCost<'a> {
    /// Returns the comparison for the groups of one task.
    fn of(groups: &'a [Group]) -> Option<Self> {
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
    fn adjusted(&self, run: &RunResults) -> Option<f64> {
        Some(run.ret - self.slope?.point * (run.cost - self.limit))
    }

    /// The results of `a` and `b` for each seed that both have.
    fn pairs(a: &Group, b: &Group) -> Vec<(RunResults, RunResults)> {
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

/// Returns the table of returns at the same cost; `None` if no task has runs at several limits.
fn at_equal_cost(tasks: &[EqualCost<'_>]) -> Option<Table> {
    let mut rows = Vec::new();
    for task in tasks.iter().filter(|task| task.slope.is_some()) {
        let adjusted = |group: &Group| -> Vec<f64> {
            group.achieved.iter().filter_map(|run| task.adjusted(run)).collect()
        };
        for (i, group) in task.groups.iter().enumerate() {
            let differences = || {
                let pairs = EqualCost::pairs(task.groups[0], group);
                let difference =
                    |(a, b): (RunResults, RunResults)| Some(task.adjusted(&a)? - task.adjusted(&b)?);
                stats::interval(&[pairs.into_iter().filter_map(difference).collect()], Statistic::Mean, SEED)
            };
            rows.push(vec![
                text(&group.task),
                text(&group.label),
                Cell::Number(task.limit),
                Cell::Number(group.achieved.len() as f64),
                Cell::spread(&adjusted(group)),
                if i == 0 { Cell::Missing } else { Cell::interval(differences()) },
                Cell::interval(task.slope),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        name: "table7-equal-cost",
        title: "Table 7. Return at equal cost".into(),
        caption: "The return that the runs would have at the cost of the fourth column, mean ± standard deviation over \
                  seeds. It follows from the slope of the return over the cost, which comes from algorithms that were \
                  trained at several limits. The lead is the difference between the first algorithm of the task and \
                  this one, by pairs of equal seeds, with its 95 % interval; the uncertainty of the slope is not in it."
            .into(),
        columns: vec![
            column("Task", ColumnKind::Text),
            column("Algorithm", ColumnKind::Text),
            column("Cost", ColumnKind::Number),
            column("Seeds", ColumnKind::Number),
            column("Return at this cost", ColumnKind::Spread),
            column("Lead of the first", ColumnKind::Interval),
            column("Slope", ColumnKind::Interval),
        ],
        rows,
    })
}

/// Returns the table that compares the first algorithm with the others by pairs of the same task and seed; `None` if
/// there is no pair.
fn pair_by_pair(tasks: &[EqualCost<'_>]) -> Option<Table> {
    let first = tasks.first()?.groups.first()?.label.as_str();
    let find = |task: &EqualCost<'_>, label: &str| task.groups.iter().position(|g| g.label == label);
    let mut seen = BTreeSet::from([first]);
    let all = tasks.iter().flat_map(|task| task.groups.iter().map(|g| g.label.as_str()));
    let others: Vec<&str> = all.filter(|label| seen.insert(*label)).collect();
    let row = |other: &&str| {
        // each pair: better at equal safety, and better at equal cost if the task has a slope; a tie counts half
        let (mut safe, mut equal) = (Vec::new(), Vec::new());
        for task in tasks {
            let Some((a, b)) = find(task, first).zip(find(task, other)) else { continue };
            for (a, b) in EqualCost::pairs(task.groups[a], task.groups[b]) {
                safe.push(a.compare(&b));
                equal.extend(task.adjusted(&a).zip(task.adjusted(&b)).map(|(a, b)| a.total_cmp(&b)));
            }
        }
        let share = |order: &[std::cmp::Ordering]| Cell::interval(stats::share_of_pairs(order));
        (!safe.is_empty()).then(|| {
            let [n, m] = [safe.len(), equal.len()].map(|n| Cell::Number(n as f64));
            vec![text(other), n, share(&safe), m, share(&equal)]
        })
    };
    let rows: Vec<Vec<Cell>> = others.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        name: "table8-pairs",
        title: format!("Table 8. {first} against the others, pair by pair"),
        caption: format!(
            "The share of pairs of the same task and seed in which {first} is better, with Wilson's 95 % interval; an \
             interval that contains 0.5 decides nothing. At equal safety: a run within the limit is better than one \
             above it; of two within, the one with the higher return; of two above, the one with the lower cost. At equal \
             cost: by the returns at equal cost, on tasks that have a slope. Ties count half."
        ),
        columns: vec![
            column("Against", ColumnKind::Text),
            column("Pairs", ColumnKind::Number),
            column("Better at equal safety", ColumnKind::Interval),
            column("Pairs with a slope", ColumnKind::Number),
            column("Better at equal cost", ColumnKind::Interval),
        ],
        rows,
    })
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

    /// This test fails if algorithms are mixed in the slope: the line through the means of two algorithms has
    /// another slope.
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

    /// This test fails if the lead has the wrong sign, or if the first algorithm is compared at its own cost.
    #[test]
    fn the_lead_at_equal_cost_by_hand() {
        let mut runs = Vec::new();
        let mut add = |algo: &str, seed, limit: f64, cost: f64, ret: f64| {
            let mut run = run("A-v0", algo, seed, &[(0.0, 60.0), (ret, cost)]);
            run.limit = limit;
            run.config = [("run.limit".to_owned(), limit.to_string())].into();
            runs.push(run);
        };
        for seed in 0..2 {
            let s = seed as f64;
            // both on lines of slope ½; EPO is 3 above the other at the same cost, although its return is lower
            add("epo", seed, 25.0, 20.0 + s, 13.0 + 0.5 * (20.0 + s));
            add("epo", seed, 30.0, 28.0, 13.0 + 0.5 * 28.0);
            add("ppo-lag", seed, 25.0, 30.0, 10.0 + 0.5 * 30.0);
            add("ppo-lag", seed, 30.0, 33.0 + s, 10.0 + 0.5 * (33.0 + s));
        }
        let tables = tables(&groups(runs, 0.1, &mut Vec::new()));
        let find = |name| tables.iter().find(|t| t.name == name).unwrap();
        let (equal, pairs) = (find("table7-equal-cost"), find("table8-pairs"));
        assert_eq!(equal.rows.len(), 2, "the groups at the limit 25: {:?}", equal.rows);
        let Cell::Spread(at_limit, _) = equal.rows[0][4] else { panic!("{:?}", equal.rows[0]) };
        let Cell::Interval(lead) = equal.rows[1][5] else { panic!("{:?}", equal.rows[1]) };
        assert!((at_limit - 25.5).abs() < 1e-9 && (lead.point - 3.0).abs() < 1e-9, "{at_limit} {lead:?}");
        let Cell::Interval(better) = pairs.rows[0][4] else { panic!("{:?}", pairs.rows[0]) };
        assert_eq!((pairs.rows[0][3].clone(), better.point), (Cell::Number(2.0), 1.0));
    }
}
