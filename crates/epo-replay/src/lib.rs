//! Replays of episodes: the scene in 3D with a time line of rewards, costs, values and actions, as one HTML page that
//! needs no network, or as an animated picture.
//!
//! [`replay`] plays the episodes that a [`Request`] asks for and returns a [`Replay`]. [`Replay::to_html`] writes the
//! page and [`Replay::to_gif`] the picture. [`html`] does both steps for one episode of one run. `docs/replay.md`
//! describes the page and says which episodes are repeated exactly.
//!
//! ```text
//! run folder ──snapshot──▶ policy, critics ──record──▶ Recording ──pack──▶ JSON ──page──▶ HTML
//!                                                          └──────────── picture ──────▶ GIF
//! ```

mod cost_map;
mod pack;
mod page;
mod picture;
mod recording;
mod training;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epo_core::{Env, Purpose, Stream, episode_seed};
use epo_lab::config::{ConfigError, ResolvedRun};
use epo_lab::evaluate::{ActionMode, EvalPlan, Watch, evaluate};
use epo_lab::snapshot::Snapshot;
use epo_lab::train::Trainer;
use epo_lab::{LabError, checkpoint, runs};
use epo_report::printable;
use epo_tasks::{Physics, TaskEnv};

pub use cost_map::CostMap;
pub use page::{LICENCES, content_security_policy};
pub use picture::{PictureError, Theme};
pub use recording::{Gauge, Lidar, Recording, Series};
pub use training::{TrainingEpisode, training_episodes};

use cost_map::{CostRecorder, Places};
use recording::{LearnedState, PolicyActor, record};
use training::training_episode;

/// Environments that an evaluation steps side by side. It decides which seeds the episodes have.
use epo_lab::evaluate::WIDTH;

/// Which episodes to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// An episode of the evaluation, numbered from 0.
    Evaluation(usize),
    /// The episode with this seed.
    Seed(u64),
    /// This number of evaluation episodes with the highest costs, worst first.
    Worst(usize),
    /// This number of evaluation episodes with the highest returns, best first.
    Best(usize),
    /// An episode of training.
    Training {
        /// Row of `episodes.csv`, from 1; the header is not counted.
        row: usize,
        /// Repeat the training up to the epoch of the episode if no checkpoint allows an exact repetition.
        retrain: bool,
    },
}

/// Episodes to replay, and settings for playing them.
#[derive(Clone, Debug)]
pub struct Request {
    /// Run folder.
    pub run: PathBuf,
    /// Run folder of a second policy, which plays the same seeds.
    pub against: Option<PathBuf>,
    /// Number of the checkpoint; `None` is the newest intact one. The second policy is always the newest of its run.
    pub checkpoint: Option<u64>,
    /// Which episodes to play.
    pub choice: Choice,
    /// How the policy chooses its actions. An exact repetition of training always samples them.
    pub mode: ActionMode,
    /// Physics of the environments; `None` is that of the run.
    pub physics: Option<Physics>,
    /// Number of evaluation episodes, over which `choice` ranks and the cost map adds up.
    pub episodes: usize,
    /// Seed of the evaluation episodes.
    pub seed: u64,
    /// Whether to add a map of where costs were paid over all evaluation episodes. A ranking always has one.
    pub map: bool,
    /// Number of threads. Does not change the results.
    pub threads: usize,
}

impl Request {
    /// The first evaluation episode of a run, played with the mean action by the newest checkpoint.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        Self {
            run: run.into(),
            against: None,
            checkpoint: None,
            choice: Choice::Evaluation(0),
            mode: ActionMode::Mean,
            physics: None,
            episodes: 100,
            seed: 0,
            map: false,
            threads: 1,
        }
    }
}

/// Where the actions of an episode come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionSource {
    /// The policy of the checkpoint chose them for this replay.
    Policy,
    /// They are those of training, computed again from the checkpoint before the epoch in which the episode ended.
    Checkpoint,
    /// They are those of training, computed again with the policies in `policies.bin`.
    Recorded,
    /// They are those of training, computed again by repeating the training.
    Retrained,
}

impl ActionSource {
    /// Whether these are exactly the actions of training.
    pub fn is_exact(self) -> bool {
        self != Self::Policy
    }

    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Checkpoint => "checkpoint",
            Self::Recorded => "recorded",
            Self::Retrained => "retrained",
        }
    }
}

