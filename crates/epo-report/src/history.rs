//! Reads run folders of this program and of OmniSafe. Runs may be finished, still running or broken.
//!
//! ```text
//! ours      config.toml (run.task, run.algo, run.seed, run.limit)                     progress.csv
//! OmniSafe  config.json (env_id, algo, seed, algo_cfgs|lagrange_cfgs.cost_limit)      progress.csv
//! ```
//! A folder that cannot be used becomes a [`Note`], and the others are still read. A half-written last row is left out.
//! An empty cell means that the value did not exist yet. Only three columns are required: `TotalEnvSteps`,
//! `Metrics/EpRet` and `Metrics/EpCost`. `eval.json` and the manifest of the newest checkpoint are read if they exist.
//! Every file is read once, row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use epo_algos::{AlgoConfig, report as metrics};
use epo_core::Metric;
use rayon::prelude::*;

use crate::date;
use crate::evaluation::{self, Evaluation};
use crate::files::{MOST_RECORD_BYTES, open, path_text, printable, read_text};
use crate::progress::Progress;
use crate::settings::{Tree, leaves};

/// Top-level key of `config.toml` that holds the version of the program that started the run.
pub const VERSION_KEY: &str = "epo_version";

/// Returns a note if another version of this program started the run; `None` for this version.
pub fn version_note(version: &str) -> Option<String> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let differs = version != VERSION;
    differs.then(|| format!("the run was begun by version {version}, this is {VERSION}: numbers may differ"))
}

/// Program that wrote a run folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// This program.
    Epo,
    /// OmniSafe.
    OmniSafe,
}

/// The values of one row of `progress.csv` that reports need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Epoch, counted from 0.
    pub epoch: usize,
    /// Total number of environment steps at the end of the epoch.
    pub steps: f64,
    /// Mean return of the last episodes.
    pub ret: f64,
    /// Mean cost of the last episodes.
    pub cost: f64,
}

/// Columns that are shown as diagnostics, with their names in figures: the KL divergence, the headline metrics of every
/// algorithm, and the explained variances.
pub(crate) static DIAGNOSTICS: LazyLock<Vec<(Metric, String)>> = LazyLock::new(|| {
    let mut all = vec![(metrics::KL, "KL divergence".to_owned())];
    for algo in AlgoConfig::all_defaults() {
        for &(symbol, metric) in algo.info().headlines {
            if all.iter().all(|(known, _)| *known != metric) {
                all.push((metric, format!("{symbol} ({})", metric.key)));
            }
        }
    }
    all.push((metrics::EXPLAINED_R, "explained variance, return".to_owned()));
    all.push((metrics::EXPLAINED_C, "explained variance, cost".to_owned()));
    all
});

/// A run that can be shown.
#[derive(Clone, Debug)]
pub struct Run {
    /// Run folder.
    pub path: PathBuf,
    /// Program that wrote the folder.
    pub source: Source,
    /// Task id.
    pub task: String,
    /// Name of the algorithm in the folder.
    pub algo: String,
    /// Seed.
    pub seed: u64,
    /// Limit on the mean episode cost.
    pub limit: f64,
    /// All settings as text, by dotted name.
    pub config: BTreeMap<String, String>,
    /// Columns of `progress.csv`.
    pub columns: Vec<String>,
    /// Rows with return and cost, sorted by steps.
    pub points: Vec<Point>,
    /// Number of environment steps of the longest epoch.
    pub epoch_steps: f64,
    /// Steps and values of `DIAGNOSTICS`, in at most 100 rows. A missing value is NaN.
    pub(crate) diagnostics: Vec<(f64, Vec<f32>)>,
    /// Time of collecting and updating, if `progress.csv` has these columns.
    pub seconds_per_million: Option<Timing>,
    /// Evaluations of the final policy.
    pub evaluations: Vec<Evaluation>,
    /// Hash of the newest checkpoint.
    pub hash: Option<String>,
    /// Date and time in the name of the folder (UTC).
    pub begun: Option<String>,
    /// Date and time at which `progress.csv` was last written (UTC).
    pub written: Option<String>,
}

impl Run {
    /// Returns the total number of environment steps.
    pub fn steps(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.steps)
    }

    /// Returns the duration of all epochs in seconds, if it is recorded.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.seconds_per_million?.total * 1e-6 * self.steps())
    }
}

