//! Why a run could not be done.

use std::path::{Path, PathBuf};

use epo_core::{EnvError, EnvFailure};

use crate::config::ConfigError;

/// Why a run could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A task could not be made.
    #[error(transparent)]
    Task(#[from] epo_tasks::TaskError),
    /// An update failed, or a number in it is not finite.
    #[error("the update of epoch {epoch} failed")]
    Update {
        /// Epochs done before it.
        epoch: u32,
        /// What was wrong.
        source: epo_algos::UpdateError,
    },
    /// The environments could not be set up.
    #[error(transparent)]
    MakeEnv(#[from] EnvError),
    /// An environment failed, or returned a number that is not finite.
    #[error(transparent)]
    Env(#[from] EnvFailure),
    /// A file could not be written or read.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// `write`, `read`, …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process is writing to the run folder.
    #[error("the run folder {} is in use by {holder}; wait until it ends, or stop it", dir.display())]
    Locked {
        /// The run folder.
        dir: PathBuf,
        /// Process and host.
        holder: String,
    },
    /// The run folder is no longer where it was when the run began.
    #[error(
        "the run folder {} was moved or replaced while the run was training; everything up to the last checkpoint is \
         in the folder's new place: resume it there",
        .0.display()
    )]
    Moved(PathBuf),
    /// Work was stopped by a signal; nothing is lost.
    #[error("{0} was interrupted")]
    Interrupted(&'static str),
    /// A run folder of that name is there already.
    #[error("there is already a run folder {}: resume it, or choose another name", .0.display())]
    Exists(PathBuf),
    /// A run folder, or a part of it, is missing, damaged or of another program.
    #[error("{why}: {}", path.display())]
    Run {
        /// What is wrong.
        why: String,
        /// The folder or file.
        path: PathBuf,
    },
}

impl LabError {
    /// For `map_err`: names the file that an operation was about.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn run(path: &Path, why: impl Into<String>) -> Self {
        Self::Run { why: why.into(), path: path.to_owned() }
    }

    /// Whether a number became NaN or infinite.
    pub fn is_not_finite(&self) -> bool {
        use EnvError::{ActionNotFinite, NotFinite};
        match self {
            Self::Env(failure) => matches!(failure.cause, NotFinite { .. } | ActionNotFinite { .. }),
            Self::Update { source, .. } => matches!(source, epo_algos::UpdateError::NotFinite { .. }),
            _ => false,
        }
    }
}
