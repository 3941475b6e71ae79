//! Ant: a sphere on four legs, each with a hip and an ankle.
//!
//! ```text
//! reward  r = v_x + 1 − ½ Σ a²           v: change of the torso's position ÷ 0.05 s
//! cost    c = 1[‖v_xy‖ > threshold]
//! end     a number is not finite, or the torso's height leaves [0.2, 1]
//! ```
//! As published, the position of the torso is the one that the simulator computed, which is one
//! substep behind the joint positions.

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Geom, Joint, JointKind, Medium, Model, SKIN, Shape, Skin, Solver, geom, joint,
    motors,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "Ant",
    model,
    total_mass: None,
    frame_skip: 5,
    obs_len: 27,
    act_len: 8,
    act_bound: 1.0,
    reset_noise: 0.1,
    velocity_noise: VelocityNoise::Normal,
    place: SpeedPoint::Torso,
    forward_weight: 1.0,
    alive: 1.0,
    control_weight: 0.5,
    healthy,
    observe,
    contact_forces: false,
};

fn healthy(sim: &Sim) -> bool {
    sim.qpos().iter().chain(sim.qvel()).all(|x| x.is_finite()) && (0.2..=1.0).contains(&sim.qpos()[2])
}

fn observe(sim: &Sim, obs: &mut [f64]) {
    let (position, velocity) = obs.split_at_mut(13);
    position.copy_from_slice(&sim.qpos()[2..]);
    velocity.copy_from_slice(sim.qvel());
}

const LIMB: Skin = Skin { density: 5.0, friction: [1.0, 0.5, 0.5], touched_by: 0, margin: 0.005, ..SKIN };

fn model() -> Model {
    // (leg, first limb, further limbs, which corner, direction of the ankle's axis in x, range of the ankle)
    let legs = [
        ("front_left_leg", "left_leg_geom", "left_ankle_geom", [1.0, 1.0], -1.0, [30.0, 70.0]),
        ("front_right_leg", "right_leg_geom", "right_ankle_geom", [-1.0, 1.0], 1.0, [-70.0, -30.0]),
        ("back_leg", "back_leg_geom", "third_ankle_geom", [-1.0, -1.0], -1.0, [-70.0, -30.0]),
        ("right_back_leg", "rightback_leg_geom", "fourth_ankle_geom", [1.0, -1.0], 1.0, [30.0, 70.0]),
    ];
    let legs = legs.iter().enumerate().map(|(i, leg)| {
        let (name, thigh_geom, ankle_geom, [x, y], ankle_x, ankle_range) = *leg;
        let n = i + 1;
        let reach = |d: f64| [d * x, d * y, 0.0];
        let limb =
            |name: &str, d| vec![geom(name, Shape::Rod { radius: 0.08, from: [0.0; 3], to: reach(d) }, LIMB)];
        let hinge = |name: String, axis, range| Joint {
            range: Some(range),
            armature: 1.0,
            damping: 1.0,
            ..joint(JointKind::Hinge, &name, axis)
        };
        let foot = Body {
            name: format!("foot_{n}"),
            pos: reach(0.2),
            joints: vec![hinge(format!("ankle_{n}"), [ankle_x, 1.0, 0.0], ankle_range)],
            geoms: limb(ankle_geom, 0.4),
            ..Body::default()
        };
        let thigh = Body {
            name: format!("aux_{n}"),
            pos: reach(0.2),
            joints: vec![hinge(format!("hip_{n}"), [0.0, 0.0, 1.0], [-30.0, 30.0])],
            geoms: limb(thigh_geom, 0.2),
            parts: vec![foot],
            ..Body::default()
        };
        let root = limb(&format!("aux_{n}_geom"), 0.2);
        Body { name: name.to_owned(), geoms: root, parts: vec![thigh], ..Body::default() }
    });
    let torso: Geom = geom("torso_geom", Shape::Sphere { radius: 0.25, pos: [0.0; 3] }, LIMB);
    let floor = Skin { touched_by: 1, rgba: FLOOR_RGBA, ..LIMB };
    Model {
        angle: Angle::Degree,
        timestep: 0.01,
        solver: Solver::RungeKutta,
        medium: Medium::default(),
        floor: geom("floor", Shape::Plane { size: [40.0; 3], pos: [0.0; 3] }, floor),
        robot: Body {
            name: "torso".to_owned(),
            pos: [0.0, 0.0, 0.75],
            joints: vec![joint(JointKind::Free, "root", [0.0; 3])],
            geoms: vec![torso],
            parts: legs.collect(),
            ..Body::default()
        },
        motors: motors(
            150.0,
            1.0,
            &["hip_4", "ankle_4", "hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3"],
        ),
    }
}