/// Seconds per million environment steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Time of collecting the episodes.
    pub rollout: f64,
    /// Time of the updates.
    pub update: f64,
    /// Time of whole epochs.
    pub total: f64,
}

/// A remark for the reader about one folder, file or task.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// Folder, file or task.
    #[serde(serialize_with = "path_text")]
    pub path: PathBuf,
    /// The remark, a full sentence.
    pub message: String,
}

impl Note {
    pub(crate) fn new(path: &Path, message: impl AsRef<str>) -> Self {
        Self { path: path.to_owned(), message: printable(message.as_ref()).into_owned() }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, printable(&self.path.to_string_lossy()))
    }
}

/// Maximum depth below a given folder at which runs are looked for.
const MAX_DEPTH: usize = 8;

/// Reads all runs at or below `paths`, sorted by name, and returns notes on everything that cannot be used.
///
/// `limit` is the cost limit of runs whose configuration has none, such as OmniSafe's PPO.
pub fn read_runs(paths: &[PathBuf], limit: Option<f64>) -> (Vec<Run>, Vec<Note>) {
    let (folders, mut notes) = find_runs(paths);
    let read: Vec<_> = folders.par_iter().map(|dir| read_run(dir, limit)).collect();
    let mut runs = Vec::with_capacity(folders.len());
    for (dir, result) in folders.iter().zip(read) {
        match result {
            Ok((run, more)) => {
                runs.push(run);
                notes.extend(more.into_iter().map(|message| Note::new(dir, message)));
            }
            Err(message) => notes.push(Note::new(dir, format!("{message} The run is left out."))),
        }
    }
    note_differing_columns(&runs, &mut notes);
    (runs, notes)
}

/// Returns all run folders at or below `paths`, each once, sorted by name. Links are not followed.
pub fn find_runs(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<Note>) {
    let (mut folders, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        let (had_folders, had_notes) = (folders.len(), notes.len());
        search(path, 0, &mut folders, &mut notes);
        if folders.len() == had_folders && notes.len() == had_notes {
            notes.push(Note::new(path, "No run folder was found: there is no progress.csv at or below it."));
        }
    }
    if paths.len() > 1 {
        // the same folder may be given twice, directly and through its parent
        let mut seen = BTreeSet::new();
        folders.retain(|dir: &PathBuf| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())));
    }
    (folders, notes)
}

fn search(dir: &Path, depth: usize, folders: &mut Vec<PathBuf>, notes: &mut Vec<Note>) {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(Result::ok),
        Err(e) => return notes.push(Note::new(dir, format!("The folder cannot be read: {e}."))),
    };
    let mut children = Vec::new();
    for entry in entries {
        if ["config.toml", "config.json", "progress.csv"].iter().any(|name| entry.file_name() == *name) {
            return folders.push(dir.to_owned());
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            children.push(entry.path());
        }
    }
    if depth < MAX_DEPTH {
        children.sort();
        for child in children {
            search(&child, depth + 1, folders, notes);
        }
    }
}

/// Identity and settings of a run, from its configuration.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Program that wrote the folder.
    pub source: Source,
    /// Task id.
    pub task: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Seed.
    pub seed: u64,
    /// Limit on the mean episode cost; `None` if the configuration has none.
    pub limit: Option<f64>,
    /// All settings as text, by dotted name.
    pub config: BTreeMap<String, String>,
}

impl Identity {
    /// Returns the identity of the run in the folder `dir`, from the texts of its `config.toml` and `config.json`.
    ///
    /// The folder itself is not read; its name replaces a task, algorithm or seed that the configuration lacks.
    pub fn parse(dir: &Path, toml: Option<&str>, json: Option<&str>) -> Result<Self, String> {
        let (source, config) = parse_config(toml, json)?;
        let (task, algo, seed) = identity(dir, source, &config)?;
        Ok(Self { source, task, algo, seed, limit: limit_of(source, &config), config })
    }

    /// Returns the number of steps at which the run is done; `None` if the configuration does not say it.
    pub fn planned(&self) -> Option<f64> {
        let key = match self.source {
            Source::Epo => "run.steps",
            Source::OmniSafe => "train_cfgs.total_steps",
        };
        self.config.get(key)?.parse().ok()
    }
}

