//! Collection of a rollout with the environments and the policy (the stage *collect* of the training loop).
//!
//! Each environment is stepped by its own job on the threads of the pool. The job writes to its own rows of the rollout
//! and samples actions from its own random stream. The result therefore does not depend on the number of threads. The
//! normaliser is constant during the collection. Afterwards the observations are merged into it, in the order of the
//! environments. The critics are evaluated later, on the whole batch. The step loop does not allocate memory.
//!
//! If a run has several ranks, each steps its share of the environments, and then the ranks exchange the
//! results. After that, every rank has the same data as a run on one rank.

use std::ops::Range;

use epo_algos::{Lane, Rollout};
use epo_core::{
    ActionSpace, Env, EnvError, EnvFailure, EnvPool, EnvSpec, Purpose, Slot, Stream, WireError, WireReader,
    WireWriter,
};
use epo_nn::{Moments, Normalizer, Policy, PolicyWorkspace};

use crate::LabError;
use crate::config::ResolvedRun;
use crate::episodes::{Episode, FinishedEpisode};
use crate::ranks::{Ranks, read_failure, share, write_failure};

/// Makes one environment of a run. It is called once per environment, and again for evaluations.
pub type MakeEnv<'a> = dyn Fn() -> Result<Box<dyn Env>, LabError> + 'a;

/// The map from the action of a policy to the action of an environment.
///
/// For a box, an affine map takes [−1, 1] to the bounds, without squashing or clipping, as in OmniSafe. A discrete
/// action is not changed.
#[derive(Clone, Debug)]
pub struct ActionMap {
    centre: Vec<f64>,
    half: Vec<f64>,
}

impl ActionMap {
    /// Returns the map to an action space.
    pub fn new(space: &ActionSpace) -> Self {
        match space {
            ActionSpace::Box { low, high } => Self {
                centre: low.iter().zip(high).map(|(l, h)| (l + h) / 2.0).collect(),
                half: low.iter().zip(high).map(|(l, h)| (h - l) / 2.0).collect(),
            },
            ActionSpace::Discrete { .. } => Self { centre: vec![0.0], half: vec![1.0] },
        }
    }

    /// Number of entries of an action.
    pub fn len(&self) -> usize {
        self.centre.len()
    }

    /// Returns true if an action has no entries.
    pub fn is_empty(&self) -> bool {
        self.centre.is_empty()
    }

    /// Maps the action `chosen` of the policy and writes the result to `action`.
    pub fn apply(&self, chosen: &[f32], action: &mut [f64]) {
        for i in 0..action.len() {
            action[i] = self.centre[i] + self.half[i] * f64::from(chosen[i]);
        }
    }
}

/// The state of one environment, without its simulator. A checkpoint contains everything that the next rollout needs.
#[derive(Debug)]
pub struct Worker {
    /// Number of the running episode.
    pub(crate) episode: u64,
    /// Random stream of the actions.
    pub(crate) stream: Stream,
    /// Return, cost and length of the running episode so far.
    pub(crate) running: Episode,
    /// Actions of the running episode as the policy chose them. A resumed run replays them.
    pub(crate) replay: Vec<f32>,
    /// Episodes that finished in this epoch, each with the step at which it ended. Steps of this environment in this
    /// epoch are counted from 1.
    finished: Vec<(u64, Episode)>,
    /// Moments of the observations of this epoch.
    seen: Moments,
    map: ActionMap,
    ws: PolicyWorkspace,
    obs: Vec<f32>,
    chosen: Vec<f32>,
    action: Vec<f64>,
}

/// The environments of a run with their workers, the normaliser and the rollout.
#[derive(Debug)]
pub(crate) struct Collector {
    /// The environments of this rank.
    pub(crate) pool: EnvPool,
    /// The numbers of the environments of this rank.
    pub(crate) mine: Range<usize>,
    /// The workers of all environments of the run.
    pub(crate) workers: Vec<Worker>,
    pub(crate) normalizer: Normalizer,
    pub(crate) rollout: Rollout,
    normalize: bool,
}

/// The exchange of a rollout between ranks.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) ranks: &'a mut dyn Ranks,
    /// Hash of everything that this rank has before the rollout. All ranks must have the same.
    pub(crate) state: String,
    /// Number of epochs done.
    pub(crate) epoch: u32,
}

