//! Hopper: one leg in the x–z plane.
//!
//! ```text
//! reward  r = v_x + 1 − 10⁻³ Σ a²        v: change of position ÷ 0.008 s
//! cost    c = 1[v_x > threshold]
//! end     height ≤ 0.7, |lean| ≥ 0.2, or any other entry of the state at or beyond ±100
//! ```

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Joint, JointKind, Medium, Model, SKIN, Shape, Skin, Solver, geom, joint, motors,
    planar_root,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "Hopper",
    model,
    total_mass: None,
    frame_skip: 4,
    obs_len: 11,
    act_len: 3,
    act_bound: 1.0,
    reset_noise: 5e-3,
    velocity_noise: VelocityNoise::Uniform,
    place: SpeedPoint::Sliders,
    forward_weight: 1.0,
    alive: 1.0,
    control_weight: 1e-3,
    healthy,
    observe: super::observe_clipped,
    contact_forces: false,
};

fn healthy(sim: &Sim) -> bool {
    let [_, height, lean, ..] = *sim.qpos() else { return false };
    let bounded = sim.qpos()[2..].iter().chain(sim.qvel()).all(|x| -100.0 < *x && *x < 100.0);
    bounded && height > 0.7 && height < f64::INFINITY && -0.2 < lean && lean < 0.2
}

// Heights above the floor of the upright body. The published model is defined by them: the position of a part
// is the rounded difference of two heights.
const TORSO: f64 = 1.25;
const HIP: f64 = 1.05;
const KNEE: f64 = 0.6;
/// Heights of the middle of the thigh and of the shank.
const THIGH: f64 = 0.825;
const SHANK: f64 = 0.35;

const LIMB: Skin = Skin {
    friction: [0.9, 0.005, 0.0001],
    condim: 1,
    margin: 0.0005,
    contact: Some(([0.02, 1.0], [0.8, 0.8, 0.01])),
    ..SKIN
};

fn model() -> Model {
    let hinge = |name, pos, range| Joint {
        pos,
        range: Some(range),
        armature: 1.0,
        damping: 1.0,
        ..joint(JointKind::Hinge, name, [0.0, -1.0, 0.0])
    };
    let capsule = |radius, half, pos, tilt| Shape::Capsule { radius, half, pos, tilt };
    let sole = Skin { friction: [2.0, 0.005, 0.0001], ..LIMB };
    let foot = Body {
        name: "foot".to_owned(),
        pos: [0.13, 0.0, -0.35],
        joints: vec![hinge("foot_joint", [-0.13, 0.0, 0.1], [-45.0, 45.0])],
        geoms: vec![geom("foot_geom", capsule(0.06, 0.195, [-0.065, 0.0, 0.1], -90.0), sole)],
        ..Body::default()
    };
    let leg = Body {
        name: "leg".to_owned(),
        pos: [0.0, 0.0, SHANK - HIP],
        joints: vec![hinge("leg_joint", [0.0, 0.0, 0.25], [-150.0, 0.0])],
        geoms: vec![geom("leg_geom", capsule(0.04, 0.25, [0.0; 3], 0.0), LIMB)],
        parts: vec![foot],
        ..Body::default()
    };
    let thigh_at = [0.0, 0.0, THIGH - HIP];
    let thigh = Body {
        name: "thigh".to_owned(),
        pos: [0.0, 0.0, HIP - TORSO],
        joints: vec![hinge("thigh_joint", [0.0; 3], [-150.0, 0.0])],
        geoms: vec![geom("thigh_geom", capsule(0.05, (HIP - KNEE) / 2.0, thigh_at, 0.0), LIMB)],
        parts: vec![leg],
        ..Body::default()
    };
    let floor = Skin { friction: SKIN.friction, condim: 3, rgba: FLOOR_RGBA, ..LIMB };
    Model {
        angle: Angle::Degree,
        timestep: 0.002,
        solver: Solver::RungeKutta,
        medium: Medium::default(),
        floor: geom("floor", Shape::Plane { size: [20.0, 20.0, 0.125], pos: [0.0; 3] }, floor),
        robot: Body {
            name: "torso".to_owned(),
            pos: [0.0, 0.0, TORSO],
            joints: planar_root(TORSO),
            geoms: vec![geom("torso_geom", capsule(0.05, (1.45 - HIP) / 2.0, [0.0; 3], 0.0), LIMB)],
            parts: vec![thigh],
            ..Body::default()
        },
        motors: motors(200.0, 1.0, &["thigh_joint", "leg_joint", "foot_joint"]),
    }
}
