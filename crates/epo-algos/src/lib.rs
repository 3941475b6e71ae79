//! What is learned from a batch: GAE, surrogates, and one file per algorithm.
//!
//! ```text
//! Rollout ─▶ Batch::estimate(&Agent) ─▶ Algorithm::update(&mut Agent, &Batch, CostReading) ─▶ UpdateReport
//! ```
//!
//! A first-order method states its loss and `∂L/∂ ln π` ([`Objective`]); [`FirstOrder`] makes passes,
//! minibatches and the KL stop of it. [`AlgoConfig`] names every algorithm with its documented defaults;
//! `docs/algorithms.md` compares them, `docs/epo.md` maps the EPO paper to this code.

mod agent;
mod appo;
mod batch;
mod config;
mod cpo;
mod critics;
mod dual;
mod epo;
mod epo_released;
mod first_order;
mod gae;
mod ipo;
mod objective;
mod p3o;
pub mod pmn;
mod ppo;
mod ppo_lag;
pub mod report;
mod surrogate;
mod trust_region;

pub use agent::{Agent, CostStream, Critic, LoadError, NamedTensor};
pub use appo::{Appo, AppoParams};
pub use batch::{Batch, Discount, Estimate, Lane, Rollout};
pub use config::AlgoConfig;
pub use cpo::{Cpo, CpoParams, Dual};
pub use dual::Multiplier;
pub use epo::{Epo, EpoParams, MuLaw, Pmn, QuadStream, ScaleBy, Variant};
pub use epo_released::EpoReleased;
pub use first_order::{FirstOrder, KlDirection, UpdateConfig};
pub use gae::gae;
pub use ipo::{Ipo, IpoParams};
pub use objective::{Algorithm, Epoch, Minibatch, Objective, RestoreError, UpdateError, UpdateReport};
pub use p3o::{P3o, P3oParams};
pub use pmn::Smooth;
pub use ppo::{Ppo, PpoParams};
pub use ppo_lag::{PpoLag, PpoLagParams};
pub use surrogate::{CostClip, add_cost_gradient, clipped_surrogate, cost_surrogate};
