//! The state of runs and tasks that the process waiting for a sweep keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::commands::QueueLine;
use crate::engine::task::{BAD_NODE, used_up, with_output};
use crate::engine::{EngineError, Plan};
use crate::sweep::{EngineTask, Overview, PlannedRun, RunOutcome, Running, StatusReader, tail};

/// Interval between two searches for idle tasks.
const IDLE_LOOK: Duration = Duration::from_secs(20);
/// Number of consecutive tasks of a run that wrote output and made no new step, after which the run is given up.
const MOST_IDLE_TASKS: u32 = 3;
/// Maximum number of running runs whose progress is read at once.
const MOST_SHOWN: usize = 50;

/// The state of runs and tasks that the process watching a sweep keeps.
#[derive(Default)]
pub(super) struct Watch {
    /// Number of consecutive queries in which no task of a run was in the queue.
    absent: HashMap<usize, u32>,
    /// Runs that have a task, or had one when they were last seen, with their steps when the task was submitted or first
    /// seen.
    submitted: HashMap<usize, u64>,
    /// Number of consecutive tasks of a run that made no step: those that wrote output, and those that left no trace.
    idle: HashMap<usize, (u32, u32)>,
    /// Folder of the submission with the check job, if this process submitted one.
    pub(super) check: Option<PathBuf>,
    /// Output of the last task of a run.
    pub(super) logs: HashMap<usize, PathBuf>,
    /// Nodes that cannot make the runs and that the user knows about.
    bad_nodes: BTreeSet<String>,
    /// The last message about runs that Slurm refused.
    refusal: Option<String>,
    /// First and newest number of steps of a running run, each with its time.
    speed: HashMap<usize, [(u64, Instant); 2]>,
    /// Running tasks that work on none of their runs, and since when.
    idle_since: BTreeMap<String, Instant>,
    /// When idle tasks were last searched for.
    looked: Option<Instant>,
}

impl Watch {
    /// Returns the open runs that belong to no task and therefore have to be submitted.
    ///
    /// A run must be absent twice, because a task that is being put back into the queue may be invisible for a
    /// moment.
    pub(super) fn missing(
        &mut self,
        plan: &Plan,
        reader: &mut StatusReader<'_>,
        queue: &HashMap<String, EngineTask>,
        first: bool,
        retries: u32,
    ) -> Result<Vec<usize>, EngineError> {
        let mut missing = Vec::new();
        for (index, run) in plan.runs.iter().enumerate() {
            if let Some(task) = queue.get(&run.id) {
                self.absent.remove(&index);
                self.logs.insert(index, task.log.clone());
                self.submitted.entry(index).or_insert_with(|| reader.progress(index).0);
                continue;
            }
            let absent = self.absent.entry(index).or_default();
            *absent = (*absent).saturating_add(1);
            // the reader remembers runs that have ended, so this check is cheap
            if (!first && *absent < 2) || reader.outcome(index)?.is_some() {
                continue;
            }
            self.absent.remove(&index);
            // a user who gives the command again wants the run to be tried again
            if first {
                missing.push(index);
                continue;
            }
            let exhausted = used_up(reader.starts(index), retries);
            if exhausted.is_some() && reader.is_held(index)? {
                continue; // its process may still be alive although its task is gone
            }
            match exhausted.or_else(|| self.stuck(index, reader.progress(index).0, retries)) {
                Some(why) => {
                    let log = self.logs.get(&index).cloned();
                    reader.give_up(index, with_output(why, log.as_deref()), log)?;
                }
                None => missing.push(index),
            }
        }
        Ok(missing)
    }

