//! Steps many environments in parallel on a fixed number of threads.
//!
//! Each environment has its own seeds, buffers and counters, and environments share no state. Therefore the results
//! do not depend on the number of threads or on their scheduling.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rayon::prelude::*;

use crate::{Env, EnvError, Purpose, Step, Stream};

/// Returns the seed of an episode. It is smaller than 2³².
///
/// The seed depends only on the arguments, so a resumed run plays the same episodes.
pub fn episode_seed(run_seed: u64, purpose: Purpose, env: u32, episode: u64) -> u64 {
    Stream::at(run_seed, purpose, env, episode).next_u64() >> 32
}

/// One environment of a pool, with its current observation and its counters.
pub struct Slot {
    env: Box<dyn Env>,
    index: u32,
    run_seed: u64,
    purpose: Purpose,
    episode: u64,
    seed: u64,
    steps: usize,
    obs: Vec<f64>,
    final_obs: Vec<f64>,
    failure: Option<EnvFailure>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { index, episode, seed, steps, .. } = self;
        write!(f, "Slot {{ {} #{index}, episode {episode}, seed {seed}, step {steps} }}", self.env.spec().id)
    }
}

/// The error of an environment that failed: task, environment, seed, step and cause.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{task}: environment {env} failed at step {step} of the episode with seed {seed}: {cause}")]
pub struct EnvFailure {
    /// Task id.
    pub task: String,
    /// Index of the environment.
    pub env: u32,
    /// Seed of the episode.
    pub seed: u64,
    /// Number of steps that the episode had completed before the failure.
    pub step: usize,
    /// The returned error, or the message of the panic.
    pub cause: EnvError,
}

impl Slot {
    /// Index of the environment: its place in the pool, unless the pool is [numbered](EnvPool::numbered) otherwise.
    pub fn index(&self) -> u32 {
        self.index
    }
    /// The environment.
    pub fn env(&self) -> &dyn Env {
        &*self.env
    }
    /// The current observation, from which the policy computes the next action.
    pub fn obs(&self) -> &[f64] {
        &self.obs
    }
    /// The final observation of the last finished episode, before the automatic reset.
    pub fn final_obs(&self) -> &[f64] {
        &self.final_obs
    }
    /// Number of the current episode. The first episode has number 0.
    pub fn episode(&self) -> u64 {
        self.episode
    }
    /// Number of completed steps of the current episode.
    pub fn steps(&self) -> usize {
        self.steps
    }
    /// Seed of the current episode.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Starts episode number `episode`.
    pub fn start(&mut self, episode: u64) -> Result<(), EnvError> {
        self.episode = episode;
        self.seed = episode_seed(self.run_seed, self.purpose, self.index, episode);
        self.steps = 0;
        self.env.reset(self.seed, &mut self.obs)?;
        check_finite("observation", &self.obs)
    }

    /// Takes one step. If the step ends the episode, the next episode starts automatically, and
    /// [`final_obs`](Self::final_obs) holds the final observation of the ended one.
    ///
    /// Returns an error if an observation, reward or cost is not finite, so that no NaN reaches a network.
    pub fn step(&mut self, action: &[f64]) -> Result<Step, EnvError> {
        let step = self.env.step(action, &mut self.obs)?;
        check_finite("observation", &self.obs)?;
        check_finite("reward", &[step.reward])?;
        check_finite("cost", &[step.cost])?;
        self.steps += 1;
        if step.outcome.is_done() {
            self.final_obs.copy_from_slice(&self.obs);
            self.start(self.episode + 1)?;
        }
        Ok(step)
    }
}

/// A set of environments and the threads that step them.
pub struct EnvPool {
    slots: Vec<Slot>,
    threads: rayon::ThreadPool,
}

impl std::fmt::Debug for EnvPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "EnvPool {{ {} environments, {} threads }}",
            self.slots.len(),
            self.threads.current_num_threads()
        )
    }
}

impl EnvPool {
    /// Creates a pool whose episode seeds derive from `run_seed` and `purpose`. Call [`start`](Self::start) to begin
    /// the first episodes.
    pub fn new(
        envs: Vec<Box<dyn Env>>,
        threads: usize,
        run_seed: u64,
        purpose: Purpose,
    ) -> Result<Self, EnvError> {
        Self::numbered(envs, 0, threads, run_seed, purpose)
    }

