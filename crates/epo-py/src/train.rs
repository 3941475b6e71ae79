//! Training and evaluation, called from Python.
//!
//! The work runs on its own thread. The calling thread waits without the interpreter lock, runs the
//! callbacks, and checks for signals. After Ctrl-C the run finishes its epoch and saves, and the
//! exception is raised. After a second Ctrl-C the call no longer waits, because an environment may
//! hang.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use epo_core::Env;
use epo_lab::LabError;
use epo_lab::config::{ResolvedRun, RunTable, algo_named};
use epo_lab::evaluate::{ActionMode, EvalPlan, Watch, evaluate_finished, evaluate_run};
use epo_lab::reference::{algo_keys, shared_keys};
use epo_lab::train::{ResumeOptions, Trainer};
use epo_lab::{memory, runs, trained};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::ending::{self, Section, guarded};
use crate::python_env::{self, Raised};
use crate::{env, error};

/// Interval at which the caller checks for signals.
const POLL: Duration = Duration::from_millis(50);
/// Time that the work has to end after the second signal.
const GRACE: Duration = Duration::from_secs(2);

/// A message from the work to its caller. The work waits until the caller has answered.
pub(crate) enum Event {
    /// The run folder, steps done, steps in all, and notes about the beginning.
    Started(PathBuf, u64, u64, Vec<String>),
    /// One row of the record.
    Row(Vec<(&'static str, Option<f64>)>),
}

/// Sends the events of the work to its caller and waits for the answers.
pub(crate) struct Reporter {
    events: Sender<Event>,
    answers: Receiver<()>,
}

impl Reporter {
    fn tell(&self, event: Event) {
        if self.events.send(event).is_ok() {
            let _ = self.answers.recv(); // without a caller there is nothing to wait for
        }
    }
}

/// Runs `work` on its own thread, and `answer` for each of its events with the interpreter lock. An answer of `false`,
/// an exception, a signal or the end of the interpreter sets `stop`. After the second signal `kill` is called until the
/// work has ended; a thread that does not end soon is left behind.
pub(crate) fn in_background<T: Send + 'static>(
    py: Python<'_>,
    stop: &Arc<AtomicBool>,
    raised: &Raised,
    kill: Option<&Py<PyAny>>,
    work: impl FnOnce(&Reporter) -> Result<T, LabError> + Send + 'static,
    mut answer: impl FnMut(Event) -> PyResult<bool>,
) -> PyResult<T> {
    if ending::is_ending() {
        return Err(error::EpoError::new_err("nothing can be trained while the interpreter is ending"));
    }
    let ((events, inbox), (outbox, answers)) = (channel(), channel());
    let section = Arc::new(Section::training());
    let running = section.clone();
    let work = move || {
        let reporter = Reporter { events, answers };
        let result = catch_unwind(AssertUnwindSafe(|| work(&reporter)));
        running.leave();
        result
    };
    let thread = std::thread::Builder::new().name("epo-train".to_owned()).spawn(work)?;
    let inbox = Mutex::new(inbox); // a bare receiver is not `Sync`, which `py.detach` requires
    let receive = || inbox.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(POLL);
    let (mut exception, mut signals, mut deadline, mut end_begins) = (None, 0, None, None);
    loop {
        match py.detach(receive) {
            Ok(event) => {
                if exception.is_none() {
                    match guarded(|| answer(event)) {
                        Ok(true) => {}
                        Ok(false) => stop.store(true, Relaxed),
                        Err(e) => exception = Some(e),
                    }
                }
                if exception.is_some() {
                    stop.store(true, Relaxed); // before the work goes on
                }
                let _ = outbox.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Err(e) = py.check_signals() {
            stop.store(true, Relaxed);
            exception.get_or_insert(e);
            signals += 1;
            if signals == 2 {
                deadline = Some(Instant::now() + GRACE);
            }
        }
        if ending::is_ending() {
            stop.store(true, Relaxed);
            let begun = *end_begins.get_or_insert_with(Instant::now);
            if let (Some(kill), true) = (kill, begun.elapsed() > ending::SAVING) {
                let _ = kill.call0(py);
            }
        }
        if let Some(end) = deadline {
            if let Some(kill) = kill {
                let _ = kill.call0(py); // the exception of the first signal is more important
            }
            if Instant::now() > end {
                break;
            }
        }
    }
    if end_begins.is_some() {
        py.detach(|| ending::hang()); // the program does not wait for this thread, so it has nobody to report to
    }
    if deadline.is_some() {
        section.abandon();
        let text = "the second signal ended the work without waiting for its environments";
        return Err(match exception {
            Some(e) if !e.is_instance_of::<PyKeyboardInterrupt>(py) => e,
            _ => PyKeyboardInterrupt::new_err(text),
        });
    }
    let ended = py.detach(|| thread.join());
    if let Some(exception) = exception {
        return Err(exception);
    }
    match ended {
        Ok(Ok(Ok(done))) => Ok(done),
        Ok(Ok(Err(LabError::Interrupted(what)))) => {
            Err(PyKeyboardInterrupt::new_err(format!("{what} was interrupted")))
        }
        Ok(Ok(Err(failed))) => Err(python_env::with_cause(py, error::lab(&failed), raised)),
        Ok(Err(payload)) | Err(payload) => Err(error::panic(&*payload)),
    }
}

/// The assignments of settings, with the table of each name: `gamma=0.9` becomes `train.gamma=0.9`. A name that ends
/// with `_` may be a Python keyword: `lambda_` is `train.lambda`.
fn assignments(
    settings: Vec<(String, String)>,
    algo: Option<&str>,
    file: Option<&str>,
) -> PyResult<Vec<String>> {
    let table: toml::Table = file.and_then(|text| text.parse().ok()).unwrap_or_default(); // an error is reported later
    let in_file = table.get("run").and_then(|run| run.get("algo")).and_then(toml::Value::as_str);
    let default = RunTable::default().algo;
    let algo = algo_named(algo.or(in_file).unwrap_or(&default)).map_err(|e| error::config(&e))?;
    let keys: Vec<String> = shared_keys().into_iter().chain(algo_keys(&algo)).map(|key| key.key).collect();
    let named = |name: &str| -> Vec<&String> {
        keys.iter().filter(|key| key.rsplit('.').next() == Some(name)).collect()
    };
    let full = |name: &str| -> PyResult<String> {
        if name.contains('.') {
            return Ok(name.to_owned());
        }
        let mut found = named(name);
        if let (true, Some(short)) = (found.is_empty(), name.strip_suffix('_')) {
            found = named(short);
        }
        match found[..] {
            [] => Ok(format!("train.{name}")), // refused, with the most similar key
            [key] => Ok(key.clone()),
            [first, second, ..] => Err(error::ConfigError::new_err(format!(
                "`{name}` is the name of two settings, `{first}` and `{second}`; pass the full name: \
                 settings={{\"{second}\": …}}"
            ))),
        }
    };
    settings.into_iter().map(|(name, value)| Ok(format!("{}={value}", full(&name)?))).collect()
}

/// A function that makes environments.
type Maker = Box<dyn Fn() -> Result<Box<dyn Env>, LabError>>;

/// A function that makes the environments of a run: those of Python, or those of its task.
fn maker(
    make_env: Option<Py<PyAny>>,
    raised: Raised,
    task: &str,
    physics: epo_tasks::Physics,
) -> Result<Maker, LabError> {
    Ok(match make_env {
        Some(make) => Box::new(move || Ok(python_env::make(&make, &raised)?)),
        None => Box::new(runs::task_maker(task, physics)?),
    })
}

/// A run to train: a new one, or one to continue.
enum Start {
    New { run: Box<ResolvedRun>, runs: PathBuf, name: Option<String> },
    Resume { dir: PathBuf, options: ResumeOptions },
}

/// Trains a new run (`settings`, `runs`, `name`) or continues one (`resume`, `steps`, `threads`,
/// `accept_changes`). Returns the folder.
///
/// `on_start(folder, steps done, steps in all, notes)` is called once. `on_row(row)` is called after each epoch; if it
/// returns `False`, the run saves and stops. The second Ctrl-C calls `kill()`, which ends the worker processes.
#[pyfunction]
#[pyo3(signature = (*, file, settings, algo, runs, name, resume, steps, threads, accept_changes, make_env, kill, on_start, on_row))]
#[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn train(
    py: Python<'_>,
    file: Option<String>,
    settings: Vec<(String, String)>,
    algo: Option<&str>,
    runs: PathBuf,
    name: Option<String>,
    resume: Option<PathBuf>,
    steps: Option<u64>,
    threads: Option<usize>,
    accept_changes: bool,
    make_env: Option<Py<PyAny>>,
    kill: Option<Py<PyAny>>,
    on_start: Py<PyAny>,
    on_row: Py<PyAny>,
) -> PyResult<PathBuf> {
    let start = match resume {
        Some(dir) => Start::Resume { dir, options: ResumeOptions { threads, steps, accept_changes } },
        None => {
            let set = assignments(settings, algo, file.as_deref())?;
            let run = ResolvedRun::from_layers(file.as_deref(), &set).map_err(|e| error::config(&e))?;
            Start::New { run: Box::new(run), runs, name }
        }
    };
    let (stop, raised) = (Arc::new(AtomicBool::new(false)), Raised::default());
    let (stopping, exceptions) = (stop.clone(), raised.clone());
    let work = move |reporter: &Reporter| run_job(start, make_env, exceptions, stopping, reporter);
    in_background(py, &stop, &raised, kill.as_ref(), work, |event| match event {
        Event::Started(dir, done, total, notes) => {
            on_start.call1(py, (dir, done, total, notes))?;
            Ok(true)
        }
        Event::Row(row) => {
            let dict = PyDict::new(py);
            for (key, value) in row {
                dict.set_item(key, value)?;
            }
            on_row.call1(py, (dict,))?.is_truthy(py)
        }
    })
}

fn run_job(
    start: Start,
    make_env: Option<Py<PyAny>>,
    raised: Raised,
    stop: Arc<AtomicBool>,
    reporter: &Reporter,
) -> Result<PathBuf, LabError> {
    let is_own = make_env.is_some();
    let make;
    let (dir, mut trainer) = match start {
        Start::New { run, runs, name } => {
            if !is_own {
                memory::check_task(&run, epo_tasks::task(&run.run.task)?)?;
            }
            make = maker(make_env, raised, &run.run.task, run.run.physics)?;
            let dir = runs::new_folder(&runs, &run, name.as_deref())?;
            (dir.clone(), Trainer::create(&dir, *run, &*make)?)
        }
        Start::Resume { dir, options } => {
            let run = runs::read_config(&dir)?;
            make = maker(make_env, raised, &run.run.task, run.run.physics)?;
            (dir.clone(), Trainer::resume(&dir, options, &*make)?)
        }
    };
    if is_own {
        trained::write_env_spec(&dir, trainer.spec())?;
    }
    let run = trainer.config().clone();
    let notes = trainer.notes().to_vec();
    reporter.tell(Event::Started(dir.clone(), trainer.steps(), run.total_steps(), notes));
    let end = trainer.train(&stop, |row| {
        reporter.tell(Event::Row(row.iter().map(|(metric, value)| (metric.key, *value)).collect()));
    })?;
    if end.finished {
        let watch = Watch { stop, ..Watch::default() };
        evaluate_finished(&dir, &run, &*make, &end.hash, &watch)?;
    }
    Ok(dir)
}

/// Evaluates a run, adds the result to its `eval.json`, and returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (dir, *, episodes, seed, stochastic, physics, threads, make_env, kill))]
#[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn evaluate(
    py: Python<'_>,
    dir: PathBuf,
    episodes: usize,
    seed: u64,
    stochastic: bool,
    physics: &str,
    threads: usize,
    make_env: Option<Py<PyAny>>,
    kill: Option<Py<PyAny>>,
) -> PyResult<String> {
    let physics = env::physics(physics)?;
    let (stop, raised) = (Arc::new(AtomicBool::new(false)), Raised::default());
    let (stopping, exceptions) = (stop.clone(), raised.clone());
    let work = move |_: &Reporter| {
        let run = runs::read_config(&dir)?;
        let make = maker(make_env, exceptions, &run.run.task, physics)?;
        let threads = epo_lab::config::threads("threads", threads)?;
        let plan = EvalPlan { episodes, seed, threads, physics };
        let shown = if stochastic { ActionMode::Sampled } else { ActionMode::Mean };
        let watch = Watch { stop: stopping, ..Watch::default() };
        let (report, _) = evaluate_run(&dir, &*make, plan, shown, &watch)?;
        report.write(&dir)?;
        Ok(serde_json::to_string(&report).unwrap_or_default()) // numbers and texts cannot fail
    };
    in_background(py, &stop, &raised, kill.as_ref(), work, |_| Ok(true))
}