/// Returns the program that wrote a configuration, and all settings as text, by dotted name.
fn parse_config(
    toml: Option<&str>,
    json: Option<&str>,
) -> Result<(Source, BTreeMap<String, String>), String> {
    match (toml, json) {
        (Some(text), _) => {
            let mut table: toml::Table = text
                .parse()
                .map_err(|e: toml::de::Error| format!("config.toml is broken: {}.", e.message()))?;
            epo_algos::modernise(&mut table); // makes a run of version 0.3 comparable with one of this version
            let mut config = flat(&table);
            // versions without this key had published physics only
            config.entry("run.physics".to_owned()).or_insert_with(|| "published".to_owned());
            Ok((Source::Epo, config))
        }
        (None, Some(text)) => {
            let table: serde_json::Map<_, _> =
                serde_json::from_str(text).map_err(|e| format!("config.json is broken: {e}."))?;
            Ok((Source::OmniSafe, flat(&table)))
        }
        (None, None) => Err("There is neither a config.toml nor a config.json.".into()),
    }
}

/// Reads one run folder. `limit` is the cost limit of a run whose configuration has none.
///
/// `Err` says why the run cannot be shown. The list in `Ok` says what was left out.
pub fn read_run(dir: &Path, limit: Option<f64>) -> Result<(Run, Vec<String>), String> {
    let read = |name: &str| read_text(&dir.join(name));
    let mut notes = Vec::new();
    let (source, config) = parse_config(read("config.toml")?.as_deref(), read("config.json")?.as_deref())?;
    let version = config.get(VERSION_KEY).filter(|_| source == Source::Epo);
    let version = version.and_then(|version| version_note(version));
    let mut given = None;
    let progress = open(&dir.join("progress.csv"), MOST_RECORD_BYTES)
        .and_then(|file| {
            let (file, about) = file.ok_or("There is no progress.csv: the run has not finished an epoch.")?;
            let written = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let written = written.and_then(|since| date::minutes(&date::utc(since.as_secs())));
            Ok((Progress::read(BufReader::with_capacity(1 << 16, file), &mut notes)?, written))
        })
        .and_then(|progress| {
            let own = limit_of(source, &config);
            let limit =
                own.or(limit).ok_or("The configuration has no cost limit; set one with `--limit`.")?;
            if own.is_none() {
                given = Some(format!(
                    "The configuration has no cost limit; the limit {limit} is taken from `--limit`."
                ));
            }
            Ok((progress, limit, identity(dir, source, &config)?))
        });
    // If the run comes from another version, that is the likely reason for the failure.
    let because = |e: String| version.as_ref().map_or(e.clone(), |v| format!("{e} Note that {v}."));
    let ((progress, written), limit, (task, algo, seed)) = progress.map_err(because)?;
    notes.extend(given);
    notes.extend(version.map(|v| format!("Careful: {v}.")));
    notes.extend(accepted_changes(dir));
    let hash = newest_checkpoint(dir).and_then(|(_, checkpoint)| hash_of(&checkpoint));
    let evaluations = evaluations(dir, hash.as_deref(), &mut notes);
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
        epoch_steps: progress.epoch_steps,
        diagnostics: progress.diagnostics,
        seconds_per_million: progress.timing,
        hash: hash.or_else(|| evaluations.last()?.hash.clone()),
        evaluations,
        begun: dir.file_name().and_then(|name| date::minutes(&name.to_string_lossy())),
        written,
    };
    Ok((run, notes))
}

/// Returns one note for every time that a user accepted changes of the folder (`changes.json`).
fn accepted_changes(dir: &Path) -> Vec<String> {
    let text = match read_text(&dir.join("changes.json")) {
        Ok(None) => return Vec::new(),
        Ok(Some(text)) => text,
        Err(e) => return vec![e],
    };
    let list: Vec<serde_json::Value> = match serde_json::from_str(&text) {
        Ok(list) => list,
        Err(e) => return vec![format!("changes.json is broken: {e}.")],
    };
    let note = |entry: &serde_json::Value| {
        let epoch = entry.get("epoch").and_then(serde_json::Value::as_u64).unwrap_or_default();
        let changes = entry.get("changes").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let changes: Vec<&str> = changes.iter().filter_map(serde_json::Value::as_str).collect();
        format!("Careful: after epoch {epoch} the run continued with changes ({}).", changes.join("; "))
    };
    list.iter().map(note).collect()
}

