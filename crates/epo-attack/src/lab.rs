//! Helpers that all attacks share: a folder, random numbers, runs in child processes, and the comparison of
//! results.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use epo_core::{Env, Purpose, Stream};
use epo_lab::LabError;
use epo_lab::checkpoint;
use epo_lab::config::ResolvedRun;

use crate::walk::{self, ID};

/// Time after which a child process counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Number of attempts and the time for them.
#[derive(Debug)]
pub(crate) struct Budget {
    until: Instant,
    pub(crate) most: u64,
}

impl Budget {
    pub(crate) fn new(until: Instant, most: u64) -> Self {
        Self { until, most }
    }

    /// Returns true if there is time for another attempt after `tried` of them. The first one is always made.
    pub(crate) fn more(&self, tried: u64) -> bool {
        tried < self.most && (tried == 0 || Instant::now() < self.until)
    }

    /// Time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The counts of one attack.
#[derive(Debug, Default)]
pub(crate) struct Attack {
    pub(crate) tried: u64,
    pub(crate) failed: u64,
    /// Descriptions of the first failures.
    pub(crate) failures: Vec<String>,
    /// A remark for the reader of the table.
    pub(crate) note: Option<String>,
}

impl Attack {
    /// Counts an attempt.
    pub(crate) fn count(&mut self, result: Result<(), String>) {
        self.tried += 1;
        if let Err(what) = result {
            self.failed += 1;
            self.failures.push(what);
        }
    }
}

/// A folder for the attacks, and random numbers.
#[derive(Debug)]
pub(crate) struct Lab {
    root: tempfile::TempDir,
    pub(crate) random: Stream,
    /// The program of `coverage.sh`.
    pub(crate) coverage: Option<PathBuf>,
    /// Folder for the inputs that it finds.
    pub(crate) keep: Option<PathBuf>,
    next: u64,
}

impl Lab {
    pub(crate) fn new(seed: u64) -> io::Result<Self> {
        // on a disk of the system and not in memory, because run folders are on disks too
        let random = Stream::new(seed, Purpose::Random, 0);
        Ok(Self { root: tempfile::tempdir()?, random, coverage: None, keep: None, next: 0 })
    }

    /// Returns a path that does not exist yet.
    pub(crate) fn place(&mut self) -> PathBuf {
        self.next += 1;
        self.root.path().join(format!("attack-{}", self.next))
    }
}

/// Returns a command that runs this program as `epo`.
pub(crate) fn epo(args: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "epo-attack".into());
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).env_remove(crate::walk::MISBEHAVE);
    command
}

/// Settings of a run of six epochs that takes some milliseconds.
pub(crate) const SMALL: [&str; 10] = [
    "run.steps=360",
    "train.envs=2",
    "train.threads=1",
    "train.steps_per_epoch=60",
    "train.passes=2",
    "train.minibatch=30",
    "train.hidden=[4]",
    "train.eval_every=3",
    "train.eval_episodes=2",
    "train.final_eval_episodes=0",
];

/// `epo train` of a small run of `algo` on `task` in the folder `runs`.
pub(crate) fn train(runs: &Path, task: &str, algo: &str) -> Command {
    let mut command = epo(&["train", task, "--algo", algo, "--name", "run", "--quiet", "--runs"]);
    command.arg(runs);
    // episodes of the simulated tasks are long
    let short = if task == ID { &[][..] } else { &["train.eval_every=6", "train.eval_episodes=1"] };
    for set in SMALL.iter().chain(short) {
        command.args(["--set", set]);
    }
    command
}

/// `epo train --resume` of a run folder.
pub(crate) fn resume(dir: &Path) -> Command {
    let mut command = epo(&["train", "--quiet", "--resume"]);
    command.arg(dir);
    command
}

/// The only run folder below `runs`; `None` if there is none yet.
pub(crate) fn folder(runs: &Path) -> Option<PathBuf> {
    let parent = std::fs::read_dir(runs).ok()?.filter_map(Result::ok).next()?;
    Some(parent.path().join("run")).filter(|dir| dir.is_dir())
}

/// The same small run for a `Trainer` of this process.
pub(crate) fn small_run(set: &[&str]) -> Result<ResolvedRun, LabError> {
    let task = format!("run.task={ID}");
    let all = std::iter::once(task.as_str()).chain(SMALL).chain(set.iter().copied());
    Ok(ResolvedRun::from_layers(None, &all.map(str::to_owned).collect::<Vec<_>>())?)
}

