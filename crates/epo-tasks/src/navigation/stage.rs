//! The simulated scene: where everything is, what touches the robot, and the random draws of the episode.
//!
//! The rules of a task and the costs of objects read it. Rules also change it.

use std::f64::consts::TAU;

use epo_mujoco::{BodyId, Error, GeomId, Sim};

use super::NavigationTask;
use super::clearance::Clearance;
use super::layout::{Layout, LayoutError, Spot, distance};
use super::mjcf::mjcf;
use super::objects::{Carrier, Motion, Pose};
use super::scene::GroupId;
use crate::Physics;
use crate::numpy_legacy::RandomState;

/// The simulated scene of one environment.
#[derive(Debug)]
pub struct Stage {
    pub(crate) sim: Sim,
    pub(crate) rng: RandomState,
    pub(crate) task: &'static NavigationTask,
    /// Whether bodies at rest sleep: only with fast physics, and only if the scene has loose objects.
    pub(super) sleeps: bool,
    /// Tells when contacts need not be searched; `None` if they always are.
    clearance: Option<Clearance>,
    layout: Layout,
    /// The body of every entry of the layout; the robot is the first.
    bodies: Vec<BodyId>,
    /// Height of every entry of the layout.
    heights: Vec<f64>,
    /// Initial poses of everything in the layout in this episode.
    pub(super) poses: Vec<Pose>,
    /// Per group: its first entry of the layout.
    first: Vec<usize>,
    /// Per group: whether the lidar sees it at the moment.
    visible: Vec<bool>,
    /// Per entry of the layout: whether the robot touches it, and whether touching it has a cost at the moment.
    touched: Vec<bool>,
    charged: Vec<bool>,
    carried: Vec<Carried>,
    contacts: Vec<Contact>,
}

/// A group of carried objects.
#[derive(Debug)]
struct Carried {
    carrier: Carrier,
    /// Its first entry of the layout.
    first: usize,
    /// The geom that is drawn for each carrier.
    geoms: Vec<GeomId>,
}

/// The owner of a geom, for the evaluation of contacts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Contact {
    Robot,
    /// The object at this entry of the layout.
    Object(usize),
    Other,
}

/// Building and resetting.
impl Stage {
    /// Compiles the scene with its bodies at arbitrary positions; [`reset`](Self::reset) moves them
    /// to random ones.
    pub(crate) fn new(task: &'static NavigationTask, physics: Physics) -> Result<Self, Error> {
        // not the origin: MuJoCo marks geoms that sit exactly on the frame of their body when it compiles
        let n = 1 + task.scene.groups.iter().map(|group| group.n).sum::<usize>();
        let poses: Vec<_> = (0..n).map(|i| Pose { xy: [i as f64 + 1.0, 0.5], angle: 0.5 }).collect();
        let mut motions = task.scene.groups.iter().map(|group| group.object.motion());
        let sleeps = physics == Physics::Fast && motions.any(|motion| matches!(motion, Motion::Loose));
        let sim = Sim::from_xml(&mjcf(task.robot, &task.scene, &poses))?;
        let clearance = match physics {
            Physics::Published => None,
            Physics::Fast => Clearance::new(&sim, sim.body("agent")?, sleeps),
        };
        Self::with(sim, task, sleeps, clearance)
    }

