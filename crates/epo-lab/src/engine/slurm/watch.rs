//! The state of runs and tasks that the process waiting for a sweep keeps.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::commands::QueueLine;
use crate::engine::{EngineError, Plan};
use crate::sweep::{EngineTask, Overview, PlannedRun, RunEnd, RunOutcome, Running, StatusReader};

/// Interval between two searches for idle tasks.
const IDLE_LOOK: Duration = Duration::from_secs(20);
/// Number of consecutive tasks of a run without a single new step after which the run is given up.
const MOST_IDLE_TASKS: u32 = 3;
/// Maximum number of running runs whose progress is read at once.
const MOST_SHOWN: usize = 50;

/// The state of runs and tasks that the process watching a sweep keeps.
#[derive(Default)]
pub(super) struct Watch {
    /// Number of consecutive queries in which no task of a run was in the queue.
    absent: HashMap<usize, u32>,
    /// Steps of a run when its last task vanished, and the number of tasks since then that made no step.
    idle: HashMap<usize, (u64, u32)>,
    /// Runs that are not submitted again.
    pub(super) given_up: BTreeMap<usize, RunEnd>,
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
    ) -> Result<Vec<usize>, EngineError> {
        let mut missing = Vec::new();
        for (index, run) in plan.runs.iter().enumerate() {
            if queue.contains_key(&run.id) || self.given_up.contains_key(&index) {
                self.absent.remove(&index);
                continue;
            }
            let absent = self.absent.entry(index).or_default();
            *absent = (*absent).saturating_add(1);
            // the reader remembers runs that have ended, so this check is cheap
            if (!first && *absent < 2) || reader.outcome(index)?.is_some() {
                continue;
            }
            self.absent.remove(&index);
            if !first {
                let steps = reader.progress(index).0;
                let (before, idle) = self.idle.entry(index).or_insert((steps, 0));
                *idle = if steps > *before { 0 } else { *idle + 1 };
                *before = steps;
                if *idle >= MOST_IDLE_TASKS {
                    let message = format!(
                        "{MOST_IDLE_TASKS} tasks in a row ended without a new epoch; if an epoch takes longer than the \
                         time limit of a task, raise it (--time)"
                    );
                    self.given_up.insert(index, RunEnd { code: None, seconds: 0.0, message, until: None });
                    continue;
                }
            }
            missing.push(index);
        }
        Ok(missing)
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

    /// Records that a run was not submitted after all.
    pub(super) fn not_submitted(&mut self, index: usize) {
        if let Some((_, idle)) = self.idle.get_mut(&index) {
            *idle = idle.saturating_sub(1);
        }
    }

    pub(super) fn overview(
        &mut self,
        plan: &Plan,
        reader: &mut StatusReader<'_>,
        queue: &HashMap<String, EngineTask>,
        lines: &[QueueLine],
        pack: u32,
    ) -> Result<Overview, EngineError> {
        let mut overview =
            Overview { total: plan.runs.len(), failed: self.given_up.len(), ..Overview::default() };
        let mut left = 0;
        for (index, run) in plan.runs.iter().enumerate() {
            if self.given_up.contains_key(&index) {
                continue;
            }
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
            match reader.outcome(index)? {
                Some(RunOutcome::Done(_)) => overview.done += 1,
                Some(RunOutcome::Failed(..)) => overview.failed += 1,
                _ => left += run.goal(),
            }
        }
        let speeds: Vec<f64> = overview.running.iter().filter_map(|run| run.steps_per_second).collect();
        let all = (overview.running.len() + overview.elsewhere) as f64;
        let speed = speeds.iter().sum::<f64>() / speeds.len().max(1) as f64 * all;
        overview.eta = (speed > 0.0).then(|| left as f64 / speed);
        if let (true, Some(line)) = (overview.running.is_empty(), lines.iter().find(|line| !line.running)) {
            overview.note = format!("waiting in the queue, reason: {}", line.reason);
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
        let plan = Plan { dir: dir.path().to_owned(), name: "s".into(), runs };
        let places = Places::open(&plan.dir, 2).unwrap();
        let task = |id: &str| EngineTask { id: id.into(), running: true, reason: String::new() };
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
}
