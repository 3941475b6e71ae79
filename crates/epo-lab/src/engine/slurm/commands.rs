//! Calls of Slurm's commands, and what they print.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::engine::EngineError;

/// Reasons in the output of `squeue` for which a task never starts, however long it waits.
const NEVER: &[&str] = &[
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "AccountNotAllowed",
    "QOSNotAllowed",
    "QOSMaxCpuPerJobLimit",
    "QOSMaxMemoryPerJob",
    "QOSMaxWallDurationPerJobLimit",
    "AssocMaxCpuPerJobLimit",
    "AssocMaxWallDurationPerJobLimit",
];

/// Time that `sbatch` gets to end after the user asked to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// One line of `squeue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueLine {
    /// `ARRAY_TASK`, or the id of a job without tasks.
    pub(super) id: String,
    /// Number of the task; `None` for the check job.
    pub(super) task: Option<usize>,
    /// Whether the task is executed now.
    pub(super) running: bool,
    /// Whether the task has a node: it runs, its node starts, or it is suspended.
    pub(super) started: bool,
    pub(super) reason: String,
    /// Folder of the submission.
    pub(super) folder: PathBuf,
}

impl QueueLine {
    /// Whether Slurm holds the task after a node failed to start it. Such a task waits until someone releases it.
    pub(super) fn is_held(&self) -> bool {
        let reason = self.reason.replace('_', " "); // versions of Slurm differ
        let held = reason.starts_with("launch failed requeued held") || reason == "JobHoldMaxRequeue";
        self.task.is_some() && held
    }
}

/// Returns a line of `squeue` if its script is one of this sweep.
pub(super) fn queue_line(line: &str, root: &Path) -> Option<QueueLine> {
    let fields: Vec<&str> = line.splitn(6, '|').collect();
    let [job, array, task, state, reason, script] = fields[..] else { return None };
    let folder = Path::new(script.trim_end()).parent()?;
    if folder.parent()? != root {
        return None;
    }
    let task = task.parse().ok();
    let id = task.map_or_else(|| job.to_owned(), |task: usize| format!("{array}_{task}"));
    let running = matches!(state, "R" | "CG");
    let started = running || matches!(state, "CF" | "S" | "ST");
    let reason = match state {
        "CF" => "the node is starting",
        "S" | "ST" => "suspended",
        _ if running || reason == "None" => "",
        _ => reason,
    };
    Some(QueueLine { id, task, running, started, reason: reason.to_owned(), folder: folder.to_owned() })
}

/// Returns the reason why none of these tasks can ever start, or `None` if one runs or may start. A task that
/// waits for the check job starts only if the check job does.
pub(super) fn never_starts(lines: &[QueueLine]) -> Option<&str> {
    let never = |line: &&QueueLine| NEVER.contains(&&*line.reason);
    let reason = lines.iter().find(never)?;
    lines.iter().all(|line| never(&line) || line.reason == "Dependency").then_some(&reason.reason)
}

/// Submits a script and returns the id of the job. With a full queue `sbatch` itself tries for two minutes; it is killed
/// [`PATIENCE`] after `stop` was set.
pub(super) fn sbatch(arguments: &[String], script: &Path, stop: &AtomicBool) -> Result<String, EngineError> {
    let folder = script.parent().map(Path::to_owned).unwrap_or_default();
    let mut command = Command::new("sbatch");
    command.args(arguments).arg(script).env("EPO_TASKS", folder);
    command.process_group(0); // Ctrl-C must not end it in the middle of a submission
    let text = output(command, "sbatch", Some(stop))?;
    Ok(text.trim().split(';').next().unwrap_or_default().to_owned())
}

pub(super) fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, EngineError> {
    let mut command = Command::new(program);
    command.args(arguments);
    output(command, program, None)
}

/// Returns the states of the tasks of arrays, such as `OUT_OF_MEMORY` for `12_3`, according to Slurm's accounting. Empty
/// if the site has none.
pub(super) fn accounted(jobs: &[String]) -> HashMap<String, String> {
    let jobs = format!("--jobs={}", jobs.join(","));
    let arguments = ["--noheader", "--parsable2", "--allocations", "--format=JobID,State", &jobs];
    let text = run("sacct", &arguments).unwrap_or_default();
    let states = text.lines().filter_map(|line| line.split_once('|'));
    states.map(|(task, state)| (task.to_owned(), state.trim().to_owned())).collect()
}

