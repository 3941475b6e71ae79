//! Statistical test of whether a task with fast physics is equivalent to the same task with
//! published physics.
//!
//! The same episodes are played with both: the seeds are the same, and the policies draw the same random numbers. The
//! test covers every metric x (return, cost, each cost term, length) of a task and a policy. With d_i = fast −
//! published of seed i:
//!
//! ```text
//! margin      m = max(0.02 |mean x|, ½ · sd(x) / √100)       x with published physics
//! equivalent  mean d ± t_{0.95, n−1} · sd(d) / √n  ⊂  (−m, m)     two one-sided tests at 5 %
//! ```
//! The differences are paired by seed. Until the robot touches something, both simulations agree to about eight digits.
//! After a contact they diverge, as any two simulations do, and the noise of d is then about as large as x.
//! The number of episodes is therefore chosen for statistical power. After a first batch, more episodes are played
//! until m is [`POWER`] standard errors of mean d. This rule depends on the spread of d but not on its mean, so it
//! favours neither result.
//!
//! Where fast physics leaves out no work, as in Button2, both physics are the same simulation. The first
//! [`PLAYED_TWICE`] episodes are played with both and must agree in every bit. Later ones are played once and count for
//! both.
//!
//! Return and cost must also pass a two-sample Kolmogorov–Smirnov test at 5 %. It is corrected by Holm's method for the
//! number of such tests in the report. The pairs are correlated, which makes this test conservative.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use epo_core::{ActionSpace, Env, EnvError, EnvFailure, Purpose, Stream};
use epo_nn::{Normalizer, Policy, PolicyWorkspace};
use epo_report::stats::student_t;
use epo_tasks::script::Driver;
use epo_tasks::{Physics, TaskEnv, make_with};
use serde::{Deserialize, Serialize};

use crate::collect::ActionMap;
use crate::{LabError, evaluate, runs};

/// Default tasks of the check: the tasks with bodies that can sleep, and Button2, which has gremlins.
pub const TASKS: [&str; 10] = [
    "SafetyPointGoal1-v0",
    "SafetyPointGoal2-v0",
    "SafetyPointPush1-v0",
    "SafetyPointPush2-v0",
    "SafetyPointButton2-v0",
    "SafetyCarGoal1-v0",
    "SafetyCarGoal2-v0",
    "SafetyCarPush1-v0",
    "SafetyCarPush2-v0",
    "SafetyCarButton2-v0",
];

/// Number of standard errors of the mean difference in a margin. If the means are equal, a test then succeeds with
/// probability 2 Φ(4 − 1.645) − 1 = 98 %.
pub const POWER: f64 = 4.0;

/// Number of episodes that are played with both physics even if both are the same simulation.
pub const PLAYED_TWICE: u64 = 100;

/// Significance level of all tests.
const ALPHA: f64 = 0.05;

/// Number of steps, from the start of an episode, in which observations are compared. They last a second or two.
const OPENING: usize = 50;
/// Largest accepted difference of an entry of an observation before any contact. A body slower than 5e-5 m/s may sleep.
const OBSERVATION_MARGIN: f64 = 1e-4;

/// The policy that plays the episodes.
#[derive(Debug)]
pub enum PlayedPolicy {
    /// Actions are sampled uniformly from the action space.
    Random,
    /// The scripted policy [`Driver`], which seeks collisions.
    Scripted,
    /// The policy of a run folder. Its actions are sampled, as in training.
    Trained(Box<(Policy, Normalizer)>),
}

impl PlayedPolicy {
    /// Returns the task id and the policy of a run folder.
    pub fn of_run(dir: &Path) -> Result<(String, Self), LabError> {
        let run = runs::read_config(dir)?;
        let spec = make_with(&run.run.task, Physics::Published)?.spec().clone();
        let (policy, normalizer, _) = evaluate::load_policy(dir, &run, &spec)?;
        Ok((run.run.task, Self::Trained(Box::new((policy, normalizer)))))
    }

