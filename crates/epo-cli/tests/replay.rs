//! Claim: `epo replay` writes a self-contained page that describes its content. It rejects what it cannot play
//! with a message and the right exit code.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn run_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../epo-lab/tests/data/run-0.3.0")
}

fn epo(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_epo")).arg("replay").args(args).current_dir(dir).output().unwrap()
}

#[test]
fn a_page_and_a_picture_are_written_and_described() {
    let (dir, run) = (tempfile::tempdir().unwrap(), run_folder());
    let run = run.to_str().unwrap();
    let output = epo(dir.path(), &[run, "--episode", "5"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("replay.html"), "{said}");
    let page = fs::read_to_string(dir.path().join("replay.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.len() < 3_000_000);
    assert!(page.contains("default-src 'none'") && !page.contains("src=\"http"), "it needs no network");

    let args = [run, "--worst", "1", "--episodes", "2", "--stochastic", "--gif", "a.gif", "--json"];
    let output = epo(dir.path(), &args);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let episode = &json["episodes"][0];
    for key in [
        "run",
        "task",
        "algo",
        "checkpoint",
        "hash",
        "policy",
        "physics",
        "seed",
        "exact",
        "actions",
        "what",
        "cost",
    ] {
        assert!(!episode[key].is_null(), "{key}: {json}");
    }
    assert_eq!((&episode["exact"], &episode["length"]), (&Value::Bool(false), &Value::from(1000)));
    assert_eq!(json["map"]["episodes"], 2);
    assert_eq!(json["files"].as_array().unwrap().len(), 1, "--gif alone writes no page");
    let bytes = fs::read(dir.path().join("a.gif")).unwrap();
    assert_eq!(json["files"][0]["bytes"], bytes.len());
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
}

#[test]
fn what_cannot_be_played_is_refused() {
    let (dir, run) = (tempfile::tempdir().unwrap(), run_folder());
    let run = run.to_str().unwrap();
    for (args, code, says) in [
        (vec!["."], 4, "not a run folder"),
        (vec![run, "--checkpoint", "99"], 4, "there is no checkpoint 99"),
        (vec![run, "--training", "999"], 2, "rows 1 to 16"),
        (vec![run, "--training", "0"], 2, "--training"),
        (vec![run, "--episode", "4294967296"], 2, "too large"),
        (vec![run, "--worst", "1", "--best", "1"], 2, "cannot be used with"),
        (vec![run, "--retrain"], 2, "--training"),
        (vec![run, "--threads", "100000"], 2, "must be at most 1024"),
        (vec![run, "--out", "none/such/file.html"], 74, "cannot write"),
    ] {
        let output = epo(dir.path(), &args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}
