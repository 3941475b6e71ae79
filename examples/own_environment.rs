//! An environment of your own, in a page: a water tank.
//!
//! ```text
//! level   x ← x + 0.1 a + w,     a ∈ [−1, 1] opens the pump, w ~ U(−0.05, 0.05) is the weather
//! reward  r = x                  a full tank is worth more
//! cost    c = 1[x > 1]           but it must not overflow
//! end     terminated when it runs dry (x < 0), truncated after 200 steps
//! ```
//! `cargo run --release --example own_environment` checks it, then steps eight of them on two threads.

#![allow(clippy::print_stdout, reason = "an example prints")]

use epo_core::{
    ActionSpace, Env, EnvError, EnvPool, EnvSpec, Outcome, Purpose, Slot, Step, Stream, check_env,
};

struct Tank {
    spec: EnvSpec,
    weather: Stream,
    level: f64,
    steps: usize,
    running: bool,
}

impl Tank {
    fn boxed() -> Box<dyn Env> {
        let spec = EnvSpec {
            id: "Tank".into(),
            obs_len: 2,
            action: ActionSpace::symmetric(1),
            max_steps: 200,
            cost_terms: vec![],
        };
        let weather = Stream::new(0, Purpose::Problem, 0);
        Box::new(Self { spec, weather, level: 0.0, steps: 0, running: false })
    }

    fn observe(&self, obs: &mut [f64]) {
        obs.copy_from_slice(&[self.level, 1.0 - self.steps as f64 / 200.0]);
    }
}

impl Env for Tank {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        // everything random comes from the seed, and nothing survives from the last episode
        self.weather = Stream::new(seed, Purpose::Problem, 0);
        self.level = 0.4 + 0.2 * self.weather.uniform();
        (self.steps, self.running) = (0, true);
        self.observe(obs);
        Ok(())
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        if !self.running {
            return Err(EnvError::NeedsReset);
        }
        self.spec.action.check(action)?;
        self.level += 0.1 * action[0].clamp(-1.0, 1.0) + 0.1 * (self.weather.uniform() - 0.5);
        self.steps += 1;
        let outcome = match (self.level < 0.0, self.steps == self.spec.max_steps) {
            (true, _) => Outcome::Terminated,
            (false, true) => Outcome::Truncated,
            (false, false) => Outcome::Running,
        };
        self.running = !outcome.is_done();
        self.observe(obs);
        Ok(Step { reward: self.level, cost: f64::from(self.level > 1.0), outcome })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let problems = check_env(Tank::boxed);
    for problem in &problems {
        println!("problem: {problem}");
    }
    if !problems.is_empty() {
        return Err("the environment is not sound".into());
    }
    println!("the checker found nothing wrong");

    // eight tanks on two threads, each pumping towards a level of its own
    let mut pool = EnvPool::new((0..8).map(|_| Tank::boxed()).collect(), 2, 1, Purpose::Episode)?;
    pool.start()?;
    let mut totals = [(0.0, 0.0); 8];
    pool.run(&mut totals, |slot: &mut Slot, (reward, cost)| {
        let target = 0.6 + 0.1 * f64::from(slot.index());
        for _ in 0..1000 {
            let action = 10.0 * (target - slot.obs()[0]);
            let step = slot.step(&[action])?;
            *reward += step.reward / 1000.0;
            *cost += step.cost / 1000.0;
        }
        Ok(())
    })?;
    for (i, (reward, cost)) in totals.iter().enumerate() {
        println!(
            "target {:.1}: mean reward {reward:.3}, overflows in {:.1} % of steps",
            0.6 + 0.1 * i as f64,
            100.0 * cost
        );
    }
    Ok(())
}
