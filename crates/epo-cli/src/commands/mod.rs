//! One module per command. Each has its arguments, `Args`, and a function `run`.

pub(crate) mod algos;
pub(crate) mod bench;
mod bench_env;
mod bench_physics;
mod bench_train;
mod bench_update;
pub(crate) mod dash;
pub(crate) mod eval;
pub(crate) mod export;
pub(crate) mod licences;
pub(crate) mod model;
pub(crate) mod parity;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod repro;
pub(crate) mod rollout;
pub(crate) mod runs;
pub(crate) mod status;
pub(crate) mod sweep;
pub(crate) mod tasks;
pub(crate) mod theory;
pub(crate) mod train;
pub(crate) mod tune;
pub(crate) mod work;
