//! The engine for Slurm: job arrays whose tasks make the runs in a shared folder.
//!
//! ```text
//! DIR/slurm/0001/script.sh     the script that `sbatch` gets
//! DIR/slurm/0001/tasks-*.jsonl the runs of each task
//! DIR/slurm/0001/check.txt     output of the check job: can a node make the runs?
//! DIR/slurm/0001/log/K.txt     output of task K
//! ```
//! Slurm's `squeue` says which tasks wait and which run; tasks are identified by the path of their script. The
//! run folders alone say what is done. So the process that submitted may end at any time, and the same call
//! attaches to the tasks again.
//!
//! A run that has to stop (time limit, preemption, node drained) saves, ends with exit code 75, and its task is put back
//! into the queue by the script. A task that vanishes without finishing its runs is submitted again.

//!
//! | file | content |
//! |---|---|
//! | `resources.rs` | the table `[slurm]` of a sweep file |
//! | `script.rs` | the script that is submitted |
//! | `commands.rs` | calls of `sbatch`, `squeue` and `scancel` |
//! | `watch.rs` | which runs have to be submitted again, and what is shown |

mod commands;
mod resources;
mod script;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use self::commands::{QueueLine, never_starts, queue_line, run, sbatch};
pub use self::resources::Resources;
use self::script::{job_name, plain_path};
use self::watch::Watch;
use super::task::{TaskFolder, TaskSettings};
use super::{Engine, EngineError, Plan, absolute, next_folder};
use crate::sweep::{EngineTask, Overview, Places, PlannedRun, RunOutcome, StatusReader, at, last_lines};

/// Maximum number of tasks of one array. Slurm's default limit (`MaxArraySize`) is one more.
const MOST_TASKS: usize = 1000;
/// Interval at which Slurm is queried while tasks run. It grows with the number of tasks in the queue, up to 15
/// times.
const POLL: Duration = Duration::from_secs(2);
/// Number of tasks in the queue up to which Slurm is queried every [`POLL`].
const EASY_QUEUE: usize = 200;
/// Time before runs that Slurm refused are submitted again while others are in the queue.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Time after which a task that Slurm reports as running, but that works on none of its runs, is cancelled and
/// submitted again.
///
/// Slurm keeps such tasks for a long time if its controller was killed at the moment when they ended. A task
/// needs a part of this time before its first run, for the commands of `setup` and to start.
const IDLE_TASK: Duration = Duration::from_secs(300);
/// Executes runs on a Slurm cluster. Setting `stop` leaves the tasks in the queue.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// Resources that the tasks request.
    pub resources: Resources,
    /// The program and its first arguments, as it is called on a node; `work …` is appended.
    pub program: Vec<OsString>,
    /// Whether failed runs are tried again.
    pub retry: bool,
    /// Whether to return as soon as the tasks are submitted. Default: false.
    pub detach: bool,
    /// Text of a script that is submitted instead of the engine's own; it was made from [`Slurm::script`].
    pub own_script: Option<String>,
}

impl Slurm {
    /// Submits tasks for the given runs, in arrays of at most [`MOST_TASKS`] tasks, and returns the number of runs that
    /// were submitted. The first array waits for a check job if `check` is set.
    ///
    /// A site may limit the number of jobs. If an array is refused after another was accepted, the remaining
    /// runs are not submitted.
    fn submit(
        &self,
        plan: &Plan,
        runs: &[usize],
        check: bool,
        submissions: &mut Vec<Submission>,
    ) -> Result<usize, EngineError> {
        let mut submitted = 0;
        let mut dependency: Option<String> = None;
        for part in runs.chunks(MOST_TASKS * self.resources.pack as usize) {
            let folder = next_folder(plan, "slurm")?;
            let job = |dependency: &mut Option<String>| -> Result<(), EngineError> {
                let (script, common) = self.prepare(plan, part, &folder)?;
                if check && dependency.is_none() {
                    let mut arguments = common.clone();
                    arguments.push(format!("--job-name={}-check", job_name(plan)));
                    arguments.push(format!("--output={}/check.txt", plain_path(&folder)?));
                    *dependency = Some(sbatch(&arguments, &script)?);
                }
                let tasks = part.len().div_ceil(self.resources.pack as usize);
                let mut arguments = [common, self.array_arguments(&folder, tasks)?].concat();
                if let Some(job) = &dependency {
                    arguments.push(format!("--dependency=afterok:{job}"));
                    arguments.push("--kill-on-invalid-dep=yes".to_owned());
                }
                sbatch(&arguments, &script).map(drop)
            };
            let checking = check && dependency.is_none();
            match job(&mut dependency) {
                Ok(()) => {
                    submissions.push(Submission { folder, check: checking });
                    submitted += part.len();
                }
                Err(e) => {
                    if let Some(job) = dependency.filter(|_| checking) {
                        let _ = run("scancel", &[job]); // its array does not exist
                    }
                    let _ = fs::remove_dir_all(&folder); // no task refers to it
                    return if submitted > 0 { Ok(submitted) } else { Err(e) };
                }
            }
        }
        Ok(submitted)
    }

