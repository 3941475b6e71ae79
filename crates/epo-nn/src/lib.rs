//! Multi-layer perceptrons, policies, Adam, normaliser, Fisher-vector product, conjugate gradient.

mod adam;
pub mod bench;
mod buffer;
mod cg;
mod kernel;
mod mlp;
mod normalizer;
mod policy;
#[cfg(test)]
mod reference;

pub use adam::{Adam, clip_grad_norm};
pub use cg::{CgInfo, CgScratch, NotPositiveDefinite, conjugate_gradient};
pub use mlp::{Mlp, Tensor, Workspace};
pub use normalizer::{Moments, Normalizer};
pub use policy::{Dist, Head, Policy, PolicyWorkspace};
