//! Errors of the other crates as Python exceptions.

use epo_core::EnvError;
use epo_lab::LabError;
use epo_tasks::TaskError;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};

create_exception!(epo, EpoError, PyRuntimeError, "A run, an environment or a run folder failed.");
create_exception!(
    epo,
    ConfigError,
    PyValueError,
    "A setting, a task id or the name of an algorithm is wrong. The message says what to do."
);

/// The message of an error and of its causes, joined by `: `.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| (*e).source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

pub(crate) fn lab(error: &LabError) -> PyErr {
    let text = chain(error).replace("--accept-changes", "accept_changes=True"); // its name in Python
    match error {
        LabError::Config(_) | LabError::Exists(_) | LabError::Task(TaskError::Unknown { .. }) => {
            ConfigError::new_err(text)
        }
        LabError::Io { source, .. } => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, text)),
            None => PyOSError::new_err(text),
        },
        _ => EpoError::new_err(text),
    }
}

pub(crate) fn config(error: &epo_lab::config::ConfigError) -> PyErr {
    ConfigError::new_err(error.to_string())
}

pub(crate) fn task(error: TaskError) -> PyErr {
    lab(&error.into())
}

/// An error of an environment: wrong arguments are a `ValueError`, everything else an `EpoError`.
pub(crate) fn env(error: &EnvError) -> PyErr {
    use EnvError::{ActionLength, ActionNotFinite, NoSuchAction, SeedTooLarge};
    match error {
        ActionLength { .. } | ActionNotFinite { .. } | NoSuchAction { .. } | SeedTooLarge { .. } => {
            PyValueError::new_err(error.to_string())
        }
        _ => EpoError::new_err(error.to_string()),
    }
}

/// The message of a panic.
pub(crate) fn panic(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "no message".to_owned());
    EpoError::new_err(format!("internal error, please report it: {text}"))
}
