//! Claim: the results of a pool do not depend on its number of threads. A failure in one environment is reported and
//! does not affect the others.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use epo_core::{
    ActionSpace, Env, EnvError, EnvPool, EnvSpec, Outcome, Purpose, Slot, Step, Stream, episode_seed,
};

/// A random walk. Its seed determines the length of the episode. It can fail on purpose.
struct Walk {
    spec: EnvSpec,
    random: Stream,
    x: f64,
    t: usize,
    length: usize,
    /// Step of every episode at which the walk fails, and how it fails. `None`: it never fails.
    fails: Option<(usize, Failure)>,
}

#[derive(Clone, Copy)]
enum Failure {
    Panic,
    Error,
}

fn walk(fails: Option<(usize, Failure)>) -> Box<dyn Env> {
    let action = ActionSpace::symmetric(1);
    let spec = EnvSpec { id: "Walk".into(), obs_len: 2, action, max_steps: 20, cost_terms: vec![] };
    let random = Stream::new(0, Purpose::Problem, 0);
    Box::new(Walk { spec, random, x: 0.0, t: 0, length: 0, fails })
}

impl Env for Walk {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.random = Stream::new(seed, Purpose::Problem, 0);
        (self.x, self.t, self.length) = (self.random.normal(), 0, 5 + self.random.below(15));
        obs.copy_from_slice(&[self.x, 0.0]);
        Ok(())
    }
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.t += 1;
        match self.fails {
            Some((t, Failure::Panic)) if t == self.t => panic!("on purpose"),
            Some((t, Failure::Error)) if t == self.t => return Err(EnvError::Other("tired".into())),
            _ => {}
        }
        self.x += action[0] + self.random.normal();
        obs.copy_from_slice(&[self.x, self.t as f64]);
        let outcome = if self.t == self.length { Outcome::Truncated } else { Outcome::Running };
        Ok(Step { reward: self.x, cost: f64::from(self.x > 1.0), outcome })
    }
}

fn fnv(hash: &mut u64, bits: u64) {
    *hash = (*hash ^ bits).wrapping_mul(0x0100_0000_01b3);
}

/// Returns one hash per environment, over all its results in 300 steps. There are eight environments.
fn history(threads: usize) -> Vec<u64> {
    let mut pool = EnvPool::new((0..8).map(|_| walk(None)).collect(), threads, 7, Purpose::Episode).unwrap();
    pool.start().unwrap();
    let mut hashes = vec![0xcbf2_9ce4_8422_2325; 8];
    for _ in 0..30 {
        let job = |slot: &mut Slot, hash: &mut u64| {
            for _ in 0..10 {
                let action = -0.1 * slot.obs()[0];
                let step = slot.step(&[action])?;
                let seen = slot.obs().iter().chain(slot.final_obs()).chain([&step.reward, &step.cost]);
                seen.for_each(|x| fnv(hash, x.to_bits()));
                fnv(hash, slot.episode());
            }
            Ok(())
        };
        pool.run(&mut hashes, job).unwrap();
    }
    hashes
}

#[test]
fn results_are_bitwise_the_same_for_1_2_and_4_threads() {
    let one = history(1);
    assert_eq!(history(2), one);
    assert_eq!(history(4), one);
    let mut distinct = one.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 8, "no two environments play the same episodes");
}

#[test]
fn an_automatic_reset_keeps_the_final_observation() {
    let mut pool = EnvPool::new(vec![walk(None)], 1, 3, Purpose::Episode).unwrap();
    pool.start().unwrap();
    let job = |slot: &mut Slot, (): &mut ()| {
        // plays the same episode without the pool
        let mut alone = walk(None);
        let mut obs = [0.0; 2];
        alone.reset(slot.seed(), &mut obs)?;
        assert_eq!(slot.obs(), obs);
        let mut steps = 0;
        loop {
            let (ours, theirs) = (slot.step(&[0.5])?, alone.step(&[0.5], &mut obs)?);
            steps += 1;
            assert_eq!(ours, theirs);
            if ours.outcome.is_done() {
                break;
            }
            assert_eq!(slot.obs(), obs);
        }
        assert_eq!(slot.final_obs(), obs, "where the episode ended");
        assert_eq!(obs[1], f64::from(steps));
        assert_eq!((slot.episode(), slot.steps(), slot.obs()[1]), (1, 0, 0.0), "the next one has begun");
        assert_eq!(slot.seed(), episode_seed(3, Purpose::Episode, 0, 1));
        assert_ne!(slot.obs()[0], obs[0]);
        Ok(())
    };
    pool.run(&mut [()], job).unwrap();
}

#[test]
fn a_failure_is_reported_with_task_seed_and_step_while_the_others_finish() {
    for (failure, says) in [(Failure::Panic, "panicked: on purpose"), (Failure::Error, "tired")] {
        for threads in [1, 2, 4] {
            let envs = (0..6).map(|i| walk((i == 2 || i == 4).then_some((4, failure)))).collect();
            let mut pool = EnvPool::new(envs, threads, 11, Purpose::Episode).unwrap();
            pool.start().unwrap();
            let mut made = [0; 6];
            let job = |slot: &mut Slot, made: &mut u32| {
                for _ in 0..30 {
                    slot.step(&[0.0])?;
                    *made += 1;
                }
                Ok(())
            };
            let reported = pool.run(&mut made, job).unwrap_err();
            assert_eq!(
                (reported.task.as_str(), reported.env, reported.step),
                ("Walk", 2, 3),
                "the first of the two"
            );
            assert_eq!(reported.seed, episode_seed(11, Purpose::Episode, 2, 0));
            assert_eq!(
                reported.to_string(),
                format!(
                    "Walk: environment 2 failed at step 3 of the episode with seed {}: {says}",
                    reported.seed
                )
            );
            assert_eq!(made, [30, 30, 3, 30, 3, 30], "the others were not kept from finishing");
        }
    }
}

#[test]
fn after_a_panic_the_environment_can_begin_anew() {
    let envs = vec![walk(None), walk(Some((4, Failure::Panic)))];
    let mut pool = EnvPool::new(envs, 2, 5, Purpose::Episode).unwrap();
    pool.start().unwrap();
    let steps =
        |n: usize| move |slot: &mut Slot, (): &mut ()| (0..n).try_for_each(|_| slot.step(&[0.0]).map(|_| ()));
    assert!(pool.run(&mut [(); 2], steps(4)).is_err());
    // slot 1 starts episode 9; slot 0 continues its episode
    let restart = |slot: &mut Slot, (): &mut ()| if slot.index() == 1 { slot.start(9) } else { Ok(()) };
    pool.run(&mut [(); 2], restart).unwrap();
    let [zero, one] = pool.slots() else { panic!("two slots") };
    assert_eq!((zero.steps(), one.steps(), one.episode()), (4, 0, 9));
    assert_eq!(one.seed(), episode_seed(5, Purpose::Episode, 1, 9));
    pool.run(&mut [(); 2], steps(3)).unwrap();
    assert_eq!(pool.slots()[1].steps(), 3);
}