    /// Counts a task of a run that has ended. Returns a message if too many in a row made no step.
    ///
    /// A task that left no trace says nothing about its run: its node may have died, or the controller has forgotten it.
    /// Only `retries` limits the number of such tasks. A task on a node that cannot make the runs does not count, because
    /// the node is excluded.
    fn stuck(&mut self, index: usize, steps: u64, retries: u32) -> Option<String> {
        let before = self.submitted.remove(&index)?; // a run that was refused had no task
        let output = self.logs.get(&index).and_then(|log| tail(log, 4000).ok()).unwrap_or_default();
        let (idle, silent) = self.idle.entry(index).or_default();
        if steps > before {
            (*idle, *silent) = (0, 0);
        } else if output.trim().is_empty() {
            *silent += 1;
        } else if !output.contains(BAD_NODE) {
            *idle += 1;
        }
        if *silent > retries {
            return Some(format!(
                "{silent} tasks ended without output and without a new epoch (--retries {retries})"
            ));
        }
        (*idle >= MOST_IDLE_TASKS).then(|| {
            format!(
                "{MOST_IDLE_TASKS} tasks in a row ended without a new epoch; if an epoch takes longer than the time limit \
                 of a task, raise it (--time)"
            )
        })
    }

    /// Returns a message for each node that cannot make the runs, unless it was returned before.
    pub(super) fn new_bad_nodes(&mut self, nodes: BTreeMap<String, String>) -> Vec<String> {
        nodes
            .into_iter()
            .filter(|(node, _)| self.bad_nodes.insert(node.clone()))
            .map(|(_, why)| why)
            .collect()
    }

    /// Returns a message about runs that Slurm refused, unless it was the last one.
    pub(super) fn new_refusal(&mut self, why: &str) -> Option<String> {
        let text = format!("Slurm has not accepted all runs; the others are submitted later: {why}");
        let before = self.refusal.replace(text.clone());
        (before.as_ref() != Some(&text)).then_some(text)
    }

    /// Returns the tasks that Slurm reports as running and that have worked on none of their runs for the time
    /// `most`.
    pub(super) fn idle_tasks(
        &mut self,
        plan: &Plan,
        reader: &mut StatusReader<'_>,
        queue: &HashMap<String, EngineTask>,
        most: Duration,
    ) -> Result<Vec<String>, EngineError> {
        if self.looked.is_some_and(|at| at.elapsed() < IDLE_LOOK.min(most)) {
            return Ok(Vec::new());
        }
        self.looked = Some(Instant::now());
        let mut at_work: BTreeMap<&str, bool> = BTreeMap::new();
        for (index, run) in plan.runs.iter().enumerate() {
            if let Some(task) = queue.get(&run.id).filter(|task| task.running) {
                let works = at_work.entry(&task.id).or_default();
                *works = *works || reader.is_held(index)?;
            }
        }
        self.idle_since.retain(|id, _| at_work.get(id.as_str()) == Some(&false));
        for id in at_work.into_iter().filter(|(_, works)| !works).map(|(id, _)| id) {
            self.idle_since.entry(id.to_owned()).or_insert_with(Instant::now);
        }
        let idle = self.idle_since.iter().filter(|(_, since)| since.elapsed() >= most);
        Ok(idle.map(|(id, _)| id.clone()).collect())
    }

    /// Records that a run with this number of steps was submitted.
    pub(super) fn submitted(&mut self, index: usize, steps: u64, log: PathBuf) {
        self.submitted.insert(index, steps);
        self.logs.insert(index, log);
    }

    /// Returns the state of all runs. Runs that have no task are not looked at.
    pub(super) fn overview(
        &mut self,
        plan: &Plan,
        reader: &mut StatusReader<'_>,
        queue: &HashMap<String, EngineTask>,
        lines: &[QueueLine],
        pack: u32,
    ) -> Result<Overview, EngineError> {
        let mut overview = Overview { total: plan.runs.len(), ..Overview::default() };
        let mut left = 0;
        for (index, run) in plan.runs.iter().enumerate() {
            match queue.get(&run.id) {
                // a task of several runs may have ended this one
                Some(task) if task.running && (pack == 1 || reader.outcome(index)?.is_none()) => {
                    if overview.running.len() < MOST_SHOWN {
                        let running = self.running(index, run, reader.progress(index).0);
                        left += run.goal().saturating_sub(running.steps);
                        overview.running.push(running);
                    } else {
                        overview.elsewhere += 1;
                        left += run.goal();
                    }
                    continue;
                }
                Some(task) if task.running => {}
                Some(_) => {
                    overview.queued += 1;
                    left += run.goal();
                    continue;
                }
                None => {}
            }
            let submitted = self.submitted.contains_key(&index);
            let outcome = if submitted { reader.outcome(index)? } else { reader.known(index) };
            match outcome {
                Some(RunOutcome::Done(_)) => overview.done += 1,
                Some(RunOutcome::Failed(..)) => overview.failed += 1,
                _ => {
                    overview.refused += usize::from(!submitted);
                    left += run.goal();
                }
            }
        }
        let speeds: Vec<f64> = overview.running.iter().filter_map(|run| run.steps_per_second).collect();
        let all = (overview.running.len() + overview.elsewhere) as f64;
        let speed = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64 * all;
        overview.eta = (speed > 0.0).then(|| left as f64 / speed);
        if let (true, Some(line)) = (overview.running.is_empty(), lines.iter().find(|line| !line.running)) {
            let reason = if line.reason.is_empty() { "none given" } else { &line.reason };
            overview.note = format!("waiting in the queue, reason: {reason}");
        }
        Ok(overview)
    }

