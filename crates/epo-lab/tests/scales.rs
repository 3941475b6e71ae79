//! Claim: EPO's decisions do not depend on the units of reward and cost.
//!
//! If all costs and the limit, or all rewards, are multiplied by a power of two, the policy stays
//! bit-identical. With other factors the numbers round differently, and training amplifies the difference from
//! epoch to epoch. So the weights of the cost are compared within 10⁻⁴ over a few epochs.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Walk, column, config, train};
use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Step};
use epo_lab::LabError;
use epo_lab::checkpoint;
use epo_lab::trained::{TrainedPolicy, write_env_spec};

/// An environment in other units of reward and cost.
struct Scaled(Walk, f64, f64);

impl Env for Scaled {
    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.0.reset(seed, obs)
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        let step = self.0.step(action, obs)?;
        Ok(Step { reward: step.reward * self.1, cost: step.cost * self.2, ..step })
    }
}

/// Returns the tensors of the policy, and the weights of the cost, of a run in other units.
fn run(dir: &Path, reward: f64, cost: f64) -> (BTreeMap<String, Vec<u8>>, Vec<f64>) {
    let make = move || -> Result<Box<dyn Env>, LabError> {
        Ok(Box::new(Scaled(Walk::new(ActionSpace::symmetric(1), 40), reward, cost)))
    };
    let limit = format!("run.limit={}", 4.0 * cost);
    train(dir, config(&[&limit]), &make).unwrap();
    let file =
        &checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).unwrap().files["tensors.safetensors"];
    let tensors = safetensors::SafeTensors::deserialize(file).unwrap();
    let policy = tensors.iter().filter(|(name, _)| name.starts_with("policy"));
    let weights = column(dir, "Penalty/CostWeight").iter().map(|w| w.parse().unwrap()).collect();
    (policy.map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect(), weights)
}

/// This test fails if a constant with a unit enters the update: a floor, an ε, a scale of advantages or of targets.
#[test]
fn a_run_in_other_units_makes_the_same_decisions() {
    let dir = tempfile::tempdir().unwrap();
    let one = run(&dir.path().join("one"), 1.0, 1.0);
    assert!(!one.0.is_empty() && one.1.iter().any(|w| *w > 0.1), "the penalty acts: {:?}", one.1);
    for (reward, cost) in [(1.0, 0.25), (1.0, 64.0), (8.0, 1.0), (0.125, 1.0)] {
        let other = run(&dir.path().join(format!("{reward} {cost}")), reward, cost);
        assert!(one == other, "rewards × {reward}, costs × {cost}: {:?} {:?}", one.1, other.1);
    }
    for (reward, cost) in [(1.0, 0.01), (1.0, 10.0), (1.0, 100.0), (10.0, 1.0)] {
        let other = run(&dir.path().join(format!("{reward} {cost}")), reward, cost);
        for (a, b) in one.1.iter().zip(&other.1) {
            assert!(
                (a - b).abs() <= 1e-4 * b.abs(),
                "rewards × {reward}, costs × {cost}: {:?} {:?}",
                one.1,
                other.1
            );
        }
    }
}

/// This test fails if the values of a trained policy are in the unit of its critics instead of that of the task.
#[test]
fn the_values_of_a_policy_are_in_the_units_of_its_task() {
    let dir = tempfile::tempdir().unwrap();
    let values = |name: &str, reward: f64, cost: f64| {
        let dir = dir.path().join(name);
        run(&dir, reward, cost);
        write_env_spec(&dir, Walk::new(ActionSpace::symmetric(1), 40).spec()).unwrap();
        TrainedPolicy::load(&dir).unwrap().values(&[0.5, 0.1])
    };
    let (one, other) = (values("one", 1.0, 1.0), values("other", 8.0, 4.0));
    let factors = [("reward", 8.0), ("cost", 4.0), ("cost_far", 16.0)]; // V_F is a square
    for ((name, factor), (a, b)) in factors.iter().zip(one.iter().zip(&other)) {
        assert!(a.0 == *name && b.0 == *name && a.1[0] != 0.0, "{a:?}");
        assert_eq!(b.1[0], factor * a.1[0], "{name}");
    }
}
