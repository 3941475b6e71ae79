//! The parts of the walkers as Rust values, and the MJCF text of a whole model.
//!
//! Numbers are written with all their digits, so the compiled model is bit-equal to the published one. Only margins differ:
//! they are half of the published ones (see [`Skin::margin`]).

use std::fmt::Write;

/// A whole model: the floor, one robot and its motors.
pub(super) struct Model {
    /// Unit of every angle of the model.
    pub(super) angle: Angle,
    pub(super) timestep: f64,
    pub(super) solver: Solver,
    /// The fluid around the robot.
    pub(super) medium: Medium,
    pub(super) floor: Geom,
    pub(super) robot: Body,
    /// The motors, in the order of the action.
    pub(super) motors: Vec<Motor>,
}

/// Unit of the angles of a model.
#[derive(Clone, Copy)]
pub(super) enum Angle {
    Degree,
    Radian,
}

/// The integrator and the solver of contacts.
#[derive(Clone, Copy)]
pub(super) enum Solver {
    /// Semi-implicit Euler, Newton.
    Euler,
    /// Runge–Kutta of order four, Newton.
    RungeKutta,
    /// Runge–Kutta of order four, 50 iterations of projected Gauss–Seidel.
    RungeKuttaPgs,
}

/// A fluid, or none.
#[derive(Clone, Copy, Default)]
pub(super) struct Medium {
    pub(super) density: f64,
    pub(super) viscosity: f64,
}

/// A rigid body with the joints that connect it to its parent, and its child bodies.
#[derive(Default)]
pub(super) struct Body {
    pub(super) name: String,
    /// Position in the frame of the parent, in metres.
    pub(super) pos: [f64; 3],
    /// Lean about the y axis, as the quaternion (w, 0, y, 0) before it is normalised.
    pub(super) lean: Option<[f64; 2]>,
    pub(super) joints: Vec<Joint>,
    pub(super) geoms: Vec<Geom>,
    pub(super) parts: Vec<Body>,
}

/// A joint.
#[derive(Clone)]
pub(super) struct Joint {
    pub(super) kind: JointKind,
    pub(super) name: String,
    pub(super) axis: [f64; 3],
    pub(super) pos: [f64; 3],
    /// Smallest and largest coordinate; `None` has no limit.
    pub(super) range: Option<[f64; 2]>,
    pub(super) armature: f64,
    pub(super) damping: f64,
    pub(super) stiffness: f64,
    /// Coordinate in the initial pose.
    pub(super) reference: f64,
    /// (solref, solimp) of the limit; `None` takes MuJoCo's default.
    pub(super) limit: Option<([f64; 2], [f64; 3])>,
}

/// How a joint moves.
#[derive(Clone, Copy)]
pub(super) enum JointKind {
    Free,
    Slide,
    Hinge,
}

/// A joint without inertia, friction or limits.
pub(super) fn joint(kind: JointKind, name: &str, axis: [f64; 3]) -> Joint {
    Joint {
        kind,
        name: name.to_owned(),
        axis,
        pos: [0.0; 3],
        range: None,
        armature: 0.0,
        damping: 0.0,
        stiffness: 0.0,
        reference: 0.0,
        limit: None,
    }
}

/// The three joints with which a body moves in the x–z plane. `height` is its initial height above the floor, in metres,
/// which is the initial value of its height coordinate.
pub(super) fn planar_root(height: f64) -> Vec<Joint> {
    let slide = |name, axis| Joint { pos: [0.0, 0.0, 0.0 - height], ..joint(JointKind::Slide, name, axis) };
    vec![
        slide("rootx", [1.0, 0.0, 0.0]),
        Joint { reference: height, ..slide("rootz", [0.0, 0.0, 1.0]) },
        joint(JointKind::Hinge, "rooty", [0.0, 1.0, 0.0]),
    ]
}

/// A geom: a shape and its surface.
#[derive(Clone)]
pub(super) struct Geom {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) skin: Skin,
}

/// Shapes, in the frame of their body.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Half-sizes in metres; z is the depth to which it is drawn.
    Plane {
        size: [f64; 3],
        pos: [f64; 3],
    },
    Sphere {
        radius: f64,
        pos: [f64; 3],
    },
    /// A capsule between two points.
    Rod {
        radius: f64,
        from: [f64; 3],
        to: [f64; 3],
    },
    /// A capsule along z, tilted about y.
    Capsule {
        radius: f64,
        half: f64,
        pos: [f64; 3],
        tilt: f64,
    },
}

/// The density, colour and contact parameters of a geom.
#[derive(Clone, Copy)]
pub(super) struct Skin {
    pub(super) density: f64,
    pub(super) friction: [f64; 3],
    /// Dimension of a contact: 1 has no friction, 3 has sliding friction.
    pub(super) condim: u8,
    /// Two geoms collide if `touches` of one shares a bit with `touched_by` of the other.
    pub(super) touches: u8,
    pub(super) touched_by: u8,
    /// Half of the published margin. MuJoCo 3 adds the margins of the two geoms of a contact, while 2.3.3 took the
    /// larger one. All geoms of a walker have the same margin.
    pub(super) margin: f64,
    /// (solref, solimp) of contacts; `None` takes MuJoCo's default.
    pub(super) contact: Option<([f64; 2], [f64; 3])>,
    pub(super) rgba: [f64; 4],
}

/// MuJoCo's defaults, in the colour of the walkers.
pub(super) const SKIN: Skin = Skin {
    density: 1000.0,
    friction: [1.0, 0.005, 0.0001],
    condim: 3,
    touches: 1,
    touched_by: 1,
    margin: 0.0,
    contact: None,
    rgba: [0.8, 0.6, 0.4, 1.0],
};

