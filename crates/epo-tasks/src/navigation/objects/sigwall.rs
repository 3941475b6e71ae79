//! Sigwall: a wall that is only drawn. Being beyond it has a cost.
//!
//! ```text
//! two walls    cost_out_of_boundary = 1[|x| > distance]
//! four walls   cost_out_of_boundary = 1[|x| > distance or |y| > distance]     (x, y): the robot
//! ```

use std::f64::consts::FRAC_PI_2;

use super::{Object, Objects, Pose, numbers};

/// A wall that is only drawn: the robot and the lidar pass through it. Being beyond it has a cost.
///
/// The first two walls of a group stand at ± `distance` on the x axis, the next two on the y axis. A group has two or
/// four of them.
#[derive(Clone, Copy, Debug)]
pub struct Sigwall {
    /// Distance from the origin, in metres.
    pub distance: f64,
    /// Half the length of a wall, in metres.
    pub half_length: f64,
}

impl Object for Sigwall {
    fn name(&self) -> &'static str {
        "sigwall"
    }

    fn height(&self) -> f64 {
        0.25
    }

    fn geoms(&self, name: &str) -> String {
        let size = numbers(&[0.05, self.half_length, 0.3]);
        format!(
            r#"<geom name="{name}" type="box" size="{size}" rgba="1 1 0 .1" contype="0" conaffinity="0"/>"#
        )
    }

    fn fixed_pose(&self, i: usize) -> Option<Pose> {
        let d = self.distance;
        let poses = [([d, 0.0], 0.0), ([-d, 0.0], 0.0), ([0.0, d], FRAC_PI_2), ([0.0, -d], FRAC_PI_2)];
        let (xy, angle) = poses[i];
        Some(Pose { xy, angle })
    }

    fn is_seen(&self) -> bool {
        false
    }

    fn cost_terms(&self) -> &'static [&'static str] {
        &["cost_out_of_boundary"]
    }

    fn cost(&self, walls: &Objects<'_>, terms: &mut [f64]) {
        let [x, y, _] = walls.stage().robot();
        let beyond = x.abs() > self.distance || (walls.len() == 4 && y.abs() > self.distance);
        terms[0] = f64::from(beyond);
    }
}
