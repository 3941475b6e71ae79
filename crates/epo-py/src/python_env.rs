//! An environment that is written in Python, as an [`Env`].
//!
//! The Python side (`epo/_adapter.py`) adapts any Gymnasium environment to one interface: `describe()`,
//! `reset(seed)`, `step(action)` and `close()`. An exception is kept, so that the caller of a training sees it
//! as the cause.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step, check_env};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::ending::{attached, guarded};
use crate::error;
use crate::train::{Reporter, in_background};

/// The first exception of an environment, and where it happened.
pub(crate) type Raised = Arc<Mutex<Option<(PyErr, String)>>>;

/// An environment that Python steps. Every call takes the interpreter lock.
struct PythonEnv {
    env: Py<PyAny>,
    spec: EnvSpec,
    /// Whether an episode has started and not ended.
    running: bool,
    /// Seed of the last episode, and the number of its steps.
    place: (u64, usize),
    raised: Raised,
}

/// What `describe()` returns: id, length of an observation, bounds of a box, number of discrete actions, time limit.
type Description = (String, usize, Option<(Vec<f64>, Vec<f64>)>, Option<usize>, usize);

/// Calls `make` and wraps the environment that it returns.
pub(crate) fn make(make: &Py<PyAny>, raised: &Raised) -> Result<Box<dyn Env>, EnvError> {
    attached(|py| {
        let env = guarded(|| make.call0(py))?;
        let (id, obs_len, bounds, n, max_steps): Description =
            env.call_method0(py, "describe")?.extract(py)?;
        let action = match (bounds, n) {
            (Some((low, high)), _) => ActionSpace::Box { low, high },
            (None, n) => ActionSpace::Discrete { n: n.unwrap_or(0) },
        };
        let spec = EnvSpec { id, obs_len, action, max_steps, cost_terms: Vec::new() };
        Ok(Box::new(PythonEnv { env, spec, running: false, place: (0, 0), raised: raised.clone() })
            as Box<dyn Env>)
    })
    .map_err(|e| keep(raised, e, || "an environment could not be made".to_owned()))
}

/// Keeps an exception and returns its text as an error.
fn keep(raised: &Raised, error: PyErr, place: impl FnOnce() -> String) -> EnvError {
    let text = attached(|_| error.to_string());
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| (error, place()));
    EnvError::Other(text)
}

/// Adds the exception of an environment as the cause. If it is an `EpoError`, such as `WorkerDied`, the returned
/// exception has its class.
pub(crate) fn with_cause(py: Python<'_>, exception: PyErr, raised: &Raised) -> PyErr {
    let Some((cause, _)) = take(raised) else { return exception };
    let exception = if cause.is_instance_of::<error::EpoError>(py) {
        PyErr::from_type(cause.get_type(py), exception.value(py).to_string())
    } else {
        exception
    };
    exception.set_cause(py, Some(cause));
    exception
}

fn copy(from: &Bound<'_, PyAny>, to: &mut [f64]) -> PyResult<()> {
    let array: PyReadonlyArray1<'_, f64> = from.extract()?;
    let values = array.as_slice()?;
    if values.len() != to.len() {
        let text = format!("the observation has {} entries instead of {}", values.len(), to.len());
        return Err(error::EpoError::new_err(text));
    }
    to.copy_from_slice(values);
    Ok(())
}