/// Colour of the floors.
pub(super) const FLOOR_RGBA: [f64; 4] = [0.8, 0.9, 0.8, 1.0];

/// A geom of that name, shape and skin.
pub(super) fn geom(name: &str, shape: Shape, skin: Skin) -> Geom {
    Geom { name: name.to_owned(), shape, skin }
}

/// A torque on a joint.
pub(super) struct Motor {
    pub(super) joint: String,
    pub(super) gear: f64,
    /// Upper bound on the absolute value of a control.
    pub(super) bound: f64,
}

/// One motor of the same gear and bound on each of the joints.
pub(super) fn motors(gear: f64, bound: f64, joints: &[&str]) -> Vec<Motor> {
    joints.iter().map(|joint| Motor { joint: (*joint).to_owned(), gear, bound }).collect()
}

impl Body {
    /// Multiplies the density of every geom of this body and of its parts.
    pub(super) fn scale_density(&mut self, factor: f64) {
        self.geoms.iter_mut().for_each(|geom| geom.skin.density *= factor);
        self.parts.iter_mut().for_each(|part| part.scale_density(factor));
    }
}

impl Model {
    /// The model as MJCF text.
    pub(super) fn mjcf(&self) -> String {
        let Self { angle, timestep, solver, medium, floor, robot, motors } = self;
        let angle = match angle {
            Angle::Degree => "degree",
            Angle::Radian => "radian",
        };
        let solver = match solver {
            Solver::Euler => "integrator='Euler'",
            Solver::RungeKutta => "integrator='RK4'",
            Solver::RungeKuttaPgs => "integrator='RK4' solver='PGS' iterations='50'",
        };
        let Medium { density, viscosity } = medium;
        let mut text = format!(
            "<mujoco><compiler angle='{angle}'/>\
             <option timestep='{timestep}' {solver} density='{density}' viscosity='{viscosity}'/>\
             <size memory='{ARENA}'/><worldbody>"
        );
        floor.write(&mut text);
        robot.write(&mut text);
        text.push_str("</worldbody><actuator>");
        for Motor { joint, gear, bound } in motors {
            attributes(&mut text, "motor", &[("gear", &[*gear]), ("ctrlrange", &[-bound, *bound])]);
            let _ = write!(text, " joint='{joint}' ctrllimited='true'/>");
        }
        text.push_str("</actuator></mujoco>");
        text
    }
}

/// Size of MuJoCo's arena in megabytes: several times what contacts and constraints of the walkers need.
const ARENA: &str = "2M";

impl Body {
    fn write(&self, text: &mut String) {
        let Self { name, pos, lean, joints, geoms, parts } = self;
        attributes(text, "body", &[("pos", pos)]);
        if let Some([w, y]) = lean {
            let _ = write!(text, " quat='{w} 0 {y} 0'");
        }
        let _ = write!(text, " name='{name}'>");
        joints.iter().for_each(|joint| joint.write(text));
        geoms.iter().for_each(|geom| geom.write(text));
        parts.iter().for_each(|part| part.write(text));
        text.push_str("</body>");
    }
}

impl Joint {
    fn write(&self, text: &mut String) {
        let Self { kind, name, axis, pos, range, armature, damping, stiffness, reference, limit } = self;
        let numbers: [(&str, &[f64]); 6] = [
            ("axis", axis),
            ("pos", pos),
            ("armature", &[*armature]),
            ("damping", &[*damping]),
            ("stiffness", &[*stiffness]),
            ("ref", &[*reference]),
        ];
        // a free joint has neither axis nor position
        attributes(text, "joint", if matches!(kind, JointKind::Free) { &numbers[2..5] } else { &numbers });
        if let Some([low, high]) = range {
            let _ = write!(text, " limited='true' range='{low} {high}'");
        }
        if let Some((solref, solimp)) = limit {
            let _ = write!(text, " solreflimit='{}' solimplimit='{}'", list(solref), list(solimp));
        }
        let kind = match kind {
            JointKind::Free => "free",
            JointKind::Slide => "slide",
            JointKind::Hinge => "hinge",
        };
        let _ = write!(text, " name='{name}' type='{kind}'/>");
    }
}

impl Geom {
    fn write(&self, text: &mut String) {
        let Skin { density, friction, condim, touches, touched_by, margin, contact, rgba } = &self.skin;
        attributes(
            text,
            "geom",
            &[("density", &[*density]), ("friction", friction), ("margin", &[*margin]), ("rgba", rgba)],
        );
        let _ = write!(text, " condim='{condim}' contype='{touches}' conaffinity='{touched_by}'");
        if let Some((solref, solimp)) = contact {
            let _ = write!(text, " solref='{}' solimp='{}'", list(solref), list(solimp));
        }
        let _ = match self.shape {
            Shape::Plane { size, pos } => {
                write!(text, " type='plane' size='{}' pos='{}'", list(&size), list(&pos))
            }
            Shape::Sphere { radius, pos } => {
                write!(text, " type='sphere' size='{radius}' pos='{}'", list(&pos))
            }
            Shape::Rod { radius, from, to } => {
                write!(text, " type='capsule' size='{radius}' fromto='{} {}'", list(&from), list(&to))
            }
            Shape::Capsule { radius, half, pos, tilt } => write!(
                text,
                " type='capsule' size='{radius} {half}' pos='{}' axisangle='0 1 0 {tilt}'",
                list(&pos)
            ),
        };
        let _ = write!(text, " name='{}'/>", self.name);
    }
}

/// Opens an element and writes its numeric attributes.
fn attributes(text: &mut String, element: &str, numbers: &[(&str, &[f64])]) {
    let _ = write!(text, "<{element}");
    for (key, values) in numbers {
        let _ = write!(text, " {key}='{}'", list(values));
    }
}

/// Numbers as text, separated by spaces.
fn list(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}
