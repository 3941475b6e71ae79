//! Collection of a rollout with the environments and the policy (the stage *collect* of the training loop).
//!
//! Each environment is stepped by its own job on the threads of the pool. The job writes to its own rows of the rollout
//! and samples actions from its own random stream. The result therefore does not depend on the number of threads. The
//! normaliser is constant during the collection. Afterwards the observations are merged into it, in the order of the
//! environments. The critics are evaluated later, on the whole batch. The step loop does not allocate memory.

use epo_algos::{Lane, Rollout};
use epo_core::{ActionSpace, Env, EnvError, EnvPool, EnvSpec, Purpose, Slot, Stream};
use epo_nn::{Moments, Normalizer, Policy, PolicyWorkspace};

use crate::LabError;
use crate::config::ResolvedRun;
use crate::episodes::{Episode, FinishedEpisode};

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
    /// Random stream of the actions.
    pub(crate) stream: Stream,
    /// Return, cost and length of the running episode up to now.
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
    pub(crate) pool: EnvPool,
    pub(crate) workers: Vec<Worker>,
    pub(crate) normalizer: Normalizer,
    pub(crate) rollout: Rollout,
    normalize: bool,
}

impl Collector {
    /// Returns a collector for the environments of `pool` and policies of the shape of `policy`. The normaliser has
    /// seen no observation yet.
    pub(crate) fn new(pool: EnvPool, policy: &Policy, run: &ResolvedRun) -> Self {
        let (seed, train) = (run.run.seed, &run.train);
        let slots = pool.slots().iter();
        let workers = slots.map(|slot| Worker::new(seed, slot.index(), slot.env(), policy)).collect();
        let obs_len = pool.slots()[0].env().spec().obs_len;
        let steps = train.steps_per_epoch / train.envs;
        let rollout = Rollout::new(train.envs, steps, obs_len, policy.action_len());
        Self { pool, workers, normalizer: Normalizer::new(obs_len), rollout, normalize: train.normalize_obs }
    }

    /// Returns the specification of the environments.
    pub(crate) fn spec(&self) -> &EnvSpec {
        self.pool.slots()[0].env().spec()
    }

    /// Fills the rollout with `steps` steps of the policy, over all environments, and merges the observations into the
    /// normaliser.
    ///
    /// Episodes continue from rollout to rollout; no environment is reset at the beginning.
    pub(crate) fn collect(&mut self, policy: &Policy, steps: usize) -> Result<(), LabError> {
        let Self { pool, workers, normalizer, rollout, normalize } = self;
        rollout.set_steps(steps / workers.len());
        let frozen = &*normalizer;
        let mut work: Vec<_> = workers.iter_mut().zip(rollout.lanes()).collect();
        pool.run(&mut work, |slot, (worker, lane)| worker.fill(slot, policy, frozen, lane))?;
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

impl Worker {
    /// Returns the worker of environment `index` at the start of a run.
    pub(crate) fn new(seed: u64, index: u32, env: &dyn Env, policy: &Policy) -> Self {
        let spec = env.spec();
        let map = ActionMap::new(&spec.action);
        Self {
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

    /// Restores an environment to its state at the checkpoint: starts the episode and repeats its actions.
    pub(crate) fn replay(&mut self, slot: &mut Slot, episode: u64) -> Result<(), EnvError> {
        slot.start(episode)?;
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
