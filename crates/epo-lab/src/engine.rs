//! Engines: where the runs of a plan are executed.
//!
//! ```text
//! Plan { folder, runs }  ──▶  Engine::execute  ──▶  run folders (the results)
//! ```
//! A run is a function of its configuration, so an engine may execute it twice, kill it or move it: the run
//! folder ends with the same bytes. Engines execute a task *at least* once. The lease in the journal and the
//! lock of the run folder, not the engine, prevent two processes from making the same run at the same time.
//!
//! | engine | what it does |
//! |---|---|
//! | [`local::Local`] | starts child processes on this machine; several machines may share the folder |
//! | [`ray::Ray`] | starts tasks on a Ray cluster; with a storage the nodes need no shared folder |
//! | [`slurm::Slurm`] | submits job arrays; each task of an array makes one or more runs in the shared folder |
//!
//! All engines execute a run with `epo train`. A call with the same plan and folder continues where
//! an earlier call stopped, even with another engine.

pub mod local;
pub mod ray;
pub mod slurm;
pub mod task;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use toml::{Table, Value};

use crate::layers::nearest;
use crate::sweep::{EngineQueue, MOST_FLAT, Overview, Places, PlannedRun, RunOutcome, at};

/// Maximum number of runs of a sweep that was begun with at most [`MOST_FLAT`] runs and has grown.
const MOST_GROWN: usize = 4 * MOST_FLAT;

/// The runs to make and the folder that they belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Folder of the sweep: journal, run folders, and files of the engines.
    pub dir: PathBuf,
    /// Name that the engine shows, such as the name of a job in a queue.
    pub name: String,
    /// The runs, in the order in which they start. Their ids differ.
    pub runs: Vec<PlannedRun>,
    /// Number of runs that the folder will have. Larger than the number of `runs` if other runs follow, as in a search.
    pub size: usize,
}

/// The reason why an engine cannot work. No run is lost: the same call continues the plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine is not installed or cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The engine refused the request, for example because of a partition that does not exist.
    #[error("{0}")]
    Refused(String),
    /// An option or a table of the sweep file is wrong.
    #[error("{0}")]
    Usage(String),
    /// A file or folder cannot be read or written, or a program cannot be started.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A place that executes runs.
pub trait Engine {
    /// Name of the engine, as in `--on NAME`.
    fn name(&self) -> &'static str;

    /// Executes all runs of the plan that are not done, waits, and returns one outcome per run, in the order of the plan.
    ///
    /// It returns when all runs have ended, or soon after `stop` was set; runs that have not ended are then
    /// [`RunOutcome::Pending`]. `observe` receives an overview about once per second.
    ///
    /// # Errors
    /// If the engine cannot be used. A run that fails is an outcome, not an error.
    fn execute(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError>;

    /// Returns the tasks that the engine has for this folder. Default: none.
    ///
    /// # Errors
    /// If the engine does not answer.
    fn queue(&mut self, _plan: &Plan) -> Result<EngineQueue, EngineError> {
        Ok(EngineQueue::default())
    }

    /// Returns how the last task of runs ended, by the name of the run, as far as the engine knows. Default: nothing.
    ///
    /// # Errors
    /// If the files of the engine cannot be read.
    fn ended_tasks(&mut self, _plan: &Plan) -> Result<HashMap<String, String>, EngineError> {
        Ok(HashMap::new())
    }

    /// Removes all runs of this folder from the queue and stops those that are running, which save first.
    /// Returns the number of runs.
    ///
    /// # Errors
    /// If the engine does not answer, or has no queue.
    fn cancel(&mut self, _plan: &Plan) -> Result<usize, EngineError> {
        let name = self.name();
        Err(EngineError::Usage(format!(
            "`--on {name}` has no queue: press Ctrl-C in the process that drives the sweep"
        )))
    }
}

/// One key of the table of an engine in a sweep file.
struct Setting<'a> {
    table: &'static str,
    key: &'a str,
    value: &'a Value,
}

impl Setting<'_> {
    fn wrong(&self, what: &str) -> EngineError {
        EngineError::Usage(format!("{}.{} must be {what}, not {}", self.table, self.key, self.value))
    }

    fn text(&self) -> Result<String, EngineError> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.wrong("a text in quotes"))
    }

    fn number(&self, least: u32) -> Result<u32, EngineError> {
        let whole = self.value.as_integer().and_then(|n| u32::try_from(n).ok()).filter(|n| *n >= least);
        whole.ok_or_else(|| self.wrong(&format!("a whole number of at least {least}")))
    }

    fn table(&self) -> Result<Table, EngineError> {
        self.value.as_table().cloned().ok_or_else(|| self.wrong("a table"))
    }

    fn texts(&self) -> Result<Vec<String>, EngineError> {
        let list =
            self.value.as_array().map(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        list.flatten().ok_or_else(|| self.wrong("a list of texts, such as [\"--qos=high\"]"))
    }
}

/// Name of a key in the table of an engine, and the function that puts its value into the options.
type Key<T> = (&'static str, fn(&mut T, &Setting<'_>) -> Result<(), EngineError>);

