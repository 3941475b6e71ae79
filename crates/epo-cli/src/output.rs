//! Prints results and messages.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use epo_report::printable;

/// Writes a message to stderr, as [`message`] returns it. Errors are ignored, so a closed stderr does not end the command.
macro_rules! tell {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{}", $crate::output::message(&format!($($arg)*)));
    }};
}

/// Returns a message that may contain foreign text, such as a path or a name in a file, as it is safe to print: without
/// control characters, and with all lines but the first indented, so that no text looks like another message.
pub(crate) fn message(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n  ")
}

/// Returns a path as one line that is safe to print.
pub(crate) fn path(path: &std::path::Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Prints a result and a line end to stdout. A closed pipe (`epo tasks | head`) is not an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// The command that starts this program again, if it is not the path of the executable.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts this program again. Later calls have no effect.
pub(crate) fn set_program(command: Vec<OsString>) {
    let _ = PROGRAM.set(command);
}

/// Returns the command that starts this program again: a program and its first arguments.
pub(crate) fn program_command() -> std::io::Result<Vec<OsString>> {
    PROGRAM.get().cloned().map_or_else(|| Ok(vec![std::env::current_exe()?.into()]), Ok)
}

/// Whether this program is a module of a Python interpreter.
pub(crate) fn is_python() -> bool {
    PROGRAM.get().is_some()
}

/// Returns the name or path with which this program was started, for commands that the user can copy.
pub(crate) fn program() -> String {
    let named = std::env::args().next().filter(|_| PROGRAM.get().is_none());
    named.unwrap_or_else(|| "epo".to_owned())
}

/// Returns a path in single quotes, so that a shell takes it as one word.
pub(crate) fn quoted(path: &std::path::Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Returns a number with its noun: `1 run`, `2 runs`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Returns a duration as text: `1 h 02 min`, `3 min 20 s` or `4 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

/// Returns the lines of a Markdown table with aligned columns. The first row is the header. The first `texts` columns
/// are aligned to the left; the others hold numbers and are aligned to the right.
pub(crate) fn table<R: AsRef<[String]>>(rows: &[R], texts: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |c: usize| rows.iter().map(|row| row.as_ref()[c].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &[String]| {
        let cell = |c: usize| match c < texts {
            true => format!("{:<1$}", row[c], widths[c]),
            false => format!("{:>1$}", row[c], widths[c]),
        };
        format!("| {} |", (0..columns).map(cell).collect::<Vec<_>>().join(" | "))
    };
    let rule = |c: usize| match c < texts {
        true => "-".repeat(widths[c]),
        false => "-".repeat(widths[c] - 1) + ":",
    };
    let rule: Vec<String> = (0..columns).map(rule).collect();
    let mut lines: Vec<String> = rows.iter().map(|row| line(row.as_ref())).collect();
    lines.insert(1.min(lines.len()), line(&rule));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_path_is_one_word_of_a_shell() {
        let said = format!("printf %s {}", quoted(std::path::Path::new("it's a $HOME")));
        let output = std::process::Command::new("sh").args(["-c", &said]).output().unwrap();
        assert_eq!(output.stdout, b"it's a $HOME");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| count(n, "run")), ["0 runs", "1 run", "2 runs"]);
    }

    #[test]
    fn a_table_is_aligned() {
        let rows = [["Run", "Time"], ["epo-0", "1 s"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows, 1), ["| Run   | Time |", "| ----- | ---: |", "| epo-0 |  1 s |"]);
    }
}
