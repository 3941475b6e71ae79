//! The state of a run, as `epo runs` and the dashboard show it.

use std::time::Duration;

/// A run that writes nothing for this time, and for ten of its epochs, counts as not training.
const SILENT: Duration = Duration::from_secs(60);

/// A run without a first row is dead if its configuration is older than this.
const UNSTARTED: Duration = Duration::from_secs(1800);

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Rows are being added.
    Training,
    /// All planned steps are done.
    Done,
    /// The run was interrupted after it saved its last epoch; it can be resumed without a loss.
    Stopped,
    /// The run has ended before its planned end, and its last epochs are not in a checkpoint.
    Dead,
    /// The folder cannot be shown.
    Broken,
}

/// The facts that decide whether a run with a readable folder trains, is done, stopped or dead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    /// Whether all planned steps are done.
    pub done: bool,
    /// Number of finished epochs.
    pub epochs: u64,
    /// Number of finished epochs in the newest checkpoint.
    pub saved: Option<u64>,
    /// Whether such runs have checkpoints of this program.
    pub has_checkpoints: bool,
    /// Time since `progress.csv` last grew; `None` if there is no such file yet.
    pub silent: Option<Duration>,
    /// Time since the configuration was written, if it is known.
    pub age: Option<Duration>,
    /// Duration of all epochs in seconds, if it is recorded.
    pub seconds: Option<f64>,
}

impl RunState {
    /// Returns the state of a run whose folder can be shown.
    pub fn of(run: &Activity) -> Self {
        let epoch = run.seconds.unwrap_or(0.0) / run.epochs.max(1) as f64;
        let patience = SILENT.max(Duration::try_from_secs_f64(10.0 * epoch).unwrap_or(SILENT));
        match (run.silent, run.saved) {
            _ if run.done => Self::Done,
            (None, _) if run.epochs == 0 && run.age.is_some_and(|age| age > UNSTARTED) => Self::Dead,
            (None, _) if run.epochs == 0 => Self::Training,
            (Some(silent), _) if silent < patience => Self::Training,
            (_, Some(saved)) if saved >= run.epochs => Self::Stopped,
            _ if !run.has_checkpoints => Self::Stopped,
            _ => Self::Dead,
        }
    }

    /// Returns the name of the state in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Broken => "broken",
        }
    }
}
