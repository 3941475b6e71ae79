//! The model of a task, written as MJCF text from the robot's file and the scene.
//!
//! The order matters to the last bit: robot, loose bodies (vases or the box, then the gremlins' boxes), mocap bodies,
//! fixed bodies, each in the order of the scene. It fixes the order of joints, geoms and contacts.

use std::fmt::Write;

use super::robots::Robot;
use super::scene::{Kind, Object, Scene};

/// Height of a gremlin's box, and of its mocap body.
pub(crate) const GREMLIN_Z: f64 = 0.1;

/// Where a body stands: centre in the plane and angle about the vertical.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pose {
    pub(crate) xy: [f64; 2],
    pub(crate) angle: f64,
}

impl Pose {
    /// Rotation about the vertical as a quaternion (w, x, y, z).
    pub(crate) fn quat(&self) -> [f64; 4] {
        [(self.angle / 2.0).cos(), 0.0, 0.0, (self.angle / 2.0).sin()]
    }
    /// Position at height `z`.
    pub(crate) fn at(&self, z: f64) -> [f64; 3] {
        [self.xy[0], self.xy[1], z]
    }
}

/// How a kind of object looks: height of its centre, geom, colour, and whether it is solid.
struct Look {
    z: f64,
    shape: &'static str,
    size: String,
    rgba: &'static str,
    solid: bool,
}

fn look(kind: Kind) -> Look {
    let (z, shape, size, rgba, solid) = match kind {
        // the goal's marker is as high as its radius; its foot is 1 cm above the floor
        Kind::Goal { radius } => {
            (radius / 2.0 + 0.01, "cylinder", numbers(&[radius, radius / 2.0]), "0 1 0 .25", false)
        }
        Kind::Hazard { radius } => (0.02, "cylinder", numbers(&[radius, 0.01]), "0 0 1 .25", false),
        Kind::Vase => (0.1 - 4e-5, "box", numbers(&[0.1; 3]), "0 1 1 1", true),
        Kind::Gremlin => (GREMLIN_Z, "box", numbers(&[0.1; 3]), ".5 0 1 1", true),
        Kind::Button => (0.1, "sphere", numbers(&[0.1]), "1 .5 0 1", true),
        Kind::Pillar => (0.5, "cylinder", numbers(&[0.2, 0.5]), ".5 .5 1 1", true),
        Kind::PushBox => (0.0, "box", String::new(), "1 1 0 .25", true), // sizes come from the robot
        Kind::Circle { radius } => (0.01, "cylinder", numbers(&[radius, 0.01]), "0 1 0 .1", false),
        Kind::Sigwall { half_length, .. } => {
            (0.25, "box", numbers(&[0.05, half_length, 0.3]), "1 1 0 .1", false)
        }
    };
    Look { z, shape, size, rgba, solid }
}

/// Density of vases and gremlins: they weigh 8 mg.
const LIGHT: f64 = 0.001;

/// Height of the body's centre.
pub(crate) fn height(object: &Object, robot: &Robot) -> f64 {
    if object.kind == Kind::PushBox { robot.push_box.half_size } else { look(object.kind).z }
}

/// The model with its bodies at `poses`: first the robot, then the objects in the order of the scene.
pub(crate) fn mjcf(robot: &Robot, scene: &Scene, poses: &[Pose]) -> String {
    let mut at = poses[1..].iter();
    let (mut loose, mut mocap, mut fixed, mut welds) = Default::default();
    for object in scene.objects {
        for (i, pose) in (0..object.n).zip(&mut at) {
            match object.kind {
                Kind::PushBox => push_box(&mut loose, robot, pose),
                Kind::Vase => body(&mut loose, object, i, pose),
                Kind::Gremlin => {
                    body(&mut loose, object, i, pose);
                    gremlin_mocap(&mut mocap, &mut welds, i, pose);
                }
                _ => body(&mut fixed, object, i, pose),
            }
        }
    }
    let Robot { timestep, defaults, body, sensors, actuators, height, .. } = robot;
    let (pos, quat) = (numbers(&poses[0].at(*height)), numbers(&poses[0].quat()));
    let floor = numbers(&[scene.floor, scene.floor, 0.1]);
    format!(
        r#"<mujoco>
  <compiler angle="radian"/>
  <size memory="{ARENA_MB}M"/>
  <option timestep="{timestep}"/>
  <default>{defaults}</default>
  <worldbody>
    <geom name="floor" type="plane" condim="6" size="{floor}" rgba="1 1 1 1"/>
    <body name="agent" pos="{pos}" quat="{quat}">{body}</body>
{loose}{mocap}{fixed}  </worldbody>
  <equality>
{welds}  </equality>
  <sensor>{sensors}</sensor>
  <actuator>{actuators}</actuator>
</mujoco>
"#
    )
}

