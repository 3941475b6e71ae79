//! The end of the interpreter while other threads are in this module.
//!
//! The interpreter ends when its main thread does, without waiting for daemon threads. Such a thread must not be in
//! native code while the libraries are taken down, nor in Python code that native code has called: Python ends its
//! threads with `pthread_exit`, which Rust cannot survive. So `import epo` registers [`end`] with `atexit`. It stops
//! what is training, waits until it is saved, and keeps all other threads out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{panicking, park, sleep};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Maximum time that the program waits for its trainings before it ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which environments that hang are interrupted.
pub(crate) const SAVING: Duration = Duration::from_secs(5);
/// Maximum time for calls other than trainings, which are short.
const CALLS: Duration = Duration::from_secs(2);

/// Whether the interpreter is about to end: trainings stop.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Whether it ends: no thread but its main thread gets in.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Whether a thread was left behind in a training.
static ABANDONED: AtomicBool = AtomicBool::new(false);
/// Process id (32 bits), number of trainings and evaluations (16 bits), number of other calls (16 bits). A forked
/// process has none of the threads that are counted, which the process id tells.
static INSIDE: AtomicU64 = AtomicU64::new(0);

const TRAINING: u64 = 1 << 16;
const CALL: u64 = 1;

thread_local! {
    /// Whether this thread ends the interpreter.
    static ENDS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The counters, if they are those of this process.
fn counters(value: u64) -> Option<u64> {
    (value >> 32 == u64::from(std::process::id())).then_some(value & 0xffff_ffff)
}

/// Number of trainings, and number of calls.
fn inside() -> (u64, u64) {
    let counters = counters(INSIDE.load(SeqCst)).unwrap_or(0);
    (counters / TRAINING, counters % TRAINING)
}

/// Counts one training or call until it is left or dropped.
#[derive(Debug)]
pub(crate) struct Section {
    what: u64,
    is_left: AtomicBool,
}

impl Section {
    fn enter(what: u64) -> Self {
        let process = u64::from(std::process::id()) << 32;
        let _ =
            INSIDE.fetch_update(SeqCst, SeqCst, |old| Some(process | (counters(old).unwrap_or(0) + what)));
        Self { what, is_left: AtomicBool::new(false) }
    }

    /// A training or an evaluation.
    pub(crate) fn training() -> Self {
        Self::enter(TRAINING)
    }

    /// Ends the section.
    pub(crate) fn leave(&self) {
        if !self.is_left.swap(true, SeqCst) {
            let _ = INSIDE.fetch_update(SeqCst, SeqCst, |old| counters(old).map(|_| old - self.what));
        }
    }

    /// Ends the section although its thread goes on. The program does not wait for that thread.
    pub(crate) fn abandon(&self) {
        ABANDONED.store(true, SeqCst);
        self.leave();
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Stops this thread for the rest of the process.
pub(crate) fn hang() -> ! {
    loop {
        park();
    }
}

/// Whether trainings must stop because the program ends.
pub(crate) fn is_ending() -> bool {
    ENDING.load(SeqCst)
}

/// Runs `call` without the interpreter lock.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let section = Section::enter(CALL);
        if ENDED.load(SeqCst) && !ENDS.get() {
            drop(section);
            hang();
        }
        call()
    })
}

/// Hangs the thread if it is unwound by `pthread_exit`.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if !panicking() {
            hang();
        }
    }
}

/// Runs `call`, which calls Python code, and hangs the thread if the interpreter ends meanwhile.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> T {
    let guard = Guard;
    let result = call();
    std::mem::forget(guard);
    result
}

/// Runs `call` with the interpreter lock, or hangs the thread if there is no interpreter any more.
pub(crate) fn attached<T>(call: impl FnOnce(Python<'_>) -> T) -> T {
    if ENDED.load(SeqCst) && !ENDS.get() {
        hang();
    }
    Python::try_attach(call).unwrap_or_else(|| hang())
}

/// Stops all trainings, waits until they are saved, and keeps other threads out. Called by `atexit`.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    ENDS.set(true);
    ENDING.store(true, SeqCst);
    let wait = |most: Duration, is_over: fn() -> bool| {
        let until = Instant::now() + most;
        // Ctrl-C ends the waiting
        while !is_over() && Instant::now() < until && py.check_signals().is_ok() {
            py.detach(|| sleep(Duration::from_millis(2)));
        }
    };
    wait(PATIENCE, || inside().0 == 0);
    ENDED.store(true, SeqCst);
    wait(CALLS, || inside().1 == 0);
    if inside() != (0, 0) || ABANDONED.load(SeqCst) {
        epo_mujoco::skip_destructors();
    }
}
