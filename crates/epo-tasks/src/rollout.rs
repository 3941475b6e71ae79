//! One episode as a viewer needs it: the geoms once, and the poses of the bodies at every step.
//!
//! The format is described in `docs/rollout-format.md`.

use epo_core::{ActionSpace, Env, EnvError, Purpose, Stream};
use serde::Serialize;

use crate::{Geom, Shape, TaskEnv};

/// An episode to be drawn.
#[derive(Clone, Debug, Serialize)]
pub struct RolloutFile {
    /// `epo-rollout`
    pub format: &'static str,
    /// Version of the format. A reader refuses a version that it does not know.
    pub version: u32,
    /// Task id.
    pub task: String,
    /// Seed of the episode.
    pub seed: u64,
    /// The geoms to draw.
    pub geoms: Vec<DrawnGeom>,
    /// One frame after the reset, then one per step.
    pub frames: Vec<Frame>,
}

/// A geom, fixed to its body.
#[derive(Clone, Debug, Serialize)]
pub struct DrawnGeom {
    /// Name; may be empty.
    pub name: String,
    /// `plane`, `sphere`, `capsule`, `ellipsoid`, `cylinder`, `box` or `other`.
    pub shape: &'static str,
    /// Sizes in metres; their meaning depends on the shape.
    pub size: [f32; 3],
    /// Red, green, blue, opacity, each from 0 to 1.
    pub rgba: [f32; 4],
    /// Index into the poses of a frame.
    pub body: usize,
    /// Position in the frame of the body, in metres.
    pub pos: [f32; 3],
    /// Orientation in the frame of the body, as a quaternion (w, x, y, z).
    pub quat: [f32; 4],
}

/// One moment of the episode.
#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    /// Simulated time since the reset, in seconds.
    pub time: f64,
    /// Reward of the step that led here.
    pub reward: f64,
    /// Cost of the step that led here.
    pub cost: f64,
    /// Position (x, y, z) and orientation (w, x, y, z) of every body; body 0 is the world itself.
    pub poses: Vec<[f32; 7]>,
}

/// Plays one episode of at most `max_steps` steps with actions drawn uniformly from the action space.
pub fn record(env: &mut TaskEnv, seed: u64, max_steps: usize) -> Result<RolloutFile, EnvError> {
    let mut random = Stream::new(seed, Purpose::Random, 0);
    let mut obs = vec![0.0; env.spec().obs_len];
    let mut action = vec![0.0; env.spec().action.len()];
    env.reset(seed, &mut obs)?;
    let geoms = env.geoms().iter().map(DrawnGeom::from).collect();
    let mut frames = vec![frame(env, 0.0, 0.0)];
    for _ in 0..max_steps {
        match &env.spec().action {
            ActionSpace::Box { low, high } => {
                for ((a, low), high) in action.iter_mut().zip(low).zip(high) {
                    *a = low + (high - low) * random.uniform();
                }
            }
            ActionSpace::Discrete { n } => action[0] = random.below(*n) as f64,
        }
        let step = env.step(&action, &mut obs)?;
        frames.push(frame(env, step.reward, step.cost));
        if step.outcome.is_done() {
            break;
        }
    }
    Ok(RolloutFile { format: "epo-rollout", version: 1, task: env.spec().id.clone(), seed, geoms, frames })
}

impl From<&Geom> for DrawnGeom {
    fn from(geom: &Geom) -> Self {
        let shape = match geom.shape {
            Shape::Plane => "plane",
            Shape::Sphere => "sphere",
            Shape::Capsule => "capsule",
            Shape::Ellipsoid => "ellipsoid",
            Shape::Cylinder => "cylinder",
            Shape::Box => "box",
            Shape::Other => "other",
        };
        Self {
            name: geom.name.clone(),
            shape,
            size: geom.size.map(|x| x as f32),
            rgba: geom.rgba,
            body: geom.body.0,
            pos: geom.pos.map(|x| x as f32),
            quat: geom.quat.map(|x| x as f32),
        }
    }
}

fn frame(env: &TaskEnv, reward: f64, cost: f64) -> Frame {
    let pose = |([x, y, z], [w, i, j, k]): ([f64; 3], [f64; 4])| [x, y, z, w, i, j, k].map(|v| v as f32);
    Frame { time: env.time(), reward, cost, poses: env.body_poses().map(pose).collect() }
}
