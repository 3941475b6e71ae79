//! The episodes of training, and the exact repetition of those whose actions can be computed again.
//!
//! An episode of training is a function of its seed and its actions. The seed follows from the seed of the run, the
//! environment and the number of the episode. The actions follow from the policy and the random stream of the epoch in
//! which they were taken. A run keeps its two newest checkpoints. From a checkpoint, the epoch that follows it can be
//! collected again without an update. So the episodes that ended in that epoch are repeated action by action.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use epo_core::{Purpose, episode_seed};
use epo_lab::LabError;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::ActionMode;
use epo_lab::snapshot::Snapshot;
use epo_tasks::TaskEnv;
use serde::Serialize;

use crate::recording::{Actions, LearnedState, Recording, record};

/// A finished episode of training: one row of `episodes.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingEpisode {
    /// Row of `episodes.csv`, from 1; the header is not counted.
    pub row: usize,
    /// Environment steps of the run when the episode ended.
    pub step: u64,
    /// Number of the environment.
    pub env: u32,
    /// Number of the episode in its environment, from 0.
    pub number: u64,
    /// Seed of the episode.
    pub seed: u64,
    /// Return.
    #[serde(rename = "return")]
    pub ret: f64,
    /// Cost.
    pub cost: f64,
    /// Number of steps.
    pub length: u64,
}

/// Maximum size of an `episodes.csv` and of a row of it, in bytes.
const MOST_BYTES: u64 = 4 << 30;
const MOST_ROW_BYTES: u64 = 1000;

/// Reads `episodes.csv` of a run folder. A last row that is incomplete is left out.
///
/// # Errors
/// If the file cannot be read, or a row that is not the last is damaged.
pub fn training_episodes(dir: &Path, run: &ResolvedRun) -> Result<Vec<TrainingEpisode>, LabError> {
    let path = dir.join("episodes.csv");
    let damaged = |why: String| LabError::Run { why, path: path.clone() };
    let unreadable = |e: io::Error| damaged(format!("the episodes cannot be read ({e})"));
    let file = epo_core::open_file(&path, MOST_BYTES).map_err(unreadable)?;
    let mut played = vec![0; run.train.envs];
    let mut episodes = Vec::new();
    let mut reader = BufReader::new(file);
    let mut line = String::new();
    for row in 0.. {
        line.clear();
        let n = (&mut reader).take(MOST_ROW_BYTES).read_line(&mut line).map_err(unreadable)?;
        if n as u64 == MOST_ROW_BYTES {
            return Err(damaged(format!("row {row} is longer than {MOST_ROW_BYTES} bytes")));
        }
        if n == 0 || !line.ends_with('\n') {
            break; // a row without an end is still being written
        }
        if row == 0 {
            continue;
        }
        let parsed = parse(line.trim_end()).filter(|(_, env, ..)| (*env as usize) < played.len());
        let (step, env, ret, cost, length) =
            parsed.ok_or_else(|| damaged(format!("row {row} is damaged")))?;
        let number = played[env as usize];
        played[env as usize] += 1;
        let seed = episode_seed(run.run.seed, Purpose::Episode, env, number);
        episodes.push(TrainingEpisode { row, step, env, number, seed, ret, cost, length });
    }
    Ok(episodes)
}

fn parse(line: &str) -> Option<(u64, u32, f64, f64, u64)> {
    let cells: Vec<&str> = line.split(',').collect();
    let [step, env, ret, cost, length] = cells[..] else { return None };
    Some((step.parse().ok()?, env.parse().ok()?, ret.parse().ok()?, cost.parse().ok()?, length.parse().ok()?))
}

/// Whether the episode was still running at the checkpoint or began later, and ended in the epoch
/// that follows the checkpoint.
pub(crate) fn is_in_next_epoch(episode: &TrainingEpisode, snapshot: &Snapshot, run: &ResolvedRun) -> bool {
    let end = snapshot.steps + run.steps_of_epoch(snapshot.steps).max(run.train.steps_per_epoch) as u64;
    let running = snapshot.running.get(episode.env as usize);
    running.is_some_and(|r| episode.number >= r.number) && (snapshot.steps + 1..=end).contains(&episode.step)
}

/// Repeats an episode of the epoch that follows the checkpoint, action by action.
///
/// Returns `None` if return, cost and length are not those of the row, which happens if another version trained the run.
pub(crate) fn repeat(
    env: &mut TaskEnv,
    episode: &TrainingEpisode,
    snapshot: &Snapshot,
    run: &ResolvedRun,
) -> Result<Option<Recording>, LabError> {
    let Some(running) = snapshot.running.get(episode.env as usize) else { return Ok(None) };
    let learned = LearnedState { agent: &snapshot.agent, normalizer: &snapshot.normalizer };
    let (mut stream, mut recorded) = (running.stream.clone(), running.actions.as_slice());
    for number in running.number..=episode.number {
        let seed = episode_seed(run.run.seed, Purpose::Episode, episode.env, number);
        let actions = Actions { recorded, mode: ActionMode::Sampled, stream: &mut stream };
        let recording = record(env, seed, learned, actions)?;
        recorded = &[]; // the checkpoint has the actions of the first of them only
        if number == episode.number {
            // sums are made in the order of training, so they have the same bits
            let same = (recording.ret(), recording.cost()) == (episode.ret, episode.cost)
                && recording.steps() as u64 == episode.length;
            return Ok(same.then_some(recording));
        }
    }
    Ok(None)
}