/// One episode of one policy, with its description for the page.
#[derive(Clone, Debug)]
pub struct PlayedEpisode {
    /// Run folder, as text.
    pub run: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Cost limit of the run.
    pub limit: f64,
    /// Number of epochs of the checkpoint.
    pub checkpoint: u64,
    /// First characters of the hash of the checkpoint.
    pub hash: String,
    /// How the actions were chosen.
    pub mode: ActionMode,
    /// Physics of the environment.
    pub physics: Physics,
    /// One sentence that says which episode this is.
    pub what: String,
    /// Where the actions come from.
    pub actions: ActionSource,
    /// The row of `episodes.csv` that was asked for, if the episode is one of training.
    pub recorded: Option<TrainingEpisode>,
    /// Command that repeats the recorded episode exactly, if this is not an exact repetition and there is such a command.
    pub command: Option<String>,
    /// The episode.
    pub recording: Recording,
}

/// Episodes that were played, to be shown.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The episodes; each has one entry per policy.
    pub episodes: Vec<Vec<PlayedEpisode>>,
    /// Where costs were paid by the first policy over all evaluation episodes.
    pub map: Option<CostMap>,
    /// Messages for the user, for example about damaged checkpoints.
    pub notes: Vec<String>,
}

/// Returns one page with one episode of a run, for the newest checkpoint or the one with this number.
///
/// # Errors
/// The errors of [`replay`].
pub fn html(run: &Path, checkpoint: Option<u64>, choice: Choice) -> Result<String, LabError> {
    let request = Request { checkpoint, choice, ..Request::new(run) };
    Ok(replay(&request, &Watch::default())?.to_html())
}

/// Plays the requested episodes.
///
/// # Errors
/// If a folder is not a run folder, a checkpoint is missing or damaged, the two runs have different tasks, an
/// episode does not exist, or `watch.stop` is set.
pub fn replay(request: &Request, watch: &Watch) -> Result<Replay, LabError> {
    let mut first = Side::open(&request.run, request.checkpoint, request.physics)?;
    let mut second =
        request.against.as_deref().map(|dir| Side::open(dir, None, Some(first.physics))).transpose()?;
    if let Some(other) = second.as_ref().filter(|other| other.run.run.task != first.run.run.task) {
        let why = format!(
            "it is a run on {}, the first one is on {}; two policies are compared on the same task",
            other.run.run.task, first.run.run.task
        );
        let got = printable(&other.dir.display().to_string()).into_owned();
        return Err(ConfigError::Value { key: "RUN2".to_owned(), got, why }.into());
    }
    let mut notes = Vec::new();
    for side in std::iter::once(&first).chain(&second) {
        notes.extend(runs::other_version(&side.dir));
        let passed = &side.snapshot.loaded.passed_over;
        notes.extend(passed.iter().map(|why| format!("{why}; the previous checkpoint is used")));
    }
    let ranks = matches!(request.choice, Choice::Worst(_) | Choice::Best(_));
    let (ranking, map) = match ranks || request.map {
        true => first.evaluate(request, watch).map(|(ranking, map)| (ranking, Some(map)))?,
        false => (Vec::new(), None),
    };
    let mut episodes = Vec::new();
    for asked in asked(request, &ranking) {
        if watch.stop.load(Relaxed) {
            return Err(LabError::Interrupted("the replay"));
        }
        let mut played = vec![first.play(asked, request, watch)?];
        if let Some(second) = &mut second {
            let seed = played[0].recording.seed;
            let same = match asked {
                Choice::Evaluation(_) => asked, // the same stream of random numbers too
                _ => Choice::Seed(seed),
            };
            played.push(second.play(same, request, watch)?);
        }
        episodes.push(played);
    }
    Ok(Replay { episodes, map, notes })
}

/// The episodes of a choice, given the numbers of the evaluation episodes in the order of the ranking.
fn asked(request: &Request, ranking: &[usize]) -> Vec<Choice> {
    match request.choice {
        Choice::Worst(n) | Choice::Best(n) => {
            ranking.iter().take(n.max(1)).map(|&number| Choice::Evaluation(number)).collect()
        }
        one => vec![one],
    }
}

/// One run, with an environment of its task.
struct Side {
    dir: PathBuf,
    run: ResolvedRun,
    physics: Physics,
    snapshot: Snapshot,
    env: TaskEnv,
}

impl Side {
    fn open(dir: &Path, checkpoint: Option<u64>, physics: Option<Physics>) -> Result<Self, LabError> {
        let run = runs::read_config(dir)?;
        let physics = physics.unwrap_or(run.run.physics);
        let env = epo_tasks::make_with(&run.run.task, physics)?;
        let snapshot = Snapshot::read(dir, &run, env.spec(), checkpoint)?;
        Ok(Self { dir: dir.to_owned(), run, physics, snapshot, env })
    }