    /// Returns the name of the policy in the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Scripted => "scripted",
            Self::Trained(_) => "trained",
        }
    }
}

/// Numbers of episodes and threads of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ComparisonPlan {
    /// Number of episodes per policy and physics in the first batch.
    pub episodes: usize,
    /// Maximum number of episodes per policy and physics.
    pub max_episodes: usize,
    /// Number of threads. It does not change the results.
    pub threads: usize,
}

/// The comparison of one metric for one task and one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Task id.
    pub task: String,
    /// Name of the policy: `random`, `scripted` or `trained`.
    pub policy: String,
    /// Number of episodes with each physics.
    pub episodes: usize,
    /// Name of the metric: `return`, `cost`, `length`, a cost term, or `observation_before_contact`.
    pub metric: String,
    /// Mean over the episodes with published physics.
    pub published: f64,
    /// Mean over the episodes with fast physics. For `observation_before_contact` it is the largest difference of an
    /// entry of an observation. It covers the first 50 steps with the same actions, up to the first contact of the
    /// robot.
    pub fast: f64,
    /// 90 % confidence interval of the mean difference. Both one-sided tests at 5 % succeed if it is within ± margin.
    pub difference: [f64; 2],
    /// Largest difference of the means that counts as equivalent.
    pub margin: f64,
    /// p-value of the two-sample test, before the correction. Only return and cost have one.
    pub p_value: Option<f64>,
    /// Whether all tests find that both physics are equivalent in this metric.
    pub equivalent: bool,
}

impl MetricComparison {
    fn within_margin(&self) -> bool {
        let [low, high] = self.difference;
        (low == 0.0 && high == 0.0) || (-self.margin < low && high < self.margin)
    }
}

/// Sets `equivalent` in every row of a report. The rows must be complete, because the correction of the two-sample
/// tests depends on their number.
pub fn judge(rows: &mut [MetricComparison]) {
    let mut tests: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].p_value.is_some()).collect();
    tests.sort_by(|&i, &j| f64::total_cmp(&p(&rows[i]), &p(&rows[j])));
    rows.iter_mut().for_each(|row| row.equivalent = row.within_margin());
    // Holm's method: in ascending order, p-values are significant up to the first one that is not
    for (k, &i) in tests.iter().enumerate() {
        if p(&rows[i]) >= ALPHA / (tests.len() - k) as f64 {
            break;
        }
        rows[i].equivalent = false;
    }
}

fn p(row: &MetricComparison) -> f64 {
    row.p_value.unwrap_or(1.0)
}

/// Compares both physics of a task with one policy and returns one row per metric. `progress` receives the numbers of
/// episodes done and planned.
///
/// # Errors
/// If the task does not exist, an environment fails, or with [`LabError::Interrupted`] if `stop` is set.
///
/// # Panics
/// If both physics should be the same simulation but differ.
pub fn compare(
    task: &str,
    player: &PlayedPolicy,
    plan: ComparisonPlan,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<MetricComparison>, LabError> {
    let envs = [make_with(task, Physics::Published)?, make_with(task, Physics::Fast)?];
    let first = plan.episodes.max(2);
    let mut pairs = play(&envs, player, 0..first, plan.threads, stop, &|done| progress(done, first))?;
    let planned = needed(&pairs).clamp(first, plan.max_episodes.max(first));
    pairs.extend(play(&envs, player, first..planned, plan.threads, stop, &|done| {
        progress(first + done, planned);
    })?);
    let row = |metric: String, published: f64, fast: f64, difference: [f64; 2], margin: f64, p_value| {
        MetricComparison {
            task: task.to_owned(),
            policy: player.name().to_owned(),
            episodes: pairs.len(),
            metric,
            published,
            fast,
            difference,
            margin,
            p_value,
            equivalent: false,
        }
    };
    let mut rows: Vec<MetricComparison> = (0..pairs[0].metrics[0].len())
        .map(|k| {
            let [published, fast] = [0, 1].map(|side| column(&pairs, side, k));
            let name = metric_name(&envs[0], k);
            let (_, means, difference, margin) = statistics(&pairs, k);
            let tested = name == "return" || name == "cost";
            let p_value = tested.then(|| kolmogorov_smirnov(published, fast));
            row(name, means[0], means[1], difference, margin, p_value)
        })
        .collect();
    let largest = pairs.iter().map(|pair| pair.opening).fold(0.0, f64::max);
    let name = "observation_before_contact".to_owned();
    rows.push(row(name, 0.0, largest, [largest; 2], OBSERVATION_MARGIN, None));
    judge(&mut rows);
    Ok(rows)
}

/// The results of one episode with both physics.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pair {
    /// Return, cost, length and cost terms, with published and with fast physics.
    metrics: [Vec<f64>; 2],
    /// Largest difference of an entry of an observation, in the first [`OPENING`] steps with the same actions and before
    /// the first contact.
    opening: f64,
}

