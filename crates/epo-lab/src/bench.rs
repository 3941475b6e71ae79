//! How fast training is: whole epochs in a folder that is thrown away, as `epo train` would do them.

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

/// What a training benchmark measured: the fastest of its epochs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainBench {
    /// Task id.
    pub task: String,
    /// Algorithm.
    pub algo: String,
    /// How the bodies of the task are simulated.
    pub physics: Physics,
    /// Threads.
    pub threads: usize,
    /// Environment steps per second, update included.
    pub steps_per_s: f64,
    /// Seconds to collect an epoch.
    pub rollout_s: f64,
    /// Seconds to estimate and update.
    pub update_s: f64,
    /// Time to collect over the time of the environments alone: the same episodes with the same actions, played again
    /// in the same environments without policy, normaliser and rollout. The middle of three epochs after the training.
    pub collect_overhead: f64,
    /// Passes that the update made.
    pub passes: f64,
    /// Largest resident memory of this process so far.
    pub peak_rss_mb: f64,
    /// Environment steps in an epoch.
    pub steps_per_epoch: usize,
}

/// The fastest times of some epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Seconds to collect an epoch.
    pub rollout_s: f64,
    /// Seconds to estimate and update.
    pub update_s: f64,
    /// Passes that the longest update made.
    pub passes: f64,
}

/// Trains for the epochs of `run` in `dir` and keeps the fastest times of collection and update.
///
/// The KL stop is the caller's to switch off if every pass is to be timed.
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

/// As [`epochs`], and how much of collecting is the environments' own time.
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
        trainer.collector.collect(&trainer.agent.policy, trainer.run.train.steps_per_epoch)?;
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

/// Largest resident memory of this process, from `/proc`; `None` where there is no such file.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kills: other actions, another episode, or a start in the middle of the wrong one.
    #[test]
    fn the_environments_alone_play_the_episodes_that_were_collected() {
        let set =
            ["run.task=SafetyPointGoal0-v0", "train.steps_per_epoch=1400", "train.envs=2", "train.threads=1"];
        let run = ResolvedRun::from_layers(None, &set.map(String::from)).unwrap();
        let make_env = task_maker(&run.run.task, run.run.physics).unwrap();
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut once = Trainer::create(dir.path(), run.clone(), &make_env).unwrap();
        let mut twice = Trainer::create(other.path(), run, &make_env).unwrap();
        (0..3).for_each(|_| once.collector.collect(&once.agent.policy, 1400).unwrap()); // 2100 steps: two ends of episodes
        let overhead = collect_overhead(&mut twice).unwrap();
        assert!(overhead.is_finite() && overhead > 0.0, "{overhead}");
        for (a, b) in once.collector.pool.slots().iter().zip(twice.collector.pool.slots()) {
            assert_eq!((a.episode(), a.steps(), a.obs()), (b.episode(), b.steps(), b.obs()));
        }
    }
}
