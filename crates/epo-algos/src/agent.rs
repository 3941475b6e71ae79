//! What is trained: a policy, a reward critic and the cost critics that the algorithm asks for, with their
//! optimisers.

use std::collections::BTreeMap;

use epo_core::{ActionSpace, Purpose, Stream};
use epo_nn::{Adam, Mlp, Policy};

/// What a cost critic estimates, and how its advantage is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostStream {
    /// `V`: expected discounted cost.
    Value,
    /// `u` with `V_F = u²` (EPO's far critic): `√V_F = |u|` is compared with the same, linear, targets.
    Root,
    /// Variance of the discounted cost return, from the first stream's `V` (EPO's released code).
    Variance,
}

/// A value network with its optimiser.
#[derive(Clone, Debug)]
pub struct Critic {
    /// One output.
    pub net: Mlp,
    /// Its moments.
    pub adam: Adam,
}

/// Policy and critics.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The policy.
    pub policy: Policy,
    /// The policy's moments.
    pub policy_adam: Adam,
    /// Value of the reward.
    pub critic_r: Critic,
    /// Cost critics, in the order of the algorithm's streams.
    pub critics_c: Vec<Critic>,
    /// What each cost critic estimates.
    pub streams: Vec<CostStream>,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor<'a> {
    /// `policy.0.weight`, `critic_r.adam.m`, …
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers.
    pub data: &'a [f32],
}

/// A checkpoint lacks something, or has it in another size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not there.
    #[error("the checkpoint has no {0}")]
    Missing(String),
    /// Another number of entries.
    #[error("{name} has {got} entries in the checkpoint, the agent needs {want}")]
    Size {
        /// Which tensor.
        name: String,
        /// In the checkpoint.
        got: usize,
        /// In the agent.
        want: usize,
    },
}

impl Agent {
    /// A fresh agent. Each network draws from a stream of its own, so the policy of a seed is the same for
    /// every algorithm.
    pub fn new(
        obs_len: usize,
        action: &ActionSpace,
        hidden_actor: &[usize],
        hidden_critic: &[usize],
        streams: &[CostStream],
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
            critics_c: (0..streams.len()).map(|k| critic(2 + k)).collect(),
            streams: streams.to_vec(),
        }
    }

    /// Names of the networks, in order, with their parts.
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

    /// Every tensor that a checkpoint needs: parameters layer by layer, and both moments of every optimiser.
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

    /// Steps that each optimiser has made, by name: with the tensors, the agent's whole state.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.parts().into_iter().map(|(net, _, _, adam)| (format!("{net}.adam.t"), adam.t())).collect()
    }

    /// Takes back what [`tensors`](Self::tensors) and [`counters`](Self::counters) gave. On an error nothing
    /// has changed.
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

/// One tensor of the right size.
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

/// Flat parameters of a network.
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
            &[CostStream::Value, CostStream::Root],
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
        assert_eq!(names.len(), tensors.len(), "a name twice");
    }

    #[test]
    fn a_missing_or_misshapen_tensor_is_named_and_changes_nothing() {
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
        let with = |streams| Agent::new(3, &ActionSpace::symmetric(2), &[8], &[4], streams, 7);
        let (a, b) = (with(&[]), with(&[CostStream::Value]));
        assert_eq!(a.policy.params(), b.policy.params());
        assert_eq!(a.critic_r.net.params(), b.critic_r.net.params());
        assert_ne!(b.critic_r.net.params(), b.critics_c[0].net.params());
    }
}
