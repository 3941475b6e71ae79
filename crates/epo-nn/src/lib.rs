//! Networks and policies for on-policy reinforcement learning, with hand-written gradients.
//!
//! | you want | use |
//! |---|---|
//! | a value function | [`Mlp`]: tanh hidden layers, linear output |
//! | a policy, continuous or discrete | [`Policy`]: diagonal Gaussian or categorical |
//! | to take a gradient step | [`clip_grad_norm`], then [`Adam::step`] inside `update` |
//! | to stop when the policy has moved too far | [`Policy::dist`] before and after, [`Dist::kl`] |
//! | a natural-gradient step | [`Policy::fisher_vector_product`] and [`conjugate_gradient`] |
//! | observations of unit scale | [`Moments`] while collecting, [`Normalizer`] between epochs |
//! | to save and restore | `params` and `set_params`, [`Adam::restore`], [`Moments::from_parts`]; [`Policy::tensors`] for names |
//!
//! # One step of training
//!
//! A network owns its parameters, one flat `f32` vector. The caller owns the [`Workspace`], the gradient and the
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
//! // collect: `logp` is the log-probability of exactly the `f32` numbers in `action`
//! let mut noise = Stream::new(0, Purpose::Action, 0);
//! let (obs, mut action) = ([0.1, 0.2, 0.3], [0.0; 2]);
//! let logp = policy.act(&obs, &mut ws, &mut noise, &mut action);
//!
//! // update: make that action more likely (the loss is −ln π, so ∂L/∂ln π = −1)
//! ws.gather(&obs, &action, &[0]);
//! assert_eq!(policy.log_prob(&mut ws), [logp]);
//! policy.backward(&mut ws, &[-1.0], 0.0, &mut grad);
//! clip_grad_norm(&mut grad, 40.0);
//! policy.update(|params| adam.step(params, &grad, 3e-4));
//! assert!(policy.log_prob(&mut ws)[0] > logp);
//! ```
//!
//! A value function is trained the same way, with [`Mlp::forward`] and with [`Mlp::backward`], which takes ∂L/∂y.
//!
//! # Guarantees
//!
//! * The output for a row has the same bits in every batch, at every position in it, and from [`Mlp::forward_one`].
//! * Matrices are `f32`. Numbers per sample (log-probability, KL, entropy) and sums over chunks of 64 rows are `f64`.
//! * The instruction set is chosen at run time: AVX-512, AVX2 with FMA, NEON, or portable code.
//! * **AVX-512 and AVX2 with FMA compute the same bits**, on Intel and AMD. A test compares both with pinned hashes.
//!   Intel's Core and Xeon processors have AVX2 with FMA since 2013, AMD's since 2015. NEON also fuses the multiply-add,
//!   but is not tested. Portable code does not fuse it, so its last digits differ.
//! * A NaN is never turned into a number.
//! * Numbers below [`TINY`] become zero, so the time of an update does not depend on the values in it.
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
