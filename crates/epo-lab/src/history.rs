//! Reading finished, running and broken run folders, ours and OmniSafe's, without ever giving up on the rest.
//!
//! ```text
//! ours      config.toml (run.task, run.algo, run.seed, run.limit)                     progress.csv
//! OmniSafe  config.json (env_id, algo, seed, algo_cfgs|lagrange_cfgs.cost_limit)      progress.csv
//! ```
//! A folder that cannot be used becomes a [`Note`]; a half-written last row is left out; an empty cell is a value that
//! did not exist yet. Only three columns are needed: `TotalEnvSteps`, `Metrics/EpRet`, `Metrics/EpCost`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::VERSION_KEY;
use crate::runs::version_note;

/// Who wrote a run folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// This program.
    Epo,
    /// OmniSafe.
    OmniSafe,
}

/// One row of `progress.csv`, as far as reports need it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Epoch, counted from 0.
    pub epoch: usize,
    /// Environment steps so far.
    pub steps: f64,
    /// Mean return of the last episodes.
    pub ret: f64,
    /// Mean cost of the last episodes.
    pub cost: f64,
}

/// A run that can be shown.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its folder.
    pub path: PathBuf,
    /// Who wrote it.
    pub source: Source,
    /// Task id.
    pub task: String,
    /// Algorithm, as the folder names it.
    pub algo: String,
    /// Seed.
    pub seed: u64,
    /// Limit of the episode cost.
    pub limit: f64,
    /// Every config value by its dotted path, as text.
    pub config: BTreeMap<String, String>,
    /// Columns of `progress.csv`.
    pub columns: Vec<String>,
    /// Rows with return and cost, by rising steps.
    pub points: Vec<Point>,
    /// Seconds of updates and of everything, per million environment steps, if the columns are there.
    pub seconds_per_million: Option<Timing>,
}

impl Run {
    /// Seconds of all its epochs, if they were recorded.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.seconds_per_million?.total * 1e-6 * self.points.last()?.steps)
    }
}

/// Where the time went, in seconds per million environment steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Collecting.
    pub rollout: f64,
    /// Updating.
    pub update: f64,
    /// Everything.
    pub total: f64,
}

/// Something the reader should know about one folder or file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// What it is about.
    pub path: PathBuf,
    /// A full sentence.
    pub message: String,
}

impl Note {
    pub(crate) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.path.display())
    }
}

/// Deepest folder below an argument that is searched for runs.
const MAX_DEPTH: usize = 8;

/// Reads every run at or below `paths`, in the order of their names; whatever cannot be used is noted. A run whose
/// configuration names no cost limit, such as OmniSafe's PPO, has `limit`.
pub fn read_runs(paths: &[PathBuf], limit: Option<f64>) -> (Vec<Run>, Vec<Note>) {
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        let (had_runs, had_notes) = (runs.len(), notes.len());
        search(path, 0, limit, &mut runs, &mut notes);
        if runs.len() == had_runs && notes.len() == had_notes {
            notes.push(Note::new(path, "No run folder was found: there is no progress.csv at or below it."));
        }
    }
    // the same folder may have been named twice, directly and through its parent
    let mut seen = std::collections::BTreeSet::new();
    runs.retain(|run| seen.insert(run.path.canonicalize().unwrap_or_else(|_| run.path.clone())));
    note_differing_columns(&runs, &mut notes);
    (runs, notes)
}

fn search(dir: &Path, depth: usize, limit: Option<f64>, runs: &mut Vec<Run>, notes: &mut Vec<Note>) {
    let mut children = match std::fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(Result::ok).map(|e| e.path()).collect::<Vec<_>>(),
        Err(e) => return notes.push(Note::new(dir, format!("The folder cannot be read: {e}."))),
    };
    children.sort();
    let has = |name: &str| children.iter().any(|p| p.file_name().is_some_and(|n| n == name));
    if has("config.toml") || has("config.json") || has("progress.csv") {
        match read_run(dir, limit) {
            Ok((run, more)) => {
                runs.push(run);
                notes.extend(more.into_iter().map(|message| Note::new(dir, message)));
            }
            Err(message) => notes.push(Note::new(dir, format!("{message} The run is left out."))),
        }
    } else if depth < MAX_DEPTH {
        for child in children.iter().filter(|p| p.is_dir() && !p.is_symlink()) {
            search(child, depth + 1, limit, runs, notes);
        }
    }
}

