//! Tasks from outside the workspace:
//!
//! - `Patrol-v0` ([`patrol`]): a navigation task that MuJoCo simulates, with an object of its own
//! - `Tank-v0` ([`tank`]): an environment in a page of Rust, without a simulator
//!
//! ```sh
//! cargo run --release -- train Patrol-v0 --steps 1e6     # eval, sweep, report and all others work as well
//! ```

pub mod patrol;
pub mod tank;

use epo_tasks::TaskError;

/// Adds the tasks of this crate to the list of tasks. A program calls it once, at its start.
pub fn register() -> Result<(), TaskError> {
    epo_tasks::register(patrol::task())?;
    epo_tasks::register_env("the level of the tank", "1 while it overflows", tank::make)?;
    Ok(())
}
