//! Walker2d: two legs in the x–z plane.
//!
//! ```text
//! reward  r = v_x + 1 − 10⁻³ Σ a²        v: change of position ÷ 0.008 s
//! cost    c = 1[v_x > threshold]
//! end     the height leaves (0.8, 2), or the lean leaves (−1, 1)
//! ```
//! The left foot has twice the friction of the right one. This is a mistake of the published model and is kept.

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Joint, JointKind, Medium, Model, SKIN, Shape, Skin, Solver, geom, joint, motors,
    planar_root,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "Walker2d",
    model,
    total_mass: None,
    frame_skip: 4,
    obs_len: 17,
    act_len: 6,
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
    0.8 < height && height < 2.0 && -1.0 < lean && lean < 1.0
}

// Heights above the floor of the upright body. The published model is defined by them: the position of a part
// is the rounded difference of two heights.
const TORSO: f64 = 1.25;
const HIP: f64 = 1.05;
const KNEE: f64 = 0.6;
/// Heights of the middle of the thigh and of the shank.
const THIGH: f64 = 0.825;
const SHANK: f64 = 0.35;

const LIMB: Skin = Skin { friction: [0.9, 0.1, 0.1], touched_by: 0, ..SKIN };

/// Thigh, leg and foot; `side` ends their names.
fn leg(side: &str, sole_friction: f64, rgba: [f64; 4]) -> Body {
    let hinge = |name: &str, pos, range| Joint {
        pos,
        range: Some(range),
        armature: 0.01,
        damping: 0.1,
        ..joint(JointKind::Hinge, &format!("{name}{side}_joint"), [0.0, -1.0, 0.0])
    };
    let skin = Skin { rgba, ..LIMB };
    let sole = Skin { friction: [sole_friction, 0.1, 0.1], ..skin };
    let capsule = |name: &str, radius, half, pos, tilt, skin| {
        vec![geom(&format!("{name}{side}_geom"), Shape::Capsule { radius, half, pos, tilt }, skin)]
    };
    let foot = Body {
        name: format!("foot{side}"),
        pos: [0.2, 0.0, -0.35],
        joints: vec![hinge("foot", [-0.2, 0.0, 0.1], [-45.0, 45.0])],
        geoms: capsule("foot", 0.06, 0.1, [-0.1, 0.0, 0.1], -90.0, sole),
        ..Body::default()
    };
    let shank = Body {
        name: format!("leg{side}"),
        pos: [0.0, 0.0, SHANK - HIP],
        joints: vec![hinge("leg", [0.0, 0.0, 0.25], [-150.0, 0.0])],
        geoms: capsule("leg", 0.04, 0.25, [0.0; 3], 0.0, skin),
        parts: vec![foot],
        ..Body::default()
    };
    Body {
        name: format!("thigh{side}"),
        pos: [0.0, 0.0, HIP - TORSO],
        joints: vec![hinge("thigh", [0.0; 3], [-150.0, 0.0])],
        geoms: capsule("thigh", 0.05, (HIP - KNEE) / 2.0, [0.0, 0.0, THIGH - HIP], 0.0, skin),
        parts: vec![shank],
        ..Body::default()
    }
}

fn model() -> Model {
    let trunk = Shape::Capsule { radius: 0.05, half: (1.45 - HIP) / 2.0, pos: [0.0; 3], tilt: 0.0 };
    let floor = Skin { friction: [0.7, 0.1, 0.1], touched_by: 1, rgba: FLOOR_RGBA, ..LIMB };
    let joints =
        ["thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint"];
    Model {
        angle: Angle::Degree,
        timestep: 0.002,
        solver: Solver::RungeKutta,
        medium: Medium::default(),
        floor: geom("floor", Shape::Plane { size: [40.0; 3], pos: [0.0; 3] }, floor),
        robot: Body {
            name: "torso".to_owned(),
            pos: [0.0, 0.0, TORSO],
            joints: planar_root(TORSO),
            geoms: vec![geom("torso_geom", trunk, LIMB)],
            parts: vec![leg("", 0.9, LIMB.rgba), leg("_left", 1.9, [0.7, 0.3, 0.6, 1.0])],
            ..Body::default()
        },
        motors: motors(100.0, 1.0, &joints),
    }
}
