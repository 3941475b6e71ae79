//! The training loop. One epoch consists of these stages, in this order. The file of each stage is on the right.
//!
//! ```text
//! collect     environments × policy        ──▶ Rollout         collect.rs
//! estimate    Rollout × critics            ──▶ Batch           epo-algos/batch.rs
//! measure     finished episodes            ──▶ CostReading     episodes.rs
//! update      Batch × CostReading × Agent  ──▶ UpdateReport    epo-algos/first_order.rs, cpo.rs
//! evaluate    policy, on its own episodes  ──▶ episodes        evaluate.rs      every `eval_every` epochs
//! record      report × timings × policy    ──▶ one row         record.rs, policies.rs
//! checkpoint  everything                   ──▶ a folder        lifecycle.rs     every `save_every` epochs
//! ```
//! `lifecycle.rs` begins, resumes and saves a run.
//!
//! Any [`Env`](epo_core::Env) can be trained on, not only the tasks of `epo-tasks`:
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
//! use epo_lab::{config::ResolvedRun, train::Trainer};
//!
//! /// Pushing earns a reward, pushing hard has a cost: the best push at a limit of 0 is 0.5.
//! struct Push(EnvSpec, usize);
//!
//! impl Env for Push {
//!     fn spec(&self) -> &EnvSpec { &self.0 }
//!     fn reset(&mut self, _seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
//!         self.1 = 0;
//!         obs.fill(0.0);
//!         Ok(())
//!     }
//!     fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
//!         self.1 += 1;
//!         let push = action[0].clamp(-1.0, 1.0);
//!         obs[0] = self.1 as f64 / 10.0;
//!         let outcome = if self.1 == 10 { Outcome::Truncated } else { Outcome::Running };
//!         Ok(Step { reward: push, cost: f64::from(push > 0.5), outcome })
//!     }
//! }
//!
//! let make = || {
//!     let action = ActionSpace::symmetric(1);
//!     let spec = EnvSpec { id: "Push".into(), obs_len: 1, action, max_steps: 10, cost_terms: vec![] };
//!     Ok(Box::new(Push(spec, 0)) as Box<dyn Env>)
//! };
//! let set = ["run.task=Push", "run.steps=400", "run.limit=0", "train.steps_per_epoch=200", "train.envs=4",
//!            "train.passes=2", "train.hidden=[8]"];
//! let run = ResolvedRun::from_layers(None, &set.map(String::from))?;
//! let dir = tempfile::tempdir()?;
//! let mut trainer = Trainer::create(dir.path(), run, &make)?;
//! let end = trainer.train(&AtomicBool::new(false), |_| ())?;
//! assert!(end.finished && dir.path().join("progress.csv").exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use epo_algos::{Agent, Algorithm, Epoch, Estimator};
use epo_report::policies::EpochPlace;

use crate::collect::{Collector, Exchange, MakeEnv};
use crate::config::ResolvedRun;
use crate::episodes::{CostRule, Episode, EpisodeWindow};
use crate::evaluate::{ActionMode, EvalPlan, Watch, evaluate};
use crate::lock::RunLock;
use crate::policies::PolicyLog;
use crate::ranks::{Ranks, agree};
use crate::record::{EpochRecord, Recorder, Row};
use crate::{LabError, state};

pub use crate::lifecycle::ResumeOptions;

/// A run in progress.
pub struct Trainer<'a> {
    pub(crate) run: ResolvedRun,
    pub(crate) dir: PathBuf,
    pub(crate) make_env: &'a MakeEnv<'a>,
    pub(crate) collector: Collector,
    pub(crate) estimator: Estimator,
    pub(crate) agent: Agent,
    pub(crate) algorithm: Box<dyn Algorithm>,
    pub(crate) episodes: EpisodeWindow,
    /// The open run folder; `None` on ranks other than 0.
    pub(crate) folder: Option<OpenFolder>,
    /// The processes of the run.
    pub(crate) ranks: Box<dyn Ranks + 'a>,
    /// Number of epochs done.
    pub(crate) epoch: u32,
    /// Number of environment steps done.
    pub(crate) steps: u64,
    /// Seconds that the run took before this process.
    pub(crate) elapsed: f64,
    /// Hash of the last checkpoint.
    pub(crate) hash: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// A run folder that this process writes to.
#[derive(Debug)]
pub(crate) struct OpenFolder {
    pub(crate) recorder: Recorder,
    /// `None` if the policies of the run are not saved.
    pub(crate) policies: Option<PolicyLog>,
    /// Keeps other processes out of the folder.
    pub(crate) lock: RunLock,
}

impl std::fmt::Debug for Trainer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trainer {{ {}, epoch {} of {} }}", self.dir.display(), self.epoch, self.epochs())
    }
}

/// The result of [`Trainer::train`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Hash of the last checkpoint.
    pub hash: String,
    /// Whether the run made all its steps. If not, it was asked to stop and can be resumed.
    pub finished: bool,
}

