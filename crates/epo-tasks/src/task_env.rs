//! One environment of a task that MuJoCo simulates. It adds three things to a navigation or velocity world: the time
//! limit, the checks of arguments, and the end of an episode whose simulation diverged.

use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
use epo_mujoco::{Geom, Sim, Trouble};

use crate::registry::{Source, TaskError, TaskInfo};
use crate::{Physics, navigation, velocity};

/// Reward of a step in which the simulation diverged.
const DIVERGED_REWARD: f64 = -10.0;

/// The result of one step of a world. [`TaskEnv`] adds the time limit and the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepResult {
    pub(crate) reward: f64,
    pub(crate) cost: f64,
    /// Whether the episode has reached a true end. The time limit is not part of it.
    pub(crate) terminated: bool,
    pub(crate) goal_met: bool,
}

/// The simulation behind a task.
#[derive(Debug)]
enum World {
    Navigation(Box<navigation::NavigationWorld>),
    Velocity(velocity::VelocityWorld),
}

/// An environment of a task that MuJoCo simulates. [`make`](crate::make) makes one.
#[derive(Debug)]
pub struct TaskEnv {
    info: &'static TaskInfo,
    physics: Physics,
    spec: EnvSpec,
    world: World,
    /// One number per name in `spec.cost_terms`; the last is `cost_exception`.
    cost_terms: Vec<f64>,
    steps: usize,
    running: bool,
    goal_met: bool,
}

impl TaskEnv {
    /// Compiles the task.
    pub(crate) fn new(info: &'static TaskInfo, physics: Physics) -> Result<Self, TaskError> {
        let mujoco = |cause| TaskError::Mujoco { id: info.id.clone(), cause };
        let world = match &info.source {
            Source::Navigation(task) => {
                World::Navigation(Box::new(navigation::NavigationWorld::new(task, physics).map_err(mujoco)?))
            }
            // the only body that moves is the walker, which never sleeps
            Source::Velocity(task) => World::Velocity(velocity::VelocityWorld::new(task).map_err(mujoco)?),
            Source::Own(_) => return Err(TaskError::NotSimulated { id: info.id.clone() }),
        };
        let (action, mut cost_terms) = match &world {
            World::Navigation(w) => (w.action_space(), w.cost_terms()),
            World::Velocity(w) => (w.action_space(), w.cost_terms()),
        };
        cost_terms.push("cost_exception".to_owned());
        Ok(Self::with(info, physics, action, cost_terms, world))
    }

    fn with(
        info: &'static TaskInfo,
        physics: Physics,
        action: ActionSpace,
        cost_terms: Vec<String>,
        world: World,
    ) -> Self {
        let n = cost_terms.len();
        let (id, obs_len, max_steps) = (info.id.clone(), info.obs_len, info.max_steps);
        let spec = EnvSpec { id, obs_len, action, max_steps, cost_terms };
        Self {
            info,
            physics,
            spec,
            world,
            cost_terms: vec![0.0; n],
            steps: 0,
            running: false,
            goal_met: false,
        }
    }

    /// A second environment of the same task, not yet reset. The model is copied, not compiled again.
    pub fn try_clone(&self) -> Result<Self, TaskError> {
        let mujoco = |cause| TaskError::Mujoco { id: self.spec.id.clone(), cause };
        let world = match &self.world {
            World::Navigation(w) => World::Navigation(Box::new(w.try_clone().map_err(mujoco)?)),
            World::Velocity(w) => World::Velocity(w.try_clone().map_err(mujoco)?),
        };
        let (action, cost_terms) = (self.spec.action.clone(), self.spec.cost_terms.clone());
        Ok(Self::with(self.info, self.physics, action, cost_terms, world))
    }

