//! Beginning, resuming and saving a run.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

use epo_algos::{Agent, Estimator};
use epo_core::{Env, EnvPool, Metric, Purpose, Stream};

use crate::changes::{self, FolderSummary};
use crate::collect::{Collector, MakeEnv};
use crate::config::{ConfigError, ResolvedRun, threads};
use crate::csv::MOST_RECORD_BYTES;
use crate::episodes::EpisodeWindow;
use crate::lock::RunLock;
use crate::policies::PolicyLog;
use crate::ranks::{OneRank, Ranks, Start};
use crate::record::{EpochRecord, Recorder, ReopenedRecord};
use crate::state::{Learner, SavedState, Tensors, fits, from_files, to_files};
use crate::train::{OpenFolder, Trainer};
use crate::{LabError, checkpoint, memory, ranks, runs};

/// Settings that replace those of the configuration when a run is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumeOptions {
    /// Number of threads; 0 means one per core.
    pub threads: Option<usize>,
    /// Number of environment steps of the whole run, to make it longer or shorter.
    pub steps: Option<u64>,
    /// Whether to continue although the configuration or the record was changed since the checkpoint. Default:
    /// false.
    pub accept_changes: bool,
}

impl<'a> Trainer<'a> {
    /// Begins a run in an empty folder.
    ///
    /// # Errors
    /// If the run needs more memory than is available, an environment fails, or the folder cannot be written or
    /// is in use.
    pub fn create(dir: &Path, run: ResolvedRun, make_env: &'a MakeEnv<'a>) -> Result<Self, LabError> {
        Self::create_on(Box::new(OneRank), dir, run, make_env)
    }

    /// Begins a run as rank 0 of `ranks`. The other ranks call [`follow`](crate::ranks::follow).
    ///
    /// # Errors
    /// The errors of [`create`](Self::create), and if another rank fails. The other ranks then fail too.
    pub fn create_on(
        ranks: Box<dyn Ranks + 'a>,
        dir: &Path,
        run: ResolvedRun,
        make_env: &'a MakeEnv<'a>,
    ) -> Result<Self, LabError> {
        let create = || {
            let envs = make_envs(&run, make_env, &*ranks)?;
            std::fs::create_dir_all(dir).map_err(LabError::io("create", dir))?;
            Self::begin(dir, run, make_env, envs, RunLock::acquire(dir)?)
        };
        let made = create().map(|trainer| (trainer, BTreeMap::new()));
        Self::lead(ranks, made)
    }

    /// Sends the run of rank 0 to the other ranks. `made` is the run and the checkpoint that it continues from.
    fn lead(
        mut ranks: Box<dyn Ranks + 'a>,
        made: Result<(Self, BTreeMap<String, Vec<u8>>), LabError>,
    ) -> Result<Self, LabError> {
        let (mut trainer, checkpoint) = made.inspect_err(|error| {
            let _ = ranks::call_off(&mut *ranks, &error.to_string()); // this rank's own error comes first
        })?;
        Start { run: trainer.run.clone(), checkpoint }.send(&mut *ranks)?;
        trainer.ranks = ranks;
        Ok(trainer)
    }

    /// Takes part in a run as a rank other than 0.
    pub(crate) fn join(
        start: Start,
        make_env: &'a MakeEnv<'a>,
        mut ranks: Box<dyn Ranks + 'a>,
    ) -> Result<Self, LabError> {
        let join = || {
            let Start { run, checkpoint } = start;
            let envs = make_envs(&run, make_env, &*ranks)?;
            let mut trainer = Self::build(Path::new("(the run folder of rank 0)"), run, make_env, envs)?;
            if checkpoint.is_empty() {
                trainer.collector.pool.start()?;
            } else {
                let dir = trainer.dir.clone();
                let (state, tensors) = from_files(&checkpoint).map_err(|why| LabError::run(&dir, why))?;
                trainer.restore(state, &tensors, &dir)?;
            }
            Ok(trainer)
        };
        let joined: Result<Self, LabError> = join();
        let agreed = ranks::agree(&mut *ranks, joined.as_ref().err(), false);
        let mut trainer = joined?;
        agreed?;
        trainer.ranks = ranks;
        Ok(trainer)
    }

