//! The kinds of objects, one file each: shape, motion, cost, and what the lidar sees of an object.
//!
//! To add a kind, implement [`Object`] for a type of your own. A [`Group`] puts several of them into a
//! [`Scene`](super::Scene).

mod button;
mod circle;
mod goal;
mod gremlin;
mod hazard;
mod pillar;
mod push_box;
mod sigwall;
mod vase;

use std::fmt;
use std::sync::Arc;

pub use button::Button;
pub use circle::Circle;
pub use goal::Goal;
pub use gremlin::Gremlin;
pub use hazard::Hazard;
pub use pillar::Pillar;
pub use push_box::PushBox;
pub use sigwall::Sigwall;
pub(crate) use vase::VASE_MOVES;
pub use vase::Vase;

use super::stage::Objects;

/// A kind of object in a scene.
///
/// Only [`name`](Object::name), [`height`](Object::height) and [`geoms`](Object::geoms) are required. Such an
/// object stands still at a random position, the lidar sees it, and it has no cost.
///
/// ```
/// use epo_tasks::navigation::{Object, Objects, numbers};
///
/// /// A flat square of mud. Driving through it costs.
/// #[derive(Debug)]
/// struct Mud {
///     half_width: f64,
/// }
///
/// impl Object for Mud {
///     fn name(&self) -> &'static str {
///         "mud"
///     }
///     fn height(&self) -> f64 {
///         0.01
///     }
///     fn geoms(&self, name: &str) -> String {
///         let size = numbers(&[self.half_width, self.half_width, 0.005]);
///         format!(r#"<geom name="{name}" type="box" size="{size}" rgba=".4 .2 0 1" contype="0" conaffinity="0"/>"#)
///     }
///     fn cost_terms(&self) -> &'static [&'static str] {
///         &["cost_mud"]
///     }
///     fn cost(&self, mud: &Objects<'_>, terms: &mut [f64]) {
///         let over = |i| mud.robot_distance(i) < self.half_width;
///         terms[0] = f64::from((0..mud.len()).any(over));
///     }
/// }
/// ```
pub trait Object: fmt::Debug + Send + Sync {
    /// Name of the kind, such as `hazard`. The bodies of a group are named `hazard0`, `hazard1` and so on. A scene has
    /// at most one group of each name.
    fn name(&self) -> &'static str;

    /// Height of the origin of the body above the floor, in metres.
    fn height(&self) -> f64;

    /// The geoms of one object as MJCF elements, in the frame of its body.
    ///
    /// `name` is the name of the body. The names of geoms must be unique within the model, so the first geom takes the
    /// name of the body and others add a suffix. `contype="0" conaffinity="0"` makes a geom that nothing collides with.
    /// The text is compiled by MuJoCo, which can crash on malformed input.
    fn geoms(&self, name: &str) -> String;

    /// How the object moves. Default: [`Motion::Fixed`].
    fn motion(&self) -> Motion {
        Motion::Fixed
    }

    /// The pose of object `i` if it is the same in every episode. Default: `None`, which draws a
    /// position at random.
    fn fixed_pose(&self, _i: usize) -> Option<Pose> {
        None
    }

    /// Whether the observation has a lidar ring for the group. Default: true.
    fn is_seen(&self) -> bool {
        true
    }

    /// The point at which the lidar sees object `i`. Default: the position of its body.
    fn seen_at(&self, objects: &Objects<'_>, i: usize) -> [f64; 2] {
        objects.xy(i)
    }

    /// Names of the cost terms of the group, each beginning with `cost_`. Default: none.
    fn cost_terms(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes the cost terms of the present state, one number for each name in [`cost_terms`](Object::cost_terms). All
    /// are 0 on entry. The cost of a step is 1 if any term of any group is above 0, and 0 otherwise.
    ///
    /// It is called once per step, so it must not allocate.
    fn cost(&self, _objects: &Objects<'_>, _terms: &mut [f64]) {}
}

/// How an object moves.
#[derive(Clone, Copy, Debug)]
pub enum Motion {
    /// It stands still. Only the rules of a task can move it.
    Fixed,
    /// It slides and tumbles when something pushes it.
    Loose,
    /// It is loose, and a spring ties it to a carrier that moves along a path.
    Carried(Carrier),
}

/// The body that moves an object with [`Motion::Carried`]. Nothing collides with it.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// Position of the carrier after `seconds` of simulation, in metres. The carrier starts at the
    /// origin, so this is also the displacement to which the spring pulls the object.
    pub path: fn(seconds: f64) -> [f64; 3],
    /// Attributes of the MJCF geom that is drawn for the carrier: `type`, `size` and `rgba`.
    pub geom: &'static str,
    /// Height at which that geom is drawn, in metres.
    pub height: f64,
}

/// A position on the floor with an orientation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pose {
    /// Centre, in metres.
    pub xy: [f64; 2],
    /// Angle about the vertical axis, in radians.
    pub angle: f64,
}

impl Pose {
    /// The rotation as a quaternion (w, x, y, z).
    pub(crate) fn quat(&self) -> [f64; 4] {
        [(self.angle / 2.0).cos(), 0.0, 0.0, (self.angle / 2.0).sin()]
    }

    /// The position at height `z`.
    pub(crate) fn at(&self, z: f64) -> [f64; 3] {
        [self.xy[0], self.xy[1], z]
    }
}

/// Equal objects of one kind in a scene.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) n: usize,
    pub(crate) keepout: f64,
    pub(crate) charged: bool,
}

impl Group {
    /// Returns a group of `n` objects with the cost terms of their kind. `keepout` is the radius in
    /// metres that is kept free around each object when positions are drawn.
    pub fn new(n: usize, object: impl Object + 'static, keepout: f64) -> Self {
        Self { object: Arc::new(object), n, keepout, charged: true }
    }

    /// The same group without its cost terms.
    pub fn free_of_cost(self) -> Self {
        Self { charged: false, ..self }
    }

    /// Names of the cost terms that the group has.
    pub(crate) fn cost_terms(&self) -> &'static [&'static str] {
        if self.charged { self.object.cost_terms() } else { &[] }
    }

    /// Name of the body of object `i`.
    pub(crate) fn body_name(&self, i: usize) -> String {
        format!("{}{i}", self.object.name())
    }

    /// Name of the mocap body that carries object `i`.
    pub(crate) fn carrier_name(&self, i: usize) -> String {
        format!("{}{i}mocap", self.object.name())
    }
}

/// Returns numbers as MJCF text that parses to the same bits.
pub fn numbers(values: &[f64]) -> String {
    let words: Vec<_> = values.iter().map(|v| format!("{v:?}")).collect();
    words.join(" ")
}

/// Returns 1 if the robot touches an object of the group whose contact has a cost, and 0 otherwise. It is the
/// cost term of most solid objects.
fn touched(objects: &Objects<'_>) -> f64 {
    f64::from((0..objects.len()).any(|i| objects.touched(i) && objects.is_charged(i)))
}