impl Collector {
    /// Returns a collector for the environments of `pool`, which are the environments `mine` of the run, and policies of
    /// the shape of `policy`. The normaliser has seen no observation yet.
    pub(crate) fn new(pool: EnvPool, mine: Range<usize>, policy: &Policy, run: &ResolvedRun) -> Self {
        let (seed, train) = (run.run.seed, &run.train);
        let spec = pool.slots()[0].env().spec();
        let workers = (0..train.envs as u32).map(|env| Worker::new(seed, env, spec, policy)).collect();
        let obs_len = spec.obs_len;
        let steps = train.steps_per_epoch / train.envs;
        let rollout = Rollout::new(train.envs, steps, obs_len, policy.action_len());
        let normalizer = Normalizer::new(obs_len);
        Self { pool, mine, workers, normalizer, rollout, normalize: train.normalize_obs }
    }

    /// Returns the specification of the environments.
    pub(crate) fn spec(&self) -> &EnvSpec {
        self.pool.slots()[0].env().spec()
    }

    /// Fills the rollout with `steps` steps of the policy, over all environments, and merges the observations
    /// into the normaliser. The steps of environments on other ranks are received through `exchange`.
    ///
    /// Episodes continue from rollout to rollout; no environment is reset at the beginning.
    pub(crate) fn collect(
        &mut self,
        policy: &Policy,
        steps: usize,
        exchange: Option<Exchange<'_>>,
    ) -> Result<(), LabError> {
        let Self { pool, mine, workers, normalizer, rollout, normalize } = self;
        rollout.set_steps(steps / workers.len());
        let frozen = &*normalizer;
        let mut lanes = rollout.lanes();
        let mut work: Vec<_> = workers[mine.clone()].iter_mut().zip(&mut lanes[mine.clone()]).collect();
        let filled = pool.run(&mut work, |slot, (worker, lane)| worker.fill(slot, policy, frozen, lane));
        match exchange {
            None => filled?,
            Some(exchange) => exchange.run(filled, workers, &mut lanes)?,
        }
        if *normalize {
            workers.iter().for_each(|worker| normalizer.merge(&worker.seen));
        }
        Ok(())
    }

    /// Returns the episodes that finished in the last rollout, ordered by time and then by environment. `before` is the
    /// number of steps of the run before that rollout.
    pub(crate) fn finished_episodes(&self, before: u64) -> Vec<FinishedEpisode> {
        let n = self.workers.len() as u64;
        let of = |(env, worker): (u32, &Worker)| {
            let at =
                move |&(t, episode): &(u64, Episode)| FinishedEpisode { step: before + t * n, env, episode };
            worker.finished.iter().map(at).collect::<Vec<_>>()
        };
        let mut all: Vec<FinishedEpisode> = (0..).zip(&self.workers).flat_map(of).collect();
        all.sort_by_key(|finished| (finished.step, finished.env));
        all
    }

    /// Returns return, cost and length of the running episode of each environment.
    pub(crate) fn running_episodes(&self) -> Vec<Episode> {
        self.workers.iter().map(|worker| worker.running).collect()
    }
}

impl Exchange<'_> {
    /// Sends the workers and lanes of this rank to all ranks, and fills those of the other ranks.
    ///
    /// # Errors
    /// If an environment of any rank failed. All ranks return the failure of the environment with the smallest
    /// number.
    fn run(
        self,
        filled: Result<(), EnvFailure>,
        workers: &mut [Worker],
        lanes: &mut [Lane<'_>],
    ) -> Result<(), LabError> {
        let Self { ranks, state, epoch } = self;
        let (envs, count, me) = (workers.len(), ranks.count(), ranks.rank());
        let mut message = WireWriter::default();
        message.bytes(state.as_bytes());
        message.u64(u64::from(filled.is_err()));
        match &filled {
            Ok(()) => share(envs, me, count).for_each(|env| {
                workers[env].write(&mut message);
                lanes[env].write(&mut message);
            }),
            Err(failure) => write_failure(failure, &mut message),
        }
        let all = ranks.all_gather(message.finish())?;
        let mut parts = Vec::with_capacity(all.len());
        for bytes in &all {
            let mut part = WireReader::new(bytes);
            parts.push((part.text()?, part.u64()? != 0, part));
        }
        if let Some(rank) = parts.iter().position(|(state, ..)| *state != parts[0].0) {
            return Err(LabError::RanksDiffer { rank, epoch });
        }
        // ranks are ordered by their environments, so the first failure has the smallest number
        if let Some(rank) = parts.iter().position(|(_, failed, _)| *failed) {
            return Err(if rank == me { filled.err() } else { None }
                .map_or_else(|| read_failure(&mut parts[rank].2), Ok)?
                .into());
        }
        for (rank, (_, _, mut part)) in parts.into_iter().enumerate().filter(|(rank, _)| *rank != me) {
            for env in share(envs, rank, count) {
                workers[env].read(&mut part)?;
                lanes[env].read(&mut part)?;
            }
            part.end()?;
        }
        Ok(())
    }
}

