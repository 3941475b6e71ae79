//! The tables of a report, and the conclusions that a small number of seeds does not support.

use std::collections::{BTreeMap, BTreeSet};

use crate::equal_cost;
use crate::evaluation::{EvaluatedPolicy, Evaluation, of_policy};
use crate::files::shorten;
use crate::groups::{Group, RunResults};
use crate::labels::is_incidental;
use crate::stats::{self, Interval, Statistic};
use crate::table::{Cell, ColumnKind, Table, number};

/// Seed of every bootstrap. It is fixed, so the same runs give the same report.
pub(crate) const SEED: u64 = 0;

pub(crate) fn column(name: &str, kind: ColumnKind) -> (String, ColumnKind) {
    (name.to_owned(), kind)
}

pub(crate) fn text(s: &str) -> Cell {
    Cell::Text(s.to_owned())
}

fn collect(group: &Group, f: impl Fn(&RunResults) -> f64) -> Vec<f64> {
    group.achieved.iter().map(f).collect()
}

/// Cuts the interval of a quantity that is never negative at 0.
fn not_negative(interval: Interval) -> Interval {
    interval.at_least(0.0)
}

/// Maximum length of a cell that lists names or settings.
const MOST_TEXT: usize = 300;

/// Returns all tables for which the groups have data.
pub(crate) fn tables(groups: &[Group], share: f64) -> Vec<Table> {
    let together = CommonTasks::of(groups);
    let mut tables: Vec<Table> = variants(groups).into_iter().collect();
    tables.extend([final_performance(groups, share), violations(groups)]);
    tables.extend(together.as_ref().map(CommonTasks::scores));
    tables.extend(together.as_ref().and_then(CommonTasks::beats));
    tables.extend(timing(groups));
    tables.extend(evaluations(groups, share));
    tables.extend(equal_cost::tables(groups));
    tables.extend(settings(groups));
    tables
}

/// Returns the table that explains the letters of variants; `None` if no variant has a letter.
fn variants(groups: &[Group]) -> Option<Table> {
    let mut named: Vec<(&str, &str)> =
        groups.iter().filter_map(|g| Some((g.label.as_str(), g.variant.as_deref()?))).collect();
    named.sort_unstable();
    named.dedup();
    (!named.is_empty()).then(|| Table {
        name: "variants",
        title: "Variants".into(),
        caption: "Runs of one algorithm that differ in more settings than a legend can hold.".into(),
        columns: vec![column("Name", ColumnKind::Text), column("Settings that differ", ColumnKind::Text)],
        rows: named.into_iter().map(|(name, own)| vec![text(name), text(&shorten(own, MOST_TEXT))]).collect(),
    })
}

fn final_performance(groups: &[Group], share: f64) -> Table {
    let rows = groups.iter().map(|g| {
        let (ret, cost) = (collect(g, |a| a.ret), collect(g, |a| a.cost));
        let feasible = g.achieved.iter().filter(|a| a.feasible()).count();
        let ci = |values: &[f64]| stats::interval(&[values.to_vec()], Statistic::Mean, SEED);
        vec![
            text(&g.task),
            text(&g.label),
            Cell::Number(g.achieved.len() as f64),
            Cell::spread(&ret),
            Cell::interval(ci(&ret)),
            Cell::spread(&cost),
            Cell::interval(if cost.iter().all(|&c| c >= 0.0) {
                ci(&cost).map(not_negative)
            } else {
                ci(&cost)
            }),
            Cell::interval(stats::proportion(feasible, g.achieved.len())),
            Cell::spread(&g.scores),
        ]
    });
    Table {
        name: "table1-final",
        title: "Table 1. Final return and cost".into(),
        caption: format!(
            "Return and cost are means over the last {} % of the steps: mean ± standard deviation over seeds, and the mean \
             with its 95 % interval. Feasible is the share of runs whose final cost is within the limit, with Wilson's \
             95 % interval. The score is the return at equal safety: 0 for an untrained or unsafe run, 1 for the best \
             safe algorithm of the task. Intervals of a cost do not go below 0.",
            percent(share)
        ),
        columns: vec![
            column("Task", ColumnKind::Text),
            column("Algorithm", ColumnKind::Text),
            column("Seeds", ColumnKind::Number),
            column("Return", ColumnKind::Spread),
            column("Return 95 %", ColumnKind::Interval),
            column("Cost", ColumnKind::Spread),
            column("Cost 95 %", ColumnKind::Interval),
            column("Feasible", ColumnKind::Interval),
            column("Score", ColumnKind::Spread),
        ],
        rows: rows.collect(),
    }
}

