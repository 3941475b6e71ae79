//! An environment that is written in Python, as an [`Env`].
//!
//! The Python side (`epo/_adapter.py`) adapts any Gymnasium environment to one interface: `describe()`,
//! `reset(seed)`, `step(action)` and `close()`. An exception is kept, so that the caller of a training sees it
//! as the cause.

use std::sync::{Arc, Mutex, PoisonError};

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step, check_env};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::error;

/// The first exception of an environment.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// An environment that Python steps. Every call takes the interpreter lock.
struct PythonEnv {
    env: Py<PyAny>,
    spec: EnvSpec,
    /// Whether an episode has started and not ended.
    running: bool,
    raised: Raised,
}

/// What `describe()` returns: id, length of an observation, bounds of a box, number of discrete actions, time limit.
type Description = (String, usize, Option<(Vec<f64>, Vec<f64>)>, Option<usize>, usize);

/// Calls `make` and wraps the environment that it returns.
pub(crate) fn make(make: &Py<PyAny>, raised: &Raised) -> Result<Box<dyn Env>, EnvError> {
    Python::attach(|py| {
        let env = make.call0(py)?;
        let (id, obs_len, bounds, n, max_steps): Description =
            env.call_method0(py, "describe")?.extract(py)?;
        let action = match (bounds, n) {
            (Some((low, high)), _) => ActionSpace::Box { low, high },
            (None, n) => ActionSpace::Discrete { n: n.unwrap_or(0) },
        };
        let spec = EnvSpec { id, obs_len, action, max_steps, cost_terms: Vec::new() };
        Ok(Box::new(PythonEnv { env, spec, running: false, raised: raised.clone() }) as Box<dyn Env>)
    })
    .map_err(|e| keep(raised, e))
}

/// Keeps an exception and returns its text as an error.
fn keep(raised: &Raised, error: PyErr) -> EnvError {
    let text = error.to_string();
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    EnvError::Other(text)
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
        self.running = false;
        Python::attach(|py| copy(&self.env.bind(py).call_method1("reset", (seed,))?, obs))
            .map_err(|e| keep(&self.raised, e))?;
        self.running = true;
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        if !self.running {
            return Err(EnvError::NeedsReset);
        }
        self.spec.action.check(action)?;
        self.running = false; // until the step is complete
        let step = Python::attach(|py| {
            let action = PyArray1::from_slice(py, action);
            let result = self.env.bind(py).call_method1("step", (action,))?;
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
        .map_err(|e| keep(&self.raised, e))?;
        self.running = !step.outcome.is_done();
        Ok(step)
    }
}

impl Drop for PythonEnv {
    fn drop(&mut self) {
        // an error while closing an environment is ignored
        Python::attach(|py| self.env.call_method0(py, "close").map(|_| ()).unwrap_or_default());
    }
}

/// Plays a few episodes of a Python environment, and returns one sentence per rule that it breaks.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, make_env: Py<PyAny>) -> PyResult<Vec<String>> {
    let raised = Raised::default();
    // the first environment is made here, because the checker cannot report that `make` fails
    if let Err(error) = py.detach(|| make(&make_env, &raised).map(drop)) {
        return Err(take(&raised).unwrap_or_else(|| error::env(&error)));
    }
    let problems = py.detach(|| {
        let broken = |e: EnvError| -> Box<dyn Env> { Box::new(Broken(e)) };
        check_env(|| make(&make_env, &raised).unwrap_or_else(broken))
    });
    match take(&raised) {
        Some(error) => Err(error),
        None => Ok(problems.iter().map(ToString::to_string).collect()),
    }
}

/// Takes the exception that was kept.
pub(crate) fn take(raised: &Raised) -> Option<PyErr> {
    raised.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A placeholder for an environment that could not be made a second time.
struct Broken(EnvError);

impl Env for Broken {
    fn spec(&self) -> &EnvSpec {
        static SPEC: EnvSpec = EnvSpec {
            id: String::new(),
            obs_len: 0,
            action: ActionSpace::Discrete { n: 0 },
            max_steps: 0,
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
