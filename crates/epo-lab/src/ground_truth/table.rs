//! The table that compares learned policies with the optimum: mean and worst value over seeds.

use serde::Serialize;

use super::JobResult;

/// Mean and worst value over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanAndWorst {
    /// Mean.
    pub mean: f64,
    /// Worst value. The documentation of each field of [`CmdpResult`] says what worse means.
    pub worst: f64,
}

impl MeanAndWorst {
    /// Returns mean and worst of `values`. The worst value is the one with the largest `badness`.
    fn of(values: &[f64], badness: impl Fn(f64) -> f64) -> Self {
        let worst = values.iter().copied().max_by(|a, b| badness(*a).total_cmp(&badness(*b)));
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, worst: worst.unwrap_or(f64::NAN) }
    }
}

/// Results of one algorithm on one CMDP over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CmdpResult {
    /// Name of the CMDP.
    pub cmdp: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Optimal return J_R* of the linear program.
    pub optimum: f64,
    /// Cost limit d.
    pub limit: f64,
    /// Return J_R. The smallest is the worst.
    pub ret: MeanAndWorst,
    /// Cost J_C. The largest is the worst.
    pub cost: MeanAndWorst,
    /// Gap to the optimal return in per cent. The value farthest from 0 is the worst. A negative gap means that the
    /// policy violates the limit.
    pub gap_percent: MeanAndWorst,
    /// Violation of the limit: max(J_C − d, 0). The largest is the worst.
    pub violation: MeanAndWorst,
    /// Number of steps up to the first policy within the limit. `None` if a seed had no such policy. The largest is the
    /// worst.
    pub first_within: Option<MeanAndWorst>,
    /// Number of steps at the first epoch from which the limit is always met. `None` if a seed
    /// ended above the limit. The largest is the worst.
    pub stays_within: Option<MeanAndWorst>,
    /// The same as `stays_within` for the limit 1.1 d.
    pub stays_near: Option<MeanAndWorst>,
}

/// Returns one summary per CMDP and algorithm, in the order in which they first appear in `rows`.
pub fn summarise(rows: &[JobResult]) -> Vec<CmdpResult> {
    let mut groups: Vec<Vec<&JobResult>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|g| g[0].cmdp == row.cmdp && g[0].algo == row.algo) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.iter().map(|group| summary(group)).collect()
}

fn summary(rows: &[&JobResult]) -> CmdpResult {
    let all = |f: fn(&JobResult) -> f64| rows.iter().map(|row| f(row)).collect::<Vec<_>>();
    let steps = |f: fn(&JobResult) -> Option<u64>| -> Option<MeanAndWorst> {
        let steps: Option<Vec<f64>> = rows.iter().map(|row| f(row).map(|s| s as f64)).collect();
        steps.map(|steps| MeanAndWorst::of(&steps, |s| s))
    };
    CmdpResult {
        cmdp: rows[0].cmdp.clone(),
        algo: rows[0].algo.clone(),
        seeds: rows.len(),
        optimum: rows[0].optimum,
        limit: rows[0].limit,
        ret: MeanAndWorst::of(&all(|r| r.ret), |x| -x),
        cost: MeanAndWorst::of(&all(|r| r.cost), |x| x),
        gap_percent: MeanAndWorst::of(&all(|r| r.gap_percent), f64::abs),
        violation: MeanAndWorst::of(&all(|r| r.violation), |x| x),
        first_within: steps(|r| r.first_within),
        stays_within: steps(|r| r.stays_within),
        stays_near: steps(|r| r.stays_near),
    }
}

