//! The journal of a sweep: it assigns each run to one process. Several processes, even on several
//! machines, can share a sweep folder. No run is done twice, and none is lost.
//!
//! ```text
//! journal/<run>/given.toml     the configuration that `epo train` is given
//! journal/<run>/lease-0001     lease of the process that does the run; made with O_EXCL, rewritten at each heartbeat
//! journal/<run>/lease-0002     lease of a takeover: the process with the highest number holds the run
//! journal/<run>/done.json      result of a finished run; written to a temporary file and renamed
//! journal/<run>/failed.json    result of a failed run, written in the same way
//! journal/<run>/log            output of the run
//! journal/<run>/starts         how often a cluster has started the run
//! ```
//! A process that takes over a run removes all leases but its own and the one before it. A finished run has no lease.
//!
//! A process may take over a run in three cases:
//! - The holder has released its lease.
//! - The holder and its child process ran on this machine and both have ended.
//! - The holder is on another machine or its lease is half-written, and neither the lease nor `progress.csv` has
//!   changed for two minutes. The observer uses its own clock; clocks of different machines are never compared.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::drive::RunOutcome;
use super::places::{Places, at};

/// A lease of another machine may be taken over if it has not changed for this time.
const STILL: Duration = Duration::from_secs(120);
/// Maximum length of a lease, in bytes. A longer file counts as half-written.
const MOST_LEASE_BYTES: u64 = 1 << 16;

/// Identifies a process. A later process with the same process id has another start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Boot id, host name and PID namespace, which together identify the machine and the container.
    boot: String,
    pid: u32,
    /// Start time, in clock ticks since boot.
    started: u64,
}

impl Process {
    pub(super) fn of(pid: u32) -> Self {
        Self { boot: boot_id(), pid, started: started(pid).unwrap_or(0) }
    }

    /// Whether the process is alive; `None` if it belongs to another machine, where this cannot be known.
    fn is_alive(&self) -> Option<bool> {
        (self.boot == boot_id()).then(|| started(self.pid) == Some(self.started))
    }
}

fn boot_id() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // process ids are unique only within a PID namespace, and containers may share a host name
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}@{} {}", boot.trim(), host.trim(), pids.display())
}

/// Start time of a process (field 22 of `/proc/PID/stat`); `None` if there is no such process or it is a zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace(); // the program name may contain spaces
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok())?
}

/// The content of a lease file, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    holder: Process,
    child: Option<Process>,
    /// Number of heartbeats.
    beat: u64,
    /// Whether the holder has given the run back. Another process may then take it at once.
    released: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Exit code; `None` for a run that was killed by a signal.
    pub code: Option<i32>,
    /// Seconds that the run took under its last holder.
    pub seconds: f64,
    /// Exit code or signal of a failed run, and the last lines of its log. Empty for a finished run.
    pub message: String,
    /// Number of environment steps at which the run was paused ([`PlannedRun::until`](super::PlannedRun::until));
    /// `None` if it was trained to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// File that shows why the run failed; `None` if it is the log of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}

impl RunEnd {
    /// Returns true if the run reached `until` steps, or its end if `until` is `None`.
    pub(super) fn reached(&self, until: Option<u64>) -> bool {
        match (self.until, until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(made), Some(wanted)) => made >= wanted,
        }
    }
}

/// Who may execute a run, according to the journal.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    Done(RunEnd),
    Failed(RunEnd),
    /// A process holds the run.
    Held,
    /// No process holds the run. The value is the number that the next lease must have.
    Free(u32),
}

/// The journal of one sweep, as one process uses it.
#[derive(Debug)]
pub(super) struct Journal {
    places: Places,
    me: Process,
    /// By run: the last observed size of `progress.csv` and text of the lease, and since when both are unchanged.
    seen: BTreeMap<String, (String, Instant)>,
}

/// A lease that this process holds.
#[derive(Debug)]
pub(super) struct OwnLease {
    pub(super) id: String,
    number: u32,
    beat: u64,
}

impl Journal {
    pub(super) fn open(places: Places) -> Self {
        Self { places, me: Process::of(std::process::id()), seen: BTreeMap::new() }
    }

    pub(super) fn folder(&self, id: &str) -> PathBuf {
        self.places.journal(id)
    }

