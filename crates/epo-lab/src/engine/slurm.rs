//! The engine for Slurm: job arrays whose tasks make the runs in a shared folder.
//!
//! ```text
//! DIR/slurm/0001/script.sh     the script that `sbatch` gets
//! DIR/slurm/0001/tasks-*.jsonl the runs of each task
//! DIR/slurm/0001/check.txt     output of the check job, which tests whether a node can make the runs
//! DIR/slurm/0001/log/K.txt     output of task K
//! DIR/slurm/0001/job           id of the array
//! ```
//! Slurm's `squeue` lists the tasks that wait or run; tasks are identified by the path of their
//! script. Only the run folders determine which runs are done. So the process that submitted the
//! tasks may end at any time, and a later call of the same command attaches to them again.
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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use self::commands::{QueueLine, accounted, never_starts, queue_line, run, sbatch};
pub use self::resources::Resources;
use self::script::{job_name, plain_path};
use self::watch::Watch;
use super::task::{OTHER_VERSION, TaskFolder, TaskSettings};
use super::{Engine, EngineError, Plan, absolute, make_next_folder, open_places, or_discard};
use crate::sweep::{EngineQueue, EngineTask, Overview, PlannedRun, RunOutcome, StatusReader, at, last_lines};

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
/// File that `--cancel` makes: no process submits tasks, and no task goes back to the queue, while it exists.
const CANCELLED: &str = "slurm/cancelled";
/// File in the folder of a submission with the id of its array.
const JOB: &str = "job";
/// Maximum number of submissions that Slurm's accounting is asked about; the newest ones.
const MOST_ASKED: usize = 50;
/// Folder with a file for each node that cannot make the runs.
const BAD_NODES: &str = "slurm/bad-nodes";
/// What to do about tasks that can never start.
const OTHER_RESOURCES: &str =
    "Ask for other resources (time, cpus, mem, partition, account) and run the same command";

/// Executes runs on a Slurm cluster. If `stop` is set, the tasks stay in the queue.
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
    /// Script to submit instead of the engine's own: a copy of [`Slurm::script`] that the user has
    /// changed. Default: `None`.
    pub own_script: Option<String>,
}

impl Slurm {
    /// Submits tasks for the given runs, in arrays of at most [`MOST_TASKS`] tasks. All arrays wait for a check job if
    /// `check` is set. Returns the submissions, and Slurm's message if it refused an array after it accepted another:
    /// a site may limit the number of jobs.
    fn submit(
        &self,
        plan: &Plan,
        runs: &[usize],
        check: bool,
        queue: &[QueueLine],
        stop: &AtomicBool,
    ) -> Result<(Vec<Submission>, Option<String>), EngineError> {
        let mut waits = Waits { check: None, arrays: Vec::new() };
        if self.resources.at_once.is_some() {
            waits.arrays = arrays(queue.iter().filter(|line| line.task.is_some()));
        }
        let mut submissions = Vec::new();
        for part in runs.chunks(MOST_TASKS * self.resources.pack as usize) {
            let check = check && submissions.is_empty();
            let folder = make_next_folder(plan, "slurm")?;
            match self.submit_array(plan, part, &folder, check, &mut waits, stop) {
                Ok(()) => submissions.push(Submission { folder, check, runs: part.to_vec() }),
                Err(e) => {
                    // without an answer Slurm may have accepted the array, and its tasks need the folder and the check
                    let unsure = matches!(e, EngineError::Unavailable(_)) || stop.load(Relaxed);
                    if !unsure {
                        if let Some(job) = waits.check.filter(|_| check) {
                            let _ = run("scancel", &[job]); // its array does not exist
                        }
                        let _ = fs::remove_dir_all(&folder); // no task refers to it
                    }
                    return match (submissions.is_empty(), e) {
                        (false, e) => Ok((submissions, Some(e.to_string()))),
                        (true, EngineError::Refused(why)) => {
                            Err(EngineError::Refused(why + &self.excluded_note(plan)))
                        }
                        (true, e) => Err(e),
                    };
                }
            }
        }
        Ok((submissions, None))
    }

