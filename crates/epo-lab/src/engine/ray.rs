//! The engine for Ray: tasks that start the program on the nodes of a Ray cluster.
//!
//! A driver in Python (`ray_driver.py`, part of this library) connects to the cluster, starts one task per run
//! and reports what happens. It needs a Python with the package `ray`. The nodes need the program `epo`, but
//! none of our Python packages.
//!
//! ```text
//! DIR/ray/0001/driver.py, ray.json  the driver and its settings
//! DIR/ray/0001/tasks-*.jsonl        the runs of each task
//! DIR/ray/0001/driver.txt           messages of Ray
//! DIR/ray/0001/running.json         the runs in execution, for `--status`
//! ```
//! Without a storage, the nodes share the folder of the sweep. With a storage, run folders are transferred
//! through it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use toml::Table;

use super::task::{TaskFolder, TaskSettings};
use super::{
    Engine, EngineError, Key, Plan, make_next_folder, next_folder, open_places, or_discard, read_table,
};
use crate::sweep::{
    EngineQueue, EngineTask, Overview, Places, PlannedRun, RunOutcome, Running, StatusReader, at, last_lines,
};

/// File in the folder of a submission that lists the runs in execution; rewritten about once per second.
const RUNNING: &str = "running.json";
/// Time after which a driver that rewrites no [`RUNNING`] counts as dead.
const SILENT: Duration = Duration::from_secs(60);
const DRIVER: &str = include_str!("ray_driver.py");

/// Requirements of the runs on a Ray cluster. The table `[ray]` of a sweep file has these keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RayOptions {
    /// Address of the cluster, such as `10.0.0.1:6379`. Default: the environment variable `RAY_ADDRESS`, otherwise a
    /// cluster on this machine.
    pub address: Option<String>,
    /// Path or URL (as `fsspec` opens it) through which run folders are transferred. Default: none; the nodes
    /// share the folder.
    pub storage: Option<String>,
    /// Number of cores of a run. Default: 1.
    pub cpus: u32,
    /// Maximum number of runs at the same time. Default: as many as the cluster has cores for.
    pub at_once: Option<u32>,
    /// Maximum number of times that a run is started again after the loss of its node or an interruption. Default: 20.
    pub retries: u32,
    /// Interval, in seconds, at which new checkpoints are copied to the storage. Default: 10.
    pub sync: u32,
    /// Ray's `runtime_env`, such as `{ pip = ["epo"] }`. Default: none.
    pub runtime_env: Table,
    /// Python interpreter that has Ray. Default: the one that runs this program, otherwise `python3`.
    pub python: Option<String>,
}

impl Default for RayOptions {
    fn default() -> Self {
        Self {
            address: None,
            storage: None,
            cpus: 1,
            at_once: None,
            retries: 20,
            sync: 10,
            runtime_env: Table::new(),
            python: None,
        }
    }
}

impl RayOptions {
    /// Keys of the table `[ray]`.
    const KEYS: &[Key<Self>] = &[
        ("address", |to, value| value.text().map(|v| to.address = Some(v))),
        ("storage", |to, value| value.text().map(|v| to.storage = Some(v))),
        ("cpus", |to, value| value.number(1).map(|v| to.cpus = v)),
        ("at_once", |to, value| value.number(1).map(|v| to.at_once = Some(v))),
        ("retries", |to, value| value.number(0).map(|v| to.retries = v)),
        ("sync", |to, value| value.number(1).map(|v| to.sync = v)),
        ("runtime_env", |to, value| value.table().map(|v| to.runtime_env = v)),
        ("python", |to, value| value.text().map(|v| to.python = Some(v))),
    ];

    /// Reads the table `[ray]` of a sweep file.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if a key does not exist or has a wrong value.
    pub fn from_table(table: &Table) -> Result<Self, EngineError> {
        read_table("ray", Self::KEYS, table)
    }
}

/// Executes runs on a Ray cluster. If `stop` is set, the runs save and end.
#[derive(Clone, Debug)]
pub struct Ray {
    /// Requirements of the runs.
    pub options: RayOptions,
    /// The program and its first arguments, as it is called on a node; `work …` is appended. Empty: `python -m epo` with
    /// the Python of the node.
    pub program: Vec<OsString>,
    /// Python interpreter that has Ray.
    pub python: OsString,
    /// Whether failed runs are tried again.
    pub retry: bool,
}

