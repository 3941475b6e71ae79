//! The learned networks of a checkpoint and the state of its environments, for reading only.
//!
//! [`crate::train::Trainer`] continues a run; a [`Snapshot`] only reads it and needs no lock.

use std::path::Path;

use epo_algos::Agent;
use epo_core::{EnvSpec, Purpose, Stream};
use epo_nn::Normalizer;

use crate::LabError;
use crate::checkpoint::{self, LoadedCheckpoint};
use crate::config::ResolvedRun;
use crate::state::{Learner, fits, from_files};

/// Policy, critics and normaliser of a checkpoint, and the running episode of every environment.
#[derive(Debug)]
pub struct Snapshot {
    /// Policy and critics.
    pub agent: Agent,
    /// Normaliser of the observations.
    pub normalizer: Normalizer,
    /// State of the algorithm: its multipliers and penalty factors.
    pub algorithm: serde_json::Value,
    /// Number of environment steps of the run up to the checkpoint.
    pub steps: u64,
    /// The running episode of each environment.
    pub running: Vec<RunningEpisode>,
    /// The checkpoint itself.
    pub loaded: LoadedCheckpoint,
}

/// The episode that an environment was playing when the checkpoint was written.
#[derive(Clone, Debug)]
pub struct RunningEpisode {
    /// Number of the episode, from 0. With seed and environment it gives the seed of the episode.
    pub number: u64,
    /// Actions up to the checkpoint, one after the other, as the policy chose them.
    pub actions: Vec<f32>,
    /// Random stream of the actions after the checkpoint.
    pub stream: Stream,
}

impl Snapshot {
    /// Reads checkpoint `number` of a run folder, or its newest intact one.
    ///
    /// # Errors
    /// If there is no such checkpoint, if it is damaged, or if its sizes are not those of `run` and `spec`.
    pub fn read(
        dir: &Path,
        run: &ResolvedRun,
        spec: &EnvSpec,
        number: Option<u64>,
    ) -> Result<Self, LabError> {
        let root = dir.join("checkpoint");
        let loaded = match number {
            Some(number) => checkpoint::load_number(&root, number, fits)?,
            None => checkpoint::load(&root, fits)?,
        };
        Self::restore(loaded, run, spec).map_err(|why| LabError::run(&root, why))
    }

    fn restore(loaded: LoadedCheckpoint, run: &ResolvedRun, spec: &EnvSpec) -> Result<Self, String> {
        let (state, tensors) = from_files(&loaded.files)?;
        let (hidden, critics, seed) = (&run.train.hidden, run.algo.cost_critics(), run.run.seed);
        tensors.check_widths(spec.obs_len, hidden)?; // before memory is taken for networks of these widths
        let mut agent = Agent::new(spec.obs_len, &spec.action, hidden, hidden, critics, seed);
        let mut algorithm = run.build().map_err(|e| e.to_string())?;
        let mut normalizer = Normalizer::new(spec.obs_len);
        let learner = Learner { agent: &mut agent, algorithm: &mut *algorithm, normalizer: &mut normalizer };
        learner.restore(&state, &tensors)?;
        let running = state.envs.iter().enumerate().map(|(i, env)| {
            let stream = Stream::at(seed, Purpose::Action, i as u32, env.stream);
            Ok(RunningEpisode { number: env.episode, actions: tensors.replay(i)?.to_vec(), stream })
        });
        let running = running.collect::<Result<_, String>>()?;
        Ok(Self { agent, normalizer, algorithm: algorithm.state(), steps: state.steps, running, loaded })
    }
}
