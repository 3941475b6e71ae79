//! Sweeps: many runs that are described in one file (`epo sweep`).

mod drive;
mod journal;
mod places;
mod plan;

pub(crate) use drive::is_patient;
pub use drive::{DriveOptions, Overview, RunOutcome, Running, die_with_parent, drive};
pub use journal::RunEnd;
pub use places::{MOST_FLAT, Places};
pub use plan::{MOST_RUNS, PlanError, PlannedRun, SweepFile};
