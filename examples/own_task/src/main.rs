//! A program with all commands of `epo` and with the tasks of this crate.
//!
//! Example: `cargo run --release -- train Patrol-v0`.

use std::process::ExitCode;

fn main() -> ExitCode {
    epo_cli::run(own_task::register)
}
