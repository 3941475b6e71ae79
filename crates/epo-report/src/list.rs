//! Lists run folders quickly: of each run only its configuration, the end of `progress.csv` and the manifest of its newest
//! checkpoint are read.

use std::path::PathBuf;
use std::time::SystemTime;

use rayon::prelude::*;
use serde::Serialize;

use crate::files::{MOST_RECORD_BYTES, open, path_text, printable, read_text};
use crate::history::{Identity, Note, Source, find_runs, hash_of, newest_checkpoint};
use crate::progress::Newest;
use crate::state::{Activity, RunState};

/// A run folder in a list. `epo runs --json` prints it in serialised form.
#[derive(Clone, Debug, Serialize)]
pub struct ListedRun {
    /// Run folder.
    #[serde(serialize_with = "path_text")]
    pub folder: PathBuf,
    /// Task id.
    pub task: Option<String>,
    /// Name of the algorithm in the folder.
    pub algo: Option<String>,
    /// Seed.
    pub seed: Option<u64>,
    /// Limit on the mean episode cost.
    pub limit: Option<f64>,
    /// Number of environment steps that are done.
    pub steps: f64,
    /// Number of environment steps at which the run is done.
    pub planned: Option<f64>,
    /// State of the run.
    pub state: RunState,
    /// Mean return of the last episodes, from the newest row that has one.
    #[serde(rename = "return")]
    pub ret: Option<f64>,
    /// Mean cost of the last episodes, from the same row.
    pub cost: Option<f64>,
    /// Hash of the newest checkpoint.
    pub hash: Option<String>,
    /// Reason why the state is `broken`.
    pub message: Option<String>,
}

/// Returns all runs at or below `paths`, sorted by folder, with notes on folders that cannot be searched.
pub fn list_runs(paths: &[PathBuf]) -> (Vec<ListedRun>, Vec<Note>) {
    let (folders, notes) = find_runs(paths);
    (folders.into_par_iter().map(list_run).collect(), notes)
}

fn list_run(dir: PathBuf) -> ListedRun {
    let mut run = ListedRun {
        folder: dir,
        task: None,
        algo: None,
        seed: None,
        limit: None,
        steps: 0.0,
        planned: None,
        state: RunState::Broken,
        ret: None,
        cost: None,
        hash: None,
        message: None,
    };
    if let Err(message) = fill(&mut run) {
        run.message = Some(printable(&message).into_owned());
    }
    run
}

