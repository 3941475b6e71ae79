//! How good a policy is, on environments of its own.
//!
//! Nothing is shared with training: fresh environments, seeds of another purpose, a normaliser that is only read.

use std::path::Path;

use epo_algos::Agent;
use epo_core::{EnvPool, EnvSpec, Purpose, Stream};
use epo_nn::{Normalizer, Policy};
use epo_report::stats::student_t_975;
use serde::Serialize;

use crate::checkpoint::{self, Loaded};
use crate::collect::{ActionMap, MakeEnv};
use crate::config::ResolvedRun;
use crate::episodes::Episode;
use crate::state::{Learner, from_files};
use crate::{LabError, runs};

/// What to play.
#[derive(Clone, Copy, Debug)]
pub struct EvalPlan {
    /// Episodes in all.
    pub episodes: usize,
    /// Names the episodes (and the actions, if they are drawn).
    pub seed: u64,
    /// Draw actions as in training; otherwise take the mean, or the likeliest.
    pub stochastic: bool,
    /// Threads; does not change a number.
    pub threads: usize,
}

/// Environments side by side. Fixed, since it decides which seeds are played.
const WIDTH: usize = 32;

/// One environment's share of an evaluation.
struct Player {
    episodes: usize,
    finished: Vec<Episode>,
    stream: Stream,
}

/// Plays episodes with a policy and returns them, in an order that does not depend on threads.
pub fn evaluate(
    policy: &Policy,
    normalizer: &Normalizer,
    make_env: &MakeEnv<'_>,
    plan: EvalPlan,
) -> Result<Vec<Episode>, LabError> {
    let width = plan.episodes.clamp(1, WIDTH);
    let envs = (0..width).map(|_| make_env()).collect::<Result<Vec<_>, _>>()?;
    let mut pool = EnvPool::new(envs, plan.threads, plan.seed, Purpose::Evaluation)?;
    let mut players: Vec<Player> = (0..width)
        .map(|i| Player {
            episodes: (plan.episodes + width - 1 - i) / width,
            finished: Vec::new(),
            // evaluation episodes have streams 0.. of their purpose; their actions have the upper half
            stream: Stream::new(plan.seed, Purpose::Evaluation, i as u32 | 1 << 31),
        })
        .collect();
    pool.run(&mut players, |slot, player| {
        let map = ActionMap::new(&slot.env().spec().action);
        let mut ws = policy.workspace(1);
        let mut obs = vec![0.0; slot.obs().len()];
        let mut chosen = vec![0.0; policy.action_len()];
        let mut action = vec![0.0; map.len()];
        for number in 0..player.episodes {
            slot.start(number as u64)?;
            let mut episode = Episode::default();
            loop {
                normalizer.normalize(slot.obs(), &mut obs);
                if plan.stochastic {
                    policy.act(&obs, &mut ws, &mut player.stream, &mut chosen);
                } else {
                    policy.act_deterministic(&obs, &mut ws, &mut chosen);
                }
                map.apply(&chosen, &mut action);
                let step = slot.step(&action)?;
                episode.add(step.reward, step.cost);
                if step.outcome.is_done() {
                    break;
                }
            }
            player.finished.push(episode);
        }
        Ok(())
    })?;
    // episode k of environment i is number k · width + i
    let most = players.iter().map(|p| p.finished.len()).max().unwrap_or(0);
    Ok((0..most).flat_map(|k| players.iter().filter_map(move |p| p.finished.get(k).copied())).collect())
}

/// Evaluates the newest whole checkpoint of a run folder.
pub fn evaluate_run(
    dir: &Path,
    make_env: &MakeEnv<'_>,
    plan: EvalPlan,
) -> Result<(EvalReport, Vec<String>), LabError> {
    let run = runs::read_config(dir)?;
    let spec = make_env()?.spec().clone();
    let (policy, normalizer, loaded) = load_policy(dir, &run, &spec)?;
    let played = evaluate(&policy, &normalizer, make_env, plan)?;
    let report = EvalReport {
        task: run.run.task,
        algo: run.run.algo,
        episodes: played.len(),
        seed: plan.seed,
        stochastic: plan.stochastic,
        ret: Spread::of(played.iter().map(|e| e.ret)),
        cost: CostSpread::of(&played, run.run.limit),
        length: Spread::of(played.iter().map(|e| e.len as f64)),
        hash: loaded.hash,
    };
    Ok((report, loaded.passed_over))
}