fn violations(groups: &[Group]) -> Table {
    let rows = groups.iter().map(|g| {
        let from: Vec<f64> = g.achieved.iter().filter_map(|a| a.stays_from.map(|e| e as f64)).collect();
        let (reached, all) = (from.len(), g.achieved.len());
        let stays = if reached == 0 { Cell::Missing } else { Cell::Number(stats::median(&from)) };
        vec![
            text(&g.task),
            text(&g.label),
            g.achieved.first().map_or(Cell::Missing, |a| Cell::Number(a.limit)),
            Cell::spread(&collect(g, |a| 100.0 * a.above)),
            Cell::spread(&collect(g, |a| a.excess)),
            stays,
            if all == 0 { Cell::Missing } else { Cell::Text(format!("{reached} of {all}")) },
        ]
    });
    Table {
        name: "table2-violations",
        title: "Table 2. Constraint violations during training".into(),
        caption: "The share of epochs whose cost is above the limit, the excess summed over epochs, and the epoch from \
                  which a run stays within the limit. That epoch is the median over the runs that stay; the last \
                  column has their number."
            .into(),
        columns: vec![
            column("Task", ColumnKind::Text),
            column("Algorithm", ColumnKind::Text),
            column("Limit", ColumnKind::Number),
            column("Epochs above, %", ColumnKind::Spread),
            column("Cumulative excess", ColumnKind::Spread),
            column("Feasible from epoch", ColumnKind::Number),
            column("Runs that stay", ColumnKind::Text),
        ],
        rows: rows.collect(),
    }
}

fn timing(groups: &[Group]) -> Option<Table> {
    let rows: Vec<Vec<Cell>> = (groups.iter())
        .filter_map(|g| {
            let times: Vec<_> = g.runs.iter().filter_map(|r| r.seconds_per_million).collect();
            let of = |f: fn(&crate::history::Timing) -> f64| {
                Cell::spread(&times.iter().map(f).collect::<Vec<_>>())
            };
            let cells =
                vec![text(&g.task), text(&g.label), of(|t| t.rollout), of(|t| t.update), of(|t| t.total)];
            (!times.is_empty()).then_some(cells)
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        name: "table5-time",
        title: "Table 5. Time".into(),
        caption: "Seconds per million environment steps, mean ± standard deviation over seeds. Only runs made on the \
                  same machine under the same load can be compared."
            .into(),
        columns: vec![
            column("Task", ColumnKind::Text),
            column("Algorithm", ColumnKind::Text),
            column("Collecting", ColumnKind::Spread),
            column("Updating", ColumnKind::Spread),
            column("All", ColumnKind::Spread),
        ],
        rows,
    })
}

