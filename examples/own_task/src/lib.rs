//! Example tasks, defined outside the workspace of `epo`:
//!
//! - `Patrol-v0` ([`patrol`]): a navigation task that MuJoCo simulates, with its own kinds of objects
//! - `Tank-v0` ([`tank`]): an environment in a few lines of Rust, without a simulator
//!
//! ```sh
//! cargo run --release -- train Patrol-v0 --steps 1e6     # eval, sweep, report and the other commands work too
//! ```

pub mod patrol;
pub mod tank;

use epo_tasks::TaskError;

/// Adds the tasks of this crate to the list of tasks. A program calls this function once, at its start.
pub fn register() -> Result<(), TaskError> {
    epo_tasks::register(patrol::task())?;
    epo_tasks::register_env("the level of the tank", "1 while it overflows", tank::make)?;
    Ok(())
}
