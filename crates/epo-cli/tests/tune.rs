//! Tests of `epo tune` through the binary, with real runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Two generations of three trials with one run each: a run has two episodes, and two of three trials stop after the first.
const FILE: &str = r#"
[base]
run.task = "SafetyPointGoal1-v0"
run.physics = "fast"
run.steps = 2000
train.steps_per_epoch = 500
train.envs = 1
train.passes = 1
train.hidden = [4]
train.final_eval_episodes = 0
[tune]
method = "tpe"
trials = 6
batch = 3
seeds = [7]
rungs = [1000]
keep = 0.3
[space]
train.lr = { low = 1e-4, high = 1e-1, log = true }
train.minibatch = [50, 100]
"#;

fn tune(dir: &Path, args: &[&str]) -> Command {
    let file = dir.join("search.toml");
    if !file.exists() {
        std::fs::write(&file, FILE).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
    command.arg("tune").arg(file).arg("--out").arg(dir.join("out")).args(["--jobs", "2"]).args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the trials without the paths of their folders.
fn trials(document: &Value) -> Vec<Value> {
    let mut trials = document["trials"].as_array().unwrap().clone();
    for trial in &mut trials {
        for run in trial["runs"].as_array_mut().unwrap() {
            run.as_object_mut().unwrap().remove("folder");
        }
    }
    trials
}

/// This test fails if a search that was killed begins other trials or trains a run again from its start, if a
/// trial that continued differs from a run that was never paused, or if the best trial is not written.
#[test]
fn a_search_that_is_killed_and_continued_has_the_same_trials_and_hashes() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let want = document(&tune(whole.path(), &["--json"]).output().unwrap());
    let states = |of: &str| trials(&want).iter().filter(|trial| trial["state"] == of).count();
    assert_eq!((states("finished"), states("stopped")), (2, 4), "{want:#}");
    assert_eq!(want["finished"], true);

    for rows in [1, 3] {
        let mut child = tune(killed.path(), &["--quiet"]).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while most_rows(&killed.path().join("out/runs")) < rows && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no run has {rows} rows");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let status = tune(killed.path(), &["--status"]).output().unwrap();
        let (table, round) = (text(&status.stdout), text(&status.stderr));
        assert!(round.contains("go to rung") && table.contains(" planned: "), "{round}{table}");
    }
    let got = document(&tune(killed.path(), &["--json"]).output().unwrap());
    assert_eq!(trials(&got), trials(&want));
    assert_eq!((&got["best"], &got["importance"]), (&want["best"], &want["importance"]));

    let ended = tune(killed.path(), &["--status"]).output().unwrap();
    assert!(text(&ended.stderr).contains("the search has ended; best trial: "), "{}", text(&ended.stderr));

    // a finished trial is the run that was never paused
    let best = want["best"].as_u64().unwrap() as usize;
    let config = whole.path().join("out/best.toml");
    assert_eq!(want["config"].as_str(), config.to_str());
    let alone = Command::new(env!("CARGO_BIN_EXE_epo"))
        .args(["train", "--quiet", "--seed", "7", "--config"])
        .args([&config, Path::new("--runs"), &whole.path().join("alone")])
        .output()
        .unwrap();
    let hash = want["trials"][best]["runs"][0]["hash"].as_str().unwrap();
    assert!(text(&alone.stdout).contains(&format!("hash {hash}")), "{} {hash}", text(&alone.stdout));
    let page = std::fs::read_to_string(want["page"].as_str().unwrap()).unwrap();
    assert!(page.contains(&format!("Trial {best} is the best")) && page.contains("train.minibatch"));
    assert!(whole.path().join("out/trials.json").exists());
}

/// Fails if a search presents a trial above the limit as if it were good.
#[test]
fn a_search_without_a_trial_within_the_limit_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = FILE.replace("run.steps = 2000", "run.steps = 1000\nrun.limit = 0.001");
    let file = file.replace("trials = 6", "trials = 1").replace("rungs = [1000]", "rungs = []");
    std::fs::write(dir.path().join("search.toml"), file).unwrap();
    let got = tune(dir.path(), &["--quiet"]).output().unwrap();
    assert!(text(&got.stdout).contains("no trial is within the limit of 0.001"), "{}", text(&got.stdout));
}

/// Largest number of rows in a record below `runs`.
fn most_rows(runs: &Path) -> usize {
    let entries =
        |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path());
    let records = entries(runs).flat_map(|parent| entries(&parent).collect::<Vec<_>>());
    let rows = records
        .map(|run| std::fs::read_to_string(run.join("progress.csv")).unwrap_or_default().lines().count());
    rows.max().unwrap_or(0).saturating_sub(1)
}

#[test]
fn mistakes_are_told_before_a_run_begins_and_a_dry_run_begins_none() {
    let dir = tempfile::tempdir().unwrap();
    let listed = tune(dir.path(), &["--dry-run"]).output().unwrap();
    assert!(listed.status.success());
    assert_eq!(text(&listed.stdout).lines().count(), 3, "the first generation: {}", text(&listed.stdout));
    assert!(text(&listed.stderr).contains("other 3 trials depend"), "{}", text(&listed.stderr));
    let as_json = document(&tune(dir.path(), &["--dry-run", "--json"]).output().unwrap());
    assert!(as_json["trials"][2]["train.lr"].as_f64().unwrap() >= 1e-4);
    let refused = tune(dir.path(), &["--on", "slurm", "--detach"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let status = tune(dir.path(), &["--status", "--json"]).output().unwrap();
    assert_eq!((&document(&status)["pending"], &document(&status)["planned"]), (&3.into(), &3.into()));
    for (from, to, says) in [
        ("train.lr", "train.lrr", "did you mean `train.lr`"),
        ("rungs = [1000]", "rungs = [3000]", "`tune.rungs`"),
        ("rungs = [1000]", "rungs = [400]", "before the first episode has ended"),
        ("train.minibatch = [50, 100]", "train.envs = [1, 2]", "2 environments need 2000 steps"),
        ("[space]", "[spaces]", "nothing to search"),
        ("low = 1e-4", "low = -1", "must be above 0"),
    ] {
        std::fs::write(dir.path().join("search.toml"), FILE.replace(from, to)).unwrap();
        let refused = tune(dir.path(), &[]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{to}");
        assert!(text(&refused.stderr).contains(says), "{to}: {}", text(&refused.stderr));
    }
    assert!(!dir.path().join("out").exists(), "nothing was made");
}
