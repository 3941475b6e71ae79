//! The Safety-Gymnasium navigation and velocity tasks, seed-exact.
//!
//! [`tasks`] lists them, and [`make`] builds one by its published id. An episode is a pure function
//! of the seed and the actions. The same id, seed and actions give the observations, rewards and
//! costs of the Python package Safety-Gymnasium (1.0.0, on MuJoCo 3.17.0). [`register`] adds your
//! own navigation task, and [`register_env`] adds any other environment.
//!
//! ```
//! use epo_core::Env;
//! let mut env = epo_tasks::make("SafetyPointGoal1-v0")?;
//! let mut obs = vec![0.0; env.spec().obs_len];
//! env.reset(7, &mut obs)?;
//! let step = env.step(&[1.0, 0.0], &mut obs)?;
//! assert!(step.reward.abs() < 1.0 && step.cost == 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
pub mod navigation;
pub mod npz;
mod numpy_generator;
mod numpy_legacy;
pub mod parity;
mod physics;
mod registry;
pub mod rollout;
pub mod script;
mod task_env;
mod velocity;

pub use epo_mujoco::{BodyId, Geom, Shape};
pub use numpy_generator::NumpyGenerator;
pub use physics::{Physics, UnknownPhysics};
pub use registry::{
    EnvMaker, MakeEnv, TaskError, TaskInfo, env_maker, make, make_with, register, register_env, task, tasks,
};
pub use task_env::TaskEnv;
