//! The driver of a sweep: it starts the runs as child processes, watches them and continues what earlier drivers began.
//!
//! The driver is a single loop without threads. It starts free runs, handles children that have ended, writes
//! heartbeats and reports an overview. Each run is a child process (`epo train …`), so a crash of one run does not
//! affect the others. Each child has its own process group. When the driver is asked to stop, it sends each child one
//! SIGTERM. The child then writes a checkpoint and exits with code 75.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::csv::MOST_RECORD_BYTES;

use super::index::{self, known_outcomes};
use super::journal::{Claim, Journal, OwnLease, Process, RunEnd};
use super::places::{MOST_FLAT, Places};
use super::plan::PlannedRun;

/// Time between two checks whether children have ended.
const POLL: Duration = Duration::from_millis(50);
/// Time between two heartbeats. Journal and overview are updated at the same interval, and when a child ends.
const BEAT: Duration = Duration::from_secs(1);
/// Time between two heartbeats of a task on a cluster. A thousand tasks share one folder, and a run may be
/// taken over after two minutes without a heartbeat.
const CLUSTER_BEAT: Duration = Duration::from_secs(20);
/// Exit code of a run that was interrupted and has written a checkpoint.
const INTERRUPTED: i32 = 75;
/// Environment variable that is set in every process that a sweep starts.
const CHILD: &str = "EPO_SWEEP_CHILD";
/// Value of [`CHILD`] in a process that ignores a repeated SIGTERM.
const PATIENT: &str = "patient";

/// Options of [`drive`].
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// Folder of the sweep; the run folders are in its subfolder `runs/`.
    pub dir: PathBuf,
    /// Maximum number of runs at the same time.
    pub jobs: usize,
    /// Number of threads of each run.
    pub threads: usize,
    /// The program and its first arguments; the driver appends `train …`.
    pub program: Vec<OsString>,
    /// Whether failed runs are tried again.
    pub retry: bool,
    /// Whether a repeated SIGTERM is ignored by the runs, instead of ending them at once. For engines that signal every
    /// process of a task. Default: false.
    pub patient: bool,
    /// Whether the journal counts how often a run is started. Default: false.
    pub count_starts: bool,
}

/// A run that this driver is executing.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Name and variant.
    pub label: String,
    /// Number of environment steps done.
    pub steps: u64,
    /// Total number of environment steps of the run.
    pub of: u64,
    /// Environment steps per second, from the first to the newest row that this driver saw; `None` before the second
    /// row.
    pub steps_per_second: Option<f64>,
}

/// State of the whole sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Number of all runs.
    pub total: usize,
    /// Number of finished runs.
    pub done: usize,
    /// Number of failed runs.
    pub failed: usize,
    /// Number of runs that other drivers hold.
    pub elsewhere: usize,
    /// Number of runs that wait in the queue of an engine.
    pub queued: usize,
    /// Runs that this driver is executing.
    pub running: Vec<Running>,
    /// Estimated seconds to the end of the sweep at the current speed; `None` if no speed is known yet.
    pub eta: Option<f64>,
    /// Whether the driver was asked to stop and is waiting for the runs to write their checkpoints.
    pub stopping: bool,
    /// Message about the engine, such as that its controller does not answer. Empty if there is none.
    pub note: String,
    /// Number of runs that the engine refused for the present. They are submitted later.
    pub refused: usize,
    /// Messages that are shown once.
    pub news: Vec<String>,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The run is finished.
    Done(RunEnd),
    /// The run failed. The path is that of its log.
    Failed(RunEnd, PathBuf),
    /// The run is not finished; the next `epo sweep` continues it.
    Pending,
}

/// A child process with its lease and its progress.
struct Job {
    index: usize,
    held: OwnLease,
    child: Child,
    process: Process,
    began: Instant,
    /// First number of steps that was read from `progress.csv`, and when it was read.
    first: Option<(u64, Instant)>,
    /// Newest number of steps that was read from `progress.csv`, and when it was read.
    last: Option<(u64, Instant)>,
}

impl Job {
    fn steps(&self) -> u64 {
        self.last.map_or(0, |(steps, _)| steps)
    }

    fn steps_per_second(&self) -> Option<f64> {
        let ((first, since), (last, at)) = (self.first?, self.last?);
        (last > first).then(|| (last - first) as f64 / at.duration_since(since).as_secs_f64())
    }
}