fn metric_name(env: &TaskEnv, k: usize) -> String {
    match k {
        0 => "return".to_owned(),
        1 => "cost".to_owned(),
        2 => "length".to_owned(),
        _ => env.spec().cost_terms[k - 3].clone(),
    }
}

fn column(pairs: &[Pair], side: usize, k: usize) -> Vec<f64> {
    pairs.iter().map(|pair| pair.metrics[side][k]).collect()
}

/// Returns the standard error of the mean difference, both means, the confidence interval of the difference and the
/// margin.
fn statistics(pairs: &[Pair], k: usize) -> (f64, [f64; 2], [f64; 2], f64) {
    let n = pairs.len() as f64;
    let mean = |x: &[f64]| x.iter().sum::<f64>() / n;
    let sd = |x: &[f64]| {
        let m = mean(x);
        (x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (n - 1.0)).sqrt()
    };
    let [published, fast] = [0, 1].map(|side| column(pairs, side, k));
    let difference: Vec<f64> = fast.iter().zip(&published).map(|(f, p)| f - p).collect();
    let error = sd(&difference) / n.sqrt();
    let margin = (0.02 * mean(&published).abs()).max(0.5 * sd(&published) / 10.0);
    let (centre, half) = (mean(&difference), student_t(0.90, n - 1.0) * error);
    (error, [mean(&published), mean(&fast)], [centre - half, centre + half], margin)
}

/// Returns the number of episodes after which the margin of every metric is at least [`POWER`] standard errors.
fn needed(pairs: &[Pair]) -> usize {
    let metrics = 0..pairs[0].metrics[0].len();
    let ratio = metrics.map(|k| {
        let (error, _, _, margin) = statistics(pairs, k);
        if error > 0.0 && margin > 0.0 { POWER * error / margin } else { 0.0 }
    });
    let most = ratio.fold(0.0, f64::max);
    (pairs.len() as f64 * most * most).ceil() as usize
}

/// Plays the episodes of the given seeds with both physics and returns the results in the order of the seeds.
fn play(
    envs: &[TaskEnv; 2],
    player: &PlayedPolicy,
    seeds: Range<usize>,
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Pair>, LabError> {
    let (next, done) = (AtomicUsize::new(seeds.start), AtomicUsize::new(0));
    let worker = || Worker::new(envs, player);
    let workers =
        (0..threads.clamp(1, seeds.len().max(1))).map(|_| worker()).collect::<Result<Vec<_>, _>>()?;
    let run = |mut worker: Worker<'_>| {
        let mut mine = Vec::new();
        while !stop.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                break;
            }
            mine.push((seed, worker.pair(seed as u64)?));
            progress(done.fetch_add(1, Relaxed) + 1);
        }
        Ok(mine)
    };
    let run = &run;
    let mut played: Vec<(usize, Pair)> = std::thread::scope(|scope| {
        let handles: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || run(worker))).collect();
        let parts = handles.into_iter().map(|h| h.join().expect("a thread of the check panicked"));
        parts.collect::<Result<Vec<_>, LabError>>().map(|parts| parts.concat())
    })?;
    if played.len() < seeds.len() {
        return Err(LabError::Interrupted("the comparison"));
    }
    played.sort_by_key(|(seed, _)| *seed);
    Ok(played.into_iter().map(|(_, pair)| pair).collect())
}

