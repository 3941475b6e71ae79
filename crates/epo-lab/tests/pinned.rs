//! Claim: the results of training are bit-identical to those of the last release.
//!
//! Every algorithm trains for two short epochs on a navigation and on a velocity task. The hash covers the tensors of
//! the last checkpoint and the main columns of `progress.csv`. They are hashed in a fixed order and without their
//! names, so a renamed key or a new column does not change the hash.
//!
//! To update the hashes after a change that is meant to change results:
//!
//! ```sh
//! EPO_RENEW=1 cargo test -p epo-lab --test pinned -- --nocapture    # prints the new table
//! ```
//! The changelog must then say "results change".
//!
//! The hashes are valid on x86-64 with fused multiply-add. Without it, the networks round differently.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::column;
use epo_lab::checkpoint;
use epo_lab::config::{ResolvedRun, algorithms};
use epo_lab::runs::task_maker;
use epo_lab::train::Trainer;

const TASKS: [&str; 2] = ["SafetyPointGoal1-v0", "SafetySwimmerVelocity-v1"];

/// Task, algorithm and hash. The header of this file says how to update the hashes.
const HASHES: &[(&str, &str, &str)] = &[
    ("SafetyPointGoal1-v0", "epo", "f96a302976a743f6"),
    ("SafetyPointGoal1-v0", "p3o", "fd8b8e6d935079ef"),
    ("SafetyPointGoal1-v0", "ppo-lag", "3bb4c06a20243d9b"),
    ("SafetyPointGoal1-v0", "cpo", "bf1dc0a905624744"),
    ("SafetyPointGoal1-v0", "appo", "860a7852e933208e"),
    ("SafetyPointGoal1-v0", "ipo", "8fda1658c9642d58"),
    ("SafetyPointGoal1-v0", "ppo", "f2b2a1ece929e945"),
    ("SafetyPointGoal1-v0", "epo-literal", "7b08a9ec6fd629d5"),
    ("SafetyPointGoal1-v0", "epo-released", "d35e17fad40c627d"),
    ("SafetySwimmerVelocity-v1", "epo", "ee8d5d7b77e220de"),
    ("SafetySwimmerVelocity-v1", "p3o", "6513ea149d815d44"),
    ("SafetySwimmerVelocity-v1", "ppo-lag", "4cdd0bbdffbbd96f"),
    ("SafetySwimmerVelocity-v1", "cpo", "8478066904bc0ef9"),
    ("SafetySwimmerVelocity-v1", "appo", "ff2c6645b658733b"),
    ("SafetySwimmerVelocity-v1", "ipo", "a18111bceccf696a"),
    ("SafetySwimmerVelocity-v1", "ppo", "2f96d17b675889cc"),
    ("SafetySwimmerVelocity-v1", "epo-literal", "f0d89d86d5895126"),
    ("SafetySwimmerVelocity-v1", "epo-released", "ad471d79874fae68"),
];

/// Hash of a run of EPO on the first task with the limit 60, which its cost is near to. Far from the limit, the weight
/// of the cost is at its bound, so the other hashes do not cover EPO's rule for the weight.
const NEAR_THE_LIMIT: &str = "7911f93f862a35a8";

/// Trains a short run in `dir` and returns the hash of its tensors and of its record.
fn hash(task: &str, algo: &str, limit: u32, dir: &Path) -> String {
    let set = [
        &format!("run.task={task}"),
        &format!("run.algo={algo}"),
        "run.seed=3",
        "run.steps=2100", // a second epoch of half the length; episodes end in it
        &format!("run.limit={limit}"),
        "train.steps_per_epoch=1400",
        "train.envs=2",
        "train.passes=2",
        "train.threads=2",
    ];
    let run = ResolvedRun::from_layers(None, &set.map(str::to_owned)).unwrap();
    let make_env = task_maker(task, epo_tasks::Physics::Published).unwrap();
    let mut trainer = Trainer::create(dir, run, &make_env).unwrap();
    trainer.train(&AtomicBool::new(false), |_| ()).unwrap();

    let loaded = checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).unwrap();
    let file = &loaded.files["tensors.safetensors"];
    let tensors = safetensors::SafeTensors::deserialize(file).unwrap();
    let mut all: Vec<_> = tensors.iter().collect();
    all.sort_by_key(|(name, _)| name.to_string());
    let mut bytes: Vec<u8> = all.iter().flat_map(|(_, tensor)| tensor.data().to_vec()).collect();
    for name in [
        "TotalEnvSteps",
        "Metrics/EpRet",
        "Metrics/EpCost",
        "Metrics/EpLen",
        "Metrics/CostReading",
        "Train/KL",
    ] {
        bytes.extend(column(dir, name).join(" ").into_bytes());
    }
    checkpoint::sha256(&bytes)[..16].to_owned()
}

/// This test fails if any change to the code changes the results of training.
#[test]
fn every_algorithm_learns_what_it_learned_in_the_last_release() {
    let mut table = String::new();
    let (mut differences, mut seen) = (Vec::new(), BTreeSet::new());
    for task in TASKS {
        for algo in algorithms().iter().map(|algo| algo.name()) {
            let dir = tempfile::tempdir().unwrap();
            let got = hash(task, algo, 0, dir.path()); // violated, so that every algorithm acts on the cost
            assert!(seen.insert(got.clone()), "{algo} on {task} learns what another algorithm learns");
            writeln!(table, "    (\"{task}\", \"{algo}\", \"{got}\"),").unwrap();
            let pinned = HASHES.iter().find(|(t, a, _)| (*t, *a) == (task, algo)).map(|(.., hash)| *hash);
            if pinned != Some(got.as_str()) {
                differences.push(format!("{algo} on {task}: {got}, pinned {pinned:?}"));
            }
        }
    }
    if std::env::var_os("EPO_RENEW").is_some() {
        println!("{table}");
        return;
    }
    assert!(
        differences.is_empty(),
        "training gives other numbers than the pinned ones. If that is meant, renew the table as the header of this file \
         says, and write \"results change\" into the changelog. A new algorithm (pinned None) only needs its two lines.\n{}",
        differences.join("\n")
    );
}

/// This test fails if EPO's rule for the weight of the cost changes.
#[test]
fn epo_near_its_limit_learns_what_it_learned_in_the_last_release() {
    let dir = tempfile::tempdir().unwrap();
    let got = hash(TASKS[0], "epo", 60, dir.path());
    let weights: Vec<f64> =
        column(dir.path(), "Penalty/CostWeight").iter().map(|w| w.parse().unwrap()).collect();
    assert!(weights.iter().all(|w| (0.05..0.95).contains(w)), "the bound is not active: {weights:?}");
    if std::env::var_os("EPO_RENEW").is_some() {
        println!("near the limit: {got}");
        return;
    }
    assert_eq!(got, NEAR_THE_LIMIT, "results of EPO change; the header of this file says what to do");
}
