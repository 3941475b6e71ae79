//! Printing results.

use std::io::{ErrorKind, Write};

/// Prints a result to stdout, with a line end. A reader that has gone (`epo tasks | head`) is no failure.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