/// Room for contacts and constraints, megabytes: twice what a pile of everything loose on top of the robot takes (a
/// test holds it to that). By itself MuJoCo would take more than a hundred.
pub(crate) const ARENA_MB: usize = 4;

/// One object; loose ones get a free joint and are light.
fn body(out: &mut String, object: &Object, i: usize, pose: &Pose) {
    let Look { z, shape, size, rgba, solid } = look(object.kind);
    let (name, pos, quat) = (object.name(i), numbers(&pose.at(z)), numbers(&pose.quat()));
    let (joint, density) = match object.kind {
        Kind::Vase | Kind::Gremlin => {
            (format!(r#"<freejoint name="{name}"/>"#), format!(r#" density="{LIGHT}""#))
        }
        _ => Default::default(),
    };
    let collide = u8::from(solid);
    let _ = writeln!(
        out,
        r#"    <body name="{name}" pos="{pos}" quat="{quat}">{joint}<geom name="{name}" type="{shape}" size="{size}" rgba="{rgba}" contype="{collide}" conaffinity="{collide}"{density}/></body>"#
    );
}

/// The box to be pushed: a cube with a smaller block at each upright edge, so that a round robot can grip it.
fn push_box(out: &mut String, robot: &Robot, pose: &Pose) {
    let (d, density) = (robot.push_box.half_size, robot.push_box.density);
    let (pos, quat) = (numbers(&pose.at(d)), numbers(&pose.quat()));
    let look = format!(r#"type="box" density="{density}" rgba="{}""#, look(Kind::PushBox).rgba);
    let _ = write!(
        out,
        r#"    <body name="push_box" pos="{pos}" quat="{quat}"><freejoint name="push_box"/><geom name="push_box" size="{}" {look}/>"#,
        numbers(&[d; 3])
    );
    for (i, (x, y)) in [(d, d), (-d, d), (d, -d), (-d, -d)].into_iter().enumerate() {
        let (size, pos) = (numbers(&[d / 2.0, d / 2.0, d]), numbers(&[x, y, 0.0]));
        let _ = write!(out, r#"<geom name="col{}" size="{size}" pos="{pos}" {look}/>"#, i + 1);
    }
    out.push_str("</body>\n");
}

/// The mocap body that carries a gremlin, and the weld between the two. The body starts at the origin; its geom is
/// only drawn.
fn gremlin_mocap(bodies: &mut String, welds: &mut String, i: usize, pose: &Pose) {
    let (size, pos, quat) = (look(Kind::Gremlin).size, numbers(&pose.at(GREMLIN_Z)), numbers(&pose.quat()));
    let _ = writeln!(
        bodies,
        r#"    <body name="gremlin{i}mocap" mocap="true"><geom name="gremlin{i}mocap" type="box" size="{size}" rgba=".5 0 1 .1" pos="{pos}" quat="{quat}" contype="0" conaffinity="0"/></body>"#
    );
    let _ = writeln!(
        welds,
        r#"    <weld name="gremlin{i}mocap" body1="gremlin{i}mocap" body2="gremlin{i}obj" solref=".02 1.5"/>"#
    );
}

/// Numbers as text that reads back to the same bits.
fn numbers(values: &[f64]) -> String {
    let words: Vec<_> = values.iter().map(|v| format!("{v:?}")).collect();
    words.join(" ")
}
