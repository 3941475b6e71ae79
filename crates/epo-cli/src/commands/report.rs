//! `epo report`

use std::path::PathBuf;

use epo_report::{Band, Options, ReportError, WrittenReport};

use crate::exit::{Code, Exit};
use crate::output;

/// Arguments of `epo report`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Run folders of epo or OmniSafe, or folders that contain them at most eight levels below
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Folder that the report is written to
    #[arg(long)]
    out: PathBuf,
    /// Shaded band of the curves: one standard deviation over the seeds, or the 95 % confidence interval of the mean
    #[arg(long, value_enum, default_value = "std")]
    band: BandArg,
    /// Width of the moving average over the returns, in epochs; 1 turns smoothing off
    #[arg(long, value_name = "EPOCHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    smooth: u32,
    /// Width of the moving average over the costs, in epochs; values above 1 hide violations of the limit
    #[arg(long, value_name = "EPOCHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    smooth_cost: u32,
    /// Fraction of the steps at the end of a run over which final values are averaged
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    last: f64,
    /// Cost limit of runs whose configuration has none, such as OmniSafe's PPO [default: such runs are left out]
    #[arg(long, value_name = "COST")]
    limit: Option<f64>,
    /// Print no notes and no summary on stderr
    #[arg(long, short)]
    quiet: bool,
    /// Print one JSON document instead of the tables
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BandArg {
    Std,
    Ci95,
}

/// Writes the report and prints its tables.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let wrong = |message: String| Err(anyhow::Error::new(Exit(Code::Usage)).context(message));
    if !(args.last > 0.0 && args.last <= 1.0) {
        return wrong(format!("--last must be above 0 and at most 1, not {}", args.last));
    }
    if let Some(limit) = args.limit.filter(|limit| !(limit.is_finite() && *limit >= 0.0)) {
        return wrong(format!("--limit {limit} is not a cost limit: it must be a number of at least 0"));
    }
    let band = match args.band {
        BandArg::Std => Band::Std,
        BandArg::Ci95 => Band::Ci95,
    };
    let [smooth_return, smooth_cost] = [args.smooth, args.smooth_cost].map(|epochs| epochs as usize);
    let final_share = args.last;
    let limit = args.limit;
    let options = Options { band, smooth_return, smooth_cost, final_share, limit, ..Options::default() };
    let summary = make(&args.runs, &args.out, &options, args.quiet)?;
    output::print(&if args.json { serde_json::to_string_pretty(&summary)? } else { summary.markdown })?;
    Ok(Code::Done)
}

/// Maximum number of notes that are printed.
const MOST_NOTES: usize = 20;

/// Writes a report. Unless `quiet`, prints on stderr where it is and which folders or files could not be used.
pub(crate) fn make(
    runs: &[PathBuf],
    out: &std::path::Path,
    options: &Options,
    quiet: bool,
) -> anyhow::Result<WrittenReport> {
    let summary = match epo_report::write(runs, out, options) {
        Ok(summary) => summary,
        Err(ReportError::NoRuns(notes)) => {
            for note in notes.iter().take(MOST_NOTES) {
                tell!("{note}");
            }
            return Err(anyhow::Error::new(Exit(Code::Corrupt)).context("no run can be shown"));
        }
        Err(error) => return Err(error.into()),
    };
    if !quiet {
        for note in summary.notes.iter().take(MOST_NOTES) {
            tell!("note: {note}");
        }
        let more = summary.notes.len().saturating_sub(MOST_NOTES);
        if more > 0 {
            tell!("note: {more} more notes are in index.html");
        }
        tell!("{} in {}", output::count(summary.runs, "run"), summary.page.display());
    }
    Ok(summary)
}