    /// A second stage of the same scene, not yet reset. The model is copied, not compiled again.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Self::with(self.sim.try_clone()?, self.task, self.sleeps, self.clearance.clone())
    }

    fn with(
        sim: Sim,
        task: &'static NavigationTask,
        sleeps: bool,
        clearance: Option<Clearance>,
    ) -> Result<Self, Error> {
        let scene = &task.scene;
        let w = scene.half_width;
        let square = [-w, -w, w, w];
        let mut spots = vec![Spot::within(scene.start.unwrap_or(square), scene.start_keepout)];
        let (mut bodies, mut heights) = (vec![sim.body("agent")?], vec![task.robot.height]);
        let (mut first, mut carried) = (Vec::new(), Vec::new());
        // every body that is neither the world nor an object nor a carrier is a part of the robot
        let mut owner = vec![Contact::Robot; sim.n_bodies()];
        owner[0] = Contact::Other;
        for group in &scene.groups {
            first.push(bodies.len());
            let mut geoms = Vec::new();
            for i in 0..group.n {
                let fixed = group.object.fixed_pose(i).map(|pose| Spot::at(pose.xy, group.keepout));
                spots.push(fixed.unwrap_or_else(|| Spot::within(square, group.keepout)));
                let body = sim.body(&group.body_name(i))?;
                owner[body.0] = Contact::Object(bodies.len());
                if let Motion::Carried(_) = group.object.motion() {
                    let name = group.carrier_name(i);
                    owner[sim.body(&name)?.0] = Contact::Other;
                    geoms.push(sim.geom(&name)?);
                }
                bodies.push(body);
                heights.push(group.object.height());
            }
            if let (Motion::Carried(carrier), Some(&first)) = (group.object.motion(), first.last()) {
                carried.push(Carried { carrier, first, geoms });
            }
        }
        let n = bodies.len();
        Ok(Self {
            contacts: sim.geoms().iter().map(|geom| owner[geom.body.0]).collect(),
            sim,
            rng: RandomState::new(0),
            task,
            sleeps,
            clearance,
            layout: Layout::new(spots),
            bodies,
            heights,
            poses: vec![Pose::default(); n],
            visible: vec![true; first.len()],
            first,
            touched: vec![false; n],
            charged: vec![true; n],
            carried,
        })
    }

    /// Number of things that the layout places, the robot included.
    pub(crate) fn n_placed(&self) -> usize {
        self.bodies.len()
    }

    /// The body of the robot.
    pub(crate) fn robot_body(&self) -> BodyId {
        self.bodies[0]
    }

    /// Whether it leaves out work that published physics does.
    pub(super) fn saves_work(&self) -> bool {
        self.sleeps || self.clearance.is_some()
    }

    /// Number of bodies that sleep.
    #[cfg(test)]
    pub(crate) fn n_asleep(&self) -> usize {
        (0..self.sim.n_bodies()).filter(|&b| self.sim.is_asleep(BodyId(b))).count()
    }

    /// Index in `qpos` of the first coordinate of every loose or carried body.
    #[cfg(test)]
    pub(crate) fn loose_qpos(&self) -> impl Iterator<Item = usize> {
        self.bodies[1..].iter().filter_map(|body| self.sim.free_joint(*body))
    }

    /// Draws a layout from a freshly seeded generator and places everything there, at rest.
    pub(crate) fn reset(&mut self, seed: u32) -> Result<(), LayoutError> {
        self.sim.set_sleep(false); // fixed bodies can only be placed while sleep is off
        self.rng = RandomState::new(seed);
        self.layout.sample(&mut self.rng)?;
        self.visible.fill(true);
        self.charged.fill(true);
        self.draw_poses();
        for (k, pose) in self.poses.iter().enumerate() {
            self.sim.place(self.bodies[k], pose.at(self.heights[k]), pose.quat());
        }
        for Carried { carrier, first, geoms } in &self.carried {
            for (pose, geom) in self.poses[*first..].iter().zip(geoms) {
                self.sim.place_geom(*geom, pose.at(carrier.height), pose.quat());
            }
        }
        self.sim.reset_placed();
        self.forward();
        self.sim.set_sleep(self.sleeps);
        Ok(())
    }

    /// Draws an angle for everything in the layout, even for an object with a fixed angle, as
    /// Safety-Gymnasium does.
    fn draw_poses(&mut self) {
        self.poses[0] = Pose { xy: self.layout.xy[0], angle: self.rng.uniform(0.0, TAU) };
        let mut k = 1;
        for group in &self.task.scene.groups {
            for i in 0..group.n {
                let drawn = self.rng.uniform(0.0, TAU);
                let angle = group.object.fixed_pose(i).map_or(drawn, |pose| pose.angle);
                self.poses[k] = Pose { xy: self.layout.xy[k], angle };
                k += 1;
            }
        }
    }
}

/// Stepping.
impl Stage {
    /// Whether the scene has carried objects.
    pub(crate) fn has_carried(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Moves the carriers to their positions at the current time. Call it before every physics
    /// step.
    pub(crate) fn carry(&mut self) {
        let (time, mut from) = (self.sim.time(), 0);
        for Carried { carrier, geoms, .. } in &self.carried {
            self.sim.mocap_pos_mut()[from..from + geoms.len()].fill((carrier.path)(time));
            from += geoms.len();
        }
    }

    /// Whether the next pass can do without contacts. Call it only if the last call of MuJoCo was a step.
    pub(super) fn is_clear(&self) -> bool {
        self.clearance.as_ref().is_some_and(|clearance| clearance.is_clear(&self.sim))
    }

    /// Computes all sensor readings of the current state, and finds the objects that the robot
    /// touches.
    pub(crate) fn forward(&mut self) {
        self.sim.forward();
        self.touched.fill(false);
        for [a, b] in self.sim.contacts() {
            use Contact::{Object, Robot};
            if let (Robot, Object(k)) | (Object(k), Robot) = (self.contacts[a.0], self.contacts[b.0]) {
                self.touched[k] = true;
            }
        }
    }

    /// Writes the current positions into the layout, so that a new position keeps clear of them.
    /// For a carried object, the layout keeps the initial position, as in Safety-Gymnasium.
    pub(crate) fn update_layout(&mut self) {
        self.layout.xy[0] = self.xy(0);
        for (group, &first) in self.task.scene.groups.iter().zip(&self.first) {
            if !matches!(group.object.motion(), Motion::Carried(_)) {
                for k in first..first + group.n {
                    self.layout.xy[k] = self.xy(k);
                }
            }
        }
    }

    /// Whether the lidar sees the group at the moment.
    pub(crate) fn is_visible(&self, GroupId(group): GroupId) -> bool {
        self.visible[group]
    }

    /// Poses for a model of the current scene. Fixed bodies may have moved since the reset, such as
    /// a goal that was met.
    pub(super) fn model_poses(&self) -> Vec<Pose> {
        let mut poses = self.poses.clone();
        for (k, pose) in poses.iter_mut().enumerate().skip(1) {
            if self.sim.free_joint(self.bodies[k]).is_none() {
                pose.xy = self.xy(k);
            }
        }
        poses
    }

    fn xy(&self, k: usize) -> [f64; 2] {
        let [x, y, _] = self.sim.xpos(self.bodies[k]);
        [x, y]
    }
}

/// Reading, for rules and objects.
impl Stage {
    /// Position of the robot, in metres.
    pub fn robot(&self) -> [f64; 3] {
        self.sim.xpos(self.bodies[0])
    }

