//! How fast a task steps, compared with the bare physics of the same states.
//!
//! ```text
//! overhead = time of our step / time of the published task's physics calls (substeps × mj_step + mj_forward)
//! ```
//! Two environments play the same episodes with the same actions: one with our step, one with the physics calls alone,
//! in turns of about half a millisecond. Episodes repeat exactly, so every turn is played several times and its
//! shortest time counts: what other programs on the machine take is filtered out, and the states are the same on both
//! sides.

use std::sync::Barrier;
use std::time::Instant;

use epo_core::{Env, EnvError, Purpose, Stream};

use crate::registry::{TaskError, TaskInfo};
use crate::{TaskEnv, make};

// Seconds of a turn, steps of an episode at most, episodes, and how often each is played.
const TURN: f64 = 5e-4;
const STEPS: usize = 100;
const EPISODES: u64 = 2;
const REPEATS: usize = 7;
/// Resets that are timed.
const RESETS: usize = 40;

/// What was measured for one task.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EnvBench {
    /// Task id.
    pub task: String,
    /// Threads at work, each with an environment of its own.
    pub threads: usize,
    /// Steps of all threads per second, resets not counted.
    pub steps_per_s: f64,
    /// The same for the bare physics calls.
    pub raw_physics_steps_per_s: f64,
    /// Time of our step over time of the bare physics.
    pub overhead: f64,
    /// Median time of a reset, milliseconds.
    pub reset_ms: f64,
    /// Memory of an environment.
    pub bytes_per_env: usize,
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The task could not be made.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A reset or a step failed.
    #[error(transparent)]
    Env(#[from] EnvError),
}

/// Times of one thread.
struct Times {
    steps: usize,
    ours: f64,
    bare: f64,
    reset: f64,
}

/// Measures one task with so many threads at work at once.
pub fn measure(task: &TaskInfo, threads: usize) -> Result<EnvBench, BenchError> {
    let first = make(&task.id)?;
    let start = Barrier::new(threads);
    let times: Vec<Times> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|i| {
                let pair = (first.try_clone(), first.try_clone());
                let start = &start;
                scope.spawn(move || -> Result<Times, BenchError> {
                    start.wait();
                    play(pair.0?, pair.1?, i as u64)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("a benchmark thread panicked")).collect::<Result<_, _>>()
    })?;
    let per_s = |seconds: fn(&Times) -> f64| times.iter().map(|t| t.steps as f64 / seconds(t)).sum::<f64>();
    let (steps_per_s, raw) = (per_s(|t| t.ours), per_s(|t| t.bare));
    Ok(EnvBench {
        task: task.id.clone(),
        threads,
        steps_per_s,
        raw_physics_steps_per_s: raw,
        overhead: raw / steps_per_s,
        reset_ms: times.iter().map(|t| t.reset).fold(0.0, f64::max) * 1e3,
        bytes_per_env: first.bytes(),
    })
}

fn play(mut ours: TaskEnv, mut bare: TaskEnv, thread: u64) -> Result<Times, BenchError> {
    let spec = ours.spec().clone();
    let (mut obs, mut action) = (vec![0.0; spec.obs_len], vec![0.0; spec.action.len()]);
    let mut times = Times { steps: 0, ours: 0.0, bare: 0.0, reset: 0.0 };
    for episode in 0..EPISODES {
        let seed = thread * EPISODES + episode;
        let turn = steps_per_turn(&mut bare, seed, &mut obs, &mut action)?;
        let mut best = vec![[f64::INFINITY; 2]; STEPS.div_ceil(turn)];
        let mut steps = 0;
        for _ in 0..REPEATS {
            ours.reset(seed, &mut obs)?;
            bare.reset(seed, &mut obs)?;
            let mut rng = Stream::new(seed, Purpose::Random, 0);
            steps = 0;
            for best in &mut best {
                // both sides draw the same actions
                let mut same = rng.clone();
                let clock = Instant::now();
                let mut done = false;
                let mut made = 0;
                while made < turn && !done {
                    draw(&mut rng, &mut action);
                    done = ours.step(&action, &mut obs)?.outcome.is_done();
                    made += 1;
                }
                best[0] = best[0].min(clock.elapsed().as_secs_f64());
                let clock = Instant::now();
                for _ in 0..made {
                    draw(&mut same, &mut action);
                    bare.bare_physics(&action);
                }
                best[1] = best[1].min(clock.elapsed().as_secs_f64());
                steps += made;
                if done {
                    break;
                }
            }
        }
        times.steps += steps;
        // turns after an early end were never played
        for [a, b] in best.into_iter().filter(|turn| turn[0].is_finite()) {
            times.ours += a;
            times.bare += b;
        }
    }
    times.reset = median_reset(&mut ours, &mut obs)?;
    Ok(times)
}

/// How many steps make a turn, by the quickest of the first few.
fn steps_per_turn(
    bare: &mut TaskEnv,
    seed: u64,
    obs: &mut [f64],
    action: &mut [f64],
) -> Result<usize, EnvError> {
    bare.reset(seed, obs)?;
    let mut rng = Stream::new(seed, Purpose::Random, 0);
    let mut step = || {
        let clock = Instant::now();
        draw(&mut rng, action);
        bare.bare_physics(action);
        clock.elapsed().as_secs_f64()
    };
    let quickest = (0..10).map(|_| step()).fold(f64::INFINITY, f64::min);
    Ok(((TURN / quickest) as usize).clamp(1, 20))
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
