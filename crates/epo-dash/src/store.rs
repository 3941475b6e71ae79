//! All runs that the page shows. One thread searches for new folders and new rows; requests read its results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use epo_report::history::{Identity, find_runs};
use epo_report::labels::{Label, Place, Settings, is_incidental, labels, place};
use rayon::prelude::*;

use crate::folder::Folder;
use crate::run::Run;
use crate::sweep::{self, Sweep};

/// Interval at which the files of runs that train are checked. New rows are shown within a second.
const TICK: Duration = Duration::from_millis(250);
/// Interval at which the files of runs that do not train are checked.
const QUIET_TICK: Duration = Duration::from_secs(5);
/// Time between two searches for new run folders; longer if a search takes long.
const SEARCH: Duration = Duration::from_secs(2);
/// Without a request for this time, nothing is read.
const UNWATCHED: Duration = Duration::from_secs(15);
/// Maximum number of runs. Further folders are left out, with a note.
const MOST_RUNS: usize = 20_000;
/// Number of runs that are read between two publications while the first rows are loaded.
const PART: usize = 64;

/// Runs that are equal but for the seed.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Name of the group in requests.
    pub(crate) id: String,
    pub(crate) task: String,
    pub(crate) label: Label,
    /// Indices into [`Table::runs`], sorted by seed.
    pub(crate) runs: Vec<usize>,
}

/// The list of runs and how they are grouped. It is replaced as a whole when a run is added or
/// removed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Number of runs whose rows had still to be read when the groups were published.
    pub(crate) loading: u64,
    pub(crate) runs: Vec<Arc<RwLock<Run>>>,
    pub(crate) by_id: HashMap<String, usize>,
    pub(crate) groups: Vec<Group>,
    /// For each run: the index of its group; `None` if the run cannot be read.
    pub(crate) group_of: Vec<Option<usize>>,
    /// For each run: the version in which it came into its group.
    pub(crate) grouped: Vec<u64>,
    pub(crate) notes: Vec<String>,
}

impl Table {
    /// Returns the same runs without groups.
    fn ungrouped(&self) -> Self {
        let (runs, by_id, notes) = (self.runs.clone(), self.by_id.clone(), self.notes.clone());
        Self { runs, by_id, notes, ..Self::default() }
    }
}

