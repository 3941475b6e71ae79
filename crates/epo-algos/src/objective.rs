//! The two traits of this crate, [`Objective`] and [`Algorithm`], and the types in their signatures.

use std::borrow::Cow;

use epo_core::{CostReading, Metric};
use serde_json::Value;

use crate::{Agent, Batch, KlDirection};

/// The samples on which a loss is computed. All slices have one entry per sample.
#[derive(Clone, Copy, Debug)]
pub struct Minibatch<'a> {
    /// `ln π(a|s)` of the policy that is being updated.
    pub logp: &'a [f64],
    /// `ln π_old(a|s)` of the policy that acted.
    pub logp_old: &'a [f64],
    /// Reward advantages, standardised.
    pub adv_r: &'a [f64],
    /// Cost advantages, centred; one vector per cost critic of the algorithm ([`crate::AlgoConfig::cost_critics`]).
    pub adv_c: &'a [Vec<f64>],
}

impl Minibatch<'_> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.logp.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.logp.is_empty()
    }

    /// `ρ = π/π_old` of sample `i`.
    pub fn ratio(&self, i: usize) -> f64 {
        (self.logp[i] - self.logp_old[i]).exp()
    }
}

/// The loss of a first-order method; [`crate::FirstOrder`] minimises it.
///
/// Every loss of the PPO family depends on the parameters only through `ln π(a_i|s_i)`. So an algorithm gives the loss
/// and its derivative with respect to those numbers, and nothing else.
pub trait Objective: std::fmt::Debug + Send + Sync {
    /// Called once per epoch, before the first pass. Multipliers and penalty factors change here.
    fn begin(&mut self, cost: CostReading);

    /// Called before each pass with the whole batch; `logp` is that of the current policy.
    ///
    /// A loss that is not linear in an expectation computes its coefficient here, because an estimate from one
    /// minibatch would be biased.
    fn begin_pass(&mut self, _whole: &Minibatch<'_>) {}

    /// Whether [`begin_pass`](Self::begin_pass) reads `logp`. If it does not, and there is no KL stop, the policy is
    /// not evaluated on the whole batch between passes.
    fn reads_current_logp(&self) -> bool {
        false
    }

    /// The divergence of the KL stop, if the algorithm requires one. Otherwise it is `train.kl_direction`.
    fn kl_direction(&self) -> Option<KlDirection> {
        None
    }

    /// Returns the loss to minimise, and overwrites `dlogp` with `∂L/∂logp_i`.
    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64;

    /// The algorithm's own metrics with their values for this epoch.
    fn report(&self) -> Vec<(Metric, f64)>;

    /// The training state for a checkpoint: the numbers that [`begin`](Self::begin) changes and the next epoch needs.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Restores the state that [`state`](Self::state) returned.
    fn restore(&mut self, _state: &Value) -> Result<(), RestoreError> {
        Ok(())
    }
}

/// A method that improves an agent from a batch.
pub trait Algorithm: std::fmt::Debug + Send {
    /// Updates the agent for one epoch. It runs on the current rayon pool.
    fn update(
        &mut self,
        agent: &mut Agent,
        batch: &Batch<'_>,
        cost: CostReading,
        epoch: Epoch,
    ) -> Result<UpdateReport, UpdateError>;

    /// Every metric that [`update`](Self::update) reports, in its order: the columns of `progress.csv`.
    fn metrics(&self) -> Vec<Metric>;

    /// The training state for a checkpoint: multipliers and penalty factors. The networks belong to the agent.
    fn state(&self) -> Value;

    /// Restores the state that [`state`](Self::state) returned; the next update is then bit-identical.
    fn restore(&mut self, state: &Value) -> Result<(), RestoreError>;
}

/// The position of an update in its run. It decides the order of the minibatches and the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Number of the epoch, from 0.
    pub index: u32,
    /// Number of epochs of the run.
    pub total: u32,
    /// Seed of the run.
    pub seed: u64,
}

impl Epoch {
    /// Returns `1 − index/total`, the factor of a learning rate that decays linearly to 0.
    pub fn remaining(self) -> f64 {
        1.0 - f64::from(self.index) / f64::from(self.total.max(1))
    }
}

/// The metrics of an update, in a fixed order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct UpdateReport {
    /// Metrics and values.
    pub values: Vec<(Metric, f64)>,
}

impl UpdateReport {
    /// Returns the value of a metric, if it was reported.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.iter().find(|(m, _)| *m == metric).map(|(_, v)| *v)
    }
}

/// The reason why an update stopped. The parameters are those after the last step that was finite.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// A number that should be finite is not. No parameter has been updated with it.
    #[error("{what} is {value} ({place})")]
    NotFinite {
        /// Name of the quantity.
        what: Cow<'static, str>,
        /// Its value: NaN or an infinity.
        value: f64,
        /// Place in the update: sample, pass and minibatch.
        place: String,
    },
    /// A setting is invalid.
    #[error("{key} = {value}: {reason}")]
    Config {
        /// Key of the setting, such as `algo.clip`.
        key: &'static str,
        /// Value that was given.
        value: f64,
        /// Rule that the value breaks.
        reason: &'static str,
    },
}

impl UpdateError {
    /// Returns an error if a value is not finite. The error contains the index of the first such
    /// value.
    pub fn check(what: &'static str, values: &[f64]) -> Result<(), Self> {
        match values.iter().position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(i) => {
                Err(Self::NotFinite { what: what.into(), value: values[i], place: format!("sample {i}") })
            }
        }
    }
}

/// The state in a checkpoint does not fit the algorithm.
#[derive(Debug, thiserror::Error)]
#[error("the saved state of the algorithm does not fit: {0}")]
pub struct RestoreError(pub String);

/// Reads a state that was written with serde.
pub(crate) fn from_state<T: serde::de::DeserializeOwned>(state: &Value) -> Result<T, RestoreError> {
    serde_json::from_value(state.clone()).map_err(|e| RestoreError(e.to_string()))
}

/// Writes a state with serde. A number that is not finite becomes null, which is refused on reading.
pub(crate) fn to_state<T: serde::Serialize>(state: &T) -> Value {
    serde_json::to_value(state).unwrap_or(Value::Null)
}
