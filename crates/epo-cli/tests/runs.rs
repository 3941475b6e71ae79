//! Tests of `epo runs` through the binary: the list, its filters, and folders that are broken or hostile.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

fn runs(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_epo")).arg("runs").args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a run of 4000 planned steps that ended two minutes ago.
fn run(folder: &Path, task: &str, algo: &str, rows: &str) {
    fs::create_dir_all(folder).unwrap();
    let config = format!("[run]\ntask = {task:?}\nalgo = {algo:?}\nseed = 7\nlimit = 25.0\nsteps = 4000\n");
    fs::write(folder.join("config.toml"), config).unwrap();
    let header = "Train/Epoch,Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,Time/Total\n";
    fs::write(folder.join("progress.csv"), format!("{header}{rows}")).unwrap();
    let file = fs::File::options().append(true).open(folder.join("progress.csv")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
}

#[test]
fn runs_are_listed_with_state_and_newest_values() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("runs/b"), "SafetyPointGoal1-v0", "ppo", "0,1,60,2000,1\n1,2.5,50.25,4000,2\n");
    run(&dir.path().join("runs/a"), "SafetyCarGoal1-v0", "epo", "0,1,60,2000,1\n");
    fs::create_dir_all(dir.path().join("runs/c")).unwrap();
    fs::write(dir.path().join("runs/c/config.toml"), "[run").unwrap();
    let got = runs(dir.path(), &[]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let said = text(&got.stdout);
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        ["task", "algo", "seed", "limit", "steps", "state", "return", "cost", "hash", "folder"]
    );
    assert_eq!(
        lines[1],
        ["SafetyCarGoal1-v0", "epo", "7", "25", "2k/4k", "dead", "1.00", "60.00", "–", "runs/a"]
    );
    assert_eq!(
        lines[2],
        ["SafetyPointGoal1-v0", "ppo", "7", "25", "4k/4k", "done", "2.50", "50.25", "–", "runs/b"]
    );
    assert_eq!(lines[3], ["–", "–", "–", "–", "0/–", "broken", "–", "–", "–", "runs/c"]);
    let columns: Vec<usize> = said.lines().map(|line| line.chars().count()).collect();
    assert_eq!(columns[1], columns[2], "the columns are aligned");

    for (filter, folder) in [(["--task", "PointGoal"], "runs/b"), (["--algo", "EPO"], "runs/a")] {
        let got = runs(dir.path(), &filter);
        assert!(got.status.success());
        assert_eq!(text(&got.stdout).lines().count(), 2, "{filter:?}");
        assert!(text(&got.stdout).ends_with(&format!("{folder}\n")), "{}", text(&got.stdout));
        assert_eq!(text(&got.stderr), "1 of 3 runs\n");
    }

    let got = runs(dir.path(), &["runs", "--json"]);
    let list: Vec<serde_json::Value> = serde_json::from_slice(&got.stdout).unwrap();
    let expected = serde_json::json!({
        "folder": "runs/b", "task": "SafetyPointGoal1-v0", "algo": "ppo", "seed": 7, "limit": 25.0, "steps": 4000.0,
        "planned": 4000.0, "state": "done", "return": 2.5, "cost": 50.25, "hash": null, "message": null,
    });
    assert_eq!(list[1], expected);
    assert!(list[2]["message"].as_str().unwrap().starts_with("config.toml is broken"), "{}", list[2]);
}

/// This test fails if a name reaches the terminal unchanged, makes a line too long, or breaks the JSON document.
#[test]
fn hostile_names_are_printed_safely() {
    let dir = tempfile::tempdir().unwrap();
    let name = [b"x\x1b[2J\nhash: forged \xff".as_slice(), "y".repeat(200).as_bytes()].concat();
    let task = "T\u{1b}[2J\nhash: forged".to_owned() + &"z".repeat(300);
    run(&dir.path().join("runs").join(OsStr::from_bytes(&name)), &task, "\u{202e}epo", "0,1,2,2000,1\n");
    let got = runs(dir.path(), &[]);
    let said = text(&got.stdout);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert_eq!(said.lines().count(), 2, "{said:?}");
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    assert!(said.lines().all(|line| line.chars().count() <= 160), "{said}");
    let got = runs(dir.path(), &["--json"]);
    let list: Vec<serde_json::Value> = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(list.len(), 1, "{}", text(&got.stderr));
}

#[test]
fn without_any_run_the_exit_code_is_4() {
    let dir = tempfile::tempdir().unwrap();
    let got = runs(dir.path(), &["nowhere"]);
    assert_eq!(got.status.code(), Some(4));
    assert!(text(&got.stderr).contains("nowhere") && got.stdout.is_empty(), "{}", text(&got.stderr));
}
