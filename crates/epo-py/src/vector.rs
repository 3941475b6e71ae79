//! Many environments of one task, stepped by this module's own threads. Results are written
//! directly into the caller's arrays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use epo_core::{Env as _, EnvError, EnvSpec, Outcome, TaskFamily};
use epo_tasks::TaskEnv;
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::{ending, env, error};

/// Environments and the threads that step them.
#[pyclass(module = "epo._epo", frozen)]
#[derive(Debug)]
pub(crate) struct VecEnv {
    spec: EnvSpec,
    num_envs: usize,
    /// Largest seed of an episode.
    max_seed: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    envs: Vec<TaskEnv>,
    threads: usize,
    pool: Option<rayon::ThreadPool>,
    /// Process that started the threads. A forked process has none of these threads.
    pid: u32,
}

impl Inner {
    /// Runs `job` for every element, on the threads.
    fn run<T: Send>(&mut self, jobs: &mut [T], job: impl Fn(&mut T) + Send + Sync) -> Result<(), EnvError> {
        if self.threads == 1 {
            jobs.iter_mut().for_each(job);
            return Ok(());
        }
        if self.pid != std::process::id() {
            std::mem::forget(self.pool.take()); // its threads exist in the parent process only
        }
        if self.pool.is_none() {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
            let failed = |e| EnvError::Other(format!("threads could not be started: {e}"));
            (self.pool, self.pid) = (Some(pool.build().map_err(failed)?), std::process::id());
        }
        if let Some(pool) = &self.pool {
            pool.install(|| jobs.par_iter_mut().with_max_len(1).for_each(job));
        }
        Ok(())
    }
}

/// Turns a panic into an error.
fn guarded<T>(call: impl FnOnce() -> Result<T, EnvError>) -> Result<T, EnvError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".to_owned());
        Err(EnvError::Panicked(text))
    })
}

/// The error with the smallest index, with that index in its text.
fn first_error<'a>(errors: impl Iterator<Item = (usize, &'a Option<EnvError>)>) -> PyResult<()> {
    for (i, error) in errors {
        if let Some(error) = error {
            let text = format!("environment {i}: {error}");
            let is_value = error::env(error);
            return Python::attach(|py| {
                Err(if is_value.is_instance_of::<PyValueError>(py) {
                    PyValueError::new_err(text)
                } else {
                    error::EpoError::new_err(text)
                })
            });
        }
    }
    Ok(())
}

impl VecEnv {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inputs and outputs of one environment in a step.
struct Job<'a> {
    index: usize,
    env: &'a mut TaskEnv,
    action: &'a [f64],
    obs: &'a mut [f64],
    reward: &'a mut f64,
    cost: &'a mut f64,
    terminated: &'a mut bool,
    truncated: &'a mut bool,
    goal_met: &'a mut bool,
    terms: &'a mut [f64],
    error: Option<EnvError>,
}

fn whole<T>(ok: bool, value: T, what: &str) -> PyResult<T> {
    if ok { Ok(value) } else { Err(PyValueError::new_err(format!("{what} has the wrong shape"))) }
}

#[pymethods]
impl VecEnv {
    #[new]
    fn new(py: Python<'_>, task: &str, physics: &str, num_envs: usize, threads: usize) -> PyResult<Self> {
        let physics = env::physics(physics)?;
        let made = ending::detached(py, || {
            let first = epo_tasks::make_with(task, physics)?;
            let rest = (1..num_envs).map(|_| first.try_clone()).collect::<Result<Vec<_>, _>>()?;
            Ok(std::iter::once(first).chain(rest).collect())
        });
        let envs: Vec<TaskEnv> = made.map_err(error::task)?;
        let threads =
            epo_lab::config::threads("threads", threads).map_err(|e| error::config(&e))?.min(num_envs.max(1));
        let (spec, num_envs) = (envs[0].spec().clone(), envs.len());
        let inner = Mutex::new(Inner { envs, threads, pool: None, pid: std::process::id() });
        let is_navigation =
            epo_tasks::task(task).map_err(error::task)?.family() == Some(TaskFamily::Navigation);
        let max_seed = if is_navigation { u64::from(u32::MAX) } else { u64::MAX };
        Ok(Self { spec, num_envs, max_seed, inner })
    }

    #[getter]
    fn obs_len(&self) -> usize {
        self.spec.obs_len
    }

    #[getter]
    fn bounds(&self) -> (Vec<f64>, Vec<f64>) {
        env::bounds(&self.spec.action)
    }

    #[getter]
    fn cost_names(&self) -> Vec<String> {
        self.spec.cost_terms.clone()
    }

    #[getter]
    fn max_steps(&self) -> usize {
        self.spec.max_steps
    }

    #[getter]
    fn threads(&self) -> usize {
        self.lock().threads
    }

