//! Answers to the page's requests, as JSON and CSV.

use std::collections::{BTreeMap, BTreeSet};

use epo_report::history::Source;
use epo_report::labels::is_incidental;
use epo_report::state::RunState;
use epo_report::{csv_text, stats};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::rows::FPS;
use crate::run::{Results, Run};
use crate::store::{Group, Store, Table, read};

/// Maximum number of notes that are sent.
const MOST_NOTES: usize = 50;

/// Words that select runs. All must match.
///
/// A word matches if the run's path, task, label or state contains it. `key=value` matches a setting; `-word` and
/// `-key=value` match runs that the word without `-` does not match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Vec<(bool, String)>);

impl Filter {
    pub(crate) fn parse(text: &str) -> Self {
        let word = |word: &str| match word.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (false, rest.to_lowercase()),
            _ => (true, word.to_lowercase()),
        };
        Self(text.split_whitespace().take(20).map(word).collect())
    }

    pub(crate) fn keeps(&self, run: &Run, label: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let identity = run.identity.as_ref();
        let task = identity.map_or("", |i| &i.task);
        let all = format!("{} {task} {label} {}", run.name, run.state.name()).to_lowercase();
        let setting = |word: &str| {
            let (key, value) = word.split_once('=')?;
            if key == "state" {
                return Some(value == run.state.name());
            }
            let same = |(k, v): (&String, &String)| {
                let k = k.to_lowercase();
                (k == key || k.rsplit('.').next() == Some(key)) && v.to_lowercase() == value
            };
            Some(identity?.config.iter().any(same))
        };
        self.0.iter().all(|(wanted, word)| (all.contains(word) || setting(word) == Some(true)) == *wanted)
    }
}

/// Query of `/api/overview`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct OverviewQuery {
    /// Version that the page has already.
    #[serde(default)]
    pub(crate) since: u64,
    /// Filter of the runs.
    #[serde(default)]
    pub(crate) q: String,
}

fn label_of(table: &Table, run: usize) -> &str {
    table.group_of[run].map_or("", |g| &table.groups[g].label.name)
}

/// Mean of some values with their standard deviation and the 95 % interval of the mean (Student's t).
fn summary(values: &[f64], never_negative: bool) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    let (mean, sd, n) = (stats::mean(values), stats::std_dev(values), values.len());
    let half = sd.map(|sd| stats::student_t(0.95, (n - 1) as f64) * sd / (n as f64).sqrt());
    let floor = if never_negative && values.iter().all(|&v| v >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
    json!({
        "n": n,
        "mean": mean,
        "sd": sd,
        "lo": half.map(|h| (mean - h).max(floor)),
        "hi": half.map(|h| mean + h),
    })
}

/// Everything but the curves: groups with their results, and the runs that changed since the version `since`.
pub(crate) fn overview(store: &Store, query: &OverviewQuery) -> Value {
    let version = store.version(); // before the data, so that a later change is never missed
    let (table, filter) = (store.table(), Filter::parse(&query.q));
    let mut runs = Vec::new();
    let mut gone = store.gone_since(query.since);
    let mut shown: BTreeMap<usize, Vec<Member>> = BTreeMap::new();
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for i in 0..table.runs.len() {
        let run = read(&table.runs[i]);
        let new = run.changed.max(table.grouped[i]) > query.since || query.since == 0;
        if !filter.keeps(&run, label_of(&table, i)) {
            if new {
                gone.push(run.id.clone());
            }
            continue;
        }
        total += 1;
        *states.entry(run.state.name()).or_default() += 1;
        let results = run.results();
        if let Some(group) = table.group_of[i] {
            shown.entry(group).or_default().push((results, run.limit(), run.state));
        }
        if new {
            runs.push(run_row(&run, table.group_of[i].map(|g| &table.groups[g]), results));
        }
    }
    let mut tasks: Vec<(String, Vec<Value>)> = Vec::new();
    for (g, members) in shown {
        let group = &table.groups[g];
        if tasks.last().is_none_or(|(task, _)| *task != group.task) {
            tasks.push((group.task.clone(), Vec::new()));
        }
        if let Some((_, groups)) = tasks.last_mut() {
            groups.push(group_row(group, &members, &table));
        }
    }
    let tasks: Vec<Value> = tasks
        .into_iter()
        .map(|(task, groups)| json!({"version": store.task_version(&task), "task": task, "groups": groups}))
        .collect();
    json!({
        "version": version,
        "loading": table.loading, // from the same moment as the groups
        "folders": store.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>(),
        "notes": table.notes.iter().take(MOST_NOTES).collect::<Vec<_>>(),
        "sweeps": store.sweeps(),
        "total": total,
        "all": table.runs.len(),
        "states": states,
        "tasks": tasks,
        "runs": runs,
        "gone": gone,
    })
}

