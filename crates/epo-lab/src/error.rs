//! Errors of runs.

use std::path::{Path, PathBuf};

use epo_core::{EnvError, EnvFailure};

use crate::config::ConfigError;

/// The reason why a run or a command on a run folder failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A task does not exist or could not be made.
    #[error(transparent)]
    Task(#[from] epo_tasks::TaskError),
    /// An update failed, for example because a number is NaN or infinite.
    #[error("the update of epoch {epoch} failed")]
    Update {
        /// Number of epochs done before this one.
        epoch: u32,
        /// Cause of the failure.
        source: epo_algos::UpdateError,
    },
    /// The environments could not be set up.
    #[error(transparent)]
    MakeEnv(#[from] EnvError),
    /// An environment failed, or returned a number that is NaN or infinite.
    #[error(transparent)]
    Env(#[from] EnvFailure),
    /// A file could not be written or read.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// Operation that failed, such as `write` or `read`.
        what: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Another process is writing to the run folder.
    #[error("the run folder {} is in use by {holder}; wait until it ends, or stop it", dir.display())]
    Locked {
        /// The run folder.
        dir: PathBuf,
        /// Process and host that use the folder.
        holder: String,
    },
    /// The run folder was moved or replaced while the run was training.
    #[error(
        "the run folder {} was moved or replaced while the run was training; everything up to the last checkpoint is \
         in the folder's new place: resume it there",
        .0.display()
    )]
    Moved(PathBuf),
    /// The work was stopped by a signal. Nothing is lost.
    #[error("{0} was interrupted")]
    Interrupted(&'static str),
    /// Another rank of the run failed.
    #[error("rank {rank} failed: {why}")]
    OtherRank {
        /// Number of the rank.
        rank: usize,
        /// Its error.
        why: String,
    },
    /// Another rank of the run cannot be reached. Only the epochs since the last checkpoint are lost.
    #[error("the other ranks of the run cannot be reached any more: {why}; continue the run with `--resume`")]
    RankLost {
        /// The error of the transport.
        why: String,
    },
    /// The ranks of a run have different numbers, so they cannot share a batch.
    #[error(
        "rank {rank} has other numbers than rank 0 after epoch {epoch}, so the run was stopped; use the same program, \
         library and kind of processor on all machines"
    )]
    RanksDiffer {
        /// The first rank that differs from rank 0.
        rank: usize,
        /// Number of epochs done.
        epoch: u32,
    },
    /// The ranks of a run have different versions of this program.
    #[error("{0}; install the same version on all machines")]
    Version(String),
    /// A message of another rank does not have the expected form.
    #[error(transparent)]
    Message(#[from] epo_core::WireError),
    /// A run folder of that name exists already.
    #[error("there is already a run folder {}: resume it, or choose another name", .0.display())]
    Exists(PathBuf),
    /// A run folder, or a part of it, is missing, damaged or was written by another program.
    #[error("{}: {why}", path.display())]
    Run {
        /// Description of the problem.
        why: String,
        /// The folder or file.
        path: PathBuf,
    },
}

impl LabError {
    /// Adds the operation and the file to an error of the operating system. For use with `map_err`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn run(path: &Path, why: impl Into<String>) -> Self {
        Self::Run { why: why.into(), path: path.to_owned() }
    }

    /// Returns true if the run failed because a number became NaN or infinite.
    pub fn is_not_finite(&self) -> bool {
        use EnvError::{ActionNotFinite, NotFinite};
        match self {
            Self::Env(failure) => matches!(failure.cause, NotFinite { .. } | ActionNotFinite { .. }),
            Self::Update { source, .. } => matches!(source, epo_algos::UpdateError::NotFinite { .. }),
            _ => false,
        }
    }
}
