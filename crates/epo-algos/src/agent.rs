//! The agent that is trained: a policy, a reward critic, and the cost critics of the algorithm, each with its optimiser.

use std::collections::BTreeMap;

use epo_core::{ActionSpace, Purpose, Stream};
use epo_nn::{Adam, Mlp, Policy};
use serde::{Deserialize, Serialize};

/// The kind of a cost critic: the quantity that it estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostCritic {
    /// The expected discounted cost `V`.
    Value,
    /// `u` with `V_F = u²` (the far critic of EPO). `√V_F = |u|` is trained towards the same targets as `V`.
    Root,
    /// `V` with the targets `max(c + γV' − d, 0)`: the near critic as the EPO paper prints it.
    AboveLimit,
    /// `u` with `u² = V_F`, trained towards those targets: the far critic as the EPO paper prints it.
    RootAboveLimit,
    /// The variance of the discounted cost return, computed from `V` of the first cost critic (EPO's released code).
    Variance,
}

impl CostCritic {
    /// Whether the output of the network is the root `u` of the value `u²`.
    pub fn is_root(self) -> bool {
        matches!(self, Self::Root | Self::RootAboveLimit)
    }

    /// Returns the unit of this critic's value, given the unit `cost` of a discounted sum of costs.
    fn scaled(self, cost: f64) -> f64 {
        match self {
            Self::Value | Self::Root | Self::AboveLimit | Self::RootAboveLimit => cost,
            Self::Variance => cost * cost,
        }
    }
}

/// A value network with its optimiser.
#[derive(Clone, Debug)]
pub struct Critic {
    /// Network with one output.
    pub net: Mlp,
    /// Optimiser.
    pub adam: Adam,
}

/// Running scale of the discounted sums of a signal, the reward or the cost.
///
/// Critics learn values in this unit, so that learning does not depend on the unit of the signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignalScale {
    /// Running mean of the squared discounted sums.
    mean_square: f64,
    /// Number of epochs in the mean, at most 20.
    epochs: u32,
}

impl SignalScale {
    /// The unit: the root of the running mean square. It is 1 as long as every reward or cost was 0.
    pub fn unit(&self) -> f64 {
        if self.mean_square > 0.0 { self.mean_square.sqrt() } else { 1.0 }
    }

    /// Adds the mean square of an epoch. Returns the old unit divided by the new one; 1 if there is no old unit.
    ///
    /// The running mean is the plain mean of the first 20 epochs, and exponential after that.
    pub fn add(&mut self, mean_square: f64) -> f64 {
        let old = (self.mean_square > 0.0).then(|| self.unit());
        self.epochs = (self.epochs + 1).min(20);
        self.mean_square += (mean_square - self.mean_square) / f64::from(self.epochs);
        old.map_or(1.0, |old| old / self.unit())
    }
}

/// The scales of reward and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalScales {
    /// Scale of the reward.
    pub reward: SignalScale,
    /// Scale of the cost.
    pub cost: SignalScale,
}

/// Policy and critics with their optimisers.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The policy.
    pub policy: Policy,
    /// Optimiser of the policy.
    pub policy_adam: Adam,
    /// Critic of the reward.
    pub critic_r: Critic,
    /// Cost critics, in the order of `cost_kinds`.
    pub critics_c: Vec<Critic>,
    /// Kind of each cost critic.
    pub cost_kinds: Vec<CostCritic>,
    /// Units of the critics. `None`: the critics learn values in the units of the task.
    pub scales: Option<SignalScales>,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor<'a> {
    /// Name, such as `policy.0.weight` or `critic_r.adam.m`.
    pub name: String,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// Entries in row-major order.
    pub data: &'a [f32],
}

/// The error of loading a checkpoint whose tensors do not match the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A tensor or a counter is missing.
    #[error("the checkpoint has no {0}")]
    Missing(String),
    /// A tensor has a different number of entries.
    #[error("{name} has {got} entries in the checkpoint, the agent needs {want}")]
    Size {
        /// Name of the tensor.
        name: String,
        /// Number of entries in the checkpoint.
        got: usize,
        /// Number of entries in the agent.
        want: usize,
    },
}

