//! The navigation tasks: a robot in a plane among objects.
//!
//! One step is ten physics steps under one action, then the reward, the cost and the observation of the new state. The
//! physics, the objects and the random draws follow Safety-Gymnasium 1.0.0; `tests/parity.rs` compares them with
//! recorded episodes.
//!
//! A task of your own is a [`NavigationTask`]: a [`Robot`], a [`Scene`] with [`Group`]s of objects, and [`Rules`].
//! `examples/own_task` is a complete crate with one.
//!
//! - `robots/`: one file per robot
//! - `objects/`: one file per kind of object
//! - `tasks/`: one file per published family: its levels and its rules
//! - `scene`, `mjcf`: the parts of a task, and the model that is written from them
//! - `stage`: the simulated scene; `clearance`: when contacts need not be searched
//! - `layout`: where objects are placed; `lidar`: what the robot sees

mod clearance;
mod layout;
mod lidar;
mod mjcf;
mod objects;
mod robots;
mod rules;
mod scene;
mod stage;
mod tasks;

use std::ops::Range;

use epo_core::{ActionSpace, EnvError};
use epo_mujoco::{BodyId, Error, Sim};

use crate::Physics;
use crate::task_env::StepResult;
use lidar::{BINS, Viewpoint};
use tasks::FAMILIES;

pub use objects::{
    Button, Carrier, Circle, Goal, Gremlin, Group, Hazard, Motion, Object, Pillar, Pose, PushBox, Sigwall,
    Vase, numbers,
};
pub use robots::{CAR, POINT, Robot};
pub use rules::Rules;
pub use scene::{GroupId, Scene};
pub use stage::{Objects, Stage};

/// Physics steps per step of the environment.
const SUBSTEPS: usize = 10;

/// A navigation task: a robot, a scene and rules. [`register`](crate::register) adds it to the list of tasks.
///
/// The observation is the robot's part, then one lidar ring of 16 numbers for each visible group of objects, in the
/// order of the scene. The cost of a step is 1 if any cost term of any group is above 0, and 0 otherwise.
#[derive(Clone, Debug)]
pub struct NavigationTask {
    /// Id, by which commands and configurations name the task.
    pub id: String,
    /// The robot.
    pub robot: &'static Robot,
    /// The arena and its objects.
    pub scene: Scene,
    /// Makes the rules for one environment. It is given the scene, to look up groups of objects.
    pub rules: fn(&Scene) -> Box<dyn Rules>,
    /// Description of the reward in one line, for `epo tasks`.
    pub reward: String,
    /// Description of the cost in one line, for `epo tasks`.
    pub cost: String,
}

impl NavigationTask {
    /// Length of an observation.
    pub fn obs_len(&self) -> usize {
        let seen = self.scene.groups.iter().filter(|group| group.object.is_seen()).count();
        self.robot.obs_len + BINS * seen
    }
}

/// One lidar ring of an observation: the readings for one kind of object.
///
/// Sector k covers the bearings from k to k + 1 times 2π / 16, counter-clockwise from the x axis of the robot. Its reading
/// is 1 for an object at the robot and 0 for none within the range.
#[derive(Clone, Debug, PartialEq)]
pub struct LidarRing {
    /// Name of the kind of object, such as `hazard`.
    pub object: &'static str,
    /// Entries of the observation, one per sector.
    pub entries: Range<usize>,
    /// Range of the lidar, in metres. An object at this distance or farther is not seen.
    pub range: f64,
}

/// The published navigation tasks.
pub(crate) fn published() -> impl Iterator<Item = NavigationTask> {
    let families =
        robots::ROBOTS.iter().flat_map(|robot| FAMILIES.iter().map(move |family| (*robot, family)));
    families.flat_map(|(robot, family)| {
        let levels = (family.levels)(robot).into_iter().enumerate();
        levels.map(move |(i, level)| NavigationTask {
            id: format!("Safety{}{}{i}-v0", robot.name, family.name),
            robot,
            scene: level.scene,
            rules: family.rules,
            reward: family.reward.to_owned(),
            cost: level.cost.to_owned(),
        })
    })
}