/// All runs, shared between the reading thread and the requests.
#[derive(Debug)]
pub(crate) struct Store {
    /// Folders that the user named.
    pub(crate) roots: Vec<PathBuf>,
    table: RwLock<Arc<Table>>,
    sweeps: RwLock<Vec<Sweep>>,
    /// Ids of removed runs, with the version in which they were removed.
    gone: RwLock<Vec<(u64, String)>>,
    /// Version in which a task changed last.
    tasks: RwLock<HashMap<String, u64>>,
    /// Grows with every change.
    version: AtomicU64,
    /// Number of runs whose rows are not read yet.
    loading: AtomicU64,
    /// Milliseconds since `begun` of the last request.
    asked: AtomicU64,
    begun: Instant,
    stop: AtomicBool,
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a text that is different for each group: task, algorithm, program and the settings that
/// separate groups. It does not depend on the other runs.
fn group_key(run: &Identity) -> String {
    let settings = run.config.iter().filter(|(key, _)| !is_incidental(key));
    let settings =
        settings.map(|(key, value)| format!("\n{key}={}", value.strip_suffix(".0").unwrap_or(value)));
    format!("{:?}\n{}\n{}{}", run.source, run.task, run.algo, settings.collect::<String>())
}

/// Returns a short name of a path that contains no part of it (64-bit FNV-1a).
fn id_of(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl Store {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        Self {
            roots,
            table: RwLock::default(),
            sweeps: RwLock::default(),
            gone: RwLock::default(),
            tasks: RwLock::default(),
            version: AtomicU64::new(1),
            loading: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            begun: Instant::now(),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Number of runs whose rows are not read yet.
    pub(crate) fn loading(&self) -> u64 {
        self.loading.load(Ordering::Relaxed)
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        read(&self.table).clone()
    }

    pub(crate) fn sweeps(&self) -> Vec<Sweep> {
        read(&self.sweeps).clone()
    }

    /// Returns the version in which a run of `task` changed last.
    pub(crate) fn task_version(&self, task: &str) -> u64 {
        read(&self.tasks).get(task).copied().unwrap_or(0)
    }

    /// Returns the ids of runs that were removed after version `since`.
    pub(crate) fn gone_since(&self, since: u64) -> Vec<String> {
        let gone = read(&self.gone);
        gone.iter().filter(|(version, _)| *version > since).map(|(_, id)| id.clone()).collect()
    }

    /// Records that a client is watching.
    pub(crate) fn ask(&self) {
        self.asked.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn is_watched(&self) -> bool {
        let asked = Duration::from_millis(self.asked.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(asked) < UNWATCHED
    }

    /// Lets [`Store::follow`] return.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Keeps the runs up to date until [`Store::stop`] is called.
    pub(crate) fn follow(&self) {
        let (mut next_search, mut next_quiet) = (Instant::now(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            if self.is_watched() {
                if begun >= next_search {
                    self.search();
                    next_search = Instant::now() + SEARCH.max(20 * begun.elapsed());
                }
                let all = begun >= next_quiet;
                self.refresh(all);
                if all {
                    next_quiet = Instant::now() + QUIET_TICK.max(20 * begun.elapsed());
                }
            }
            std::thread::sleep(TICK.saturating_sub(begun.elapsed()).max(TICK / 8));
        }
    }

    /// Searches for new and removed run folders.
    pub(crate) fn search(&self) {
        let before = self.table();
        let mut found: Vec<(PathBuf, PathBuf)> = Vec::new(); // root without links, run folder
        let mut notes = Vec::new();
        for root in &self.roots {
            let Ok(real) = root.canonicalize() else {
                notes.push(format!("The folder {} does not exist.", root.display()));
                continue;
            };
            let (folders, more) = find_runs(std::slice::from_ref(&real));
            notes.extend(more.into_iter().filter(|n| n.path != real).map(|n| n.to_string()));
            found.extend(folders.into_iter().map(|dir| (real.clone(), dir)));
        }
        let mut seen = BTreeSet::new();
        found.retain(|(_, dir)| seen.insert(dir.clone()));
        if found.len() > MOST_RUNS {
            notes.push(format!("There are {} runs; the first {MOST_RUNS} are shown.", found.len()));
            found.truncate(MOST_RUNS);
        }
        let sweeps = sweep::find(&self.roots);
        let progressed = *read(&self.sweeps) != sweeps;
        *write(&self.sweeps) = sweeps;

        let ids: Vec<String> = found.iter().map(|(_, dir)| id_of(dir)).collect();
        let same = ids.len() == before.runs.len() && ids.iter().all(|id| before.by_id.contains_key(id));
        if same && notes == before.notes {
            if progressed {
                self.version.fetch_add(1, Ordering::AcqRel);
            }
            return;
        }
        let version = self.version() + 1;
        let old: Vec<&String> = before.by_id.keys().collect();
        let now: BTreeSet<&String> = ids.iter().collect();
        let mut gone = write(&self.gone);
        gone.extend(old.into_iter().filter(|id| !now.contains(id)).map(|id| (version, id.clone())));
        let excess = gone.len().saturating_sub(MOST_RUNS);
        gone.drain(..excess);
        gone.retain(|(_, id)| !now.contains(id));
        drop(gone);
        let runs = found.iter().zip(&ids).map(|((root, dir), id)| match before.by_id.get(id) {
            Some(&i) => before.runs[i].clone(),
            None => {
                let name = dir.strip_prefix(root).ok().filter(|p| !p.as_os_str().is_empty());
                let name = name.unwrap_or(dir).to_string_lossy().into_owned();
                Arc::new(RwLock::new(Run::new(Folder::new(root, dir), id.clone(), name)))
            }
        });
        let by_id = ids.iter().cloned().enumerate().map(|(i, id)| (id, i)).collect();
        let table = Table { runs: runs.collect(), by_id, notes, ..Table::default() };
        let fresh: Vec<usize> = (0..ids.len()).filter(|&i| !before.by_id.contains_key(&ids[i])).collect();
        self.loading.store(fresh.len() as u64, Ordering::Relaxed);
        self.publish(table, version);
        self.load(&fresh);
    }

    /// Reads the rows of new runs in parts, so that the first can be shown while the others are read.
    fn load(&self, fresh: &[usize]) {
        let table = self.table();
        let mut due = Instant::now(); // when the groups are published next
        for part in fresh.chunks(PART) {
            self.refresh_these(&table, part);
            let left = self.loading.load(Ordering::Relaxed).saturating_sub(part.len() as u64);
            self.loading.store(left.max(1), Ordering::Relaxed);
            let begun = Instant::now();
            if begun >= due {
                self.publish(table.ungrouped(), self.version() + 1);
                due = Instant::now() + TICK.max(10 * begun.elapsed());
            }
        }
        self.loading.store(0, Ordering::Relaxed);
        if !fresh.is_empty() {
            self.publish(table.ungrouped(), self.version() + 1);
        }
    }

    /// Reads new rows of the runs that train; of all runs if `all`.
    fn refresh(&self, all: bool) {
        let table = self.table();
        let due = |i: &usize| all || !read(&table.runs[*i]).is_quiet();
        let due: Vec<usize> = (0..table.runs.len()).filter(due).collect();
        if self.refresh_these(&table, &due) {
            self.publish(table.ungrouped(), self.version() + 1);
        }
    }

    /// Reads new rows of some runs. Returns true if the groups may have changed.
    fn refresh_these(&self, table: &Table, which: &[usize]) -> bool {
        let version = self.version() + 1;
        let one = |&i: &usize| {
            let (mut changed, before) = (false, read(&table.runs[i]).identified);
            loop {
                let mut run = write(&table.runs[i]); // released between parts of a large file
                let (new, more) = run.refresh();
                changed |= new;
                if new {
                    run.changed = version;
                }
                if !more || self.stop.load(Ordering::Relaxed) {
                    return (changed, run.identified != before);
                }
            }
        };
        let results: Vec<(bool, bool)> = which.par_iter().map(one).collect();
        let changed: Vec<usize> = which.iter().zip(&results).filter(|(_, r)| r.0).map(|(&i, _)| i).collect();
        if !changed.is_empty() {
            let mut tasks = write(&self.tasks);
            for i in changed {
                if let Some(identity) = &read(&table.runs[i]).identity {
                    match tasks.get_mut(&identity.task) {
                        Some(at) => *at = version,
                        None => drop(tasks.insert(identity.task.clone(), version)),
                    }
                }
            }
            drop(tasks);
            self.version.store(version, Ordering::Release);
        }
        results.iter().any(|r| r.1)
    }

    /// Groups the runs of `table` and makes it the current one.
    fn publish(&self, mut table: Table, version: u64) {
        table.loading = self.loading();
        let guards: Vec<_> = table.runs.iter().map(|run| read(run)).collect();
        let known: Vec<usize> = (0..guards.len()).filter(|&i| guards[i].identity.is_some()).collect();
        let identities: Vec<_> = known.iter().filter_map(|&i| guards[i].identity.as_ref()).collect();
        let settings: Vec<Settings<'_>> = identities
            .iter()
            .map(|i| Settings { source: i.source, algo: &i.algo, task: &i.task, config: &i.config })
            .collect();
        let mut sorted: BTreeMap<Place, Vec<(u64, usize)>> = BTreeMap::new();
        let placed = settings.iter().zip(labels(&settings)).map(|(run, label)| place(run, label));
        for ((&i, identity), place) in known.iter().zip(&identities).zip(placed) {
            sorted.entry(place).or_default().push((identity.seed, i));
        }
        let mut groups = Vec::with_capacity(sorted.len());
        let mut group_of = vec![None; guards.len()];
        for (((_, task), _, label), mut runs) in sorted {
            runs.sort_unstable();
            let runs: Vec<usize> = runs.into_iter().map(|(_, i)| i).collect();
            // the id must not depend on the label: labels depend on the other runs, and a link to a
            // group would break when a run is added
            let full =
                runs.first().and_then(|&i| guards[i].identity.as_ref()).map(group_key).unwrap_or_default();
            runs.iter().for_each(|&i| group_of[i] = Some(groups.len()));
            groups.push(Group { id: id_of(Path::new(&full)), task, label, runs });
        }
        drop(settings);
        drop(identities);
        drop(guards);
        let before = self.table();
        let ids = table.by_id.iter().map(|(id, &i)| (i, id));
        let mut grouped = vec![version; group_of.len()];
        for (i, id) in ids {
            let Some(&old) = before.by_id.get(id) else { continue };
            let group_then = before.group_of.get(old).copied().flatten().map(|g| &before.groups[g].id);
            if group_then == group_of[i].map(|g: usize| &groups[g].id) {
                grouped[i] = before.grouped[old];
            }
        }
        let tasks: BTreeSet<&String> = groups.iter().map(|g| &g.task).collect();
        write(&self.tasks).extend(tasks.into_iter().map(|task| (task.clone(), version)));
        (table.groups, table.group_of, table.grouped) = (groups, group_of, grouped);
        *write(&self.table) = Arc::new(table);
        self.version.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::view::{OverviewQuery, overview};

    /// This test fails if a client that asked while a run was being read is never told its group.
    #[test]
    fn a_run_that_comes_into_a_group_later_is_sent_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a");
        fs::create_dir(&run).unwrap();
        fs::write(run.join("config.toml"), "[run").unwrap(); // the run is being written
        fs::write(run.join("progress.csv"), "Metrics/EpRet,Metrics/EpCost,TotalEnvSteps\n1,2,100\n").unwrap();
        let store = Store::new(vec![dir.path().to_owned()]);
        store.search();
        let ask = |since: u64| overview(&store, &OverviewQuery { since, ..OverviewQuery::default() });

        fs::write(run.join("config.toml"), "[run]\ntask = \"T\"\nalgo = \"epo\"\nseed = 0\nlimit = 5.0\n")
            .unwrap();
        let table = store.table();
        assert!(store.refresh_these(&table, &[0]));
        let early = ask(0);
        assert!(early["runs"][0]["task"] == "T" && early["runs"][0]["group"].is_null(), "{early}");
        store.publish(table.ungrouped(), store.version() + 1);
        let late = ask(early["version"].as_u64().unwrap());
        assert!(late["runs"][0]["group"].is_string(), "{late}");
        assert_eq!(late["runs"][0]["group"], late["tasks"][0]["groups"][0]["id"]);
        // nothing is sent again without a reason
        store.publish(store.table().ungrouped(), store.version() + 1);
        assert_eq!(ask(late["version"].as_u64().unwrap())["runs"], serde_json::json!([]));
    }
}
