//! Tasks: the units that an engine starts on other machines. A task makes one or more runs of a sweep.
//!
//! ```text
//! DIR/slurm/0001/sweep.json          folder of the sweep, version of the program
//! DIR/slurm/0001/tasks-000.jsonl     the runs of 100 tasks, one task per line
//! ```
//! `epo work DIR/slurm/0001 --task K` makes the runs of task K with the driver of a local sweep. So leases, logs and exit
//! codes are the same on every engine.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::EngineError;
use crate::runs;
use crate::sweep::{DriveOptions, Overview, PlannedRun, RunOutcome, StatusReader, at, drive, last_lines};

/// Number of tasks in one file.
const TASKS_PER_FILE: usize = 100;
/// Part of the message of a task on a machine that cannot make its runs.
pub(super) const BAD_NODE: &str = "cannot make the runs";
/// Part of the message of a task on a machine with another version of the program.
pub(super) const OTHER_VERSION: &str = "its program has version";
/// Maximum length of a file of tasks, in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// The folder with the tasks of one submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFolder(pub PathBuf);

/// Settings that all tasks of a submission share; the content of `sweep.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSettings {
    /// Folder of the sweep, as an absolute path.
    pub dir: PathBuf,
    /// Version of the program that made the plan. Another version refuses the task.
    pub version: String,
    /// Maximum number of times that a run is started again; `None` if the engine counts them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl TaskSettings {
    /// Settings of the tasks that this program submits.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), retries: None }
    }
}

/// Options for the execution of a task on a machine.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// Number of cores of the task. Its runs share them.
    pub cpus: usize,
    /// Name of the machine in messages.
    pub node: String,
    /// The program that makes a run: `PROGRAM train …`.
    pub program: Vec<OsString>,
}

impl TaskFolder {
    /// Writes the tasks of a submission.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, settings: &TaskSettings, tasks: &[Vec<&PlannedRun>]) -> io::Result<()> {
        fs::create_dir_all(&self.0).map_err(at(&self.0))?;
        let write = |name: &str, text: String| {
            let path = self.0.join(name);
            fs::write(&path, text).map_err(at(&path))
        };
        for (number, part) in tasks.chunks(TASKS_PER_FILE).enumerate() {
            let mut text = String::new();
            for task in part {
                text += &serde_json::to_string(task)?;
                text.push('\n');
            }
            write(&file_name(number), text)?;
        }
        write("sweep.json", serde_json::to_string_pretty(settings)?)
    }

    /// Returns the runs of one task.
    ///
    /// # Errors
    /// If there is no such task or its file cannot be read.
    pub fn task(&self, task: usize) -> io::Result<Vec<PlannedRun>> {
        let path = self.0.join(file_name(task / TASKS_PER_FILE));
        let file = epo_core::open_file(&path, MOST_BYTES).map_err(at(&path))?;
        let line = BufReader::new(file).lines().nth(task % TASKS_PER_FILE);
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("there is no task {task}"));
        serde_json::from_str(&line.ok_or_else(missing)??).map_err(|e| at(&path)(e.into()))
    }

    /// Returns the runs of all tasks.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn tasks(&self) -> io::Result<Vec<Vec<PlannedRun>>> {
        let mut tasks = Vec::new();
        for number in 0.. {
            let path = self.0.join(file_name(number));
            let file = match epo_core::open_file(&path, MOST_BYTES) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                file => file.map_err(at(&path))?,
            };
            for line in BufReader::new(file).lines() {
                tasks.push(serde_json::from_str(&line?).map_err(|e| at(&path)(e.into()))?);
            }
        }
        Ok(tasks)
    }

    /// Returns `sweep.json`.
    ///
    /// # Errors
    /// If the folder is not on this machine, or the file cannot be read.
    pub fn settings(&self) -> Result<TaskSettings, EngineError> {
        let path = self.0.join("sweep.json");
        let text = epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => EngineError::Unavailable(format!(
                "there is no {}: the folder of the sweep must be on a file system that all nodes share (Ray can do with a \
                 storage instead)",
                path.display()
            )),
            _ => at(&path)(e).into(),
        })?;
        serde_json::from_str(&text).map_err(|e| at(&path)(e.into()).into())
    }

    /// Checks that this machine can make the runs of a task: the program has the version of the plan, the MuJoCo library
    /// is found, the tasks exist, and the folder of the sweep can be written. Returns the folder of the sweep.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with the reason.
    pub fn check(&self, runs: &[PlannedRun], node: &str) -> Result<PathBuf, EngineError> {
        let no = |why: String| EngineError::Unavailable(format!("node {node} {BAD_NODE}: {why}"));
        let settings = self.settings().map_err(|e| no(e.to_string()))?;
        let version = env!("CARGO_PKG_VERSION");
        if settings.version != version {
            return Err(no(format!("{OTHER_VERSION} {version}, the plan was made by {}", settings.version)));
        }
        for run in runs {
            let config = crate::config::ResolvedRun::from_layers(Some(&run.config), &[])
                .map_err(|e| no(e.to_string()))?;
            let make = runs::task_maker(&run.task, config.run.physics).map_err(|e| no(e.to_string()))?;
            make().map_err(|e| no(e.to_string()))?;
        }
        let probe = settings.dir.join(format!(".write-{node}-{}", std::process::id()));
        let written = fs::create_dir_all(&settings.dir)
            .and_then(|()| fs::write(&probe, ""))
            .and_then(|()| fs::remove_file(&probe));
        written.map_err(|e| no(format!("{} cannot be written: {e}", settings.dir.display())))?;
        Ok(settings.dir)
    }

    /// Makes the runs of one task and returns their outcomes. Runs that another process holds are waited for.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if this machine cannot make them; no run has then failed.
    pub fn work(
        &self,
        task: usize,
        options: &WorkOptions,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        let settings = self.settings()?; // a missing folder has its own message
        let runs = self.task(task)?;
        let dir = self.check(&runs[..runs.len().min(1)], &options.node)?;
        let jobs = options.cpus.clamp(1, runs.len().max(1));
        let threads = (options.cpus / jobs).max(1);
        let program = options.program.clone();
        let count_starts = settings.retries.is_some();
        let options = DriveOptions { dir, jobs, threads, program, retry: false, patient: true, count_starts };
        let outcomes = drive(&runs, &options, stop, observe)?;
        match settings.retries {
            Some(retries) if !self.0.join("../cancelled").exists() => {
                self.give_up(&runs, &settings.dir, retries, &self.log(task))
            }
            _ => Ok(outcomes),
        }
    }

    /// Returns the outcomes of runs. Those that have used up their retries have failed.
    fn give_up(
        &self,
        runs: &[PlannedRun],
        dir: &Path,
        retries: u32,
        log: &Path,
    ) -> Result<Vec<RunOutcome>, EngineError> {
        let mut reader = StatusReader::open(dir, runs)?;
        for index in 0..runs.len() {
            if reader.outcome(index)?.is_none()
                && !reader.is_held(index)?
                && let Some(why) = used_up(reader.starts(index), retries)
            {
                reader.give_up(index, with_output(why, Some(log)), Some(log.to_owned()))?;
            }
        }
        Ok(reader.finish()?)
    }

    /// Returns the file with the output of a task on Slurm.
    pub(super) fn log(&self, task: usize) -> PathBuf {
        self.0.join(format!("log/{task}.txt"))
    }
}

