//! The `epo` program. Its commands are in the library of this crate.

fn main() -> std::process::ExitCode {
    epo_cli::run(|| Ok(()))
}