impl Agent {
    /// A new agent. Each network is initialised from its own random stream, so a seed gives the
    /// same policy for every algorithm.
    pub fn new(
        obs_len: usize,
        action: &ActionSpace,
        hidden_actor: &[usize],
        hidden_critic: &[usize],
        cost_kinds: &[CostCritic],
        seed: u64,
    ) -> Self {
        let policy = Policy::new(obs_len, hidden_actor, action, &mut Stream::new(seed, Purpose::Init, 0));
        let sizes = [&[obs_len], hidden_critic, &[1]].concat();
        let critic = |index: usize| {
            let net = Mlp::new(&sizes, &mut Stream::new(seed, Purpose::Init, index as u32));
            Critic { adam: Adam::new(net.params().len()), net }
        };
        Self {
            policy_adam: Adam::new(policy.params().len()),
            policy,
            critic_r: critic(1),
            critics_c: (0..cost_kinds.len()).map(|k| critic(2 + k)).collect(),
            cost_kinds: cost_kinds.to_vec(),
            scales: Some(SignalScales::default()),
        }
    }

    /// Units in which the critics learn: that of the reward, then those of the cost critics.
    pub fn units(&self) -> Vec<f64> {
        let SignalScales { reward, cost } = self.scales.unwrap_or_default();
        let cost_units = self.cost_kinds.iter().map(|kind| kind.scaled(cost.unit()));
        std::iter::once(reward.unit()).chain(cost_units).collect()
    }

    /// Adds the mean squares of the discounted sums of an epoch to the scales. The output layers of
    /// the critics are rescaled, so that their values in the units of the task stay the same.
    /// Numbers that are not finite change nothing.
    pub fn rescale(&mut self, reward: f64, cost: f64) {
        let Some(scales) = &mut self.scales else { return };
        if !(reward.is_finite() && cost.is_finite()) {
            return;
        }
        let (reward, cost) = (scales.reward.add(reward), scales.cost.add(cost));
        self.critic_r.net.scale_outputs(reward as f32);
        for (critic, kind) in self.critics_c.iter_mut().zip(&self.cost_kinds) {
            critic.net.scale_outputs(kind.scaled(cost) as f32);
        }
    }

    /// Returns the name, tensors, parameters and optimiser of each network, in order.
    fn parts(&self) -> Vec<(String, Vec<epo_nn::Tensor>, &[f32], &Adam)> {
        let critics = [("critic_r".to_owned(), &self.critic_r)].into_iter();
        let critics =
            critics.chain(self.critics_c.iter().enumerate().map(|(k, c)| (format!("critic_c{k}"), c)));
        let policy = ("policy".to_owned(), self.policy.tensors(), self.policy.params(), &self.policy_adam);
        [policy]
            .into_iter()
            .chain(critics.map(|(n, c)| (n, c.net.tensors(), c.net.params(), &c.adam)))
            .collect()
    }

    /// Returns every tensor of a checkpoint: the parameters layer by layer, and both moments of every
    /// optimiser.
    pub fn tensors(&self) -> Vec<NamedTensor<'_>> {
        let mut out = Vec::new();
        for (net, tensors, params, adam) in self.parts() {
            for t in tensors {
                out.push(NamedTensor {
                    name: format!("{net}.{}", t.name),
                    shape: t.shape,
                    data: &params[t.range],
                });
            }
            for (moment, data) in [("m", adam.m()), ("v", adam.v())] {
                out.push(NamedTensor { name: format!("{net}.adam.{moment}"), shape: vec![data.len()], data });
            }
        }
        out
    }

    /// Returns the number of steps of each optimiser, by name. Tensors and counters are the whole state of the
    /// agent.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.parts().into_iter().map(|(net, _, _, adam)| (format!("{net}.adam.t"), adam.t())).collect()
    }

    /// Restores what [`tensors`](Self::tensors) and [`counters`](Self::counters) returned. On an error nothing changes.
    pub fn load<'a>(
        &mut self,
        tensor: impl Fn(&str) -> Option<&'a [f32]>,
        counters: &BTreeMap<String, u64>,
    ) -> Result<(), LoadError> {
        let mut loaded = self.clone();
        loaded.policy.set_params(&read(&tensor, "policy", &self.policy.tensors())?);
        read_adam(&mut loaded.policy_adam, &tensor, "policy", counters)?;
        let names = (0..self.critics_c.len()).map(|k| format!("critic_c{k}"));
        let names: Vec<String> = std::iter::once("critic_r".to_owned()).chain(names).collect();
        for (critic, name) in std::iter::once(&mut loaded.critic_r).chain(&mut loaded.critics_c).zip(&names) {
            let params = read(&tensor, name, &critic.net.tensors())?;
            critic.net.set_params(&params);
            read_adam(&mut critic.adam, &tensor, name, counters)?;
        }
        *self = loaded;
        Ok(())
    }
}

