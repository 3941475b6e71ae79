//! A small environment and short runs for the tests in this folder.
#![allow(
    dead_code,
    clippy::unwrap_used,
    missing_docs,
    missing_debug_implementations,
    reason = "helpers of tests; each file uses its part"
)]

mod walk;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use epo_core::{ActionSpace, Env};
use epo_lab::LabError;
use epo_lab::config::ResolvedRun;
use epo_lab::train::{End, Trainer};
pub(crate) use walk::Walk;

/// Returns the configuration of a run on the walk: 6 epochs of 4 × 50 steps. The settings in `set` override it.
pub(crate) fn config(set: &[&str]) -> ResolvedRun {
    let base = [
        "run.task=Walk",
        "run.steps=1200",
        "run.limit=5",
        "train.steps_per_epoch=200",
        "train.envs=4",
        "train.passes=3",
        "train.minibatch=50",
        "train.hidden=[8, 8]",
        "train.threads=1",
    ];
    let all: Vec<String> = base.iter().chain(set).map(|&s| s.to_owned()).collect();
    ResolvedRun::from_layers(None, &all).unwrap()
}

pub(crate) fn walk() -> Result<Box<dyn Env>, LabError> {
    Ok(Box::new(Walk::new(ActionSpace::symmetric(1), 70)))
}

/// Trains a run to its end.
pub(crate) fn train(
    dir: &Path,
    run: ResolvedRun,
    make: &dyn Fn() -> Result<Box<dyn Env>, LabError>,
) -> Result<End, LabError> {
    Trainer::create(dir, run, make)?.train(&AtomicBool::new(false), |_| ())
}

/// Returns the header and the rows of `progress.csv`, without the columns of measured times.
pub(crate) fn rows(dir: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(dir.join("progress.csv")).unwrap();
    let keep: Vec<bool> = text.lines().next().unwrap().split(',').map(|c| !c.starts_with("Time/")).collect();
    let row =
        |line: &str| line.split(',').zip(&keep).filter(|(_, k)| **k).map(|(c, _)| c.to_owned()).collect();
    text.lines().map(row).collect()
}

/// Returns the values of the column `name` of `progress.csv`.
pub(crate) fn column(dir: &Path, name: &str) -> Vec<String> {
    let rows = rows(dir);
    let index = rows[0].iter().position(|c| c == name).unwrap();
    rows[1..].iter().map(|row| row[index].clone()).collect()
}