struct Driver<'a> {
    runs: &'a [PlannedRun],
    options: &'a DriveOptions,
    places: Places,
    journal: Journal,
    fates: Vec<Option<RunOutcome>>,
    jobs: Vec<Job>,
    elsewhere: usize,
    /// Runs whose outcome is not known, in the order of the plan.
    open: Vec<usize>,
    /// When all open runs were last checked, and how long that took.
    looked: Option<(Instant, Duration)>,
    /// Mean speed of the runs, in environment steps per second; `None` before it is known.
    pace: Option<f64>,
    /// Runs that ended with exit code 75. This driver does not start them again; the next driver continues them.
    put_off: Vec<usize>,
}

/// Executes all runs that are not done and returns one [`RunOutcome`] per run, in the order of `runs`.
///
/// It returns when all runs have ended, or after `stop` was set and its children have ended. `observe` receives the
/// overview about once per second and whenever a child has ended.
pub fn drive(
    runs: &[PlannedRun],
    options: &DriveOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Overview),
) -> io::Result<Vec<RunOutcome>> {
    let places = Places::open(&options.dir, runs.len())?;
    let journal = Journal::open(places.clone());
    let fates = known_outcomes(&places, runs);
    let open = (0..runs.len()).filter(|&i| fates[i].is_none()).collect();
    let mut driver = Driver {
        runs,
        options,
        places,
        journal,
        fates,
        jobs: Vec::new(),
        elsewhere: 0,
        open,
        looked: None,
        pace: None,
        put_off: Vec::new(),
    };
    if options.retry {
        for run in runs {
            driver.journal.forgive(&run.id)?;
        }
    }
    let result = driver.work(stop, observe);
    if result.is_err() {
        // an error of the file system or of starting a child: leave no child behind
        for job in &mut driver.jobs {
            let _ = job.child.kill();
            let _ = job.child.wait();
        }
    }
    result?;
    if runs.len() > MOST_FLAT {
        index::add(&driver.places, runs.iter().zip(&driver.fates))?;
    }
    Ok(driver.fates.into_iter().map(|fate| fate.unwrap_or(RunOutcome::Pending)).collect())
}

