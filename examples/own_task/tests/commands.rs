//! Tests that the binary of this crate has the commands of `epo` and the tasks of this crate.
//!
//! The tests start the binary as a user does: from another folder, and without environment variables for MuJoCo.

use std::path::Path;
use std::process::{Command, Output};

fn own_task(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_own_task"));
    command.env_remove("LD_LIBRARY_PATH").env_remove("MUJOCO_LIB_DIR");
    command.args(args).current_dir(dir).output().unwrap()
}

/// Runs a command that must succeed and returns its standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let output = own_task(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} ended with {:?}: {said}", output.status.code());
    String::from_utf8(output.stdout).unwrap()
}

const SMALL: [&str; 10] = [
    "--steps",
    "4000",
    "--envs",
    "4",
    "--set",
    "train.steps_per_epoch=2000",
    "--set",
    "train.passes=2",
    "--set",
    "train.final_eval_episodes=2",
];

#[test]
fn a_task_of_this_crate_is_listed_trained_evaluated_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let listed = done(dir.path(), &["tasks"]);
    assert!(listed.contains("Patrol-v0") && listed.contains("SafetyPointGoal1-v0"), "{listed}");
    for id in ["Patrol-v0", "Tank-v0"] {
        let args: Vec<&str> = ["train", id, "--quiet", "--name", "run"].into_iter().chain(SMALL).collect();
        let said = done(dir.path(), &args);
        let run = format!("runs/EPO-{{{id}}}/run");
        assert!(said.contains(&run), "{said}");
        done(dir.path(), &["eval", &run, "--episodes", "2"]);
        done(dir.path(), &["train", "--resume", &run, "--quiet"]);
    }
    done(dir.path(), &["report", "runs", "--out", "report"]);
    let page = std::fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    assert!(page.contains("Patrol-v0") && page.contains("Tank-v0"));
    done(dir.path(), &["rollout", "Patrol-v0", "--steps", "5", "--out", "episode.json"]);
    assert!(dir.path().join("episode.json").is_file());
}

#[test]
fn the_runs_of_a_sweep_know_the_tasks_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = "[base]\nrun.steps = 2000\ntrain.steps_per_epoch = 1000\ntrain.envs = 4\ntrain.passes = 1\n\
                train.final_eval_episodes = 0\n[grid]\nrun.task = [\"Patrol-v0\", \"Tank-v0\"]\n";
    std::fs::write(dir.path().join("sweep.toml"), file).unwrap();
    let said = done(dir.path(), &["sweep", "sweep.toml", "--out", "out", "--quiet"]);
    assert_eq!(said.matches("| done ").count(), 2, "{said}");
}

#[test]
fn a_wrong_id_is_answered_with_the_nearest_task_of_this_crate() {
    let dir = tempfile::tempdir().unwrap();
    let output = own_task(dir.path(), &["train", "Patrole-v0"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unknown task `Patrole-v0`; did you mean `Patrol-v0`?"), "{said}");
}