/// The policy and the normaliser of a run folder, and the checkpoint that they are from.
pub fn load_policy(
    dir: &Path,
    run: &ResolvedRun,
    spec: &EnvSpec,
) -> Result<(Policy, Normalizer, Loaded), LabError> {
    let root = dir.join("checkpoint");
    let loaded = checkpoint::load(&root)?;
    let read = || {
        let (state, tensors) = from_files(&loaded.files)?;
        let (hidden, streams) = (&run.train.hidden, run.algo.streams());
        let mut agent = Agent::new(spec.obs_len, &spec.action, hidden, hidden, streams, run.run.seed);
        let mut algorithm = run.build().map_err(|e| e.to_string())?;
        let mut normalizer = Normalizer::new(spec.obs_len);
        let learner = Learner { agent: &mut agent, algorithm: &mut *algorithm, normalizer: &mut normalizer };
        learner.restore(&state, &tensors)?;
        Ok((agent.policy, normalizer))
    };
    let (policy, normalizer) = read().map_err(|why: String| LabError::run(&root, why))?;
    Ok((policy, normalizer, loaded))
}

/// Mean, standard deviation (over n − 1) and 95 % interval of a mean (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; 0 for one episode.
    pub std: f64,
    /// 95 % interval of the mean.
    pub ci95: [f64; 2],
}

impl Spread {
    /// Of some numbers, at least one.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let squares = values.map(|x| (x - mean) * (x - mean)).sum::<f64>();
        let std = if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        let half = if n > 1.0 { student_t_975(n - 1.0) * std / n.sqrt() } else { 0.0 };
        Self { mean, std, ci95: [mean - half, mean + half] }
    }
}

/// The result of an evaluation: what `epo eval --json` prints and `eval.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    /// Task id.
    pub task: String,
    /// Algorithm.
    pub algo: String,
    /// Episodes played.
    pub episodes: usize,
    /// Names the episodes.
    pub seed: u64,
    /// Whether actions were drawn.
    pub stochastic: bool,
    /// Undiscounted return.
    #[serde(rename = "return")]
    pub ret: Spread,
    /// Undiscounted cost.
    pub cost: CostSpread,
    /// Steps.
    pub length: Spread,
    /// Hash of the checkpoint that played.
    pub hash: String,
}

/// The cost of an evaluation, against its limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CostSpread {
    /// Mean, deviation, interval.
    #[serde(flatten)]
    pub spread: Spread,
    /// Share of the episodes whose cost is within the limit.
    pub p_feasible: f64,
    /// The limit.
    pub limit: f64,
}

impl CostSpread {
    /// Of the costs of some episodes, at least one.
    pub fn of(episodes: &[Episode], limit: f64) -> Self {
        let within = episodes.iter().filter(|e| e.cost <= limit).count();
        let spread = Spread::of(episodes.iter().map(|e| e.cost));
        Self { spread, p_feasible: within as f64 / episodes.len() as f64, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // 1, 2, 3: mean 2, deviation 1, t(2) = 4.3027, so ± 4.3027/√3 = 2.4842
        let spread = Spread::of([1.0, 2.0, 3.0].into_iter());
        assert_eq!((spread.mean, spread.std), (2.0, 1.0));
        assert!((spread.ci95[1] - 4.4842).abs() < 1e-4, "{spread:?}");
        assert_eq!(Spread::of([5.0].into_iter()).ci95, [5.0, 5.0]);
    }

    #[test]
    fn the_share_within_the_limit_counts_equality() {
        let episode = |cost| Episode { ret: 0.0, cost, len: 1 };
        let cost = CostSpread::of(&[episode(0.0), episode(25.0), episode(25.5), episode(9.0)], 25.0);
        assert_eq!(cost.p_feasible, 0.75);
        let json = serde_json::to_value(cost).unwrap();
        assert!(
            json["mean"].is_number() && json["ci95"].is_array() && json["p_feasible"].is_number(),
            "{json}"
        );
    }
}
