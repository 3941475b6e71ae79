//! The robots, one file each.
//!
//! To add a published robot, describe it in its own file and add it to [`ROBOTS`]. Your own robot
//! is a `static` of type [`Robot`] that your [`NavigationTask`](super::NavigationTask) refers to.

mod car;
mod point;

pub use car::CAR;
pub use point::POINT;

/// A robot: the parts of its MJCF model, and how its sensors become an observation.
#[derive(Debug)]
pub struct Robot {
    /// Name in the ids of its tasks.
    pub name: &'static str,
    /// Duration of a physics step in seconds. A step of the environment has ten.
    pub timestep: f64,
    /// Height of its frame when an episode starts, in metres.
    pub height: f64,
    /// Content of `<default>`. It also applies to the objects of the scene.
    pub defaults: &'static str,
    /// Content of the body named `agent`.
    pub body: &'static str,
    /// Content of `<sensor>`.
    pub sensors: &'static str,
    /// Content of `<actuator>`. Controls are in [−1, 1].
    pub actuators: &'static str,
    /// Length of an action.
    pub act_len: usize,
    /// Length of its part of the observation, which comes before the lidar rings.
    pub obs_len: usize,
    /// Writes its part of the observation from the readings of all sensors.
    pub observe: fn(sensors: &[f64], obs: &mut [f64]),
}

/// Every robot of the published tasks, in the order of the list of tasks.
pub(crate) static ROBOTS: [&Robot; 2] = [&POINT, &CAR];