    /// Plays all evaluation episodes. Returns their numbers, highest cost or return first, and where costs were paid.
    fn evaluate(&self, request: &Request, watch: &Watch) -> Result<(Vec<usize>, CostMap), LabError> {
        let places = Places::default();
        let make_env = || {
            let env = self.env.try_clone()?;
            Ok(Box::new(CostRecorder { env, places: Arc::clone(&places) }) as Box<dyn Env>)
        };
        let (episodes, seed) = (request.episodes.max(1), request.seed);
        let plan = EvalPlan { episodes, seed, threads: request.threads, physics: self.physics };
        let Snapshot { agent, normalizer, .. } = &self.snapshot;
        let played = evaluate(&agent.policy, normalizer, &make_env, plan, request.mode, watch)?;
        let key = |i: usize| match request.choice {
            Choice::Best(_) => played[i].ret,
            _ => played[i].cost,
        };
        let mut ranking: Vec<usize> = (0..played.len()).collect();
        ranking.sort_by(|&a, &b| key(b).total_cmp(&key(a)).then(a.cmp(&b)));
        Ok((ranking, CostMap::of(&places, episodes)))
    }

    fn play(&mut self, asked: Choice, request: &Request, watch: &Watch) -> Result<PlayedEpisode, LabError> {
        match asked {
            Choice::Evaluation(number) => {
                let what = format!(
                    "Evaluation episode {} of {} (the episodes of epo eval with seed {}).",
                    number + 1,
                    request.episodes,
                    request.seed
                );
                let recording = self.play_evaluation(number, request)?;
                Ok(self.played(request.mode, what, recording))
            }
            Choice::Seed(seed) => {
                let what = format!("The episode with seed {seed}.");
                let mut stream = Stream::new(seed, Purpose::Evaluation, 1 << 31);
                let recording = self.record(seed, request.mode, &mut stream)?;
                Ok(self.played(request.mode, what, recording))
            }
            Choice::Training { row, retrain } => self.play_training(row, retrain, request, watch),
            Choice::Worst(_) | Choice::Best(_) => unreachable!("a ranking is resolved into episodes"),
        }
    }

    fn record(&mut self, seed: u64, mode: ActionMode, stream: &mut Stream) -> Result<Recording, LabError> {
        let learned = LearnedState { agent: &self.snapshot.agent, normalizer: &self.snapshot.normalizer };
        Ok(record(&mut self.env, seed, learned, &mut PolicyActor::new(learned, mode, stream))?)
    }

    /// Plays an evaluation episode as [`evaluate`] does: episode k of environment i has the number k · width + i, and the
    /// environment draws the actions of all its episodes from one stream.
    fn play_evaluation(&mut self, number: usize, request: &Request) -> Result<Recording, LabError> {
        let width = request.episodes.clamp(1, WIDTH);
        let (index, last) = ((number % width) as u32, (number / width) as u64);
        let mut stream = Stream::new(request.seed, Purpose::Evaluation, index | 1 << 31);
        let first = if request.mode == ActionMode::Sampled { 0 } else { last };
        for episode in first..last {
            let seed = episode_seed(request.seed, Purpose::Evaluation, index, episode);
            self.record(seed, request.mode, &mut stream)?; // moves the stream to the next episode
        }
        self.record(episode_seed(request.seed, Purpose::Evaluation, index, last), request.mode, &mut stream)
    }

