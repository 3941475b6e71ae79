//! All commands of `epo`, which know the tasks of this crate by their ids: `cargo run --release -- train Patrol-v0`.

use std::process::ExitCode;

fn main() -> ExitCode {
    epo_cli::run(own_task::register)
}
