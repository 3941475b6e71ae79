//! Runs: configuration, collection, training, evaluation, checkpoints, records, sweeps, reports.

pub mod report;
pub mod runs;
pub mod stats;