impl Driver<'_> {
    fn work(&mut self, stop: &AtomicBool, observe: &mut dyn FnMut(&Overview)) -> io::Result<()> {
        let (mut last_beat, mut last_look): (Option<Instant>, Option<Instant>) = (None, None);
        let beat = if self.options.patient { CLUSTER_BEAT } else { BEAT };
        let mut asked = false;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            let changed = self.reap(stopping)?; // a signal to all processes may end children before `terminate` below
            if stopping && !asked {
                asked = true;
                for job in &self.jobs {
                    terminate(&job.child);
                }
            }
            if changed || last_look.is_none_or(|t| t.elapsed() >= BEAT) {
                if !asked {
                    self.start_free()?;
                }
                if last_beat.is_none_or(|t| t.elapsed() >= beat) {
                    self.beat()?;
                    last_beat = Some(Instant::now());
                }
                last_look = Some(Instant::now());
                observe(&Overview { stopping: asked, ..self.overview() });
            }
            let open = |i: &usize| self.fates[*i].is_none() && !self.put_off.contains(i);
            let finished = self.jobs.is_empty() && (asked || !self.open.iter().any(open));
            if finished {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Starts free runs up to the maximum number of jobs, and reads the results of other drivers from the journal.
    ///
    /// Checking all runs of a large sweep takes time. The next check of all runs therefore starts
    /// after twenty times the duration of the last one, so checks take about 5 % of the time.
    fn start_free(&mut self) -> io::Result<()> {
        let whole = self.looked.is_none_or(|(at, took)| at.elapsed() >= took * 20);
        let begun = Instant::now();
        if whole {
            self.elsewhere = 0;
        }
        self.open.retain(|&i| self.fates[i].is_none());
        for index in self.open.clone() {
            if !whole && self.jobs.len() >= self.options.jobs {
                return Ok(());
            }
            let mine = self.jobs.iter().any(|job| job.index == index);
            if mine || self.fates[index].is_some() || self.put_off.contains(&index) {
                continue;
            }
            let PlannedRun { id, until, .. } = &self.runs[index];
            let record = self.places.run_folder(id).map(|dir| dir.join("progress.csv"));
            let mut standing = self.journal.standing(id, *until, record.as_deref())?;
            if record.is_none() && matches!(standing, Claim::Done(_)) {
                index::forget(&self.places, || self.journal.undo(id))?; // a user deleted the run folder to repeat the run
                standing = self.journal.standing(id, *until, None)?;
            }
            match standing {
                Claim::Done(ended) => self.fates[index] = Some(RunOutcome::Done(ended)),
                Claim::Failed(ended) => {
                    self.fates[index] = Some(self.journal.failed(id, ended));
                }
                Claim::Held => self.elsewhere += usize::from(whole),
                Claim::Free(number) if self.jobs.len() < self.options.jobs => {
                    let Some(log) = free_log(&self.journal.folder(id))? else {
                        self.elsewhere += usize::from(whole);
                        continue;
                    };
                    if let Some(held) = self.journal.acquire(id, *until, number)? {
                        self.start(index, held, log)?;
                    }
                }
                Claim::Free(_) => {}
            }
        }
        if whole {
            self.looked = Some((Instant::now(), begun.elapsed()));
        }
        Ok(())
    }

    fn start(&mut self, index: usize, held: OwnLease, log: File) -> io::Result<()> {
        let run = &self.runs[index];
        let folder = self.journal.folder(&run.id);
        let mut args: Vec<OsString> = vec!["train".into()];
        match self.places.run_folder(&run.id) {
            Some(dir) if dir.join("config.toml").exists() => args.extend(["--resume".into(), dir.into()]),
            begun => {
                if let Some(dir) = begun {
                    fs::remove_dir_all(dir)?; // the run was killed before it wrote `config.toml`
                }
                self.journal.replace(&run.id, "given.toml", &run.config)?;
                args.extend(["--config".into(), folder.join("given.toml").into()]);
                args.extend(["--runs".into(), self.places.runs(&run.id).into()]);
                args.extend(["--name".into(), run.id.clone().into()]);
            }
        }
        if let Some(until) = run.until {
            args.extend(["--until".into(), until.to_string().into()]);
        }
        args.extend(["--threads".into(), self.options.threads.to_string().into(), "--quiet".into()]);
        let (program, first) = self.options.program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let child = Command::new(program)
            .args(first)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .env(CHILD, if self.options.patient { PATIENT } else { "1" })
            .process_group(0)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(e) => {
                self.journal.release(&held)?; // the run has not begun, so it has not failed
                let program = program.display();
                return Err(io::Error::new(e.kind(), format!("cannot start `{program}`: {e}")));
            }
        };
        let process = Process::of(child.id());
        // first of all: after an error, the children of all jobs are killed
        self.jobs.push(Job { index, held, child, process, began: Instant::now(), first: None, last: None });
        if self.options.count_starts {
            self.journal.count_start(&run.id)?;
        }
        self.beat_job(self.jobs.len() - 1) // writes the child into the lease at once
    }

    /// Records the results of children that have ended. Returns whether any child has ended.
    fn reap(&mut self, asked: bool) -> io::Result<bool> {
        let mut changed = false;
        for i in (0..self.jobs.len()).rev() {
            let Some(status) = self.jobs[i].child.try_wait()? else { continue };
            changed = true;
            let job = self.jobs.remove(i);
            let log = self.journal.folder(&job.held.id).join("log");
            let mut ended = RunEnd {
                code: status.code(),
                seconds: job.began.elapsed().as_secs_f64(),
                message: String::new(),
                until: self.runs[job.index].until.filter(|&until| until < self.runs[job.index].steps),
                log: None,
            };
            match status.code() {
                Some(0) => {
                    self.journal.finish(&job.held, &ended, false)?;
                    self.fates[job.index] = Some(RunOutcome::Done(ended));
                }
                Some(INTERRUPTED) => {
                    self.journal.release(&job.held)?;
                    self.put_off.push(job.index);
                }
                _ if asked => self.journal.release(&job.held)?,
                code => {
                    let last = last_lines(&log);
                    let how = code.map_or_else(|| status.to_string(), |c| format!("exit code {c}"));
                    ended.message = if last.is_empty() { how } else { format!("{how}: {last}") };
                    self.journal.finish(&job.held, &ended, true)?;
                    self.fates[job.index] = Some(RunOutcome::Failed(ended, log));
                }
            }
        }
        Ok(changed)
    }

    /// Writes the heartbeats of this driver's runs and kills a child whose run another driver has taken over.
    fn beat(&mut self) -> io::Result<()> {
        for i in (0..self.jobs.len()).rev() {
            let folder = self.places.run_folder(&self.jobs[i].held.id);
            let job = &mut self.jobs[i];
            let steps = folder.and_then(|dir| last_steps(&dir.join("progress.csv")));
            if let Some(steps) = steps.filter(|&steps| steps != job.steps()) {
                job.last = Some((steps, Instant::now()));
                job.first = job.first.or(job.last);
            }
            self.beat_job(i)?;
        }
        Ok(())
    }

    /// Writes the heartbeat of a job, or kills its child if another driver has taken over the run.
    fn beat_job(&mut self, i: usize) -> io::Result<()> {
        let job = &mut self.jobs[i];
        if !self.journal.beat(&mut job.held, &job.process)? {
            let mut job = self.jobs.remove(i);
            job.child.kill()?; // the new holder continues from the last checkpoint
            job.child.wait()?;
        }
        Ok(())
    }

    fn overview(&mut self) -> Overview {
        let count = |f: fn(&RunOutcome) -> bool| self.fates.iter().flatten().filter(|fate| f(fate)).count();
        let running: Vec<Running> = (self.jobs.iter())
            .map(|job| Running {
                label: self.runs[job.index].label(),
                steps: job.steps(),
                of: self.runs[job.index].goal(),
                steps_per_second: job.steps_per_second(),
            })
            .collect();
        let open = |i: &usize| self.fates[*i].is_none();
        let left: u64 = (0..self.runs.len()).filter(open).map(|i| self.runs[i].goal()).sum::<u64>()
            - running.iter().map(|r| r.steps.min(r.of)).sum::<u64>();
        // a run without a known speed is assumed to have the mean speed of the others or, failing that, the last mean
        let known: Vec<f64> = running.iter().filter_map(|r| r.steps_per_second).collect();
        if !known.is_empty() {
            self.pace = Some(known.iter().sum::<f64>() / known.len() as f64);
        }
        let speed = self.pace.unwrap_or(0.0) * running.len() as f64;
        Overview {
            total: self.runs.len(),
            done: count(|fate| matches!(fate, RunOutcome::Done(_))),
            failed: count(|fate| matches!(fate, RunOutcome::Failed(..))),
            elsewhere: self.elsewhere,
            queued: 0,
            running,
            eta: (speed > 0.0).then(|| left as f64 / speed),
            ..Overview::default()
        }
    }
}

