//! The requirements of runs on a Ray cluster: the table `[ray]` of a sweep file.

use toml::Table;

use crate::engine::{EngineError, Key, read_table};

/// Requirements of the runs on a Ray cluster. The table `[ray]` of a sweep file has these keys.
#[derive(Clone, Debug, PartialEq)]
pub struct RayOptions {
    /// Address of the cluster, such as `10.0.0.1:6379`. Default: the environment variable `RAY_ADDRESS`, otherwise a
    /// cluster on this machine.
    pub address: Option<String>,
    /// Path or URL (as `fsspec` opens it) through which run folders are transferred. Default: none; the nodes
    /// share the folder.
    pub storage: Option<String>,
    /// Number of cores of a run. Default: 1.
    pub cpus: u32,
    /// Maximum number of runs at the same time. Default: as many as the cluster has cores for.
    pub at_once: Option<u32>,
    /// Maximum number of times that a run is started again after the loss of its node or an interruption. Default: 20.
    pub retries: u32,
    /// Interval, in seconds, at which new checkpoints are copied to the storage. Default: 10.
    pub sync: u32,
    /// Ray's `runtime_env`, such as `{ pip = ["epo"] }`. Default: none.
    pub runtime_env: Table,
    /// Python interpreter that has Ray. Default: the one that runs this program, otherwise `python3`.
    pub python: Option<String>,
}

impl Default for RayOptions {
    fn default() -> Self {
        Self {
            address: None,
            storage: None,
            cpus: 1,
            at_once: None,
            retries: 20,
            sync: 10,
            runtime_env: Table::new(),
            python: None,
        }
    }
}

impl RayOptions {
    /// Keys of the table `[ray]`.
    const KEYS: &[Key<Self>] = &[
        ("address", |to, value| value.text().map(|v| to.address = Some(v))),
        ("storage", |to, value| value.text().map(|v| to.storage = Some(v))),
        ("cpus", |to, value| value.number(1).map(|v| to.cpus = v)),
        ("at_once", |to, value| value.number(1).map(|v| to.at_once = Some(v))),
        ("retries", |to, value| value.number(0).map(|v| to.retries = v)),
        ("sync", |to, value| value.number(1).map(|v| to.sync = v)),
        ("runtime_env", |to, value| value.table().map(|v| to.runtime_env = v)),
        ("python", |to, value| value.text().map(|v| to.python = Some(v))),
    ];

    /// Reads the table `[ray]` of a sweep file.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if a key does not exist or has a wrong value.
    pub fn from_table(table: &Table) -> Result<Self, EngineError> {
        read_table("ray", Self::KEYS, table)
    }
}
