//! Tells when no contact is possible, so that MuJoCo need not search for contacts.
//!
//! ```text
//! clear = for every solid body: it is fixed or asleep, and
//!         |robot − body| > reach of the robot + reach of the body + way of the robot in one physics step
//! ```
//! The robot must glide over the floor, as the point does. The car rolls on it and always has contacts.

use epo_mujoco::{BodyId, Sim};

use super::stage::distance3;

/// Added to every distance, in metres. It is far above rounding errors.
const SLACK: f64 = 1e-6;

/// The robot and the bodies that it can touch.
#[derive(Clone, Debug)]
pub(super) struct Clearance {
    robot: BodyId,
    obstacles: Vec<Obstacle>,
}

#[derive(Clone, Debug)]
struct Obstacle {
    body: BodyId,
    fixed: bool,
    /// Distance of the origins beyond which the robot does not touch it, in metres.
    reach: f64,
}

impl Clearance {
    /// `None` if contacts must always be searched. `sleeps` says whether bodies at rest sleep.
    pub(super) fn new(sim: &Sim, robot: BodyId, sleeps: bool) -> Option<Self> {
        let own = sim.reach(robot).unwrap_or(0.0);
        let obstacle = |body| {
            let reach = sim.reach(body)? + own + SLACK;
            Some(Obstacle { body, fixed: sim.is_fixed(body), reach })
        };
        let others = (1..sim.n_bodies()).map(BodyId).filter(|body| *body != robot); // 0 is the floor
        let obstacles: Vec<Obstacle> = others.filter_map(obstacle).collect();
        let possible = sim.glides(robot) && (sleeps || obstacles.iter().all(|o| o.fixed));
        possible.then_some(Self { robot, obstacles })
    }

    /// Whether the next pass finds no contact that has a force. The last pass may have been made before the last
    /// integration.
    pub(super) fn is_clear(&self, sim: &Sim) -> bool {
        let speed: f64 = sim.joint_velocities(self.robot).iter().map(|v| v.abs()).sum();
        let (from, way) = (sim.xpos(self.robot), speed * sim.timestep());
        let clear = |o: &Obstacle| {
            (o.fixed || sim.is_asleep(o.body)) && distance3(from, sim.xpos(o.body)) > o.reach + way
        };
        self.obstacles.iter().all(clear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLIDE: &str = r#"<joint type="slide" axis="1 0 0"/><joint axis="0 0 1"/>"#;

    /// A ball of radius 0.1 at x = 0 with the given joints, and a ball of the same size at x = 0.201.
    fn model(height: f64, joints: &str, other: &str) -> (Sim, Option<Clearance>) {
        let mut sim = Sim::from_xml(&format!(
            r#"<mujoco><worldbody>
            <geom type="plane" size="1 1 1"/>
            <body name="robot" pos="0 0 {height}">{joints}<geom size=".1"/></body>
            <body pos=".201 0 .1">{other}</body>
            </worldbody></mujoco>"#
        ))
        .unwrap();
        sim.forward();
        let clearance = Clearance::new(&sim, sim.body("robot").unwrap(), true);
        (sim, clearance)
    }

    #[test]
    fn a_robot_is_clear_until_its_next_step_can_reach_something() {
        let (mut sim, clearance) = model(0.1, SLIDE, r#"<geom size=".1"/>"#);
        let clearance = clearance.unwrap();
        for (speed, clear) in [(0.0, true), (0.4, true), (0.6, false), (-0.6, false), (f64::NAN, false)] {
            sim.qvel_mut()[0] = speed; // a step takes 2 ms, and 1 mm is free
            assert_eq!(clearance.is_clear(&sim), clear, "{speed} m/s");
        }
        for (other, clear) in [
            (r#"<geom size=".2" contype="0" conaffinity="0"/>"#, true),
            (r#"<freejoint/><geom size=".1"/>"#, false),
            (r#"<geom size=".1" margin=".01"/>"#, false),
            (r#"<geom size=".1" pos="0 .1 0"/>"#, false),
            (r#"<geom type="plane" size="1 1 1"/>"#, false),
        ] {
            let (sim, clearance) = model(0.1, SLIDE, other);
            assert_eq!(clearance.unwrap().is_clear(&sim), clear, "{other}");
        }
    }

    #[test]
    fn without_sleep_a_body_that_can_move_is_never_out_of_the_way() {
        for (other, possible) in [("<geom size='.1'/>", true), ("<freejoint/><geom size='.1'/>", false)] {
            let (sim, _) = model(0.1, SLIDE, other);
            let clearance = Clearance::new(&sim, sim.body("robot").unwrap(), false);
            assert_eq!(clearance.is_some(), possible, "{other}");
        }
    }

    #[test]
    fn a_robot_that_can_press_on_the_floor_is_never_clear() {
        for (height, joints) in [
            (0.099, SLIDE),
            (0.1, "<freejoint/>"),
            (0.1, r#"<joint type="slide" axis="1 0 -1"/>"#),
            (0.1, r#"<joint axis="0 1 1"/>"#),
            (0.1, r#"<geom size=".05" margin=".1"/>"#),
            (0.1, r#"<joint axis="0 0 1" pos="1 0 0"/>"#),
            (0.1, r#"<body><geom size=".05"/></body>"#),
        ] {
            assert!(model(height, joints, "").1.is_none(), "{height} {joints}");
        }
    }
}
