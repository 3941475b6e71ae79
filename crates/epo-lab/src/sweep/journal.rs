//! Who runs what: a folder per run with numbered leases, so that several processes on one shared folder never do a
//! run twice and never lose one.
//!
//! ```text
//! journal/<run>/given.toml     what `epo train` is given
//! journal/<run>/lease-0001     made with O_EXCL by the process that runs it; its text changes with every heartbeat
//! journal/<run>/lease-0002     a takeover: the higher number holds the run, whoever has a lower one has lost it
//! journal/<run>/done.json      the end; written under another name and renamed
//! journal/<run>/failed.json    the end, if it went wrong
//! journal/<run>/log            what the run printed
//! ```
//! A lease may be taken over when its holder has given it back, when holder and child are dead on this machine, or
//! when neither the lease nor the run's record has changed for a while by the clock of the observer: clocks of
//! different machines are never compared.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a lease of another machine must be still before it is taken over.
const STILL: Duration = Duration::from_secs(120);

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Which boot of which machine, and which of its containers.
    boot: String,
    pid: u32,
    /// When it began, in the kernel's ticks since boot.
    started: u64,
}

impl Process {
    pub(super) fn of(pid: u32) -> Self {
        Self { boot: boot_id(), pid, started: started(pid).unwrap_or(0) }
    }

    /// `None` if it belongs to another machine: nothing is known about it here.
    fn is_alive(&self) -> Option<bool> {
        (self.boot == boot_id()).then(|| started(self.pid) == Some(self.started))
    }
}

fn boot_id() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // numbers of processes mean something only within this, and containers may share the name of a host
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}@{} {}", boot.trim(), host.trim(), pids.display())
}

/// Field 22 of `/proc/PID/stat`; `None` if there is no such process, or only its zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace(); // the name may hold anything, spaces too
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok())?
}

/// The text of a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    holder: Process,
    child: Option<Process>,
    /// Counts heartbeats.
    beat: u64,
    /// Given back: the next may take it at once.
    released: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit code; `None` for a run that was killed.
    pub code: Option<i32>,
    /// Seconds under this holder.
    pub seconds: f64,
    /// Last words of a failed run.
    pub message: String,
}

/// What the journal says about a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    Done(Ended),
    Failed(Ended),
    /// Somebody else holds it.
    Held,
    /// Nobody does; the number of the lease that takes it.
    Free(u32),
}

/// The journal of one sweep, seen by one process.
#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
    me: Process,
    /// What a lease looked like and since when, by run.
    seen: BTreeMap<String, (String, Instant)>,
}

/// A lease that this process holds.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: String,
    number: u32,
    beat: u64,
}

/// For `map_err`: names the file, which the system's message does not.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.to_owned();
    move |e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

