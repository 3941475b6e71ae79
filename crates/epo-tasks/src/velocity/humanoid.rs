//! Humanoid: a trunk with two legs and two arms.
//!
//! ```text
//! reward  r = 1.25 v_x + 5 − 0.1 Σ a²    v: change of the centre of mass ÷ 0.015 s
//! cost    c = 1[‖v_xy‖ > threshold]
//! end     the torso's height leaves (1, 2)
//! ```
//! Besides the joints, the observation holds the inertia and velocity of every body (the world included), the
//! forces of the motors and the external forces. As published, all of these are one substep behind the joint
//! positions. The two tendons of the published model carry no force and are left out.

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Geom, Joint, JointKind, Medium, Model, Motor, SKIN, Shape, Skin, Solver, geom,
    joint,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "Humanoid",
    model,
    total_mass: None,
    frame_skip: 5,
    obs_len: 376,
    act_len: 17,
    act_bound: 0.4,
    reset_noise: 1e-2,
    velocity_noise: VelocityNoise::Uniform,
    place: SpeedPoint::MassCentre,
    forward_weight: 1.25,
    alive: 5.0,
    control_weight: 0.1,
    healthy: |sim| 1.0 < sim.qpos()[2] && sim.qpos()[2] < 2.0,
    observe,
    contact_forces: true,
};

fn observe(sim: &Sim, obs: &mut [f64]) {
    let parts: [&[f64]; 6] = [
        &sim.qpos()[2..],
        sim.qvel(),
        sim.cinert().as_flattened(),
        sim.cvel().as_flattened(),
        sim.qfrc_actuator(),
        sim.cfrc_ext().as_flattened(),
    ];
    let mut rest = obs;
    for part in parts {
        let (here, after) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = after;
    }
}

const SKIN_1: Skin = Skin { condim: 1, margin: 0.0005, ..SKIN };

const X: [f64; 3] = [1.0, 0.0, 0.0];
const Y: [f64; 3] = [0.0, 1.0, 0.0];
const Z: [f64; 3] = [0.0, 0.0, 1.0];

fn hinge(name: &str, axis: [f64; 3], range: [f64; 2], [armature, damping, stiffness]: [f64; 3]) -> Joint {
    Joint { range: Some(range), armature, damping, stiffness, ..joint(JointKind::Hinge, name, axis) }
}

fn rod(name: &str, radius: f64, from: [f64; 3], to: [f64; 3]) -> Geom {
    geom(name, Shape::Rod { radius, from, to }, SKIN_1)
}

fn ball(name: &str, radius: f64, pos: [f64; 3]) -> Geom {
    geom(name, Shape::Sphere { radius, pos }, SKIN_1)
}

/// A leg; `y` is −1 on the right side, which is written first, and +1 on the left.
fn leg(side: &str, y: f64) -> Body {
    let (flip, left) = (-y, y > 0.0);
    let name = |part: &str| format!("{side}_{part}");
    // the right hip is a little lighter and the right knee has no spring: mistakes of the published model,
    // which are kept
    let (hip_armature, knee_stiffness) = if left { (0.01, 1.0) } else { (0.008, 0.0) };
    let foot = Body {
        name: name("foot"),
        pos: [0.0, 0.0, -0.45],
        geoms: vec![ball(&name("foot"), 0.075, [0.0, 0.0, 0.1])],
        ..Body::default()
    };
    let knee = hinge(&name("knee"), [0.0, -1.0, 0.0], [-160.0, -2.0], [0.006, 1.0, knee_stiffness]);
    let shin = Body {
        name: name("shin"),
        pos: [0.0, 0.01 * flip, -0.403],
        joints: vec![Joint { pos: [0.0, 0.0, 0.02], ..knee }],
        geoms: vec![rod(&name("shin1"), 0.049, [0.0; 3], [0.0, 0.0, -0.3])],
        parts: vec![foot],
        ..Body::default()
    };
    Body {
        name: name("thigh"),
        pos: [0.0, 0.1 * y, -0.04],
        joints: vec![
            hinge(&name("hip_x"), [flip, 0.0, 0.0], [-25.0, 5.0], [0.01, 5.0, 10.0]),
            hinge(&name("hip_z"), [0.0, 0.0, flip], [-60.0, 35.0], [0.01, 5.0, 10.0]),
            hinge(&name("hip_y"), Y, [-110.0, 20.0], [hip_armature, 5.0, 20.0]),
        ],
        geoms: vec![rod(&name("thigh1"), 0.06, [0.0; 3], [0.0, 0.01 * flip, -0.34])],
        parts: vec![shin],
        ..Body::default()
    }
}

