//! The native part of the Python package `epo`: the module `epo._epo`.
//!
//! It converts between Python and the other crates and has no logic of its own. The Python files in `python/epo` are
//! the interface that users see; this module is private to them. Long calls release the interpreter lock, and a panic
//! becomes a Python exception.

mod bench;
mod ending;
mod env;
mod error;
mod policy;
mod python_env;
mod train;
mod vector;

use std::ffi::OsString;
use std::path::PathBuf;

use epo_core::{Purpose, episode_seed};
use epo_lab::config::{algorithms, params};
use epo_lab::runs;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Sets the folder of the MuJoCo library that the package contains.
#[pyfunction]
fn set_library_dir(dir: PathBuf) {
    epo_mujoco::set_library_dir(dir);
}

/// Runs the command line. `program` is the command that starts it again, `args` begins with the program's name.
#[pyfunction]
fn main(py: Python<'_>, program: Vec<OsString>, args: Vec<OsString>) -> u8 {
    ending::detached(py, || epo_cli::run_as(program, args))
}

/// Returns one dictionary per task.
#[pyfunction]
fn tasks(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let describe = |task: &'static epo_tasks::TaskInfo| {
        let entry = PyDict::new(py);
        entry.set_item("id", &task.id)?;
        entry.set_item("obs_len", task.obs_len)?;
        entry.set_item("act_len", task.act_len)?;
        entry.set_item("max_steps", task.max_steps)?;
        entry.set_item("reward", &task.reward)?;
        entry.set_item("cost", &task.cost)?;
        Ok(entry)
    };
    epo_tasks::tasks().into_iter().map(describe).collect()
}

/// Returns one dictionary per algorithm, with the names and defaults of its parameters as JSON.
#[pyfunction]
fn algos(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let mut all = Vec::new();
    for algo in algorithms() {
        let entry = PyDict::new(py);
        entry.set_item("name", algo.name())?;
        entry.set_item("summary", algo.info().summary)?;
        let table = params(&algo).map_err(|e| error::config(&e))?;
        entry.set_item("params", serde_json::to_string(&table).unwrap_or_default())?;
        all.push(entry);
    }
    Ok(all)
}

/// Returns the seed of episode number `episode` of environment number `env`.
#[pyfunction]
#[pyo3(name = "episode_seed")]
fn next_seed(seed: u64, env: u32, episode: u64) -> u64 {
    episode_seed(seed, Purpose::Episode, env, episode)
}

/// Returns the seed of episode number `episode` that environment number `env` plays in an evaluation.
#[pyfunction]
fn evaluation_seed(seed: u64, env: u32, episode: u64) -> u64 {
    episode_seed(seed, Purpose::Evaluation, env, episode)
}

/// Returns the configuration of a run folder as JSON.
#[pyfunction]
fn read_config(dir: PathBuf) -> PyResult<String> {
    let run = runs::read_config(&dir).map_err(|e| error::lab(&e))?;
    let table: toml::Table = run.to_toml().parse().unwrap_or_default(); // it was made by `to_toml`
    Ok(serde_json::to_string(&table).unwrap_or_default())
}

/// Panics, so that a test can check what Python receives.
#[pyfunction]
fn panic(text: &str) {
    panic!("{text}");
}

/// Returns a message if another version of this program started the run.
#[pyfunction]
fn other_version(dir: PathBuf) -> Option<String> {
    runs::other_version(&dir)
}

/// The module.
#[pymodule(gil_used = false)]
fn _epo(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("EpoError", m.py().get_type::<error::EpoError>())?;
    m.add("ConfigError", m.py().get_type::<error::ConfigError>())?;
    m.add_class::<env::Env>()?;
    m.add_class::<vector::VecEnv>()?;
    m.add_class::<policy::Policy>()?;
    m.add_class::<bench::Pool>()?;
    m.add_function(wrap_pyfunction!(set_library_dir, m)?)?;
    m.add_function(wrap_pyfunction!(main, m)?)?;
    m.add_function(wrap_pyfunction!(ending::end, m)?)?;
    m.add_function(wrap_pyfunction!(tasks, m)?)?;
    m.add_function(wrap_pyfunction!(algos, m)?)?;
    m.add_function(wrap_pyfunction!(next_seed, m)?)?;
    m.add_function(wrap_pyfunction!(evaluation_seed, m)?)?;
    m.add_function(wrap_pyfunction!(read_config, m)?)?;
    m.add_function(wrap_pyfunction!(other_version, m)?)?;
    m.add_function(wrap_pyfunction!(panic, m)?)?;
    m.add_function(wrap_pyfunction!(train::train, m)?)?;
    m.add_function(wrap_pyfunction!(train::evaluate, m)?)?;
    m.add_function(wrap_pyfunction!(python_env::check, m)?)?;
    Ok(())
}
