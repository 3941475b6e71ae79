//! Algorithms: advantage estimation, surrogates, and one file per algorithm.
//!
//! ```text
//! Rollout ──Estimator::estimate──▶ Batch ──Algorithm::update(&mut Agent, CostReading)──▶ UpdateReport
//! ```
//!
//! A first-order method gives its loss and `∂L/∂ ln π` ([`Objective`]); [`FirstOrder`] makes the passes over minibatches
//! and stops at the KL bound. [`AlgoSpec`] is the description of an algorithm, in the algorithm's own file.
//! [`AlgoConfig`] lists all of them. `docs/algorithms.md` compares them; `docs/epo.md` maps the EPO paper to this code.

mod agent;
mod appo;
mod auto;
mod batch;
mod config;
mod context;
mod cpo;
mod critics;
mod dual;
mod epo;
mod epo_literal;
mod epo_released;
mod first_order;
mod gae;
mod ipo;
mod legacy;
mod objective;
mod p3o;
pub mod pmn;
mod ppo;
mod ppo_lag;
pub mod report;
mod schedule;
mod surrogate;
mod trust_region;

pub use agent::{Agent, CostCritic, Critic, LoadError, NamedTensor, SignalScale, SignalScales};
pub use appo::{Appo, AppoParams};
pub use batch::{Batch, Discount, Estimate, Estimator, Lane, Rollout};
pub use config::{AlgoConfig, AlgoInfo, AlgoSpec, CriticTraining, Method};
pub use cpo::{Cpo, CpoParams, Dual};
pub use dual::Multiplier;
pub use epo::{Epo, EpoParams, Pmn, QuadStream};
pub use epo_literal::{CostTargets, EpoLiteral, EpoLiteralParams, ViolationUnit};
pub use epo_released::{EpoReleased, EpoReleasedParams};
pub use first_order::{FirstOrder, KlDirection, UpdateConfig};
pub use gae::gae;
pub use ipo::{Ipo, IpoParams};
pub use legacy::{has_old_penalty, is_checkpoint_of, modernise};
pub use objective::{Algorithm, Epoch, Minibatch, Objective, RestoreError, UpdateError, UpdateReport};
pub use p3o::{P3o, P3oParams};
pub use pmn::Smooth;
pub use ppo::{Ppo, PpoParams};
pub use ppo_lag::{PpoLag, PpoLagParams};
pub use surrogate::{CostClip, add_cost_gradient, clipped_surrogate, cost_surrogate};