/// A well-behaved environment.
pub(crate) fn walk() -> Result<Box<dyn Env>, LabError> {
    Ok(walk::walk(None))
}

/// The results of a run, without measured times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    hash: String,
    rows: Vec<Vec<String>>,
    episodes: String,
    event_bytes: u64,
    /// Content of `policies.bin`; `None` if the task cannot be replayed.
    policies: Option<Vec<u8>>,
}

/// Reads the results of a run.
pub(crate) fn left(dir: &Path) -> Result<Left, String> {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).map_err(|e| format!("{name}: {e}"));
    let text = read("progress.csv")?;
    let keep: Vec<bool> =
        text.lines().next().unwrap_or_default().split(',').map(|c| !c.starts_with("Time/")).collect();
    let row =
        |line: &str| line.split(',').zip(&keep).filter(|(_, k)| **k).map(|(c, _)| c.to_owned()).collect();
    let loaded = checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).map_err(|e| e.to_string())?;
    let events = std::fs::metadata(dir.join("tb/events.out.tfevents.epo")).map_err(|e| format!("tb: {e}"))?;
    Ok(Left {
        hash: loaded.hash,
        rows: text.lines().map(row).collect(),
        episodes: read("episodes.csv")?,
        event_bytes: events.len(),
        policies: std::fs::read(dir.join("policies.bin")).ok(),
    })
}

/// Compares the results of a run with those of an undisturbed run.
pub(crate) fn same(dir: &Path, whole: &Left) -> Result<(), String> {
    let left = left(dir)?;
    match &left == whole {
        true => Ok(()),
        false if left.hash != whole.hash => Err("the hash differs from that of an undisturbed run".into()),
        false => Err("the record differs from that of an undisturbed run".into()),
    }
}

/// Runs a child to its end; a child that hangs is killed and is an error.
pub(crate) fn finish(command: &mut Command) -> Result<Output, String> {
    finish_within(command, PATIENCE)
}

/// Runs a child to its end. One that takes longer than `time` is killed, and is an error. Time in which the child waits
/// for a processor, because others use them, does not count.
pub(crate) fn finish_within(command: &mut Command, time: Duration) -> Result<Output, String> {
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = spawned.map_err(|e| format!("cannot start a process: {e}"))?;
    let id = child.id();
    let (done, waits) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _ = done.send(child.wait_with_output());
    });
    let begun = Instant::now();
    let mut output = waits.recv_timeout(time);
    while output.is_err() && begun.elapsed().saturating_sub(waited(id)) < time {
        output = waits.recv_timeout(Duration::from_secs(1));
    }
    if output.is_err() {
        kill(id);
    }
    let _ = waiter.join();
    match output {
        Ok(output) => output.map_err(|e| e.to_string()),
        Err(_) => Err(format!("the process hung for {} s", time.as_secs())),
    }
}

/// Time for which the first thread of a process could run, but had no processor.
fn waited(id: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{id}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// Runs a child that must succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<Output, String> {
    let output = finish(command)?;
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Trains an undisturbed run and returns its results and its duration.
pub(crate) fn undisturbed(runs: &Path, task: &str, algo: &str) -> Result<(Left, Duration), String> {
    let begun = Instant::now();
    succeed(&mut train(runs, task, algo))?;
    let dir = folder(runs).ok_or("the run made no folder")?;
    Ok((left(&dir)?, begun.elapsed()))
}

/// Continues a run to its end, or begins it if it has no configuration yet, and compares it with an undisturbed
/// run.
pub(crate) fn complete(runs: &Path, task: &str, algo: &str, whole: &Left) -> Result<(), String> {
    let begun = folder(runs).filter(|dir| dir.join("config.toml").exists());
    match begun {
        Some(dir) => succeed(&mut resume(&dir))?,
        None => {
            let _ = std::fs::remove_dir_all(runs);
            succeed(&mut train(runs, task, algo))?
        }
    };
    same(&folder(runs).ok_or("the run made no folder")?, whole)
}

/// Sends SIGKILL to a process of this program.
pub(crate) fn kill(id: u32) {
    if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Waits for a child that was killed.
pub(crate) fn reap(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()?.is_dir() {
            true => copy(&path, &target)?,
            false => drop(std::fs::copy(&path, &target)?),
        }
    }
    Ok(())
}

/// Returns all files of a folder except the lock, sorted by name.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&entry.path())),
            false if entry.file_name() == "lock" => {}
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}