impl Worker {
    /// Returns the worker of environment `index` at the start of a run.
    pub(crate) fn new(seed: u64, index: u32, spec: &EnvSpec, policy: &Policy) -> Self {
        let map = ActionMap::new(&spec.action);
        Self {
            episode: 0,
            stream: Stream::new(seed, Purpose::Action, index),
            running: Episode::default(),
            replay: Vec::with_capacity(spec.max_steps.min(10_000) * policy.action_len()), // grows if an episode is longer
            finished: Vec::new(),
            seen: Moments::new(spec.obs_len),
            obs: vec![0.0; spec.obs_len],
            chosen: vec![0.0; policy.action_len()],
            action: vec![0.0; map.len()],
            map,
            ws: policy.workspace(1),
        }
    }

    fn fill(
        &mut self,
        slot: &mut Slot,
        policy: &Policy,
        normalizer: &Normalizer,
        lane: &mut Lane<'_>,
    ) -> Result<(), EnvError> {
        self.finished.clear();
        self.seen.clear();
        let mut t = 0;
        while lane.remaining() > 0 {
            t += 1;
            self.seen.push(slot.obs());
            normalizer.normalize(slot.obs(), &mut self.obs);
            let logp = policy.act(&self.obs, &mut self.ws, &mut self.stream, &mut self.chosen);
            self.map.apply(&self.chosen, &mut self.action);
            let step = slot.step(&self.action)?;
            lane.push(&self.obs, &self.chosen, logp, step);
            self.running.add(step.reward, step.cost);
            self.replay.extend_from_slice(&self.chosen);
            if step.outcome.is_done() {
                self.episode = slot.episode();
                self.finished.push((t, std::mem::take(&mut self.running)));
                self.replay.clear();
                normalizer.normalize(slot.final_obs(), &mut self.obs);
                lane.end(&self.obs);
            } else if lane.remaining() == 0 {
                normalizer.normalize(slot.obs(), &mut self.obs);
                lane.end(&self.obs);
            }
        }
        Ok(())
    }

    /// Appends the state after a rollout to a message for the other ranks.
    fn write(&self, message: &mut WireWriter) {
        message.u64(self.episode);
        message.u64(self.stream.position());
        write_episode(&self.running, message);
        message.f32s(&self.replay);
        message.u64(self.finished.len() as u64);
        for (t, episode) in &self.finished {
            message.u64(*t);
            write_episode(episode, message);
        }
        message.u64(self.seen.count());
        message.f64s(self.seen.mean());
        message.f64s(self.seen.m2());
    }

    /// Takes the state that [`Worker::write`] appended to a message of another rank.
    fn read(&mut self, message: &mut WireReader<'_>) -> Result<(), WireError> {
        self.episode = message.u64()?;
        self.stream = self.stream.clone().moved_to(message.u64()?);
        self.running = read_episode(message)?;
        message.f32_vec(&mut self.replay)?;
        self.finished.clear();
        for _ in 0..message.u64()? {
            self.finished.push((message.u64()?, read_episode(message)?));
        }
        let count = message.u64()?;
        let (mut mean, mut m2) = (vec![0.0; self.obs.len()], vec![0.0; self.obs.len()]);
        message.f64s(&mut mean)?;
        message.f64s(&mut m2)?;
        self.seen = Moments::from_parts(count, mean, m2);
        Ok(())
    }

    /// Restores an environment to its state at the checkpoint: starts the episode and repeats its actions.
    pub(crate) fn replay(&mut self, slot: &mut Slot) -> Result<(), EnvError> {
        slot.start(self.episode)?;
        let actions = std::mem::take(&mut self.replay);
        let result = self.repeat(slot, &actions);
        self.replay = actions;
        result
    }

    /// Steps an environment with given actions of the policy.
    pub(crate) fn repeat(&mut self, slot: &mut Slot, actions: &[f32]) -> Result<(), EnvError> {
        for chosen in actions.chunks_exact(self.action.len()) {
            self.map.apply(chosen, &mut self.action);
            slot.step(&self.action)?;
        }
        Ok(())
    }
}

fn write_episode(episode: &Episode, message: &mut WireWriter) {
    message.f64(episode.ret);
    message.f64(episode.cost);
    message.u64(episode.len);
}

fn read_episode(message: &mut WireReader<'_>) -> Result<Episode, WireError> {
    Ok(Episode { ret: message.f64()?, cost: message.f64()?, len: message.u64()? })
}
