//! The interface of an environment. All tasks implement it; users implement it for their own environments.

/// An environment: a constrained Markov decision process that advances by one action at a time.
///
/// An episode must depend only on its seed and its actions: [`reset`](Env::reset) discards all earlier state. Runs
/// are then reproducible, and a run can resume although environments do not save their state.
pub trait Env: Send {
    /// Returns the sizes and names of this environment. The result must be the same for every call.
    fn spec(&self) -> &EnvSpec;

    /// Starts an episode with this `seed` and writes its first observation to `obs`.
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError>;

    /// Performs one action, writes the next observation to `obs`, and returns reward, cost and outcome.
    ///
    /// A discrete action is one number, the index of the action. After an error, `reset` must be called before the
    /// next step.
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError>;

    /// Returns the parts of the cost of the last step, in the order of [`EnvSpec::cost_terms`].
    fn cost_terms(&self) -> &[f64] {
        &[]
    }
}

/// The result of a step, without the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Reward of the step.
    pub reward: f64,
    /// Cost of the step; at least 0.
    pub cost: f64,
    /// Whether the episode continues, terminated or was truncated.
    pub outcome: Outcome,
}

/// Whether an episode continues, terminated or was truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The episode continues.
    #[default]
    Running,
    /// The episode reached a terminal state, whose value is 0.
    Terminated,
    /// A time limit ended the episode. Value estimates bootstrap from the final observation.
    Truncated,
}

impl Outcome {
    /// Returns true if the episode has ended, by termination or truncation.
    pub const fn is_done(self) -> bool {
        !matches!(self, Self::Running)
    }
}

/// The set of actions that an environment accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpace {
    /// Continuous actions: vectors with a lower and an upper bound per entry.
    Box {
        /// Lower bound of each entry.
        low: Vec<f64>,
        /// Upper bound of each entry.
        high: Vec<f64>,
    },
    /// Discrete actions: an action is an index from 0 to `n − 1`, passed as one number.
    Discrete {
        /// Number of actions.
        n: usize,
    },
}

impl ActionSpace {
    /// Returns the box [−1, 1]ⁿ.
    pub fn symmetric(n: usize) -> Self {
        Self::Box { low: vec![-1.0; n], high: vec![1.0; n] }
    }

    /// Returns the length of the action slice that [`Env::step`] expects.
    pub fn len(&self) -> usize {
        match self {
            Self::Box { low, .. } => low.len(),
            Self::Discrete { .. } => 1,
        }
    }

    /// Returns true if an action has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an error if the action has the wrong length, contains NaN or infinity, or is not a valid index.
    ///
    /// Values outside the bounds of a box are not an error. Environments clip them, like the published environments.
    pub fn check(&self, action: &[f64]) -> Result<(), EnvError> {
        if action.len() != self.len() {
            return Err(EnvError::ActionLength { got: action.len(), want: self.len() });
        }
        if let Some(index) = action.iter().position(|a| !a.is_finite()) {
            return Err(EnvError::ActionNotFinite { index, value: action[index] });
        }
        match self {
            Self::Discrete { n } if action[0] < 0.0 || action[0] >= *n as f64 || action[0].fract() != 0.0 => {
                Err(EnvError::NoSuchAction { got: action[0], n: *n })
            }
            _ => Ok(()),
        }
    }
}

/// Name, sizes and time limit of an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// Task id, such as `SafetyPointGoal1-v0`.
    pub id: String,
    /// Number of entries of an observation.
    pub obs_len: usize,
    /// Action space.
    pub action: ActionSpace,
    /// Maximum number of steps of an episode.
    pub max_steps: usize,
    /// Names of the parts of the cost. Empty if the cost is not split into parts.
    pub cost_terms: Vec<String>,
}

/// An error of an environment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// The action has the wrong length.
    #[error("the action has {got} entries, the environment takes {want}")]
    ActionLength {
        /// Number of entries passed.
        got: usize,
        /// Number of entries expected.
        want: usize,
    },
    /// The action contains NaN or infinity.
    #[error("entry {index} of the action is {value}")]
    ActionNotFinite {
        /// Index of the entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// The discrete action is not one of the integers from 0 to `n − 1`.
    #[error("there is no action {got}; an action is an integer from 0 up to, but not including, {n}")]
    NoSuchAction {
        /// The number passed.
        got: f64,
        /// Number of actions.
        n: usize,
    },
    /// `step` was called before `reset`, or after the episode had ended.
    #[error("the episode has ended or has not started; call reset first")]
    NeedsReset,
    /// The seed is too large for the random number generator of the environment.
    #[error(
        "seed {seed} is too large: this task draws from NumPy's legacy generator, whose seeds are below 2³²"
    )]
    SeedTooLarge {
        /// The seed passed.
        seed: u64,
    },
    /// The objects of a task do not fit into its arena.
    #[error(
        "no layout found for {task}: {placed} of {wanted} objects placed in the best of {tries} attempts"
    )]
    Layout {
        /// Task id.
        task: String,
        /// Number of attempts.
        tries: usize,
        /// Largest number of objects placed in one attempt.
        placed: usize,
        /// Number of objects to place.
        wanted: usize,
    },
    /// An observation, a reward or a cost is NaN or infinite.
    #[error("{what} is {value}")]
    NotFinite {
        /// Name of the value, such as `the reward`.
        what: String,
        /// The value: NaN or infinity.
        value: f64,
    },
    /// The environment's code panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Any other error, with a message from the environment.
    #[error("{0}")]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_checked_for_length_finiteness_and_range() {
        let boxed = ActionSpace::symmetric(2);
        assert_eq!(boxed.check(&[0.5, -7.0]), Ok(()), "values outside the box are clipped, not refused");
        assert_eq!(boxed.check(&[0.5]), Err(EnvError::ActionLength { got: 1, want: 2 }));
        assert!(matches!(boxed.check(&[0.0, f64::NAN]), Err(EnvError::ActionNotFinite { index: 1, .. })));
        let discrete = ActionSpace::Discrete { n: 3 };
        assert_eq!(discrete.check(&[2.0]), Ok(()));
        for bad in [-1.0, 3.0, 0.5] {
            assert_eq!(discrete.check(&[bad]), Err(EnvError::NoSuchAction { got: bad, n: 3 }));
        }
    }
}
