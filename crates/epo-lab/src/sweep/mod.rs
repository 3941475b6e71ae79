//! Sweeps: many runs that are described in one file (`epo sweep`).

mod drive;
mod index;
mod journal;
mod places;
mod plan;
mod plan_file;
mod status;

pub use drive::{DriveOptions, Overview, RunOutcome, Running, die_with_parent, drive};
pub(crate) use drive::{is_patient, last_lines, tail, terminate};
pub use journal::RunEnd;
pub(crate) use places::at;
pub use places::{MOST_FLAT, Places};
pub use plan::{MOST_RUNS, PlanError, PlannedRun, SweepFile};
pub use plan_file::write_plan;
pub use status::{EngineQueue, EngineTask, PlannedState, RunStatus, Status, StatusReader};
