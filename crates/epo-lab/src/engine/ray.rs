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
//!
//! | file | content |
//! |---|---|
//! | `options.rs` | the table `[ray]` of a sweep file |
//! | `board.rs` | what the driver has reported, and what is shown |

mod board;
mod options;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use self::board::{Board, RUNNING, running};
pub use self::options::RayOptions;
use super::task::{TaskFolder, TaskSettings, used_up};
use super::{Engine, EngineError, Plan, make_next_folder, next_folder, open_places, or_discard};
use crate::sweep::{EngineQueue, Overview, Places, PlannedRun, RunOutcome, StatusReader, at, last_lines};

const DRIVER: &str = include_str!("ray_driver.py");
/// File in the folder of a submission with the messages of Ray.
const LOG: &str = "driver.txt";
/// Interval at which a driver is asked for events.
const PAUSE: Duration = Duration::from_millis(200);

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
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready { nodes: usize, cpus: f64 },
    Progress { runs: BTreeMap<String, (String, u64)>, running: Vec<String> },
    Ended { task: usize },
    Lost { task: usize, message: String },
    News { message: String },
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
        let mut driver = Driver::start(&self.python, &folder)?;
        let mut session = Session::new(&folder, &open, self.options.retries);
        let mut asked = false;
        let status = loop {
            if stop.load(Relaxed) && !asked {
                asked = true;
                crate::sweep::terminate(&driver.child);
            }
            for event in driver.next_events() {
                session.handle(event, &mut reader)?;
            }
            let news = std::mem::take(&mut session.news);
            observe(&Overview { stopping: asked, news, ..session.board.overview(plan, &reader) });
            if let Some(status) = driver.child.try_wait()? {
                break status;
            }
        };
        for event in driver.last_events() {
            session.handle(event, &mut reader)?;
        }
        let _ = fs::remove_file(folder.join(RUNNING));
        for &index in &open {
            reader.outcome(index)?;
        }
        if !asked {
            session.result(status)?;
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

/// The process of the driver, and its output.
struct Driver {
    child: Child,
    events: Receiver<Event>,
    reading: JoinHandle<()>,
}

impl Driver {
    /// Starts the driver of a submission.
    fn start(python: &OsStr, folder: &Path) -> Result<Self, EngineError> {
        let log = folder.join(LOG);
        let mut child = Command::new(python)
            .arg(folder.join("driver.py"))
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).map_err(at(&log))?)
            .env("RAY_DEDUP_LOGS", "0")
            .spawn()
            .inspect_err(|_| drop(fs::remove_dir_all(folder)))
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => EngineError::Unavailable(format!(
                    "there is no `{}`: `--on ray` needs a Python with the package ray (set ray.python in the sweep file)",
                    python.display()
                )),
                _ => io::Error::new(e.kind(), format!("cannot start `{}`: {e}", python.display())).into(),
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
        Ok(Self { child, events, reading })
    }

    /// Returns the events that have arrived; waits for [`PAUSE`] if there are none.
    fn next_events(&self) -> Vec<Event> {
        let first = self.events.recv_timeout(PAUSE);
        if first == Err(RecvTimeoutError::Disconnected) {
            std::thread::sleep(PAUSE); // the driver is about to end
        }
        first.into_iter().chain(self.events.try_iter()).collect()
    }

    /// Returns the events that were not read before the driver ended.
    fn last_events(self) -> Vec<Event> {
        let _ = self.reading.join();
        self.events.try_iter().collect()
    }
}

/// What the events of a driver mean for the sweep.
struct Session<'a> {
    folder: &'a Path,
    /// The run of each task.
    open: &'a [usize],
    retries: u32,
    board: Board,
    /// Messages that have not been shown.
    news: Vec<String>,
    /// Whether the driver has reached the cluster.
    ready: bool,
    /// Kind and message of the error that ended the driver.
    failure: Option<(String, String)>,
}

impl<'a> Session<'a> {
    fn new(folder: &'a Path, open: &'a [usize], retries: u32) -> Self {
        Self { folder, open, retries, board: Board::default(), news: Vec::new(), ready: false, failure: None }
    }

    fn handle(&mut self, event: Event, reader: &mut StatusReader<'_>) -> io::Result<()> {
        match event {
            Event::Ready { nodes, cpus } => {
                self.ready = true;
                let count = |n: f64, word: &str| format!("{n} {word}{}", if n == 1.0 { "" } else { "s" });
                self.board.note =
                    format!("Ray has {} with {}", count(nodes as f64, "node"), count(cpus, "core"));
            }
            Event::Progress { runs, running } => {
                self.board.tell(runs, running);
                let _ = self.board.write(self.folder); // only `--status` reads it
            }
            Event::Ended { task } => {
                if let Some(&index) = self.open.get(task) {
                    let _ = reader.outcome(index); // read again at the end
                }
            }
            Event::Lost { task, message } => self.lost(task, &message, reader)?,
            Event::News { message } => self.news.push(message),
            Event::Warning { message } => self.board.note = message,
            Event::Error { kind, message } => self.failure = Some((kind, message)),
        }
        Ok(())
    }

    /// Records that the run of a task has used up its retries.
    fn lost(&self, task: usize, message: &str, reader: &mut StatusReader<'_>) -> io::Result<()> {
        let (Some(&index), Some(why)) =
            (self.open.get(task), used_up(self.retries.saturating_add(1), self.retries))
        else {
            return Ok(());
        };
        reader.give_up(index, format!("{why}: {message}"), Some(self.folder.join(LOG)))
    }

    /// Returns the error that ended the driver, if there was one.
    fn result(self, status: ExitStatus) -> Result<(), EngineError> {
        let Some((kind, message)) = self.failure else {
            if status.success() {
                return Ok(());
            }
            let log = self.folder.join(LOG);
            let said = last_lines(&log);
            return Err(EngineError::Refused(format!(
                "the Ray driver ended with {status}: {said} (log: {})",
                log.display()
            )));
        };
        if !self.ready && kind != "failed" {
            let _ = fs::remove_dir_all(self.folder); // the message says all
        }
        Err(match kind.as_str() {
            "unavailable" => EngineError::Unavailable(message),
            "usage" => EngineError::Usage(message),
            "io" => io::Error::other(message).into(),
            _ => EngineError::Refused(message),
        })
    }
}
