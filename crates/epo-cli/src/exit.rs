//! Exit codes, the same for every command.

use epo_lab::LabError;
use epo_lab::config::ConfigError;
use epo_lab::engine::EngineError;
use epo_mujoco::Error::Library as NoLibrary;
use epo_tasks::TaskError;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "all documented codes are listed, even those that no command uses")]
pub(crate) enum Code {
    /// The command succeeded.
    Done = 0,
    /// The command failed for a reason without a specific code.
    Failed = 1,
    /// The arguments or the configuration are wrong.
    Usage = 2,
    /// The command worked, but a required threshold or check is not met.
    NotMet = 3,
    /// A run folder is unreadable or corrupt.
    Corrupt = 4,
    /// A number became NaN or infinite.
    NotFinite = 5,
    /// An engine, a node or a library that the command needs is not available.
    Unavailable = 69,
    /// Reading or writing failed, for example because the disk is full.
    Io = 74,
    /// The command was interrupted, or the run is in use by another process. It can be resumed.
    Interrupted = 75,
}

impl Code {
    /// Returns the exit code of the first cause that has one, otherwise [`Code::Failed`].
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if let Some(Exit(code)) = cause.downcast_ref::<Exit>() {
                return *code;
            }
            if let Some(error) = cause.downcast_ref::<LabError>() {
                return Self::of_lab(error);
            }
            match cause.downcast_ref::<EngineError>() {
                Some(EngineError::Unavailable(_)) => return Self::Unavailable,
                Some(EngineError::Usage(_)) => return Self::Usage,
                Some(EngineError::Io(_)) => return Self::Io,
                Some(_) => return Self::Failed,
                None => {}
            }
            if cause.is::<std::io::Error>() {
                return Self::Io;
            }
            if matches!(cause.downcast_ref(), Some(TaskError::Mujoco { cause: NoLibrary(_), .. })) {
                return Self::Unavailable;
            }
            // these errors are caused by user input
            if cause.is::<ConfigError>()
                || matches!(
                    cause.downcast_ref(),
                    Some(TaskError::Unknown { .. } | TaskError::NotSimulated { .. })
                )
                || matches!(cause.downcast_ref(), Some(epo_core::EnvError::SeedTooLarge { .. }))
            {
                return Self::Usage;
            }
        }
        Self::Failed
    }

    fn of_lab(error: &LabError) -> Self {
        match error {
            LabError::Config(_)
            | LabError::Exists(_)
            | LabError::Task(TaskError::Unknown { .. } | TaskError::NotSimulated { .. })
            | LabError::MakeEnv(epo_core::EnvError::SeedTooLarge { .. }) => Self::Usage,
            LabError::Task(TaskError::Mujoco { cause: NoLibrary(_), .. }) => Self::Unavailable,
            LabError::Run { .. } => Self::Corrupt,
            LabError::Io { .. } | LabError::Moved(_) => Self::Io,
            LabError::Interrupted(_) | LabError::Locked { .. } | LabError::RankLost { .. } => {
                Self::Interrupted
            }
            _ if error.is_not_finite() => Self::NotFinite,
            _ => Self::Failed,
        }
    }
}

/// Returns the message for the user: all causes of the error except the exit code.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let causes = error.chain().filter(|cause| !cause.is::<Exit>());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// An error that sets the exit code: `anyhow::Error::new(Exit(Code::Usage)).context("…")`.
#[derive(Debug, thiserror::Error)]
#[error("exit code {}", .0.to_owned() as u8)]
pub(crate) struct Exit(pub(crate) Code);

#[cfg(test)]
mod tests {
    use epo_core::{EnvError, EnvFailure};

    use super::*;

    #[test]
    fn every_error_has_its_exit_code() {
        let failure =
            |cause| LabError::from(EnvFailure { task: "T".into(), env: 1, seed: 2, step: 3, cause });
        let nan = EnvError::NotFinite { what: "the reward".into(), value: f64::NAN };
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let io = LabError::Io { what: "write", path: "progress.csv".into(), source: full() };
        for (error, code) in [
            (failure(nan), Code::NotFinite),
            (failure(EnvError::Panicked("oh".into())), Code::Failed),
            (io, Code::Io),
            (LabError::Exists("run".into()), Code::Usage),
            (LabError::MakeEnv(EnvError::SeedTooLarge { seed: 1 << 40 }), Code::Usage),
            (LabError::Config(ConfigError::Assignment("x".into())), Code::Usage),
            (LabError::Run { why: "damaged".into(), path: "run".into() }, Code::Corrupt),
        ] {
            let said = error.to_string();
            assert_eq!(Code::of(&anyhow::Error::from(error).context("training")), code, "{said}");
        }
    }
}
