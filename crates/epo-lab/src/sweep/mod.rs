//! Sweeps: many runs that are described in one file (`epo sweep`).

mod drive;
mod journal;
mod plan;
mod plan_file;

pub use drive::{DriveOptions, Overview, RunOutcome, Running, die_with_parent, drive, run_folder};
pub use journal::RunEnd;
pub use plan::{MOST_RUNS, PlanError, PlannedRun, SweepFile};
pub use plan_file::write_plan;