/// Results, cost limit and state of a run.
type Member = (Option<Results>, Option<f64>, RunState);

fn group_row(group: &Group, members: &[Member], table: &Table) -> Value {
    let results: Vec<(Results, Option<f64>)> = members.iter().filter_map(|m| Some((m.0?, m.1))).collect();
    let of = |f: fn(&Results) -> Option<f64>| results.iter().filter_map(|(r, _)| f(r)).collect::<Vec<f64>>();
    let limited: Vec<bool> = results.iter().filter_map(|(r, limit)| Some(r.cost <= (*limit)?)).collect();
    let feasible = stats::proportion(limited.iter().filter(|f| **f).count(), limited.len());
    let stays: Vec<f64> = results.iter().filter_map(|(r, _)| r.stays_from.map(|e| e as f64)).collect();
    let first = group.runs.first().map(|&i| read(&table.runs[i]));
    let identity = first.as_ref().and_then(|run| run.identity.as_ref());
    let thresholds =
        identity.and_then(|i| serde_json::from_str::<Value>(i.config.get("algo.alpha_thresholds")?).ok());
    json!({
        "id": group.id,
        "label": group.label.name,
        "variant": group.label.variant,
        "n": members.len(),
        "training": members.iter().filter(|m| m.2 == RunState::Training).count(),
        "limit": members.iter().find_map(|m| m.1),
        "alpha_thresholds": thresholds,
        "ret": summary(&of(|r| Some(r.ret)), false),
        "cost": summary(&of(|r| Some(r.cost)), true),
        "above": summary(&of(|r| r.above), true),
        "excess": summary(&of(|r| r.excess), true),
        "feasible": feasible.map(|i| json!({"n": limited.len(), "mean": i.point, "lo": i.lo, "hi": i.hi})),
        "stays": json!({"n": stays.len(), "median": (!stays.is_empty()).then(|| stats::median(&stays))}),
    })
}

fn run_row(run: &Run, group: Option<&Group>, results: Option<Results>) -> Value {
    let limit = run.limit();
    json!({
        "id": run.id,
        "name": run.name,
        "group": group.map(|g| &g.id),
        "task": run.identity.as_ref().map(|i| &i.task),
        "seed": run.identity.as_ref().map(|i| i.seed),
        "state": run.state,
        "steps": run.sums.steps,
        "planned": run.planned(),
        "epochs": run.sums.epochs,
        "limit": limit,
        "ret": results.map(|r| r.ret),
        "cost": results.map(|r| r.cost),
        "feasible": results.and_then(|r| Some(r.cost <= limit?)),
        "above": results.and_then(|r| r.above),
        "excess": results.and_then(|r| r.excess),
        "stays_from": results.and_then(|r| r.stays_from),
        "fps": run.rows.last(FPS),
        "seconds": run.seconds(),
        "hash": run.hash,
        "remark": run.remark(),
    })
}

/// Query of `/api/runs.csv`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RunsQuery {
    /// Filter of the runs.
    #[serde(default)]
    pub(crate) q: String,
    /// Task; all tasks if it is empty.
    #[serde(default)]
    pub(crate) task: String,
}

/// The table of runs as CSV.
pub(crate) fn runs_csv(store: &Store, query: &RunsQuery) -> String {
    let (table, filter) = (store.table(), Filter::parse(&query.q));
    let columns = "run,task,algorithm,seed,state,steps,planned,epochs,limit,return,cost,feasible,epochs_above,excess,\
                   feasible_from,steps_per_second,hash\n";
    let mut out = columns.to_owned();
    for (i, run) in table.runs.iter().enumerate() {
        let (run, label) = (read(run), label_of(&table, i));
        let Some(identity) = run.identity.as_ref().filter(|i| query.task.is_empty() || i.task == query.task)
        else {
            continue;
        };
        if !filter.keeps(&run, label) {
            continue;
        }
        let text = |v: Option<f64>| v.map(|v| v.to_string()).unwrap_or_default();
        let (results, limit) = (run.results(), run.limit());
        let cells = [
            csv_text(&run.name),
            csv_text(&identity.task),
            csv_text(label),
            identity.seed.to_string(),
            run.state.name().to_owned(),
            run.sums.steps.to_string(),
            text(run.planned()),
            run.sums.epochs.to_string(),
            text(limit),
            text(results.map(|r| r.ret)),
            text(results.map(|r| r.cost)),
            results.and_then(|r| Some((r.cost <= limit?).to_string())).unwrap_or_default(),
            text(results.and_then(|r| r.above)),
            text(results.and_then(|r| r.excess)),
            text(results.and_then(|r| r.stays_from).map(|e| e as f64)),
            text(run.rows.last(FPS)),
            csv_text(run.hash.as_deref().unwrap_or_default()),
        ];
        out += &(cells.join(",") + "\n");
    }
    out
}