    /// Velocity of the robot in world axes, in m/s.
    pub fn robot_velocity(&self) -> [f64; 3] {
        self.sim.velocity(self.bodies[0])
    }

    /// Orientation of the robot as a rotation matrix, row by row: `world = R · robot`.
    pub fn robot_mat(&self) -> [f64; 9] {
        self.sim.xmat(self.bodies[0])
    }

    /// Simulated time since the reset, in seconds.
    pub fn time(&self) -> f64 {
        self.sim.time()
    }

    /// The objects of a group.
    pub fn objects(&self, GroupId(group): GroupId) -> Objects<'_> {
        Objects { stage: self, first: self.first[group], n: self.task.scene.groups[group].n }
    }
}

/// Acting, for rules.
impl Stage {
    /// Draws a whole number from 0 to `n` − 1, each equally likely. `n` is at least 2.
    pub fn choose(&mut self, n: usize) -> usize {
        self.rng.choice(n as u32) as usize
    }

    /// Draws a number from the interval [`low`, `high`).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        self.rng.uniform(low, high)
    }

    /// Draws a new position for object `i` of a group, clear of the keep-outs of everything else,
    /// and moves the object there. If no free position is found in 10 000 draws, the object stays
    /// where it is and the result is `false`.
    ///
    /// The object must satisfy the condition of [`move_to`](Self::move_to).
    #[must_use]
    pub fn redraw(&mut self, group: GroupId, i: usize) -> bool {
        let k = self.first[group.0] + i;
        let found = self.layout.resample(k, &mut self.rng);
        if found {
            self.move_to(group, i, self.layout.xy[k]);
        }
        found
    }

    /// Moves object `i` of a group within the plane. The object must be fixed, and nothing may collide with it.
    pub fn move_to(&mut self, GroupId(group): GroupId, i: usize, xy: [f64; 2]) {
        self.sim.move_fixed(self.bodies[self.first[group] + i], xy);
    }

    /// Shows a group to the lidar or hides it. The ring of a hidden group is all zeros. A reset shows every
    /// group.
    pub fn set_visible(&mut self, GroupId(group): GroupId, visible: bool) {
        self.visible[group] = visible;
    }

    /// Sets whether touching object `i` of a group has a cost. After a reset, touching any object has a cost.
    pub fn set_charged(&mut self, GroupId(group): GroupId, i: usize, charged: bool) {
        self.charged[self.first[group] + i] = charged;
    }
}

/// The objects of one group on a stage, numbered from 0.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    stage: &'a Stage,
    first: usize,
    n: usize,
}

impl<'a> Objects<'a> {
    /// Number of objects.
    #[allow(clippy::len_without_is_empty, reason = "a group is not a container: it is never emptied")]
    pub fn len(&self) -> usize {
        self.n
    }

    /// The stage that they are on.
    pub fn stage(&self) -> &'a Stage {
        self.stage
    }

    /// Position of object `i`, in metres.
    pub fn position(&self, i: usize) -> [f64; 3] {
        self.stage.sim.xpos(self.body(i))
    }

    /// Position of object `i` in the plane, in metres.
    pub fn xy(&self, i: usize) -> [f64; 2] {
        self.stage.xy(self.entry(i))
    }

    /// Velocity of object `i` in world axes, in m/s.
    pub fn velocity(&self, i: usize) -> [f64; 3] {
        self.stage.sim.velocity(self.body(i))
    }

    /// Distance of the robot from object `i` in the plane, in metres, measured between their origins.
    pub fn robot_distance(&self, i: usize) -> f64 {
        distance(self.xy(i), self.stage.xy(0))
    }

    /// Whether the robot touches object `i`.
    pub fn touched(&self, i: usize) -> bool {
        self.stage.touched[self.entry(i)]
    }

    /// Returns true if touching object `i` has a cost at the moment; see [`Stage::set_charged`].
    pub fn is_charged(&self, i: usize) -> bool {
        self.stage.charged[self.entry(i)]
    }

    fn entry(&self, i: usize) -> usize {
        assert!(i < self.n, "the group has {} objects, so there is no object {i}", self.n);
        self.first + i
    }

    fn body(&self, i: usize) -> BodyId {
        self.stage.bodies[self.entry(i)]
    }
}

/// Distance in space, in metres.
pub(crate) fn distance3(p: [f64; 3], q: [f64; 3]) -> f64 {
    let d = [p[0] - q[0], p[1] - q[1], p[2] - q[2]];
    (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]).sqrt()
}
