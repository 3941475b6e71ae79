//! Runs: configuration, collection, training, evaluation, checkpoints, records, sweeps, and the
//! search for parameters.
//!
//! [`train::Trainer`] executes a run; [`config::ResolvedRun`] is the configuration of a run. `docs/runs.md` describes
//! the run folder.

pub mod bench;
pub mod changes;
pub mod checkpoint;
pub mod collect;
pub mod config;
mod csv;
pub mod engine;
pub mod episodes;
mod error;
pub mod evaluate;
pub mod ground_truth;
mod layers;
mod lifecycle;
pub mod lock;
pub mod memory;
pub mod onnx;
pub mod physics;
mod policies;
pub mod ranks;
pub mod record;
pub mod reference;
pub mod repro;
pub mod runs;
pub mod snapshot;
mod state;
pub mod stop;
pub mod sweep;
pub mod tensorboard;
pub mod train;
pub mod trained;
pub mod tune;

pub use error::LabError;