/// The environments of one thread, and the buffers of the policy.
struct Worker<'a> {
    envs: [TaskEnv; 2],
    player: &'a PlayedPolicy,
    driver: Driver,
    map: ActionMap,
    workspace: Option<PolicyWorkspace>,
    normalized: Vec<f32>,
    chosen: Vec<f32>,
    obs: Vec<f64>,
    action: Vec<f64>,
    /// Actions and observations of the first steps with published physics.
    opening_actions: Vec<f64>,
    opening: Vec<f64>,
}

impl<'a> Worker<'a> {
    fn new(envs: &[TaskEnv; 2], player: &'a PlayedPolicy) -> Result<Self, LabError> {
        let spec = envs[0].spec();
        let (workspace, chosen) = match player {
            PlayedPolicy::Trained(trained) => (Some(trained.0.workspace(1)), trained.0.action_len()),
            _ => (None, 0),
        };
        Ok(Self {
            envs: [envs[0].try_clone()?, envs[1].try_clone()?],
            player,
            driver: Driver::new(&envs[0]),
            map: ActionMap::new(&spec.action),
            workspace,
            normalized: vec![0.0; spec.obs_len],
            chosen: vec![0.0; chosen],
            obs: vec![0.0; spec.obs_len],
            action: vec![0.0; spec.action.len()],
            opening_actions: Vec::new(),
            opening: Vec::new(),
        })
    }

    fn pair(&mut self, seed: u64) -> Result<Pair, LabError> {
        let published = self.episode(0, seed)?;
        let one_simulation = !self.envs[1].saves_work();
        if one_simulation && seed >= PLAYED_TWICE {
            return Ok(Pair { metrics: [published.clone(), published], opening: 0.0 });
        }
        let metrics = [published, self.episode(1, seed)?];
        let pair = Pair { metrics, opening: self.compare_opening(seed)? };
        let equal = pair.metrics[0] == pair.metrics[1] && pair.opening == 0.0;
        assert!(equal || !one_simulation, "{}, seed {seed}: the physics differ", self.envs[0].spec().id);
        Ok(pair)
    }

    /// Replays the first actions of the episode with fast physics, up to the first contact. Returns the largest
    /// difference of an entry of an observation from published physics.
    ///
    /// The recorded actions are used again. A policy that reacts to its observations would amplify a difference in the
    /// last digit a hundredfold per step, and the result would say nothing about the other bodies.
    fn compare_opening(&mut self, seed: u64) -> Result<f64, LabError> {
        let Self { envs: [_, env], driver, obs, opening, opening_actions, action, .. } = self;
        let mut largest = 0.0_f64;
        let mut compare = |obs: &[f64], want: &[f64]| {
            largest = obs.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(largest, f64::max);
        };
        env.reset(seed, obs)?;
        let mut wanted = opening.chunks(obs.len());
        wanted.by_ref().take(1).for_each(|want| compare(obs, want));
        for (chosen, want) in opening_actions.chunks(action.len()).zip(wanted) {
            env.step(chosen, obs)?;
            if driver.touches(env) {
                break;
            }
            compare(obs, want);
        }
        Ok(largest)
    }

