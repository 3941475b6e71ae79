//! Networks and policies for on-policy reinforcement learning, with hand-written gradients.
//!
//! | you want | use |
//! |---|---|
//! | a value function | [`Mlp`]: tanh hidden layers, linear output |
//! | a policy, continuous or discrete | [`Policy`]: diagonal Gaussian or categorical |
//! | to take a gradient step | [`clip_grad_norm`], then [`Adam::step`] inside `update` |
//! | to stop when the policy moved too far | [`Policy::dist`] before and after, [`Dist::kl`] |
//! | a natural-gradient step | [`Policy::fisher_vector_product`] and [`conjugate_gradient`] |
//! | observations of unit scale | [`Moments`] while collecting, [`Normalizer`] between epochs |
//! | to save and restore | the flat getters and setters of each, and [`Policy::tensors`] for names |
//!
//! # One step of training
//!
//! A network owns its parameters, one flat `f32` vector; the caller owns the [`Workspace`], the gradient and the
//! optimiser. Nothing is allocated once the workspace is large enough.
//!
//! ```
//! use epo_core::{ActionSpace, Purpose, Stream};
//! use epo_nn::{Adam, Policy, clip_grad_norm};
//!
//! let mut init = Stream::new(0, Purpose::Init, 0);
//! let actions = ActionSpace::Box { low: vec![-1.0; 2], high: vec![1.0; 2] };
//! let mut policy = Policy::new(3, &[64, 64], &actions, &mut init);
//! let mut ws = policy.workspace(64);
//! let mut adam = Adam::new(policy.params().len());
//! let mut grad = vec![0.0; policy.params().len()];
//!
//! // collect: the log-probability is that of the f32 action written
//! let mut noise = Stream::new(0, Purpose::Action, 0);
//! let (obs, mut action) = ([0.1, 0.2, 0.3], [0.0; 2]);
//! let logp = policy.act(&obs, &mut ws, &mut noise, &mut action);
//!
//! // update: here, make that action likelier (the loss is −ln π, so ∂L/∂ln π = −1)
//! ws.gather(&obs, &action, &[0]);
//! assert_eq!(policy.log_prob(&mut ws), [logp]);
//! policy.backward(&mut ws, &[-1.0], 0.0, &mut grad);
//! clip_grad_norm(&mut grad, 40.0);
//! policy.update(|params| adam.step(params, &grad, 3e-4));
//! assert!(policy.log_prob(&mut ws)[0] > logp);
//! ```
//!
//! A value function is the same with [`Mlp::forward`] and [`Mlp::backward`], which takes ∂L/∂y.
//!
//! # What can be relied on
//!
//! * The output for a row has the same bits in any batch, at any place, and from [`Mlp::forward_one`].
//! * Matrices are `f32`. Whatever is per sample (log-probability, KL, entropy) and every sum over chunks of 64 rows
//!   is `f64`.
//! * The instruction set is chosen at run time: AVX2 with FMA, NEON, or portable code. Results are a pure function
//!   of the inputs on one instruction set; the portable one rounds differently.
//! * A NaN stays visible: no cut-off turns it into a number.
//!
//! # Speed
//!
//! [`mod@bench`] measures forward, backward and Adam against the multiply-add peak of the core (`epo bench update`).
#![forbid(unsafe_code)]

mod adam;
pub mod bench;
mod buffer;
mod cg;
mod dist;
mod kernel;
mod mlp;
mod normalizer;
mod policy;
#[cfg(test)]
mod reference;
#[cfg(all(test, target_arch = "x86_64"))]
mod same_bits;
mod tiny;

pub use adam::{Adam, add_l2_and_clip, clip_grad_norm};
pub use buffer::prefetch_rows;
pub use cg::{CgInfo, CgScratch, NotPositiveDefinite, conjugate_gradient};
pub use dist::Dist;
pub use mlp::{Mlp, Tensor, Workspace};
pub use normalizer::{Moments, Normalizer};
pub use policy::{Head, Policy, PolicyWorkspace};
pub use tiny::{TINY, narrow};