/// Returns the log of a run, opened and locked; `None` while a child of an earlier driver still has it open.
///
/// A child inherits the lock with its output. So a child is noticed even if its driver died before it wrote the child's
/// process id into the lease.
fn free_log(folder: &Path) -> io::Result<Option<File>> {
    fs::create_dir_all(folder)?;
    let log = OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
    match log.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(None),
        _ => Ok(Some(log)), // on a file system without locks, only the leases protect the run
    }
}

/// Sends SIGTERM to a child.
pub(crate) fn terminate(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // an error is ignored, because the child may already have ended
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Makes this process receive SIGTERM when its driver dies, if a sweep started it (Linux only).
/// `epo` calls this function before anything else.
pub fn die_with_parent() {
    #[cfg(target_os = "linux")]
    if std::env::var_os(CHILD).is_some() {
        // if this fails, or the driver is already dead, the child continues as an orphan and the journal waits for it
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    }
}

/// Whether this process is a run of an engine that may send SIGTERM more than once ([`DriveOptions::patient`]).
pub(crate) fn is_patient() -> bool {
    std::env::var_os(CHILD).is_some_and(|value| value == PATIENT)
}

/// Returns the last two non-empty lines of a log, joined by ` / `.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = tail(log, 2000).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(2)..].join(" / ")
}

/// Returns `TotalEnvSteps` of the last complete row of a `progress.csv`.
fn last_steps(progress: &Path) -> Option<u64> {
    last_row(progress).map(|(steps, _)| steps)
}

