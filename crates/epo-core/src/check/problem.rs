//! The problems that the environment checker can find, and their messages.

use crate::EnvError;

/// A rule of [`Env`](crate::Env) that an environment breaks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The spec contains an impossible value. The text says which one.
    Spec(String),
    /// A call returns an error although its input is valid.
    Failed {
        /// The call: `reset` with its seed, or `step` with its number and action.
        call: String,
        /// The error that the call returned.
        error: EnvError,
    },
    /// A call does not write all entries of the observation.
    ObservationNotWritten {
        /// `reset` or `step`.
        call: &'static str,
        /// Index of the first entry that is not written.
        entry: usize,
    },
    /// An observation, a reward or a cost is NaN or infinite.
    NotFinite {
        /// Name of the value, such as `the reward`.
        what: String,
        /// Step of the episode; 0 is the reset.
        step: usize,
        /// The value: NaN or infinity.
        value: f64,
    },
    /// A cost is negative.
    NegativeCost {
        /// Step of the episode.
        step: usize,
        /// The cost.
        cost: f64,
    },
    /// The length of `cost_terms` differs from the number of names in the spec.
    CostTerms {
        /// Number of terms that the environment returns.
        got: usize,
        /// Number of names in the spec.
        want: usize,
    },
    /// Two episodes with the same seed and actions differ.
    NotDeterministic {
        /// The first step that differs; 0 is the reset.
        step: usize,
        /// How the second episode was played.
        how: Replay,
    },
    /// Every episode reaches the time limit and then reports `Terminated` instead of `Truncated`.
    TimeLimitTerminates,
    /// An episode has more steps than the spec allows.
    TooLong {
        /// Maximum number of steps.
        max_steps: usize,
    },
    /// `step` succeeds after the end of an episode or before the first reset.
    StepsWithoutEpisode {
        /// `before the first reset` or `after the end of an episode`.
        when: &'static str,
    },
    /// `step` accepts an invalid action.
    AcceptsBadAction {
        /// Why the action is invalid, such as `with a NaN`.
        kind: &'static str,
    },
    /// A call panicked.
    Panicked {
        /// The call: `reset` or `step`, with its arguments.
        call: String,
    },
}

/// How the checker plays an episode a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// In a new environment.
    Fresh,
    /// In an environment that has already played other episodes.
    AfterAnother,
    /// While a second environment plays another episode; the steps of the two alternate.
    Interleaved,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Spec(what) => write!(f, "its spec is invalid: {what}"),
            Self::Failed { call, error } => write!(f, "{call} fails on valid input: {error}"),
            Self::ObservationNotWritten { call, entry } => {
                write!(f, "{call} does not write entry {entry} of the observation")
            }
            Self::NotFinite { what, step, value } => write!(f, "{what} is {value} at step {step}"),
            Self::NegativeCost { step, cost } => {
                write!(f, "the cost is {cost} at step {step}; costs are never negative")
            }
            Self::CostTerms { got, want } => {
                write!(f, "it returns {got} cost terms, but its spec names {want}")
            }
            Self::NotDeterministic { step, how } => {
                let how = match how {
                    Replay::Fresh => "in two fresh environments; draw every random number from the seed",
                    Replay::AfterAnother => "after another episode; reset must clear all state",
                    Replay::Interleaved => "when a second environment runs beside it; they share state",
                };
                write!(f, "the same seed and actions give different results at step {step} {how}")
            }
            Self::TimeLimitTerminates => write!(
                f,
                "every episode terminates in its last allowed step: report Truncated at a time limit, \
                 otherwise the critic learns the value 0 for the final state"
            ),
            Self::TooLong { max_steps } => write!(f, "an episode continues after its {max_steps} steps"),
            Self::StepsWithoutEpisode { when } => write!(f, "step is accepted {when}; return NeedsReset"),
            Self::AcceptsBadAction { kind } => {
                write!(f, "it accepts an action {kind}; refuse it with ActionSpace::check")
            }
            Self::Panicked { call } => write!(f, "{call} panics; return an EnvError"),
        }
    }
}