/// Reads one run folder; `limit` is for a run that names none. `Err` says why it cannot be shown; the list of an `Ok` says what was left out.
pub fn read_run(dir: &Path, limit: Option<f64>) -> Result<(Run, Vec<String>), String> {
    let read = |name: &str| match std::fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{name} cannot be read: {e}.")),
    };
    let mut notes = Vec::new();
    let (source, config) = match (read("config.toml")?, read("config.json")?) {
        (Some(text), _) => {
            let mut table: toml::Table = text
                .parse()
                .map_err(|e: toml::de::Error| format!("config.toml is broken: {}.", e.message()))?;
            epo_algos::modernise(&mut table); // a run of version 0.3 compares with one of this version
            let mut config = BTreeMap::new();
            flatten_toml("", &toml::Value::Table(table), &mut config);
            (Source::Epo, config)
        }
        (None, Some(text)) => {
            let value = serde_json::from_str(&text).map_err(|e| format!("config.json is broken: {e}."))?;
            let mut config = BTreeMap::new();
            flatten_json("", &value, &mut config);
            (Source::OmniSafe, config)
        }
        (None, None) => return Err("There is neither a config.toml nor a config.json.".into()),
    };
    let version = config.get(VERSION_KEY).filter(|_| source == Source::Epo);
    let version = version.and_then(|version| version_note(version));
    let mut given = None;
    let progress = read("progress.csv")?
        .ok_or_else(|| "There is no progress.csv: the run has not finished an epoch.".to_owned())
        .and_then(|text| Progress::parse(&text, &mut notes))
        .and_then(|progress| {
            let own = limit_of(source, &config);
            let limit =
                own.or(limit).ok_or("The config names no cost limit; `--limit` would give it one.")?;
            if own.is_none() {
                given =
                    Some(format!("The config names no cost limit; {limit} is taken, which was given here."));
            }
            Ok((progress, limit, identity(dir, source, &config)?))
        });
    // a run of another version may lack what this one needs: that is then the likely reason
    let because = |e: String| version.as_ref().map_or(e.clone(), |v| format!("{e} Note that {v}."));
    let (progress, limit, (task, algo, seed)) = progress.map_err(because)?;
    notes.extend(given);
    notes.extend(version.map(|v| format!("Careful: {v}.")));
    let run = Run {
        path: dir.to_owned(),
        source,
        task,
        algo,
        seed,
        limit,
        config,
        columns: progress.columns,
        points: progress.points,
        seconds_per_million: progress.timing,
    };
    Ok((run, notes))
}

/// Task, algorithm and seed from the config, else from OmniSafe's folder names `ALGO-{TASK}/seed-SSS-…`.
fn identity(
    dir: &Path,
    source: Source,
    config: &BTreeMap<String, String>,
) -> Result<(String, String, u64), String> {
    let keys = match source {
        Source::Epo => ["run.task", "run.algo", "run.seed"],
        Source::OmniSafe => ["env_id", "algo", "seed"],
    };
    let named =
        |path: Option<&Path>| path.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    let parent = named(dir.parent()).unwrap_or_default();
    let (algo_of_name, task_of_name) = match parent.split_once("-{") {
        Some((algo, task)) => (Some(algo.to_owned()), Some(task.trim_end_matches('}').to_owned())),
        None => (None, None),
    };
    let seed_of_name =
        named(Some(dir)).and_then(|n| n.strip_prefix("seed-")?.split('-').next().map(str::to_owned));
    let get = |i: usize, fallback: Option<String>| {
        let found = config.get(keys[i]).cloned().or(fallback);
        found.ok_or_else(|| format!("The config has no `{}`: the run may be of another version.", keys[i]))
    };
    let seed = get(2, seed_of_name)?;
    let seed = seed.parse().map_err(|_| format!("The seed `{seed}` is not a whole number."))?;
    Ok((get(0, task_of_name)?, get(1, algo_of_name)?, seed))
}

