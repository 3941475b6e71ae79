//! A trained policy.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use epo_core::{ActionSpace, Purpose, Stream};
use epo_lab::evaluate::ActionMode;
use epo_lab::trained::TrainedPolicy;
use epo_lab::{onnx, runs};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{ending, env, error};

/// Policy, critics and normaliser of a run.
#[pyclass(module = "epo._epo", frozen)]
#[derive(Debug)]
pub(crate) struct Policy {
    policy: TrainedPolicy,
    stream: Mutex<Stream>,
}

fn mode(deterministic: bool) -> ActionMode {
    if deterministic { ActionMode::Mean } else { ActionMode::Sampled }
}

impl Policy {
    /// The rows of an array, which must be finite observations.
    fn rows<'a>(&self, obs: &'a PyReadonlyArray2<'_, f64>) -> PyResult<&'a [f64]> {
        let (got, want) = (obs.shape()[1], self.policy.spec().obs_len);
        if got != want {
            return Err(PyValueError::new_err(format!("an observation has {want} entries, not {got}")));
        }
        let rows = obs.as_slice()?;
        match rows.iter().position(|x| !x.is_finite()) {
            None => Ok(rows),
            Some(i) => Err(PyValueError::new_err(format!(
                "entry {} of observation {} is {}",
                i % want,
                i / want,
                rows[i]
            ))),
        }
    }
}

#[pymethods]
impl Policy {
    #[new]
    fn new(py: Python<'_>, dir: PathBuf) -> PyResult<Self> {
        let policy = ending::detached(py, || TrainedPolicy::load(&dir)).map_err(|e| error::lab(&e))?;
        let stream = Mutex::new(Stream::new(policy.config().run.seed, Purpose::Action, 0));
        Ok(Self { policy, stream })
    }

    #[getter]
    fn obs_len(&self) -> usize {
        self.policy.spec().obs_len
    }

    #[getter]
    fn task(&self) -> String {
        self.policy.spec().id.clone()
    }

    #[getter]
    fn hash(&self) -> String {
        self.policy.hash().to_owned()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.policy.notes().to_vec()
    }

    /// Number of discrete actions; `None` if the actions are a box.
    #[getter]
    fn n_actions(&self) -> Option<usize> {
        match self.policy.spec().action {
            ActionSpace::Discrete { n } => Some(n),
            ActionSpace::Box { .. } => None,
        }
    }

    #[getter]
    fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        env::bounds(&self.policy.spec().action)
    }

    /// State of the algorithm besides its networks, as JSON.
    #[getter]
    fn algorithm_state(&self) -> String {
        self.policy.algorithm_state().to_string()
    }

    /// Sets the seed of the random numbers of sampled actions.
    fn seed(&self, seed: u64) {
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Stream::new(seed, Purpose::Action, 0);
    }

    /// Actions for the rows of `obs`.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        obs: PyReadonlyArray2<'py, f64>,
        deterministic: bool,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows = self.rows(&obs)?;
        let actions = ending::detached(py, || {
            let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            self.policy.actions(rows, mode(deterministic), &mut stream)
        });
        let n = self.policy.spec().action.len();
        PyArray1::from_vec(py, actions).reshape([obs.shape()[0], n])
    }

    /// Estimates of the critics for the rows of `obs`, by name.
    fn values<'py>(&self, py: Python<'py>, obs: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyDict>> {
        let rows = self.rows(&obs)?;
        let all = PyDict::new(py);
        for (name, values) in ending::detached(py, || self.policy.values(rows)) {
            all.set_item(name, PyArray1::from_vec(py, values))?;
        }
        Ok(all)
    }

    /// Writes the policy as an ONNX file.
    fn export_onnx(&self, py: Python<'_>, path: PathBuf, deterministic: bool) -> PyResult<()> {
        let write = || runs::write_whole(&path, &onnx::export(&self.policy, mode(deterministic)));
        ending::detached(py, write).map_err(|e| error::lab(&e))
    }
}