/// Returns the evaluations of the newest checkpoint of a run folder, whose hash is `newest`.
fn evaluations(dir: &Path, newest: Option<&str>, notes: &mut Vec<String>) -> Vec<Evaluation> {
    let parsed = read_text(&dir.join("eval.json")).and_then(|text| match text {
        Some(text) => evaluation::parse(&text).map_err(|e| format!("eval.json is broken: {e}.")),
        None => Ok(Vec::new()),
    });
    let mut found = parsed.unwrap_or_else(|e| {
        notes.push(format!("{e} The evaluation is left out."));
        Vec::new()
    });
    let all = found.len();
    found.retain(|e| newest.is_none() || e.hash.as_deref().is_none_or(|hash| Some(hash) == newest));
    if found.len() < all {
        notes.push("Evaluations of earlier checkpoints are left out.".to_owned());
    }
    found
}

/// Returns the number and the folder of the newest checkpoint.
pub(crate) fn newest_checkpoint(dir: &Path) -> Option<(u64, PathBuf)> {
    let entries = fs::read_dir(dir.join("checkpoint")).ok()?.filter_map(Result::ok);
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok().map(|n| (n, e.path()))).max()
}

/// Returns the hash in the manifest of a checkpoint; `None` if it cannot be read.
pub(crate) fn hash_of(checkpoint: &Path) -> Option<String> {
    let manifest = read_text(&checkpoint.join("manifest.json")).ok()??;
    let manifest: serde_json::Value = serde_json::from_str(&manifest).ok()?;
    Some(printable(manifest.get("hash")?.as_str()?).into_owned())
}

/// Returns all settings as text, by dotted name.
fn flat<'a, V: Tree + 'a>(table: impl IntoIterator<Item = (&'a String, &'a V)>) -> BTreeMap<String, String> {
    let text =
        |(name, value): (String, &V)| (printable(&name).into_owned(), printable(&value.text()).into_owned());
    leaves(table).into_iter().map(text).collect()
}

