//! The vocabulary of epo: what an environment is, what a step returns, how randomness is drawn, how costs are read.
//!
//! - [`Env`]: one environment. Implement it for your own in a page.
//! - [`EnvPool`]: many environments over a fixed set of threads, with automatic reset.
//! - [`check_env`]: tells what an own environment does wrong.
//! - [`Stream`]: counter-based random numbers; the state of a stream is a few integers.
//! - [`CostReading`]: mean episode cost against its limit, finite by construction.
//! - [`TaskFamily`]: navigation or velocity; decides the presets of a configuration.
//! - [`Parameter`]: a key and its documentation, declared once with its default by [`parameters!`].
//! - [`Metric`]: a name, a unit and a meaning, declared once.

mod check;
mod cost;
mod env;
mod family;
mod metric;
mod parameter;
mod pool;
mod stream;

pub use check::{Problem, Replay, check_env};
pub use cost::CostReading;
pub use env::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
pub use family::TaskFamily;
pub use metric::Metric;
pub use parameter::Parameter;
pub use pool::{EnvFailure, EnvPool, Slot, episode_seed};
pub use stream::{Purpose, Stream};