/// Reads the table of an engine in a sweep file. A key that is not in the table keeps its default.
fn read_table<T: Default>(name: &'static str, keys: &[Key<T>], table: &Table) -> Result<T, EngineError> {
    let mut options = T::default();
    for (key, value) in table {
        let Some((_, read)) = keys.iter().find(|(known, _)| known == key) else {
            let known = || keys.iter().map(|(known, _)| *known);
            let hint = match nearest(key, known()) {
                Some(nearest) => format!("did you mean `{name}.{nearest}`?"),
                None => format!("the keys of `[{name}]` are {}", known().collect::<Vec<_>>().join(", ")),
            };
            return Err(EngineError::Usage(format!("there is no `{name}.{key}`; {hint}")));
        };
        read(&mut options, &Setting { table: name, key, value })?;
    }
    Ok(options)
}

/// Opens the folder of a plan for its runs.
///
/// # Errors
/// If the folder cannot be made, or if it was made for so much smaller a sweep that one of its folders would get too many
/// entries.
fn open_places(plan: &Plan) -> Result<Places, EngineError> {
    let places = Places::open(&plan.dir, plan.size)?;
    if !places.is_sharded() && plan.size > MOST_GROWN {
        return Err(EngineError::Usage(format!(
            "{} was made for at most {MOST_FLAT} runs and cannot take {}: choose another folder with --out",
            plan.dir.display(),
            plan.size
        )));
    }
    Ok(places)
}

/// Executes a plan. If that fails, an unused folder is removed.
fn or_discard<T>(plan: &Plan, execute: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let new = !plan.dir.exists();
    execute().inspect_err(|_| discard_unused(&plan.dir, new))
}

/// Removes the files that a sweep or a search begins with, if there is nothing else in its folder: an engine that refuses
/// leaves nothing behind. `new` says whether the folder itself did not exist before.
pub(crate) fn discard_unused(dir: &Path, new: bool) {
    const FIRST: [&str; 3] = ["layout", "plan.json", "tune.toml"];
    for engine in ["slurm", "ray"] {
        let _ = std::fs::remove_dir(dir.join(engine)); // fails if it is not empty
    }
    let mut entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    if entries.all(|entry| FIRST.iter().any(|name| entry.file_name() == *name)) {
        for name in FIRST {
            let _ = std::fs::remove_file(dir.join(name));
        }
        if new {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Returns the path of the next submission, such as `DIR/slurm/0001`, and of the newest one, if there is one.
fn next_folder(plan: &Plan, engine: &str) -> Result<(PathBuf, Option<PathBuf>), EngineError> {
    let root = absolute(&plan.dir)?.join(engine);
    let entries = std::fs::read_dir(&root).into_iter().flatten().filter_map(Result::ok);
    let newest = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    let folder = |number: u32| root.join(format!("{number:04}"));
    Ok((folder(newest.unwrap_or(0) + 1), newest.map(folder)))
}

/// Makes the folder of the next submission. Of several processes that do this at once, each gets a folder of its own.
fn make_next_folder(plan: &Plan, engine: &str) -> Result<PathBuf, EngineError> {
    loop {
        let (folder, _) = next_folder(plan, engine)?;
        std::fs::create_dir_all(folder.parent().unwrap_or(&folder)).map_err(at(&folder))?;
        match std::fs::create_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.clone()).map_err(|e| at(&folder)(e).into()),
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, EngineError> {
    let path = std::path::absolute(path).map_err(at(path))?;
    Ok(path.canonicalize().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dir: &Path, size: usize) -> Plan {
        Plan { dir: dir.to_owned(), name: "s".into(), runs: Vec::new(), size }
    }

    /// Fails if the first part of a large search decides the layout, or if a small sweep may grow without limit.
    #[test]
    fn no_folder_gets_ten_thousand_entries() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open_places(&plan(&dir.path().join("search"), 10_000)).unwrap().is_sharded());
        let small = dir.path().join("small");
        assert!(!open_places(&plan(&small, 10)).unwrap().is_sharded());
        assert!(open_places(&plan(&small, MOST_GROWN)).is_ok());
        let said = open_places(&plan(&small, MOST_GROWN + 1)).unwrap_err();
        assert!(matches!(said, EngineError::Usage(_)) && said.to_string().contains("--out"), "{said}");
    }

    /// Fails if two processes that submit at the same time get the same folder.
    #[test]
    fn each_process_gets_a_folder_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let plan = plan(dir.path(), 1);
        let folders: std::collections::BTreeSet<PathBuf> = std::thread::scope(|scope| {
            let make = || {
                scope.spawn(|| (0..20).map(|_| make_next_folder(&plan, "slurm").unwrap()).collect::<Vec<_>>())
            };
            let threads: Vec<_> = (0..4).map(|_| make()).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(folders.len(), 80);
    }

    /// Fails if a refusal leaves a folder behind, or removes results.
    #[test]
    fn only_an_unused_folder_is_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("o");
        for (more, new, stays) in
            [("", true, false), ("", false, true), ("journal", true, true), ("slurm/0001", true, true)]
        {
            open_places(&plan(&out, 1)).unwrap();
            std::fs::create_dir_all(out.join("slurm").join("../").join(more)).unwrap();
            discard_unused(&out, new);
            assert_eq!(
                (out.exists(), out.join("layout").exists()),
                (stays, !more.is_empty()),
                "{more} {new}"
            );
            let _ = std::fs::remove_dir_all(&out);
        }
    }
}