/// Returns task, algorithm and seed from the configuration, or else from folder names `ALGO-{TASK}/seed-SSS-…`.
fn identity(
    dir: &Path,
    source: Source,
    config: &BTreeMap<String, String>,
) -> Result<(String, String, u64), String> {
    let keys = match source {
        Source::Epo => ["run.task", "run.algo", "run.seed"],
        Source::OmniSafe => ["env_id", "algo", "seed"],
    };
    let named = |path: Option<&Path>| {
        path.and_then(Path::file_name).map(|n| printable(&n.to_string_lossy()).into_owned())
    };
    let parent = named(dir.parent()).unwrap_or_default();
    let (algo_of_name, task_of_name) = match parent.split_once("-{") {
        Some((algo, task)) => (Some(algo.to_owned()), Some(task.trim_end_matches('}').to_owned())),
        None => (None, None),
    };
    let seed_of_name =
        named(Some(dir)).and_then(|n| n.strip_prefix("seed-")?.split('-').next().map(str::to_owned));
    let get = |i: usize, fallback: Option<String>| {
        let found = config.get(keys[i]).cloned().or(fallback);
        found.ok_or_else(|| {
            format!("The configuration has no `{}`: the run may be of another version.", keys[i])
        })
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

fn note_differing_columns(runs: &[Run], notes: &mut Vec<Note>) {
    // Algorithms have different columns, but all runs of one algorithm should have the same.
    let mut first: BTreeMap<(Source, &str), (&Run, BTreeSet<&str>)> = BTreeMap::new();
    for run in runs {
        let names = || run.columns.iter().map(String::as_str).collect();
        let (model, known) = first.entry((run.source, &run.algo)).or_insert_with(|| (run, names()));
        if model.columns == run.columns {
            continue;
        }
        let own: BTreeSet<&str> = names();
        if let Some(odd) = known.symmetric_difference(&own).next() {
            let which = model.path.display();
            let message = format!("The columns differ from those of {which}; one that differs is {odd}.");
            notes.push(Note::new(&run.path, message));
        }
    }
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
        assert_eq!(run.config["run.physics"], "published", "a run of version 0.3 does not name it");
        let first = Point { epoch: 1, steps: 20.0, ret: 1.5, cost: 40.0 };
        assert_eq!(
            (run.points[0], run.points.len()),
            (first, 2),
            "a row with empty cells counts as an epoch, but has no point"
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

    /// Reads folders in the form of OmniSafe 0.5.0. The configuration has lists and nested tables, rows end in CR LF,
    /// and there are columns that no report needs. One run has not finished its first epoch.
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
    fn names_of_omnisafe_folders_replace_missing_keys() {
        let config = r#"{"algo_cfgs": {"cost_limit": 10}}"#;
        let dir = folder(&[
            ("CPO-{T-v0}/seed-007-2024-01-01-00-00-00/config.json", config),
            ("CPO-{T-v0}/seed-007-2024-01-01-00-00-00/progress.csv", &progress("0,1,2,3\n")),
        ]);
        let (runs, notes) = read_runs(&[dir.path().to_owned()], None);
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!((runs[0].task.as_str(), runs[0].algo.as_str(), runs[0].seed), ("T-v0", "CPO", 7));
    }

    /// This test fails if a given limit is not used for a run without one, or if it replaces the limit of a run.
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
        assert!(notes.len() == 1 && notes[0].message.contains("limit 25 is taken"), "{notes:?}");
        let (runs, notes) = read_runs(&[dir.path().to_owned()], None);
        assert!(runs.len() == 1 && notes[0].message.contains("--limit"), "{notes:?}");
    }

    #[test]
    fn every_unusable_folder_has_a_reason_and_the_rest_is_read() {
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
            ("l-old-and-unreadable", "set one with `--limit`. Note that the run was begun by version 0.0.1"),
            ("j-only-header", "no finished episode"),
            ("k-empty", "No run folder was found"),
            ("none/such", "cannot be read"),
        ] {
            assert!(said(name).contains(part), "{name}: “{}” does not contain “{part}”", said(name));
        }
    }

    /// Fails if changes that a user accepted are not shown in the report.
    #[test]
    fn accepted_changes_are_noted() {
        let dir = folder(&[("config.toml", CONFIG), ("progress.csv", &progress("0,1,2,10\n"))]);
        let notes = || read_run(dir.path(), None).unwrap().1.join(" ");
        assert!(!notes().contains("changes"));
        let list = r#"[{"epoch": 3, "changes": ["config.toml: `train.gamma` is 0.9"], "found": "ab"}]"#;
        fs::write(dir.path().join("changes.json"), list).unwrap();
        assert!(
            notes()
                .contains("after epoch 3 the run continued with changes (config.toml: `train.gamma` is 0.9)")
        );
        fs::write(dir.path().join("changes.json"), "{").unwrap();
        assert!(notes().contains("changes.json is broken"));
    }

    /// This test fails if a report shows an evaluation from before the run was extended as one of the final policy.
    #[test]
    fn evaluations_of_earlier_checkpoints_are_left_out() {
        let one = |hash: &str, episodes: u32, cost: f64| {
            format!(
                r#"{{"hash": "{hash}", "policy": "mean", "episodes": {episodes}, "return": {{"mean": 1}}, "cost": {{"mean": {cost}}}}}"#
            )
        };
        let list = format!(r#"{{"evaluations": [{}, {}]}}"#, one("old", 400, 60.0), one("new", 100, 20.0));
        let dir = folder(&[
            ("config.toml", CONFIG),
            ("progress.csv", &progress("0,1,2,10\n")),
            ("eval.json", &list),
            ("checkpoint/00000001/manifest.json", r#"{"hash": "new"}"#),
        ]);
        let (run, notes) = read_run(dir.path(), None).unwrap();
        let costs: Vec<f64> = run.evaluations.iter().map(|e| e.cost).collect();
        assert_eq!((costs, run.hash.as_deref()), (vec![20.0], Some("new")));
        assert!(notes.join(" ").contains("Evaluations of earlier checkpoints are left out."), "{notes:?}");
        fs::remove_dir_all(dir.path().join("checkpoint")).unwrap();
        assert_eq!(read_run(dir.path(), None).unwrap().0.evaluations.len(), 2, "nothing to compare with");
    }

    /// This test fails if the multiplier or penalty factor of an algorithm is missing in the figures of diagnostics.
    #[test]
    fn the_headlines_of_every_algorithm_are_diagnostics() {
        for algo in AlgoConfig::all_defaults() {
            for (symbol, metric) in algo.info().headlines {
                let named = DIAGNOSTICS.iter().filter(|(known, _)| known == metric).count();
                assert_eq!(named, 1, "{symbol} of {}", algo.name());
            }
        }
    }

    #[test]
    fn a_run_named_twice_is_read_once() {
        let dir = folder(&[("r/config.toml", CONFIG), ("r/progress.csv", &progress("0,1,2,10\n"))]);
        let (runs, _) = read_runs(&[dir.path().to_owned(), dir.path().join("r")], None);
        assert_eq!(runs.len(), 1);
    }
}
