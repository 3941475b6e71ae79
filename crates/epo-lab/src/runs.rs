//! Run folders: their names, their configuration, and the environments of a configuration.

use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use epo_core::Env;

use crate::LabError;
use crate::config::{ConfigError, ResolvedRun, VERSION_KEY};

/// Version of this program. `config.toml` of a run names the version that began it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes a new folder `runs/EPO-{SafetyPointGoal1-v0}/seed-000-2026-11-15-21-05-46` (OmniSafe's scheme, UTC). `name`
/// replaces seed and time.
pub fn new_folder(runs: &Path, run: &ResolvedRun, name: Option<&str>) -> Result<PathBuf, LabError> {
    let is_plain = |name: &str| Path::new(name).components().eq([Component::Normal(name.as_ref())]);
    if let Some(name) = name.filter(|name| !is_plain(name)) {
        let why = "must be the name of a folder, without a path".to_owned();
        return Err(ConfigError::Value { key: "--name".to_owned(), got: format!("{name:?}"), why }.into());
    }
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
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {} // begun within the same second
            made => return made.map(|()| dir.clone()).map_err(LabError::io("create", &dir)),
        }
    }
    unreachable!("some number is free")
}

/// `2026-11-15-21-05-46` (Hinnant's algorithm for the civil date of a day number).
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        (year + era * 400 + u64::from(month > 9), if month < 10 { month + 3 } else { month - 9 });
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}-{h:02}-{m:02}-{s:02}")
}

/// Writes `config.toml`, completely or not at all. `version` is the version that began the run, if not this one.
pub(crate) fn write_config(dir: &Path, run: &ResolvedRun, version: Option<&str>) -> Result<(), LabError> {
    let version = version.unwrap_or(VERSION);
    let text = format!("{VERSION_KEY} = \"{version}\"\n\n{}", run.to_toml());
    write_whole(&dir.join("config.toml"), text.as_bytes())
}

/// The version that began a run; `None` for a folder that names none.
pub(crate) fn begun_by(dir: &Path) -> Option<String> {
    let table: toml::Table = fs::read_to_string(dir.join("config.toml")).ok()?.parse().ok()?;
    Some(table.get(VERSION_KEY)?.as_str()?.to_owned())
}

/// A message about a run that another version of this program began; `None` for this version, and for a folder that
/// names none.
pub fn other_version(dir: &Path) -> Option<String> {
    version_note(&begun_by(dir)?)
}

/// The sentence of [`other_version`].
pub(crate) fn version_note(version: &str) -> Option<String> {
    let differs = version != VERSION;
    differs.then(|| format!("the run was begun by version {version}, this is {VERSION}: numbers may differ"))
}

/// Writes a file under a temporary name, syncs and renames it.
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

/// The configuration of a run folder.
pub fn read_config(dir: &Path) -> Result<ResolvedRun, LabError> {
    let path = dir.join("config.toml");
    let text = fs::read_to_string(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => LabError::run(dir, format!("not a run folder ({e})")),
        _ => LabError::run(&path, format!("this configuration cannot be read ({e})")),
    })?;
    ResolvedRun::from_saved(&text).map_err(|e| {
        let version = other_version(dir).map_or(String::new(), |note| format!("; {note}"));
        LabError::run(&path, format!("this configuration is not readable ({e}{version})"))
    })
}

/// Returns a function that makes environments of a task. The task is compiled once and then copied.
pub fn task_maker(id: &str) -> Result<impl Fn() -> Result<Box<dyn Env>, LabError> + use<>, LabError> {
    let prototype = epo_tasks::make(id)?;
    Ok(move || Ok(Box::new(prototype.try_clone()?) as Box<dyn Env>))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        for (seconds, date) in [
            (0, "1970-01-01-00-00-00"),
            (951_782_400, "2000-02-29-00-00-00"),
            (1_767_225_599, "2025-12-31-23-59-59"),
            (4_107_542_400, "2100-03-01-00-00-00"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

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
        for bad in ["", ".", "..", "../evil", "/tmp/evil", "a/b", "a/"] {
            let refused = new_folder(&dir.path().join("none"), &run, Some(bad));
            assert!(matches!(refused, Err(LabError::Config(_))), "{bad:?}: {refused:?}");
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