    /// Begins a run in a folder that this process has locked.
    fn begin(
        dir: &Path,
        run: ResolvedRun,
        make_env: &'a MakeEnv<'a>,
        envs: RankEnvs,
        lock: RunLock,
    ) -> Result<Self, LabError> {
        runs::write_config(dir, &run, None)?;
        let checkpoints = dir.join("checkpoint");
        std::fs::create_dir_all(&checkpoints).map_err(LabError::io("create", &checkpoints))?;
        let recorder = Recorder::create(dir, columns(&run)?)?;
        let mut trainer = Self::build(dir, run, make_env, envs)?;
        let policies = trainer.reopen_policies()?;
        trainer.open(OpenFolder { recorder, policies, lock })?;
        trainer.collector.pool.start()?;
        trainer.save()?;
        Ok(trainer)
    }

    /// Continues a run from its newest intact checkpoint. Records that are newer than the checkpoint are removed.
    ///
    /// A run that stopped before its first checkpoint starts from the beginning. With `options.steps`, the configuration
    /// in the folder is changed to that number of steps.
    ///
    /// Nothing in the folder is changed before everything in it has been checked.
    ///
    /// # Errors
    /// If the folder is not a run folder, is damaged or is in use by another process, if it was changed since
    /// the checkpoint and `options.accept_changes` is false, or if `options` are invalid for this run.
    pub fn resume(dir: &Path, options: ResumeOptions, make_env: &'a MakeEnv<'a>) -> Result<Self, LabError> {
        Self::resume_on(Box::new(OneRank), dir, options, make_env)
    }

    /// Continues a run as rank 0 of `ranks`. The other ranks call [`follow`](crate::ranks::follow). The number of ranks
    /// may differ from that of earlier processes.
    ///
    /// # Errors
    /// The errors of [`resume`](Self::resume), and if another rank fails. The other ranks then fail too.
    pub fn resume_on(
        ranks: Box<dyn Ranks + 'a>,
        dir: &Path,
        options: ResumeOptions,
        make_env: &'a MakeEnv<'a>,
    ) -> Result<Self, LabError> {
        let made = Self::reopen(&*ranks, dir, options, make_env);
        Self::lead(ranks, made)
    }