    /// Creates a pool whose environments have the indices `first`, `first` + 1, …: a part of the
    /// environments of a run. The index decides the seeds of the episodes. Otherwise it is
    /// [`new`](Self::new).
    pub fn numbered(
        envs: Vec<Box<dyn Env>>,
        first: u32,
        threads: usize,
        run_seed: u64,
        purpose: Purpose,
    ) -> Result<Self, EnvError> {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|i| format!("env-{i}"))
            .build()
            .map_err(|e| EnvError::Other(format!("threads could not be started: {e}")))?;
        let slot = |(index, env): (u32, Box<dyn Env>)| {
            let n = env.spec().obs_len;
            Slot {
                env,
                index,
                run_seed,
                purpose,
                episode: 0,
                seed: 0,
                steps: 0,
                obs: vec![0.0; n],
                final_obs: vec![0.0; n],
                failure: None,
            }
        };
        Ok(Self { slots: (first..).zip(envs).map(slot).collect(), threads })
    }

    /// The environments, sorted by index.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The thread pool. It can be used for other work between rollouts.
    pub fn threads(&self) -> &rayon::ThreadPool {
        &self.threads
    }

    /// Starts episode 0 in every environment.
    pub fn start(&mut self) -> Result<(), EnvFailure> {
        let mut none = vec![(); self.slots.len()];
        self.run(&mut none, |slot, ()| slot.start(0))
    }

    /// Runs `job` once for every environment of the pool: the `i`-th one gets `work[i]`.
    ///
    /// If one environment returns an error or panics, the others still finish their jobs. The function then returns
    /// the failure with the smallest index, with task, seed and step. Call [`Slot::start`] on the failed environment
    /// before its next step.
    ///
    /// # Panics
    /// If the length of `work` is not the number of environments.
    pub fn run<W: Send>(
        &mut self,
        work: &mut [W],
        job: impl Fn(&mut Slot, &mut W) -> Result<(), EnvError> + Sync,
    ) -> Result<(), EnvFailure> {
        assert_eq!(work.len(), self.slots.len(), "one piece of work per environment");
        let slots = &mut self.slots;
        self.threads.install(|| {
            slots.par_iter_mut().zip(work.par_iter_mut()).with_max_len(1).for_each(|(slot, piece)| {
                let cause = match catch_unwind(AssertUnwindSafe(|| job(slot, piece))) {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error),
                    Err(panic) => Some(EnvError::Panicked(panic_message(&*panic).to_owned())),
                };
                slot.failure = cause.map(|cause| EnvFailure {
                    task: slot.env.spec().id.clone(),
                    env: slot.index,
                    seed: slot.seed,
                    step: slot.steps,
                    cause,
                });
            });
        });
        self.slots.iter_mut().find_map(|slot| slot.failure.take()).map_or(Ok(()), Err)
    }
}

fn check_finite(what: &str, values: &[f64]) -> Result<(), EnvError> {
    match values.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(i) if values.len() > 1 => {
            Err(EnvError::NotFinite { what: format!("entry {i} of the {what}"), value: values[i] })
        }
        Some(_) => Err(EnvError::NotFinite { what: format!("the {what}"), value: values[0] }),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionSpace, EnvSpec, Outcome};

    /// An environment whose episodes have five steps. At step `bad`, the value that `what` names is NaN.
    struct Broken {
        spec: EnvSpec,
        t: usize,
        bad: usize,
        what: &'static str,
    }

    impl Env for Broken {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }
        fn reset(&mut self, _: u64, obs: &mut [f64]) -> Result<(), EnvError> {
            self.t = 0;
            obs.fill(0.0);
            Ok(())
        }
        fn step(&mut self, _: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
            self.t += 1;
            let bad = |what| if self.what == what && self.t == self.bad { f64::NAN } else { 0.0 };
            assert!(bad("panic").is_finite(), "on purpose");
            obs[1] = bad("observation");
            let outcome = if self.t == 5 { Outcome::Truncated } else { Outcome::Running };
            Ok(Step { reward: bad("reward"), cost: bad("cost"), outcome })
        }
    }

    #[test]
    fn a_number_that_is_not_finite_names_task_seed_and_step() {
        // step 5 is the last step of the episode; the automatic reset must not hide the NaN
        for (what, says) in [
            ("observation", "entry 1 of the observation is NaN"),
            ("reward", "the reward is NaN"),
            ("cost", "the cost is NaN"),
            ("panic", "panicked: on purpose"),
        ] {
            let action = ActionSpace::symmetric(1);
            let spec = EnvSpec { id: "Broken".into(), obs_len: 2, action, max_steps: 5, cost_terms: vec![] };
            let env = Box::new(Broken { spec, t: 0, bad: 5, what });
            let mut pool = EnvPool::new(vec![env], 1, 3, Purpose::Episode).unwrap();
            pool.start().unwrap();
            let walk = |slot: &mut Slot, (): &mut ()| (0..9).try_for_each(|_| slot.step(&[0.0]).map(|_| ()));
            let failure = pool.run(&mut [()], walk).unwrap_err();
            assert_eq!((failure.task.as_str(), failure.env, failure.step), ("Broken", 0, 4));
            assert_eq!(failure.seed, episode_seed(3, Purpose::Episode, 0, 0));
            assert!(failure.to_string().ends_with(says), "{failure}");
        }
    }
}
