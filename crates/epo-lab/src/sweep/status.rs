//! The state of every run of a plan, from the folders and from the queue of an engine.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use super::drive::{RunOutcome, last_row};
use super::index;
use super::journal::{Claim, Journal, RunEnd};
use super::places::{MOST_FLAT, Places};
use super::plan::PlannedRun;

/// State of a run of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlannedState {
    /// The run is finished.
    Done,
    /// A process trains the run.
    Running,
    /// The run waits in the queue of an engine.
    Queued,
    /// The run failed; `--retry-failed` tries it again.
    Failed,
    /// The run is not finished, and no process or queue has it.
    Pending,
}

/// A task of an engine that makes a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineTask {
    /// Name of the task in the engine, such as `1234_5`; empty if tasks have no names.
    pub id: String,
    /// Whether the task has started; otherwise it waits.
    pub running: bool,
    /// Reason why the task waits, as the engine states it; may be empty.
    pub reason: String,
    /// File with the output of the task; empty if there is none.
    pub log: PathBuf,
    /// Number of environment steps that the engine reports, if the run folder is not on this machine.
    pub steps: Option<u64>,
}

/// The tasks of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineQueue {
    /// The tasks, by the name of their run.
    pub tasks: HashMap<String, EngineTask>,
    /// Problems that keep runs from starting, each a sentence for the user.
    pub problems: Vec<String>,
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// Name of the run.
    pub id: String,
    /// Its state.
    pub state: PlannedState,
    /// Name of its task in the engine; `None` if no engine has it, or the tasks of the engine have no names.
    pub engine_id: Option<String>,
    /// Number of finished epochs.
    pub epoch: u32,
    /// Total number of epochs.
    pub epochs: u32,
    /// Number of finished environment steps.
    pub steps: u64,
    /// Reason why the run failed, why its task waits, or how the last task of a pending run ended; `None` if there is no
    /// reason.
    pub message: Option<String>,
}

/// The state of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Number of runs of the plan.
    pub planned: usize,
    /// Number of finished runs.
    pub done: usize,
    /// Number of runs that are being trained.
    pub running: usize,
    /// Number of runs in the queue of an engine.
    pub queued: usize,
    /// Number of failed runs.
    pub failed: usize,
    /// Number of runs that are not finished and that no process or queue has.
    pub pending: usize,
    /// Number of runs that an engine has although they are not in the plan, because the sweep file was changed.
    pub not_in_plan: usize,
    /// Problems of the engine that keep runs from starting.
    pub problems: Vec<String>,
    /// The runs, in the order of the plan.
    pub runs: Vec<RunStatus>,
}

/// Reads the state of runs. Runs that have ended are not read again.
#[derive(Debug)]
pub struct StatusReader<'a> {
    runs: &'a [PlannedRun],
    places: Places,
    journal: Journal,
    outcomes: Vec<Option<RunOutcome>>,
}

