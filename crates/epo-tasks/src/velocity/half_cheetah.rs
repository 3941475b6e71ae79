//! HalfCheetah: a two-legged runner in the x–z plane.
//!
//! ```text
//! reward  r = v_x − 0.1 Σ a²             v: change of position ÷ 0.05 s
//! cost    c = 1[v_x > threshold]
//! end     never
//! ```

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Joint, JointKind, Medium, Model, Motor, SKIN, Shape, Skin, Solver, geom, joint,
    planar_root,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "HalfCheetah",
    model,
    total_mass: Some(14.0),
    frame_skip: 5,
    obs_len: 17,
    act_len: 6,
    act_bound: 1.0,
    reset_noise: 0.1,
    velocity_noise: VelocityNoise::Normal,
    place: SpeedPoint::Sliders,
    forward_weight: 1.0,
    alive: 0.0,
    control_weight: 0.1,
    healthy: |_| true,
    observe,
    contact_forces: false,
};

fn observe(sim: &Sim, obs: &mut [f64]) {
    let (position, velocity) = obs.split_at_mut(8);
    position.copy_from_slice(&sim.qpos()[1..]);
    velocity.copy_from_slice(sim.qvel());
}

const SOLREF: [f64; 2] = [0.02, 1.0];
const LIMB: Skin =
    Skin { friction: [0.4, 0.1, 0.1], touched_by: 0, contact: Some((SOLREF, [0.0, 0.8, 0.01])), ..SKIN };
const LOWER_RGBA: [f64; 4] = [0.9, 0.6, 0.6, 1.0];

/// One link of a leg: its hinge and its capsule.
struct Link {
    name: &'static str,
    at: [f64; 2],
    range: [f64; 2],
    stiffness: f64,
    damping: f64,
    capsule_at: [f64; 2],
    half: f64,
    tilt: f64,
}

/// Thigh, shin and foot, each given in the x–z plane of the one before.
const BACK: [Link; 3] = [
    Link {
        name: "bthigh",
        at: [-0.5, 0.0],
        range: [-0.52, 1.05],
        stiffness: 240.0,
        damping: 6.0,
        capsule_at: [0.1, -0.13],
        half: 0.145,
        tilt: -3.8,
    },
    Link {
        name: "bshin",
        at: [0.16, -0.25],
        range: [-0.785, 0.785],
        stiffness: 180.0,
        damping: 4.5,
        capsule_at: [-0.14, -0.07],
        half: 0.15,
        tilt: -2.03,
    },
    Link {
        name: "bfoot",
        at: [-0.28, -0.14],
        range: [-0.4, 0.785],
        stiffness: 120.0,
        damping: 3.0,
        capsule_at: [0.03, -0.097],
        half: 0.094,
        tilt: -0.27,
    },
];
const FRONT: [Link; 3] = [
    Link {
        name: "fthigh",
        at: [0.5, 0.0],
        range: [-1.0, 0.7],
        stiffness: 180.0,
        damping: 4.5,
        capsule_at: [-0.07, -0.12],
        half: 0.133,
        tilt: 0.52,
    },
    Link {
        name: "fshin",
        at: [-0.14, -0.24],
        range: [-1.2, 0.87],
        stiffness: 120.0,
        damping: 3.0,
        capsule_at: [0.065, -0.09],
        half: 0.106,
        tilt: -0.6,
    },
    Link {
        name: "ffoot",
        at: [0.13, -0.18],
        range: [-0.5, 0.5],
        stiffness: 60.0,
        damping: 1.5,
        capsule_at: [0.045, -0.07],
        half: 0.07,
        tilt: -0.6,
    },
];

fn leg(links: &[Link]) -> Vec<Body> {
    let Some((link, rest)) = links.split_first() else { return Vec::new() };
    let hinge = Joint {
        range: Some(link.range),
        armature: 0.1,
        damping: link.damping,
        stiffness: link.stiffness,
        limit: Some((SOLREF, [0.0, 0.8, 0.03])),
        ..joint(JointKind::Hinge, link.name, [0.0, 1.0, 0.0])
    };
    let [x, z] = link.capsule_at;
    let shape = Shape::Capsule { radius: 0.046, half: link.half, pos: [x, 0.0, z], tilt: link.tilt };
    let rgba = if link.name.ends_with("thigh") { LIMB.rgba } else { LOWER_RGBA };
    vec![Body {
        name: link.name.to_owned(),
        pos: [link.at[0], 0.0, link.at[1]],
        joints: vec![hinge],
        geoms: vec![geom(link.name, shape, Skin { rgba, ..LIMB })],
        parts: leg(rest),
        ..Body::default()
    }]
}

fn model() -> Model {
    let trunk = Shape::Rod { radius: 0.046, from: [-0.5, 0.0, 0.0], to: [0.5, 0.0, 0.0] };
    let head = Shape::Capsule { radius: 0.046, half: 0.15, pos: [0.6, 0.0, 0.1], tilt: 0.87 };
    let floor = Skin { touched_by: 1, rgba: FLOOR_RGBA, ..LIMB };
    let gears = [
        ("bthigh", 120.0),
        ("bshin", 90.0),
        ("bfoot", 60.0),
        ("fthigh", 120.0),
        ("fshin", 60.0),
        ("ffoot", 30.0),
    ];
    Model {
        angle: Angle::Radian,
        timestep: 0.01,
        solver: Solver::Euler,
        medium: Medium::default(),
        floor: geom("floor", Shape::Plane { size: [40.0; 3], pos: [0.0; 3] }, floor),
        robot: Body {
            name: "torso".to_owned(),
            pos: [0.0, 0.0, 0.7],
            joints: planar_root(0.0),
            geoms: vec![geom("torso", trunk, LIMB), geom("head", head, LIMB)],
            parts: leg(&BACK).into_iter().chain(leg(&FRONT)).collect(),
            ..Body::default()
        },
        motors: gears.map(|(joint, gear)| Motor { joint: joint.to_owned(), gear, bound: 1.0 }).into(),
    }
}
