//! The engine for Slurm: job arrays whose tasks make the runs in a shared folder.
//!
//! ```text
//! DIR/slurm/0001/script.sh     the script that `sbatch` gets
//! DIR/slurm/0001/tasks-*.jsonl the runs of each task
//! DIR/slurm/0001/check.txt     output of the check job: can a node make the runs?
//! DIR/slurm/0001/log/K.txt     output of task K
//! ```
//! Slurm's `squeue` says which tasks wait and run; it knows them by the path of their script. The run folders alone say
//! what is done. So the process that submitted may end at any time, and the same call attaches to the tasks again.
//!
//! A run that has to stop (time limit, preemption, node drained) saves, ends with exit code 75, and its task is put back
//! into the queue by the script. A task that vanishes without finishing its runs is submitted again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use toml::Table;

use super::task::{TaskFolder, TaskSettings};
use super::{Engine, EngineError, Plan, absolute, next_folder};
use crate::sweep::{
    EngineTask, Overview, Places, PlannedRun, RunEnd, RunOutcome, Running, StatusReader, at, last_lines,
};

/// Maximum number of tasks of one array. Slurm's default limit (`MaxArraySize`) is one more.
const MOST_TASKS: usize = 1000;
/// Time between two questions to Slurm while tasks run. It grows with the number of tasks in the queue, up to 15 times.
const POLL: Duration = Duration::from_secs(2);
/// Number of tasks in the queue up to which Slurm is asked every [`POLL`].
const EASY_QUEUE: usize = 200;
/// Time before runs that Slurm refused are submitted again while others are in the queue.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Time after which a task that is said to run, but works on none of its runs, is cancelled and submitted again.
///
/// Slurm keeps such tasks for a long time if its controller was killed at the moment when they ended. A task needs a part of
/// this time before its first run: for the commands of `setup`, and to start.
const IDLE_TASK: Duration = Duration::from_secs(300);
/// Time between two looks for such tasks.
const IDLE_LOOK: Duration = Duration::from_secs(20);
/// Number of tasks of a run that may end one after another without a single new step. Then the run is given up.
const MOST_IDLE_TASKS: u32 = 3;
/// Maximum number of running runs whose progress is read at once.
const MOST_SHOWN: usize = 50;
/// Reasons of `squeue` that no waiting can change.
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

/// What the tasks ask Slurm for. The table `[slurm]` of a sweep file has these keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Partition. Default: that of the site.
    pub partition: Option<String>,
    /// Time limit of a task, in Slurm's form such as `4:00:00`. Default: that of the partition.
    pub time: Option<String>,
    /// Number of cores of a task. Default: 1.
    pub cpus: u32,
    /// Memory of a task, such as `2G`. Default: that of the site.
    pub mem: Option<String>,
    /// Account that pays. Default: that of the user.
    pub account: Option<String>,
    /// Number of runs of a task. They share its cores. Default: 1.
    pub pack: u32,
    /// Maximum number of tasks that run at the same time. Default: no limit.
    pub at_once: Option<u32>,
    /// Number of times that a task goes back to the queue after a time limit or a preemption. Default: 20.
    pub retries: u32,
    /// Seconds before the time limit at which a run is asked to save. Longer than an epoch takes. Default: 120.
    pub grace: u32,
    /// Shell commands that the script runs first, such as `module load …`. Default: none.
    pub setup: String,
    /// Further options of `sbatch`, such as `--qos=high`. Default: none.
    pub options: Vec<String>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            partition: None,
            time: None,
            cpus: 1,
            mem: None,
            account: None,
            pack: 1,
            at_once: None,
            retries: 20,
            grace: 120,
            setup: String::new(),
            options: Vec::new(),
        }
    }
}

impl Resources {
    /// Keys of the table `[slurm]`.
    pub const KEYS: &[&str] = &[
        "partition",
        "time",
        "cpus",
        "mem",
        "account",
        "pack",
        "at_once",
        "retries",
        "grace",
        "setup",
        "options",
    ];

    /// Reads the table `[slurm]` of a sweep file.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if a key does not exist or has a wrong value.
    pub fn from_table(table: &Table) -> Result<Self, EngineError> {
        let mut resources = Self::default();
        for (key, value) in table {
            let value = super::Setting { table: "slurm", key, value };
            match key.as_str() {
                "partition" => resources.partition = Some(value.text()?),
                "time" => resources.time = Some(value.text()?),
                "cpus" => resources.cpus = value.number(1)?,
                "mem" => resources.mem = Some(value.text()?),
                "account" => resources.account = Some(value.text()?),
                "pack" => resources.pack = value.number(1)?,
                "at_once" => resources.at_once = Some(value.number(1)?),
                "retries" => resources.retries = value.number(0)?,
                "grace" => resources.grace = value.number(1)?,
                "setup" => resources.setup = value.text()?,
                "options" => resources.options = value.texts()?,
                _ => return Err(value.unknown(Self::KEYS)),
            }
        }
        Ok(resources)
    }

