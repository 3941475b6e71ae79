//! Swimmer: three rods in a thick fluid, in the x–y plane.
//!
//! ```text
//! reward  r = v_x − 10⁻⁴ Σ a²            v: change of position ÷ 0.04 s
//! cost    c = 1[‖v_xy‖ > threshold] in v0, 1[v_x > threshold] in v1
//! end     never
//! ```

use epo_mujoco::Sim;

use super::model::{
    Angle, Body, FLOOR_RGBA, Joint, JointKind, Medium, Model, SKIN, Shape, Skin, Solver, geom, joint, motors,
};
use super::{SpeedPoint, VelocityNoise, VelocityRobot};

pub(super) const ROBOT: VelocityRobot = VelocityRobot {
    name: "Swimmer",
    model,
    total_mass: None,
    frame_skip: 4,
    obs_len: 8,
    act_len: 2,
    act_bound: 1.0,
    reset_noise: 0.1,
    velocity_noise: VelocityNoise::Uniform,
    place: SpeedPoint::Sliders,
    forward_weight: 1.0,
    alive: 0.0,
    control_weight: 1e-4,
    healthy: |_| true,
    observe,
    contact_forces: false,
};

fn observe(sim: &Sim, obs: &mut [f64]) {
    let (position, velocity) = obs.split_at_mut(3);
    position.copy_from_slice(&sim.qpos()[2..]);
    velocity.copy_from_slice(sim.qvel());
}

/// Nothing collides with it, not even the floor.
const ROD: Skin = Skin { condim: 1, touches: 0, touched_by: 0, ..SKIN };

fn model() -> Model {
    let rod = |name, from, to| {
        let ends = Shape::Rod { radius: 0.1, from: [from, 0.0, 0.0], to: [to, 0.0, 0.0] };
        vec![geom(name, ends, ROD)]
    };
    let root = |kind, name, axis| Joint { armature: 0.1, ..joint(kind, name, axis) };
    let hinge = |name| {
        let free = root(JointKind::Hinge, name, [0.0, 0.0, 1.0]);
        vec![Joint { range: Some([-100.0, 100.0]), ..free }]
    };
    let back = Body {
        name: "back".to_owned(),
        pos: [-1.0, 0.0, 0.0],
        joints: hinge("motor2_rot"),
        geoms: rod("back", 0.0, -1.0),
        ..Body::default()
    };
    let mid = Body {
        name: "mid".to_owned(),
        pos: [0.5, 0.0, 0.0],
        joints: hinge("motor1_rot"),
        geoms: rod("mid", 0.0, -1.0),
        parts: vec![back],
        ..Body::default()
    };
    let floor = Shape::Plane { size: [40.0, 40.0, 0.1], pos: [0.0, 0.0, -0.1] };
    Model {
        angle: Angle::Degree,
        timestep: 0.01,
        solver: Solver::RungeKutta,
        medium: Medium { density: 4000.0, viscosity: 0.1 },
        floor: geom("floor", floor, Skin { condim: 3, rgba: FLOOR_RGBA, ..ROD }),
        robot: Body {
            name: "torso".to_owned(),
            joints: vec![
                root(JointKind::Slide, "slider1", [1.0, 0.0, 0.0]),
                root(JointKind::Slide, "slider2", [0.0, 1.0, 0.0]),
                root(JointKind::Hinge, "free_body_rot", [0.0, 0.0, 1.0]),
            ],
            geoms: rod("torso", 1.5, 0.5),
            parts: vec![mid],
            ..Body::default()
        },
        motors: motors(150.0, 1.0, &["motor1_rot", "motor2_rot"]),
    }
}
