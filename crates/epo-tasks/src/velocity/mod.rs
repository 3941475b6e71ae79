//! The velocity tasks: walkers that are rewarded for running forward and pay for running too fast.
//!
//! ```text
//! v       = (place after − place before) / dt,     dt = timestep × frame skip
//! reward  r = w v_x + alive − k Σ a²
//! cost    c = 1[speed > threshold]                 speed: v_x, or ‖v_xy‖
//! end     terminated when not healthy; truncated after 1000 steps
//! reset   q = q₀ + U(±noise),  q̇ = U(±noise) or noise · N(0, 1),  from NumPy's Generator
//! ```
//! Source: Safety-Gymnasium 1.0.0 `Safety{Robot}Velocity-{v0,v1}` over Gymnasium 0.28.1's v4 environments. One file per
//! robot. The physics is that of MuJoCo 2.3.3, which they were published on: margins are halved ([`model::Skin`]) and
//! the quaternion of the initial state is normalised, since MuJoCo 3 differs in both.
//!
//! The published step ends with `mj_rnePostConstraint`, which only the Humanoid's observation reads; the others skip it.

mod ant;
mod half_cheetah;
mod hopper;
mod humanoid;
mod model;
mod swimmer;
mod walker2d;

use epo_core::{ActionSpace, EnvError};
use epo_mujoco::{BodyId, Error, Sim};

use crate::NumpyGenerator;
use crate::registry::{Source, TaskInfo};
use crate::task_env::Moved;

/// One velocity task: a robot and how fast it may run.
#[derive(Debug)]
pub(crate) struct Task {
    robot: Robot,
    version: u8,
    /// Largest speed without a cost, m/s.
    threshold: f64,
    speed: Speed,
}

/// Which speed is held against the threshold.
#[derive(Clone, Copy, Debug)]
enum Speed {
    /// `v_x`
    Forward,
    /// `‖v_xy‖`
    Planar,
}

/// A robot with its reward, its end and its observation.
#[derive(Debug)]
struct Robot {
    name: &'static str,
    model: fn() -> model::Model,
    /// Kilograms that the masses are scaled to, all in proportion.
    total_mass: Option<f64>,
    frame_skip: usize,
    obs_len: usize,
    act_len: usize,
    /// Actions lie in ± this.
    act_bound: f64,
    /// Size of the noise on the initial state.
    reset_noise: f64,
    velocity_noise: VelocityNoise,
    place: Place,
    /// w, the weight of the forward speed.
    forward_weight: f64,
    /// Paid in every step, the last one included.
    alive: f64,
    /// k, the price of the actions.
    control_weight: f64,
    healthy: fn(&Sim) -> bool,
    observe: fn(&Sim, &mut [f64]),
    /// Whether the observation holds outer forces, which take one more pass over the bodies.
    contact_forces: bool,
}

/// How the initial velocities are drawn.
#[derive(Clone, Copy, Debug)]
enum VelocityNoise {
    Uniform,
    Normal,
}

/// What the speed is measured of.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The first two joints, sliders: along x and y, or x and z where only `v_x` counts.
    Sliders,
    /// The frame of the first body.
    Torso,
    /// The centre of mass of everything.
    MassCentre,
}

const fn task(robot: Robot, version: u8, threshold: f64, speed: Speed) -> Task {
    Task { robot, version, threshold, speed }
}

impl Task {
    /// 1 while too fast, else 0; exactly at the threshold is not too fast.
    fn cost(&self, [v_x, v_y]: [f64; 2]) -> f64 {
        let speed = match self.speed {
            Speed::Forward => v_x,
            Speed::Planar => (v_x * v_x + v_y * v_y).sqrt(),
        };
        f64::from(speed > self.threshold)
    }
}

/// Version 0 has the thresholds of the package's first release, which the paper used.
static TASKS: [Task; 12] = [
    task(ant::ROBOT, 0, 2.5745, Speed::Planar),
    task(ant::ROBOT, 1, 2.6222, Speed::Planar),
    task(half_cheetah::ROBOT, 0, 2.8795, Speed::Forward),
    task(half_cheetah::ROBOT, 1, 3.2096, Speed::Forward),
    task(hopper::ROBOT, 0, 0.37315, Speed::Forward),
    task(hopper::ROBOT, 1, 0.7402, Speed::Forward),
    task(humanoid::ROBOT, 0, 2.3475, Speed::Planar),
    task(humanoid::ROBOT, 1, 1.4149, Speed::Planar),
    task(swimmer::ROBOT, 0, 0.04845, Speed::Planar),
    task(swimmer::ROBOT, 1, 0.2282, Speed::Forward),
    task(walker2d::ROBOT, 0, 1.7075, Speed::Forward),
    task(walker2d::ROBOT, 1, 2.3415, Speed::Forward),
];

/// The published velocity tasks.
pub(crate) fn published() -> impl Iterator<Item = TaskInfo> {
    TASKS.iter().map(|task| {
        let reward = match task.robot.alive > 0.0 {
            true => "forward speed and a bonus for staying up, less the squared actions",
            false => "forward speed, less the squared actions",
        };
        let speed = match task.speed {
            Speed::Forward => "forward speed",
            Speed::Planar => "speed in the plane",
        };
        TaskInfo {
            id: format!("Safety{}Velocity-v{}", task.robot.name, task.version),
            obs_len: task.robot.obs_len,
            act_len: task.robot.act_len,
            max_steps: 1000,
            reward: reward.to_owned(),
            cost: format!("1 while the {speed} is above {} m/s", task.threshold),
            speed_limit: Some(task.threshold),
            source: Source::Velocity(task),
        }
    })
}

/// The simulation of one velocity task.
#[derive(Debug)]
pub(crate) struct World {
    task: &'static Task,
    sim: Sim,
    dt: f64,
    total_mass: f64,
}

