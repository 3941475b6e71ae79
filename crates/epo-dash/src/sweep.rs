//! Progress of sweeps, from the plan and the journal that `epo sweep` keeps beside its run folders.

use std::fs;
use std::path::{Path, PathBuf};

use epo_algos::AlgoConfig;
use epo_report::printable;
use serde_json::Value;

use crate::folder::Folder;

/// Maximum number of runs of a sweep that are counted.
const MOST_RUNS: usize = 20_000;
/// Maximum number of groups of a plan that are shown.
const MOST_GROUPS: usize = 200;

/// Progress of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Sweep {
    /// Folder of the sweep.
    name: String,
    done: usize,
    failed: usize,
    /// Runs that have begun and have not ended.
    open: usize,
    /// Number of runs of the whole sweep; `None` in sweeps of version 0.3, which have no plan.
    planned: Option<usize>,
    /// Parts of the plan.
    groups: Vec<PlannedGroup>,
}

/// Runs of a plan with the same task and algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
struct PlannedGroup {
    task: String,
    /// Name of the algorithm for figures.
    label: String,
    runs: usize,
}

/// Returns the sweeps whose folder is one of `roots`, the folder above one (`DIR/runs`), or just below one.
pub(crate) fn find(roots: &[PathBuf]) -> Vec<Sweep> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for root in roots.iter().filter_map(|root| root.canonicalize().ok()) {
        folders.push(root.clone());
        if root.file_name().is_some_and(|name| name == "runs") {
            folders.extend(root.parent().map(Path::to_owned));
        }
        let below = fs::read_dir(&root).into_iter().flatten().filter_map(Result::ok).take(1000);
        folders.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    folders.sort();
    folders.dedup();
    folders.iter().filter_map(|dir| count(dir)).collect()
}

fn count(dir: &Path) -> Option<Sweep> {
    let journal = dir.join("journal");
    // no link is followed, and nothing but a regular file is read: a FIFO would block
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|about| about.is_dir());
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|about| about.is_file());
    if !is_dir(&journal) || !is_dir(&dir.join("runs")) {
        return None;
    }
    let name = dir.file_name().map(|name| printable(&name.to_string_lossy()).into_owned());
    let mut sweep = Sweep { name: name.unwrap_or_default(), ..Sweep::default() };
    let below = |dir: PathBuf| {
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path());
        entries.filter(|path| is_dir(path)).take(MOST_RUNS)
    };
    let mut folders: Vec<PathBuf> = below(journal).collect();
    // the folders of a sweep of more than 1000 runs are spread over parts
    let layout = Folder::new(dir, dir).text("layout").ok().flatten();
    if layout.is_some_and(|layout| layout.trim() == "sharded") {
        folders = folders.into_iter().flat_map(below).take(MOST_RUNS).collect();
    }
    for run in folders.iter().take(MOST_RUNS) {
        let ended = |name: &str| is_file(&run.join(name));
        match (ended("done.json"), ended("failed.json")) {
            (true, _) => sweep.done += 1,
            (_, true) => sweep.failed += 1,
            _ => sweep.open += 1,
        }
    }
    if let Some(plan) = plan(dir) {
        (sweep.planned, sweep.groups) = plan;
    }
    Some(sweep)
}

/// Returns the number of planned runs and the groups of `plan.json`; `None` if there is no such file that can be read.
fn plan(dir: &Path) -> Option<(Option<usize>, Vec<PlannedGroup>)> {
    let text = Folder::new(dir, dir).text("plan.json").ok()??;
    let plan: Value = serde_json::from_str(&text).ok()?;
    let count = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let group = |group: &Value| {
        let text = |key: &str| Some(printable(group[key].as_str()?).into_owned());
        let algo = text("algo")?;
        let label = AlgoConfig::by_name(&algo).map_or(algo, |known| known.info().label.to_owned());
        Some(PlannedGroup { task: text("task")?, label, runs: count(&group["runs"])? })
    };
    let groups = plan["groups"].as_array().into_iter().flatten().take(MOST_GROUPS).filter_map(group);
    Some((count(&plan["planned"]), groups.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_counted_from_its_journal() {
        let dir = tempfile::tempdir().unwrap();
        let sweep = dir.path().join("mine");
        for (run, file) in [("a", "done.json"), ("b", "failed.json"), ("c", "lease-0001"), ("d", "done.json")]
        {
            fs::create_dir_all(sweep.join("journal").join(run)).unwrap();
            fs::write(sweep.join("journal").join(run).join(file), "{}").unwrap();
        }
        assert_eq!(find(&[dir.path().to_owned()]), [], "without run folders it is not a sweep");
        fs::create_dir_all(sweep.join("runs")).unwrap();
        let mut want = Sweep { name: "mine".into(), done: 2, failed: 1, open: 1, ..Sweep::default() };
        assert_eq!(find(std::slice::from_ref(&sweep)), [want.clone()], "a sweep without a plan");
        let plan = r#"{"planned": 9, "groups": [{"task": "T", "algo": "ppo-lag", "runs": 5}, {"task": "T", "runs": 1},
            {"task": "T", "algo": "mine", "runs": 4}]}"#;
        fs::write(sweep.join("plan.json"), plan).unwrap();
        want.planned = Some(9);
        let group = |label: &str, runs| PlannedGroup { task: "T".into(), label: label.into(), runs };
        want.groups = vec![group("PPO-Lag", 5), group("mine", 4)];
        for root in [dir.path().to_owned(), sweep.clone(), sweep.join("runs")] {
            assert_eq!(find(&[root]).first(), Some(&want));
        }
        // the same sweep in the layout of large ones
        fs::create_dir_all(sweep.join("journal/3f")).unwrap();
        for run in ["a", "b", "c", "d"] {
            fs::rename(sweep.join("journal").join(run), sweep.join("journal/3f").join(run)).unwrap();
        }
        fs::write(sweep.join("layout"), "sharded\n").unwrap();
        assert_eq!(find(&[sweep]), [want]);
    }

    /// This test hangs or fails if a FIFO is opened, or if a link leads out of the folder of the sweep.
    #[test]
    fn a_sweep_is_not_read_through_links_and_fifos() {
        use std::os::unix::fs::symlink;
        let tree = tempfile::tempdir().unwrap();
        let (sweep, outside) = (tree.path().join("mine"), tree.path().join("outside/x"));
        fs::create_dir_all(sweep.join("runs")).unwrap();
        fs::create_dir_all(sweep.join("journal/a")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("done.json"), "{}").unwrap();
        fs::write(outside.join("layout"), "sharded").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, sweep.join("layout"), rustix::fs::Mode::RUSR).unwrap();
        symlink(&outside, sweep.join("journal/b")).unwrap();
        symlink(outside.join("done.json"), sweep.join("journal/a/done.json")).unwrap();
        let want = [Sweep { name: "mine".into(), open: 1, ..Sweep::default() }];
        assert_eq!(find(std::slice::from_ref(&sweep)), want);
        fs::remove_file(sweep.join("layout")).unwrap();
        symlink(outside.join("layout"), sweep.join("layout")).unwrap();
        assert_eq!(find(std::slice::from_ref(&sweep)), want, "`sharded` is read through a link");
        fs::remove_dir(sweep.join("runs")).unwrap();
        symlink(&outside, sweep.join("runs")).unwrap();
        assert_eq!(find(&[sweep]), []);
    }
}