impl Env for PythonEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        (self.running, self.place) = (false, (seed, 0));
        attached(|py| copy(&guarded(|| self.env.bind(py).call_method1("reset", (seed,)))?, obs)).map_err(
            |e| keep(&self.raised, e, || format!("{}: reset with seed {seed} failed", self.spec.id)),
        )?;
        self.running = true;
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        if !self.running {
            return Err(EnvError::NeedsReset);
        }
        self.spec.action.check(action)?;
        self.running = false; // until the step is complete
        self.place.1 += 1;
        let step = attached(|py| {
            let action = PyArray1::from_slice(py, action);
            let result = guarded(|| self.env.bind(py).call_method1("step", (action,)))?;
            let (next, reward, cost, terminated, truncated): (Bound<'_, PyAny>, f64, f64, bool, bool) =
                result.extract()?;
            copy(&next, obs)?;
            let outcome = match (terminated, truncated) {
                (true, _) => Outcome::Terminated,
                (_, true) => Outcome::Truncated,
                _ => Outcome::Running,
            };
            Ok(Step { reward, cost, outcome })
        })
        .map_err(|e| {
            let (seed, t) = self.place;
            keep(&self.raised, e, || {
                format!("{}: step {t} of the episode with seed {seed} failed", self.spec.id)
            })
        })?;
        self.running = !step.outcome.is_done();
        Ok(step)
    }
}

impl Drop for PythonEnv {
    fn drop(&mut self) {
        // an error while closing an environment is ignored
        attached(|py| guarded(|| self.env.call_method0(py, "close")).map(|_| ()).unwrap_or_default());
    }
}

/// Plays a few episodes of a Python environment, and returns one sentence per rule that it breaks. The second Ctrl-C
/// calls `kill()`, which ends the worker processes.
#[pyfunction]
#[pyo3(signature = (make_env, kill=None))]
pub(crate) fn check(py: Python<'_>, make_env: Py<PyAny>, kill: Option<Py<PyAny>>) -> PyResult<Vec<String>> {
    let (stop, raised) = (Arc::new(AtomicBool::new(false)), Raised::default());
    let (stopping, exceptions) = (stop.clone(), raised.clone());
    let work = move |_: &Reporter| {
        // the first environment is made here, because the checker cannot report that `make` fails
        drop(make(&make_env, &exceptions)?);
        let broken = |e: EnvError| -> Box<dyn Env> { Box::new(Broken(e)) };
        let problems = check_env(|| {
            let env = make(&make_env, &exceptions).unwrap_or_else(broken);
            Box::new(Stoppable { env, stop: stopping.clone() })
        });
        Ok(problems.iter().map(ToString::to_string).collect())
    };
    let checked = in_background(py, &stop, &raised, kill.as_ref(), work, |_| Ok(true));
    let mut kept = raised.lock().unwrap_or_else(PoisonError::into_inner);
    match kept.take() {
        // `make` failed for the first time
        _ if checked.is_err() => checked,
        Some((cause, place)) => {
            drop(kept);
            let text = format!("{place}: {cause}");
            Err(with_cause(py, error::EpoError::new_err(text), &Arc::new(Mutex::new(Some((cause, place))))))
        }
        None => checked,
    }
}

/// An environment that fails once `stop` is set.
struct Stoppable {
    env: Box<dyn Env>,
    stop: Arc<AtomicBool>,
}

impl Stoppable {
    fn go_on(&self) -> Result<(), EnvError> {
        if self.stop.load(Relaxed) { Err(EnvError::Other("interrupted".to_owned())) } else { Ok(()) }
    }
}

impl Env for Stoppable {
    fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.go_on()?;
        self.env.reset(seed, obs)
    }
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.go_on()?;
        self.env.step(action, obs)
    }
}

/// Takes the exception that was kept.
fn take(raised: &Raised) -> Option<(PyErr, String)> {
    raised.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A placeholder for an environment that could not be made a second time.
struct Broken(EnvError);

impl Env for Broken {
    fn spec(&self) -> &EnvSpec {
        static SPEC: EnvSpec = EnvSpec {
            id: String::new(),
            obs_len: 1,
            action: ActionSpace::Discrete { n: 1 },
            max_steps: 1,
            cost_terms: Vec::new(),
        };
        &SPEC
    }
    fn reset(&mut self, _: u64, _: &mut [f64]) -> Result<(), EnvError> {
        Err(self.0.clone())
    }
    fn step(&mut self, _: &[f64], _: &mut [f64]) -> Result<Step, EnvError> {
        Err(self.0.clone())
    }
}