    /// The task's entry in the list.
    pub fn info(&self) -> &'static TaskInfo {
        self.info
    }

    /// The physics with which its bodies are simulated.
    pub fn physics(&self) -> Physics {
        self.physics
    }

    /// Whether the simulation leaves out work that published physics does. If not, both physics are the same
    /// simulation of this task.
    pub fn saves_work(&self) -> bool {
        match &self.world {
            World::Navigation(w) => w.saves_work(),
            World::Velocity(_) => false,
        }
    }

    /// Whether bodies at rest sleep: with fast physics, in tasks that have such bodies.
    pub fn sleeps(&self) -> bool {
        match &self.world {
            World::Navigation(w) => w.sleeps(),
            World::Velocity(_) => false,
        }
    }

    /// Steps since the reset.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether the last step met the goal (reached it, pressed the right button).
    pub fn goal_met(&self) -> bool {
        self.goal_met
    }

    /// The distance that the goal requires to become small, in metres; `None` if the task has no goal. In Push
    /// it is the distance from the box to the goal, in the other tasks from the robot to the goal.
    pub fn goal_distance(&self) -> Option<f64> {
        match &self.world {
            World::Navigation(w) => w.goal_distance(),
            World::Velocity(_) => None,
        }
    }

    /// The speed of the last step that a velocity task compares with its limit, in m/s; `None` for other tasks. It is 0
    /// after a reset.
    pub fn speed(&self) -> Option<f64> {
        match &self.world {
            World::Navigation(_) => None,
            World::Velocity(w) => Some(w.speed()),
        }
    }

    /// The lidar rings of an observation; none in velocity tasks.
    pub fn lidar_rings(&self) -> Vec<navigation::LidarRing> {
        match &self.world {
            World::Navigation(w) => w.lidar_rings(),
            World::Velocity(_) => Vec::new(),
        }
    }

    /// The body of the robot, or the torso of a walker.
    pub fn robot(&self) -> epo_mujoco::BodyId {
        match &self.world {
            World::Navigation(w) => w.robot(),
            World::Velocity(_) => epo_mujoco::BodyId(1),
        }
    }

    /// Simulated time since the reset, in seconds.
    pub fn time(&self) -> f64 {
        self.sim().time()
    }

    /// Generalised positions of the simulator.
    pub fn qpos(&self) -> &[f64] {
        self.sim().qpos()
    }

    /// Generalised velocities of the simulator.
    pub fn qvel(&self) -> &[f64] {
        self.sim().qvel()
    }

    /// Every geom, as a viewer draws it: shape, size, colour, and pose within its body. It allocates, so call it once per
    /// episode, after the reset, which moves the geoms of carriers within their bodies.
    pub fn geoms(&self) -> Vec<Geom> {
        self.sim().geoms()
    }

    /// The present pose of every body, in the order of [`BodyId`](crate::BodyId): position, and orientation (w, x, y, z).
    pub fn body_poses(&self) -> impl Iterator<Item = ([f64; 3], [f64; 4])> + '_ {
        let sim = self.sim();
        (0..sim.n_bodies()).map(epo_mujoco::BodyId).map(|b| (sim.xpos(b), sim.xquat(b)))
    }

    /// The model of the present episode as MJCF text: bodies stand where the reset put them. Call it after a reset.
    ///
    /// MuJoCo compiles it to the model of this task, up to rounding.
    pub fn mjcf(&self) -> Result<String, TaskError> {
        match &self.world {
            World::Navigation(w) => Ok(w.mjcf()),
            World::Velocity(w) => {
                w.mjcf().map_err(|cause| TaskError::Mujoco { id: self.spec.id.clone(), cause })
            }
        }
    }

    /// Memory of this environment in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self) + self.sim().bytes()
    }

    /// Makes the physics calls of a step of the published task and nothing else, for the benchmark.
    pub(crate) fn bare_physics(&mut self, action: &[f64]) {
        match &mut self.world {
            World::Navigation(w) => w.bare_physics(action),
            World::Velocity(w) => w.bare_physics(action),
        }
    }

    /// The simulation, for reading.
    pub(crate) fn sim(&self) -> &Sim {
        match &self.world {
            World::Navigation(w) => w.sim(),
            World::Velocity(w) => w.sim(),
        }
    }

    fn check_obs(&self, obs: &[f64]) {
        assert_eq!(obs.len(), self.spec.obs_len, "{}: length of the observation buffer", self.spec.id);
    }
}