impl Journal {
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir).map_err(at(&dir))?;
        Ok(Self { dir, me: Process::of(std::process::id()), seen: BTreeMap::new() })
    }

    pub(super) fn folder(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// What is known about a run; `record` is its progress.csv, whose growth shows that it lives.
    pub(super) fn standing(&mut self, id: &str, record: Option<&Path>) -> io::Result<Standing> {
        if let Some(ended) = self.ended(id, "done.json")? {
            return Ok(Standing::Done(ended));
        }
        if let Some(ended) = self.ended(id, "failed.json")? {
            return Ok(Standing::Failed(ended));
        }
        let Some((number, text)) = self.newest(id)? else { return Ok(Standing::Free(1)) };
        let free = Standing::Free(number + 1);
        let lease: Option<Lease> = serde_json::from_str(&text).ok(); // none while it is being written
        if let Some(lease) = &lease {
            let child = lease.child.as_ref().map_or(Some(false), Process::is_alive);
            match (lease.holder.is_alive(), child) {
                _ if lease.released && child != Some(true) => return Ok(free),
                (Some(false), Some(false)) => return Ok(free),
                (Some(_), _) => return Ok(Standing::Held), // alive here, or its child still is
                (None, _) => {}
            }
        }
        // of another machine, or half-written: free when nothing has moved for a while
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
        Ok(if now.duration_since(since) > STILL { free } else { Standing::Held })
    }

    fn ended(&self, id: &str, name: &str) -> io::Result<Option<Ended>> {
        let path = self.folder(id).join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(at(&path)(e)),
        }
    }

    /// Number and text of the lease that counts.
    fn newest(&self, id: &str) -> io::Result<Option<(u32, String)>> {
        let folder = self.folder(id);
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(at(&folder))?,
        };
        let mut newest = None;
        for entry in entries {
            let name = entry?.file_name();
            newest = newest.max(name.to_str().and_then(|n| n.strip_prefix("lease-")?.parse::<u32>().ok()));
        }
        let Some(number) = newest else { return Ok(None) };
        // a lease that is just being replaced on a shared disk may not be readable: as good as half-written
        Ok(Some((number, fs::read_to_string(self.lease_path(id, number)).unwrap_or_default())))
    }

    fn lease_path(&self, id: &str, number: u32) -> PathBuf {
        self.folder(id).join(format!("lease-{number:04}"))
    }

    /// Takes a free run; `None` if somebody else was faster. The number is the one that [`Standing::Free`] gave: a
    /// fresh look could find, and rob, a lease that was made in between.
    pub(super) fn acquire(&mut self, id: &str, number: u32) -> io::Result<Option<Held>> {
        let path = self.lease_path(id, number);
        fs::create_dir_all(self.folder(id)).map_err(at(&path))?;
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => drop(made.map_err(at(&path))?),
        }
        let held = Held { id: id.to_owned(), number, beat: 0 };
        self.write_lease(&held, None, false)?;
        // it may have ended between the look and the lease
        if self.ended(id, "done.json")?.is_some() || self.ended(id, "failed.json")?.is_some() {
            self.release(&held)?;
            return Ok(None);
        }
        Ok(Some(held))
    }

    /// Says that the run is still held; `false` if it was taken over.
    pub(super) fn beat(&mut self, held: &mut Held, child: &Process) -> io::Result<bool> {
        if !self.still_mine(held)? {
            return Ok(false);
        }
        held.beat += 1;
        self.write_lease(held, Some(child), false)?;
        Ok(true)
    }

    fn still_mine(&self, held: &Held) -> io::Result<bool> {
        Ok(self.newest(&held.id)?.is_some_and(|(number, _)| number == held.number))
    }

    /// Gives a run back unfinished.
    pub(super) fn release(&mut self, held: &Held) -> io::Result<()> {
        self.write_lease(held, None, true)
    }

    /// Writes how a run ended; nothing if it was taken over.
    pub(super) fn finish(&mut self, held: &Held, ended: &Ended, failed: bool) -> io::Result<()> {
        if !self.still_mine(held)? {
            return Ok(());
        }
        let text = serde_json::to_string(ended)?;
        self.replace(&held.id, if failed { "failed.json" } else { "done.json" }, &text)?;
        self.release(held) // for the day when a failure is forgiven
    }

    /// Forgets that a run failed, so that it is tried again.
    pub(super) fn forgive(&self, id: &str) -> io::Result<()> {
        self.forget(id, "failed.json")
    }

    /// Forgets that a run is done, because its folder is gone.
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

    fn write_lease(&self, held: &Held, child: Option<&Process>, released: bool) -> io::Result<()> {
        let lease = Lease { holder: self.me.clone(), child: child.cloned(), beat: held.beat, released };
        self.replace(&held.id, &format!("lease-{:04}", held.number), &serde_json::to_string(&lease)?)
    }

    /// Writes a file of a run, whole or not at all.
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
        Journal::open(dir.join("journal")).unwrap()
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
        assert_eq!(a.standing("r", None).unwrap(), Standing::Free(1));
        let held = a.acquire("r", 1).unwrap().unwrap();
        assert!(b.acquire("r", 1).unwrap().is_none());
        assert_eq!(b.standing("r", None).unwrap(), Standing::Held);
        let ended = Ended { code: Some(0), seconds: 1.0, message: String::new() };
        a.finish(&held, &ended, false).unwrap();
        assert_eq!(b.standing("r", None).unwrap(), Standing::Done(ended));
        assert!(b.acquire("r", 2).unwrap().is_none(), "a finished run is not begun again");
        let failing = a.acquire("f", 1).unwrap().unwrap();
        let ended = Ended { code: Some(1), seconds: 1.0, message: String::new() };
        a.finish(&failing, &ended, true).unwrap();
        b.forgive("f").unwrap();
        assert_eq!(b.standing("f", None).unwrap(), Standing::Free(2), "though its holder lives");
    }

    #[test]
    fn a_released_run_is_free_and_a_lost_one_stays_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (journal(dir.path()), journal(dir.path()));
        let mut first = a.acquire("r", 1).unwrap().unwrap();
        a.release(&first).unwrap();
        assert_eq!(b.standing("r", None).unwrap(), Standing::Free(2));
        b.acquire("r", 2).unwrap().unwrap();
        assert!(!a.beat(&mut first, &dead()).unwrap(), "the older number has lost");
        let ended = Ended { code: Some(1), seconds: 1.0, message: String::new() };
        a.finish(&first, &ended, true).unwrap();
        assert_eq!(b.standing("r", None).unwrap(), Standing::Held, "and cannot write the end");
    }

    #[test]
    fn a_dead_holder_is_followed_but_not_while_its_child_lives() {
        let dir = tempfile::tempdir().unwrap();
        let mut gone = journal(dir.path());
        gone.me = dead();
        let mut held = gone.acquire("r", 1).unwrap().unwrap();
        let mut other = journal(dir.path());
        assert_eq!(other.standing("r", None).unwrap(), Standing::Free(2));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        gone.beat(&mut held, &Process::of(child.id())).unwrap();
        assert_eq!(other.standing("r", None).unwrap(), Standing::Held, "the child still writes");
        child.kill().unwrap(); // not waited for: a zombie counts as dead
        while started(child.id()).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(other.standing("r", None).unwrap(), Standing::Free(2));
        child.wait().unwrap();
    }

    #[test]
    fn another_machine_is_given_time_by_our_own_clock() {
        let dir = tempfile::tempdir().unwrap();
        let mut far = journal(dir.path());
        far.me.boot = "other machine".into();
        let mut held = far.acquire("r", 1).unwrap().unwrap();
        let mut here = journal(dir.path());
        let age = |j: &mut Journal| {
            let entry = j.seen.get_mut("r").unwrap();
            entry.1 = entry.1.checked_sub(STILL * 2).unwrap();
        };
        assert_eq!(here.standing("r", None).unwrap(), Standing::Held, "first seen now");
        age(&mut here);
        far.beat(&mut held, &dead()).unwrap();
        assert_eq!(here.standing("r", None).unwrap(), Standing::Held, "its heart beats");
        age(&mut here);
        assert_eq!(here.standing("r", None).unwrap(), Standing::Free(2), "still for too long");
    }

    #[test]
    fn of_many_that_reach_for_a_run_one_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let mut j = journal(dir.path());
                        (0..20).filter(|i| j.acquire(&format!("r{i}"), 1).unwrap().is_some()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(winners, 20);
    }
}