impl Trainer<'_> {
    /// Trains to the end of the run, or until `stop` is set. In that case the current epoch is finished and
    /// saved first. On rank 0, `watch` receives each row. If the run has several ranks, all of them must call
    /// this function, and `stop` may be set on any of them.
    ///
    /// # Errors
    /// If an environment fails, a number is not finite, a file cannot be written, or another rank fails or is lost.
    pub fn train(&mut self, stop: &AtomicBool, mut watch: impl FnMut(&Row)) -> Result<End, LabError> {
        let (begun, before) = (Instant::now(), self.elapsed);
        let mut stopping = agree(&mut *self.ranks, None, stop.load(Relaxed))?;
        while !self.is_finished() && !stopping {
            let row = self.one_epoch(|| before + begun.elapsed().as_secs_f64());
            let due = self.epoch.is_multiple_of(self.run.train.save_every) || self.is_finished();
            let row = row.and_then(|row| if due { self.save().map(|()| row) } else { Ok(row) });
            if let Ok(Some(row)) = &row {
                watch(row);
            }
            // read once, so that the loop never ends without a save
            let agreed = agree(&mut *self.ranks, row.as_ref().err(), stop.load(Relaxed));
            row?; // the rank's own error is more precise than the one it shared
            stopping = agreed?;
            if stopping && !due {
                self.save()?;
            }
        }
        let hash = self.hash.clone().unwrap_or_default();
        Ok(End { hash, finished: self.is_finished() })
    }

    /// Makes and records one epoch, but saves no checkpoint. `elapsed` returns the seconds of the run so far.
    /// The row is `None` on ranks other than 0.
    pub(crate) fn one_epoch(&mut self, elapsed: impl Fn() -> f64) -> Result<Option<Row>, LabError> {
        let (epoch, steps, clock) = (self.next_epoch(), self.run.steps_of_epoch(self.steps), Instant::now());

        self.hold_policy(steps);
        let state = if self.ranks.count() == 1 { None } else { Some(state::hash(self)?) };
        let exchange = state.map(|state| Exchange { ranks: &mut *self.ranks, state, epoch: self.epoch });
        self.collector.collect(&self.agent.policy, steps, exchange)?;
        let rollout_s = clock.elapsed().as_secs_f64();
        let finished = self.collector.finished_episodes(self.steps);
        let (running, rule) = (self.collector.running_episodes(), self.cost_rule());

        let Self { collector, estimator, agent, algorithm, episodes, run, .. } = self;
        let (threads, rollout) = (collector.pool.threads(), &collector.rollout);
        let learned = threads.install(|| {
            let batch = estimator.estimate(rollout, agent, &run.train.discount)?;
            let cost = episodes.measure(&finished, &running, rule)?.with_step_std(rollout.step_cost_std());
            let report = algorithm.update(agent, &batch, cost, epoch)?;
            Ok((cost, report))
        });
        let (cost, report) = learned.map_err(|source| LabError::Update { epoch: epoch.index, source })?;
        let update_s = clock.elapsed().as_secs_f64() - rollout_s;
        self.epoch += 1;
        self.steps += steps as u64;

        if self.folder.is_none() {
            return Ok(None); // rank 0 evaluates and records
        }
        let evaluation = self.evaluate_if_due()?;
        self.elapsed = elapsed();
        let record = EpochRecord {
            epoch: epoch.index,
            steps: self.steps,
            steps_per_epoch: steps,
            finished,
            cost,
            evaluation,
            rollout_s,
            update_s,
            epoch_s: clock.elapsed().as_secs_f64(),
            total_s: self.elapsed,
        };
        let Some(folder) = &mut self.folder else { return Ok(None) };
        folder.lock.check_place()?; // a moved folder would still get rows, but no checkpoints
        folder.policies.as_mut().map_or(Ok(()), PolicyLog::write)?;
        folder.recorder.record(&record, &self.episodes, &report).map(Some)
    }

    /// Keeps the policy and the normaliser of the next epoch of `steps` steps, before the epoch changes them. They are
    /// written with its row.
    fn hold_policy(&mut self, steps: usize) {
        let epochs = self.epochs();
        let Self { collector, agent, folder, epoch, steps: begin, .. } = self;
        let Some(log) = folder.as_mut().and_then(|folder| folder.policies.as_mut()) else { return };
        let position = collector.workers.first().map_or(0, |worker| worker.stream.position());
        let (epoch, begin) = (u64::from(*epoch), *begin);
        let place = EpochPlace { epoch, begin, end: begin + steps as u64, position };
        log.hold(place, epochs, &agent.policy, &collector.normalizer);
    }

    /// Plays the evaluation episodes if an evaluation is due after this epoch.
    fn evaluate_if_due(&self) -> Result<Option<Vec<Episode>>, LabError> {
        let train = &self.run.train;
        if train.eval_every == 0 || !self.epoch.is_multiple_of(train.eval_every) {
            return Ok(None);
        }
        let (episodes, seed, threads) = (train.eval_episodes, self.run.run.seed, train.threads);
        let plan = EvalPlan { episodes, seed, threads, physics: self.run.run.physics };
        let (policy, normalizer) = (&self.agent.policy, &self.collector.normalizer);
        evaluate(policy, normalizer, self.make_env, plan, ActionMode::Mean, &Watch::default()).map(Some)
    }

    /// The position of the next epoch in the run.
    pub(crate) fn next_epoch(&self) -> Epoch {
        Epoch { index: self.epoch, total: self.epochs(), seed: self.run.run.seed }
    }

    fn cost_rule(&self) -> CostRule {
        let max_steps = self.collector.spec().max_steps;
        CostRule { window: self.run.train.cost_window, max_steps, limit: self.run.run.limit }
    }

    /// The configuration of the run.
    pub fn config(&self) -> &ResolvedRun {
        &self.run
    }

    /// The sizes and names of the environments of the run.
    pub fn spec(&self) -> &epo_core::EnvSpec {
        self.collector.spec()
    }

    /// The folder of the run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Number of epochs done.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of epochs of the whole run.
    pub fn epochs(&self) -> u32 {
        self.run.epochs_after(self.epoch, self.steps)
    }

    /// Number of environment steps done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether all steps are done.
    pub fn is_finished(&self) -> bool {
        self.steps >= self.run.total_steps()
    }

    /// Messages about how the run began: another version, damaged checkpoints that were passed over, a new length.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