    /// Writes script and tasks of a submission. Returns the path of the script and the arguments of all its jobs.
    fn prepare(
        &self,
        plan: &Plan,
        runs: &[usize],
        folder: &Path,
    ) -> Result<(PathBuf, Vec<String>), EngineError> {
        let text = match &self.own_script {
            Some(text) => text.clone(),
            None => self.script(plan, folder)?,
        };
        let tasks = runs.chunks(self.resources.pack as usize);
        let tasks: Vec<Vec<&PlannedRun>> =
            tasks.map(|task| task.iter().map(|&index| &plan.runs[index]).collect()).collect();
        fs::create_dir_all(folder.join("log")).map_err(at(folder))?;
        TaskFolder(folder.to_owned()).write(&TaskSettings::new(&absolute(&plan.dir)?), &tasks)?;
        let script = folder.join("script.sh");
        fs::write(&script, text).map_err(at(&script))?;
        let mut arguments = vec!["--parsable".to_owned()];
        let exclude = self.bad_nodes(plan);
        if !exclude.is_empty() {
            arguments.push(format!("--exclude={}", exclude.join(",")));
        }
        Ok((script, arguments))
    }

    /// Returns the nodes on which a task found that it cannot work, for example because the MuJoCo library is
    /// missing.
    fn bad_nodes(&self, plan: &Plan) -> Vec<String> {
        let files =
            fs::read_dir(plan.dir.join("slurm/bad-nodes")).into_iter().flatten().filter_map(Result::ok);
        let mut nodes: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        nodes.sort();
        nodes
    }

    /// Asks Slurm for the tasks of this sweep. The path of the script tells them from other jobs of the user: a script or
    /// an option of the user may have changed the name of the job.
    fn lines(&self, plan: &Plan) -> Result<Vec<QueueLine>, EngineError> {
        let text = run("squeue", &["--noheader", "--array", "--me", "--format=%A|%F|%K|%t|%r|%o"])?;
        let root = absolute(&plan.dir)?.join("slurm");
        Ok(text.lines().filter_map(|line| queue_line(line, &root)).collect())
    }

    /// Returns the tasks by the name of their run.
    fn by_run(&self, lines: &[QueueLine]) -> io::Result<HashMap<String, EngineTask>> {
        let mut found = HashMap::new();
        let mut known: HashMap<&Path, Vec<Vec<PlannedRun>>> = HashMap::new();
        for line in lines {
            let Some(number) = line.task else { continue };
            if !known.contains_key(&*line.folder) {
                known.insert(&line.folder, TaskFolder(line.folder.clone()).tasks()?);
            }
            for run in known[&*line.folder].get(number).into_iter().flatten() {
                let task =
                    EngineTask { id: line.id.clone(), running: line.running, reason: line.reason.clone() };
                let entry = found.entry(run.id.clone()).or_insert_with(|| task.clone());
                if task.running {
                    *entry = task; // a run may be in two tasks after a resubmission; the one that works counts
                }
            }
        }
        Ok(found)
    }

    /// Returns an error if the check job has ended without success.
    fn verdict(&self, submissions: &[Submission], lines: &[QueueLine]) -> Result<(), EngineError> {
        for submission in submissions.iter().filter(|s| s.check) {
            let waits = lines.iter().any(|line| line.task.is_none() && line.folder == submission.folder);
            if !waits && !submission.folder.join("checked").exists() {
                let log = submission.folder.join("check.txt");
                let said = last_lines(&log);
                let said =
                    if said.is_empty() { "it wrote no output; was it cancelled?".to_owned() } else { said };
                return Err(EngineError::Unavailable(format!(
                    "the check of a node failed, so no run was started: {said} (log: {})",
                    log.display()
                )));
            }
        }
        Ok(())
    }

    fn cancel_lines(lines: &[QueueLine]) -> Result<(), EngineError> {
        let arrays: BTreeSet<&str> =
            lines.iter().map(|line| line.id.split('_').next().unwrap_or(&line.id)).collect();
        if arrays.is_empty() {
            return Ok(());
        }
        // SIGTERM first: the script lets the runs save. The plain call then removes the tasks that still wait.
        let arrays: Vec<&str> = arrays.into_iter().collect();
        let running: Vec<&str> =
            lines.iter().filter(|line| line.running).map(|line| line.id.as_str()).collect();
        run("scancel", &[&["--state=PENDING"], &arrays[..]].concat())?;
        if !running.is_empty() {
            run("scancel", &[&["--batch", "--signal=TERM"], &running[..]].concat())?;
        }
        Ok(())
    }
}

/// One call of `sbatch` for an array.
#[derive(Debug)]
struct Submission {
    folder: PathBuf,
    /// Whether a check job runs before the array.
    check: bool,
}