    /// Returns the state of a run. `record` is the path of its `progress.csv`; a growing file shows that the run is
    /// alive. A run that was paused before `until` is not done.
    pub(super) fn standing(
        &mut self,
        id: &str,
        until: Option<u64>,
        record: Option<&Path>,
    ) -> io::Result<Claim> {
        if let Some(ended) = self.ended(id, "done.json")?.filter(|ended| ended.reached(until)) {
            return Ok(Claim::Done(ended));
        }
        if let Some(ended) = self.ended(id, "failed.json")? {
            return Ok(Claim::Failed(ended));
        }
        let Some((number, text)) = self.newest(id)? else { return Ok(Claim::Free(1)) };
        let free = Claim::Free(number + 1);
        let lease: Option<Lease> = serde_json::from_str(&text).ok(); // `None` if the file is only half-written
        if let Some(lease) = &lease {
            let child = lease.child.as_ref().map_or(Some(false), Process::is_alive);
            match (lease.holder.is_alive(), child) {
                _ if lease.released && child != Some(true) => return Ok(free),
                (Some(false), Some(false)) => return Ok(free),
                (Some(_), _) => return Ok(Claim::Held), // the holder or its child is alive
                (None, _) => {}
            }
        }
        // the lease is of another machine or half-written: the run is free once nothing has changed for `STILL`
        let size = record.and_then(|p| fs::metadata(p).ok()).map_or(0, |m| m.len());
        let look = format!("{size} {text}");
        let now = Instant::now();
        let since = match self.seen.get(id) {
            Some((before, since)) if *before == look => *since,
            _ => {
                self.seen.insert(id.to_owned(), (look, now));
                now
            }
        };
        Ok(if now.duration_since(since) > STILL { free } else { Claim::Held })
    }

    fn ended(&self, id: &str, name: &str) -> io::Result<Option<RunEnd>> {
        let path = self.folder(id).join(name);
        match epo_core::read_text(&path, epo_core::MOST_TEXT_BYTES) {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(at(&path)(e)),
        }
    }

    /// Returns number and text of the lease with the highest number.
    fn newest(&self, id: &str) -> io::Result<Option<(u32, String)>> {
        let Some(number) = self.leases(id)?.into_iter().max() else { return Ok(None) };
        // on a shared disk, a lease may be unreadable while it is replaced; it is then treated as half-written
        let lease = epo_core::read_text(&self.lease_path(id, number), MOST_LEASE_BYTES);
        Ok(Some((number, lease.unwrap_or_default())))
    }

    fn lease_path(&self, id: &str, number: u32) -> PathBuf {
        self.folder(id).join(format!("lease-{number:04}"))
    }