    /// Continues a run with the environments of this rank. Returns the run and the checkpoint that it continues
    /// from.
    fn reopen(
        ranks: &dyn Ranks,
        dir: &Path,
        options: ResumeOptions,
        make_env: &'a MakeEnv<'a>,
    ) -> Result<(Self, BTreeMap<String, Vec<u8>>), LabError> {
        runs::read_config(dir)?; // first of all, because the folder may not be a run folder
        runs::refuse_old_penalty(dir)?;
        let lock = RunLock::acquire(dir)?;
        let saved = runs::read_config(dir)?;
        let mut run = saved.clone();
        run.train.threads = options.threads.map_or(Ok(run.train.threads), |n| threads("train.threads", n))?;
        run.run.steps = options.steps.unwrap_or(run.run.steps);
        let run = run.checked()?;
        let root = dir.join("checkpoint");
        if checkpoint::is_empty(&root)? {
            refuse_record_without_checkpoint(dir)?;
            let envs = make_envs(&run, make_env, ranks)?;
            let mut trainer = Self::begin(dir, run, make_env, envs, lock)?;
            trainer.notes.push("the run has no checkpoint yet, so it starts from the beginning".to_owned());
            return Ok((trainer, BTreeMap::new()));
        }
        let loaded = checkpoint::load(&root, fits)?;
        let (state, tensors) = from_files(&loaded.files).map_err(|why| LabError::run(&root, why))?;
        if run.total_steps() < state.steps {
            let (key, got) = ("run.steps".to_owned(), run.run.steps.to_string());
            let why = format!("the run has already made {} steps", state.steps);
            return Err(ConfigError::Value { key, got, why }.into());
        }
        check_fits(&run, &state).map_err(|why| LabError::run(&root, why))?;
        let (mut recorder, found) = Recorder::reopen(dir, columns(&run)?, state.marks)?;
        check_record(&state, &found).map_err(|why| LabError::run(&dir.join("progress.csv"), why))?;
        let now = FolderSummary::of(&saved, recorder.hashes());
        let changed = changes::compare(loaded.covered.as_ref(), &now, &found);
        let decision = changes::decide(dir, loaded.number, changed, (&now, &found), options.accept_changes)?;
        let steps_then = loaded.covered.as_ref().and_then(FolderSummary::steps);

        let envs = make_envs(&run, make_env, ranks)?;
        let mut trainer = Self::build(dir, run, make_env, envs)?;
        trainer.elapsed = found.elapsed;
        trainer.restore(state, &tensors, &root)?;
        let policies = trainer.reopen_policies()?;

        // everything is checked; the folder is changed only from here on
        if let Some(decision) = decision {
            decision.write(dir)?;
            let then = loaded.covered.as_ref().map(|then| &then.record.events);
            if found.broken_events.is_some() || then.is_some_and(|then| *then != now.record.events) {
                recorder.rebuild_events()?;
            }
            trainer.notes.push(decision.note);
        }
        recorder.truncate()?;
        checkpoint::set_aside_after(&root, loaded.number)?;
        trainer.hash = Some(loaded.hash);
        trainer.notes.extend(runs::other_version(dir));
        let continues = |note| format!("{note}; continuing from epoch {}", loaded.number);
        trainer.notes.extend(loaded.passed_over.into_iter().map(continues));
        if trainer.run.run.steps != saved.run.steps {
            trainer.change_length(&saved)?;
        } else if let Some(then) = steps_then.filter(|then| *then != saved.run.steps) {
            trainer.notes.push(format!("run.steps is {}, but was {then} at the checkpoint", saved.run.steps));
        }
        trainer.open(OpenFolder { recorder, policies, lock })?;
        Ok((trainer, loaded.files))
    }

    /// Finds the policies that the folder has of the epochs up to now. It changes nothing. `None` if the policies of the
    /// run are not saved.
    fn reopen_policies(&self) -> Result<Option<PolicyLog>, LabError> {
        let log = PolicyLog::new(&self.dir, &self.run, self.spec(), &self.agent.policy);
        log.map(|mut log| log.reopen(self.steps).map(|()| log)).transpose()
    }

    /// Writes to `folder` from now on. Policies of later epochs are removed from it.
    fn open(&mut self, mut folder: OpenFolder) -> Result<(), LabError> {
        folder.policies.as_mut().map_or(Ok(()), PolicyLog::truncate)?;
        self.folder = Some(folder);
        Ok(())
    }

    /// Writes the new number of steps into the folder, and notes what it means for the learning rate.
    fn change_length(&mut self, saved: &ResolvedRun) -> Result<(), LabError> {
        let version = runs::begun_by(&self.dir);
        let threads = saved.train.threads; // the new number of threads applies to this process only
        let mut run = self.run.clone();
        run.train.threads = threads;
        runs::write_config(&self.dir, &run, version.as_deref())?;
        let (old, new) = (saved.total_steps(), self.run.total_steps());
        let mut note = format!("the run now has {new} steps instead of {old}");
        let update = &self.run.train.update;
        let decays = update.lr_decay && self.algorithm.metrics().contains(&epo_algos::report::LR);
        if decays && !self.is_finished() {
            let lr = update.lr * self.next_epoch().remaining();
            note += &format!(
                "; the learning rate of the policy continues at {lr:.3e} and decays to 0 at {new} steps, \
                 so the result differs from a run that had {new} steps from the start"
            );
        }
        self.notes.push(note);
        Ok(())
    }