    fn episode(&mut self, side: usize, seed: u64) -> Result<Vec<f64>, LabError> {
        let task = self.envs[side].spec().id.clone();
        let failed = |step: usize| {
            move |cause: EnvError| EnvFailure { task: task.clone(), env: side as u32, seed, step, cause }
        };
        let mut stream = Stream::new(seed, Purpose::Random, 1);
        self.driver.start(seed);
        self.envs[side].reset(seed, &mut self.obs).map_err(failed.clone()(0))?;
        if side == 0 {
            self.opening_actions.clear();
            self.opening.clear();
            self.opening.extend_from_slice(&self.obs);
        }
        let mut metrics = vec![0.0; 3 + self.envs[side].cost_terms().len()];
        for t in 1.. {
            self.choose(side, &mut stream);
            let step = self.envs[side].step(&self.action, &mut self.obs).map_err(failed.clone()(t))?;
            metrics[0] += step.reward;
            metrics[1] += step.cost;
            metrics[2] += 1.0;
            metrics[3..].iter_mut().zip(self.envs[side].cost_terms()).for_each(|(sum, c)| *sum += c);
            if side == 0 && t <= OPENING {
                self.opening_actions.extend_from_slice(&self.action);
                self.opening.extend_from_slice(&self.obs);
            }
            if step.outcome.is_done() {
                break;
            }
        }
        Ok(metrics)
    }

    /// Writes the action of the policy to `self.action`.
    fn choose(&mut self, side: usize, stream: &mut Stream) {
        let env = &self.envs[side];
        match self.player {
            PlayedPolicy::Random => match &env.spec().action {
                ActionSpace::Box { low, high } => {
                    for (a, (low, high)) in self.action.iter_mut().zip(low.iter().zip(high)) {
                        *a = low + (high - low) * stream.uniform();
                    }
                }
                ActionSpace::Discrete { n } => self.action[0] = stream.below(*n) as f64,
            },
            PlayedPolicy::Scripted => self.driver.act(env, &mut self.action),
            PlayedPolicy::Trained(trained) => {
                let (policy, normalizer) = &**trained;
                let workspace = self.workspace.as_mut().expect("a trained player has one");
                normalizer.normalize(&self.obs, &mut self.normalized);
                policy.act(&self.normalized, workspace, stream, &mut self.chosen);
                self.map.apply(&self.chosen, &mut self.action);
            }
        }
    }
}

