//! The engine of one machine: child processes that share the cores.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use super::{Engine, EngineError, Plan};
use crate::sweep::{DriveOptions, Overview, RunOutcome, drive};

/// Runs are child processes of this one. Setting `stop` lets them save and ends them.
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
        let Self { jobs, threads, program, retry } = self.clone();
        let options = DriveOptions { dir: plan.dir.clone(), jobs, threads, program, retry, patient: false };
        Ok(drive(&plan.runs, &options, stop, observe)?)
    }
}