/// Maximum number of settings that are listed, of values of each, and of characters of a value.
const MOST_SETTINGS: usize = 200;
const MOST_VALUES: usize = 20;
const MOST_CHARACTERS: usize = 300;

fn short(text: &str) -> String {
    text.chars().take(MOST_CHARACTERS).collect()
}

/// Settings that differ between the runs of a task, with the groups and the number of runs that have each value.
pub(crate) fn settings(store: &Store, query: &RunsQuery) -> Value {
    let (table, filter) = (store.table(), Filter::parse(&query.q));
    let mut values: BTreeMap<String, BTreeMap<String, (usize, BTreeSet<&str>)>> = BTreeMap::new();
    let mut total = 0;
    for group in table.groups.iter().filter(|g| g.task == query.task) {
        for run in group.runs.iter().map(|&i| read(&table.runs[i])) {
            if !filter.keeps(&run, &group.label.name) {
                continue;
            }
            total += 1;
            let config = run.identity.iter().flat_map(|i| &i.config);
            for (key, value) in config.filter(|(key, _)| !is_incidental(key)) {
                let of_key = match values.get_mut(key) {
                    Some(of_key) => of_key,
                    None => values.entry(key.clone()).or_default(),
                };
                let (n, groups) = match of_key.get_mut(value) {
                    Some(entry) => entry,
                    None => of_key.entry(value.clone()).or_default(),
                };
                *n += 1;
                groups.insert(&group.label.name);
            }
        }
    }
    let differs = |values: &BTreeMap<String, (usize, BTreeSet<&str>)>| {
        values.len() > 1 || values.values().map(|v| v.0).sum::<usize>() < total
    };
    let rows = values.iter().filter(|(_, v)| differs(v)).take(MOST_SETTINGS).map(|(key, values)| {
        let each = values.iter().take(MOST_VALUES).map(|(value, (runs, groups))| {
            json!({"value": short(value), "runs": runs, "groups": groups.iter().take(MOST_VALUES).collect::<Vec<_>>()})
        });
        json!({"key": short(key), "values": each.collect::<Vec<_>>()})
    });
    json!({"task": query.task, "runs": total, "settings": rows.collect::<Vec<_>>()})
}

/// All data of one run that the tables leave out. `replays` says whether its episodes can be replayed.
pub(crate) fn run(store: &Store, id: &str, replays: bool) -> Option<Value> {
    let table = store.table();
    let i = *table.by_id.get(id)?;
    let run = read(&table.runs[i]);
    let mut row = run_row(&run, table.group_of[i].map(|g| &table.groups[g]), run.results());
    let settings = run.identity.iter().flat_map(|i| &i.config).take(1000);
    let settings: Vec<(String, String)> = settings.map(|(k, v)| (short(k), short(v))).collect();
    row["label"] = label_of(&table, i).into();
    row["settings"] = json!(settings);
    row["evaluations"] = run.evaluation.clone().unwrap_or(Value::Null);
    let ours = run.identity.as_ref().is_some_and(|i| i.source == Source::Epo);
    row["replays"] = (replays && ours && run.hash.is_some()).into();
    row["folder"] = run.folder.dir.display().to_string().into();
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_summary_is_that_of_students_t() {
        let got = summary(&[1.0, 2.0, 3.0], true);
        assert_eq!(
            (got["mean"].as_f64(), got["sd"].as_f64(), got["lo"].as_f64()),
            (Some(2.0), Some(1.0), Some(0.0))
        );
        assert!((got["hi"].as_f64().unwrap() - (2.0 + 4.30265 / 3.0_f64.sqrt())).abs() < 1e-3);
        assert_eq!(summary(&[1.0], true)["lo"], Value::Null);
        assert_eq!(summary(&[], true), Value::Null);
    }
}
