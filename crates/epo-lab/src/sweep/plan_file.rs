//! The file `plan.json` of a sweep folder, from which the dashboard takes the number of runs that are still to come.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::PlannedRun;
use crate::LabError;
use crate::runs::write_whole;

/// Writes the number of planned runs, in all and for each task and algorithm, into the folder of a sweep.
///
/// # Errors
/// If the file cannot be written.
pub fn write_plan(dir: &Path, runs: &[PlannedRun]) -> Result<(), LabError> {
    fs::create_dir_all(dir).map_err(LabError::io("create", dir))?;
    let mut groups: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for run in runs {
        *groups.entry((&run.task, &run.algo)).or_default() += 1;
    }
    let groups: Vec<_> =
        groups.iter().map(|((task, algo), runs)| json!({"task": task, "algo": algo, "runs": runs})).collect();
    let plan = format!("{:#}\n", json!({"planned": runs.len(), "groups": groups}));
    let path = dir.join("plan.json");
    if fs::read(&path).is_ok_and(|found| found == plan.as_bytes()) {
        return Ok(());
    }
    // several drivers may write it at the same time, so each writes its own temporary file
    let own = dir.join(format!("plan-{}.json", std::process::id()));
    write_whole(&own, plan.as_bytes())?;
    fs::rename(&own, &path).map_err(LabError::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::SweepFile;

    /// This test fails if the plan leaves out a run or counts one for the wrong task or algorithm.
    #[test]
    fn the_plan_counts_runs_by_task_and_algorithm() {
        let text = "[grid]\nrun.algo = ['epo', 'ppo']\nrun.seed = [0, 1, 2]\n";
        let runs = SweepFile::parse(text).and_then(|file| file.plan()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let sweep = dir.path().join("new/sweep");
        write_plan(&sweep, &runs).unwrap();
        let plan: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(sweep.join("plan.json")).unwrap()).unwrap();
        let of = |algo: &str| json!({"task": "SafetyPointGoal1-v0", "algo": algo, "runs": 3});
        assert_eq!(plan, json!({"planned": 6, "groups": [of("epo"), of("ppo")]}));
    }
}
