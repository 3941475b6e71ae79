//! A scripted policy that seeks collisions. Collisions are the hardest case for a physics that skips bodies at rest.
//!
//! An episode is divided into rounds of 100 steps. In each round the driver picks a loose body (a vase, the box, a
//! gremlin) at random. It steers towards this body for 70 steps, to hit and push it. Then it makes three random moves
//! of ten steps each.

use epo_core::{Env, Purpose, Stream};
use epo_mujoco::BodyId;

use crate::TaskEnv;

/// Number of steps of a round.
const ROUND: usize = 100;
/// Number of steps at the start of a round in which the robot steers towards the target.
const APPROACH: usize = 70;
/// Number of steps after which all loose bodies that were not hit are at rest.
pub(crate) const SETTLED: usize = 15;
/// Number of steps for which a random action is repeated.
const HELD: usize = 10;

/// The scripted policy of a navigation task. In a task without loose bodies it only makes random moves.
#[derive(Debug)]
pub struct Driver {
    robot: Option<BodyId>,
    /// True if the robot steers with two wheels and drives along −y. Otherwise a force along x and a turn move it.
    wheels: bool,
    targets: Vec<BodyId>,
    /// Root body of the kinematic tree of each geom.
    roots: Vec<BodyId>,
    stream: Stream,
    step: usize,
    target: usize,
    moves: Vec<f64>,
}

impl Driver {
    /// Returns a driver for the task of `env`.
    pub fn new(env: &TaskEnv) -> Self {
        let sim = env.sim();
        let robot = sim.body("agent").ok();
        let bodies = (1..sim.n_bodies()).map(BodyId);
        Self {
            robot,
            wheels: sim.body("left").is_ok(),
            targets: bodies.filter(|b| sim.is_loose(*b) && Some(*b) != robot).collect(),
            roots: sim.geoms().iter().map(|geom| sim.root(geom.body)).collect(),
            stream: Stream::new(0, Purpose::Random, 0),
            step: 0,
            target: 0,
            moves: vec![0.0; env.spec().action.len()],
        }
    }

    /// Starts an episode. The actions depend on the seed and on the states of the episode.
    pub fn start(&mut self, seed: u64) {
        self.stream = Stream::new(seed, Purpose::Random, 2);
        self.step = 0;
    }

    /// Writes the action for the present state of `env` to `action`.
    pub fn act(&mut self, env: &TaskEnv, action: &mut [f64]) {
        let at = self.step % ROUND;
        self.step += 1;
        if at == 0 && !self.targets.is_empty() {
            self.target = self.stream.below(self.targets.len());
        }
        match (self.robot, self.targets.get(self.target)) {
            (Some(robot), Some(&target)) if at < APPROACH => self.steer(env, robot, target, action),
            _ => {
                if at.is_multiple_of(HELD) {
                    self.moves.iter_mut().for_each(|a| *a = 2.0 * self.stream.uniform() - 1.0);
                }
                action.copy_from_slice(&self.moves);
            }
        }
    }

    /// Writes the action that turns towards `target` and drives forward.
    fn steer(&self, env: &TaskEnv, robot: BodyId, target: BodyId, action: &mut [f64]) {
        let sim = env.sim();
        let (p, q, r) = (sim.xpos(target), sim.xpos(robot), sim.xmat(robot));
        let d = [p[0] - q[0], p[1] - q[1]];
        let seen = [d[0] * r[0] + d[1] * r[3], d[0] * r[1] + d[1] * r[4]]; // in the robot's axes
        let ahead = if self.wheels { [-seen[1], seen[0]] } else { seen };
        let bearing = ahead[1].atan2(ahead[0]); // positive: to the left
        action.fill(0.0);
        if self.wheels {
            // Torques saturate at 0.02. The robot looks along −y, so the wheel named `left` is on its right.
            let (speed, turn) = (0.02 * bearing.cos(), 0.02 * bearing.clamp(-1.0, 1.0));
            (action[0], action[1]) = (speed + turn, speed - turn);
        } else {
            (action[0], action[1]) = (bearing.cos().max(0.0), bearing.clamp(-1.0, 1.0));
        }
    }

    /// Returns true if the robot touches anything but the floor at the end of this step, or did so during the step.
    ///
    /// With fast physics a contact during the step is noticed because it wakes up a loose body that was at rest.
    pub fn touches(&self, env: &TaskEnv) -> bool {
        let settled = env.sleeps() && env.steps() > SETTLED;
        let awake = |b: &BodyId| !env.sim().is_asleep(*b);
        if settled && self.targets.iter().any(awake) {
            return true;
        }
        env.sim().contacts().any(|[a, b]| {
            let (a, b) = (self.roots[a.0], self.roots[b.0]);
            a != b && a.0 != 0 && b.0 != 0 && (Some(a) == self.robot || Some(b) == self.robot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;

    #[test]
    fn the_scripted_policy_hits_loose_objects() {
        for id in ["SafetyPointGoal1-v0", "SafetyCarGoal2-v0", "SafetyPointPush1-v0", "SafetyCarPush1-v0"] {
            let mut env = make(id).unwrap();
            let mut driver = Driver::new(&env);
            let mut obs = vec![0.0; env.spec().obs_len];
            let mut hit = 0;
            for seed in 0..4 {
                env.reset(seed, &mut obs).unwrap();
                driver.start(seed);
                assert!(!driver.touches(&env), "{id}: an object is touched at the start");
                let mut action = [0.0; 2];
                hit += usize::from((0..500).any(|_| {
                    driver.act(&env, &mut action);
                    env.step(&action, &mut obs).unwrap();
                    driver.touches(&env)
                }));
            }
            assert!(hit >= 3, "{id}: {hit} of 4 episodes had a collision");
        }
    }

    #[test]
    fn an_episode_is_repeated_exactly() {
        let mut env = make("SafetyPointGoal1-v0").unwrap();
        let mut driver = Driver::new(&env);
        let mut play = || {
            let mut obs = vec![0.0; env.spec().obs_len];
            env.reset(5, &mut obs).unwrap();
            driver.start(5);
            let mut action = [0.0; 2];
            for _ in 0..250 {
                driver.act(&env, &mut action);
                env.step(&action, &mut obs).unwrap();
            }
            obs
        };
        assert_eq!(play(), play());
    }
}
