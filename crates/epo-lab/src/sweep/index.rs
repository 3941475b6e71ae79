//! The index of a large sweep: one file with all finished runs, so that a later process need not open thousands
//! of files.
//!
//! `DIR/ended.json` repeats the content of the files `done.json` of the journal. The index counts a run as done
//! only if its folder exists. A process that removes a `done.json` first removes the index, under the same
//! lock; the index is then rebuilt.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use super::drive::RunOutcome;
use super::journal::RunEnd;
use super::places::{MOST_FLAT, Places, at};
use super::plan::PlannedRun;

type Ends = BTreeMap<String, RunEnd>;

/// Maximum length of the index, in bytes.
const MOST_BYTES: u64 = 1 << 28;

fn path(places: &Places) -> PathBuf {
    places.dir().join("ended.json")
}

/// Returns the finished runs of the index; none if there is no index or it cannot be read.
fn read(places: &Places) -> Ends {
    let text = epo_core::read_text(&path(places), MOST_BYTES).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the outcomes that the index of a sweep knows, one entry per run.
pub(super) fn known_outcomes(places: &Places, runs: &[PlannedRun]) -> Vec<Option<RunOutcome>> {
    let mut ends = if runs.len() > MOST_FLAT { read(places) } else { Ends::new() };
    if ends.is_empty() {
        return vec![None; runs.len()];
    }
    let folders: HashSet<String> = places.run_folders().into_keys().collect();
    let known = |run: &PlannedRun| {
        let end = ends.remove(&run.id).filter(|end| end.reached(run.until) && folders.contains(&run.id));
        end.map(RunOutcome::Done)
    };
    runs.iter().map(known).collect()
}

/// Adds finished runs to the index.
///
/// # Errors
/// If the index cannot be written.
pub(super) fn add<'a>(
    places: &Places,
    outcomes: impl Iterator<Item = (&'a PlannedRun, &'a Option<RunOutcome>)>,
) -> io::Result<()> {
    locked(places, || {
        let mut ends = read(places);
        let before = ends.len();
        for (run, outcome) in outcomes {
            if let Some(RunOutcome::Done(end)) = outcome
                && !ends.contains_key(&run.id)
                && places.journal(&run.id).join("done.json").exists()
            {
                ends.insert(run.id.clone(), end.clone());
            }
        }
        if ends.len() == before {
            return Ok(());
        }
        let (path, text) = (path(places), serde_json::to_string(&ends)?);
        let tmp = places.dir().join(format!("ended.{}.tmp", std::process::id()));
        fs::write(&tmp, text).and_then(|()| fs::rename(&tmp, &path)).map_err(at(&path))
    })
}

/// Removes the index and then calls `change`, which deletes the record that a run is done.
///
/// # Errors
/// If the index cannot be removed, or `change` fails.
pub(super) fn forget(places: &Places, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    locked(places, || {
        match fs::remove_file(path(places)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&path(places))(e)),
            _ => {}
        }
        change()
    })
}

/// Calls `work` while no other process changes the index. The lock is on the file `layout`.
fn locked<T>(places: &Places, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let lock = File::open(places.dir().join("layout"));
    let held = lock.as_ref().is_ok_and(|file| file.lock().is_ok()); // not every file system has locks
    let result = work();
    if let (true, Ok(file)) = (held, &lock) {
        let _ = file.unlock();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(count: usize) -> Vec<PlannedRun> {
        let run = |i: usize| PlannedRun {
            id: format!("run-{i:04}"),
            config: String::new(),
            task: "T".into(),
            algo: "epo".into(),
            seed: i as u64,
            steps: 500,
            epochs: 5,
            variant: String::new(),
            until: None,
        };
        (0..count).map(run).collect()
    }

    fn end() -> RunEnd {
        RunEnd { code: Some(0), seconds: 1.0, message: String::new(), until: None, log: None }
    }

    fn finish(places: &Places, run: &PlannedRun) {
        fs::create_dir_all(places.journal(&run.id)).unwrap();
        fs::write(places.journal(&run.id).join("done.json"), serde_json::to_string(&end()).unwrap()).unwrap();
        fs::create_dir_all(places.runs(&run.id).join("EPO-{T}").join(&run.id)).unwrap();
    }

    /// Fails if the index is not used, is used for a run whose folder is gone, or lists a run that is not done.
    #[test]
    fn the_index_knows_the_finished_runs_whose_folders_exist() {
        let dir = tempfile::tempdir().unwrap();
        let runs = planned(MOST_FLAT + 1);
        let places = Places::open(dir.path(), runs.len()).unwrap();
        let outcomes: Vec<_> = (0..runs.len()).map(|i| (i < 3).then(|| RunOutcome::Done(end()))).collect();
        runs[..2].iter().for_each(|run| finish(&places, run)); // the journal of run 2 does not say that it is done
        add(&places, runs.iter().zip(&outcomes)).unwrap();
        let known = |runs: &[PlannedRun]| {
            let known = known_outcomes(&places, runs);
            (0..runs.len()).filter(|&i| known[i].is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(&runs), [0, 1]);
        fs::remove_dir_all(places.run_folder("run-0000").unwrap()).unwrap();
        assert_eq!(known(&runs), [1], "a deleted run is made again");
        forget(&places, || Ok(())).unwrap();
        assert!(known(&runs).is_empty());
        add(&places, runs.iter().zip(&outcomes)).unwrap();
        assert!(known(&runs[..MOST_FLAT]).is_empty(), "a small sweep does without an index");
    }
}