/// Returns the number of environment steps and of finished epochs that the last complete row of a `progress.csv` has.
pub(crate) fn last_row(progress: &Path) -> Option<(u64, u32)> {
    let mut header = String::new();
    let file = epo_core::open_file(progress, MOST_RECORD_BYTES).ok()?.take(1 << 20);
    io::BufRead::read_line(&mut io::BufReader::new(file), &mut header).ok()?;
    let text = tail(progress, 8192).ok()?;
    let whole = &text[..=text.rfind('\n')?];
    let row = whole.lines().last()?;
    let number = |name: &str| {
        let column = header.trim_end().split(',').position(|c| c == name)?;
        row.split(',').nth(column)?.parse::<f64>().ok()
    };
    Some((number("TotalEnvSteps")? as u64, number("Train/Epoch").map_or(0, |epoch| epoch as u32 + 1)))
}

/// Returns the end of a file, of at most this many bytes.
pub(crate) fn tail(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = epo_core::open_file(path, MOST_RECORD_BYTES)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.take(bytes).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell script that replaces `epo train`. It writes five rows, one every 30 ms, and fails for seed 13. After
    /// SIGTERM it completes a row and exits with 75. It writes completed runs to `completed`, and runs that two
    /// processes execute at the same time to `twice`.
    const FAKE: &str = r#"
        shift
        while [ $# -gt 0 ]; do
            case $1 in --config) config=$2;; --runs) runs=$2;; --name) name=$2;; --resume) dir=$2;; esac
            shift
        done
        stop=0; trap 'stop=1' TERM
        if [ -z "$dir" ]; then
            dir="$runs/FAKE-{T}/$name"; mkdir -p "$dir"
            cp "$config" "$dir/config.toml"; echo TotalEnvSteps > "$dir/progress.csv"
        fi
        notes=$(dirname "$(dirname "$(dirname "$dir")")")
        if [ -e "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; then echo "$dir" >> "$notes/twice"; fi
        echo $$ > "$dir/pid"
        if grep -q 'seed = 13' "$dir/config.toml"; then echo "it broke" >&2; exit 5; fi
        rows=$(($(wc -l < "$dir/progress.csv") - 1))
        while [ $rows -lt 5 ]; do
            sleep 0.03; rows=$((rows + 1)); echo $((rows * 100)) >> "$dir/progress.csv"
            if [ $stop = 1 ]; then rm "$dir/pid"; exit 75; fi
        done
        rm "$dir/pid"; basename "$dir" >> "$notes/completed"
    "#;

    #[test]
    fn a_child_that_nobody_wrote_down_is_waited_for() {
        // the driver died after it started the child and before it wrote the child into the lease
        let dir = tempfile::tempdir().unwrap();
        let log = free_log(dir.path()).unwrap().expect("nobody has it");
        let mut orphan = Command::new("sleep").arg("60").stdout(log).spawn().unwrap();
        assert!(free_log(dir.path()).unwrap().is_none(), "the child has inherited the lock");
        orphan.kill().unwrap();
        orphan.wait().unwrap();
        assert!(free_log(dir.path()).unwrap().is_some());
    }

    fn planned(seed: u64) -> PlannedRun {
        let config = format!("[run]\nseed = {seed}\n");
        PlannedRun {
            id: format!("run-{seed:03}"),
            config,
            task: "T".into(),
            algo: "epo".into(),
            seed,
            steps: 500,
            epochs: 5,
            variant: String::new(),
            until: None,
        }
    }

    fn options(dir: &Path, jobs: usize) -> DriveOptions {
        let script = dir.join("fake.sh");
        fs::write(&script, FAKE).unwrap();
        let program = vec!["sh".into(), script.into()];
        DriveOptions {
            dir: dir.to_owned(),
            jobs,
            threads: 1,
            program,
            retry: false,
            patient: false,
            count_starts: false,
        }
    }

    fn lines(path: &Path) -> Vec<String> {
        let mut lines: Vec<String> =
            fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn done(fates: &[RunOutcome]) -> usize {
        fates.iter().filter(|fate| matches!(fate, RunOutcome::Done(_))).count()
    }

    #[test]
    fn a_failed_run_is_reported_and_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let runs: Vec<_> = [11, 12, 13, 14].map(planned).into();
        let mut options = options(dir.path(), 2);
        let (stop, mut most, mut last) = (AtomicBool::new(false), 0, Overview::default());
        let fates = drive(&runs, &options, &stop, &mut |overview| {
            most = most.max(overview.running.len());
            last = overview.clone();
        });
        let fates = fates.unwrap();
        assert_eq!((done(&fates), most), (3, 2), "{fates:?}");
        assert_eq!((last.total, last.done, last.failed), (4, 3, 1));
        let RunOutcome::Failed(ended, log) = &fates[2] else { panic!("{fates:?}") };
        assert_eq!((ended.code, ended.message.as_str()), (Some(5), "exit code 5: it broke"));
        assert!(log.exists());
        // a second drive runs nothing and reports the same failure; with `retry` it repeats only the failed run
        let again = drive(&runs, &options, &stop, &mut |_| {}).unwrap();
        assert_eq!(again, fates);
        options.retry = true;
        drive(&runs, &options, &stop, &mut |_| {}).unwrap();
        assert_eq!(lines(&dir.path().join("completed")), ["run-011", "run-012", "run-014"]);
        assert_eq!(lines(&dir.path().join("journal/run-013/log")), ["it broke", "it broke"]);
    }

    #[test]
    fn a_stopped_sweep_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let runs: Vec<_> = (20..24).map(planned).collect();
        let options = options(dir.path(), 2);
        let stop = AtomicBool::new(false);
        let mut seen = 0;
        let fates = drive(&runs, &options, &stop, &mut |_| {
            seen += 1;
            stop.store(seen >= 2, Ordering::Relaxed); // stop at the second overview, in the middle of the sweep
        });
        assert!(done(&fates.unwrap()) < 4);
        stop.store(false, Ordering::Relaxed);
        let fates = drive(&runs, &options, &stop, &mut |_| {}).unwrap();
        assert_eq!(done(&fates), 4);
        assert_eq!(lines(&dir.path().join("completed")).len(), 4, "each completed once");
        assert!(!dir.path().join("twice").exists());
        for run in &runs {
            let rows = lines(&dir.path().join(format!("runs/FAKE-{{T}}/{}/progress.csv", run.id)));
            assert_eq!(rows.len(), 6, "no row was lost or written twice: {rows:?}");
        }
    }

    #[test]
    fn several_drivers_share_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let runs: Vec<_> = (30..42).map(planned).collect();
        let options = options(dir.path(), 2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let fates = drive(&runs, &options, &stop, &mut |_| {}).unwrap();
                    assert_eq!(done(&fates), 12, "every driver knows of all ends");
                });
            }
        });
        assert_eq!(lines(&dir.path().join("completed")).len(), 12);
        assert!(!dir.path().join("twice").exists());
    }

    #[test]
    fn a_program_that_is_not_there_ends_the_sweep_and_is_no_failure_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), 2);
        let right = std::mem::replace(&mut options.program, vec!["no-such-program".into()]);
        let drive = |options: &DriveOptions| {
            drive(&[planned(1), planned(2)], options, &AtomicBool::new(false), &mut |_| {})
        };
        let said = drive(&options).unwrap_err().to_string();
        assert!(said.contains("cannot start `no-such-program`"), "{said}");
        options.program = right;
        let fates = drive(&options).unwrap();
        assert!(fates.iter().all(|fate| matches!(fate, RunOutcome::Done(_))), "{fates:?}");
    }

    #[test]
    fn a_run_whose_folder_was_deleted_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), 2);
        for _ in 0..3 {
            let fates =
                drive(&[planned(1), planned(2)], &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
            assert!(fates.iter().all(|fate| matches!(fate, RunOutcome::Done(_))), "{fates:?}");
            let gone = dir.path().join("runs/FAKE-{T}/run-002");
            fs::remove_dir_all(gone).unwrap();
        }
        let completed = lines(&dir.path().join("completed"));
        assert_eq!(completed, ["run-001", "run-002", "run-002", "run-002"]);
    }

    #[test]
    fn steps_are_read_from_the_last_whole_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress.csv");
        fs::write(&path, "A,TotalEnvSteps\n1,100\n2,200\n3,30").unwrap();
        assert_eq!(last_steps(&path), Some(200));
        fs::write(&path, "A,TotalEnvSteps\n").unwrap();
        assert_eq!(last_steps(&path), None);
    }
}
