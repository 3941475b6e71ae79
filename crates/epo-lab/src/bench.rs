//! Benchmark of the training speed. It times whole epochs of the same training loop that `epo train` runs.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use epo_tasks::Physics;
use serde::Serialize;

use crate::LabError;
use crate::collect::Collector;
use crate::config::ResolvedRun;
use crate::record::{metrics, value};
use crate::runs::task_maker;
use crate::train::Trainer;

/// Result of a training benchmark. Times are the smallest over the epochs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainBench {
    /// Task id.
    pub task: String,
    /// Name of the algorithm.
    pub algo: String,
    /// Physics of the simulation: published or fast.
    pub physics: Physics,
    /// Number of threads.
    pub threads: usize,
    /// Environment steps per second, with the time of the update included.
    pub steps_per_s: f64,
    /// Seconds to collect the batch of an epoch.
    pub rollout_s: f64,
    /// Seconds for advantage estimates and update of an epoch.
    pub update_s: f64,
    /// Time to collect a batch, divided by the time that the environments alone need for it. To measure the latter, the
    /// same episodes are replayed with the same actions, without policy, normaliser and rollout buffer. The value is
    /// the median of three epochs after the training.
    pub collect_overhead: f64,
    /// Largest number of passes over the batch that an update made.
    pub passes: f64,
    /// Peak resident memory of this process, in MiB.
    pub peak_rss_mb: f64,
    /// Number of environment steps per epoch.
    pub steps_per_epoch: usize,
}

/// The smallest times over several epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Seconds to collect the batch of an epoch.
    pub rollout_s: f64,
    /// Seconds for advantage estimates and update of an epoch.
    pub update_s: f64,
    /// Largest number of passes over the batch that an update made.
    pub passes: f64,
}

/// Trains `run` in the folder `dir` and returns the smallest times of collection and update over its epochs.
///
/// To time all passes of the update, the caller must disable early stopping by KL divergence (`kl_stop`).
pub fn epochs(run: &ResolvedRun, dir: &Path) -> Result<Times, LabError> {
    let make_env = task_maker(&run.run.task, run.run.physics)?;
    timed(&mut Trainer::create(dir, run.clone(), &make_env)?)
}

fn timed(trainer: &mut Trainer<'_>) -> Result<Times, LabError> {
    let mut times = Times { rollout_s: f64::INFINITY, update_s: f64::INFINITY, passes: 0.0 };
    trainer.train(&AtomicBool::new(false), |row| {
        times.rollout_s = times.rollout_s.min(value(row, metrics::TIME_ROLLOUT).unwrap_or(f64::INFINITY));
        times.update_s = times.update_s.min(value(row, metrics::TIME_UPDATE).unwrap_or(f64::INFINITY));
        times.passes = times.passes.max(value(row, epo_algos::report::STOP_ITER).unwrap_or(0.0));
    })?;
    Ok(times)
}

/// Does the same as [`epochs`], and also measures the overhead of collection over the environments alone.
pub fn train(run: &ResolvedRun, dir: &Path) -> Result<TrainBench, LabError> {
    let make_env = task_maker(&run.run.task, run.run.physics)?;
    let mut trainer = Trainer::create(dir, run.clone(), &make_env)?;
    let Times { rollout_s, update_s, passes } = timed(&mut trainer)?;
    let steps_per_epoch = run.train.steps_per_epoch;
    let collect_overhead = collect_overhead(&mut trainer)?;
    Ok(TrainBench {
        task: run.run.task.clone(),
        algo: run.run.algo.clone(),
        physics: run.run.physics,
        threads: run.train.threads,
        steps_per_s: steps_per_epoch as f64 / (rollout_s + update_s),
        rollout_s,
        update_s,
        collect_overhead,
        passes,
        peak_rss_mb: peak_rss_mb().unwrap_or(0.0),
        steps_per_epoch,
    })
}

fn collect_overhead(trainer: &mut Trainer<'_>) -> Result<f64, LabError> {
    let mut ratios = [0.0; 3];
    for ratio in &mut ratios {
        let slots = trainer.collector.pool.slots().iter().zip(&trainer.collector.workers);
        let begun: Vec<(u64, Vec<f32>)> = slots.map(|(s, w)| (s.episode(), w.replay.clone())).collect();
        let clock = Instant::now();
        trainer.collector.collect(&trainer.agent.policy, trainer.run.train.steps_per_epoch, None)?;
        let collect_s = clock.elapsed().as_secs_f64();

        let Collector { pool, workers, rollout, .. } = &mut trainer.collector;
        let actions = &rollout.action;
        let lanes = actions.chunks(actions.len() / workers.len());
        let mut work: Vec<_> = workers.iter_mut().zip(&begun).zip(lanes).collect();
        pool.run(&mut work, |slot, ((worker, (episode, before)), _)| {
            slot.start(*episode)?;
            worker.repeat(slot, before)
        })?;
        let clock = Instant::now();
        pool.run(&mut work, |slot, ((worker, _), actions)| worker.repeat(slot, actions))?;
        *ratio = collect_s / clock.elapsed().as_secs_f64();
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[1])
}

/// Returns the peak resident memory of this process in MiB, from `/proc/self/status`; `None` if it cannot be read.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if the replay uses other actions, another episode or another starting point in the episode.
    #[test]
    fn the_environments_alone_play_the_episodes_that_were_collected() {
        let set =
            ["run.task=SafetyPointGoal0-v0", "train.steps_per_epoch=1400", "train.envs=2", "train.threads=1"];
        let run = ResolvedRun::from_layers(None, &set.map(String::from)).unwrap();
        let make_env = task_maker(&run.run.task, run.run.physics).unwrap();
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut once = Trainer::create(dir.path(), run.clone(), &make_env).unwrap();
        let mut twice = Trainer::create(other.path(), run, &make_env).unwrap();
        (0..3).for_each(|_| once.collector.collect(&once.agent.policy, 1400, None).unwrap()); // 2100 steps: two episodes end
        let overhead = collect_overhead(&mut twice).unwrap();
        assert!(overhead.is_finite() && overhead > 0.0, "{overhead}");
        for (a, b) in once.collector.pool.slots().iter().zip(twice.collector.pool.slots()) {
            assert_eq!((a.episode(), a.steps(), a.obs()), (b.episode(), b.steps(), b.obs()));
        }
    }
}
