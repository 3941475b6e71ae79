//! Detection of changes that someone else made to a run folder before the run is resumed.
//!
//! The manifest of a checkpoint holds the configuration and the hashes of the record at that time. A resumed
//! run compares them with the folder. It names every difference and continues only if the user accepts them.
//! The file `changes.json` lists the accepted changes, and a report shows them.
//!
//! Three things are not compared: the number of threads and measured times, on which no result depends, and
//! `run.steps`, which `--steps` may change.

use std::collections::BTreeMap;
use std::path::Path;

use epo_report::settings::leaves;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::checkpoint::sha256;
use crate::config::ResolvedRun;
use crate::csv::unreadable;
use crate::record::{RecordHashes, ReopenedRecord};
use crate::runs::write_whole;

/// Configuration and record of the run folder, as the manifest of a checkpoint describes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSummary {
    /// The configuration without the number of threads: TOML values by dotted name.
    pub config: BTreeMap<String, String>,
    /// Hashes of the record up to the checkpoint.
    pub record: RecordHashes,
}

impl FolderSummary {
    /// Describes a run with the given record.
    pub(crate) fn of(run: &ResolvedRun, record: RecordHashes) -> Self {
        let table = run.to_table();
        let pairs = leaves(&table).into_iter().map(|(key, value)| (key, value.to_string()));
        Self { config: pairs.filter(|(key, _)| key != "train.threads").collect(), record }
    }

    /// Returns the content as text, for hashing.
    pub(crate) fn text(&self) -> String {
        let Self { config, record: RecordHashes { progress, episodes, events } } = self;
        let lines: String = config.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        format!("{lines}progress {progress}\nepisodes {episodes}\nevents {events}\n")
    }

    /// The saved configuration in the form of this version; `None` if this version cannot read it.
    fn run(&self) -> Option<ResolvedRun> {
        let lines = self.config.iter().map(|(key, value)| format!("{key} = {value}\n"));
        ResolvedRun::from_saved(&lines.collect::<String>()).ok()
    }

    /// Number of steps of the run at the time of the checkpoint.
    pub(crate) fn steps(&self) -> Option<u64> {
        Some(self.run()?.run.steps)
    }
}

/// Name of the file with the accepted changes.
pub const FILE: &str = "changes.json";

/// Changes that a user accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedChanges {
    /// Number of epochs that the run had done.
    pub epoch: u64,
    /// The changes, one sentence each.
    pub changes: Vec<String>,
    /// Hash of the configuration and the record that were accepted.
    pub found: String,
}

/// Returns the differences between a folder and the manifest of its checkpoint. `now` describes the folder.
pub(crate) fn compare(
    then: Option<&FolderSummary>,
    now: &FolderSummary,
    found: &ReopenedRecord,
) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(then) = then {
        match then.run() {
            None => {
                changes.push("config.toml: the configuration at the checkpoint is not readable".to_owned())
            }
            Some(run) => {
                let then = FolderSummary::of(&run, now.record.clone()).config;
                let keys: std::collections::BTreeSet<_> = then.keys().chain(now.config.keys()).collect();
                for key in keys.into_iter().filter(|key| *key != "run.steps") {
                    let (was, is) = (then.get(key), now.config.get(key));
                    if was != is {
                        let text = |value: Option<&String>| value.map_or("absent", String::as_str).to_owned();
                        let (is, was) = (text(is), text(was));
                        changes
                            .push(format!("config.toml: `{key}` is {is}, but was {was} at the checkpoint"));
                    }
                }
            }
        }
        for (file, was, is) in [
            ("progress.csv", &then.record.progress, &now.record.progress),
            ("episodes.csv", &then.record.episodes, &now.record.episodes),
        ] {
            if was != is {
                changes.push(format!("{file}: a row up to the checkpoint was changed"));
            }
        }
    }
    let events = match &found.broken_events {
        Some(why) => Some(why.clone()),
        None if then.is_some_and(|then| then.record.events != now.record.events) => {
            Some("an event up to the checkpoint was changed".to_owned())
        }
        None => None,
    };
    changes.extend(events.map(|why| format!("tb/events.out.tfevents.epo: {why}")));
    changes
}

/// Hash of the state of a folder, to recognise changes that were accepted before.
fn fingerprint(now: &FolderSummary, found: &ReopenedRecord) -> String {
    let mut now = now.clone();
    now.config.remove("run.steps");
    sha256(format!("{}{:?}", now.text(), found.broken_events).as_bytes())
}

/// Returns the changes that were accepted in a run folder, oldest first.
///
/// # Errors
/// If the file exists and cannot be read.
pub fn accepted(dir: &Path) -> Result<Vec<AcceptedChanges>, LabError> {
    let path = dir.join(FILE);
    match epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(unreadable(&path)(e)),
        Ok(text) => serde_json::from_str(&text).map_err(|e| {
            LabError::run(&path, format!("this list of accepted changes is not readable ({e})"))
        }),
    }
}

/// Decides whether a run with `changes` may continue, and records the decision. Returns a note for the user.
///
/// # Errors
/// If the changes are not accepted now and were not accepted earlier. The error names them.
pub(crate) fn decide(
    dir: &Path,
    epoch: u64,
    changes: Vec<String>,
    (now, found): (&FolderSummary, &ReopenedRecord),
    accept: bool,
) -> Result<Option<Decision>, LabError> {
    if changes.is_empty() {
        return Ok(None);
    }
    let mut list = accepted(dir)?;
    let found = fingerprint(now, found);
    let before = list.iter().any(|a| a.epoch == epoch && a.found == found);
    if !before && !accept {
        let why = format!(
            "the run folder was changed since its checkpoint ({}); undo this, or resume with --accept-changes",
            changes.join("; ")
        );
        return Err(LabError::run(dir, why));
    }
    let note = format!("changes of the run folder are accepted: {}", changes.join("; "));
    if !before {
        list.push(AcceptedChanges { epoch, changes, found });
    }
    Ok(Some(Decision { list, note }))
}

/// An accepted change that is not written yet.
#[derive(Debug)]
pub(crate) struct Decision {
    list: Vec<AcceptedChanges>,
    pub(crate) note: String,
}

impl Decision {
    /// Writes the list of accepted changes.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), LabError> {
        let json = serde_json::to_string_pretty(&self.list).unwrap_or_default(); // texts and numbers cannot fail
        write_whole(&dir.join(FILE), format!("{json}\n").as_bytes())
    }
}