/// The simulation of one navigation task.
#[derive(Debug)]
pub(crate) struct NavigationWorld {
    task: &'static NavigationTask,
    stage: Stage,
    rules: Box<dyn Rules>,
}

impl NavigationWorld {
    pub(crate) fn new(task: &'static NavigationTask, physics: Physics) -> Result<Self, Error> {
        Ok(Self::with(task, Stage::new(task, physics)?))
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self::with(self.task, self.stage.try_clone()?))
    }

    fn with(task: &'static NavigationTask, stage: Stage) -> Self {
        Self { task, stage, rules: (task.rules)(&task.scene) }
    }

    pub(crate) fn action_space(&self) -> ActionSpace {
        ActionSpace::symmetric(self.task.robot.act_len)
    }

    /// Names of the cost terms that [`step`](Self::step) writes.
    pub(crate) fn cost_terms(&self) -> Vec<String> {
        self.task.scene.groups.iter().flat_map(Group::cost_terms).map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn sim(&self) -> &Sim {
        &self.stage.sim
    }

    /// The lidar rings of the observation, in their order.
    pub(crate) fn lidar_rings(&self) -> Vec<LidarRing> {
        let (first, range) = (self.task.robot.obs_len, self.task.scene.lidar_range);
        let seen = self.task.scene.groups.iter().filter(|group| group.object.is_seen());
        let ring = |(i, group): (usize, &Group)| {
            let start = first + i * BINS;
            LidarRing { object: group.object.name(), entries: start..start + BINS, range }
        };
        seen.enumerate().map(ring).collect()
    }

    /// The distance that the goal requires to become small, in metres.
    pub(crate) fn goal_distance(&self) -> Option<f64> {
        self.rules.goal_distance(&self.stage)
    }

    /// The body of the robot.
    pub(crate) fn robot(&self) -> BodyId {
        self.stage.robot_body()
    }

    /// The model with loose bodies where the last reset put them, and fixed ones where they are now.
    pub(crate) fn mjcf(&self) -> String {
        let task = self.stage.task;
        mjcf::mjcf(task.robot, &task.scene, &self.stage.model_poses())
    }

    /// Whether it leaves out work that published physics does.
    pub(crate) fn saves_work(&self) -> bool {
        self.stage.saves_work()
    }

    /// Whether bodies at rest sleep.
    pub(crate) fn sleeps(&self) -> bool {
        self.stage.sleeps
    }

    pub(crate) fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        let seed = u32::try_from(seed).map_err(|_| EnvError::SeedTooLarge { seed })?;
        let (id, wanted) = (&self.task.id, self.stage.n_placed());
        let crowded = |placed| EnvError::Layout { task: id.clone(), tries: layout::ATTEMPTS, placed, wanted };
        if let Err(full) = self.stage.reset(seed) {
            return Err(crowded(full.placed));
        }
        // the layout has placed a goal already; Safety-Gymnasium draws it a second time
        if !self.rules.new_goal(&mut self.stage) {
            return Err(crowded(wanted - 1));
        }
        self.rules.begin(&mut self.stage);
        self.observe(obs);
        Ok(())
    }

    pub(crate) fn step(&mut self, action: &[f64], obs: &mut [f64], terms: &mut [f64]) -> StepResult {
        self.simulate(action);
        let clip = self.task.scene.reward_clip;
        let reward = self.rules.reward(&self.stage).clamp(-clip, clip);
        let cost = self.cost(terms);
        self.rules.end_step(&mut self.stage);
        let goal_met = self.rules.goal_met(&self.stage);
        let mut terminated = false;
        if goal_met {
            self.stage.update_layout();
            terminated = !self.rules.new_goal(&mut self.stage);
        }
        self.observe(obs);
        StepResult { reward, cost, terminated, goal_met }
    }

    /// Makes ten physics steps and computes the readings of the new state. The result is bit-equal to
    /// [`bare_physics`](Self::bare_physics), which is slower.
    fn simulate(&mut self, action: &[f64]) {
        self.stage.rng.double(); // Safety-Gymnasium draws the number of substeps, always ten
        self.control(action);
        self.stage.sim.set_sensors(false); // only the last forward pass is read
        for i in 0..SUBSTEPS {
            if self.stage.has_carried() {
                self.stage.carry();
                self.stage.sim.step();
            } else if i == 0 {
                // the last forward pass was made in this state; only the controls have changed
                self.stage.sim.step_from_forward();
            } else {
                self.stage.sim.set_contacts(!self.stage.is_clear());
                self.stage.sim.step();
            }
        }
        self.stage.sim.set_sensors(true);
        self.stage.sim.check_state();
        self.stage.sim.set_contacts(!self.stage.is_clear());
        self.stage.forward();
        self.stage.sim.set_contacts(true);
        self.stage.sim.check_acceleration();
    }

    fn control(&mut self, action: &[f64]) {
        for (control, a) in self.stage.sim.ctrl_mut().iter_mut().zip(action) {
            *control = a.clamp(-1.0, 1.0);
        }
    }

    /// Writes the cost terms of every group; returns 1 if any is above 0.
    fn cost(&self, mut terms: &mut [f64]) -> f64 {
        terms.fill(0.0);
        let mut any = false;
        for (i, group) in self.task.scene.groups.iter().enumerate() {
            if !group.charged {
                continue;
            }
            let (own, rest) = terms.split_at_mut(group.cost_terms().len());
            // called even without a named term: an object that writes a term that it does not name panics here
            group.object.cost(&self.stage.objects(GroupId(i)), own);
            any |= own.iter().any(|term| *term > 0.0);
            terms = rest;
        }
        f64::from(any)
    }

    /// Writes the robot's sensors, then one lidar ring per group of objects.
    fn observe(&self, obs: &mut [f64]) {
        let robot = self.task.robot;
        let (own, mut rings) = obs.split_at_mut(robot.obs_len);
        (robot.observe)(self.stage.sim.sensordata(), own);
        let from = Viewpoint { pos: self.stage.robot(), mat: self.stage.robot_mat() };
        let range = self.task.scene.lidar_range;
        for (i, group) in self.task.scene.groups.iter().enumerate() {
            if !group.object.is_seen() {
                continue;
            }
            let (ring, rest) = rings.split_at_mut(BINS);
            rings = rest;
            ring.fill(0.0);
            if self.stage.is_visible(GroupId(i)) {
                let objects = self.stage.objects(GroupId(i));
                for k in 0..group.n {
                    lidar::see(ring, &from, range, group.object.seen_at(&objects, k));
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn sim_mut(&mut self) -> &mut Sim {
        &mut self.stage.sim
    }

    /// Makes the physics calls of a step of the published task and nothing else. The benchmark compares with it.
    pub(crate) fn bare_physics(&mut self, action: &[f64]) {
        self.control(action);
        for _ in 0..SUBSTEPS {
            if self.stage.has_carried() {
                self.stage.carry();
            }
            self.stage.sim.step();
        }
        self.stage.sim.forward();
    }
}

#[cfg(test)]
mod tests {
    use crate::script::SETTLED;
    use epo_core::{Purpose, Stream};

    use super::*;
    use crate::registry::Source;

    /// Every task with both physics.
    fn every_task() -> impl Iterator<Item = (&'static NavigationTask, NavigationWorld)> {
        let tasks = crate::tasks().into_iter().filter_map(|info| match &info.source {
            Source::Navigation(task) => Some(task),
            _ => None,
        });
        tasks
            .flat_map(|task| Physics::ALL.map(|physics| (task, NavigationWorld::new(task, physics).unwrap())))
    }

    /// Random actions, each held for ten steps, so that the robot leaves its start.
    fn actions(task: &NavigationTask, seed: u64, steps: usize) -> Vec<Vec<f64>> {
        let mut rng = Stream::new(seed, Purpose::Random, 0);
        let mut draw = || (0..task.robot.act_len).map(|_| 2.0 * rng.uniform() - 1.0).collect::<Vec<_>>();
        let held: Vec<_> = (0..steps.div_ceil(10)).map(|_| draw()).collect();
        (0..steps).map(|t| held[t / 10].clone()).collect()
    }

    /// The action that drives no motor.
    fn idle(task: &NavigationTask) -> Vec<f64> {
        vec![0.0; task.robot.act_len]
    }

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn the_shortcuts_of_a_step_change_no_bit() {
        for (task, mut short) in every_task() {
            let mut plain = short.try_clone().unwrap();
            let (mut obs, mut terms) = (vec![0.0; task.obs_len()], vec![0.0; short.cost_terms().len()]);
            for seed in 0..2 {
                short.reset(seed, &mut obs).unwrap();
                plain.reset(seed, &mut obs).unwrap();
                for (t, action) in actions(task, seed, 150).iter().enumerate() {
                    short.step(action, &mut obs, &mut terms);
                    plain.bare_physics(action);
                    let same = |f: fn(&Sim) -> &[f64]| bits(f(short.sim())) == bits(f(plain.sim()));
                    assert!(same(Sim::qpos) && same(Sim::qvel), "{}: seed {seed}, step {t}: state", task.id);
                    assert!(same(Sim::sensordata), "{}: seed {seed}, step {t}: sensors", task.id);
                }
            }
        }
    }

    #[test]
    fn a_reset_gives_the_bits_of_a_new_compilation() {
        for (task, mut world) in every_task() {
            let mut obs = vec![0.0; task.obs_len()];
            for seed in [3, 4] {
                world.reset(seed, &mut obs).unwrap();
                let mut fresh =
                    Sim::from_xml(&mjcf::mjcf(task.robot, &task.scene, &world.stage.poses)).unwrap();
                let sim = &mut world.stage.sim;
                fresh.forward();
                fresh.set_sleep(world.stage.sleeps);
                let weights = |s: &Sim| bits(s.dof_invweight0());
                assert_eq!(weights(sim), weights(&fresh), "{}: inverse weights", task.id);
                for t in 0..50 {
                    for s in [&mut *sim, &mut fresh] {
                        s.ctrl_mut().fill(0.5);
                        let now = s.time();
                        s.mocap_pos_mut().fill([0.35 * now.sin(), 0.35 * now.cos(), 0.1]);
                        s.step();
                    }
                    assert_eq!(bits(sim.qpos()), bits(fresh.qpos()), "{}: seed {seed}, step {t}", task.id);
                    assert_eq!(bits(sim.sensordata()), bits(fresh.sensordata()), "{}: step {t}", task.id);
                }
            }
        }
    }

    #[test]
    fn bodies_sleep_only_with_fast_physics_and_only_where_some_come_to_rest() {
        for (task, mut world) in every_task() {
            let mut obs = vec![0.0; task.obs_len()];
            let mut terms = vec![0.0; world.cost_terms().len()];
            world.reset(0, &mut obs).unwrap();
            assert_eq!(world.stage.n_asleep(), 0, "{}: a body sleeps after a reset", task.id);
            for _ in 0..SETTLED {
                world.step(&idle(task), &mut obs, &mut terms);
            }
            // Nothing moves, so every vase and the box sleep. The robot and the gremlins never sleep.
            let rest = |group: &&Group| ["vase", "push_box"].contains(&group.object.name());
            let loose: usize = task.scene.groups.iter().filter(rest).map(|group| group.n).sum();
            let want = if world.stage.sleeps { loose } else { 0 };
            assert_eq!(world.stage.n_asleep(), want, "{}", task.id);
        }
    }

    /// This test fails if the episode after one with contacts and sleeping bodies differs from that of a new environment.
    #[test]
    fn a_reset_does_not_depend_on_sleeping_bodies() {
        for (task, mut used) in every_task().filter(|(_, world)| world.stage.sleeps) {
            let mut obs = vec![0.0; task.obs_len()];
            let mut terms = vec![0.0; used.cost_terms().len()];
            used.reset(3, &mut obs).unwrap();
            for action in actions(task, 3, 500) {
                used.step(&action, &mut obs, &mut terms);
            }
            assert!(used.stage.n_asleep() > 0, "{}", task.id);
            let mut new = used.try_clone().unwrap();
            for world in [&mut used, &mut new] {
                world.reset(4, &mut obs).unwrap();
            }
            let mut want = obs.clone();
            for (t, action) in actions(task, 4, 300).iter().enumerate() {
                used.step(action, &mut obs, &mut terms);
                new.step(action, &mut want, &mut terms);
                assert_eq!(bits(&obs), bits(&want), "{}: step {t}", task.id);
                assert_eq!(bits(used.sim().qpos()), bits(new.sim().qpos()), "{}: step {t}", task.id);
            }
        }
    }

    /// A goal that is met while bodies sleep is moved at once, and no body wakes up.
    #[test]
    fn a_goal_moves_while_bodies_sleep() {
        let goal = |world: &NavigationWorld| world.stage.objects(world.task.scene.group("goal")).position(0);
        for (task, mut world) in every_task().filter(|(_, world)| world.stage.sleeps) {
            let mut obs = vec![0.0; task.obs_len()];
            world.reset(1, &mut obs).unwrap();
            let mut terms = vec![0.0; world.cost_terms().len()];
            for _ in 0..SETTLED {
                world.step(&idle(task), &mut obs, &mut terms);
            }
            let asleep = world.stage.n_asleep();
            assert!(asleep > 0, "{}", task.id);
            let before = goal(&world);
            world.stage.update_layout();
            assert!(world.rules.new_goal(&mut world.stage));
            let moved = goal(&world);
            assert_ne!(before, moved, "{}", task.id);
            world.step(&idle(task), &mut obs, &mut terms);
            assert_eq!((goal(&world), world.stage.n_asleep()), (moved, asleep), "{}", task.id);
            // A forward pass that also computes fixed bodies gives exactly the same positions.
            let frames = |w: &NavigationWorld| {
                let geoms = w.sim().geoms().len();
                (
                    (0..w.sim().n_bodies()).map(|b| w.sim().xpos(epo_mujoco::BodyId(b))).collect::<Vec<_>>(),
                    (0..geoms).map(|g| w.sim().geom_xpos(epo_mujoco::GeomId(g))).collect::<Vec<_>>(),
                    w.sim().xipos().to_vec(),
                )
            };
            let kept = frames(&world);
            world.stage.sim.set_sleep(false);
            world.stage.sim.forward();
            assert_eq!(frames(&world), kept, "{}", task.id);
        }
    }

    /// All loose objects are put onto the robot, which makes more contacts than any episode can reach.
    #[test]
    fn the_arena_is_large_enough_for_a_pile_up() {
        for (task, mut world) in every_task() {
            world.reset(0, &mut vec![0.0; task.obs_len()]).unwrap();
            let [x, y, _] = world.stage.robot();
            let loose: Vec<_> = world.stage.loose_qpos().collect();
            for (i, at) in loose.into_iter().enumerate() {
                let qpos = &mut world.stage.sim.qpos_mut()[at..at + 3];
                qpos.copy_from_slice(&[x + 0.02 * i as f64, y, 0.1 + 0.05 * i as f64]);
            }
            for _ in 0..20 {
                world.stage.sim.step();
            }
            assert_eq!(world.sim().trouble(), None, "{}", task.id);
            let used = world.sim().arena_used();
            assert!(2 * used < mjcf::ARENA_MB << 20, "{}: {used} bytes of the arena in use", task.id);
        }
    }
}
