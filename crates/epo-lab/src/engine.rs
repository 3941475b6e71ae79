//! Engines: where the runs of a plan are executed.
//!
//! ```text
//! Plan { folder, runs }  ──▶  Engine::execute  ──▶  run folders, which alone decide
//! ```
//! A run is a function of its configuration, so an engine may execute it twice, kill it or move it: the run folder ends
//! with the same bytes. Engines execute a task *at least* once. What keeps a run from being made by two processes at the
//! same time is the lease in the journal and the lock of the run folder, not the engine.
//!
//! | engine | what it does |
//! |---|---|
//! | [`local::Local`] | starts child processes on this machine; several machines may share the folder |
//!
//! All engines give each run to `epo train`. The same plan and folder continue where an earlier call stopped, also with
//! another engine.

pub mod local;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::sweep::{Overview, PlannedRun, RunOutcome};

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

/// The reason why an engine cannot work. No run is lost by it: the same call continues.
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
}