/// A report of the driver. Each is one JSON document per line.
#[derive(Debug, serde::Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready { nodes: usize, cpus: f64 },
    Progress { runs: BTreeMap<String, (String, u64)>, running: Vec<String> },
    Ended { task: usize },
    Warning { message: String },
    Error { kind: String, message: String },
}

impl Engine for Ray {
    fn name(&self) -> &'static str {
        "ray"
    }

    fn execute(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        or_discard(plan, || self.start_and_wait(plan, stop, observe))
    }

    fn queue(&mut self, plan: &Plan) -> Result<EngineQueue, EngineError> {
        let (_, newest) = next_folder(plan, "ray")?;
        Ok(EngineQueue {
            tasks: newest.map(|folder| running(&folder)).unwrap_or_default(),
            ..EngineQueue::default()
        })
    }
}

impl Ray {
    /// Starts the runs that are not done and waits for them.
    fn start_and_wait(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        let places = open_places(plan)?;
        let mut reader = StatusReader::open(&plan.dir, &plan.runs)?;
        if self.retry {
            reader.forgive_failed()?;
        }
        let open = self.open_runs(plan, &mut reader, stop, observe)?;
        if open.is_empty() || stop.load(Relaxed) {
            return Ok(reader.finish()?);
        }
        let folder = make_next_folder(plan, "ray")?;
        self.write(plan, &places, &open, &folder)?;
        let log = folder.join("driver.txt");
        let mut child = Command::new(&self.python)
            .arg(folder.join("driver.py"))
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).map_err(at(&log))?)
            .env("RAY_DEDUP_LOGS", "0")
            .spawn()
            .inspect_err(|_| drop(fs::remove_dir_all(&folder)))
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => EngineError::Unavailable(format!(
                    "there is no `{}`: `--on ray` needs a Python with the package ray (set ray.python in the sweep file)",
                    self.python.display()
                )),
                _ => io::Error::new(e.kind(), format!("cannot start `{}`: {e}", self.python.display())).into(),
            })?;
        let (sender, events) = mpsc::channel();
        let stdout = child.stdout.take();
        let reading = std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                // other lines are output of Ray
                if let Ok(event) = serde_json::from_str::<Event>(&line)
                    && sender.send(event).is_err()
                {
                    return;
                }
            }
        });
        let mut board =
            Board { steps: HashMap::new(), begun: HashMap::new(), running: Vec::new(), note: String::new() };
        let (mut asked, mut ready, mut failure) = (false, false, None);
        let status = loop {
            if stop.load(Relaxed) && !asked {
                asked = true;
                crate::sweep::terminate(&child);
            }
            loop {
                match events.recv_timeout(Duration::from_millis(200)) {
                    Ok(Event::Ready { nodes, cpus }) => {
                        ready = true;
                        board.note = format!("Ray has {nodes} nodes with {cpus} cores")
                    }
                    Ok(Event::Progress { runs, running }) => {
                        board.tell(runs, running);
                        let _ = board.write(&folder); // only `--status` reads it
                    }
                    Ok(Event::Warning { message }) => board.note = message,
                    Ok(Event::Ended { task }) => {
                        if let Some(&index) = open.get(task) {
                            let _ = reader.outcome(index); // read again at the end
                        }
                    }
                    Ok(Event::Error { kind, message }) => failure = Some((kind, message)),
                    Err(_) => break,
                }
            }
            observe(&Overview { stopping: asked, ..board.overview(plan, &reader) });
            if let Some(status) = child.try_wait()? {
                break status;
            }
        };
        let _ = reading.join();
        let _ = fs::remove_file(folder.join(RUNNING));
        for event in events.try_iter() {
            if let Event::Error { kind, message } = event {
                failure = Some((kind, message));
            }
        }
        for &index in &open {
            reader.outcome(index)?;
        }
        match failure {
            _ if asked => {}
            Some((kind, message)) => {
                if !ready && kind != "failed" {
                    let _ = fs::remove_dir_all(&folder); // the message says all
                }
                return Err(match kind.as_str() {
                    "unavailable" => EngineError::Unavailable(message),
                    "usage" => EngineError::Usage(message),
                    "io" => io::Error::other(message).into(),
                    _ => EngineError::Refused(message),
                });
            }
            None if !status.success() => {
                let said = last_lines(&log);
                return Err(EngineError::Refused(format!(
                    "the Ray driver ended with {status}: {said} (log: {})",
                    log.display()
                )));
            }
            None => {}
        }
        Ok(reader.finish()?)
    }

    /// Returns the runs that have not ended. With a storage it first waits for runs that another process makes in the folder
    /// of the sweep, because a node that takes a run out of the storage does not see the leases in that folder.
    fn open_runs(
        &self,
        plan: &Plan,
        reader: &mut StatusReader<'_>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<usize>, EngineError> {
        loop {
            let (mut open, mut held) = (Vec::new(), 0);
            for index in 0..plan.runs.len() {
                if reader.outcome(index)?.is_none() {
                    open.push(index);
                    held += usize::from(self.options.storage.is_some() && reader.is_held(index)?);
                }
            }
            if held == 0 || stop.load(Relaxed) {
                return Ok(open);
            }
            let (done, failed) = reader.counts();
            let note = "waiting for the runs of another process in this folder".to_owned();
            let total = plan.runs.len();
            observe(&Overview { total, done, failed, elsewhere: held, note, ..Overview::default() });
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn write(&self, plan: &Plan, places: &Places, open: &[usize], folder: &Path) -> Result<(), EngineError> {
        let tasks: Vec<Vec<&PlannedRun>> = open.iter().map(|&index| vec![&plan.runs[index]]).collect();
        let dir = super::absolute(&plan.dir)?;
        let settings = TaskSettings::new(&dir);
        TaskFolder(folder.to_owned()).write(&settings, &tasks)?;
        let RayOptions { address, storage, cpus, at_once, retries, sync, runtime_env, .. } = &self.options;
        // a relative path would mean a different folder on a node
        let storage = match storage {
            Some(path) if !path.contains("://") => {
                Some(super::absolute(Path::new(path))?.display().to_string())
            }
            url => url.clone(),
        };
        let program: Vec<_> = self.program.iter().map(|word| word.to_string_lossy()).collect();
        let text = json!({
            "dir": dir, "tasks": folder, "version": settings.version, "address": address, "storage": storage,
            "cpus": cpus, "at_once": at_once, "retries": retries, "sync": sync, "runtime_env": runtime_env,
            "program": program, "sharded": places.is_sharded(),
        });
        for (name, text) in [("ray.json", text.to_string()), ("driver.py", DRIVER.to_owned())] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(at(&path))?;
        }
        Ok(())
    }
}