/// Runs a command of Slurm and returns its output.
fn output(mut command: Command, program: &str, stop: Option<&AtomicBool>) -> Result<String, EngineError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let finished = |child: Child| match stop {
        Some(stop) => wait_or_kill(child, stop),
        None => child.wait_with_output(),
    };
    let output = command.spawn().and_then(finished).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => EngineError::Unavailable(format!(
            "`{program}` is not on this machine: `--on slurm` needs Slurm's commands. Call it on a login node of the \
             cluster, or use `--on local`"
        )),
        _ => io::Error::new(e.kind(), format!("cannot start `{program}`: {e}")).into(),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(|line| line.trim().trim_start_matches("error: ")).collect();
    let said = format!("{program}: {}", said.join("; ").replace(&format!("{program}: error: "), ""));
    let away = [
        "nable to contact slurm",
        "connect failure",
        "ommunication",
        "Socket timed out",
        "onnection refused",
        "onnection reset",
    ];
    if said.contains("ould not establish a configuration source") {
        return Err(EngineError::Unavailable(format!(
            "`{program}` finds no configuration of Slurm on this machine. Call it on a login node of the cluster, set \
             SLURM_CONF, or use `--on local`"
        )));
    }
    Err(match away.iter().any(|sign| said.contains(sign)) {
        true => EngineError::Unavailable(format!("{said} (is the Slurm controller running?)")),
        false => EngineError::Refused(said),
    })
}

/// Waits for a command whose output is short, and kills it [`PATIENCE`] after `stop` was set.
fn wait_or_kill(mut child: Child, stop: &AtomicBool) -> io::Result<Output> {
    let mut asked = None;
    while child.try_wait()?.is_none() {
        if stop.load(Relaxed) && asked.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if tasks that wait for a check job which can never start are waited for, or if tasks are given up too early.
    #[test]
    fn tasks_behind_a_check_that_never_starts_never_start() {
        let line = |reason: &str| QueueLine {
            id: "1".into(),
            task: None,
            running: false,
            started: false,
            reason: reason.into(),
            folder: PathBuf::new(),
        };
        let reason = |reasons: &[&str]| {
            let lines: Vec<QueueLine> = reasons.iter().map(|reason| line(reason)).collect();
            never_starts(&lines).map(str::to_owned)
        };
        assert_eq!(
            reason(&["Dependency", "PartitionConfig", "Dependency"]).as_deref(),
            Some("PartitionConfig")
        );
        assert_eq!(reason(&["Dependency", "Priority"]), None);
        assert_eq!(reason(&["PartitionConfig", "Resources"]), None);
        assert_eq!(reason(&["PartitionConfig", ""]), None, "the second one runs");
        assert_eq!(reason(&[]), None);
    }

    #[test]
    fn a_line_of_squeue_belongs_to_the_sweep_of_its_script() {
        let root = Path::new("/d/a sweep/slurm");
        let line = |text: &str| queue_line(text, root);
        let waiting = line("7|5|12|PD|Resources|/d/a sweep/slurm/0002/script.sh").unwrap();
        assert_eq!((waiting.id.as_str(), waiting.task, waiting.running), ("5_12", Some(12), false));
        assert_eq!((waiting.reason.as_str(), waiting.folder), ("Resources", root.join("0002")));
        let check = line("9|9|N/A|R|None|/d/a sweep/slurm/0001/script.sh").unwrap();
        assert_eq!(
            (check.id.as_str(), check.task, check.running, check.reason.as_str()),
            ("9", None, true, "")
        );
        for (state, reason) in [("CF", "the node is starting"), ("S", "suspended")] {
            let line = line(&format!("7|5|1|{state}|None|/d/a sweep/slurm/0002/script.sh")).unwrap();
            assert_eq!(
                (line.running, line.started, &*line.reason),
                (false, true, reason),
                "it cannot be idle"
            );
        }
        for (reason, held) in [
            ("launch failed requeued held", true),
            ("launch_failed_requeued_held", true),
            ("JobHoldMaxRequeue", true),
            ("JobHeldUser", false),
        ] {
            let line = line(&format!("7|5|1|PD|{reason}|/d/a sweep/slurm/0002/script.sh")).unwrap();
            assert_eq!(line.is_held(), held, "{reason}");
        }
        assert_eq!(line("9|9|1|R|None|/d/other/slurm/0001/script.sh"), None);
        assert_eq!(line("nonsense"), None);
    }
}