    /// Submits one array, and before it a check job if `check` is set.
    ///
    /// With a maximum number of simultaneous tasks, an array waits for the arrays before it, because Slurm applies the
    /// maximum to each array.
    fn submit_array(
        &self,
        plan: &Plan,
        runs: &[usize],
        folder: &Path,
        check: bool,
        waits: &mut Waits,
        stop: &AtomicBool,
    ) -> Result<(), EngineError> {
        let (script, common) = self.prepare(plan, runs, folder)?;
        if check {
            let mut arguments = common.clone();
            arguments.push(format!("--job-name={}-check", job_name(plan)));
            arguments.push(format!("--output={}/check.txt", plain_path(folder)?));
            waits.check = Some(sbatch(&arguments, &script, stop)?);
        }
        let tasks = runs.len().div_ceil(self.resources.pack as usize);
        let array = [common, self.array_arguments(folder, tasks)?, waits.arguments()].concat();
        let job = sbatch(&array, &script, stop)?;
        let _ = fs::write(folder.join(JOB), &job); // only `--status` reads it
        if self.resources.at_once.is_some() {
            waits.arrays = vec![job];
        }
        Ok(())
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
        let retries = Some(self.resources.retries);
        let settings = TaskSettings { retries, ..TaskSettings::new(&absolute(&plan.dir)?) };
        TaskFolder(folder.to_owned()).write(&settings, &tasks)?;
        let script = folder.join("script.sh");
        fs::write(&script, text).map_err(at(&script))?;
        let mut arguments = vec!["--parsable".to_owned()];
        let bad: Vec<String> = bad_nodes(plan).into_keys().collect();
        if !bad.is_empty() {
            // an argument replaces the line of the script
            let exclude = self.resources.excluded().into_iter().chain(bad.iter().map(String::as_str));
            arguments.push(format!("--exclude={}", exclude.collect::<Vec<_>>().join(",")));
        }
        Ok((script, arguments))
    }

    /// Returns what to add to a refusal if nodes were excluded; otherwise nothing.
    fn excluded_note(&self, plan: &Plan) -> String {
        let nodes: Vec<String> = bad_nodes(plan).into_keys().collect();
        match nodes.is_empty() {
            true => String::new(),
            false => format!(
                " (excluded, because they cannot make the runs: {}; delete their files in {} to use them again)",
                nodes.join(", "),
                plan.dir.join(BAD_NODES).display()
            ),
        }
    }