impl<'a> StatusReader<'a> {
    /// Opens the folder of a sweep for reading. It need not exist.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn open(dir: &std::path::Path, runs: &'a [PlannedRun]) -> io::Result<Self> {
        let places = Places::find(dir)?;
        let outcomes = index::known_outcomes(&places, runs);
        Ok(Self { runs, journal: Journal::open(places.clone()), places, outcomes })
    }

    /// Checks whether a run has ended, and returns its outcome if it has.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn outcome(&mut self, index: usize) -> io::Result<Option<&RunOutcome>> {
        if self.outcomes[index].is_none() {
            self.look(index)?;
        }
        Ok(self.outcomes[index].as_ref())
    }

    /// Returns the outcome of a run if it was read before.
    pub fn known(&self, index: usize) -> Option<&RunOutcome> {
        self.outcomes[index].as_ref()
    }

    /// Returns true if a process works on a run, according to its lease.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn is_held(&mut self, index: usize) -> io::Result<bool> {
        if self.outcomes[index].is_some() { Ok(false) } else { self.look(index) }
    }

    /// Returns how often a cluster has started a run since it was last tried again with `--retry-failed`.
    pub fn starts(&self, index: usize) -> u32 {
        self.journal.starts(&self.runs[index].id)
    }

    /// Records that a run failed although it did not end by itself. `log` is the file that shows why.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn give_up(&mut self, index: usize, message: String, log: Option<PathBuf>) -> io::Result<()> {
        let end = RunEnd { code: None, seconds: 0.0, message, until: None, log };
        let id = &self.runs[index].id;
        self.journal.give_up(id, &end)?;
        self.outcomes[index] = Some(self.journal.failed(id, end));
        Ok(())
    }

    /// Reads the journal of a run. Returns whether a process holds the run.
    fn look(&mut self, index: usize) -> io::Result<bool> {
        let PlannedRun { id, until, .. } = &self.runs[index];
        let folder = self.journal.folder(id);
        if !folder.exists() {
            return Ok(false); // most runs of a sweep that has just begun
        }
        let run = self.places.run_folder(id);
        let record = run.as_ref().map(|dir| dir.join("progress.csv"));
        Ok(match self.journal.standing(id, *until, record.as_deref())? {
            Claim::Done(end) => {
                self.outcomes[index] = run.is_some().then_some(RunOutcome::Done(end));
                false
            }
            Claim::Failed(end) => {
                self.outcomes[index] = Some(self.journal.failed(id, end));
                false
            }
            Claim::Held => true,
            Claim::Free(_) => false,
        })
    }

    /// Returns the numbers of finished and of failed runs among those that were checked.
    pub fn counts(&self) -> (usize, usize) {
        let count =
            |wanted: fn(&RunOutcome) -> bool| self.outcomes.iter().flatten().filter(|o| wanted(o)).count();
        (count(|o| matches!(o, RunOutcome::Done(_))), count(|o| matches!(o, RunOutcome::Failed(..))))
    }

    /// Deletes the records of failed runs, so that an engine tries them again.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn forgive_failed(&mut self) -> io::Result<()> {
        for index in 0..self.runs.len() {
            if let Some(RunOutcome::Failed(..)) = self.outcome(index)? {
                self.journal.forgive(&self.runs[index].id)?;
                self.outcomes[index] = None;
            }
        }
        Ok(())
    }

    /// Returns the number of environment steps and of epochs that a run has made.
    pub fn progress(&self, index: usize) -> (u64, u32) {
        let id = &self.runs[index].id;
        if !self.journal.folder(id).exists() {
            return (0, 0); // most runs of a sweep that has just begun
        }
        let folder = self.places.run_folder(id);
        folder.and_then(|dir: PathBuf| last_row(&dir.join("progress.csv"))).unwrap_or((0, 0))
    }

    /// Returns the state of all runs.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn read(&mut self, queue: &EngineQueue) -> io::Result<Status> {
        let mut status = Status { planned: self.runs.len(), ..Status::default() };
        let mut known = 0;
        for index in 0..self.runs.len() {
            let run = &self.runs[index];
            let task = queue.tasks.get(&run.id);
            known += usize::from(task.is_some());
            let held = self.outcomes[index].is_none() && self.look(index)?;
            let (state, message) = match (&self.outcomes[index], task) {
                (Some(RunOutcome::Done(_)), _) => (PlannedState::Done, None),
                (Some(RunOutcome::Failed(end, _)), None) => (PlannedState::Failed, Some(end.message.clone())),
                (_, Some(task)) if task.running => (PlannedState::Running, None),
                (_, Some(task)) => {
                    (PlannedState::Queued, Some(task.reason.clone()).filter(|why| !why.is_empty()))
                }
                _ if held => (PlannedState::Running, None),
                _ => (PlannedState::Pending, None),
            };
            let (steps, epoch) = match state {
                PlannedState::Done => {
                    (run.goal(), if run.until.is_some() { self.progress(index).1 } else { run.epochs })
                }
                _ => self.progress(index),
            };
            let far = task.and_then(|task| task.steps).filter(|far| *far > steps);
            let (steps, epoch) = far.map_or((steps, epoch), |far| (far, run.epochs_of(far)));
            *match state {
                PlannedState::Done => &mut status.done,
                PlannedState::Running => &mut status.running,
                PlannedState::Queued => &mut status.queued,
                PlannedState::Failed => &mut status.failed,
                PlannedState::Pending => &mut status.pending,
            } += 1;
            let shown = |task: &&EngineTask| state != PlannedState::Done && !task.id.is_empty();
            let engine_id = task.filter(shown).map(|task| task.id.clone());
            let (id, epochs) = (run.id.clone(), run.epochs);
            status.runs.push(RunStatus { id, state, engine_id, epoch, epochs, steps, message });
        }
        status.not_in_plan = queue.tasks.len() - known;
        if status.queued + status.pending > 0 {
            status.problems.clone_from(&queue.problems);
        }
        Ok(status)
    }

    /// Returns the outcome of every run, if it is known, and adds finished runs to the index of a large sweep.
    ///
    /// # Errors
    /// If the index cannot be written.
    pub fn finish(self) -> io::Result<Vec<RunOutcome>> {
        if self.runs.len() > MOST_FLAT && self.outcomes.iter().any(Option::is_some) {
            index::add(&self.places, self.runs.iter().zip(&self.outcomes))?;
        }
        Ok(self.outcomes.into_iter().map(|outcome| outcome.unwrap_or(RunOutcome::Pending)).collect())
    }
}