/// Returns the runs that a driver says it is executing; none if it has said nothing for [`SILENT`].
fn running(folder: &Path) -> HashMap<String, EngineTask> {
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
struct Board {
    /// Newest number of steps by run, and when it was reported.
    steps: HashMap<String, (u64, Instant)>,
    /// First number of steps by run, and when it was reported.
    begun: HashMap<String, (u64, Instant)>,
    running: Vec<String>,
    note: String,
}

impl Board {
    fn tell(&mut self, runs: BTreeMap<String, (String, u64)>, running: Vec<String>) {
        for (id, (_, steps)) in runs {
            let now = (steps, Instant::now());
            self.begun.entry(id.clone()).or_insert(now);
            self.steps.insert(id, now);
        }
        self.running = running;
    }

    /// Writes the running runs for `--status`, each with its steps if they are known.
    fn write(&self, folder: &Path) -> io::Result<()> {
        let steps = |id: &String| self.steps.get(id).map(|(steps, _)| *steps);
        let runs: BTreeMap<&String, Option<u64>> = self.running.iter().map(|id| (id, steps(id))).collect();
        let (part, path) = (folder.join(".running"), folder.join(RUNNING));
        fs::write(&part, serde_json::to_string(&runs)?).map_err(at(&part))?;
        fs::rename(&part, &path).map_err(at(&path))
    }

    fn overview(&self, plan: &Plan, reader: &StatusReader<'_>) -> Overview {
        let mut overview =
            Overview { total: plan.runs.len(), note: self.note.clone(), ..Overview::default() };
        (overview.done, overview.failed) = reader.counts();
        let plans: HashMap<&str, &PlannedRun> = plan.runs.iter().map(|run| (run.id.as_str(), run)).collect();
        for id in &self.running {
            let Some(run) = plans.get(id.as_str()) else { continue };
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