    /// Asks Slurm for the tasks of this sweep. They are identified by the path of their script,
    /// because the user may have changed the name of the job.
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
                let task = EngineTask {
                    id: line.id.clone(),
                    running: line.running,
                    reason: line.reason.clone(),
                    log: TaskFolder(line.folder.clone()).log(number),
                    steps: None,
                };
                let entry = found.entry(run.id.clone()).or_insert_with(|| task.clone());
                if task.running {
                    *entry = task; // a run may be in two tasks after a resubmission; the one that works counts
                }
            }
        }
        Ok(found)
    }

    /// Submits the runs. Returns what was submitted, and the refusal if Slurm accepts no more at present.
    fn submit_missing(
        &self,
        plan: &Plan,
        missing: &[usize],
        lines: &[QueueLine],
        check: bool,
        first: bool,
        stop: &AtomicBool,
    ) -> Result<(Vec<Submission>, Option<Refusal>), EngineError> {
        let (new, why) = match self.submit(plan, missing, check, lines, stop) {
            Ok(submitted) => submitted,
            Err(EngineError::Refused(_)) if stop.load(Relaxed) => {
                (Vec::new(), Some("the submission was interrupted".to_owned()))
            }
            // the tasks that are in the queue may use up a limit on the number of jobs
            Err(EngineError::Refused(why)) if !lines.is_empty() => (Vec::new(), Some(why)),
            // the controller may be restarting
            Err(EngineError::Unavailable(why)) if !first => (Vec::new(), Some(why)),
            Err(e) => return Err(e),
        };
        Ok((new, why.map(|why| Refusal { at: Instant::now(), why })))
    }

    /// Tells `watch` which runs were submitted.
    fn record(&self, new: Vec<Submission>, watch: &mut Watch, reader: &StatusReader<'_>) {
        for submission in new {
            for (task, runs) in submission.runs.chunks(self.resources.pack as usize).enumerate() {
                let log = TaskFolder(submission.folder.clone()).log(task);
                runs.iter().for_each(|&run| watch.submitted(run, reader.progress(run).0, log.clone()));
            }
            if submission.check {
                watch.check = Some(submission.folder);
            }
        }
    }

    /// Submits the runs that are not done, and waits for them unless `detach` is set.
    fn submit_and_wait(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Vec<RunOutcome>, EngineError> {
        self.resources.check()?;
        let mut lines = self.lines(plan)?; // fails here if there is no Slurm
        open_places(plan)?;
        forget_other_versions(plan);
        let mut reader = StatusReader::open(&plan.dir, &plan.runs)?;
        if self.retry {
            reader.forgive_failed()?;
        }
        let begun = Instant::now();
        let mut watch = Watch::default();
        let (mut first, mut refused) = (true, None::<Refusal>);
        loop {
            if is_cancelled(&plan.dir) {
                Self::cancel_lines(&self.lines(plan)?)?; // `--cancel` may not have seen what was submitted last
                break;
            }
            let queue = self.remove_useless(plan, &mut lines, &mut watch, &mut reader)?;
            if let Some(why) = watch.check.as_ref().and_then(|folder| failed_check(folder, &lines)) {
                return Err(EngineError::Unavailable(why));
            }
            if refused.as_ref().is_none_or(|refusal| refusal.at.elapsed() > REFUSED_PAUSE) {
                let missing = watch.missing(plan, &mut reader, &queue, first, self.resources.retries)?;
                if !missing.is_empty() {
                    let check = watch.check.is_none();
                    let (new, refusal) = self.submit_missing(plan, &missing, &lines, check, first, stop)?;
                    self.record(new, &mut watch, &reader);
                    refused = refusal;
                    if is_cancelled(&plan.dir) {
                        continue; // cancelled while `sbatch` worked
                    }
                }
            }
            let mut overview = watch.overview(plan, &mut reader, &queue, &lines, self.resources.pack)?;
            overview.news = watch.new_bad_nodes(bad_nodes(plan));
            match &refused {
                Some(refusal) if overview.refused > 0 => {
                    overview.note.clone_from(&refusal.why);
                    overview.news.extend(watch.new_refusal(&refusal.why));
                }
                _ => refused = None, // another command may have submitted the runs
            }
            observe(&overview);
            let open = overview.total - overview.done - overview.failed;
            if open == 0 || (first && self.detach) || stop.load(Relaxed) {
                break;
            }
            if let (false, Some(reason)) = (first, never_starts(&lines)) {
                Self::cancel_lines(&lines)?;
                let excluded = self.excluded_note(plan);
                return Err(EngineError::Refused(format!(
                    "Slurm will never start these tasks (reason: {reason}){excluded}; they are cancelled. {OTHER_RESOURCES}"
                )));
            }
            first = false;
            let quick = begun.elapsed() < Duration::from_secs(10);
            let slower = u32::try_from(lines.len() / EASY_QUEUE).unwrap_or(u32::MAX).clamp(1, 15);
            wait(if quick { POLL / 4 } else { POLL * slower }, stop);
            match self.ask_again(plan, &overview, stop, observe)? {
                Some(new) => lines = new,
                None => break,
            }
        }
        Ok(reader.finish()?)
    }

    /// Cancels tasks that work on none of their runs, or that Slurm holds, and removes them from the lines. Returns the
    /// other tasks by the name of their run.
    fn remove_useless(
        &self,
        plan: &Plan,
        lines: &mut Vec<QueueLine>,
        watch: &mut Watch,
        reader: &mut StatusReader<'_>,
    ) -> Result<HashMap<String, EngineTask>, EngineError> {
        let mut queue = self.by_run(lines)?;
        let mut useless = watch.idle_tasks(plan, reader, &queue, IDLE_TASK)?;
        useless.extend(lines.iter().filter(|line| line.is_held()).map(|line| line.id.clone()));
        for id in &useless {
            let _ = run("scancel", &[id]); // it may have ended meanwhile
        }
        lines.retain(|line| !useless.contains(&line.id));
        queue.retain(|_, task| !useless.contains(&task.id));
        Ok(queue)
    }

    /// Asks Slurm for the tasks until it answers. Returns `None` if the command has to end before.
    fn ask_again(
        &self,
        plan: &Plan,
        overview: &Overview,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Overview),
    ) -> Result<Option<Vec<QueueLine>>, EngineError> {
        let away = Instant::now();
        loop {
            match self.lines(plan) {
                // Slurm has answered before, so the controller may be restarting: the tasks continue without it
                Err(EngineError::Unavailable(why) | EngineError::Refused(why)) => {
                    let note = format!("no answer from Slurm for {} s: {why}", away.elapsed().as_secs());
                    observe(&Overview { note, news: Vec::new(), ..overview.clone() });
                    wait(POLL, stop);
                    if stop.load(Relaxed) || is_cancelled(&plan.dir) {
                        return Ok(None);
                    }
                }
                lines => return lines.map(Some),
            }
        }
    }

    fn cancel_lines(lines: &[QueueLine]) -> Result<(), EngineError> {
        let arrays = arrays(lines.iter());
        if arrays.is_empty() {
            return Ok(());
        }
        // SIGTERM first: the script lets the runs save. The plain call then removes the tasks that still wait.
        let arrays: Vec<&str> = arrays.iter().map(String::as_str).collect();
        let running: Vec<&str> =
            lines.iter().filter(|line| line.started).map(|line| line.id.as_str()).collect();
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
    /// The runs of its tasks.
    runs: Vec<usize>,
}