fn limit_of(source: Source, config: &BTreeMap<String, String>) -> Option<f64> {
    let keys: &[&str] = match source {
        Source::Epo => &["run.limit"],
        Source::OmniSafe => &["algo_cfgs.cost_limit", "lagrange_cfgs.cost_limit"],
    };
    let value: f64 = keys.iter().find_map(|key| config.get(*key)?.parse().ok())?;
    value.is_finite().then_some(value)
}

/// What `progress.csv` holds.
struct Progress {
    columns: Vec<String>,
    points: Vec<Point>,
    timing: Option<Timing>,
}

impl Progress {
    fn parse(text: &str, notes: &mut Vec<String>) -> Result<Self, String> {
        let (whole, rest) = text.split_at(text.rfind('\n').map_or(0, |i| i + 1));
        if !rest.is_empty() {
            notes.push("The last row of progress.csv is half-written and left out.".into());
        }
        let mut lines = whole.lines().filter(|line| !line.trim().is_empty());
        let header = lines.next().ok_or("progress.csv is empty: the run has not finished an epoch.")?;
        let columns: Vec<String> = header.split(',').map(|c| c.trim().trim_matches('"').to_owned()).collect();
        let find = |name: &str| columns.iter().position(|c| c == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("progress.csv has no column {name}."));
        let (steps, ret, cost) = (need("TotalEnvSteps")?, need("Metrics/EpRet")?, need("Metrics/EpCost")?);
        let times = [find("Time/Rollout"), find("Time/Update"), find("Time/Epoch")];
        let mut sums = [0.0; 3];
        let (mut points, mut broken, mut epoch, mut last_steps) = (Vec::new(), 0, 0, 0.0);
        for line in lines {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let number = |i: usize| cells[i].parse::<f64>().ok().filter(|v| v.is_finite());
            if cells.len() != columns.len() || number(steps).is_none_or(|s| s <= last_steps) {
                broken += 1;
                continue;
            }
            last_steps = number(steps).unwrap_or(last_steps);
            for (sum, column) in sums.iter_mut().zip(times) {
                *sum += column.and_then(number).unwrap_or(f64::NAN);
            }
            match (number(ret), number(cost)) {
                (Some(ret), Some(cost)) => points.push(Point { epoch, steps: last_steps, ret, cost }),
                // no episode had finished yet; anything else in the cell is broken
                _ if cells[ret].is_empty() || cells[cost].is_empty() => {}
                _ => broken += 1,
            }
            epoch += 1;
        }
        if broken > 0 {
            notes.push(format!("{broken} rows of progress.csv are broken and left out."));
        }
        if points.is_empty() {
            return Err("progress.csv holds no finished episode yet.".into());
        }
        let timing = sums.iter().all(|s| s.is_finite()).then(|| {
            let [rollout, update, total] = sums.map(|s| s / last_steps * 1e6);
            Timing { rollout, update, total }
        });
        Ok(Self { columns, points, timing })
    }
}

fn note_differing_columns(runs: &[Run], notes: &mut Vec<Note>) {
    // the columns of an algorithm are its own; among runs of one algorithm they should agree
    let mut first: BTreeMap<(Source, &str), &Run> = BTreeMap::new();
    for run in runs {
        let model = first.entry((run.source, &run.algo)).or_insert(run);
        if let Some(odd) = odd_column(&model.columns, &run.columns) {
            let which = model.path.display();
            notes.push(Note::new(
                &run.path,
                format!("The columns differ from those of {which}, by {odd} for one."),
            ));
        }
    }
}

