//! `epo runs`

use std::path::PathBuf;

use epo_report::list::{ListedRun, list_runs};
use epo_report::{printable, shorten};

use crate::exit::{Code, Exit};
use crate::output;

/// Arguments of `epo runs`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folders of epo or OmniSafe, or folders that contain them at most eight levels below
    #[arg(default_value = "runs")]
    folders: Vec<PathBuf>,
    /// List only runs whose task contains this text
    #[arg(long, value_name = "TEXT")]
    task: Option<String>,
    /// List only runs of this algorithm
    #[arg(long, value_name = "NAME")]
    algo: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Lists the runs.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let (mut runs, notes) = list_runs(&args.folders);
    let found = runs.len();
    for note in &notes {
        tell!("note: {note}");
    }
    if found == 0 && !notes.is_empty() {
        return Err(anyhow::Error::new(Exit(Code::Corrupt)).context("no run was found"));
    }
    runs.retain(|run| {
        let task = run.task.as_deref().unwrap_or_default();
        let algo = run.algo.as_deref().unwrap_or_default();
        args.task.as_ref().is_none_or(|text| task.contains(text.as_str()))
            && args.algo.as_ref().is_none_or(|name| algo.eq_ignore_ascii_case(name))
    });
    if args.json {
        output::print(&serde_json::to_string(&runs)?)?;
        return Ok(Code::Done);
    }
    output::print(&text(&runs))?;
    if runs.len() < found {
        tell!("{} of {}", runs.len(), output::count(found, "run"));
    }
    Ok(Code::Done)
}

/// Maximum number of characters of a line.
const WIDTH: usize = 160;

/// Returns one aligned line per run below a header. The folder is the last column; its beginning is cut off if the line
/// would be too long.
fn text(runs: &[ListedRun]) -> String {
    let header = ["task", "algo", "seed", "limit", "steps", "state", "return", "cost", "hash"];
    let rows: Vec<[String; 9]> =
        std::iter::once(header.map(str::to_owned)).chain(runs.iter().map(cells)).collect();
    let width = |c: usize| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let left = [true, true, false, false, false, true, false, false, true];
    let room = WIDTH.saturating_sub(widths.iter().map(|w| w + 2).sum()).max(20);
    let folders = std::iter::once("folder".to_owned()).chain(runs.iter().map(|run| end_of(run, room)));
    let line = |(row, folder): (&[String; 9], String)| {
        let mut line = String::new();
        for ((cell, &width), left) in row.iter().zip(&widths).zip(left) {
            line += &if left { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
        }
        line + &folder
    };
    rows.iter().zip(folders).map(line).collect::<Vec<_>>().join("\n")
}

fn cells(run: &ListedRun) -> [String; 9] {
    let text = |text: &Option<String>, most: usize| shorten(&printable(text.as_deref().unwrap_or("–")), most);
    let number = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.2}"));
    let planned = run.planned.map_or("–".to_owned(), steps);
    [
        text(&run.task, 32),
        text(&run.algo, 14),
        run.seed.map_or("–".to_owned(), |seed| seed.to_string()),
        run.limit.map_or("–".to_owned(), |limit| shorten(&limit.to_string(), 10)),
        format!("{}/{planned}", steps(run.steps)),
        run.state.name().to_owned(),
        number(run.ret),
        number(run.cost),
        run.hash.as_ref().map_or("–".to_owned(), |hash| printable(hash).chars().take(12).collect()),
    ]
}

/// Returns a number of steps as text: `950`, `64k`, `1.25M`.
fn steps(steps: f64) -> String {
    let (hundredths, unit) = match steps {
        s if s >= 1e6 => (s / 1e4, "M"),
        s if s >= 1e3 => (s / 1e1, "k"),
        s => (s * 1e2, ""),
    };
    format!("{}{unit}", hundredths.floor() / 100.0)
}

/// Returns the folder of a run, or its last `most` characters.
fn end_of(run: &ListedRun, most: usize) -> String {
    let folder = output::path(&run.folder);
    match folder.chars().count().checked_sub(most) {
        None | Some(0) => folder,
        Some(over) => std::iter::once('…').chain(folder.chars().skip(over + 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_short_and_never_rounded_up() {
        let text = [0.0, 950.0, 64_000.0, 999_999.0, 1_150_000.0, 1e7].map(steps);
        assert_eq!(text, ["0", "950", "64k", "999.99k", "1.15M", "10M"]);
    }
}