/// The jobs that an array waits for.
#[derive(Debug)]
struct Waits {
    /// The check job, which must succeed.
    check: Option<String>,
    /// Earlier arrays, which must end.
    arrays: Vec<String>,
}

impl Waits {
    /// Returns the arguments of `sbatch`.
    fn arguments(&self) -> Vec<String> {
        let check = self.check.iter().map(|job| format!("afterok:{job}"));
        let arrays = self.arrays.iter().map(|job| format!("afterany:{job}"));
        let jobs: Vec<String> = check.chain(arrays).collect();
        match jobs.is_empty() {
            true => Vec::new(),
            false => vec![format!("--dependency={}", jobs.join(",")), "--kill-on-invalid-dep=yes".to_owned()],
        }
    }
}

/// Runs that Slurm did not accept.
#[derive(Debug)]
struct Refusal {
    at: Instant,
    why: String,
}

/// Returns the ids of the jobs that queue lines belong to.
fn arrays<'a>(lines: impl Iterator<Item = &'a QueueLine>) -> Vec<String> {
    let ids: BTreeSet<&str> = lines.map(|line| line.id.split('_').next().unwrap_or(&line.id)).collect();
    ids.into_iter().map(str::to_owned).collect()
}

/// Returns the nodes on which a task found that it cannot work, for example because the MuJoCo library is missing, each
/// with a message.
fn bad_nodes(plan: &Plan) -> BTreeMap<String, String> {
    let files = fs::read_dir(plan.dir.join(BAD_NODES)).into_iter().flatten().filter_map(Result::ok);
    let message = |file: fs::DirEntry| {
        let why = epo_core::read_text(&file.path(), epo_core::MOST_TEXT_BYTES).unwrap_or_default();
        let path = file.path();
        let text = format!("{why}; the node is excluded (delete {} to use it again)", path.display());
        Some((file.file_name().into_string().ok()?, text))
    };
    files.filter_map(message).collect()
}

/// Gives nodes with another version of the program a new chance: their program, or this one, may have been replaced.
fn forget_other_versions(plan: &Plan) {
    for file in fs::read_dir(plan.dir.join(BAD_NODES)).into_iter().flatten().filter_map(Result::ok) {
        let why = epo_core::read_text(&file.path(), epo_core::MOST_TEXT_BYTES).unwrap_or_default();
        if why.contains(OTHER_VERSION) {
            let _ = fs::remove_file(file.path()); // if it stays, the node stays excluded
        }
    }
}

