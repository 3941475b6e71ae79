//! The model of a task as MJCF text, written from the robot and the scene.
//!
//! The order of bodies decides the order of joints, geoms and contacts, and therefore the last bits of the physics. It
//! is: the robot, loose and carried bodies, carriers, fixed bodies, each in the order of the scene.

use std::fmt::Write;

use super::objects::{Motion, Pose, VASE_MOVES, numbers};
use super::robots::Robot;
use super::scene::Scene;

/// Size of MuJoCo's arena (the memory for contacts and constraints) in megabytes.
/// It is at least twice what a pile of all loose objects on top of the robot needs; a test checks that.
/// MuJoCo's default would be more than 100 megabytes.
pub(crate) const ARENA_MB: usize = 4;

/// Speed in m/s below which a body may sleep with fast physics. MuJoCo compares each component of the velocity with it.
/// A vase that falls asleep is therefore slower than √3/2 of the speed from which its motion has a cost. With MuJoCo's
/// default of 1e-3, vases that still move would sleep.
const SLEEP_SPEED: f64 = VASE_MOVES / 2.0;

/// The model with its bodies at `poses`: first the robot, then the objects in the order of the scene.
pub(crate) fn mjcf(robot: &Robot, scene: &Scene, poses: &[Pose]) -> String {
    let mut at = poses[1..].iter();
    let (mut loose, mut carriers, mut fixed, mut welds) = Default::default();
    for group in &scene.groups {
        for (i, pose) in (0..group.n).zip(&mut at) {
            let (name, object) = (group.body_name(i), &group.object);
            let (pos, quat) = (numbers(&pose.at(object.height())), numbers(&pose.quat()));
            let (out, joint) = match object.motion() {
                Motion::Fixed => (&mut fixed, String::new()),
                Motion::Loose | Motion::Carried(_) => (&mut loose, format!(r#"<freejoint name="{name}"/>"#)),
            };
            let geoms = object.geoms(&name);
            line(out, &format!(r#"<body name="{name}" pos="{pos}" quat="{quat}">{joint}{geoms}</body>"#));
            if let Motion::Carried(carrier) = object.motion() {
                // the carrier starts at the origin; its geom is only drawn, at the position of the
                // object
                let (mocap, pos) = (group.carrier_name(i), numbers(&pose.at(carrier.height)));
                let look = carrier.geom;
                line(
                    &mut carriers,
                    &format!(
                        r#"<body name="{mocap}" mocap="true"><geom name="{mocap}" {look} pos="{pos}" quat="{quat}" contype="0" conaffinity="0"/></body>"#
                    ),
                );
                line(
                    &mut welds,
                    &format!(r#"<weld name="{mocap}" body1="{mocap}" body2="{name}" solref=".02 1.5"/>"#),
                );
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
  <option timestep="{timestep}" sleep_tolerance="{SLEEP_SPEED}"/>
  <default>{defaults}</default>
  <worldbody>
    <geom name="floor" type="plane" condim="6" size="{floor}" rgba="1 1 1 1"/>
    <body name="agent" pos="{pos}" quat="{quat}">{body}</body>
{loose}{carriers}{fixed}  </worldbody>
  <equality>
{welds}  </equality>
  <sensor>{sensors}</sensor>
  <actuator>{actuators}</actuator>
</mujoco>
"#
    )
}

fn line(out: &mut String, element: &str) {
    let _ = writeln!(out, "    {element}");
}
