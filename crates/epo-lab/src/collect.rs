//! Collecting a rollout: environments and the actor, nothing else.
//!
//! Each environment is stepped by a job of its own on the pool's threads, writes into its own rows of the rollout and
//! draws its actions from its own stream, so neither the threads nor their order reach a number. The normaliser is
//! frozen meanwhile; what the environments saw is merged into it afterwards, in their order. Critics are evaluated
//! later, in bulk. Nothing is allocated while stepping.

use epo_algos::{Lane, Rollout};
use epo_core::{ActionSpace, Env, EnvError, EnvPool, Purpose, Slot, Stream};
use epo_nn::{Moments, Normalizer, Policy, PolicyWorkspace};

use crate::LabError;
use crate::episodes::Episode;

/// Makes one environment of a run; called once per environment, and again for evaluations.
pub type MakeEnv<'a> = dyn Fn() -> Result<Box<dyn Env>, LabError> + 'a;

/// From a policy's action to an environment's: a box is reached from [−1, 1] by an affine map, without squashing or
/// clipping, as OmniSafe does; an index stays an index.
#[derive(Clone, Debug)]
pub struct ActionMap {
    centre: Vec<f64>,
    half: Vec<f64>,
}

impl ActionMap {
    /// For an action space.
    pub fn new(space: &ActionSpace) -> Self {
        match space {
            ActionSpace::Box { low, high } => Self {
                centre: low.iter().zip(high).map(|(l, h)| (l + h) / 2.0).collect(),
                half: low.iter().zip(high).map(|(l, h)| (h - l) / 2.0).collect(),
            },
            ActionSpace::Discrete { .. } => Self { centre: vec![0.0], half: vec![1.0] },
        }
    }

    /// Length of an action.
    pub fn len(&self) -> usize {
        self.centre.len()
    }

    /// Whether an action has no entry.
    pub fn is_empty(&self) -> bool {
        self.centre.is_empty()
    }

    /// Writes the environment's action.
    pub fn apply(&self, chosen: &[f32], action: &mut [f64]) {
        for i in 0..action.len() {
            action[i] = self.centre[i] + self.half[i] * f64::from(chosen[i]);
        }
    }
}

/// What one environment keeps beside its simulator: everything about it that a checkpoint holds.
#[derive(Debug)]
pub struct Worker {
    /// Action noise.
    pub(crate) stream: Stream,
    /// The running episode.
    pub(crate) running: Episode,
    /// Its actions as the policy chose them, to be replayed after a resume.
    pub(crate) replay: Vec<f32>,
    /// Episodes that finished in this epoch, with the step (1-based, of this environment, in this epoch).
    pub(crate) finished: Vec<(u64, Episode)>,
    /// What the environment saw in this epoch.
    seen: Moments,
    map: ActionMap,
    ws: PolicyWorkspace,
    obs: Vec<f32>,
    chosen: Vec<f32>,
    action: Vec<f64>,
}

/// Fills a rollout with the policy's steps, and merges what was seen into the normaliser.
///
/// Episodes go on from rollout to rollout; no environment is reset at its beginning.
pub(crate) fn collect(
    pool: &mut EnvPool,
    workers: &mut [Worker],
    policy: &Policy,
    normalizer: &mut Normalizer,
    normalize: bool,
    rollout: &mut Rollout,
) -> Result<(), LabError> {
    let frozen = &*normalizer;
    let mut work: Vec<_> = workers.iter_mut().zip(rollout.lanes()).collect();
    pool.run(&mut work, |slot, (worker, lane)| worker.fill(slot, policy, frozen, lane))?;
    if normalize {
        workers.iter().for_each(|worker| normalizer.merge(&worker.seen));
    }
    Ok(())
}

impl Worker {
    /// The worker of environment `index`.
    pub(crate) fn new(seed: u64, index: u32, env: &dyn Env, policy: &Policy) -> Self {
        let spec = env.spec();
        let map = ActionMap::new(&spec.action);
        Self {
            stream: Stream::new(seed, Purpose::Action, index),
            running: Episode::default(),
            replay: Vec::with_capacity(spec.max_steps.min(10_000) * policy.action_len()), // grows if need be
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

    /// Brings an environment to where its episode stood: begins it again and repeats its actions.
    pub(crate) fn replay(&mut self, slot: &mut Slot, episode: u64) -> Result<(), EnvError> {
        slot.start(episode)?;
        let actions = std::mem::take(&mut self.replay);
        let result = self.repeat(slot, &actions);
        self.replay = actions;
        result
    }

    /// Steps an environment with actions as the policy chose them, and does nothing else.
    pub(crate) fn repeat(&mut self, slot: &mut Slot, actions: &[f32]) -> Result<(), EnvError> {
        for chosen in actions.chunks_exact(self.action.len()) {
            self.map.apply(chosen, &mut self.action);
            slot.step(&self.action)?;
        }
        Ok(())
    }
}