    fn running(&mut self, index: usize, run: &PlannedRun, steps: u64) -> Running {
        let now = Instant::now();
        let [first, last] = self.speed.entry(index).or_insert([(steps, now); 2]);
        if steps != last.0 {
            *last = (steps, now);
        }
        let seconds = last.1.duration_since(first.1).as_secs_f64();
        let speed = (last.0 > first.0 && seconds > 0.0).then(|| (last.0 - first.0) as f64 / seconds);
        Running { label: run.label(), steps, of: run.goal(), steps_per_second: speed }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sweep::Places;

    /// Fails if a task that Slurm wrongly reports as running is not found, or if one that works is cancelled.
    #[test]
    fn a_task_that_works_on_no_run_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let runs = crate::sweep::SweepFile::parse("[grid]\nrun.seed = [0, 1]\n").unwrap().plan().unwrap();
        let plan = Plan { dir: dir.path().to_owned(), name: "s".into(), runs, size: 2 };
        let places = Places::open(&plan.dir, 2).unwrap();
        let task = |id: &str| EngineTask { id: id.into(), running: true, ..EngineTask::default() };
        let queue: HashMap<_, _> =
            plan.runs.iter().zip(["7_0", "7_1"]).map(|(run, id)| (run.id.clone(), task(id))).collect();
        // a lease that cannot be read counts as held until it has not changed for two minutes
        let held = places.journal(&plan.runs[1].id);
        fs::create_dir_all(&held).unwrap();
        fs::write(held.join("lease-0001"), "").unwrap();
        let mut reader = StatusReader::open(&plan.dir, &plan.runs).unwrap();
        let mut watch = Watch::default();
        let mut idle = |most| watch.idle_tasks(&plan, &mut reader, &queue, most).unwrap();
        assert!(idle(Duration::from_secs(60)).is_empty(), "it has just been seen");
        assert_eq!(idle(Duration::ZERO), ["7_0"]);
    }

    /// Fails if a task that made an epoch counts as idle, or a run that Slurm refused as a task.
    #[test]
    fn only_tasks_without_a_new_step_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (log, none) = (dir.path().join("log"), dir.path().join("none"));
        fs::write(&log, "oom_kill event\n").unwrap();
        let mut watch = Watch::default();
        let mut task = |before, after, log: &PathBuf| {
            watch.submitted(0, before, log.clone());
            watch.stuck(0, after, 1).is_some()
        };
        assert_eq!([task(0, 100, &log), task(100, 100, &log), task(100, 100, &log)], [false; 3]);
        assert!(!task(100, 100, &none), "it left no trace: its node may have died");
        assert!(watch.stuck(0, 100, 1).is_none(), "it was refused and had no task");
        watch.submitted(0, 100, log.clone());
        assert!(watch.stuck(0, 100, 1).is_some(), "the third task in a row that wrote output");
        let mut watch = Watch::default();
        let mut silent = || {
            watch.submitted(0, 0, none.clone());
            watch.stuck(0, 0, 1)
        };
        assert!(silent().is_none());
        assert!(silent().is_some_and(|why| why.contains("without output")), "more than the retries");
    }
}
