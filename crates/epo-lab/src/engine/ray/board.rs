//! What a driver has reported so far, and the file that tells it to `--status`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::engine::Plan;
use crate::sweep::{EngineTask, Overview, PlannedRun, Running, StatusReader, at};

/// File in the folder of a submission that lists the runs in execution; rewritten about once per second.
pub(super) const RUNNING: &str = "running.json";
/// Time after which a driver that rewrites no [`RUNNING`] counts as dead.
const SILENT: Duration = Duration::from_secs(60);

/// Returns the runs that a driver says it is executing; none if it has said nothing for [`SILENT`].
pub(super) fn running(folder: &Path) -> HashMap<String, EngineTask> {
    let path = folder.join(RUNNING);
    let age = fs::metadata(&path).and_then(|data| data.modified()).map(|at| at.elapsed().unwrap_or_default());
    if age.is_ok_and(|age| age > SILENT) {
        return HashMap::new(); // a time in the future is a difference between two clocks
    }
    let text = epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES).unwrap_or_default();
    let runs: HashMap<String, Option<u64>> = serde_json::from_str(&text).unwrap_or_default();
    // a task that has reported nothing yet waits for a core
    let task = |steps: Option<u64>| EngineTask { running: steps.is_some(), steps, ..EngineTask::default() };
    runs.into_iter().map(|(id, steps)| (id, task(steps))).collect()
}

/// The reports of the driver so far.
#[derive(Default)]
pub(super) struct Board {
    /// Newest number of steps by run, and when it was reported.
    steps: HashMap<String, (u64, Instant)>,
    /// First number of steps by run, and when it was reported.
    begun: HashMap<String, (u64, Instant)>,
    running: Vec<String>,
    /// Message about the cluster or its storage.
    pub(super) note: String,
}

impl Board {
    pub(super) fn tell(&mut self, runs: BTreeMap<String, (String, u64)>, running: Vec<String>) {
        for (id, (_, steps)) in runs {
            let now = (steps, Instant::now());
            self.begun.entry(id.clone()).or_insert(now);
            self.steps.insert(id, now);
        }
        self.running = running;
    }

    /// Writes the running runs for `--status`, each with its steps if they are known.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let steps = |id: &String| self.steps.get(id).map(|(steps, _)| *steps);
        let runs: BTreeMap<&String, Option<u64>> = self.running.iter().map(|id| (id, steps(id))).collect();
        let (part, path) = (folder.join(".running"), folder.join(RUNNING));
        fs::write(&part, serde_json::to_string(&runs)?).map_err(at(&part))?;
        fs::rename(&part, &path).map_err(at(&path))
    }

    pub(super) fn overview(&self, plan: &Plan, reader: &StatusReader<'_>) -> Overview {
        let mut overview =
            Overview { total: plan.runs.len(), note: self.note.clone(), ..Overview::default() };
        (overview.done, overview.failed) = reader.counts();
        let plans: HashMap<&str, (usize, &PlannedRun)> =
            plan.runs.iter().enumerate().map(|(index, run)| (run.id.as_str(), (index, run))).collect();
        for id in &self.running {
            let Some((index, run)) = plans.get(id.as_str()) else { continue };
            if reader.known(*index).is_some() {
                continue; // it has ended since the last report
            }
            // a task that has reported nothing yet waits for a core
            let Some(&(steps, at)) = self.steps.get(id) else {
                overview.queued += 1;
                continue;
            };
            let (first, since) = self.begun.get(id).copied().unwrap_or((steps, at));
            let seconds = at.duration_since(since).as_secs_f64();
            let speed = (steps > first && seconds > 0.0).then(|| (steps - first) as f64 / seconds);
            overview.running.push(Running {
                label: run.label(),
                steps,
                of: run.goal(),
                steps_per_second: speed,
            });
        }
        let ended = overview.done + overview.failed + overview.queued + overview.running.len();
        overview.queued += overview.total.saturating_sub(ended);
        overview
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    /// Fails if a clock that is ahead hides the runs of a driver, or if a dead driver seems to execute runs.
    #[test]
    fn runs_of_a_driver_are_shown_until_it_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        assert!(running(dir.path()).is_empty());
        let file = File::create(dir.path().join(RUNNING)).unwrap();
        fs::write(dir.path().join(RUNNING), r#"{"a": 400, "b": null}"#).unwrap();
        let now = SystemTime::now();
        for (time, count) in [(now, 2), (now + SILENT * 2, 2), (now - SILENT * 2, 0)] {
            file.set_modified(time).unwrap();
            assert_eq!(running(dir.path()).len(), count, "{time:?}");
        }
    }
}
