//! A scene: the arena of a task and the objects in it, as data.

use super::objects::Group;

/// The arena of a task and the objects in it. [`Scene::default`] is the arena that most published tasks share, without
/// objects.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Half the width of the square in which objects are placed, in metres. Default: 2.
    pub half_width: f64,
    /// Rectangle (x0, y0, x1, y1) in which the robot starts, in metres. Default: `None`, the whole square.
    pub start: Option<[f64; 4]>,
    /// Radius that is kept free around the robot when positions are drawn, in metres. Default: 0.4.
    pub start_keepout: f64,
    /// Half the width of the floor that is drawn, in metres. Default: 3.5. The floor that is simulated is infinite.
    pub floor: f64,
    /// Range of the lidar in metres. Default: 3. An object at this distance or farther is not seen.
    pub lidar_range: f64,
    /// Number of steps after which an episode is truncated. Default: 1000.
    pub max_steps: usize,
    /// Upper bound on the absolute value of a reward. Default: 10.
    pub reward_clip: f64,
    /// The objects. Random positions are drawn in this order, and the lidar rings of the
    /// observation are in the same order.
    pub groups: Vec<Group>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            half_width: 2.0,
            start: None,
            start_keepout: 0.4,
            floor: 3.5,
            lidar_range: 3.0,
            max_steps: 1000,
            reward_clip: 10.0,
            groups: Vec::new(),
        }
    }
}

/// Index of a group within its scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub(crate) usize);

impl Scene {
    /// The group whose kind has this name.
    ///
    /// # Panics
    /// If the scene has no such group. Rules look their groups up when a task is built, so the panic shows at once.
    pub fn group(&self, name: &str) -> GroupId {
        let found = self.groups.iter().position(|group| group.object.name() == name);
        GroupId(found.unwrap_or_else(|| panic!("the scene has no group of objects named `{name}`")))
    }
}