/// Returns the reason why a run is not started again, if it has used up its retries.
pub(super) fn used_up(starts: u32, retries: u32) -> Option<String> {
    let count = if starts == 1 { "1 start".to_owned() } else { format!("{starts} starts") };
    (starts > retries).then(|| format!("the run has not finished after {count} (--retries {retries})"))
}

/// Returns a reason, followed by the last output of a task.
pub(super) fn with_output(why: String, log: Option<&Path>) -> String {
    let said = log.map(last_lines).unwrap_or_default();
    if said.is_empty() { why } else { format!("{why}: {said}") }
}

fn file_name(number: usize) -> String {
    format!("tasks-{number:03}.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::SweepFile;

    fn runs(count: usize) -> Vec<PlannedRun> {
        let seeds: Vec<String> = (0..count).map(|seed| seed.to_string()).collect();
        SweepFile::parse(&format!("[grid]\nrun.seed = [{}]\n", seeds.join(", "))).unwrap().plan().unwrap()
    }

    /// Fails if tasks are shifted at the border of two files, or a task beyond the last one is accepted.
    #[test]
    fn tasks_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let (runs, folder) = (runs(203), TaskFolder(dir.path().join("slurm/0001")));
        let mut tasks: Vec<Vec<&PlannedRun>> = runs[..201].iter().map(|run| vec![run]).collect();
        tasks.push(runs[201..].iter().collect());
        folder.write(&TaskSettings::new(dir.path()), &tasks).unwrap();
        for (number, task) in
            [(0, &runs[..1]), (99, &runs[99..100]), (100, &runs[100..101]), (201, &runs[201..])]
        {
            assert_eq!(folder.task(number).unwrap(), task, "task {number}");
        }
        assert!(folder.task(202).is_err());
        let all = folder.tasks().unwrap();
        assert_eq!((all.len(), &all[201][..]), (202, &runs[201..]));
    }

    #[test]
    fn a_node_without_the_folder_or_with_another_version_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let (runs, folder) = (runs(1), TaskFolder(dir.path().join("slurm/0001")));
        let said = |folder: &TaskFolder| match folder.check(&runs, "n7") {
            Err(EngineError::Unavailable(why)) => why,
            other => panic!("{other:?}"),
        };
        let missing = said(&folder);
        assert!(missing.contains("node n7") && missing.contains("all nodes share"), "{missing}");
        let old = TaskSettings { version: "0.0.1".into(), ..TaskSettings::new(dir.path()) };
        folder.write(&old, &[runs.iter().collect()]).unwrap();
        assert!(said(&folder).contains("the plan was made by 0.0.1"));
        folder.write(&TaskSettings::new(dir.path()), &[runs.iter().collect()]).unwrap();
        assert_eq!(folder.check(&runs, "n7").unwrap(), dir.path());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        folder.write(&TaskSettings::new(&file), &[runs.iter().collect()]).unwrap();
        assert!(said(&folder).contains("cannot be written"));
    }
}
