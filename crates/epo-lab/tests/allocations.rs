//! Claim: the step and update loops do not allocate memory. An epoch allocates only for its row and its jobs. The
//! number of these allocations does not depend on the numbers of steps, passes and minibatches.
//!
//! This test has its own process, because the counting allocator is the allocator of the whole process.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::alloc::System;
use std::sync::atomic::AtomicBool;

use epo_algos::{CriticTraining, UpdateConfig};
use epo_core::{Env, EnvError, EnvSpec, Step};
use epo_lab::collect::MakeEnv;
use epo_lab::config::{ResolvedRun, algo_named, algorithms};
use epo_lab::runs;
use epo_lab::train::Trainer;
use epo_tasks::Physics;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the number of allocations and reallocations of all threads since the start of the process.
fn asked() -> usize {
    let Stats { allocations, reallocations, .. } = ALLOCATOR.stats();
    allocations + reallocations
}

/// An environment that allocates in every step. The test must detect it.
struct Wasteful(Box<dyn Env>);

impl Env for Wasteful {
    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.0.reset(seed, obs)
    }
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        drop(std::hint::black_box(Box::new(obs[0])));
        self.0.step(action, obs)
    }
}

/// Returns the numbers of allocations in three epochs. The first epoch is a warm-up and is not counted. No episode ends
/// in the three epochs, and no checkpoint is written.
fn per_epoch(algo: &str, steps_per_epoch: usize, passes: usize, make: &MakeEnv<'_>) -> Vec<usize> {
    let steps = 5 * steps_per_epoch;
    let critics = algo_named(algo).unwrap().critic_training(&UpdateConfig::default());
    let CriticTraining { passes_key, minibatch_key, .. } = critics;
    let set = [
        format!("run.algo={algo}"),
        format!("run.steps={steps}"),
        format!("train.steps_per_epoch={steps_per_epoch}"),
        format!("{passes_key}={passes}"),
        format!("{minibatch_key}=20"),
        "train.envs=4".into(),
        "train.threads=2".into(),
        "train.kl_stop=false".into(),
        "train.hidden=[8, 8]".into(),
        "train.save_every=1000".into(),
    ];
    let run = ResolvedRun::from_layers(None, &set).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut trainer = Trainer::create(dir.path(), run, make).unwrap();
    let mut seen = Vec::with_capacity(16);
    trainer.train(&AtomicBool::new(false), |_| seen.push(asked())).unwrap();
    seen.windows(2).map(|w| w[1] - w[0]).take(3).collect() // the last epoch writes a checkpoint
}

#[test]
fn allocations_of_an_epoch_do_not_grow_with_its_steps_and_passes() {
    let task = runs::task_maker("SafetyPointGoal1-v0", Physics::Fast).unwrap();
    let most = |counts: &[usize]| *counts.iter().max().unwrap();
    for algo in algorithms().iter().map(|algo| algo.name()) {
        let small = per_epoch(algo, 80, 2, &task);
        let steps = per_epoch(algo, 800, 2, &task); // 720 steps and 72 minibatches more
        let passes = per_epoch(algo, 80, 22, &task); // 20 passes and 80 minibatches more
        let said =
            format!("{algo}: {small:?}, ten times the steps {steps:?}, eleven times the passes {passes:?}");
        println!("{said}");
        // a few allocations depend on the number of digits in the row and on the queues of the threads
        let allowed = most(&small) + 10;
        assert!(most(&steps) <= allowed && most(&passes) <= allowed, "{said}");
    }
    let wasteful = || Ok(Box::new(Wasteful(task()?)) as Box<dyn Env>);
    let (small, steps) = (per_epoch("ppo", 80, 2, &wasteful), per_epoch("ppo", 800, 2, &wasteful));
    assert!(most(&steps) >= most(&small) + 720, "an allocation per step is found: {small:?} {steps:?}");
}
