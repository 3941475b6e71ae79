//! The content of a checkpoint. It contains everything that the next epoch depends on, and nothing that depends on the
//! clock or the machine.
//!
//! `tensors.safetensors` contains the networks and the moments of the optimisers and of the normaliser. For each
//! environment it also contains the actions of the running episode. `state.json` contains the rest. The state of the
//! simulator is not saved: an episode depends only on its seed and its actions, so a resumed run replays it.

use std::collections::BTreeMap;

use epo_algos::{Agent, Algorithm, SignalScales};
use epo_nn::{Moments, Normalizer};
use epo_tasks::Physics;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::checkpoint::sha256;
use crate::collect::{Collector, Worker};
use crate::episodes::{Episode, EpisodeWindow};
use crate::record::Marks;
use crate::train::Trainer;

const STATE: &str = "state.json";
const TENSORS: &str = "tensors.safetensors";

/// The content of `state.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedState {
    pub(crate) task: String,
    pub(crate) algo: String,
    /// Physics of the simulation. It is left out for published physics, so that such files are the same as in version
    /// 0.3.
    #[serde(default, skip_serializing_if = "Physics::is_published")]
    pub(crate) physics: Physics,
    /// Number of epochs done.
    pub(crate) epoch: u32,
    /// Number of environment steps done.
    pub(crate) steps: u64,
    pub(crate) episodes: EpisodeWindow,
    pub(crate) envs: Vec<EnvState>,
    pub(crate) marks: Marks,
    /// Number of update steps of each optimiser.
    adam: BTreeMap<String, u64>,
    /// Units of the critics, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scales: Option<SignalScales>,
    /// Number of observations that the normaliser has seen.
    seen: u64,
    algorithm: serde_json::Value,
}

/// The state of an environment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvState {
    /// Number of the running episode.
    pub(crate) episode: u64,
    /// Position of the random stream of the actions.
    pub(crate) stream: u64,
    pub(crate) running: Episode,
}

/// The parts of a run that change by learning.
pub(crate) struct Learner<'a> {
    pub(crate) agent: &'a mut Agent,
    pub(crate) algorithm: &'a mut dyn Algorithm,
    pub(crate) normalizer: &'a mut Normalizer,
}

/// The tensors of a checkpoint, by name.
pub(crate) struct Tensors {
    f32: BTreeMap<String, Vec<f32>>,
    f64: BTreeMap<String, Vec<f64>>,
    shapes: BTreeMap<String, Vec<usize>>,
}

/// Returns the files of a checkpoint by name. `marks` has the current lengths of the files of the record.
pub(crate) fn to_files(trainer: &Trainer<'_>, marks: Marks) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let Trainer { run, agent, algorithm, collector, episodes, epoch, steps, .. } = trainer;
    let Collector { workers, normalizer, .. } = collector;
    let env = |worker: &Worker| EnvState {
        episode: worker.episode,
        stream: worker.stream.position(),
        running: worker.running,
    };
    let state = SavedState {
        task: run.run.task.clone(),
        algo: run.run.algo.clone(),
        physics: run.run.physics,
        epoch: *epoch,
        steps: *steps,
        episodes: episodes.clone(),
        envs: workers.iter().map(env).collect(),
        marks,
        adam: agent.counters(),
        scales: agent.scales,
        seen: normalizer.moments().count(),
        algorithm: algorithm.state(),
    };
    let state = serde_json::to_vec_pretty(&state).map_err(|e| e.to_string())?;
    let tensors = tensor_bytes(agent, normalizer.moments(), workers).map_err(|e| e.to_string())?;
    Ok([(STATE.to_owned(), state), (TENSORS.to_owned(), tensors)].into())
}

/// Returns a hash of everything that the next epoch depends on. The ranks of a run compare it.
pub(crate) fn hash(trainer: &Trainer<'_>) -> Result<String, LabError> {
    let files = to_files(trainer, Marks::default()).map_err(|why| LabError::run(&trainer.dir, why))?;
    Ok(files.values().map(|bytes| sha256(bytes)).collect())
}

fn tensor_bytes(
    agent: &Agent,
    seen: &Moments,
    workers: &[Worker],
) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let f32_bytes = |data: &[f32]| data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let f64_bytes = |data: &[f64]| data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> =
        agent.tensors().into_iter().map(|t| (t.name, Dtype::F32, t.shape, f32_bytes(t.data))).collect();
    for (name, data) in [("normalizer.mean", seen.mean()), ("normalizer.m2", seen.m2())] {
        all.push((name.to_owned(), Dtype::F64, vec![data.len()], f64_bytes(data)));
    }
    for (i, worker) in workers.iter().enumerate() {
        all.push((replay_name(i), Dtype::F32, vec![worker.replay.len()], f32_bytes(&worker.replay)));
    }
    let views = all
        .iter()
        .map(|(name, dtype, shape, data)| Ok((name, TensorView::new(*dtype, shape.clone(), data)?)));
    serialize(views.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?, None)
}

