//! Runs: configuration, collection, training, evaluation, checkpoints, records, sweeps, reports.

pub mod runs;
pub mod stats;
