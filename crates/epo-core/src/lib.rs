//! Types that all crates of epo share: environments, step results, random streams, cost readings, parameters, metrics.
//!
//! - [`Env`]: the interface of one environment. Implement it to train on your own environment.
//! - [`EnvPool`]: steps many environments in parallel on a fixed number of threads and resets them automatically.
//! - [`check_env`]: plays an environment and lists the rules of [`Env`] that it breaks.
//! - [`Stream`]: counter-based random numbers. A few integers are the whole state of a stream.
//! - [`CostReading`]: mean episode cost and its limit. Both are always finite.
//! - [`TaskFamily`]: navigation or velocity. The family selects the presets of a configuration.
//! - [`Parameter`]: key and documentation of a parameter. [`parameters!`] declares them together with the default.
//! - [`open_file`], [`read_text`]: read regular files of a bounded size, and refuse everything else.
//! - [`WireWriter`], [`WireReader`]: numbers as bytes, for messages between the processes of one run.
//! - [`Metric`]: column name, unit and meaning of a recorded quantity.

mod check;
mod cost;
mod env;
mod family;
mod file;
mod metric;
mod parameter;
mod pool;
mod stream;
mod wire;

pub use check::{Problem, Replay, check_env};
pub use cost::CostReading;
pub use env::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
pub use family::TaskFamily;
pub use file::{MOST_TEXT_BYTES, open_file, read_text};
pub use metric::Metric;
pub use parameter::Parameter;
pub use pool::{EnvFailure, EnvPool, Slot, episode_seed};
pub use stream::{Purpose, Stream};
pub use wire::{WireError, WireReader, WireWriter};