/// Whether the sweep in this folder was cancelled, and no command has continued it since.
pub fn is_cancelled(dir: &Path) -> bool {
    dir.join(CANCELLED).exists()
}

/// Lets a command continue a sweep that was cancelled.
///
/// # Errors
/// If the mark of the cancelled sweep cannot be removed.
pub fn forget_cancel(dir: &Path) -> io::Result<()> {
    let file = dir.join(CANCELLED);
    match fs::remove_file(&file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&file)(e)),
        _ => Ok(()),
    }
}

/// Returns the newest submission whose check job has started.
fn last_check(plan: &Plan) -> Result<Option<PathBuf>, EngineError> {
    Ok(submissions(plan)?.into_iter().filter(|folder| folder.join("check.txt").exists()).max())
}

/// Returns the entries of the folder that has one folder for each submission.
fn submissions(plan: &Plan) -> Result<Vec<PathBuf>, EngineError> {
    let entries = fs::read_dir(absolute(&plan.dir)?.join("slurm")).into_iter().flatten();
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

/// Returns a message if the check job of a submission has ended without success.
fn failed_check(folder: &Path, lines: &[QueueLine]) -> Option<String> {
    let waits = lines.iter().any(|line| line.task.is_none() && line.folder == folder);
    if waits || folder.join("checked").exists() {
        return None;
    }
    let log = folder.join("check.txt");
    let said = last_lines(&log);
    let said = if said.is_empty() { "it wrote no output; was it cancelled?" } else { &said };
    Some(format!("the check of a node failed, so no run was started: {said} (log: {})", log.display()))
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
        or_discard(plan, || self.submit_and_wait(plan, stop, observe))
    }

    fn queue(&mut self, plan: &Plan) -> Result<EngineQueue, EngineError> {
        let lines = self.lines(plan)?;
        let mut problems: Vec<String> = bad_nodes(plan).into_values().collect();
        let checking = lines.iter().any(|line| line.task.is_none());
        if !checking && !is_cancelled(&plan.dir) {
            problems.extend(last_check(plan)?.and_then(|folder| failed_check(&folder, &lines)));
        }
        problems.extend(never_starts(&lines).map(|reason| {
            format!("Slurm will never start these tasks (reason: {reason}): --cancel removes them. {OTHER_RESOURCES}")
        }));
        Ok(EngineQueue { tasks: self.by_run(&lines)?, problems })
    }

    fn ended_tasks(&mut self, plan: &Plan) -> Result<HashMap<String, String>, EngineError> {
        let mut submitted: Vec<(PathBuf, String)> = submissions(plan)?
            .into_iter()
            .filter_map(|folder| Some((folder.clone(), epo_core::read_text(&folder.join(JOB), 100).ok()?)))
            .collect();
        submitted.sort_by(|a, b| b.cmp(a)); // the newest first
        submitted.truncate(MOST_ASKED);
        let jobs: Vec<String> = submitted.iter().map(|(_, job)| job.clone()).collect();
        let states = if jobs.is_empty() { HashMap::new() } else { accounted(&jobs) };
        let mut found = HashMap::new();
        for (folder, job) in submitted.into_iter().filter(|_| !states.is_empty()) {
            for (task, runs) in TaskFolder(folder).tasks()?.into_iter().enumerate() {
                let id = format!("{job}_{task}");
                let Some(state) = states.get(&id) else { continue };
                for run in runs {
                    found.entry(run.id).or_insert_with(|| format!("task {id} ended: {state}"));
                }
            }
        }
        Ok(found)
    }

    fn cancel(&mut self, plan: &Plan) -> Result<usize, EngineError> {
        // the file first: an attached process that submits after the queue was listed sees it and cancels its tasks
        let file = plan.dir.join(CANCELLED);
        if plan.dir.join("slurm").is_dir() {
            fs::write(&file, "").map_err(at(&file))?;
        }
        let lines = self.lines(plan)?;
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