/// Reads the files of the run. The error is a full sentence.
fn fill(run: &mut ListedRun) -> Result<(), String> {
    let dir = run.folder.clone();
    let text = |name: &str| read_text(&dir.join(name));
    let identity = Identity::parse(&dir, text("config.toml")?.as_deref(), text("config.json")?.as_deref())?;
    (run.limit, run.planned) = (identity.limit, identity.planned());
    (run.task, run.algo, run.seed) = (Some(identity.task), Some(identity.algo), Some(identity.seed));
    let checkpoint = newest_checkpoint(&dir);
    run.hash = checkpoint.as_ref().and_then(|(_, folder)| hash_of(folder));
    let record = open(&dir.join("progress.csv"), MOST_RECORD_BYTES)?;
    let age =
        |modified: std::io::Result<SystemTime>| modified.ok().map(|at| at.elapsed().unwrap_or_default());
    let written = |name: &str| age(dir.join(name).metadata().and_then(|about| about.modified()));
    let mut activity = Activity {
        saved: checkpoint.map(|(number, _)| number),
        has_checkpoints: identity.source == Source::Epo,
        age: written("config.toml").or_else(|| written("config.json")),
        ..Activity::default()
    };
    if let Some((file, about)) = record {
        let newest = Newest::read(file, about.len())?;
        (run.steps, run.ret, run.cost) = (newest.steps, newest.ret, newest.cost);
        activity.silent = age(about.modified());
        (activity.epochs, activity.seconds) = (newest.epochs, newest.seconds);
    }
    activity.done = run.planned.is_some_and(|planned| run.steps >= planned);
    run.state = RunState::of(&activity);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    const CONFIG: &str = "[run]\ntask = \"T-v0\"\nalgo = \"epo\"\nseed = 3\nlimit = 25.0\nsteps = 40\n";
    const HEADER: &str = "Train/Epoch,Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,Time/Total\n";

    fn write(dir: &Path, name: &str, text: &str) {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), text).unwrap();
    }

    fn only(dir: &Path) -> ListedRun {
        let (mut runs, notes) = list_runs(&[dir.to_owned()]);
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(runs.len(), 1);
        runs.remove(0)
    }

    /// This test fails if a state is not that of the dashboard, or if a value is not of the newest row that has it.
    #[test]
    fn a_run_is_listed_from_its_first_epoch_to_its_end() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path();
        let silent = |seconds: u64| {
            let file = fs::File::options().append(true).open(dir.join("progress.csv")).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        write(dir, "config.toml", CONFIG);
        let run = only(dir);
        assert_eq!((run.state, run.steps, run.planned), (RunState::Training, 0.0, Some(40.0)));
        assert_eq!(
            (run.task.as_deref(), run.algo.as_deref(), run.seed),
            (Some("T-v0"), Some("epo"), Some(3))
        );

        write(dir, "progress.csv", &format!("{HEADER}0,5,6,10,1\n1,,,20,2\n2,7,8,3"));
        let run = only(dir);
        assert_eq!((run.state, run.steps), (RunState::Training, 20.0), "the last row is half-written");
        assert_eq!((run.ret, run.cost, run.limit), (Some(5.0), Some(6.0), Some(25.0)));
        silent(100);
        assert_eq!(only(dir).state, RunState::Dead, "no checkpoint");
        write(dir, "checkpoint/000001/manifest.json", "{\"hash\": \"abc\"}");
        assert_eq!((only(dir).state, only(dir).hash.as_deref()), (RunState::Dead, Some("abc")));
        write(dir, "checkpoint/000002/manifest.json", "{\"hash\": \"de\\u001b[2Jf\"}");
        assert_eq!((only(dir).state, only(dir).hash.as_deref()), (RunState::Stopped, Some("de�[2Jf")));
        write(dir, "progress.csv", &format!("{HEADER}0,5,6,10,1\n1,,,20,2\n2,7,8,30,3\n3,9,10,40,4\n"));
        let run = only(dir);
        assert_eq!((run.state, run.ret, run.cost), (RunState::Done, Some(9.0), Some(10.0)));
    }

    /// This test fails if a folder that cannot be read is missing from the list, or if a reader waits for a FIFO or reads
    /// a file without end.
    #[test]
    fn a_broken_folder_is_listed_with_the_reason() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path();
        write(dir, "config.toml", "[run");
        assert!(only(dir).message.unwrap().starts_with("config.toml is broken"));
        write(dir, "config.toml", CONFIG);
        std::os::unix::fs::symlink("/dev/zero", dir.join("progress.csv")).unwrap();
        let run = only(dir);
        assert_eq!((run.state, run.task.as_deref()), (RunState::Broken, Some("T-v0")));
        assert_eq!(run.message.unwrap(), "progress.csv cannot be read: it is not a regular file.");
        for (text, why) in [
            ("a,b\n1,2\n".to_owned(), "progress.csv has no column TotalEnvSteps."),
            ("x".repeat(1 << 20), "progress.csv cannot be read: a row is longer than 64 KiB."),
            (
                format!("{HEADER}{}", "1".repeat(1 << 20)),
                "progress.csv cannot be read: a row is longer than 64 KiB.",
            ),
        ] {
            let _ = fs::remove_file(dir.join("progress.csv"));
            write(dir, "progress.csv", &text);
            assert_eq!((only(dir).state, only(dir).message.as_deref()), (RunState::Broken, Some(why)));
        }
    }

    /// This test fails if rows far before the end are read, or if a row that is cut at the front is taken for a whole one.
    #[test]
    fn only_the_end_of_a_long_record_is_read() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path();
        write(dir, "config.toml", CONFIG);
        let rows = |from: u64, to: u64| -> String {
            (from..to).map(|i| format!("{i},1,2,{},{i}\n", 10 * (i + 1))).collect()
        };
        let text = format!("{HEADER}{}{}", rows(0, 2), "0,1,2,9e9,1\n".repeat(20_000));
        write(dir, "progress.csv", &(text + &rows(2, 20_000)));
        let run = only(dir);
        assert_eq!((run.steps, run.ret, run.state), (200_000.0, Some(1.0), RunState::Done));
    }
}
