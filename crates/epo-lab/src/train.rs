//! The training loop: one iteration is six verbs.
//!
//! ```text
//! collect    envs × policy × streams      ──▶ Rollout
//! estimate   Rollout × critics            ──▶ Batch
//! measure    finished episodes            ──▶ CostReading
//! update     Batch × CostReading × Agent  ──▶ UpdateReport
//! record     report + timings             ──▶ one row
//! every k    evaluate on its own envs · checkpoint everything
//! ```
//!
//! Any [`Env`](epo_core::Env) can be trained on, not only the tasks of `epo-tasks`:
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
//! use epo_lab::{config::ResolvedRun, train::Trainer};
//!
//! /// Earn by pushing, pay for pushing hard: the best push within a limit of 0 is 0.5.
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

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use epo_algos::{Agent, Algorithm, Batch, Epoch};
use epo_core::EnvPool;
use epo_nn::Normalizer;

use crate::LabError;
use crate::collect::{MakeEnv, Worker};
use crate::config::ResolvedRun;
use crate::episodes::Episodes;
use crate::record::{EpochRecord, Recorder, Row};

/// A run in progress.
pub struct Trainer<'a> {
    pub(crate) run: ResolvedRun,
    pub(crate) dir: PathBuf,
    pub(crate) make_env: &'a MakeEnv<'a>,
    pub(crate) pool: EnvPool,
    pub(crate) workers: Vec<Worker>,
    pub(crate) agent: Agent,
    pub(crate) algorithm: Box<dyn Algorithm>,
    pub(crate) normalizer: Normalizer,
    pub(crate) batch: Batch,
    pub(crate) episodes: Episodes,
    pub(crate) recorder: Recorder,
    /// Epochs done.
    pub(crate) epoch: u32,
    /// Seconds that the run took before this process.
    pub(crate) elapsed: f64,
    /// Hash of the last checkpoint.
    pub(crate) hash: Option<String>,
    pub(crate) notes: Vec<String>,
}

impl std::fmt::Debug for Trainer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trainer {{ {}, epoch {} of {} }}", self.dir.display(), self.epoch, self.run.epochs())
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Hash of its last checkpoint.
    pub hash: String,
    /// False if it was asked to stop; it can be resumed.
    pub finished: bool,
}

impl Trainer<'_> {
    /// Trains to the end of the run, or until `stop` is set: then the epoch is finished and saved first. `watch` sees
    /// each row.
    pub fn train(&mut self, stop: &AtomicBool, mut watch: impl FnMut(&Row)) -> Result<End, LabError> {
        let (begun, before, total) = (Instant::now(), self.elapsed, self.run.epochs());
        let mut stopping = stop.load(Relaxed);
        while self.epoch < total && !stopping {
            let row = self.one_epoch(|| before + begun.elapsed().as_secs_f64())?;
            let due = self.epoch.is_multiple_of(self.run.train.save_every) || self.epoch == total;
            if due {
                self.save()?;
            }
            watch(&row);
            stopping = stop.load(Relaxed); // read once, so that what ends the loop has been saved
            if stopping && !due {
                self.save()?;
            }
        }
        let hash = self.hash.clone().unwrap_or_default();
        Ok(End { hash, finished: self.epoch == total })
    }

    /// One epoch, recorded and not saved; `elapsed` tells the seconds of the run so far.
    pub(crate) fn one_epoch(&mut self, elapsed: impl Fn() -> f64) -> Result<Row, LabError> {
        let clock = Instant::now();
        self.collect()?;
        let rollout_s = clock.elapsed().as_secs_f64();

        let finished = self.finished_episodes();
        let cost = self.measure(&finished)?;
        let epoch = Epoch { index: self.epoch, total: self.run.epochs(), seed: self.run.run.seed };
        let Self { pool, batch, agent, algorithm, run, .. } = self;
        let report = pool.threads().install(|| {
            batch.estimate(agent, &run.train.discount)?;
            algorithm.update(agent, batch, cost, epoch)
        });
        let report = report.map_err(|source| LabError::Update { epoch: epoch.index, source })?;
        let update_s = clock.elapsed().as_secs_f64() - rollout_s;

        self.epoch += 1;
        let evaluation = self.evaluate_if_due()?;
        self.elapsed = elapsed();
        let record = EpochRecord {
            epoch: epoch.index,
            steps: self.steps(),
            finished: finished.len(),
            cost,
            evaluation,
            rollout_s,
            update_s,
            epoch_s: clock.elapsed().as_secs_f64(),
            total_s: self.elapsed,
            steps_per_epoch: self.batch.len(),
        };
        self.record(&record, &finished, &report)
    }
}
