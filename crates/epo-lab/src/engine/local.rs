//! The engine of one machine: child processes that share the cores.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use super::{Engine, EngineError, Plan, open_places};
use crate::sweep::{DriveOptions, Overview, RunOutcome, drive};

/// Executes runs as child processes of this process. If `stop` is set, the runs save and end.
#[derive(Clone, Debug)]
pub struct Local {
    /// Maximum number of runs at the same time.
    pub jobs: usize,
    /// Number of threads of each run.
    pub threads: usize,
    /// The program and its first arguments; `train …` is appended.
    pub program: Vec<OsString>,
    /// Whether failed runs are tried again.
    pub retry: bool,
}

impl Engine for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn execute(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        open_places(plan)?;
        let Self { jobs, threads, program, retry } = self.clone();
        let (patient, count_starts) = (false, false);
        let dir = plan.dir.clone();
        let options = DriveOptions { dir, jobs, threads, program, retry, patient, count_starts };
        Ok(drive(&plan.runs, &options, stop, observe)?)
    }
}
