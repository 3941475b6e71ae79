//! How a run begins, goes on after a break, and is saved.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use epo_algos::{Agent, Batch, Rollout, UpdateReport};
use epo_core::{CostReading, EnvPool, Purpose, Stream};
use epo_nn::Normalizer;

use crate::collect::{MakeEnv, Worker, collect};
use crate::config::ResolvedRun;
use crate::episodes::{Episode, Episodes};
use crate::evaluate::{ActionMode, EvalPlan, evaluate};
use crate::record::{EpochRecord, Recorder, Row};
use crate::state::{Counters, Learner, State, Tensors, fits, from_files, to_files};
use crate::train::Trainer;
use crate::{LabError, checkpoint, runs};

/// A finished episode: environment steps of the run when it ended, environment, sums.
pub(crate) type Finished = (u64, u32, Episode);

impl<'a> Trainer<'a> {
    /// Begins a run in an empty folder.
    pub fn create(dir: &Path, run: ResolvedRun, make_env: &'a MakeEnv<'a>) -> Result<Self, LabError> {
        std::fs::create_dir_all(dir).map_err(LabError::io("create", dir))?;
        runs::write_config(dir, &run)?;
        let checkpoints = dir.join("checkpoint");
        std::fs::create_dir_all(&checkpoints).map_err(LabError::io("create", &checkpoints))?;
        let mut trainer = Self::build(dir, run, make_env, None)?;
        trainer.pool.start()?;
        trainer.save()?;
        Ok(trainer)
    }

    /// Goes on with a run from its newest whole checkpoint; the record is cut to where it stood then.
    ///
    /// A run that died before its first checkpoint begins again. `threads` replaces the number in its configuration.
    pub fn resume(dir: &Path, threads: Option<usize>, make_env: &'a MakeEnv<'a>) -> Result<Self, LabError> {
        let mut run = runs::read_config(dir)?;
        let version = runs::other_version(dir);
        run.train.threads = threads.map_or(run.train.threads, crate::config::threads);
        let root = dir.join("checkpoint");
        if checkpoint::is_empty(&root)? {
            // the first checkpoint is written before the first epoch
            let recorded =
                std::fs::read_to_string(dir.join("progress.csv")).map_or(0, |text| text.lines().count());
            if recorded > 1 {
                let why = format!(
                    "its checkpoints are gone, its record of {} epochs is not: nothing is overwritten; begin a new run",
                    recorded - 1
                );
                return Err(LabError::run(dir, why));
            }
            let mut trainer = Self::create(dir, run, make_env)?;
            trainer.notes.push("the run had no checkpoint yet; it begins again".to_owned());
            return Ok(trainer);
        }
        let loaded = checkpoint::load(&root, fits)?;
        let (state, tensors) = from_files(&loaded.files).map_err(|why| LabError::run(&root, why))?;
        let mut trainer = Self::build(dir, run, make_env, Some(&state))?;
        trainer.restore(state, &tensors).map_err(|why| LabError::run(&root, why))??;
        checkpoint::set_aside_after(&root, loaded.number)?;
        trainer.hash = Some(loaded.hash);
        trainer.notes.extend(version);
        let back = |note| format!("{note}; going on from epoch {}", loaded.number);
        trainer.notes.extend(loaded.passed_over.into_iter().map(back));
        Ok(trainer)
    }

    /// Everything at its beginning; the files are new, or cut to where `state` says.
    fn build(
        dir: &Path,
        run: ResolvedRun,
        make_env: &'a MakeEnv<'a>,
        state: Option<&State>,
    ) -> Result<Self, LabError> {
        let (seed, train) = (run.run.seed, &run.train);
        let envs = (0..train.envs).map(|_| make_env()).collect::<Result<Vec<_>, _>>()?;
        let spec = envs[0].spec().clone();
        let pool = EnvPool::new(envs, train.threads, seed, Purpose::Episode)?;
        let agent =
            Agent::new(spec.obs_len, &spec.action, &train.hidden, &train.hidden, run.algo.streams(), seed);
        let slots = pool.slots().iter();
        let workers = slots.map(|slot| Worker::new(seed, slot.index(), slot.env(), &agent.policy)).collect();
        let rollout = Rollout::new(train.envs, run.steps_per_env(), spec.obs_len, agent.policy.action_len());
        let algorithm = run.build().map_err(|source| LabError::Update { epoch: 0, source })?;
        let columns = EpochRecord::columns(&algorithm.metrics(), train.eval_every > 0);
        let (recorder, elapsed) = match state {
            Some(state) => Recorder::reopen(dir, columns, state.marks)?,
            None => (Recorder::create(dir, columns)?, 0.0),
        };
        Ok(Self {
            dir: dir.to_owned(),
            make_env,
            pool,
            workers,
            agent,
            algorithm,
            normalizer: Normalizer::new(spec.obs_len),
            batch: Batch::new(rollout),
            episodes: Episodes::default(),
            recorder,
            epoch: 0,
            elapsed,
            hash: None,
            notes: Vec::new(),
            run,
        })
    }