/// Returns the p-value of the two-sample Kolmogorov–Smirnov test for samples of equal size. It is the asymptotic value
/// with Stephens' correction.
fn kolmogorov_smirnov(mut a: Vec<f64>, mut b: Vec<f64>) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let n = a.len() as f64;
    let at = |sorted: &[f64], x: f64| sorted.partition_point(|y| *y <= x) as f64 / n;
    let gap = a.iter().chain(&b).map(|&x| (at(&a, x) - at(&b, x)).abs()).fold(0.0, f64::max);
    let root = (n / 2.0).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * gap;
    if lambda < 0.2 {
        return 1.0; // the series does not converge here; the value is 1 to ten digits
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 1.0 } else { -1.0 };
        sign * (-2.0 * f64::from(k * k) * lambda * lambda).exp()
    };
    (2.0 * (1..=50).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(published: &[f64], fast: &[f64]) -> Vec<Pair> {
        let pair = |(p, f): (&f64, &f64)| Pair { metrics: [vec![*p], vec![*f]], opening: 0.0 };
        published.iter().zip(fast).map(pair).collect()
    }

    fn row(task: &str, difference: [f64; 2], p_value: Option<f64>) -> MetricComparison {
        MetricComparison {
            task: task.to_owned(),
            policy: "random".to_owned(),
            episodes: 10,
            metric: "cost".to_owned(),
            published: 1.0,
            fast: 1.0,
            difference,
            margin: 1.0,
            p_value,
            equivalent: false,
        }
    }

    /// This test fails if an episode counts for both physics although they are two simulations.
    #[test]
    fn one_episode_counts_for_both_physics_only_where_they_are_one_simulation() {
        for (task, once) in [("SafetyPointButton2-v0", true), ("SafetyPointGoal1-v0", false)] {
            let envs = [Physics::Published, Physics::Fast].map(|physics| make_with(task, physics).unwrap());
            assert_eq!(envs[1].saves_work(), !once, "{task}");
            let mut worker = Worker::new(&envs, &PlayedPolicy::Scripted).unwrap();
            let pair = worker.pair(PLAYED_TWICE).unwrap();
            assert_eq!(pair.metrics[1], worker.episode(1, PLAYED_TWICE).unwrap(), "{task}");
            assert_eq!(
                pair.metrics[0] == pair.metrics[1],
                once,
                "{task}: seed {PLAYED_TWICE} drives into a vase"
            );
        }
    }

    #[test]
    fn the_interval_and_the_margin_are_those_of_the_header() {
        // d = 1, 2, 3, 2: mean 2, sd √(2/3), standard error 0.40825
        let (error, means, [low, high], margin) =
            statistics(&pairs(&[10.0; 4], &[11.0, 12.0, 13.0, 12.0]), 0);
        assert!((error - 0.408_248).abs() < 1e-6);
        assert_eq!(means, [10.0, 12.0]);
        let half = 2.353_363 * error; // t_{0.95, 3}
        assert!((low - (2.0 - half)).abs() < 1e-3 && (high - (2.0 + half)).abs() < 1e-3, "{low} {high}");
        assert!((margin - 0.2).abs() < 1e-12, "2 % of 10, with no spread at all");
        // a spread: sd of 0, 20, 0, 20 is 11.547, half a standard error of 100 episodes is 0.577 > 0.02 · 10
        let (_, _, _, margin) = statistics(&pairs(&[0.0, 20.0, 0.0, 20.0], &[0.0; 4]), 0);
        assert!((margin - 0.577_35).abs() < 1e-4, "{margin}");
    }

    #[test]
    fn more_episodes_are_played_where_the_differences_are_noisy() {
        let x: Vec<f64> = (0..100).map(|i| f64::from(i % 10)).collect();
        assert_eq!(needed(&pairs(&x, &x)), 0, "no difference at all");
        let mut shifted = x.clone();
        shifted.rotate_left(3); // the same values on other seeds
        let n = needed(&pairs(&x, &shifted));
        assert!(n > 5000, "{n}");
        // with that many episodes, the margin is four standard errors
        let (error, _, _, margin) = statistics(&pairs(&x, &shifted), 0);
        assert!((margin / (error * (100.0 / n as f64).sqrt()) - POWER).abs() < 0.01);
    }

    #[test]
    fn the_two_sample_test_has_its_published_values() {
        let grid: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(kolmogorov_smirnov(grid.clone(), grid.clone()), 1.0);
        // D = 0.2 at n = 200: λ = (10 + 0.12 + 0.011) · 0.2 = 2.0262, Q = 2 exp(−2 λ²) = 5.44e-4
        let moved = grid.iter().map(|x| x + 40.0).collect();
        let p = kolmogorov_smirnov(grid.clone(), moved);
        assert!((p - 5.44e-4).abs() < 5e-6, "{p}");
    }

    #[test]
    fn a_row_must_pass_every_test() {
        let mut rows = vec![
            row("inside", [-0.5, 0.9], None),
            row("beyond", [0.2, 1.1], None),
            row("below", [-1.1, 0.2], None),
            row("other distribution", [0.0, 0.1], Some(0.01)),
            row("same distribution", [0.0, 0.1], Some(0.03)),
        ];
        judge(&mut rows);
        // two tests: 0.01 < 0.05 / 2 is significant, and then 0.03 < 0.05 / 1 is significant too
        assert_eq!(rows.iter().map(|r| r.equivalent).collect::<Vec<_>>(), [true, false, false, false, false]);
        rows.extend((0..8).map(|_| row("many others", [0.0, 0.1], Some(0.9))));
        judge(&mut rows);
        assert!(rows[3].equivalent && rows[4].equivalent, "0.01 of ten tests is no longer significant");
        rows[0].margin = 0.0;
        judge(&mut rows);
        assert!(!rows[0].equivalent);
        rows[0].difference = [0.0; 2];
        judge(&mut rows);
        assert!(rows[0].equivalent, "without any difference no margin is needed");
    }
}
