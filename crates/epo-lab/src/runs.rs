//! Run folders: their names and their configuration. Also makes the environments of a task.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use epo_core::Env;
use epo_report::date::utc;
use epo_report::history::{VERSION_KEY, version_note};
use epo_tasks::Physics;

use crate::LabError;
use crate::config::{ConfigError, ResolvedRun};

/// Version of this program. `config.toml` of a run contains the version that started the run.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes a new run folder, such as `runs/EPO-{SafetyPointGoal1-v0}/seed-000-2026-11-15-21-05-46`, and returns its path.
///
/// The scheme of the name is that of OmniSafe, and the time is in UTC. `name` replaces the part with seed and time.
///
/// # Errors
/// If `name` is not valid, if a folder of that name exists already, or if the folder cannot be made.
pub fn new_folder(runs: &Path, run: &ResolvedRun, name: Option<&str>) -> Result<PathBuf, LabError> {
    name.map_or(Ok(()), check_name)?;
    let parent = runs.join(format!("{}-{{{}}}", run.algo.info().folder, run.run.task));
    fs::create_dir_all(&parent).map_err(LabError::io("create", &parent))?;
    if let Some(name) = name {
        let dir = parent.join(name);
        return match fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(LabError::Exists(dir)),
            made => made.map(|()| dir.clone()).map_err(LabError::io("create", &dir)),
        };
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let stem = format!("seed-{:03}-{}", run.run.seed, utc(seconds));
    for n in 1.. {
        let dir = parent.join(if n == 1 { stem.clone() } else { format!("{stem}-{n}") });
        match fs::create_dir(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {} // started in the same second
            made => return made.map(|()| dir.clone()).map_err(LabError::io("create", &dir)),
        }
    }
    unreachable!("some number is free")
}

/// Returns an error for a name that is not the name of one folder, or that contains control characters.
fn check_name(name: &str) -> Result<(), ConfigError> {
    let refuse = |why: &str| {
        let got = name.escape_debug().to_string();
        Err(ConfigError::Value { key: "--name".to_owned(), got, why: why.to_owned() })
    };
    if name.is_empty() {
        return refuse("must not be empty");
    }
    if name.len() > 200 {
        return refuse("must have at most 200 bytes");
    }
    if name.contains(['/', '\\']) || name == "." || name == ".." {
        return refuse("must be the name of one folder, without a path");
    }
    if name.chars().any(char::is_control) {
        return refuse("must not contain control characters");
    }
    Ok(())
}

/// Writes `config.toml` atomically. `version` is the version that started the run; `None` means this version.
pub(crate) fn write_config(dir: &Path, run: &ResolvedRun, version: Option<&str>) -> Result<(), LabError> {
    let version = version.unwrap_or(VERSION);
    let text = format!("{VERSION_KEY} = \"{version}\"\n\n{}", run.to_toml());
    write_whole(&dir.join("config.toml"), text.as_bytes())
}

/// Returns the version that started a run; `None` if its `config.toml` contains no version.
pub(crate) fn begun_by(dir: &Path) -> Option<String> {
    let text = epo_core::read_text(&dir.join("config.toml"), epo_core::MOST_TEXT_BYTES).ok()?;
    let table: toml::Table = text.parse().ok()?;
    Some(table.get(VERSION_KEY)?.as_str()?.to_owned())
}

/// Returns a message if another version of this program started the run. `None` if it was this version, or if
/// `config.toml` contains no version.
pub fn other_version(dir: &Path) -> Option<String> {
    version_note(&begun_by(dir)?)
}

/// Writes a file atomically: the data goes to a temporary file, which is synced and renamed to `path`.
pub fn write_whole(path: &Path, data: &[u8]) -> Result<(), LabError> {
    let tmp = path.with_extension("tmp");
    let write = || {
        let mut file = fs::File::create(&tmp)?;
        file.write_all(data)?;
        file.sync_all()?;
        fs::rename(&tmp, path)
    };
    write().map_err(LabError::io("write", path))
}

fn config_text(dir: &Path) -> Result<String, LabError> {
    let path = dir.join("config.toml");
    epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => LabError::run(dir, format!("not a run folder ({e})")),
        _ => LabError::run(&path, format!("this configuration cannot be read ({e})")),
    })
}