    /// Builds all parts of a run in their initial state. It writes to no folder yet.
    fn build(
        dir: &Path,
        run: ResolvedRun,
        make_env: &'a MakeEnv<'a>,
        envs: RankEnvs,
    ) -> Result<Self, LabError> {
        let (seed, train) = (run.run.seed, &run.train);
        let RankEnvs { envs, mine } = envs;
        let spec = envs[0].spec().clone();
        let first = mine.start as u32;
        let pool = EnvPool::numbered(envs, first, train.threads, seed, Purpose::Episode)?;
        let mut agent = Agent::new(
            spec.obs_len,
            &spec.action,
            &train.hidden,
            &train.hidden,
            run.algo.cost_critics(),
            seed,
        );
        if !train.normalize_values {
            agent.scales = None;
        }
        let collector = Collector::new(pool, mine, &agent.policy, &run);
        let algorithm = run.build().map_err(|source| LabError::Update { epoch: 0, source })?;
        Ok(Self {
            dir: dir.to_owned(),
            make_env,
            collector,
            estimator: Estimator::for_limit(run.run.limit),
            agent,
            algorithm,
            episodes: EpisodeWindow::default(),
            folder: None,
            ranks: Box::new(OneRank),
            epoch: 0,
            steps: 0,
            elapsed: 0.0,
            hash: None,
            notes: Vec::new(),
            run,
        })
    }

    /// Restores the state of a checkpoint in the folder `root`, and plays the running episodes again.
    fn restore(&mut self, state: SavedState, tensors: &Tensors, root: &Path) -> Result<(), LabError> {
        self.take_over(&state, tensors).map_err(|why| LabError::run(root, why))?;
        (self.epoch, self.steps, self.episodes) = (state.epoch, state.steps, state.episodes);
        let Collector { pool, mine, workers, .. } = &mut self.collector;
        pool.run(&mut workers[mine.clone()], |slot, worker| worker.replay(slot))?;
        Ok(())
    }

    /// Restores the learned state, and the state of the environments without playing their episodes.
    fn take_over(&mut self, state: &SavedState, tensors: &Tensors) -> Result<(), String> {
        let act_len = self.collector.spec().action.len() as u64;
        let Self { agent, algorithm, collector: Collector { normalizer, workers, .. }, .. } = self;
        Learner { agent, algorithm: &mut **algorithm, normalizer }.restore(state, tensors)?;
        for (i, (worker, env)) in workers.iter_mut().zip(&state.envs).enumerate() {
            worker.episode = env.episode;
            worker.stream = Stream::at(self.run.run.seed, Purpose::Action, i as u32, env.stream);
            worker.running = env.running;
            let replay = tensors.replay(i)?;
            if Some(replay.len() as u64) != env.running.len.checked_mul(act_len) {
                return Err(format!(
                    "environment {i} has {} action values, which do not fit a running episode of {} steps",
                    replay.len(),
                    env.running.len
                ));
            }
            worker.replay.extend_from_slice(replay);
        }
        Ok(())
    }

    /// Writes a checkpoint of everything, on rank 0.
    pub(crate) fn save(&mut self) -> Result<(), LabError> {
        let Some(OpenFolder { recorder, lock, .. }) = &self.folder else { return Ok(()) };
        lock.check_place()?;
        let marks = recorder.sync()?;
        let root = self.dir.join("checkpoint");
        let files = to_files(self, marks).map_err(|why| LabError::run(&root, why))?;
        let covered = FolderSummary::of(&self.run, recorder.hashes());
        let saved = checkpoint::save(&root, u64::from(self.epoch), &files, Some(&covered));
        // if the folder was moved during the save, report that and not the file that is then missing
        self.hash = Some(saved.map_err(|e| lock.check_place().err().unwrap_or(e))?);
        Ok(())
    }
}

