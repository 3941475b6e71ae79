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
//! All engines give each run to `epo train`. The same plan and folder continue where an earlier call stopped, also with
//! another engine.

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
use crate::sweep::{EngineTask, Overview, PlannedRun, RunOutcome, at};

/// The runs to make and the folder that they belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Folder of the sweep: journal, run folders, and files of the engines.
    pub dir: PathBuf,
    /// Name that the engine shows, such as the name of a job in a queue.
    pub name: String,
    /// The runs, in the order in which they start. Their ids differ.
    pub runs: Vec<PlannedRun>,
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

    /// Returns the tasks that the engine has for this folder, by the name of their run. Default: none.
    ///
    /// # Errors
    /// If the engine does not answer.
    fn queue(&mut self, _plan: &Plan) -> Result<HashMap<String, EngineTask>, EngineError> {
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

/// Returns the folder of the next submission, such as `DIR/slurm/0001`.
fn next_folder(plan: &Plan, engine: &str) -> Result<PathBuf, EngineError> {
    let root = absolute(&plan.dir)?.join(engine);
    let entries = std::fs::read_dir(&root).into_iter().flatten().filter_map(Result::ok);
    let newest = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    Ok(root.join(format!("{:04}", newest.unwrap_or(0) + 1)))
}

fn absolute(path: &Path) -> Result<PathBuf, EngineError> {
    let path = std::path::absolute(path).map_err(at(path))?;
    Ok(path.canonicalize().unwrap_or(path))
}