    /// Refuses values that would break the lines of the script.
    fn check(&self) -> Result<(), EngineError> {
        let given = [&self.partition, &self.time, &self.mem, &self.account];
        let texts = given.into_iter().flatten().chain(&self.options);
        for text in texts {
            if text.is_empty() || text.chars().any(char::is_control) {
                let why = format!("`{}` is no value of a Slurm option", text.escape_debug());
                return Err(EngineError::Usage(why));
            }
        }
        match self.options.iter().find(|option| !option.starts_with('-')) {
            Some(option) => {
                Err(EngineError::Usage(format!("`{option}` is no option of sbatch: it begins with a dash")))
            }
            None => Ok(()),
        }
    }
}

/// Executes runs on a Slurm cluster. Setting `stop` leaves the tasks in the queue.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// What the tasks ask for.
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

/// One line of `squeue`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueueLine {
    /// `ARRAY_TASK`, or the id of a job without tasks.
    id: String,
    /// Number of the task; `None` for the check job.
    task: Option<usize>,
    running: bool,
    reason: String,
    /// Folder of the submission.
    folder: PathBuf,
}

impl Slurm {
    /// Returns the script of a submission in `folder`.
    ///
    /// The options that differ between submissions (array, output, dependency) are given to `sbatch` as arguments.
    ///
    /// # Errors
    /// If a value cannot be written into a script.
    pub fn script(&self, plan: &Plan, folder: &Path) -> Result<String, EngineError> {
        let Resources { partition, time, cpus, mem, account, retries, grace, setup, options, .. } =
            &self.resources;
        self.resources.check()?;
        let folder = quoted_path(folder)?;
        let program: Vec<String> = self.program.iter().map(|word| shell(&word.to_string_lossy())).collect();
        let mut lines = vec!["#!/bin/bash".to_owned()];
        let mut option = |name: &str, value: &str| lines.push(format!("#SBATCH --{name}={value}"));
        option("job-name", &job_name(plan));
        option("cpus-per-task", &cpus.to_string());
        let given = [("partition", partition), ("time", time), ("mem", mem), ("account", account)];
        given.into_iter().for_each(|(name, value)| value.iter().for_each(|value| option(name, value)));
        option("signal", &format!("B:TERM@{grace}"));
        option("open-mode", "append");
        lines.push("#SBATCH --requeue".to_owned());
        lines.extend(options.iter().map(|option| format!("#SBATCH {option}")));
        let body = format!(
            r#"
# Each task of the array makes the runs that its line in tasks-*.jsonl names. Without a task number the script only
# checks that this node can make them.
tasks=${{EPO_TASKS:-{folder}}}
{setup}
# Slurm may signal the script and the processes below it, so the program takes a second SIGTERM for the first.
export EPO_SWEEP_CHILD=patient
{} work "$tasks" --task "${{SLURM_ARRAY_TASK_ID:-check}}" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null' TERM
wait "$child"; code=$?
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done   # a signal ends `wait` early
# Exit code 75: the runs are saved and not finished. The task goes back to the queue and continues from there.
# `epo sweep --cancel` makes the file `cancelled`.
if [ "$code" = 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {retries} ] && [ ! -e "$tasks/../cancelled" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"#,
            program.join(" ")
        );
        Ok(lines.join("\n") + &body)
    }

    /// Returns the script that the next call would submit, and the arguments of `sbatch`. Nothing is written.
    ///
    /// # Errors
    /// If a value cannot be written into a script.
    pub fn preview(&self, plan: &Plan) -> Result<String, EngineError> {
        let folder = next_folder(plan, "slurm")?;
        let tasks = plan.runs.len().div_ceil(self.resources.pack as usize);
        let script = self.script(plan, &folder)?;
        let arrays = tasks.div_ceil(MOST_TASKS);
        let arguments = self.array_arguments(&folder, tasks.min(MOST_TASKS))?.join(" ");
        let more = if arrays > 1 { format!(", and {} more arrays", arrays - 1) } else { String::new() };
        let (head, rest) = script.split_once('\n').unwrap_or((&script, ""));
        Ok(format!("{head}\n# sbatch {arguments}{more}\n{rest}"))
    }

    fn array_arguments(&self, folder: &Path, tasks: usize) -> Result<Vec<String>, EngineError> {
        let limit = self.resources.at_once.map_or(String::new(), |most| format!("%{most}"));
        let folder = plain_path(folder)?;
        Ok(vec![
            format!("--array=0-{}{limit}", tasks.saturating_sub(1)),
            format!("--output={folder}/log/%a.txt"),
        ])
    }

    /// Submits tasks for the given runs, in arrays of at most [`MOST_TASKS`] tasks, and returns the number of runs that
    /// were submitted. The first array waits for a check job if `check` is set.
    ///
    /// A site may limit the number of jobs. If an array is refused after another one was accepted, the rest is left.
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

    /// Nodes on which a task found that it cannot work, such as for want of the MuJoCo library.
    fn bad_nodes(&self, plan: &Plan) -> Vec<String> {
        let files =
            fs::read_dir(plan.dir.join("slurm/bad-nodes")).into_iter().flatten().filter_map(Result::ok);
        let mut nodes: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        nodes.sort();
        nodes
    }

    /// Asks Slurm for the tasks of this sweep.
    fn lines(&self, plan: &Plan) -> Result<Vec<QueueLine>, EngineError> {
        let name = job_name(plan);
        let names = format!("--name={name},{name}-check");
        let text = run("squeue", &["--noheader", "--array", &names, "--format=%A|%F|%K|%t|%r|%o"])?;
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

    /// Fails if the check job has ended without success.
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
        // SIGTERM first: the script lets the runs save. What still waits is removed by the plain call.
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
    /// Whether a check job goes before the array.
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
                    Err(EngineError::Refused(why) | EngineError::Unavailable(why))
                        if !first && !lines.is_empty() =>
                    {
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
            if !first && !lines.is_empty() && lines.iter().all(|line| NEVER.contains(&&*line.reason)) {
                Self::cancel_lines(&lines)?;
                return Err(EngineError::Refused(format!(
                    "Slurm will never start these tasks (reason: {}); they are cancelled. Ask for other resources (time, \
                     cpus, mem, partition, account) and run the same command",
                    lines[0].reason
                )));
            }
            first = false;
            let quick = begun.elapsed() < Duration::from_secs(10);
            let slower = u32::try_from(lines.len() / EASY_QUEUE).unwrap_or(u32::MAX).clamp(1, 15);
            wait(if quick { POLL / 4 } else { POLL * slower }, stop);
            let away = Instant::now();
            lines = loop {
                match self.lines(plan) {
                    // the controller may be restarting: the tasks go on without it
                    Err(EngineError::Unavailable(why)) => {
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

/// What the process that watches a sweep remembers about its runs.
#[derive(Default)]
struct Watch {
    /// Number of questions in a row in which no task of a run was in the queue.
    absent: HashMap<usize, u32>,
    /// Steps of a run when its last task vanished, and the number of tasks since then that made no step.
    idle: HashMap<usize, (u64, u32)>,
    /// Runs that are not submitted again.
    given_up: BTreeMap<usize, RunEnd>,
    /// First and newest number of steps of a running run, each with its time.
    speed: HashMap<usize, [(u64, Instant); 2]>,
    /// Running tasks that work on none of their runs, and since when.
    idle_since: BTreeMap<String, Instant>,
    /// When such tasks were last looked for.
    looked: Option<Instant>,
}

impl Watch {
    /// Returns the open runs that no task has, and that therefore have to be submitted.
    ///
    /// A run must be absent twice: a task that is being put back into the queue may be invisible for a moment.
    fn missing(
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
            // a run that has ended is known to the reader and costs nothing here
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

    /// Returns the tasks that are said to run and have worked on none of their runs for `most`.
    fn idle_tasks(
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

    /// Takes back that a run was submitted.
    fn not_submitted(&mut self, index: usize) {
        if let Some((_, idle)) = self.idle.get_mut(&index) {
            *idle = idle.saturating_sub(1);
        }
    }

    fn overview(
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

/// Name of the jobs of a sweep.
fn job_name(plan: &Plan) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    format!("epo-{}", plan.name.chars().map(plain).collect::<String>())
}

/// Returns a line of `squeue` if its script is one of this sweep.
fn queue_line(line: &str, root: &Path) -> Option<QueueLine> {
    let fields: Vec<&str> = line.splitn(6, '|').collect();
    let [job, array, task, state, reason, script] = fields[..] else { return None };
    let folder = Path::new(script.trim_end()).parent()?;
    if folder.parent()? != root {
        return None;
    }
    let task = task.parse().ok();
    let id = task.map_or_else(|| job.to_owned(), |task: usize| format!("{array}_{task}"));
    let running = matches!(state, "R" | "CG" | "CF" | "S" | "ST");
    let reason = if running || reason == "None" { String::new() } else { reason.to_owned() };
    Some(QueueLine { id, task, running, reason, folder: folder.to_owned() })
}

/// Submits a script and returns the id of the job.
fn sbatch(arguments: &[String], script: &Path) -> Result<String, EngineError> {
    let folder = script.parent().map(Path::to_owned).unwrap_or_default();
    let mut command = Command::new("sbatch");
    command.args(arguments).arg(script).env("EPO_TASKS", folder);
    let text = output(command, "sbatch")?;
    Ok(text.trim().split(';').next().unwrap_or_default().to_owned())
}

fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, EngineError> {
    let mut command = Command::new(program);
    command.args(arguments);
    output(command, program)
}

/// Runs a command of Slurm and returns its output.
fn output(mut command: Command, program: &str) -> Result<String, EngineError> {
    let output = command.stdin(std::process::Stdio::null()).output().map_err(|e| match e.kind() {
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

/// Waits, but not after `stop` was set.
fn wait(time: Duration, stop: &AtomicBool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50).min(time));
    }
}

/// Returns a path as text. Slurm replaces `%` in names of files, and has no way to write some other characters.
fn plain_path(path: &Path) -> Result<String, EngineError> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(['%', '\\', '|', '"']) && !text.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        EngineError::Usage(format!(
            "Slurm cannot use the path {}: choose a plain name (--out)",
            path.display()
        ))
    })
}

fn quoted_path(path: &Path) -> Result<String, EngineError> {
    Ok(shell(&plain_path(path)?))
}

/// Returns a word in single quotes for a shell, if it needs them.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str) -> Plan {
        Plan { dir: "/data/my sweep".into(), name: name.into(), runs: Vec::new() }
    }

    fn slurm() -> Slurm {
        let program = vec!["/opt/epo it".into()];
        Slurm { resources: Resources::default(), program, retry: false, detach: false, own_script: None }
    }

    #[test]
    fn resources_are_read_from_the_sweep_file_and_mistakes_are_named() {
        let read = |text: &str| Resources::from_table(&text.parse().unwrap());
        let all = "partition = \"gpu\"\ntime = \"4:00:00\"\ncpus = 2\nmem = \"2G\"\naccount = \"lab\"\npack = 4\n\
                   at_once = 50\nretries = 3\ngrace = 300\nsetup = \"module load gcc\"\noptions = [\"--qos=high\"]\n";
        let resources = read(all).unwrap();
        assert_eq!(
            (resources.cpus, resources.pack, resources.at_once, resources.retries),
            (2, 4, Some(50), 3)
        );
        let script =
            Slurm { resources, ..slurm() }.script(&plan("my paper"), Path::new("/x/slurm/0001")).unwrap();
        for line in [
            "#SBATCH --job-name=epo-my-paper",
            "#SBATCH --partition=gpu",
            "#SBATCH --time=4:00:00",
            "#SBATCH --cpus-per-task=2",
            "#SBATCH --mem=2G",
            "#SBATCH --account=lab",
            "#SBATCH --signal=B:TERM@300",
            "#SBATCH --requeue",
            "#SBATCH --qos=high",
            "module load gcc",
            "tasks=${EPO_TASKS:-/x/slurm/0001}",
            "'/opt/epo it' work \"$tasks\" --task \"${SLURM_ARRAY_TASK_ID:-check}\" &",
            "if [ \"$code\" = 75 ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt 3 ] && [ ! -e \"$tasks/../cancelled\" ]; then",
        ] {
            assert!(script.lines().any(|l| l == line), "no line `{line}` in\n{script}");
        }
        for (text, part) in [
            ("tiem = \"1\"", "did you mean `slurm.time`"),
            ("cpus = 0", "a whole number of at least 1"),
            ("cpus = \"two\"", "a whole number"),
            ("time = 60", "a text in quotes"),
            ("options = \"--qos=high\"", "a list of texts"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    /// Fails if a value can add a line to the script, or a path is written that Slurm changes.
    #[test]
    fn values_that_would_break_the_script_are_refused() {
        let script = |resources: Resources, dir: &str| {
            let slurm = Slurm { resources, ..slurm() };
            slurm.script(&plan("a\nb"), Path::new(dir)).map_err(|e| e.to_string())
        };
        let evil = Resources { time: Some("1\nrm -r /".into()), ..Resources::default() };
        assert!(script(evil, "/x").unwrap_err().contains("no value of a Slurm option"));
        let word = Resources { options: vec!["qos=high".into()], ..Resources::default() };
        assert!(script(word, "/x").unwrap_err().contains("begins with a dash"));
        assert!(script(Resources::default(), "/x/100%").unwrap_err().contains("plain name"));
        let good = script(Resources::default(), "/x/my 'sweep'").unwrap();
        assert!(good.contains(r"tasks=${EPO_TASKS:-'/x/my '\''sweep'\'''}"), "{good}");
        assert!(good.contains("--job-name=epo-a-b\n"), "{good}");
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
        assert_eq!(line("9|9|1|R|None|/d/other/slurm/0001/script.sh"), None);
        assert_eq!(line("nonsense"), None);
    }

    /// Fails if a task that Slurm only believes to run is waited for, or if one that works is cancelled.
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