/// An arm; `y` as in [`leg`].
fn arm(side: &str, y: f64) -> Body {
    let flip = -y;
    let name = |part: &str| format!("{side}_{part}");
    let range = if y > 0.0 { [-60.0, 85.0] } else { [-85.0, 60.0] };
    let lower = Body {
        name: name("lower_arm"),
        pos: [0.18, 0.18 * y, -0.18],
        joints: vec![hinge(&name("elbow"), [0.0, -1.0, flip], [-90.0, 50.0], [0.0028, 1.0, 0.0])],
        geoms: vec![
            rod(&name("larm"), 0.031, [0.01, 0.01 * flip, 0.01], [0.17, 0.17 * flip, 0.17]),
            ball(&name("hand"), 0.04, [0.18, 0.18 * flip, 0.18]),
        ],
        ..Body::default()
    };
    Body {
        name: name("upper_arm"),
        pos: [0.0, 0.17 * y, 0.06],
        joints: vec![
            hinge(&name("shoulder1"), [2.0, flip, 1.0], range, [0.0068, 1.0, 1.0]),
            hinge(&name("shoulder2"), [0.0, y, 1.0], range, [0.0051, 1.0, 1.0]),
        ],
        geoms: vec![rod(&name("uarm1"), 0.04, [0.0; 3], [0.16, 0.16 * y, -0.16])],
        parts: vec![lower],
        ..Body::default()
    }
}

fn trunk() -> Body {
    const LEAN: Option<[f64; 2]> = Some([1.0, -0.002]);
    let abdomen = |name, axis, z, range, stiffness| Joint {
        pos: [0.0, 0.0, z],
        ..hinge(name, axis, range, [0.02, 5.0, stiffness])
    };
    let pelvis = Body {
        name: "pelvis".to_owned(),
        pos: [0.0, 0.0, -0.165],
        lean: LEAN,
        joints: vec![abdomen("abdomen_x", X, 0.1, [-35.0, 35.0], 10.0)],
        geoms: vec![rod("butt", 0.09, [-0.02, -0.07, 0.0], [-0.02, 0.07, 0.0])],
        parts: vec![leg("right", -1.0), leg("left", 1.0)],
    };
    let waist = Body {
        name: "lwaist".to_owned(),
        pos: [-0.01, 0.0, -0.26],
        lean: LEAN,
        joints: vec![
            abdomen("abdomen_z", Z, 0.065, [-45.0, 45.0], 20.0),
            abdomen("abdomen_y", Y, 0.065, [-75.0, 30.0], 10.0),
        ],
        geoms: vec![rod("lwaist", 0.06, [0.0, -0.06, 0.0], [0.0, 0.06, 0.0])],
        parts: vec![pelvis],
    };
    Body {
        name: "torso".to_owned(),
        pos: [0.0, 0.0, 1.4],
        joints: vec![joint(JointKind::Free, "root", [0.0; 3])],
        geoms: vec![
            rod("torso1", 0.07, [0.0, -0.07, 0.0], [0.0, 0.07, 0.0]),
            ball("head", 0.09, [0.0, 0.0, 0.19]),
            rod("uwaist", 0.06, [-0.01, -0.06, -0.12], [-0.01, 0.06, -0.12]),
        ],
        parts: vec![waist, arm("right", -1.0), arm("left", 1.0)],
        ..Body::default()
    }
}

fn model() -> Model {
    let gears = [
        (100.0, "abdomen_y abdomen_z abdomen_x right_hip_x right_hip_z"),
        (300.0, "right_hip_y"),
        (200.0, "right_knee"),
        (100.0, "left_hip_x left_hip_z"),
        (300.0, "left_hip_y"),
        (200.0, "left_knee"),
        (25.0, "right_shoulder1 right_shoulder2 right_elbow left_shoulder1 left_shoulder2 left_elbow"),
    ];
    let motors = gears.iter().flat_map(|&(gear, joints)| {
        joints.split(' ').map(move |joint| Motor { joint: joint.to_owned(), gear, bound: 0.4 })
    });
    let floor = Skin { condim: 3, friction: [1.0, 0.1, 0.1], rgba: FLOOR_RGBA, ..SKIN_1 };
    Model {
        angle: Angle::Degree,
        timestep: 0.003,
        solver: Solver::RungeKuttaPgs,
        medium: Medium::default(),
        floor: geom("floor", Shape::Plane { size: [20.0, 20.0, 0.125], pos: [0.0; 3] }, floor),
        robot: trunk(),
        motors: motors.collect(),
    }
}