    /// Takes a checkpoint in. The outer error is a checkpoint that does not fit, the inner an environment that fails.
    fn restore(&mut self, state: State, tensors: &Tensors) -> Result<Result<(), LabError>, String> {
        let (task, algo) = (&self.run.run.task, &self.run.run.algo);
        if (&state.task, &state.algo) != (task, algo) {
            return Err(format!(
                "this is a checkpoint of {} on {}, not of {algo} on {task}",
                state.algo, state.task
            ));
        }
        if state.physics != self.run.run.physics {
            return Err(format!(
                "this checkpoint was made with {} physics, but `run.physics` is `{}`; a run keeps its physics",
                state.physics, self.run.run.physics
            ));
        }
        let steps = u64::from(state.epoch) * self.batch.len() as u64;
        if state.steps != steps {
            return Err(format!(
                "{} steps in {} epochs, the run would have {steps}",
                state.steps, state.epoch
            ));
        }
        if state.envs.len() != self.workers.len() {
            return Err(format!("{} environments, the run has {}", state.envs.len(), self.workers.len()));
        }
        let Self { agent, algorithm, normalizer, .. } = self;
        Learner { agent, algorithm: &mut **algorithm, normalizer }.restore(&state, tensors)?;
        for (i, (worker, env)) in self.workers.iter_mut().zip(&state.envs).enumerate() {
            worker.stream = Stream::at(self.run.run.seed, Purpose::Action, i as u32, env.stream);
            worker.running = env.running;
            worker.replay.extend_from_slice(tensors.replay(i)?);
        }
        (self.epoch, self.episodes) = (state.epoch, state.episodes);
        let mut work: Vec<_> = self.workers.iter_mut().zip(&state.envs).collect();
        let replayed = self.pool.run(&mut work, |slot, (worker, env)| worker.replay(slot, env.episode));
        Ok(replayed.map_err(LabError::from))
    }

    /// Writes a checkpoint of everything.
    pub(crate) fn save(&mut self) -> Result<(), LabError> {
        let counters = Counters {
            task: &self.run.run.task,
            algo: &self.run.run.algo,
            physics: self.run.run.physics,
            epoch: self.epoch,
            steps: self.steps(),
            episodes: &self.episodes,
            marks: self.recorder.sync()?,
        };
        let running = self.pool.slots().iter().map(|slot| slot.episode());
        let root = self.dir.join("checkpoint");
        let files =
            to_files(counters, &self.agent, &*self.algorithm, &self.normalizer, &self.workers, running);
        let files = files.map_err(|why| LabError::run(&root, why))?;
        self.hash = Some(checkpoint::save(&root, u64::from(self.epoch), &files)?);
        Ok(())
    }

    pub(crate) fn collect(&mut self) -> Result<(), LabError> {
        let Self { pool, workers, agent, normalizer, batch, run, .. } = self;
        collect(pool, workers, &agent.policy, normalizer, run.train.normalize_obs, &mut batch.rollout)
    }

    /// The episodes that this epoch finished, in the order of time, then of environments.
    pub(crate) fn finished_episodes(&self) -> Vec<Finished> {
        let (before, n) = (self.steps(), self.workers.len() as u64);
        let workers = self.workers.iter().enumerate();
        let mut all: Vec<Finished> = workers
            .flat_map(|(i, w)| w.finished.iter().map(move |(t, e)| (before + t * n, i as u32, *e)))
            .collect();
        all.sort_by_key(|(step, env, _)| (*step, *env));
        all
    }

    /// The epoch's cost reading.
    pub(crate) fn measure(&self, finished: &[Finished]) -> Result<CostReading, LabError> {
        let finished: Vec<Episode> = finished.iter().map(|(_, _, e)| *e).collect();
        let running: Vec<Episode> = self.workers.iter().map(|w| w.running).collect();
        let max_steps = self.pool.slots()[0].env().spec().max_steps;
        let window = self.run.train.cost_window;
        let reading = self.episodes.measure(&finished, &running, window, max_steps, self.run.run.limit);
        let value = f64::NAN;
        let error =
            epo_algos::UpdateError::NotFinite { what: "episode cost".into(), value, place: String::new() };
        reading.ok_or(LabError::Update { epoch: self.epoch, source: error })
    }

    pub(crate) fn evaluate_if_due(&self) -> Result<Option<Vec<Episode>>, LabError> {
        let train = &self.run.train;
        if train.eval_every == 0 || !self.epoch.is_multiple_of(train.eval_every) {
            return Ok(None);
        }
        let (episodes, seed, threads) = (train.eval_episodes, self.run.run.seed, train.threads);
        let plan = EvalPlan { episodes, seed, threads, physics: self.run.run.physics };
        let go_on = AtomicBool::new(false); // the epoch is finished before a run stops
        evaluate(&self.agent.policy, &self.normalizer, self.make_env, plan, ActionMode::Mean, &go_on)
            .map(Some)
    }

    /// Writes the epoch's row and episodes.
    pub(crate) fn record(
        &mut self,
        record: &EpochRecord,
        finished: &[Finished],
        report: &UpdateReport,
    ) -> Result<Row, LabError> {
        self.episodes.extend(finished.iter().map(|(_, _, e)| *e));
        let row = record.row(self.recorder.columns(), &self.episodes, report);
        self.recorder.episodes(finished)?;
        self.recorder.write(&row)?;
        Ok(row)
    }

    /// Environment steps done.
    pub(crate) fn steps(&self) -> u64 {
        u64::from(self.epoch) * self.run.train.steps_per_epoch as u64
    }

    /// What the run is.
    pub fn config(&self) -> &ResolvedRun {
        &self.run
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Epochs done.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What a user should know about how it began: another version, damaged checkpoints that were passed over.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