/// The columns of the record of a run.
fn columns(run: &ResolvedRun) -> Result<Vec<Metric>, LabError> {
    let algorithm = run.build().map_err(|source| LabError::Update { epoch: 0, source })?;
    Ok(EpochRecord::columns(&algorithm.metrics(), run.train.eval_every > 0))
}

/// Returns an error if the checkpoint belongs to another run.
fn check_fits(run: &ResolvedRun, state: &SavedState) -> Result<(), String> {
    let (task, algo) = (&run.run.task, run.run.algo.as_str());
    if &state.task != task || !epo_algos::is_checkpoint_of(&state.algo, algo) {
        return Err(format!(
            "this is a checkpoint of {} on {}, not of {algo} on {task}",
            state.algo, state.task
        ));
    }
    if state.physics != run.run.physics {
        return Err(format!(
            "this checkpoint was made with {} physics, but `run.physics` is `{}`; a run keeps its physics",
            state.physics, run.run.physics
        ));
    }
    // an epoch is shorter if the run once ended there, but each environment makes at least one step in it
    let envs = run.train.envs;
    let most = u64::from(state.epoch).saturating_mul(run.train.steps_per_epoch as u64);
    let least = u64::from(state.epoch).saturating_mul(envs as u64);
    if state.steps > most {
        return Err(format!(
            "{} steps after epoch {}, but the configuration allows {most}",
            state.steps, state.epoch
        ));
    }
    if state.steps < least {
        return Err(format!(
            "{} steps after epoch {}, but {envs} environments make at least {least}",
            state.steps, state.epoch
        ));
    }
    if state.envs.len() != envs {
        return Err(format!("{} environments, but the configuration has {envs}", state.envs.len()));
    }
    Ok(())
}

/// Returns an error if the record does not belong to the checkpoint.
fn check_record(state: &SavedState, found: &ReopenedRecord) -> Result<(), String> {
    let (rows, epochs) = (state.marks.progress_rows, u64::from(state.epoch));
    if rows != epochs {
        return Err(format!("the checkpoint counts {rows} rows in {epochs} epochs"));
    }
    match found.steps {
        Some(steps) if steps != state.steps as f64 => Err(format!(
            "the row of the checkpoint has {steps} steps, but the checkpoint has {}",
            state.steps
        )),
        _ => Ok(()),
    }
}

/// The environments of a rank.
struct RankEnvs {
    envs: Vec<Box<dyn Env>>,
    /// Their numbers in the run.
    mine: Range<usize>,
}

/// Makes the environments of this rank. Returns an error if the run does not fit into memory.
fn make_envs(run: &ResolvedRun, make_env: &MakeEnv<'_>, ranks: &dyn Ranks) -> Result<RankEnvs, LabError> {
    ranks::check(run, ranks)?;
    let mine = ranks::share(run.train.envs, ranks.rank(), ranks.count());
    let first = make_env()?;
    memory::check(run, first.spec())?;
    let rest = (1..mine.len()).map(|_| make_env());
    let envs = std::iter::once(Ok(first)).chain(rest).collect::<Result<_, _>>()?;
    Ok(RankEnvs { envs, mine })
}

/// Returns an error if there is a record but no checkpoint. The first checkpoint is written before the first
/// epoch, so such a folder is damaged.
fn refuse_record_without_checkpoint(dir: &Path) -> Result<(), LabError> {
    let text = epo_core::open_file(&dir.join("progress.csv"), MOST_RECORD_BYTES);
    let lines = text.map_or(0, |file| BufReader::new(file).lines().map_while(Result::ok).count());
    if lines <= 1 {
        return Ok(());
    }
    let why = format!(
        "its checkpoints are missing, but it has a record of {} epochs; nothing was overwritten: begin a new run",
        lines - 1
    );
    Err(LabError::run(dir, why))
}
