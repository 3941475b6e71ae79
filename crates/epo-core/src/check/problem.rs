//! What can be wrong with an environment, and how it is told.

use crate::EnvError;

/// Something that an environment does wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The spec promises something impossible; says what.
    Spec(String),
    /// A call failed on valid input.
    Failed {
        /// `reset` or `step`, and where.
        call: String,
        /// What it said.
        error: EnvError,
    },
    /// Part of the observation is never written.
    ObservationNotWritten {
        /// `reset` or `step`.
        call: &'static str,
        /// The first such entry.
        entry: usize,
    },
    /// An observation, a reward or a cost is NaN or infinite.
    NotFinite {
        /// Which one.
        what: String,
        /// Step of the episode; 0 is the reset.
        step: usize,
        /// Its value.
        value: f64,
    },
    /// A cost below 0.
    NegativeCost {
        /// Step of the episode.
        step: usize,
        /// Its value.
        cost: f64,
    },
    /// `cost_terms` has another length than the names in the spec.
    CostTerms {
        /// Terms given.
        got: usize,
        /// Names in the spec.
        want: usize,
    },
    /// Two episodes with the same seed and actions differ.
    NotDeterministic {
        /// The first step that differs; 0 is the reset.
        step: usize,
        /// What was done in between.
        how: Replay,
    },
    /// Every full-length episode says `Terminated` in its last allowed step.
    TimeLimitTerminates,
    /// An episode has more steps than the spec allows.
    TooLong {
        /// Steps allowed.
        max_steps: usize,
    },
    /// `step` is accepted after the episode has ended, or before the first reset.
    StepsWithoutEpisode {
        /// When.
        when: &'static str,
    },
    /// An action that must be refused is accepted.
    AcceptsBadAction {
        /// What is wrong with it.
        kind: &'static str,
    },
    /// A call panicked.
    Panicked {
        /// Which.
        call: String,
    },
}

/// How an episode was played a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// In a fresh environment.
    Fresh,
    /// In an environment that had played something else.
    AfterAnother,
    /// While a second environment was stepped in turns with it.
    Interleaved,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Spec(what) => write!(f, "its spec is impossible: {what}"),
            Self::Failed { call, error } => write!(f, "{call} fails on valid input: {error}"),
            Self::ObservationNotWritten { call, entry } => {
                write!(f, "{call} does not write entry {entry} of the observation")
            }
            Self::NotFinite { what, step, value } => write!(f, "{what} is {value} at step {step}"),
            Self::NegativeCost { step, cost } => {
                write!(f, "the cost is {cost} at step {step}; costs are never negative")
            }
            Self::CostTerms { got, want } => {
                write!(f, "it gives {got} cost terms, its spec names {want}")
            }
            Self::NotDeterministic { step, how } => {
                let how = match how {
                    Replay::Fresh => "in two fresh environments; draw every random number from the seed",
                    Replay::AfterAnother => "after another episode; reset must forget everything",
                    Replay::Interleaved => "when a second environment runs beside it; they share state",
                };
                write!(f, "the same seed and actions part at step {step} {how}")
            }
            Self::TimeLimitTerminates => write!(
                f,
                "every episode terminates in its last allowed step: report Truncated at a time limit, \
                 or the value of what follows is learnt as 0"
            ),
            Self::TooLong { max_steps } => write!(f, "an episode goes on after its {max_steps} steps"),
            Self::StepsWithoutEpisode { when } => write!(f, "step is accepted {when}; return NeedsReset"),
            Self::AcceptsBadAction { kind } => {
                write!(f, "it accepts an action {kind}; refuse it with ActionSpace::check")
            }
            Self::Panicked { call } => write!(f, "{call} panics; return an EnvError"),
        }
    }
}
