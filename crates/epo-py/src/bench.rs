//! The environments without Python, for the benchmark of the Python package.

use std::sync::{Mutex, PoisonError};

use epo_tasks::bench::PoolBench;
use pyo3::prelude::*;

use crate::{ending, env, error};

/// Environments that native random policies step.
#[pyclass(module = "epo._epo", frozen)]
#[derive(Debug)]
pub(crate) struct Pool(Mutex<PoolBench>);

fn failed(e: impl std::fmt::Display) -> PyErr {
    error::EpoError::new_err(e.to_string())
}

#[pymethods]
impl Pool {
    #[new]
    fn new(py: Python<'_>, task: &str, physics: &str, num_envs: u32, threads: usize) -> PyResult<Self> {
        let physics = env::physics(physics)?;
        let pool =
            ending::detached(py, || PoolBench::new(task, physics, num_envs, threads)).map_err(failed)?;
        Ok(Self(Mutex::new(pool)))
    }

    /// Steps every environment `steps` times.
    fn step(&self, py: Python<'_>, steps: usize) -> PyResult<()> {
        ending::detached(py, || self.0.lock().unwrap_or_else(PoisonError::into_inner).step(steps))
            .map_err(failed)
    }
}