fn odd_column<'a>(a: &'a [String], b: &'a [String]) -> Option<&'a String> {
    a.iter().find(|c| !b.contains(c)).or_else(|| b.iter().find(|c| !a.contains(c)))
}

/// Every leaf of a table by its dotted path.
pub(crate) fn flatten_toml(path: &str, value: &toml::Value, out: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten_toml(&join(path, key), value, out);
            }
        }
        toml::Value::String(text) => drop(out.insert(path.to_owned(), text.clone())),
        other => drop(out.insert(path.to_owned(), other.to_string())),
    }
}

fn flatten_json(path: &str, value: &serde_json::Value, out: &mut BTreeMap<String, String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                flatten_json(&join(path, key), value, out);
            }
        }
        serde_json::Value::String(text) => drop(out.insert(path.to_owned(), text.clone())),
        other => drop(out.insert(path.to_owned(), other.to_string())),
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CONFIG: &str =
        "[run]\ntask = \"T-v0\"\nalgo = \"epo\"\nseed = 3\nlimit = 25.0\n[train]\nenvs = 4\n";
    const HEADER: &str = "Train/Epoch,Metrics/EpRet,Metrics/EpCost,TotalEnvSteps\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn progress(rows: &str) -> String {
        format!("{HEADER}{rows}")
    }

    #[test]
    fn our_folder_is_read() {
        let dir = folder(&[
            ("config.toml", CONFIG),
            ("progress.csv", &progress("0,,,10\n1,1.5,40,20\n2,2,30,30\n")),
        ]);
        let (run, notes) = read_run(dir.path(), None).unwrap();
        assert_eq!((run.task.as_str(), run.algo.as_str(), run.seed, run.limit), ("T-v0", "epo", 3, 25.0));
        assert_eq!(run.config["train.envs"], "4");
        let first = Point { epoch: 1, steps: 20.0, ret: 1.5, cost: 40.0 };
        assert_eq!(
            (run.points[0], run.points.len()),
            (first, 2),
            "the empty cells are no point but an epoch"
        );
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn omnisafe_folder_is_read() {
        let config = r#"{"seed": 5, "env_id": "T-v0", "algo": "PPOLag", "algo_cfgs": {"gamma": 0.99},
            "lagrange_cfgs": {"cost_limit": 25.0}}"#;
        let rows = "Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,Time/Rollout,Time/Update,Time/Epoch\r\n\
                    1.0,60.0,20000.0,10.0,5.0,16.0\r\n2.0,50.0,40000.0,10.0,5.0,16.0\r\n";
        let dir = folder(&[("config.json", config), ("progress.csv", rows)]);
        let (run, _) = read_run(dir.path(), None).unwrap();
        assert_eq!(
            (run.source, run.algo.as_str(), run.seed, run.limit),
            (Source::OmniSafe, "PPOLag", 5, 25.0)
        );
        let timing = run.seconds_per_million.unwrap(); // 20 s, 10 s and 32 s in 40 000 steps
        assert!((timing.rollout - 500.0).abs() < 1e-9 && (timing.update - 250.0).abs() < 1e-9, "{timing:?}");
        assert!((timing.total - 800.0).abs() < 1e-9, "{timing:?}");
        assert!((run.seconds().unwrap() - 32.0).abs() < 1e-9);
    }

    /// Shape of OmniSafe 0.5.0: lists and nested tables in the configuration, rows that end in CR LF, columns that no
    /// report needs, and a folder whose run has not finished its first epoch.
    #[test]
    fn omnisafe_0_5_folders_are_read() {
        let config = |total: u32| {
            format!(
                r#"{{"seed": 0, "train_cfgs": {{"device": "cpu", "total_steps": {total}, "epochs": 2}},
                "algo_cfgs": {{"steps_per_epoch": 20000, "update_iters": 40, "clip": 0.2, "use_cost": true}},
                "logger_cfgs": {{"use_wandb": false, "log_dir": "./out", "window_lens": 100}},
                "model_cfgs": {{"std_range": [0.5, 0.1], "actor": {{"hidden_sizes": [64, 64], "lr": 0.0003}}}},
                "lagrange_cfgs": {{"cost_limit": 25.0, "lambda_lr": 0.035}}, "env_cfgs": {{}},
                "exp_increment_cfgs": {{"train_cfgs": {{"total_steps": {total}}}}},
                "exp_name": "PPOLag-{{T-v0}}", "env_id": "T-v0", "algo": "PPOLag"}}"#
            )
        };
        let rows = "Metrics/EpRet,Metrics/EpCost,Metrics/EpLen,Train/Epoch,Train/PolicyRatio/Min,TotalEnvSteps,\
                    Time/Total,Time/Rollout,Time/Update,Time/Epoch,Time/FPS,Metrics/LagrangeMultiplier\r\n\
                    -0.25,76.25,1000.0,0.0,1.0,20000.0,193.5,94.5,98.5,193.25,103.5,0.036\r\n";
        let dir = folder(&[
            ("PPOLag-{T-v0}/seed-000-2026-01-01-00-00-00/config.json", &config(40_000)),
            ("PPOLag-{T-v0}/seed-000-2026-01-01-00-00-00/progress.csv", ""),
            ("PPOLag-{T-v0}/seed-000-2026-01-01-00-00-00/torch_save/epoch-0.pt", "x"),
            ("PPOLag-{T-v0}/seed-000-2026-01-01-01-00-00/config.json", &config(20_000)),
            ("PPOLag-{T-v0}/seed-000-2026-01-01-01-00-00/progress.csv", rows),
        ]);
        let (runs, notes) = read_runs(&[dir.path().to_owned()], None);
        let point = Point { epoch: 0, steps: 20_000.0, ret: -0.25, cost: 76.25 };
        assert_eq!((runs.len(), &runs[0].points[..], runs[0].limit), (1, &[point][..], 25.0));
        assert!((runs[0].seconds().unwrap() - 193.25).abs() < 1e-9);
        assert!(notes.len() == 1 && notes[0].message.contains("has not finished an epoch"), "{notes:?}");
    }

    #[test]
    fn omnisafe_names_stand_in_for_missing_keys() {
        let config = r#"{"algo_cfgs": {"cost_limit": 10}}"#;
        let dir = folder(&[
            ("CPO-{T-v0}/seed-007-2024-01-01-00-00-00/config.json", config),
            ("CPO-{T-v0}/seed-007-2024-01-01-00-00-00/progress.csv", &progress("0,1,2,3\n")),
        ]);
        let (runs, notes) = read_runs(&[dir.path().to_owned()], None);
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!((runs[0].task.as_str(), runs[0].algo.as_str(), runs[0].seed), ("T-v0", "CPO", 7));
    }

    /// Kills: a run without a limit dropped though one was given, and a given limit put over a named one.
    #[test]
    fn a_limit_can_be_given_to_runs_that_name_none() {
        let rows = progress("0,1,2,3\n");
        let dir = folder(&[
            ("CPO-{T}/seed-000-x/config.json", r#"{"algo_cfgs": {"cost_limit": 10}}"#),
            ("CPO-{T}/seed-000-x/progress.csv", &rows),
            ("PPO-{T}/seed-000-x/config.json", "{}"),
            ("PPO-{T}/seed-000-x/progress.csv", &rows),
        ]);
        let (runs, notes) = read_runs(&[dir.path().to_owned()], Some(25.0));
        let limits: Vec<_> = runs.iter().map(|run| (run.algo.as_str(), run.limit)).collect();
        assert_eq!(limits, [("CPO", 10.0), ("PPO", 25.0)]);
        assert!(notes.len() == 1 && notes[0].message.contains("25 is taken"), "{notes:?}");
        let (runs, notes) = read_runs(&[dir.path().to_owned()], None);
        assert!(runs.len() == 1 && notes[0].message.contains("--limit"), "{notes:?}");
    }

    #[test]
    fn a_half_written_row_and_broken_rows_are_left_out() {
        let text = progress("0,1,2,10\n1,1,2\n2,x,2,30\n3,1,2,30\n4,1,2,40\n5,1,2,50\n6,1,2,6");
        let mut notes = Vec::new();
        let got = Progress::parse(&text, &mut notes).unwrap();
        let steps: Vec<f64> = got.points.iter().map(|p| p.steps).collect();
        assert_eq!(
            steps,
            [10.0, 40.0, 50.0],
            "short row, word for a number, steps that do not rise, half a row"
        );
        assert!(notes[0].contains("half-written") && notes[1].contains("3 rows"), "{notes:?}");
    }

    #[test]
    fn each_bad_folder_says_why_and_the_rest_is_read() {
        let good = progress("0,1,2,10\n");
        let other = CONFIG.replace("[run]", "epo_version = \"0.0.1\"\n[run]");
        let dir = folder(&[
            ("a-good/config.toml", CONFIG),
            ("a-good/progress.csv", &good),
            ("b-no-config/progress.csv", &good),
            ("c-no-progress/config.toml", CONFIG),
            ("d-empty-progress/config.toml", CONFIG),
            ("d-empty-progress/progress.csv", ""),
            ("e-broken-config/config.toml", "[run\n"),
            ("e-broken-config/progress.csv", &good),
            ("f-no-cost/config.toml", CONFIG),
            ("f-no-cost/progress.csv", "Metrics/EpRet,TotalEnvSteps\n1,2\n"),
            ("g-old/config.toml", &other),
            ("g-old/progress.csv", "Metrics/EpRet,Metrics/EpCost,TotalEnvSteps\n1,2,3\n"),
            ("h-no-limit/config.toml", "[run]\ntask = \"T\"\nalgo = \"epo\"\nseed = 1\n"),
            ("h-no-limit/progress.csv", &good),
            ("i-no-task/config.toml", "[run]\nlimit = 1\n"),
            ("i-no-task/progress.csv", &good),
            ("l-old-and-unreadable/config.toml", &other.replace("limit", "bound")),
            ("l-old-and-unreadable/progress.csv", &good),
            ("j-only-header/config.toml", CONFIG),
            ("j-only-header/progress.csv", HEADER),
        ]);
        fs::create_dir(dir.path().join("k-empty")).unwrap();
        let (runs, notes) =
            read_runs(&[dir.path().to_owned(), dir.path().join("k-empty"), "none/such".into()], None);
        let names: Vec<_> = runs.iter().map(|r| r.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a-good", "g-old"]);
        let said = |name: &str| {
            let found: Vec<_> =
                notes.iter().filter(|n| n.path.ends_with(name)).map(|n| &*n.message).collect();
            found.join(" ")
        };
        for (name, part) in [
            ("b-no-config", "neither a config.toml"),
            ("c-no-progress", "no progress.csv"),
            ("d-empty-progress", "empty"),
            ("e-broken-config", "config.toml is broken"),
            ("f-no-cost", "no column Metrics/EpCost"),
            ("g-old", "version 0.0.1"),
            ("g-old", "columns differ"),
            ("h-no-limit", "no cost limit"),
            ("i-no-task", "`run.seed`"),
            ("l-old-and-unreadable", "give it one. Note that the run was begun by version 0.0.1"),
            ("j-only-header", "no finished episode"),
            ("k-empty", "No run folder was found"),
            ("none/such", "cannot be read"),
        ] {
            assert!(said(name).contains(part), "{name}: “{}” does not say “{part}”", said(name));
        }
    }

    #[test]
    fn a_run_named_twice_is_read_once() {
        let dir = folder(&[("r/config.toml", CONFIG), ("r/progress.csv", &progress("0,1,2,10\n"))]);
        let (runs, _) = read_runs(&[dir.path().to_owned(), dir.path().join("r")], None);
        assert_eq!(runs.len(), 1);
    }
}
