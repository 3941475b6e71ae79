//! How fast training is: whole epochs in a folder that is thrown away, as `epo train` would do them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::LabError;
use crate::config::ResolvedRun;
use crate::record::{metrics, value};
use crate::runs::task_maker;
use crate::train::Trainer;

/// What a training benchmark measured: the fastest of its epochs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainBench {
    /// Task id.
    pub task: String,
    /// Algorithm.
    pub algo: String,
    /// Threads.
    pub threads: usize,
    /// Environment steps per second, update included.
    pub steps_per_s: f64,
    /// Seconds to collect an epoch.
    pub rollout_s: f64,
    /// Seconds to estimate and update.
    pub update_s: f64,
    /// Passes that the update made.
    pub passes: f64,
    /// Largest resident memory of this process so far.
    pub peak_rss_mb: f64,
    /// Environment steps in an epoch.
    pub steps_per_epoch: usize,
}

/// Trains for the epochs of `run` in `dir` and keeps the fastest times of collection and update.
///
/// The KL stop is the caller's to switch off if every pass is to be timed.
pub fn train(run: &ResolvedRun, dir: &Path) -> Result<TrainBench, LabError> {
    let make_env = task_maker(&run.run.task)?;
    let mut trainer = Trainer::create(dir, run.clone(), &make_env)?;
    let (mut rollout_s, mut update_s, mut passes) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
    trainer.train(&AtomicBool::new(false), |row| {
        rollout_s = rollout_s.min(value(row, metrics::TIME_ROLLOUT).unwrap_or(f64::INFINITY));
        update_s = update_s.min(value(row, metrics::TIME_UPDATE).unwrap_or(f64::INFINITY));
        passes = passes.max(value(row, epo_algos::report::STOP_ITER).unwrap_or(0.0));
    })?;
    let steps_per_epoch = run.train.steps_per_epoch;
    Ok(TrainBench {
        task: run.run.task.clone(),
        algo: run.run.algo.clone(),
        threads: run.train.threads,
        steps_per_s: steps_per_epoch as f64 / (rollout_s + update_s),
        rollout_s,
        update_s,
        passes,
        peak_rss_mb: peak_rss_mb().unwrap_or(0.0),
        steps_per_epoch,
    })
}

/// Largest resident memory of this process, from `/proc`; `None` where there is no such file.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
