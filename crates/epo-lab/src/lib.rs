//! Runs: configuration, collection, training, evaluation, checkpoints, records, sweeps, reports.

pub mod history;
pub mod report;

pub mod stats;