/// Returns the table in Markdown. Cells contain "mean, worst". Numbers of steps are in thousands; `–` means that at
/// least one seed never reached the condition.
pub fn markdown(summaries: &[CmdpResult]) -> String {
    let mut text = "| CMDP | algorithm | optimum | return | limit | cost | gap % | violation | first ≤ d | stays ≤ d | stays ≤ 1.1 d |\n\
                    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    // adding 0.0 avoids “-0.0”
    let number = |x: f64, digits: usize| {
        let scale = 10_f64.powi(digits as i32);
        format!("{:.digits$}", (x * scale).round() / scale + 0.0)
    };
    let cell = |o: MeanAndWorst, digits| format!("{}, {}", number(o.mean, digits), number(o.worst, digits));
    let thousand = |o: Option<MeanAndWorst>| {
        o.map_or("–".to_owned(), |MeanAndWorst { mean, worst }| {
            cell(MeanAndWorst { mean: mean / 1e3, worst: worst / 1e3 }, 0)
        })
    };
    for s in summaries {
        let cells = [
            s.cmdp.clone(),
            s.algo.clone(),
            number(s.optimum, 2),
            cell(s.ret, 2),
            ((s.limit * 100.0).round() / 100.0).to_string(),
            cell(s.cost, 2),
            cell(s.gap_percent, 1),
            cell(s.violation, 2),
            thousand(s.first_within),
            thousand(s.stays_within),
            thousand(s.stays_near),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// Returns all runs in CSV, one line each. An empty cell means that the run never reached the condition.
pub fn csv(rows: &[JobResult]) -> String {
    let mut text = "cmdp,algo,seed,steps,optimum,limit,return,cost,gap_percent,violation,\
                    first_within,stays_within,stays_near\n"
        .to_owned();
    let never = |steps: Option<u64>| steps.map_or(String::new(), |s| s.to_string());
    for r in rows {
        let JobResult { cmdp, algo, seed, steps, optimum, limit, ret, cost, gap_percent, violation, .. } = r;
        text +=
            &format!("{cmdp},{algo},{seed},{steps},{optimum},{limit},{ret},{cost},{gap_percent},{violation}");
        for steps in [r.first_within, r.stays_within, r.stays_near] {
            text += &format!(",{}", never(steps));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(algo: &str, seed: u64, ret: f64, cost: f64, first: Option<u64>) -> JobResult {
        JobResult {
            cmdp: "c".into(),
            algo: algo.into(),
            seed,
            steps: 8000,
            optimum: 10.0,
            limit: 2.0,
            ret,
            cost,
            gap_percent: 10.0 * (10.0 - ret),
            violation: (cost - 2.0).max(0.0),
            first_within: first,
            stays_within: None,
            stays_near: Some(8000),
        }
    }

    #[test]
    fn means_and_worst_by_hand() {
        let rows = [
            row("a", 1, 9.0, 1.0, Some(4000)),
            row("b", 1, 10.0, 2.0, None),
            row("a", 2, 12.0, 3.0, Some(8000)),
        ];
        let got = summarise(&rows);
        assert_eq!(got.iter().map(|s| (s.algo.as_str(), s.seeds)).collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
        let over = |mean, worst| MeanAndWorst { mean, worst };
        assert_eq!(got[0].ret, over(10.5, 9.0));
        assert_eq!(got[0].cost, over(2.0, 3.0));
        assert_eq!(got[0].gap_percent, over(-5.0, -20.0), "farthest from 0");
        assert_eq!(got[0].violation, over(0.5, 1.0));
        assert_eq!(got[0].first_within, Some(over(6000.0, 8000.0)));
        assert_eq!(
            (got[0].stays_within, got[1].first_within),
            (None, None),
            "one seed that never does is enough"
        );
        let table = markdown(&got);
        let want =
            "| c | a | 10.00 | 10.50, 9.00 | 2 | 2.00, 3.00 | -5.0, -20.0 | 0.50, 1.00 | 6, 8 | – | 8, 8 |";
        assert_eq!(table.lines().nth(2), Some(want));
        assert_eq!(csv(&rows).lines().nth(2), Some("c,b,1,8000,10,2,10,2,0,0,,,8000"));
    }
}
