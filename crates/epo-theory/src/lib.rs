//! Tabular constrained MDPs with exact optima, and the paper's theorems as checks.
//!
//! ```text
//! max_π J_R(π)  s.t.  J_Ci(π) ≤ d_i          linear in the occupancy measure x(s,a) = Σ_t γᵗ P(s_t = s, a_t = a)
//! P(π, μ) = J_R(π) − (1/μ) Σ_i Φ(F_i⁺),      F_i = J_Ci(π) − d_i,   Φ(y) = α y + (1−α) y²
//! ```
//! - [`Cmdp`]: states, actions, rewards, costs, limits. [`stories`] has some with a plot, [`RandomCmdp`] the rest.
//! - [`optimum`] and [`penalised`]: the exact solutions, by linear and quadratic programming.
//! - [`front`]: reward against limit, by policy iteration: a second method that shares no code with the first.
//! - [`TabularEnv`]: the same CMDP as an ordinary [`epo_core::Env`], for learners.
//! - [`checks`]: the paper's statements on hundreds of random CMDPs. [`figures`]: pictures of them.
//!
//! Units: the paper's F_R is (1−γ)(J_R(π) − J_R(π_k)). Here P is in units of J_R, so μ here is (1−γ) μ of the paper.

pub mod checks;
mod cmdp;
mod env;
pub mod figures;

mod front;
mod linear;
mod optimum;
pub mod penalty;
mod policy;
mod random;
pub mod stories;

pub use cmdp::{Cmdp, CmdpError};
pub use env::TabularEnv;
pub use front::{Front, FrontPoint, best_response, front};
pub use optimum::{Optimum, SolveError, least_excess, optimum, penalised};
pub use policy::{Evaluation, Policy};
pub use random::RandomCmdp;
