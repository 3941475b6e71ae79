//! Tests of `epo sweep --on slurm|ray` through the binary, without a cluster: small scripts stand in for Slurm's
//! commands, a small module for Ray. `tests/cluster/` has the tests with the real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod ray;
mod seam;
mod site;
mod slurm_submit;
mod slurm_tasks;
mod slurm_watch;
