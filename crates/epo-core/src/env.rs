//! One environment: the interface that every task implements, and that a user implements for an own one.

/// A constrained Markov decision process, stepped by actions.
///
/// An episode is a pure function of the seed and the actions: [`reset`](Env::reset) must forget everything that was
/// before it. That is what makes runs reproducible and resumable without an environment having to save its state.
pub trait Env: Send {
    /// Sizes and names; never changes.
    fn spec(&self) -> &EnvSpec;

    /// Starts the episode that `seed` names and writes its first observation.
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError>;

    /// Advances by one action and writes the observation that it led to.
    ///
    /// A discrete action is one number, the index of the action. An error leaves the episode unusable until the
    /// next reset.
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError>;

    /// The parts of the last step's cost, in the order of [`EnvSpec::cost_terms`].
    fn cost_terms(&self) -> &[f64] {
        &[]
    }
}

/// What a step returned beside the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Reward of the step.
    pub reward: f64,
    /// Cost of the step, never negative.
    pub cost: f64,
    /// Whether the episode goes on.
    pub outcome: Outcome,
}

/// Whether an episode goes on, and if not, whether the future after it is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The episode goes on.
    #[default]
    Running,
    /// A true end: the value of what follows is 0.
    Terminated,
    /// Cut off by a time limit: what follows has a value, and estimates bootstrap from the final observation.
    Truncated,
}

impl Outcome {
    /// Whether the episode is over.
    pub const fn is_done(self) -> bool {
        !matches!(self, Self::Running)
    }
}

/// The actions that an environment takes.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionSpace {
    /// A vector, each entry within its bounds.
    Box {
        /// Smallest values.
        low: Vec<f64>,
        /// Largest values.
        high: Vec<f64>,
    },
    /// One of `n` actions, passed as its index.
    Discrete {
        /// How many.
        n: usize,
    },
}

impl ActionSpace {
    /// The box [−1, 1]ⁿ.
    pub fn symmetric(n: usize) -> Self {
        Self::Box { low: vec![-1.0; n], high: vec![1.0; n] }
    }

    /// Length of the slice that [`Env::step`] takes.
    pub fn len(&self) -> usize {
        match self {
            Self::Box { low, .. } => low.len(),
            Self::Discrete { .. } => 1,
        }
    }

    /// Whether no action can be passed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses an action of the wrong length, with a NaN, or with an index that does not exist.
    ///
    /// Values outside a box are not an error: environments clip them as the published ones do.
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

/// What an environment promises about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// The id that users type.
    pub id: String,
    /// Length of an observation.
    pub obs_len: usize,
    /// Actions.
    pub action: ActionSpace,
    /// An episode never has more steps than this.
    pub max_steps: usize,
    /// Names of the parts of the cost; empty if it has none.
    pub cost_terms: Vec<String>,
}

/// Why an environment could not do what it was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// The action has the wrong length.
    #[error("the action has {got} entries, the environment takes {want}")]
    ActionLength {
        /// Entries passed.
        got: usize,
        /// Entries expected.
        want: usize,
    },
    /// The action holds NaN or an infinity.
    #[error("entry {index} of the action is {value}")]
    ActionNotFinite {
        /// Which entry.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// A discrete action that does not exist.
    #[error("there is no action {got}; actions are the whole numbers 0..{n}")]
    NoSuchAction {
        /// The number passed.
        got: f64,
        /// How many actions there are.
        n: usize,
    },
    /// `step` was called before `reset`, or after the episode had ended.
    #[error("the episode is over (or never began): call reset first")]
    NeedsReset,
    /// A seed that the environment's generator does not take.
    #[error(
        "seed {seed} is too large: this task draws from NumPy's legacy generator, whose seeds are below 2³²"
    )]
    SeedTooLarge {
        /// The seed.
        seed: u64,
    },
    /// The objects of a task do not fit into its arena.
    #[error(
        "no layout found for {task}: {placed} of {wanted} objects placed in the best of {tries} attempts"
    )]
    Layout {
        /// Task id.
        task: String,
        /// Attempts made.
        tries: usize,
        /// Most objects placed in one attempt.
        placed: usize,
        /// Objects to be placed.
        wanted: usize,
    },
    /// A number that should be finite is not.
    #[error("{what} is {value}")]
    NotFinite {
        /// Observation entry, reward, cost, …
        what: String,
        /// NaN or an infinity.
        value: f64,
    },
    /// The environment's code panicked.
    #[error("panicked: {0}")]
    Panicked(String),
    /// Anything else, in the environment's own words.
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