impl Engine for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn execute(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        self.resources.check()?;
        let mut lines = self.lines(plan)?; // fails here if there is no Slurm
        Places::open(&plan.dir, plan.runs.len())?;
        let mut reader = StatusReader::open(&plan.dir, &plan.runs)?;
        if self.retry {
            reader.forgive_failed()?;
        }
        let begun = Instant::now();
        let cancelled = plan.dir.join("slurm/cancelled");
        match fs::remove_file(&cancelled) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&cancelled)(e).into()),
            _ => {}
        }
        let mut watch = Watch::default();
        let mut submissions: Vec<Submission> = Vec::new();
        let (mut first, mut refused) = (true, None::<(Instant, String)>);
        'watching: loop {
            let idle = watch.idle_tasks(plan, &mut reader, &self.by_run(&lines)?, IDLE_TASK)?;
            for id in &idle {
                let _ = run("scancel", &[id]); // it may have ended meanwhile
            }
            lines.retain(|line| !idle.contains(&line.id));
            let queue = self.by_run(&lines)?;
            self.verdict(&submissions, &lines)?;
            let again = refused.as_ref().is_none_or(|(at, _)| at.elapsed() > REFUSED_PAUSE);
            let missing = if again { watch.missing(plan, &mut reader, &queue, first)? } else { Vec::new() };
            if !missing.is_empty() {
                let check = !submissions.iter().any(|submission| submission.check);
                let submitted = match self.submit(plan, &missing, check, &mut submissions) {
                    Ok(submitted) => submitted,
                    // the tasks that are in the queue may use up a limit on the number of jobs
                    Err(EngineError::Refused(why)) if !lines.is_empty() => {
                        refused = Some((Instant::now(), why));
                        0
                    }
                    // the controller may be restarting
                    Err(EngineError::Unavailable(why)) if !first => {
                        refused = Some((Instant::now(), why));
                        0
                    }
                    Err(e) => return Err(e),
                };
                missing[submitted..].iter().for_each(|index| watch.not_submitted(*index));
                if submitted == missing.len() {
                    refused = None;
                } else if submitted > 0 {
                    refused = Some((Instant::now(), "Slurm takes no more jobs at present".to_owned()));
                }
            }
            let mut overview = watch.overview(plan, &mut reader, &queue, &lines, self.resources.pack)?;
            if let Some((_, why)) = &refused {
                overview.note.clone_from(why);
            }
            observe(&overview);
            let open = overview.total - overview.done - overview.failed;
            if open == 0 || (first && self.detach) || stop.load(Relaxed) || cancelled.exists() {
                break;
            }
            if let (false, Some(reason)) = (first, never_starts(&lines)) {
                Self::cancel_lines(&lines)?;
                return Err(EngineError::Refused(format!(
                    "Slurm will never start these tasks (reason: {reason}); they are cancelled. Ask for other resources \
                     (time, cpus, mem, partition, account) and run the same command"
                )));
            }
            first = false;
            let quick = begun.elapsed() < Duration::from_secs(10);
            let slower = u32::try_from(lines.len() / EASY_QUEUE).unwrap_or(u32::MAX).clamp(1, 15);
            wait(if quick { POLL / 4 } else { POLL * slower }, stop);
            let away = Instant::now();
            lines = loop {
                match self.lines(plan) {
                    // Slurm has answered before, so the controller may be restarting: the tasks continue
                    // without it
                    Err(EngineError::Unavailable(why) | EngineError::Refused(why)) => {
                        let seconds = away.elapsed().as_secs();
                        let note = format!("no answer from Slurm for {seconds} s: {why}");
                        observe(&Overview { note, ..overview.clone() });
                        wait(POLL, stop);
                        if stop.load(Relaxed) || cancelled.exists() {
                            break 'watching;
                        }
                    }
                    lines => break lines?,
                }
            };
        }
        let mut outcomes = reader.finish()?;
        for (index, end) in watch.given_up {
            let log = Places::find(&plan.dir)?.journal(&plan.runs[index].id).join("log");
            outcomes[index] = RunOutcome::Failed(end, log);
        }
        Ok(outcomes)
    }

    fn queue(&mut self, plan: &Plan) -> Result<HashMap<String, EngineTask>, EngineError> {
        Ok(self.by_run(&self.lines(plan)?)?)
    }

    fn cancel(&mut self, plan: &Plan) -> Result<usize, EngineError> {
        let lines = self.lines(plan)?;
        let root = plan.dir.join("slurm");
        if root.is_dir() {
            fs::write(root.join("cancelled"), "").map_err(at(&root))?; // an attached process does not submit again
        }
        Self::cancel_lines(&lines)?;
        Ok(self.by_run(&lines)?.len())
    }
}

/// Waits for `time`, or until `stop` is set.
fn wait(time: Duration, stop: &AtomicBool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50).min(time));
    }
}