/// Returns the table of training and evaluation results, for runs with final values; `None` if no run is evaluated.
fn evaluations(groups: &[Group], share: f64) -> Option<Table> {
    let of = |g: &Group, policy: EvaluatedPolicy| -> Vec<Evaluation> {
        g.reached.iter().filter_map(|&i| of_policy(&g.runs[i].evaluations, policy).cloned()).collect()
    };
    let present = |policy: &EvaluatedPolicy| groups.iter().any(|g| !of(g, *policy).is_empty());
    let policies: Vec<EvaluatedPolicy> = EvaluatedPolicy::ALL.into_iter().filter(present).collect();
    if policies.is_empty() {
        return None;
    }
    let mut columns = vec![
        column("Task", ColumnKind::Text),
        column("Algorithm", ColumnKind::Text),
        column("Limit", ColumnKind::Number),
    ];
    for quantity in ["Return", "Cost"] {
        columns.push(column(&format!("{quantity}, training"), ColumnKind::Spread));
        columns.extend(
            policies.iter().map(|p| column(&format!("{quantity}, {}", p.name()), ColumnKind::Spread)),
        );
    }
    columns.extend(
        policies.iter().map(|p| column(&format!("Within limit, {}, %", p.name()), ColumnKind::Spread)),
    );
    columns.extend(
        policies.iter().map(|p| column(&format!("Shown within / above, {}", p.name()), ColumnKind::Text)),
    );
    columns.extend(policies.iter().map(|p| column(&format!("Runs, {}", p.name()), ColumnKind::Number)));
    columns.push(column("Episodes of each", ColumnKind::Text));
    let row = |g: &Group| {
        let played: Vec<Vec<Evaluation>> = policies.iter().map(|p| of(g, *p)).collect();
        let spread = |f: fn(&Evaluation) -> Option<f64>| {
            played
                .iter()
                .map(move |of| Cell::spread(&of.iter().filter_map(f).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        };
        let mut cells = vec![text(&g.task), text(&g.label), Cell::Number(g.runs[0].limit)];
        cells.push(Cell::spread(&collect(g, |a| a.ret)));
        cells.extend(spread(|e| Some(e.ret)));
        cells.push(Cell::spread(&collect(g, |a| a.cost)));
        cells.extend(spread(|e| Some(e.cost)));
        cells.extend(spread(|e| e.within.map(|share| 100.0 * share)));
        cells.extend(played.iter().map(|of| shown(of, g.runs[0].limit)));
        cells.extend(played.iter().map(|of| Cell::Number(of.len() as f64)));
        let episodes: BTreeSet<u64> = played.iter().flatten().map(|e| e.episodes).collect();
        cells.push(match (episodes.first(), episodes.last()) {
            (Some(fewest), Some(most)) if fewest == most => Cell::Text(fewest.to_string()),
            (Some(fewest), Some(most)) => Cell::Text(format!("{fewest} to {most}")),
            _ => Cell::Missing,
        });
        cells
    };
    Some(Table {
        name: "table6-evaluation",
        title: "Table 6. Training and evaluation".into(),
        caption: format!(
            "Mean ± standard deviation over runs. Training is the last {} % of the steps, while the policy still changes. \
             Sampled actions are drawn from the final policy, as in training. The mean action is that of the final \
             policy, without randomness. Of several evaluations, one with published physics counts before the others, \
             then the one with the most episodes. Within limit is the share of the evaluation episodes whose cost is within the \
             limit. The next columns count the runs whose mean cost is shown to be within the limit, and above it, by \
             its whole 95 % interval.",
            percent(share)
        ),
        columns,
        rows: groups.iter().map(row).collect(),
    })
}

/// Returns the numbers of evaluations whose interval of the mean cost is wholly within the limit, and wholly above it.
fn shown(evaluations: &[Evaluation], limit: f64) -> Cell {
    let ends: Vec<[f64; 2]> = evaluations.iter().filter_map(|e| e.cost_interval).collect();
    if ends.is_empty() {
        return Cell::Missing;
    }
    let within = ends.iter().filter(|[_, hi]| *hi <= limit).count();
    let above = ends.iter().filter(|[lo, _]| *lo > limit).count();
    Cell::Text(format!("{within} / {above}"))
}

/// Returns a fraction as a percentage: `10` for 0.1.
fn percent(share: f64) -> String {
    number(share * 100.0).trim_end_matches(".00").to_owned()
}

/// Maximum number of settings that are listed.
const MOST_SETTINGS: usize = 200;

/// Returns the table of settings that differ between groups; `None` if there are none.
fn settings(groups: &[Group]) -> Option<Table> {
    let mut values: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for group in groups {
        for (key, value) in group.runs[0].config.iter().filter(|(key, _)| !is_incidental(key)) {
            values.entry(key).or_default().entry(value).or_default().insert(&group.label);
        }
    }
    let who = |labels: &BTreeSet<&str>| {
        let names: Vec<&str> = labels.iter().take(6).copied().collect();
        let more = labels.len().saturating_sub(names.len());
        if more > 0 { format!("{} and {more} more", names.join("; ")) } else { names.join("; ") }
    };
    let row = |(key, values): (&str, BTreeMap<&str, BTreeSet<&str>>)| {
        let one = |(value, labels): (&&str, &BTreeSet<&str>)| format!("{value} ({})", who(labels));
        let all: Vec<String> = values.iter().map(one).collect();
        vec![text(key), text(&shorten(&all.join(", "), MOST_TEXT))]
    };
    let differing =
        values.into_iter().filter(|(key, values)| values.len() > 1 && *key != "run.algo" && *key != "algo");
    let rows: Vec<Vec<Cell>> = differing.take(MOST_SETTINGS).map(row).collect();
    (!rows.is_empty()).then(|| Table {
        name: "settings",
        title: "Settings that differ".into(),
        caption:
            "Settings that have more than one value among these runs, and the algorithms with each value."
                .into(),
        columns: vec![column("Setting", ColumnKind::Text), column("Values", ColumnKind::Text)],
        rows,
    })
}

/// The tasks on which every algorithm has runs. Only these tasks are averaged.
struct CommonTasks<'a> {
    labels: Vec<&'a str>,
    tasks: Vec<&'a str>,
    groups: BTreeMap<(&'a str, &'a str), &'a Group>,
}

impl<'a> CommonTasks<'a> {
    fn of(groups: &'a [Group]) -> Option<Self> {
        let mut seen = BTreeSet::new();
        let all = groups.iter().map(|group| group.label.as_str());
        let labels: Vec<&str> = all.filter(|label| seen.insert(*label)).collect();
        let complete =
            |of_task: &&[Group]| of_task.iter().filter(|g| !g.scores.is_empty()).count() == labels.len();
        let tasks = groups.chunk_by(|a, b| a.task == b.task).filter(complete);
        let tasks: Vec<&str> = tasks.map(|g| g[0].task.as_str()).collect();
        let groups = groups.iter().map(|g| ((g.label.as_str(), g.task.as_str()), g)).collect();
        (labels.len() > 1 && !tasks.is_empty()).then_some(Self { labels, tasks, groups })
    }

    fn of_label(&self, label: &'a str) -> impl Iterator<Item = &'a Group> {
        self.tasks.iter().filter_map(move |task| self.groups.get(&(label, *task)).copied())
    }

    fn scores(&self) -> Table {
        let rows = self.labels.iter().map(|label| {
            let scores: Vec<Vec<f64>> = self.of_label(label).map(|g| g.scores.clone()).collect();
            let runs: Vec<&RunResults> = self.of_label(label).flat_map(|g| &g.achieved).collect();
            let estimate =
                |statistic| Cell::interval(stats::interval(&scores, statistic, SEED).map(not_negative));
            vec![
                text(label),
                Cell::Number(runs.len() as f64),
                estimate(Statistic::Iqm),
                estimate(Statistic::Mean),
                Cell::interval(stats::proportion(runs.iter().filter(|a| a.feasible()).count(), runs.len())),
            ]
        });
        Table {
            name: "table3-scores",
            title: "Table 3. Score at equal safety, all tasks together".into(),
            caption: format!(
                "Interquartile mean and mean of the scores of Table 1 over {}, each with a 95 % interval (bootstrap \
                 within tasks, stretched for small samples).",
                shorten(&self.tasks.join(", "), MOST_TEXT)
            ),
            columns: vec![
                column("Algorithm", ColumnKind::Text),
                column("Runs", ColumnKind::Number),
                column("IQM", ColumnKind::Interval),
                column("Mean", ColumnKind::Interval),
                column("Feasible", ColumnKind::Interval),
            ],
            rows: rows.collect(),
        }
    }

    fn beats(&self) -> Option<Table> {
        if self.labels.len() > 12 {
            return None;
        }
        let pairs = |a: &'a str, b: &'a str| -> Vec<(Vec<RunResults>, Vec<RunResults>)> {
            let both = self.of_label(a).zip(self.of_label(b));
            both.map(|(a, b)| (a.achieved.clone(), b.achieved.clone())).collect()
        };
        let rows = self.labels.iter().map(|a| {
            let mut row = vec![text(a)];
            row.extend(self.labels.iter().map(|b| match a == b {
                true => Cell::Missing,
                false => Cell::interval(stats::probability_beats(&pairs(a, b), RunResults::compare)),
            }));
            row
        });
        let mut columns = vec![column("Beats", ColumnKind::Text)];
        columns.extend(self.labels.iter().map(|label| column(label, ColumnKind::Interval)));
        Some(Table {
            name: "table4-beats",
            title: "Table 4. Probability that the row beats the column".into(),
            caption: "The probability that a run of the row beats a run of the column on the same task. A run within the \
                      limit beats one above it. Of two within it the higher return wins, of two above it the lower \
                      cost. Ties count half, and tasks have equal weight. The interval is a 95 % score interval; if it \
                      contains 0.5, neither is shown to be better."
                .into(),
            columns,
            rows: rows.collect(),
        })
    }
}

/// Returns the conclusions that the number of seeds does not support; empty for five or more seeds.
pub(crate) fn caveats(groups: &[Group]) -> Vec<String> {
    let fewest = groups.iter().map(|g| g.achieved.len()).filter(|&n| n > 0).min().unwrap_or(0);
    let mut out = Vec::new();
    match fewest {
        0 => out.push("No run is long enough for a final value.".into()),
        1 => out.push(
            "With one seed nothing is known about the spread. There is no band and no interval, and a difference from \
             another algorithm may be due to chance."
                .into(),
        ),
        n @ 2..=4 => {
            let p = stats::smallest_p(n, n);
            out.push(if p > 0.05 {
                format!(
                    "With {n} seeds no difference between two algorithms on a single task can be significant. Even if \
                     every run of one beats every run of the other, p = {}.",
                    number(p)
                )
            } else {
                format!(
                    "With {n} seeds a difference on a single task is significant only if every run of one algorithm \
                     beats every run of the other (p = {}).",
                    number(p)
                )
            });
        }
        _ => {}
    }
    if (1..5).contains(&fewest) {
        let lo = stats::proportion(fewest, fewest).map_or(0.0, |p| p.lo);
        let all =
            if fewest == 1 { "the only run is".into() } else { format!("{fewest} of {fewest} runs are") };
        out.push(format!(
            "If {all} feasible, the probability that another run is feasible may still be as low as {}.",
            number(lo)
        ));
        out.push("The order of algorithms whose intervals overlap is not established. Use at least 5 seeds; 10 are usual.".into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::groups::groups;
    use super::super::groups::tests::run;
    use super::*;

    fn two_algorithms(seeds: u64) -> Vec<Group> {
        let mut runs = Vec::new();
        for task in ["A-v0", "B-v0"] {
            for seed in 0..seeds {
                let s = seed as f64;
                runs.push(run(task, "epo", seed, &[(0.0, 60.0), (20.0 + s, 20.0)]));
                runs.push(run(task, "ppo", seed, &[(0.0, 60.0), (30.0 + s, 50.0 + s)]));
            }
        }
        groups(runs, 0.1, &mut Vec::new())
    }

    #[test]
    fn the_tables_hold_the_hand_counted_values() {
        let tables = tables(&two_algorithms(3), 0.1);
        let names: Vec<_> = tables.iter().map(|t| t.name).collect();
        assert_eq!(
            names,
            ["table1-final", "table2-violations", "table3-scores", "table4-beats", "table8-pairs"]
        );
        assert_eq!(tables[0].rows[0][3], Cell::Spread(21.0, Some(1.0)));
        assert_eq!(tables[1].rows[0][3], Cell::Spread(50.0, Some(0.0)), "one epoch of two above the limit");
        assert_eq!(tables[1].rows[0][4], Cell::Spread(35.0, Some(0.0)), "60 − 25");
        assert_eq!(tables[1].rows[0][5..], [Cell::Number(1.0), Cell::Text("3 of 3".into())]);
        assert_eq!(tables[1].rows[1][5..], [Cell::Missing, Cell::Text("0 of 3".into())]);
        let Cell::Interval(beats) = tables[3].rows[0][2] else {
            panic!("EPO against PPO: {:?}", tables[3].rows[0])
        };
        assert_eq!(beats.point, 1.0, "PPO exceeds the limit, so its higher return does not count");
        assert_eq!(tables[4].rows[0][..2], [text("PPO"), Cell::Number(6.0)], "three seeds of two tasks");
        let Cell::Interval(better) = tables[4].rows[0][2] else { panic!("{:?}", tables[4].rows[0]) };
        assert_eq!(
            (better.point, tables[4].rows[0][4].clone()),
            (1.0, Cell::Missing),
            "no run at another limit"
        );
    }

    /// This test fails if an evaluation does not name its policy, or is not in the row of its training.
    #[test]
    fn evaluations_are_in_the_row_of_their_training_with_the_name_of_the_policy() {
        let mut groups = two_algorithms(2);
        assert!(tables(&groups, 0.1).iter().all(|t| t.name != "table6-evaluation"), "nothing was evaluated");
        for (i, run) in groups[0].runs.iter_mut().enumerate() {
            let one = |policy, cost| Evaluation {
                hash: None,
                published: true,
                policy,
                episodes: 100,
                ret: 5.0,
                cost,
                cost_interval: Some([cost - 5.0, cost + 5.0]),
                within: Some(0.5),
            };
            run.evaluations =
                vec![one(EvaluatedPolicy::Sampled, 17.0), one(EvaluatedPolicy::Mean, 186.0 + 2.0 * i as f64)];
        }
        let table = tables(&groups, 0.1).into_iter().find(|t| t.name == "table6-evaluation").unwrap();
        let names: Vec<_> = table.columns.iter().map(|c| c.0.as_str()).collect();
        let cell = |name: &str| &table.rows[0][names.iter().position(|n| *n == name).unwrap()];
        assert_eq!(*cell("Cost, training"), Cell::Spread(20.0, Some(0.0)));
        assert_eq!(*cell("Cost, sampled action"), Cell::Spread(17.0, Some(0.0)));
        assert_eq!(*cell("Cost, mean action"), Cell::Spread(187.0, Some(2.0_f64.sqrt())));
        assert_eq!(*cell("Within limit, mean action, %"), Cell::Spread(50.0, Some(0.0)));
        assert_eq!(*cell("Episodes of each"), Cell::Text("100".into()));
        assert_eq!(*cell("Shown within / above, sampled action"), Cell::Text("2 / 0".into()));
        assert_eq!(*cell("Shown within / above, mean action"), Cell::Text("0 / 2".into()));
        assert!(!names.iter().any(|name| name.contains("not recorded")), "{names:?}");
        assert_eq!(table.rows[1][4], Cell::Missing, "the other algorithm was not evaluated");
        assert!(table.to_csv().starts_with(
            "task,algorithm,limit,return_training_mean,return_training_sd,return_sampled_action_mean"
        ));
    }

    #[test]
    fn settings_that_differ_are_listed_with_their_groups() {
        let mut groups = two_algorithms(2);
        for (i, group) in groups.iter_mut().enumerate() {
            let config =
                [("train.gamma", "0.99"), ("train.target_kl", ["0.006", "0.02"][i % 2]), ("run.seed", "7")];
            group.runs[0].config = config.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        }
        let table = tables(&groups, 0.1).into_iter().find(|t| t.name == "settings").unwrap();
        let want = vec![text("train.target_kl"), text("0.006 (EPO), 0.02 (PPO)")];
        assert_eq!(table.rows, [want]);
    }

    #[test]
    fn scores_use_only_tasks_on_which_all_algorithms_have_runs() {
        let mut groups = two_algorithms(2);
        groups.retain(|g| g.task == "A-v0" || g.label == "EPO");
        let table = tables(&groups, 0.1).into_iter().find(|t| t.name == "table3-scores").unwrap();
        assert!(table.caption.contains("A-v0") && !table.caption.contains("B-v0"), "{}", table.caption);
    }

    #[test]
    fn few_seeds_have_caveats() {
        let said = |seeds| caveats(&two_algorithms(seeds)).join(" ");
        assert!(said(1).contains("nothing is known about the spread"));
        assert!(said(3).contains("p = 0.10") && said(3).contains("as low as 0.44"), "{}", said(3));
        assert!(said(4).contains("only if every run") && said(4).contains("p = 0.03"), "{}", said(4));
        assert_eq!(said(5), "");
    }
}