/// Finds a tensor and checks its size.
fn fetch<'a>(
    tensor: impl Fn(&str) -> Option<&'a [f32]>,
    name: String,
    want: usize,
) -> Result<&'a [f32], LoadError> {
    match tensor(&name) {
        None => Err(LoadError::Missing(name)),
        Some(data) if data.len() != want => Err(LoadError::Size { name, got: data.len(), want }),
        Some(data) => Ok(data),
    }
}

/// Reads the parameters of a network as one vector.
fn read<'a>(
    tensor: &impl Fn(&str) -> Option<&'a [f32]>,
    net: &str,
    parts: &[epo_nn::Tensor],
) -> Result<Vec<f32>, LoadError> {
    let mut flat = Vec::new();
    for part in parts {
        flat.extend_from_slice(fetch(tensor, format!("{net}.{}", part.name), part.range.len())?);
    }
    Ok(flat)
}

fn read_adam<'a>(
    adam: &mut Adam,
    tensor: &impl Fn(&str) -> Option<&'a [f32]>,
    net: &str,
    counters: &BTreeMap<String, u64>,
) -> Result<(), LoadError> {
    let n = adam.m().len();
    let m = fetch(tensor, format!("{net}.adam.m"), n)?;
    let v = fetch(tensor, format!("{net}.adam.v"), n)?;
    let t = format!("{net}.adam.t");
    let steps = *counters.get(&t).ok_or(LoadError::Missing(t))?;
    adam.restore(m, v, steps);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(seed: u64) -> Agent {
        let mut agent = Agent::new(
            3,
            &ActionSpace::symmetric(2),
            &[8],
            &[4],
            &[CostCritic::Value, CostCritic::Root],
            seed,
        );
        let grad: Vec<f32> =
            (0..agent.policy.params().len()).map(|i| (i as f32 * 0.37 + seed as f32).sin()).collect();
        agent.policy.update(|p| agent.policy_adam.step(p, &grad, 1e-3));
        agent
    }

    #[test]
    fn tensors_and_counters_are_the_whole_state() {
        let (saved, mut other) = (agent(1), agent(2));
        assert_ne!(saved.tensors(), other.tensors());
        let tensors = saved.tensors();
        let find = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.data);
        other.load(find, &saved.counters()).unwrap();
        assert_eq!(saved.tensors(), other.tensors());
        assert_eq!(saved.counters(), other.counters());
        assert_eq!(saved.counters()["policy.adam.t"], 1);
        assert_eq!(saved.policy.std(), other.policy.std());
        assert!(tensors.iter().all(|t| t.shape.iter().product::<usize>() == t.data.len()));
        let names: std::collections::BTreeSet<_> = tensors.iter().map(|t| &t.name).collect();
        assert_eq!(names.len(), tensors.len(), "two tensors have the same name");
    }

    #[test]
    fn a_missing_tensor_or_one_of_another_size_is_named_and_nothing_changes() {
        let (saved, mut other) = (agent(1), agent(2));
        let before = other.clone();
        let tensors = saved.tensors();
        let without = |gone: &'static str| {
            let tensors = &tensors;
            move |name: &str| tensors.iter().find(|t| t.name == name && name != gone).map(|t| t.data)
        };
        let error = other.load(without("critic_c1.adam.v"), &saved.counters());
        assert_eq!(error, Err(LoadError::Missing("critic_c1.adam.v".into())));
        let short =
            |name: &str| without("")(name).map(|d| if name == "policy.log_std" { &d[..1] } else { d });
        let error = other.load(short, &saved.counters());
        assert_eq!(error, Err(LoadError::Size { name: "policy.log_std".into(), got: 1, want: 2 }));
        assert_eq!(other.tensors(), before.tensors());
    }

    #[test]
    fn the_policy_of_a_seed_does_not_depend_on_the_algorithm() {
        let with = |kinds| Agent::new(3, &ActionSpace::symmetric(2), &[8], &[4], kinds, 7);
        let (a, b) = (with(&[]), with(&[CostCritic::Value]));
        assert_eq!(a.policy.params(), b.policy.params());
        assert_eq!(a.critic_r.net.params(), b.critic_r.net.params());
        assert_ne!(b.critic_r.net.params(), b.critics_c[0].net.params());
    }
}