impl Env for TaskEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.check_obs(obs);
        self.running = false;
        match &mut self.world {
            World::Navigation(w) => w.reset(seed, obs)?,
            World::Velocity(w) => w.reset(seed, obs)?,
        }
        (self.steps, self.running, self.goal_met) = (0, true, false);
        self.cost_terms.fill(0.0);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.check_obs(obs);
        if !self.running {
            return Err(EnvError::NeedsReset);
        }
        self.spec.action.check(action)?;
        self.steps += 1;
        self.running = false; // until the step is complete
        let exception = self.cost_terms.len() - 1;
        let terms = &mut self.cost_terms[..exception];
        let moved = match &mut self.world {
            World::Navigation(w) => w.step(action, obs, terms),
            World::Velocity(w) => w.step(action, obs, terms),
        };
        let truncated = if self.steps >= self.spec.max_steps { Outcome::Truncated } else { Outcome::Running };
        match self.sim().trouble() {
            None => {}
            Some(Trouble::Diverged) => {
                self.cost_terms.fill(0.0);
                self.cost_terms[exception] = 1.0;
                self.goal_met = false;
                return Ok(Step { reward: DIVERGED_REWARD, cost: 1.0, outcome: Outcome::Truncated });
            }
            Some(Trouble::OutOfMemory) => {
                return Err(EnvError::Other(
                    "MuJoCo's arena is too small for the contacts of this state".into(),
                ));
            }
        }
        let outcome = if moved.terminated { Outcome::Terminated } else { truncated };
        self.running = !outcome.is_done();
        self.goal_met = moved.goal_met;
        Ok(Step { reward: moved.reward, cost: moved.cost, outcome })
    }

    fn cost_terms(&self) -> &[f64] {
        &self.cost_terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::SETTLED;
    use crate::{make, make_with};

    fn begun(id: &str) -> (TaskEnv, Vec<f64>) {
        begun_with(id, Physics::Published)
    }

    fn begun_with(id: &str, physics: Physics) -> (TaskEnv, Vec<f64>) {
        let mut env = make_with(id, physics).unwrap();
        let mut obs = vec![0.0; env.spec().obs_len];
        env.reset(1, &mut obs).unwrap();
        (env, obs)
    }

    #[test]
    fn actions_seeds_and_buffers_are_checked() {
        let (mut env, mut obs) = begun("SafetyPointGoal1-v0");
        assert_eq!(env.step(&[0.0], &mut obs), Err(EnvError::ActionLength { got: 1, want: 2 }));
        let nan = env.step(&[0.0, f64::NAN], &mut obs);
        assert!(matches!(nan, Err(EnvError::ActionNotFinite { index: 1, .. })), "{nan:?}");
        assert!(env.step(&[0.0, 7.0], &mut obs).is_ok(), "the episode must continue after a refused action");
        assert_eq!(env.reset(1 << 32, &mut obs), Err(EnvError::SeedTooLarge { seed: 1 << 32 }));
        assert_eq!(
            env.step(&[0.0; 2], &mut obs),
            Err(EnvError::NeedsReset),
            "a failed reset must not start an episode"
        );
    }

    /// This test fails if the distance is not the one in the reward, if the rings start elsewhere in the
    /// observation, or if the speed is not the one in the cost.
    #[test]
    fn a_viewer_reads_what_reward_cost_and_observation_are_made_of() {
        let (mut env, mut obs) = begun("SafetyPointGoal1-v0");
        let before = env.goal_distance().unwrap();
        let step = env.step(&[1.0, 0.3], &mut obs).unwrap();
        assert!((before - env.goal_distance().unwrap() - step.reward).abs() < 1e-12, "{step:?}");
        let rings = env.lidar_rings();
        let names: Vec<_> = rings.iter().map(|ring| ring.object).collect();
        assert_eq!(names, ["goal", "hazard", "vase"]);
        assert_eq!(rings.last().unwrap().entries.end, obs.len());
        let near = obs[rings[0].entries.clone()].iter().copied().fold(0.0, f64::max);
        let want = 1.0 - env.goal_distance().unwrap() / rings[0].range; // the largest reading of a ring with one object
        assert!((near - want.max(0.0)).abs() < 1e-9, "{near} {want}");

        let (mut env, mut obs) = begun("SafetySwimmerVelocity-v1");
        assert_eq!((env.speed(), env.goal_distance()), (Some(0.0), None));
        let limit = env.info().speed_limit.unwrap();
        let costs = (0..100).map(|t| {
            let step = env.step(&[if t % 20 < 10 { 1.0 } else { -1.0 }, 0.5], &mut obs).unwrap();
            assert_eq!(step.cost > 0.0, env.speed().unwrap() > limit, "step {t}");
            step.cost
        });
        let paid: f64 = costs.sum();
        assert!(paid > 0.0 && paid < 100.0, "{paid}");
    }

    #[test]
    fn an_episode_is_cut_at_its_length_and_needs_a_reset() {
        let mut env = make("SafetyPointRun0-v0").unwrap();
        let mut obs = vec![0.0; env.spec().obs_len];
        assert_eq!(env.step(&[0.0; 2], &mut obs), Err(EnvError::NeedsReset));
        env.reset(0, &mut obs).unwrap();
        for t in 1..=500 {
            let step = env.step(&[0.0; 2], &mut obs).unwrap();
            assert_eq!(step.outcome == Outcome::Truncated, t == 500, "step {t}");
        }
        assert_eq!(env.step(&[0.0; 2], &mut obs), Err(EnvError::NeedsReset));
    }

    /// This test fails if the layout lacks the goal's new place, or if a mass is not scaled.
    #[test]
    fn the_exported_model_is_that_of_the_episode() {
        for id in [
            "SafetyPointGoal1-v0",
            "SafetyCarButton2-v0",
            "SafetyPointPush2-v0",
            "SafetyHalfCheetahVelocity-v1",
        ] {
            let (env, _) = begun(id);
            let mut model = Sim::from_xml(&env.mjcf().unwrap()).unwrap();
            model.qpos_mut().copy_from_slice(env.qpos());
            model.forward();
            for (b, (pos, _)) in env.body_poses().enumerate() {
                let there = model.xpos(epo_mujoco::BodyId(b));
                let apart = (0..3).map(|i| (pos[i] - there[i]).abs()).fold(0.0, f64::max);
                assert!(apart < 1e-9, "{id}: body {b} at {pos:?} and at {there:?}");
            }
            for (ours, theirs) in env.sim().body_mass().iter().zip(model.body_mass()) {
                assert!((ours - theirs).abs() <= 1e-12 * ours, "{id}: {ours} kg, {theirs} kg");
            }
        }
    }

    /// This test fails if contacts are left out although there are some, or if they are never left out.
    #[test]
    fn contacts_are_left_out_only_where_there_are_none() {
        for id in ["SafetyPointGoal1-v0", "SafetyPointGoal2-v0", "SafetyPointPush1-v0"] {
            let (mut env, mut obs) = begun_with(id, Physics::Fast);
            let mut plain = env.try_clone().unwrap();
            plain.reset(1, &mut obs).unwrap();
            let (mut driver, mut action) = (crate::script::Driver::new(&env), [0.0; 2]);
            driver.start(1);
            let (mut touches, mut left_out) = (0, 0);
            for t in 0..500 {
                driver.act(&env, &mut action);
                env.step(&action, &mut obs).unwrap();
                plain.bare_physics(&action);
                let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                let same = |f: fn(&TaskEnv) -> &[f64]| bits(f(&env)) == bits(f(&plain));
                assert!(same(TaskEnv::qpos) && same(TaskEnv::qvel), "{id}: step {t}");
                touches += usize::from(driver.touches(&env));
                left_out += usize::from(env.sim().contacts().count() == 0); // a search finds the floor
            }
            assert!(touches > 10 && left_out > 20, "{id}: {touches} {left_out}");
        }
    }

    #[test]
    fn a_diverged_simulation_ends_the_episode_as_the_package_does() {
        for (id, physics) in [
            ("SafetyPointGoal2-v0", Physics::Published),
            ("SafetyPointGoal2-v0", Physics::Fast),
            ("SafetyCarPush1-v0", Physics::Fast),
            ("SafetyCarButton1-v0", Physics::Published),
        ] {
            for (what, value) in [("NaN", f64::NAN), ("huge", 1e12)] {
                let (mut env, mut obs) = begun_with(id, physics);
                for _ in 0..SETTLED {
                    env.step(&[0.0; 2], &mut obs).unwrap(); // after these steps bodies sleep
                }
                let World::Navigation(world) = &mut env.world else { panic!("{id} is a navigation task") };
                world.sim_mut().qvel_mut()[0] = value;
                let step = env.step(&[0.0; 2], &mut obs).unwrap();
                assert_eq!(
                    step,
                    Step { reward: -10.0, cost: 1.0, outcome: Outcome::Truncated },
                    "{id}, {what}"
                );
                let exception = env.spec().cost_terms.iter().position(|t| t == "cost_exception").unwrap();
                assert_eq!(env.cost_terms()[exception], 1.0);
                assert!(obs.iter().all(|o| o.is_finite()), "{id}, {what}: {obs:?}");
                assert_eq!(env.step(&[0.0; 2], &mut obs), Err(EnvError::NeedsReset));
                // The next episode must not depend on the diverged one.
                let (mut fresh, mut want) = begun_with(id, physics);
                env.reset(1, &mut obs).unwrap();
                assert_eq!(env.step(&[0.5; 2], &mut obs), fresh.step(&[0.5; 2], &mut want));
                assert_eq!(obs, want);
            }
        }
    }
}