/// Returns an error for a run of EPO of version 0.3 or earlier: its penalty cannot be continued.
pub(crate) fn refuse_old_penalty(dir: &Path) -> Result<(), LabError> {
    let old = config_text(dir)?.parse().is_ok_and(|table| epo_algos::has_old_penalty(&table));
    if !old {
        return Ok(());
    }
    let version = begun_by(dir).unwrap_or_else(|| "0.3.0".to_owned());
    let why = format!(
        "this run was trained by EPO of version {version}, whose penalty had other parameters. It can be evaluated, \
         replayed and reported, but only that version can continue it"
    );
    Err(LabError::run(&dir.join("config.toml"), why))
}

/// Returns the configuration of the run folder `dir`.
pub fn read_config(dir: &Path) -> Result<ResolvedRun, LabError> {
    let (path, text) = (dir.join("config.toml"), config_text(dir)?);
    ResolvedRun::from_saved(&text).map_err(|e| {
        let version = other_version(dir).map_or(String::new(), |note| format!("; {note}"));
        LabError::run(&path, format!("this configuration is not readable ({e}{version})"))
    })
}

/// Returns a function that makes environments of the task `id`. The task is compiled once; each environment is a copy.
pub fn task_maker(
    id: &str,
    physics: Physics,
) -> Result<impl Fn() -> Result<Box<dyn Env>, LabError> + use<>, LabError> {
    let make = epo_tasks::env_maker(id, physics)?;
    Ok(move || Ok(make()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_never_shared() {
        let dir = tempfile::tempdir().unwrap();
        let run = ResolvedRun::from_layers(None, &["run.seed=7".into(), "run.algo=ppo-lag".into()]).unwrap();
        let first = new_folder(dir.path(), &run, None).unwrap();
        let second = new_folder(dir.path(), &run, None).unwrap();
        assert_ne!(first, second);
        let name = first.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with("PPOLag-{SafetyPointGoal1-v0}/seed-007-20"), "{name}");
        let named = new_folder(dir.path(), &run, Some("mine")).unwrap();
        assert!(named.ends_with("PPOLag-{SafetyPointGoal1-v0}/mine"));
        assert!(matches!(new_folder(dir.path(), &run, Some("mine")), Err(LabError::Exists(_))));
        write_config(&named, &run, None).unwrap();
        assert_eq!(read_config(&named).unwrap(), run);
        let long = "x".repeat(300);
        for bad in ["", ".", "..", "../../evil", "/tmp/evil", "a/b", "a/", "a\nhash 0", "\u{1b}[31m", &long] {
            let refused = new_folder(&dir.path().join("none"), &run, Some(bad)).unwrap_err();
            assert!(matches!(refused, LabError::Config(_)), "{refused}");
            assert!(
                !refused.to_string().contains(['\n', '\u{1b}']),
                "nothing of it reaches the terminal raw"
            );
        }
        assert!(!dir.path().join("none").exists(), "nothing was made");
    }

    #[test]
    fn a_run_of_another_version_is_known_by_its_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let run = ResolvedRun::from_layers(None, &[]).unwrap();
        write_config(dir.path(), &run, None).unwrap();
        assert_eq!(other_version(dir.path()), None, "this version");
        let file = dir.path().join("config.toml");
        let ours = fs::read_to_string(&file).unwrap();
        assert!(ours.starts_with(&format!("epo_version = \"{VERSION}\"\n")), "{ours}");
        fs::write(&file, ours.replacen(VERSION, "0.0.9", 1)).unwrap();
        assert!(other_version(dir.path()).unwrap().contains("version 0.0.9"));
        assert_eq!(read_config(dir.path()).unwrap(), run, "it is still read");
        fs::write(&file, ours.replacen(VERSION, "0.0.9", 1) + "\n[old]\nkey = 1\n").unwrap();
        let error = read_config(dir.path()).unwrap_err().to_string();
        assert!(error.contains("`old`") && error.contains("version 0.0.9"), "{error}");
        fs::write(&file, run.to_toml()).unwrap();
        assert_eq!(other_version(dir.path()), None, "a folder that names none");
        let set = ResolvedRun::from_layers(None, &["epo_version=1".into()]);
        assert!(set.is_err(), "a version is not a setting");
    }
}
