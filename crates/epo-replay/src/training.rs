//! The episodes of training, and their exact repetition.
//!
//! An episode of training is a function of its seed and its actions. The seed follows from the seed of the run, the
//! environment and the number of the episode. The actions can be computed again in three cases:
//!
//! - `policies.bin` has the policy of each epoch. Together with the random streams, which are functions of the seed of the
//!   run, it gives all actions.
//! - A checkpoint has the policy and the random streams of the epoch that follows it. So the episodes that ended in that
//!   epoch can be computed again. A run keeps its two newest checkpoints.
//! - Repeating the training gives such a checkpoint of any epoch.

use std::io::{BufRead, BufReader, Read};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use epo_core::{EnvError, Purpose, Stream, episode_seed};
use epo_lab::LabError;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::{ActionMode, Watch};
use epo_lab::snapshot::Snapshot;
use epo_nn::{Moments, Normalizer, Policy, PolicyWorkspace};
use epo_report::policies::{self, EpochPolicy, Policies, Sizes};
use epo_tasks::TaskEnv;
use serde::Serialize;

use crate::recording::{Actor, LearnedState, PolicyActor, Recording, record};

/// Maximum length of a row of `episodes.csv`, in bytes.
const MOST_ROW: u64 = 1 << 16;

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

/// Maximum size of an `episodes.csv`, in bytes.
const MOST_BYTES: u64 = 4 << 30;