fn replay_name(env: usize) -> String {
    format!("replay.{env:04}")
}

/// Parses the files of a checkpoint.
pub(crate) fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Result<(SavedState, Tensors), String> {
    let file = |name: &str| files.get(name).ok_or_else(|| format!("there is no {name}"));
    let state = serde_json::from_slice(file(STATE)?).map_err(|e| format!("{STATE}: {e}"))?;
    let parsed = SafeTensors::deserialize(file(TENSORS)?).map_err(|e| format!("{TENSORS}: {e}"))?;
    let mut tensors = Tensors { f32: BTreeMap::new(), f64: BTreeMap::new(), shapes: BTreeMap::new() };
    for (name, view) in parsed.iter() {
        tensors.shapes.insert(name.to_owned(), view.shape().to_vec());
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => {
                let numbers = data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                tensors.f32.insert(name.to_owned(), numbers.collect());
            }
            Dtype::F64 => {
                let number = |b: &[u8]| b.iter().rev().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
                let numbers = data.chunks_exact(8).map(|b| f64::from_bits(number(b)));
                tensors.f64.insert(name.to_owned(), numbers.collect());
            }
            other => return Err(format!("{TENSORS}: {name} has the type {other:?}")),
        }
    }
    Ok((state, tensors))
}

/// Returns an error if the files are not a valid checkpoint after `number` epochs. For [`crate::checkpoint::load`].
pub(crate) fn fits(number: u64, files: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let (state, tensors) = from_files(files)?;
    if u64::from(state.epoch) != number {
        return Err(format!("it holds epoch {}, not {number}", state.epoch));
    }
    // the moments of an optimiser may be infinite; everything else is finite in a healthy run
    let networks = tensors.f32.iter().filter(|(name, _)| !name.contains(".adam."));
    let bad_f32 = networks.filter(|(_, data)| data.iter().any(|x| !x.is_finite())).map(|(name, _)| name);
    let bad_f64 = tensors.f64.iter().filter(|(_, data)| data.iter().any(|x| !x.is_finite()));
    if let Some(name) = bad_f32.chain(bad_f64.map(|(name, _)| name)).next() {
        return Err(format!("{name} has an entry that is not finite"));
    }
    let negative = tensors.f64.get("normalizer.m2").is_some_and(|m2| m2.iter().any(|x| *x < 0.0));
    if negative { Err("normalizer.m2 has a negative entry".into()) } else { Ok(()) }
}

impl Learner<'_> {
    /// Sets networks, optimisers, algorithm and normaliser to the saved state.
    pub(crate) fn restore(self, state: &SavedState, tensors: &Tensors) -> Result<(), String> {
        let find = |name: &str| tensors.f32.get(name).map(Vec::as_slice);
        self.agent.load(find, &state.adam).map_err(|e| e.to_string())?;
        for tensor in self.agent.tensors() {
            tensors.check_shape(&tensor.name, &tensor.shape)?;
        }
        self.agent.scales = state.scales;
        self.algorithm.restore(&state.algorithm).map_err(|e| e.to_string())?;
        *self.normalizer = tensors.normalizer(state.seen, self.normalizer.moments().mean().len())?;
        Ok(())
    }
}

impl Tensors {
    /// Returns an error if the tensor `name` does not have this shape.
    fn check_shape(&self, name: &str, shape: &[usize]) -> Result<(), String> {
        let got = self.shapes.get(name).map_or(&[][..], Vec::as_slice);
        match got == shape {
            true => Ok(()),
            false => Err(format!("{name} has the shape {got:?}, but the configuration needs {shape:?}")),
        }
    }

    /// Returns an error if the hidden layers of the policy do not have the widths `hidden`.
    pub(crate) fn check_widths(&self, obs_len: usize, hidden: &[usize]) -> Result<(), String> {
        let inputs = std::iter::once(obs_len).chain(hidden.iter().copied());
        inputs.zip(hidden).enumerate().try_for_each(|(layer, (inputs, outputs))| {
            self.check_shape(&format!("policy.{layer}.weight"), &[inputs, *outputs])
        })
    }

    /// Returns the normaliser of observations with `obs_len` entries. `seen` is the number of observations it has seen.
    pub(crate) fn normalizer(&self, seen: u64, obs_len: usize) -> Result<Normalizer, String> {
        let part = |name: &str| match self.f64.get(name) {
            Some(data) if data.len() == obs_len => Ok(data.clone()),
            _ => Err(format!("the checkpoint has no {name} of {obs_len} entries")),
        };
        Ok(Normalizer::from_moments(Moments::from_parts(
            seen,
            part("normalizer.mean")?,
            part("normalizer.m2")?,
        )))
    }

    /// Returns the actions of the running episode of environment `env`.
    pub(crate) fn replay(&self, env: usize) -> Result<&[f32], String> {
        let name = replay_name(env);
        self.f32.get(&name).map(Vec::as_slice).ok_or_else(|| format!("the checkpoint has no {name}"))
    }
}