impl World {
    pub(crate) fn new(task: &'static Task) -> Result<Self, Error> {
        let mut sim = Sim::from_xml(&(task.robot.model)().mjcf())?;
        if let Some(mass) = task.robot.total_mass {
            sim.set_total_mass(mass);
        }
        Ok(Self::with(task, sim))
    }

    fn with(task: &'static Task, sim: Sim) -> Self {
        let dt = sim.timestep() * task.robot.frame_skip as f64;
        let total_mass = sim.body_mass().iter().sum();
        Self { task, sim, dt, total_mass }
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self::with(self.task, self.sim.try_clone()?))
    }

    pub(crate) fn action_space(&self) -> ActionSpace {
        let Robot { act_len, act_bound, .. } = self.task.robot;
        ActionSpace::Box { low: vec![-act_bound; act_len], high: vec![act_bound; act_len] }
    }

    /// Names of the terms that [`step`](Self::step) writes.
    pub(crate) fn cost_terms(&self) -> Vec<String> {
        vec!["cost_velocity".to_owned()]
    }

    pub(crate) fn sim(&self) -> &Sim {
        &self.sim
    }

    pub(crate) fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        let Robot { reset_noise: noise, velocity_noise, observe, .. } = self.task.robot;
        let mut random = NumpyGenerator::new(seed);
        self.sim.reset();
        for q in self.sim.qpos_mut() {
            *q += random.uniform(-noise, noise);
        }
        for v in self.sim.qvel_mut() {
            *v += match velocity_noise {
                VelocityNoise::Uniform => random.uniform(-noise, noise),
                VelocityNoise::Normal => noise * random.standard_normal(),
            };
        }
        self.sim.normalize_quaternions();
        self.sim.forward();
        observe(&self.sim, obs);
        Ok(())
    }

    /// The action has been checked. A diverged simulation is noticed by the caller.
    pub(crate) fn step(&mut self, action: &[f64], obs: &mut [f64], terms: &mut [f64]) -> Moved {
        let robot = &self.task.robot;
        let before = self.place();
        self.sim.ctrl_mut().copy_from_slice(action);
        for _ in 0..robot.frame_skip {
            self.sim.step();
        }
        if robot.contact_forces {
            self.sim.rne_post_constraint();
        }
        let after = self.place();

        let v = [(after[0] - before[0]) / self.dt, (after[1] - before[1]) / self.dt];
        let cost = self.task.cost(v);
        let control: f64 = action.iter().map(|a| a * a).sum();
        let reward = robot.forward_weight * v[0] + robot.alive - robot.control_weight * control;
        terms[0] = cost;
        (robot.observe)(&self.sim, obs);
        Moved { reward, cost, terminated: !(robot.healthy)(&self.sim), goal_met: false }
    }

    /// The place whose change is the velocity.
    fn place(&self) -> [f64; 2] {
        match self.task.robot.place {
            Place::Sliders => [self.sim.qpos()[0], self.sim.qpos()[1]],
            Place::Torso => {
                let [x, y, _] = self.sim.xpos(BodyId(1));
                [x, y]
            }
            Place::MassCentre => {
                let bodies = self.sim.body_mass().iter().zip(self.sim.xipos());
                let [x, y] = bodies.fold([0.0; 2], |[x, y], (m, p)| [x + m * p[0], y + m * p[1]]);
                [x / self.total_mass, y / self.total_mass]
            }
        }
    }

    /// The bare physics calls of a step that the published task makes, one by one: what the benchmark compares with.
    pub(crate) fn bare_physics(&mut self, action: &[f64]) {
        self.sim.ctrl_mut().copy_from_slice(action);
        for _ in 0..self.task.robot.frame_skip {
            self.sim.step();
        }
        self.sim.rne_post_constraint();
    }
}

/// All positions but the first, then the velocities cut off at ±10.
fn observe_clipped(sim: &Sim, obs: &mut [f64]) {
    let (position, velocity) = obs.split_at_mut(sim.qpos().len() - 1);
    position.copy_from_slice(&sim.qpos()[1..]);
    for (out, v) in velocity.iter_mut().zip(sim.qvel()) {
        *out = v.clamp(-10.0, 10.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random recordings hardly ever run fast enough to cost, so the published thresholds are held here.
    #[test]
    fn running_faster_than_the_published_threshold_costs() {
        // forward: v_x alone counts, backwards is free; planar: the length of (v_x, v_y)
        let published = [
            ("Ant", [2.5745, 2.6222], "planar planar"),
            ("HalfCheetah", [2.8795, 3.2096], "forward forward"),
            ("Hopper", [0.37315, 0.7402], "forward forward"),
            ("Humanoid", [2.3475, 1.4149], "planar planar"),
            ("Swimmer", [0.04845, 0.2282], "planar forward"),
            ("Walker2d", [1.7075, 2.3415], "forward forward"),
        ];
        for (robot, thresholds, kinds) in published {
            for (version, (threshold, kind)) in thresholds.iter().zip(kinds.split(' ')).enumerate() {
                let id = format!("Safety{robot}Velocity-v{version}");
                let Source::Velocity(task) = crate::task(&id).unwrap().source else { panic!("{id}") };
                let above = threshold * (1.0 + 1e-12);
                assert_eq!(task.cost([*threshold, 0.0]), 0.0, "{id}: at the threshold");
                assert_eq!(task.cost([above, 0.0]), 1.0, "{id}: above it");
                let planar = f64::from(kind == "planar");
                assert_eq!(task.cost([-above, 0.0]), planar, "{id}: backwards");
                assert_eq!(task.cost([0.8 * above, 0.61 * above]), planar, "{id}: √(0.64 + 0.3721) > 1");
            }
        }
    }
}
