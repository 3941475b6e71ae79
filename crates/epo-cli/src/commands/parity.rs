//! `epo parity`

use std::path::{Path, PathBuf};

use epo_tasks::parity::{Comparison, ParityError, ReferenceEpisode, compare};
use serde::Serialize;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo parity`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Files with recorded reference episodes (.npz)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct FileComparison {
    file: String,
    #[serde(flatten)]
    comparison: Comparison,
}

/// Replays the actions of recorded reference episodes and reports the largest differences.
///
/// A file that cannot be used is reported on stderr and makes the command fail. All other files are still compared.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let (mut rows, mut unusable) = (Vec::new(), None);
    for file in &args.files {
        match check(file) {
            Ok(comparison) => rows.push(FileComparison { file: file.display().to_string(), comparison }),
            Err(error) => {
                tell!("error: {}: {error}", file.display());
                unusable.get_or_insert(code_of(&error));
            }
        }
    }
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
    } else if !rows.is_empty() {
        print(&table(&rows))?;
    }
    let all_ok = rows.iter().all(|row| row.comparison.ok);
    Ok(unusable.unwrap_or(if all_ok { Code::Done } else { Code::NotMet }))
}

fn check(file: &Path) -> Result<Comparison, ParityError> {
    compare(&ReferenceEpisode::open(file)?)
}

/// Returns [`Code::Io`] if the file cannot be read, and [`Code::Failed`] if it is not a valid recording.
fn code_of(error: &ParityError) -> Code {
    match error {
        ParityError::File(epo_tasks::npz::NpzError::Io(_)) => Code::Io,
        _ => Code::Failed,
    }
}

fn table(rows: &[FileComparison]) -> String {
    let mut text = format!(
        "{:<44} {:>6} {:>9} {:>9} {:>9} {:>9}  agrees",
        "file", "steps", "obs", "reward", "cost", "qpos"
    );
    for FileComparison { file, comparison: c } in rows {
        let name = Path::new(file).file_name().map_or(file.clone(), |n| n.to_string_lossy().into_owned());
        let verdict = match c.first_diff_step {
            None => "yes".to_owned(),
            Some(step) => format!("NO, from step {step}"),
        };
        text += &format!(
            "\n{name:<44} {:>6} {:>9.1e} {:>9.1e} {:>9.1e} {:>9.1e}  {verdict}",
            c.steps, c.max_obs, c.max_reward, c.max_cost, c.max_qpos
        );
    }
    text
}