/// Reads `episodes.csv` of a run folder. A last row that is incomplete is left out.
///
/// # Errors
/// If the file cannot be read, or a row that is not the last is damaged.
pub fn training_episodes(dir: &Path, run: &ResolvedRun) -> Result<Vec<TrainingEpisode>, LabError> {
    let mut episodes = Vec::new();
    read_rows(dir, run, |row| {
        episodes.push(row.parse()?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(episodes)
}

/// Returns the episode in row `wanted` of `episodes.csv`, or the number of rows if there is no such row. The memory that
/// this takes does not depend on the length of the file.
pub(crate) fn training_episode(
    dir: &Path,
    run: &ResolvedRun,
    wanted: usize,
) -> Result<Result<TrainingEpisode, usize>, LabError> {
    let (mut found, mut rows) = (None, 0);
    read_rows(dir, run, |row| {
        rows = row.number;
        if row.number < wanted {
            return Ok(ControlFlow::Continue(()));
        }
        found = (row.number == wanted).then(|| row.parse()).transpose()?;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found.ok_or(rows))
}

/// A row of `episodes.csv`.
struct Row<'a> {
    /// Number of the row, from 1.
    number: usize,
    text: &'a str,
    env: u32,
    /// Number of the episode in its environment, from 0.
    episode: u64,
    /// Seed of the run.
    seed: u64,
}

/// The reason why a row cannot be read.
struct Damaged;

impl Row<'_> {
    fn parse(&self) -> Result<TrainingEpisode, Damaged> {
        let cells: Vec<&str> = self.text.split(',').collect();
        let [step, _, ret, cost, length] = cells[..] else { return Err(Damaged) };
        let Self { number: row, env, episode: number, seed, .. } = *self;
        Ok(TrainingEpisode {
            row,
            step: step.parse().map_err(|_| Damaged)?,
            env,
            number,
            seed: episode_seed(seed, Purpose::Episode, env, number),
            ret: ret.parse().map_err(|_| Damaged)?,
            cost: cost.parse().map_err(|_| Damaged)?,
            length: length.parse().map_err(|_| Damaged)?,
        })
    }
}

/// Calls `each` with every complete row of `episodes.csv`, until it breaks.
fn read_rows(
    dir: &Path,
    run: &ResolvedRun,
    mut each: impl FnMut(Row<'_>) -> Result<ControlFlow<()>, Damaged>,
) -> Result<(), LabError> {
    let path = dir.join("episodes.csv");
    let wrong = |why: String| LabError::Run { why, path: path.clone() };
    let unreadable = |e: std::io::Error| wrong(format!("the episodes cannot be read ({e})"));
    let mut reader = BufReader::new(epo_core::open_file(&path, MOST_BYTES).map_err(unreadable)?);
    let mut played = vec![0; run.train.envs];
    let mut line = String::new();
    for number in 0.. {
        line.clear();
        let read = (&mut reader).take(MOST_ROW).read_line(&mut line).map_err(unreadable)?;
        if read as u64 == MOST_ROW {
            return Err(wrong(format!("row {number} is damaged")));
        }
        if !line.ends_with('\n') {
            break; // the end, or a row that is still being written
        }
        if number == 0 {
            continue;
        }
        let text = line.trim_end();
        let env: Option<u32> = text.split(',').nth(1).and_then(|env| env.parse().ok());
        let row = env.and_then(|env| {
            let next = played.get_mut(env as usize)?;
            *next += 1;
            Some(Row { number, text, env, episode: *next - 1, seed: run.run.seed })
        });
        match row.ok_or(Damaged).and_then(&mut each) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(Damaged) => return Err(wrong(format!("row {number} is damaged"))),
        }
    }
    Ok(())
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
    watch: &Watch,
) -> Result<Option<Recording>, LabError> {
    let Some(running) = snapshot.running.get(episode.env as usize) else { return Ok(None) };
    let learned = LearnedState { agent: &snapshot.agent, normalizer: &snapshot.normalizer };
    let (mut stream, mut known) = (running.stream.clone(), running.actions.as_slice());
    for number in running.number..=episode.number {
        if watch.stop.load(Relaxed) {
            return Err(LabError::Interrupted("the replay"));
        }
        let seed = episode_seed(run.run.seed, Purpose::Episode, episode.env, number);
        let mut actor = PolicyActor::new(learned, ActionMode::Sampled, &mut stream).after(known);
        let recording = record(env, seed, learned, &mut actor)?;
        known = &[]; // the checkpoint has the actions of the first of them only
        if number == episode.number {
            return Ok(Some(recording).filter(|recording| episode.is(recording)));
        }
    }
    Ok(None)
}

/// Repeats an episode with the policies of its epochs in `policies.bin` of the run folder `dir`. The critics are those of
/// the checkpoint.
///
/// Returns `None` if a policy is not recorded or cannot be read, or if the policies do not give the row.
pub(crate) fn repeat_recorded(
    dir: &Path,
    env: &mut TaskEnv,
    episode: &TrainingEpisode,
    snapshot: &Snapshot,
    run: &ResolvedRun,
) -> Option<Recording> {
    let file = epo_core::open_file(&dir.join(policies::FILE), policies::MOST_BYTES).ok()?;
    let policies = Policies::open(&file).ok()??;
    let policy = snapshot.agent.policy.clone();
    let sizes = Sizes {
        envs: run.train.envs as u32,
        observations: policy.net().inputs() as u32,
        parameters: policy.params().len() as u64,
    };
    if policies.sizes() != sizes {
        return None; // and no memory is taken for other sizes
    }
    let records = policies.of_episode(episode.step, episode.length).ok()??;
    let mut actor = EpochActor {
        policies,
        records,
        step: episode.step - episode.length * u64::from(sizes.envs),
        end: 0,
        stream: Stream::new(run.run.seed, Purpose::Action, episode.env),
        normalizer: snapshot.normalizer.clone(),
        seen: vec![0.0; policy.net().inputs()],
        ws: policy.workspace(1),
        policy,
    };
    let learned = LearnedState { agent: &snapshot.agent, normalizer: &snapshot.normalizer };
    let recording = record(env, episode.seed, learned, &mut actor).ok()?;
    episode.is(&recording).then_some(recording)
}

/// Samples the actions of a training episode again: each with the policy, the normaliser and the random numbers of its
/// epoch.
struct EpochActor<'a> {
    policies: Policies<'a>,
    /// Records of the epochs that are left.
    records: Range<u64>,
    /// Number of environment steps of the run before the next action.
    step: u64,
    /// Number of environment steps of the run at which the policy ends.
    end: u64,
    policy: Policy,
    normalizer: Normalizer,
    stream: Stream,
    seen: Vec<f32>,
    ws: PolicyWorkspace,
}

impl EpochActor<'_> {
    /// Takes the policy of the next epoch.
    fn next_epoch(&mut self) -> std::io::Result<()> {
        let Some(index) = self.records.next() else {
            return Err(std::io::Error::other("the episode is longer than it was in training"));
        };
        let EpochPolicy { place, seen, mean, m2, policy } = self.policies.read(index)?;
        let steps = self.step.saturating_sub(place.begin) / u64::from(self.policies.sizes().envs);
        let position = place.position.saturating_add(steps.saturating_mul(self.policy.draws()));
        self.stream = self.stream.clone().moved_to(position);
        self.normalizer = Normalizer::from_moments(Moments::from_parts(seen, mean, m2));
        self.policy.set_params(&policy);
        self.end = place.end;
        Ok(())
    }
}

impl Actor for EpochActor<'_> {
    fn act(&mut self, obs: &[f64], action: &mut [f32]) -> Result<(), EnvError> {
        if self.step >= self.end {
            self.next_epoch().map_err(|e| EnvError::Other(e.to_string()))?;
        }
        self.normalizer.normalize(obs, &mut self.seen);
        self.policy.act(&self.seen, &mut self.ws, &mut self.stream, action);
        self.step += u64::from(self.policies.sizes().envs);
        Ok(())
    }
}

impl TrainingEpisode {
    /// Whether a recording has return, cost and length of this row. Sums are made in the order of training, so they have
    /// the same bits.
    fn is(&self, recording: &Recording) -> bool {
        (recording.ret(), recording.cost()) == (self.ret, self.cost)
            && recording.steps() as u64 == self.length
    }
}
