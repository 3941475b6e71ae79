//! The episodes of training, and the exact repetition of those whose actions are known.
//!
//! An episode of training is a function of its seed and its actions. The seed follows from the seed of the run, the
//! environment and the number of the episode. The actions are known in three cases:
//!
//! - `actions.bin` has the actions of the costliest episode of each epoch.
//! - A checkpoint has the policy and the random streams of the epoch that follows it. So the episodes that ended in that
//!   epoch can be computed again. A run keeps its two newest checkpoints.
//! - Repeating the training gives such a checkpoint of any epoch.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use epo_core::{Purpose, Stream, episode_seed};
use epo_lab::LabError;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::{ActionMode, Watch};
use epo_lab::snapshot::Snapshot;
use epo_report::actions;
use epo_tasks::TaskEnv;
use serde::Serialize;

use crate::recording::{Actions, LearnedState, Recording, record};

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
    let (mut stream, mut recorded) = (running.stream.clone(), running.actions.as_slice());
    for number in running.number..=episode.number {
        if watch.stop.load(Relaxed) {
            return Err(LabError::Interrupted("the replay"));
        }
        let seed = episode_seed(run.run.seed, Purpose::Episode, episode.env, number);
        let actions = Actions { recorded, mode: ActionMode::Sampled, stream: &mut stream };
        let recording = record(env, seed, learned, actions)?;
        recorded = &[]; // the checkpoint has the actions of the first of them only
        if number == episode.number {
            return Ok(Some(recording).filter(|recording| episode.is(recording)));
        }
    }
    Ok(None)
}

/// Repeats an episode by its actions in `actions.bin` of the run folder `dir`. The critics are those of the checkpoint.
///
/// Returns `None` if the actions are not recorded, or if they do not give the row.
pub(crate) fn repeat_recorded(
    dir: &Path,
    env: &mut TaskEnv,
    episode: &TrainingEpisode,
    snapshot: &Snapshot,
) -> Result<Option<Recording>, LabError> {
    let path = dir.join(actions::FILE);
    let Ok(file) = epo_core::open_file(&path, actions::MOST_BYTES) else { return Ok(None) };
    let found = actions::of_row(&file, episode.row as u64);
    let found = found.map_err(|source| LabError::Io { what: "read", path, source })?;
    let Some(recorded) = found else { return Ok(None) };
    let learned = LearnedState { agent: &snapshot.agent, normalizer: &snapshot.normalizer };
    let mut stream = Stream::new(episode.seed, Purpose::Action, episode.env); // only if actions are missing
    let actions = Actions { recorded: &recorded, mode: ActionMode::Sampled, stream: &mut stream };
    let recording = record(env, episode.seed, learned, actions)?;
    Ok(Some(recording).filter(|recording| episode.is(recording)))
}

impl TrainingEpisode {
    /// Whether a recording has return, cost and length of this row. Sums are made in the order of training, so they have
    /// the same bits.
    fn is(&self, recording: &Recording) -> bool {
        (recording.ret(), recording.cost()) == (self.ret, self.cost)
            && recording.steps() as u64 == self.length
    }
}
