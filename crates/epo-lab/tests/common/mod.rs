//! A small environment and short runs for the tests in this folder.
#![allow(
    dead_code,
    clippy::unwrap_used,
    missing_docs,
    missing_debug_implementations,
    reason = "helpers of tests; each file uses its part"
)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Purpose, Step, Stream};
use epo_lab::LabError;
use epo_lab::config::ResolvedRun;
use epo_lab::train::{End, Trainer};

/// A random walk on a line. The observation is the position and the fraction of the episode that has passed. The reward
/// is the position, and a position above 1 has a cost of 1. Long episodes continue over several epochs.
pub(crate) struct Walk {
    spec: EnvSpec,
    noise: Stream,
    x: f64,
    t: usize,
    /// Number of a step in each episode, from 1, and the reward that this step returns.
    pub(crate) bad: Option<(u64, f64)>,
    /// Whether the cost is always 0.
    pub(crate) free: bool,
}

impl Walk {
    pub(crate) fn new(action: ActionSpace, max_steps: usize) -> Self {
        let spec = EnvSpec { id: "Walk".into(), obs_len: 2, action, max_steps, cost_terms: vec![] };
        Self { spec, noise: Stream::new(0, Purpose::Problem, 0), x: 0.0, t: 0, bad: None, free: false }
    }
}

impl Env for Walk {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.noise = Stream::new(seed, Purpose::Problem, 0);
        (self.x, self.t) = (self.noise.normal(), 0);
        obs.copy_from_slice(&[self.x, 0.0]);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.spec.action.check(action)?;
        self.t += 1;
        let push = match self.spec.action {
            ActionSpace::Box { .. } => action[0].clamp(-1.0, 1.0),
            ActionSpace::Discrete { n } => action[0] * 2.0 / (n - 1) as f64 - 1.0,
        };
        self.x = 0.9 * self.x + 0.3 * push + 0.1 * self.noise.normal();
        obs.copy_from_slice(&[self.x, self.t as f64 / self.spec.max_steps as f64]);
        let reward = match self.bad {
            Some((step, value)) if step == self.t as u64 => value,
            _ => self.x,
        };
        let cost = if self.free { 0.0 } else { f64::from(self.x > 1.0) };
        let outcome = match self.x < -2.5 {
            true => Outcome::Terminated,
            false if self.t == self.spec.max_steps => Outcome::Truncated,
            false => Outcome::Running,
        };
        Ok(Step { reward, cost, outcome })
    }
}

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