    fn play_training(
        &mut self,
        row: usize,
        retrain: bool,
        request: &Request,
        watch: &Watch,
    ) -> Result<PlayedEpisode, LabError> {
        let episode = training_episode(&self.dir, &self.run, row)?.map_err(|rows| {
            let why = format!("episodes.csv has the rows 1 to {rows}");
            ConfigError::Value { key: "--training".to_owned(), got: row.to_string(), why }
        })?;
        let TrainingEpisode { env, number, step, .. } = episode;
        let which = format!(
            "Training episode of row {row}: environment {env}, episode {number}, ended at step {step}."
        );
        // a run keeps its physics, so its episodes are repeated with that physics
        let mut training_env = epo_tasks::make_with(&self.run.run.task, self.run.run.physics)?;
        for checkpoint in checkpoint::numbers(&self.dir.join("checkpoint"))? {
            let Ok(snapshot) = Snapshot::read(&self.dir, &self.run, self.env.spec(), Some(checkpoint)) else {
                continue; // a damaged one; the newest intact one has been read already
            };
            if training::is_in_next_epoch(&episode, &snapshot, &self.run)
                && let Some(recording) =
                    training::repeat(&mut training_env, &episode, &snapshot, &self.run, watch)?
            {
                return Ok(self.repeated(which, episode, ActionSource::Checkpoint, &snapshot, recording));
            }
        }
        let (snapshot, run) = (&self.snapshot, &self.run);
        let recorded = training::repeat_recorded(&self.dir, &mut training_env, &episode, snapshot, run);
        if let Some(recording) = recorded {
            return Ok(self.repeated(which, episode, ActionSource::Recorded, &self.snapshot, recording));
        }
        if retrain {
            let snapshot = self.train_again(&episode, watch)?;
            let recording = training::repeat(&mut training_env, &episode, &snapshot, &self.run, watch)?;
            if let Some(recording) = recording {
                return Ok(self.repeated(which, episode, ActionSource::Retrained, &snapshot, recording));
            }
        }
        let mut stream = Stream::new(episode.seed, Purpose::Evaluation, 1 << 31);
        let recording = self.record(episode.seed, request.mode, &mut stream)?;
        let why = if retrain {
            "Repeating the training gave another episode, so another version trained this run."
        } else {
            "Its actions follow neither from policies.bin nor from a checkpoint; --retrain repeats the training."
        };
        let what = format!("{which} Same seed and layout, played by the policy of this checkpoint. {why}");
        let played = self.played(request.mode, what, recording);
        let run = played.run.replace('\'', "'\\''");
        let command = (!retrain).then(|| format!("epo replay '{run}' --training {row} --retrain"));
        Ok(PlayedEpisode { recorded: Some(episode), command, ..played })
    }

    /// Repeats the training in a temporary folder, up to the epoch in which the episode ended.
    fn train_again(&self, episode: &TrainingEpisode, watch: &Watch) -> Result<Snapshot, LabError> {
        let io = |source| LabError::Io { what: "create", path: std::env::temp_dir(), source };
        let dir = tempfile::tempdir().map_err(io)?;
        let epochs = (episode.step - 1) / self.run.train.steps_per_epoch as u64;
        let compiled = epo_tasks::make_with(&self.run.run.task, self.run.run.physics)?;
        let make_env = || Ok(Box::new(compiled.try_clone()?) as Box<dyn Env>);
        let mut run = self.run.clone();
        (run.train.eval_every, run.train.save_every) = (0, u32::MAX); // nothing here changes what is learned
        run.train.save_policies = false;
        let mut trainer = Trainer::create(dir.path(), run, &make_env)?;
        let stop = AtomicBool::new(epochs == 0);
        let mut done = 0;
        trainer.train(&stop, |_| {
            done += 1;
            stop.store(done >= epochs || watch.stop.load(Relaxed), Relaxed);
        })?;
        if watch.stop.load(Relaxed) {
            return Err(LabError::Interrupted("the training that is repeated"));
        }
        Snapshot::read(dir.path(), &self.run, self.env.spec(), None)
    }

    /// Describes an exact repetition of a training episode. The critics are those of `snapshot`.
    fn repeated(
        &self,
        which: String,
        episode: TrainingEpisode,
        actions: ActionSource,
        snapshot: &Snapshot,
        recording: Recording,
    ) -> PlayedEpisode {
        let how = match actions {
            ActionSource::Recorded => "computed with the recorded policies of its epochs",
            ActionSource::Retrained => "computed by repeating the training",
            ActionSource::Checkpoint | ActionSource::Policy => {
                "computed from the checkpoint before the epoch"
            }
        };
        let what = format!(
            "{which} These are exactly the actions of training, {how}: return, cost and length are those of the row."
        );
        let played = self.played(ActionMode::Sampled, what, recording);
        let (checkpoint, hash) = (snapshot.loaded.number, short(&snapshot.loaded.hash));
        let physics = self.run.run.physics;
        PlayedEpisode { checkpoint, hash, physics, actions, recorded: Some(episode), ..played }
    }

    fn played(&self, mode: ActionMode, what: String, recording: Recording) -> PlayedEpisode {
        PlayedEpisode {
            run: printable(&self.dir.display().to_string()).into_owned(),
            algo: self.run.run.algo.clone(),
            limit: self.run.run.limit,
            checkpoint: self.snapshot.loaded.number,
            hash: short(&self.snapshot.loaded.hash),
            mode,
            physics: self.physics,
            what,
            actions: ActionSource::Policy,
            recorded: None,
            command: None,
            recording,
        }
    }
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}
