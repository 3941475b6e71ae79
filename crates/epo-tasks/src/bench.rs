//! Measures how fast a task steps, compared with the bare physics of the same states.
//!
//! ```text
//! overhead = time of our step / time of the published task's physics calls (substeps × mj_step + mj_forward)
//! ```
//! Two environments play the same episodes with the same actions, one with our step and one with the physics calls alone.
//! They take turns of about half a millisecond. Episodes repeat exactly, so every turn is played several times, and its
//! shortest time counts. This removes the time that other programs on the machine take.

use std::sync::Barrier;
use std::time::Instant;

use epo_core::{Env, EnvError, EnvFailure, EnvPool, Purpose, Stream};

use crate::registry::{TaskError, TaskInfo};
use crate::{Physics, TaskEnv, make_with};

// Length of a turn in seconds, largest number of steps of an episode, number of episodes, and of repetitions of each.
const TURN: f64 = 5e-4;
const STEPS: usize = 100;
const EPISODES: u64 = 2;
const REPEATS: usize = 20;
/// Number of resets that are timed.
const RESETS: usize = 40;

/// The measurements of one task.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EnvBench {
    /// Task id.
    pub task: String,
    /// Physics of the simulation.
    pub physics: Physics,
    /// Number of threads, each with its own environment.
    pub threads: usize,
    /// Steps per second of all threads together, without resets.
    pub steps_per_s: f64,
    /// Steps per second, divided by the steps per second with published physics and the same number of threads
    /// in the same measurement; `None` if published physics was not measured.
    pub ratio: Option<f64>,
    /// Steps per second of the bare physics calls.
    pub raw_physics_steps_per_s: f64,
    /// Time of our step divided by the time of the bare physics.
    pub overhead: f64,
    /// Median time of a reset in milliseconds.
    pub reset_ms: f64,
    /// Memory of one environment in bytes.
    pub bytes_per_env: usize,
}

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The task could not be made.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A reset or a step failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A reset or a step failed in a pool.
    #[error(transparent)]
    Pool(#[from] EnvFailure),
}

/// A pool of environments with random policies, for comparisons with other ways to step environments.
#[derive(Debug)]
pub struct PoolBench {
    pool: EnvPool,
    /// Random numbers and the action of each environment.
    work: Vec<(Stream, Vec<f64>)>,
}

impl PoolBench {
    /// Makes `envs` environments and starts their first episodes.
    pub fn new(id: &str, physics: Physics, envs: u32, threads: usize) -> Result<Self, BenchError> {
        let first = make_with(id, physics)?;
        let action = vec![0.0; first.spec().action.len()];
        let work = (0..envs).map(|i| (Stream::new(0, Purpose::Random, i), action.clone())).collect();
        let envs = (0..envs).map(|_| Ok(Box::new(first.try_clone()?) as Box<dyn Env>));
        let envs = envs.collect::<Result<Vec<_>, TaskError>>()?;
        let mut pool = EnvPool::new(envs, threads, 0, Purpose::Random)?;
        pool.start()?;
        Ok(Self { pool, work })
    }

    /// Steps every environment `steps` times. An episode that ends is followed by the next one.
    pub fn step(&mut self, steps: usize) -> Result<(), BenchError> {
        // a single environment has no others to take turns with
        let (turns, steps) = if self.work.len() == 1 { (1, steps) } else { (steps, 1) };
        for _ in 0..turns {
            self.pool.run(&mut self.work, |slot, (rng, action)| {
                (0..steps).try_for_each(|_| {
                    draw(rng, action);
                    slot.step(action).map(|_| ())
                })
            })?;
        }
        Ok(())
    }
}

/// One thread's pair of environments, and the shortest time of every turn so far.
struct EnvPair {
    ours: TaskEnv,
    bare: TaskEnv,
    obs: Vec<f64>,
    action: Vec<f64>,
    episodes: Vec<Episode>,
}

/// An episode, played in turns: the number of steps of a turn, the number of steps played, and the
/// shortest time of each turn in seconds, for our step and for the bare physics.
#[derive(Clone)]
struct Episode {
    turn: usize,
    steps: usize,
    best: Vec<[f64; 2]>,
}

