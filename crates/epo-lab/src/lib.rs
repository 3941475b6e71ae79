//! Runs: configuration, collection, training, evaluation, checkpoints, records, sweeps, reports.

pub mod stats;
