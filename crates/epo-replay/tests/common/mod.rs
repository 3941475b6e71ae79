//! Short runs for the tests in this folder.
#![allow(dead_code, clippy::unwrap_used, missing_docs, reason = "helpers of tests; each file uses its part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use epo_core::Env;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::Watch;
use epo_lab::runs::task_maker;
use epo_lab::train::Trainer;
use epo_replay::{Replay, Request};

/// A run folder of version 0.3.0 on SafetyPointGoal1-v0.
pub(crate) fn old_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../epo-lab/tests/data/run-0.3.0")
}

/// A run of a small network in `dir`; with 0 steps it has its first checkpoint only.
pub(crate) fn run(dir: &Path, task: &str, set: &[&str], train: bool) -> ResolvedRun {
    let mut all = vec![format!("run.task={task}"), "train.hidden=[8]".into(), "train.threads=1".into()];
    all.extend(set.iter().map(|s| (*s).to_owned()));
    let run = ResolvedRun::from_layers(None, &all).unwrap();
    let make = task_maker(task, run.run.physics).unwrap();
    let make_env = || -> Result<Box<dyn Env>, _> { make() };
    let mut trainer = Trainer::create(dir, run.clone(), &make_env).unwrap();
    if train {
        assert!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap().finished);
    }
    run
}

pub(crate) fn replay(request: &Request) -> Replay {
    epo_replay::replay(request, &Watch::default()).unwrap()
}