/// Measures one task with each of the given physics, and with each of the given numbers of threads at work at once.
///
/// All threads play the same episodes, and physics and thread counts take turns too, so that they can be compared.
pub fn bench_env(
    task: &TaskInfo,
    counts: &[usize],
    physics: &[Physics],
) -> Result<Vec<EnvBench>, BenchError> {
    let mut firsts = physics.iter().map(|&p| EnvPair::first(task, p)).collect::<Result<Vec<_>, _>>()?;
    let team = |first: &EnvPair, n: usize| {
        (0..n).map(|_| EnvPair::new(first.ours.try_clone()?, first.episodes.clone())).collect()
    };
    let pairs = counts.iter().flat_map(|&n| firsts.iter().map(move |first| (first, n)));
    let mut teams: Vec<Vec<EnvPair>> =
        pairs.map(|(first, n)| team(first, n)).collect::<Result<_, TaskError>>()?;
    for _ in 0..REPEATS {
        for team in &mut teams {
            let start = Barrier::new(team.len());
            std::thread::scope(|scope| {
                let play = |pair: &mut EnvPair| {
                    start.wait();
                    pair.play()
                };
                let workers: Vec<_> = team.iter_mut().map(|pair| scope.spawn(move || play(pair))).collect();
                workers.into_iter().try_for_each(|w| w.join().expect("a benchmark thread panicked"))
            })?;
        }
    }
    let mut resets = Vec::new();
    for first in &mut firsts {
        resets.push((first.ours.physics(), median_reset(&mut first.ours, &mut first.obs)? * 1e3));
    }
    let steps_per_s = |team: &[EnvPair], side: usize| team.iter().map(|p| p.steps_per_s(side)).sum::<f64>();
    let report = |team: &Vec<EnvPair>| {
        let (physics, per_s) = (team[0].ours.physics(), |side| steps_per_s(team, side));
        let is_base = |t: &&Vec<EnvPair>| t.len() == team.len() && t[0].ours.physics().is_published();
        let base = teams.iter().find(is_base).map(|t| steps_per_s(t, 0));
        let reset_ms = resets.iter().find(|(p, _)| *p == physics).map_or(f64::NAN, |(_, ms)| *ms);
        EnvBench {
            task: task.id.clone(),
            physics,
            threads: team.len(),
            steps_per_s: per_s(0),
            ratio: base.map(|base| per_s(0) / base),
            raw_physics_steps_per_s: per_s(1),
            overhead: per_s(1) / per_s(0),
            reset_ms,
            bytes_per_env: team[0].ours.bytes(),
        }
    };
    Ok(teams.iter().map(report).collect())
}

impl EnvPair {
    fn new(ours: TaskEnv, episodes: Vec<Episode>) -> Result<Self, TaskError> {
        let (obs, action) = (vec![0.0; ours.spec().obs_len], vec![0.0; ours.spec().action.len()]);
        Ok(Self { bare: ours.try_clone()?, ours, obs, action, episodes })
    }

    /// Returns the pair that the others are copied from. It determines the length of its turns.
    fn first(task: &TaskInfo, physics: Physics) -> Result<Self, BenchError> {
        let mut first = Self::new(make_with(&task.id, physics)?, Vec::new())?;
        for seed in 0..EPISODES {
            let turn = first.steps_per_turn(seed)?;
            let best = vec![[f64::INFINITY; 2]; STEPS.div_ceil(turn)];
            first.episodes.push(Episode { turn, steps: 0, best });
        }
        Ok(first)
    }

    /// Plays every episode once, turn by turn on both sides.
    fn play(&mut self) -> Result<(), EnvError> {
        let Self { ours, bare, obs, action, episodes } = self;
        for (seed, episode) in (0..).zip(episodes) {
            ours.reset(seed, obs)?;
            bare.reset(seed, obs)?;
            let mut rng = Stream::new(seed, Purpose::Random, 0);
            episode.steps = 0;
            for best in &mut episode.best {
                let mut same = rng.clone(); // both sides draw the same actions
                let (mut done, mut made) = (false, 0);
                let clock = Instant::now();
                while made < episode.turn && !done {
                    draw(&mut rng, action);
                    done = ours.step(action, obs)?.outcome.is_done();
                    made += 1;
                }
                best[0] = best[0].min(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                for _ in 0..made {
                    draw(&mut same, action);
                    bare.bare_physics(action);
                }
                best[1] = best[1].min(clock.elapsed().as_secs_f64());
                episode.steps += made;
                if done {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Steps per second of our step (side 0) or of the bare physics (side 1).
    fn steps_per_s(&self, side: usize) -> f64 {
        let steps: usize = self.episodes.iter().map(|e| e.steps).sum();
        let turns = self.episodes.iter().flat_map(|e| &e.best).map(|turn| turn[side]);
        // turns after the end of a short episode were never played
        steps as f64 / turns.filter(|seconds| seconds.is_finite()).sum::<f64>()
    }

    /// Number of steps of a turn, from the shortest time of the first ten steps.
    fn steps_per_turn(&mut self, seed: u64) -> Result<usize, EnvError> {
        self.bare.reset(seed, &mut self.obs)?;
        let mut rng = Stream::new(seed, Purpose::Random, 0);
        let mut step = || {
            let clock = Instant::now();
            draw(&mut rng, &mut self.action);
            self.bare.bare_physics(&self.action);
            clock.elapsed().as_secs_f64()
        };
        let quickest = (0..10).map(|_| step()).fold(f64::INFINITY, f64::min);
        Ok(((TURN / quickest) as usize).clamp(1, 20))
    }
}

fn draw(rng: &mut Stream, action: &mut [f64]) {
    action.iter_mut().for_each(|a| *a = 2.0 * rng.uniform() - 1.0);
}

fn median_reset(env: &mut TaskEnv, obs: &mut [f64]) -> Result<f64, EnvError> {
    let mut seconds = Vec::with_capacity(RESETS);
    for seed in 0..RESETS as u64 {
        let clock = Instant::now();
        env.reset(1000 + seed, obs)?;
        seconds.push(clock.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[RESETS / 2])
}
