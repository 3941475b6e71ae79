//! One module per command, each with its `Args` and a `run`.

pub(crate) mod tasks;
