//! The robots, one file each. To add one: describe it in a file of its own and name it in [`ROBOTS`].

mod car;
mod point;

/// A robot, as the parts of its MJCF model and how its sensors become an observation.
#[derive(Debug)]
pub(crate) struct Robot {
    /// Name in the ids of its tasks.
    pub(crate) name: &'static str,
    /// Seconds of a physics step.
    pub(crate) timestep: f64,
    /// Height of its frame when an episode begins.
    pub(crate) height: f64,
    /// Content of `<default>`; holds for the objects of the scene too.
    pub(crate) defaults: &'static str,
    /// Content of the body `agent`.
    pub(crate) body: &'static str,
    /// Content of `<sensor>`.
    pub(crate) sensors: &'static str,
    /// Content of `<actuator>`; controls are in [−1, 1].
    pub(crate) actuators: &'static str,
    /// Length of an action.
    pub(crate) act_len: usize,
    /// Length of its part of the observation.
    pub(crate) obs_len: usize,
    /// Writes that part from the sensor readings.
    pub(crate) observe: fn(sensors: &[f64], obs: &mut [f64]),
    /// The box that it pushes.
    pub(crate) push_box: PushBox,
}

/// A box fit for a robot's strength.
#[derive(Debug)]
pub(crate) struct PushBox {
    pub(crate) half_size: f64,
    pub(crate) keepout: f64,
    pub(crate) density: f64,
}

/// Every robot.
pub(crate) static ROBOTS: [Robot; 2] = [point::POINT, car::CAR];