    /// Takes a free run; returns `None` if another process took it first or it has ended. `number` must be the number
    /// that [`Claim::Free`] gave. A number that is computed again could take over a lease that was made in between.
    pub(super) fn acquire(
        &mut self,
        id: &str,
        until: Option<u64>,
        number: u32,
    ) -> io::Result<Option<OwnLease>> {
        let path = self.lease_path(id, number);
        fs::create_dir_all(self.folder(id)).map_err(at(&path))?;
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => drop(made.map_err(at(&path))?),
        }
        let held = OwnLease { id: id.to_owned(), number, beat: 0 };
        self.write_lease(&held, None, false)?;
        // a process with an old number may make a lease again that was removed
        if !self.still_mine(&held)? {
            let _ = fs::remove_file(&path);
            return Ok(None);
        }
        self.remove_leases(id, number.saturating_sub(1));
        // the run may have ended after its state was read and before the lease was made
        let done = self.ended(id, "done.json")?.is_some_and(|ended| ended.reached(until));
        if done || self.ended(id, "failed.json")?.is_some() {
            self.release(&held)?;
            return Ok(None);
        }
        Ok(Some(held))
    }

    /// Writes a heartbeat. Returns `false` if another process has taken over the run.
    pub(super) fn beat(&mut self, held: &mut OwnLease, child: &Process) -> io::Result<bool> {
        if !self.still_mine(held)? {
            return Ok(false);
        }
        held.beat += 1;
        self.write_lease(held, Some(child), false)?;
        Ok(true)
    }

    fn still_mine(&self, held: &OwnLease) -> io::Result<bool> {
        Ok(self.newest(&held.id)?.is_some_and(|(number, _)| number == held.number))
    }

    /// Gives a run back, so that another process may take it at once.
    pub(super) fn release(&mut self, held: &OwnLease) -> io::Result<()> {
        self.write_lease(held, None, true)
    }

    /// Writes the result of a run and releases its lease. Does nothing if another process has taken over the run.
    pub(super) fn finish(&mut self, held: &OwnLease, ended: &RunEnd, failed: bool) -> io::Result<()> {
        if !self.still_mine(held)? {
            return Ok(());
        }
        let text = serde_json::to_string(ended)?;
        self.replace(&held.id, if failed { "failed.json" } else { "done.json" }, &text)?;
        if !failed {
            self.forget(&held.id, "starts")?; // a paused run counts anew when it is continued
        }
        if !failed && ended.until.is_none() {
            self.remove_leases(&held.id, u32::MAX);
            return Ok(());
        }
        self.release(held) // so that a failed or paused run is free at once when it is continued
    }

    /// Removes the leases below a number. An error is ignored: an old lease only takes space.
    fn remove_leases(&self, id: &str, below: u32) {
        for number in self.leases(id).unwrap_or_default().into_iter().filter(|number| *number < below) {
            let _ = fs::remove_file(self.lease_path(id, number));
        }
    }

    /// Returns the numbers of all leases of a run.
    fn leases(&self, id: &str) -> io::Result<Vec<u32>> {
        let folder = self.folder(id);
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(at(&folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            found.extend(name.to_str().and_then(|n| n.strip_prefix("lease-")?.parse::<u32>().ok()));
        }
        Ok(found)
    }

    /// Records that a run failed which no process holds.
    pub(super) fn give_up(&self, id: &str, ended: &RunEnd) -> io::Result<()> {
        let folder = self.folder(id);
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        self.replace(id, "failed.json", &serde_json::to_string(ended)?)
    }

    /// Returns the outcome of a failed run.
    pub(super) fn failed(&self, id: &str, ended: RunEnd) -> RunOutcome {
        let log = ended.log.clone().unwrap_or_else(|| self.folder(id).join("log"));
        RunOutcome::Failed(ended, log)
    }

    /// Returns how often a cluster has started a run since it was last forgiven.
    pub(super) fn starts(&self, id: &str) -> u32 {
        let text = epo_core::read_text(&self.folder(id).join("starts"), MOST_LEASE_BYTES);
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Counts a start of a run that this process holds.
    pub(super) fn count_start(&self, id: &str) -> io::Result<()> {
        self.replace(id, "starts", &format!("{}\n", self.starts(id).saturating_add(1)))
    }

    /// Deletes the record that a run failed and the number of its starts, so that it is tried again.
    pub(super) fn forgive(&self, id: &str) -> io::Result<()> {
        self.forget(id, "failed.json").and_then(|()| self.forget(id, "starts"))
    }

    /// Deletes the record that a run is done. Used if its run folder was deleted.
    pub(super) fn undo(&self, id: &str) -> io::Result<()> {
        self.forget(id, "done.json")
    }

    fn forget(&self, id: &str, name: &str) -> io::Result<()> {
        let path = self.folder(id).join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&path)(e)),
            _ => Ok(()),
        }
    }

    fn write_lease(&self, held: &OwnLease, child: Option<&Process>, released: bool) -> io::Result<()> {
        let lease = Lease { holder: self.me.clone(), child: child.cloned(), beat: held.beat, released };
        self.replace(&held.id, &format!("lease-{:04}", held.number), &serde_json::to_string(&lease)?)
    }

    /// Writes a file in the journal folder of a run atomically: a temporary file is written, synced and renamed.
    pub(super) fn replace(&self, id: &str, name: &str, text: &str) -> io::Result<()> {
        let dir = self.folder(id);
        let part = dir.join(format!(".{name}.{}", self.me.pid));
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, dir.join(name))
        };
        write().map_err(at(&dir.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(dir: &Path) -> Journal {
        Journal::open(Places::open(dir, 1).unwrap())
    }

    /// A process that has already ended.
    fn dead() -> Process {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of(child.id());
        child.wait().unwrap();
        process
    }

    #[test]
    fn a_run_is_held_by_one_and_ends_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (journal(dir.path()), journal(dir.path()));
        assert_eq!(a.standing("r", None, None).unwrap(), Claim::Free(1));
        let held = a.acquire("r", None, 1).unwrap().unwrap();
        assert!(b.acquire("r", None, 1).unwrap().is_none());
        assert_eq!(b.standing("r", None, None).unwrap(), Claim::Held);
        let ended = RunEnd { code: Some(0), seconds: 1.0, message: String::new(), until: None, log: None };
        a.finish(&held, &ended, false).unwrap();
        assert_eq!(b.standing("r", None, None).unwrap(), Claim::Done(ended));
        assert!(b.acquire("r", None, 2).unwrap().is_none(), "a finished run is not begun again");
        let failing = a.acquire("f", None, 1).unwrap().unwrap();
        let ended = RunEnd { code: Some(1), seconds: 1.0, message: String::new(), until: None, log: None };
        a.finish(&failing, &ended, true).unwrap();
        b.forgive("f").unwrap();
        assert_eq!(b.standing("f", None, None).unwrap(), Claim::Free(2), "though its holder lives");
    }

    #[test]
    fn a_released_run_is_free_and_a_lost_one_stays_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (journal(dir.path()), journal(dir.path()));
        let mut first = a.acquire("r", None, 1).unwrap().unwrap();
        a.release(&first).unwrap();
        assert_eq!(b.standing("r", None, None).unwrap(), Claim::Free(2));
        b.acquire("r", None, 2).unwrap().unwrap();
        assert!(!a.beat(&mut first, &dead()).unwrap(), "the older number has lost");
        let ended = RunEnd { code: Some(1), seconds: 1.0, message: String::new(), until: None, log: None };
        a.finish(&first, &ended, true).unwrap();
        assert_eq!(b.standing("r", None, None).unwrap(), Claim::Held, "and cannot write the end");
    }

    /// Fails if leases pile up: a run of a cluster may be started many times.
    #[test]
    fn old_leases_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut a = journal(dir.path());
        let mut make = |number| {
            let held = a.acquire("r", None, number).unwrap().unwrap();
            a.release(&held).unwrap();
            let mut left = a.leases("r").unwrap();
            left.sort_unstable();
            (held, left)
        };
        assert_eq!([make(1).1, make(2).1, make(3).1], [vec![1], vec![1, 2], vec![2, 3]]);
        let (held, _) = make(4);
        assert!(a.acquire("r", None, 2).unwrap().is_none(), "its number is old, though lease 2 is gone");
        assert_eq!(a.leases("r").unwrap().len(), 2);
        a.count_start("r").unwrap();
        let paused =
            RunEnd { code: Some(0), seconds: 1.0, message: String::new(), until: Some(9), log: None };
        a.finish(&held, &paused, false).unwrap();
        assert_eq!(a.starts("r"), 0, "a rung uses up no retry of the next");
        assert_eq!(a.standing("r", None, None).unwrap(), Claim::Free(5), "numbers go on after a pause");
        let held = a.acquire("r", None, 5).unwrap().unwrap();
        a.finish(&held, &RunEnd { until: None, ..paused }, false).unwrap();
        assert!(a.leases("r").unwrap().is_empty());
    }

    #[test]
    fn a_dead_holder_is_followed_but_not_while_its_child_lives() {
        let dir = tempfile::tempdir().unwrap();
        let mut gone = journal(dir.path());
        gone.me = dead();
        let mut held = gone.acquire("r", None, 1).unwrap().unwrap();
        let mut other = journal(dir.path());
        assert_eq!(other.standing("r", None, None).unwrap(), Claim::Free(2));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        gone.beat(&mut held, &Process::of(child.id())).unwrap();
        assert_eq!(other.standing("r", None, None).unwrap(), Claim::Held, "the child still writes");
        child.kill().unwrap(); // the child is now a zombie, which counts as dead
        while started(child.id()).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other.standing("r", None, None).unwrap(), Claim::Free(2));
        child.wait().unwrap();
    }

    #[test]
    fn another_machine_is_given_time_by_our_own_clock() {
        let dir = tempfile::tempdir().unwrap();
        let mut far = journal(dir.path());
        far.me.boot = "other machine".into();
        let mut held = far.acquire("r", None, 1).unwrap().unwrap();
        let mut here = journal(dir.path());
        let age = |j: &mut Journal| {
            let entry = j.seen.get_mut("r").unwrap();
            entry.1 = entry.1.checked_sub(STILL * 2).unwrap();
        };
        assert_eq!(here.standing("r", None, None).unwrap(), Claim::Held, "first seen now");
        age(&mut here);
        far.beat(&mut held, &dead()).unwrap();
        assert_eq!(here.standing("r", None, None).unwrap(), Claim::Held, "its heart beats");
        age(&mut here);
        assert_eq!(here.standing("r", None, None).unwrap(), Claim::Free(2), "still for too long");
    }

    #[test]
    fn of_many_that_reach_for_a_run_one_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut j = journal(dir.path());
                        (0..20).filter(|i| j.acquire(&format!("r{i}"), None, 1).unwrap().is_some()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(winners, 20);
    }

    /// Fails if a pause counts as the end, or if a run that got further is made again.
    #[test]
    fn a_paused_run_is_done_for_those_who_asked_for_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut a = journal(dir.path());
        let held = a.acquire("r", Some(100), 1).unwrap().unwrap();
        let ended =
            RunEnd { code: Some(0), seconds: 1.0, message: String::new(), until: Some(100), log: None };
        a.finish(&held, &ended, false).unwrap();
        let mut state = |until| a.standing("r", until, None).unwrap();
        assert_eq!((state(Some(50)), state(Some(100))), (Claim::Done(ended.clone()), Claim::Done(ended)));
        assert_eq!((state(Some(101)), state(None)), (Claim::Free(2), Claim::Free(2)));
        assert!(a.acquire("r", Some(101), 2).unwrap().is_some());
    }
}
