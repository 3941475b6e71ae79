//! Tabular constrained MDPs (CMDPs) with exact solutions, and numerical checks of the theorems in the EPO paper.
//!
//! ```text
//! max_π J_R(π)  s.t.  J_Ci(π) ≤ d_i          linear in the occupancy measure x(s,a) = Σ_t γᵗ P(s_t = s, a_t = a)
//! P(π, μ) = J_R(π) − (1/μ) Σ_i Φ(F_i⁺),      F_i = J_Ci(π) − d_i,   Φ(y) = α y + (1−α) y²
//! ```
//! - [`Cmdp`]: states, actions, rewards, costs, limits. [`stories`] contains small examples with an interpretation,
//!   [`RandomCmdp`] generates random ones.
//! - [`optimum`] and [`penalised`]: exact solutions by linear and quadratic programming.
//! - [`front`]: the largest reward as a function of the limit, by policy iteration. It shares no code with the
//!   programs and therefore checks them independently.
//! - [`TabularEnv`]: a CMDP as an [`epo_core::Env`], so that algorithms can be trained on it.
//! - [`checks`]: checks the statements of the paper on hundreds of random CMDPs. [`figures`]: the figures.
//!
//! Units: the paper defines F_R as (1−γ)(J_R(π) − J_R(π_k)). This crate measures P in units of J_R. Its μ is
//! therefore (1−γ) times the μ of the paper.

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
pub use policy::{PolicyValues, TabularPolicy};
pub use random::RandomCmdp;