    /// Resets the environments `index` with `seeds`, and writes their observations to the rows `index` of `obs`.
    fn reset(
        &self,
        py: Python<'_>,
        index: Vec<usize>,
        seeds: Vec<u64>,
        mut obs: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<()> {
        let obs = obs.as_slice_mut()?;
        let n = self.spec.obs_len;
        let fits = obs.len() == self.num_envs * n && index.len() == seeds.len();
        let in_order = index.windows(2).all(|pair| pair[0] < pair[1]);
        whole(
            fits && in_order && index.last().is_none_or(|&i| i < self.num_envs),
            (),
            "obs, index or seeds",
        )?;
        // all seeds are checked first: a wrong one must not leave some environments reset and others not
        let refused: Vec<_> = seeds
            .iter()
            .map(|&seed| (seed > self.max_seed).then_some(EnvError::SeedTooLarge { seed }))
            .collect();
        first_error(index.iter().copied().zip(&refused))?;
        let result = ending::detached(py, || {
            let mut inner = self.lock();
            let mut envs = std::mem::take(&mut inner.envs);
            let mut wanted = index.iter().zip(&seeds).peekable();
            let mut jobs = Vec::with_capacity(index.len());
            for (i, (env, obs)) in envs.iter_mut().zip(obs.chunks_exact_mut(n)).enumerate() {
                if let Some((_, seed)) = wanted.next_if(|(at, _)| **at == i) {
                    jobs.push((i, env, obs, *seed, None));
                }
            }
            let ran = inner.run(&mut jobs, |(_, env, obs, seed, error)| {
                *error = guarded(|| env.reset(*seed, obs)).err();
            });
            let errors: Vec<_> = jobs.into_iter().map(|(i, .., error)| (i, error)).collect();
            inner.envs = envs;
            ran.map(|()| errors)
        });
        let errors = result.map_err(|e| error::env(&e))?;
        first_error(errors.iter().map(|(i, error)| (*i, error)))
    }

    /// Steps every environment that is not in `skip`, and writes the results to the arrays. Rows of environments that
    /// are skipped keep their values.
    #[allow(clippy::too_many_arguments, reason = "one array per result")]
    fn step(
        &self,
        py: Python<'_>,
        actions: PyReadonlyArray2<'_, f64>,
        skip: PyReadonlyArray1<'_, bool>,
        mut obs: PyReadwriteArray2<'_, f64>,
        mut reward: PyReadwriteArray1<'_, f64>,
        mut cost: PyReadwriteArray1<'_, f64>,
        mut terminated: PyReadwriteArray1<'_, bool>,
        mut truncated: PyReadwriteArray1<'_, bool>,
        mut goal_met: PyReadwriteArray1<'_, bool>,
        mut terms: PyReadwriteArray2<'_, f64>,
    ) -> PyResult<()> {
        let (actions, skip, obs) = (actions.as_slice()?, skip.as_slice()?, obs.as_slice_mut()?);
        let (reward, cost) = (reward.as_slice_mut()?, cost.as_slice_mut()?);
        let (terminated, truncated) = (terminated.as_slice_mut()?, truncated.as_slice_mut()?);
        let (goal_met, terms) = (goal_met.as_slice_mut()?, terms.as_slice_mut()?);
        let (n, spec) = (self.num_envs, &self.spec);
        let (n_act, n_obs, n_terms) = (spec.action.len(), spec.obs_len, spec.cost_terms.len());
        whole(actions.len() == n * n_act, (), "actions")?;
        let numbers = reward.len() == n && cost.len() == n && terms.len() == n * n_terms;
        let flags = [&*terminated, &*truncated, &*goal_met, skip].iter().all(|a| a.len() == n);
        whole(numbers && flags && obs.len() == n * n_obs, (), "an array")?;
        // all actions are checked first: a wrong one must not leave some environments stepped and others not
        let check =
            |(action, skip): (&[f64], &bool)| if *skip { None } else { spec.action.check(action).err() };
        let refused: Vec<_> = actions.chunks_exact(n_act).zip(skip).map(check).collect();
        first_error(refused.iter().enumerate())?;
        let result = ending::detached(py, || {
            let mut inner = self.lock();
            let mut envs = std::mem::take(&mut inner.envs);
            let mut jobs = Vec::with_capacity(n);
            let rows = envs.iter_mut().zip(actions.chunks_exact(n_act)).zip(obs.chunks_exact_mut(n_obs));
            let rows = rows.zip(reward).zip(cost).zip(terminated).zip(truncated).zip(goal_met);
            let rows = rows.zip(terms.chunks_exact_mut(n_terms)).enumerate();
            for (
                index,
                ((((((((env, action), obs), reward), cost), terminated), truncated), goal_met), terms),
            ) in rows
            {
                if !skip[index] {
                    let error = None;
                    jobs.push(Job {
                        index,
                        env,
                        action,
                        obs,
                        reward,
                        cost,
                        terminated,
                        truncated,
                        goal_met,
                        terms,
                        error,
                    });
                }
            }
            let ran = inner.run(&mut jobs, |job| match guarded(|| job.env.step(job.action, job.obs)) {
                Err(error) => job.error = Some(error),
                Ok(step) => {
                    (*job.reward, *job.cost) = (step.reward, step.cost);
                    *job.terminated = step.outcome == Outcome::Terminated;
                    *job.truncated = step.outcome == Outcome::Truncated;
                    *job.goal_met = job.env.goal_met();
                    job.terms.copy_from_slice(job.env.cost_terms());
                }
            });
            let errors: Vec<_> = jobs.into_iter().map(|job| (job.index, job.error)).collect();
            inner.envs = envs;
            ran.map(|()| errors)
        });
        let errors = result.map_err(|e| error::env(&e))?;
        first_error(errors.iter().map(|(i, error)| (*i, error)))
    }
}
