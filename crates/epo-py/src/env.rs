//! One environment of a task that MuJoCo simulates.

use std::sync::{Mutex, MutexGuard, PoisonError};

use epo_core::{ActionSpace, Env as _, Outcome};
use epo_tasks::{Physics, TaskEnv};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::{ending, error};

/// Observation, reward, cost, terminated, truncated.
type StepResult<'py> = (Bound<'py, PyArray1<f64>>, f64, f64, bool, bool);

/// An environment, with the seed and the actions that repeat its running episode.
#[pyclass(module = "epo._epo", frozen)]
#[derive(Debug)]
pub(crate) struct Env {
    physics: Physics,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    env: TaskEnv,
    obs: Vec<f64>,
    /// Seed of the running episode.
    seed: Option<u64>,
    /// Actions of the running episode.
    actions: Vec<f64>,
}

/// Parses the name of a physics simulation.
pub(crate) fn physics(name: &str) -> PyResult<Physics> {
    name.parse().map_err(|e: epo_tasks::UnknownPhysics| error::ConfigError::new_err(e.to_string()))
}

/// Lower and upper bounds of the actions. The tasks that MuJoCo simulates have no discrete actions.
pub(crate) fn bounds(space: &ActionSpace) -> (Vec<f64>, Vec<f64>) {
    match space {
        ActionSpace::Box { low, high } => (low.clone(), high.clone()),
        ActionSpace::Discrete { n } => (vec![0.0], vec![*n as f64 - 1.0]),
    }
}

impl Env {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Env {
    #[new]
    fn new(py: Python<'_>, task: &str, physics: &str) -> PyResult<Self> {
        let physics = self::physics(physics)?;
        let env = ending::detached(py, || epo_tasks::make_with(task, physics)).map_err(error::task)?;
        let obs = vec![0.0; env.spec().obs_len];
        let inner = Mutex::new(Inner { env, obs, seed: None, actions: Vec::new() });
        Ok(Self { physics, inner })
    }

    #[getter]
    fn id(&self) -> String {
        self.lock().env.spec().id.clone()
    }

    #[getter]
    fn physics(&self) -> String {
        self.physics.to_string()
    }

    #[getter]
    fn obs_len(&self) -> usize {
        self.lock().obs.len()
    }

    #[getter]
    fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        bounds(&self.lock().env.spec().action)
    }

    #[getter]
    fn max_steps(&self) -> usize {
        self.lock().env.spec().max_steps
    }

    #[getter]
    fn cost_names(&self) -> Vec<String> {
        self.lock().env.spec().cost_terms.clone()
    }

    fn reset<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let obs = ending::detached(py, || {
            let Inner { env, obs, seed: begun, actions } = &mut *self.lock();
            actions.clear();
            *begun = None;
            env.reset(seed, obs)?;
            *begun = Some(seed);
            Ok(obs.clone())
        });
        Ok(PyArray1::from_vec(py, obs.map_err(|e| error::env(&e))?))
    }

    fn step<'py>(&self, py: Python<'py>, action: PyReadonlyArray1<'py, f64>) -> PyResult<StepResult<'py>> {
        let action = action.as_slice()?;
        let done = ending::detached(py, || {
            let Inner { env, obs, actions, .. } = &mut *self.lock();
            let step = env.step(action, obs)?;
            actions.extend_from_slice(action);
            Ok((obs.clone(), step))
        });
        let (obs, step) = done.map_err(|e| error::env(&e))?;
        let (terminated, truncated) =
            (step.outcome == Outcome::Terminated, step.outcome == Outcome::Truncated);
        Ok((PyArray1::from_vec(py, obs), step.reward, step.cost, terminated, truncated))
    }

    /// Parts of the cost of the last step, in the order of `cost_names`.
    fn cost_terms(&self) -> Vec<f64> {
        self.lock().env.cost_terms().to_vec()
    }

    /// Whether the last step met the goal.
    #[getter]
    fn goal_met(&self) -> bool {
        self.lock().env.goal_met()
    }

    /// Seed and actions (one row per step) of the running episode; `None` before the first reset.
    fn episode<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyArray2<f64>>)>> {
        let inner = self.lock();
        let Some(seed) = inner.seed else { return Ok(None) };
        let n = inner.env.spec().action.len();
        let flat = PyArray1::from_slice(py, &inner.actions);
        Ok(Some((seed, flat.reshape([inner.actions.len() / n, n])?)))
    }

    /// The model of the present episode as MJCF.
    fn mjcf(&self, py: Python<'_>) -> PyResult<String> {
        ending::detached(py, || self.lock().env.mjcf()).map_err(error::task)
    }

    /// Generalised positions and velocities of the simulator.
    fn state<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>) {
        let inner = self.lock();
        (PyArray1::from_slice(py, inner.env.qpos()), PyArray1::from_slice(py, inner.env.qvel()))
    }

    /// Position and orientation (w, x, y, z) of every body.
    fn body_poses(&self) -> (Vec<[f64; 3]>, Vec<[f64; 4]>) {
        self.lock().env.body_poses().unzip()
    }
}
