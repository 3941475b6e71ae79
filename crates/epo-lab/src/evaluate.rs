//! Evaluation: a trained policy plays episodes in its own environments.
//!
//! A Gaussian policy can be played in two ways, and the results can differ a lot: training *samples* its
//! actions, while a robot usually gets the *mean* action. An evaluation of a run plays both on the same
//! episodes and names each ([`ActionMode`]).
//!
//! Nothing is shared with training: the environments are new, the seeds come from a separate random
//! stream, and the normaliser is only read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use epo_core::{EnvPool, EnvSpec, Purpose, Stream};
use epo_nn::{Normalizer, Policy};
use epo_report::stats::student_t;
use epo_tasks::Physics;
use serde::{Deserialize, Serialize};

use crate::checkpoint::LoadedCheckpoint;
use crate::collect::{ActionMap, MakeEnv};
use crate::config::ResolvedRun;
use crate::episodes::Episode;
use crate::snapshot::Snapshot;
use crate::{LabError, runs};

/// How a policy chooses its action in an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionMode {
    /// The mean of the Gaussian, or the most probable discrete action: the policy as it is usually deployed.
    Mean,
    /// Actions are drawn from the policy's distribution, as in training.
    Sampled,
}

impl ActionMode {
    /// Both modes, the deployed one first.
    pub const ALL: [Self; 2] = [Self::Mean, Self::Sampled];

    /// Name for tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mean => "mean action",
            Self::Sampled => "sampled action",
        }
    }
}

/// Settings of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct EvalPlan {
    /// Number of episodes.
    pub episodes: usize,
    /// Seed of the episodes, and of the actions if they are sampled.
    pub seed: u64,
    /// Number of threads. Does not change the results.
    pub threads: usize,
    /// Physics of the environments that are played.
    pub physics: Physics,
}

/// Communication between an evaluation and its caller while episodes are played.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set by the caller, for example after Ctrl-C: the evaluation ends before its next episode.
    pub stop: Arc<AtomicBool>,
    /// Number of episodes played, over both action modes.
    pub played: AtomicUsize,
}

/// Maximum number of environments that an evaluation steps side by side. It is a constant because it determines
/// the seeds: episode number k · w + i is episode k of environment i, where w is the smaller of this number and
/// the number of episodes.
pub const WIDTH: usize = 32;

/// One environment's share of an evaluation.
struct EnvShare {
    episodes: usize,
    finished: Vec<Episode>,
    stream: Stream,
}

/// Plays episodes with a policy and returns them in an order that does not depend on the number of threads.
///
/// # Errors
/// If an environment fails, or with [`LabError::Interrupted`] if `watch.stop` is set before the last episode begins.
pub fn evaluate(
    policy: &Policy,
    normalizer: &Normalizer,
    make_env: &MakeEnv<'_>,
    plan: EvalPlan,
    mode: ActionMode,
    watch: &Watch,
) -> Result<Vec<Episode>, LabError> {
    let width = plan.episodes.clamp(1, WIDTH);
    let envs = (0..width).map(|_| make_env()).collect::<Result<Vec<_>, _>>()?;
    let mut pool = EnvPool::new(envs, plan.threads, plan.seed, Purpose::Evaluation)?;
    let mut shares: Vec<EnvShare> = (0..width)
        .map(|i| EnvShare {
            episodes: (plan.episodes + width - 1 - i) / width,
            finished: Vec::new(),
            // evaluation episodes use streams 0.. of their purpose; their actions use the upper half
            stream: Stream::new(plan.seed, Purpose::Evaluation, i as u32 | 1 << 31),
        })
        .collect();
    pool.run(&mut shares, |slot, share| {
        let map = ActionMap::new(&slot.env().spec().action);
        let mut ws = policy.workspace(1);
        let mut obs = vec![0.0; slot.obs().len()];
        let mut chosen = vec![0.0; policy.action_len()];
        let mut action = vec![0.0; map.len()];
        for number in 0..share.episodes {
            if watch.stop.load(Relaxed) {
                break;
            }
            slot.start(number as u64)?;
            let mut episode = Episode::default();
            loop {
                normalizer.normalize(slot.obs(), &mut obs);
                match mode {
                    ActionMode::Sampled => {
                        policy.act(&obs, &mut ws, &mut share.stream, &mut chosen);
                    }
                    ActionMode::Mean => policy.act_deterministic(&obs, &mut ws, &mut chosen),
                }
                map.apply(&chosen, &mut action);
                let step = slot.step(&action)?;
                episode.add(step.reward, step.cost);
                if step.outcome.is_done() {
                    break;
                }
            }
            share.finished.push(episode);
            watch.played.fetch_add(1, Relaxed);
        }
        Ok(())
    })?;
    if shares.iter().any(|p| p.finished.len() < p.episodes) {
        return Err(LabError::Interrupted("the evaluation"));
    }
    // episode k of environment i is number k · width + i
    let most = shares.iter().map(|p| p.finished.len()).max().unwrap_or(0);
    Ok((0..most).flat_map(|k| shares.iter().filter_map(move |p| p.finished.get(k).copied())).collect())
}

/// Evaluates the newest intact checkpoint of a run folder with both action modes and adds the result to the folder's
/// `eval.json`. `shown` is the mode that the report puts first.
///
/// Returns the report and one line about each damaged checkpoint that was passed over.
pub fn evaluate_run(
    dir: &Path,
    make_env: &MakeEnv<'_>,
    plan: EvalPlan,
    shown: ActionMode,
    watch: &Watch,
) -> Result<(EvalReport, Vec<String>), LabError> {
    let run = runs::read_config(dir)?;
    let spec = make_env()?.spec().clone();
    let (policy, normalizer, loaded) = load_policy(dir, &run, &spec)?;
    let play = |mode| -> Result<Evaluation, LabError> {
        let played = evaluate(&policy, &normalizer, make_env, plan, mode, watch)?;
        Ok(Evaluation {
            policy: mode,
            physics: plan.physics,
            episodes: played.len(),
            seed: plan.seed,
            ret: Spread::of(played.iter().map(|e| e.ret)),
            cost: CostSpread::of(&played, run.run.limit),
            length: Spread::of(played.iter().map(|e| e.len as f64)),
            hash: loaded.hash.clone(),
        })
    };
    let new = ActionMode::ALL.into_iter().map(play).collect::<Result<Vec<_>, _>>()?;
    let report = EvalReport::new(dir, run, new, shown);
    Ok((report, loaded.passed_over))
}

/// Evaluates a finished run whose checkpoint has this hash, as `train.final_eval_episodes` says, and writes
/// `eval.json`.
///
/// Returns `None` if the configuration asks for no evaluation, or if the folder already has an evaluation of
/// this hash.
pub fn evaluate_finished(
    dir: &Path,
    run: &ResolvedRun,
    make_env: &MakeEnv<'_>,
    hash: &str,
    watch: &Watch,
) -> Result<Option<EvalReport>, LabError> {
    let episodes = run.train.final_eval_episodes;
    if episodes == 0 || EvalReport::evaluations(dir).iter().any(|e| e.hash == hash) {
        return Ok(None);
    }
    let plan = EvalPlan { episodes, seed: 0, threads: run.train.threads, physics: run.run.physics };
    let (report, _) = evaluate_run(dir, make_env, plan, ActionMode::Mean, watch)?;
    report.write(dir)?;
    Ok(Some(report))
}

/// Returns policy and normaliser of the newest intact checkpoint of a run folder, and that checkpoint.
pub fn load_policy(
    dir: &Path,
    run: &ResolvedRun,
    spec: &EnvSpec,
) -> Result<(Policy, Normalizer, LoadedCheckpoint), LabError> {
    let Snapshot { agent, normalizer, loaded, .. } = Snapshot::read(dir, run, spec, None)?;
    Ok((agent.policy, normalizer, loaded))
}

/// Mean, standard deviation (with n − 1) and 95 % confidence interval of the mean (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; `None` for a single value.
    pub std: Option<f64>,
    /// 95 % confidence interval of the mean; `None` for a single value.
    pub ci95: Option<[f64; 2]>,
}

impl Spread {
    /// Statistics of at least one number.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let squares = values.map(|x| (x - mean) * (x - mean)).sum::<f64>();
        let std = (n > 1.0).then(|| (squares / (n - 1.0)).sqrt());
        let half = std.map(|std| student_t(0.95, n - 1.0) * std / n.sqrt());
        Self { mean, std, ci95: half.map(|half| [mean - half, mean + half]) }
    }
}

/// Result of an evaluation with one action mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How the actions were chosen.
    pub policy: ActionMode,
    /// Physics of the simulation. Version 0.3 knew only published physics.
    #[serde(default)]
    pub physics: Physics,
    /// Number of episodes.
    pub episodes: usize,
    /// Seed of the episodes.
    pub seed: u64,
    /// Undiscounted return of an episode.
    #[serde(rename = "return")]
    pub ret: Spread,
    /// Undiscounted cost of an episode.
    pub cost: CostSpread,
    /// Steps of an episode.
    pub length: Spread,
    /// Hash of the checkpoint that was played.
    pub hash: String,
}

/// What `epo eval --json` prints and `eval.json` holds: one evaluation at the top level, and all evaluations of the
/// run folder in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Task id.
    pub task: String,
    /// Name of the algorithm.
    pub algo: String,
    /// The evaluation that was asked for.
    #[serde(flatten)]
    pub shown: Evaluation,
    /// Every evaluation of this run folder, oldest first: one per action mode, physics, seed,
    /// number of episodes and checkpoint.
    pub evaluations: Vec<Evaluation>,
}

/// `eval.json` as version 0.3 wrote it: one evaluation, with a flag instead of the name of the action mode.
#[derive(Deserialize)]
struct OldReport {
    stochastic: bool,
    episodes: usize,
    seed: u64,
    #[serde(rename = "return")]
    ret: Spread,
    cost: CostSpread,
    length: Spread,
    hash: String,
}

impl EvalReport {
    /// File in a run folder.
    pub const FILE: &str = "eval.json";

    /// Returns the new evaluations together with those that the folder already has. An unreadable `eval.json`
    /// is replaced.
    fn new(dir: &Path, run: ResolvedRun, new: Vec<Evaluation>, shown: ActionMode) -> Self {
        let mut evaluations = Self::evaluations(dir);
        let key = |e: &Evaluation| (e.policy, e.physics, e.seed, e.episodes, e.hash.clone());
        evaluations.retain(|old| new.iter().all(|n| key(n) != key(old)));
        let shown = new.iter().find(|e| e.policy == shown).unwrap_or(&new[0]).clone();
        evaluations.extend(new);
        Self { task: run.run.task, algo: run.run.algo, shown, evaluations }
    }

    /// The evaluations that a run folder has; none if there is no readable `eval.json`.
    pub fn evaluations(dir: &Path) -> Vec<Evaluation> {
        let text = epo_core::read_text(&dir.join(Self::FILE), epo_core::MOST_TEXT_BYTES).unwrap_or_default();
        if let Ok(report) = serde_json::from_str::<Self>(&text) {
            return report.evaluations;
        }
        let Ok(old) = serde_json::from_str::<OldReport>(&text) else { return Vec::new() };
        let policy = if old.stochastic { ActionMode::Sampled } else { ActionMode::Mean };
        let OldReport { episodes, seed, ret, cost, length, hash, .. } = old;
        vec![Evaluation { policy, physics: Physics::Published, episodes, seed, ret, cost, length, hash }]
    }

    /// Writes `eval.json`.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        let json = serde_json::to_string_pretty(self).unwrap_or_default(); // numbers and strings cannot fail
        runs::write_whole(&dir.join(Self::FILE), format!("{json}\n").as_bytes())
    }

    /// The evaluations that were made together with [`shown`](Self::shown): one per action mode.
    pub fn side_by_side(&self) -> impl Iterator<Item = &Evaluation> {
        let same = |e: &Evaluation| (e.physics, e.seed, e.episodes, e.hash.clone());
        let shown = same(&self.shown);
        self.evaluations.iter().filter(move |e| same(e) == shown)
    }
}

/// Costs of an evaluation and how they compare with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostSpread {
    /// Mean, standard deviation and interval. If no episode had a negative cost, the interval starts at 0 or above.
    #[serde(flatten)]
    pub spread: Spread,
    /// Median. Rare, expensive episodes change the mean but hardly the median.
    #[serde(default)]
    pub median: f64,
    /// Share of the episodes whose cost is within the limit.
    pub p_feasible: f64,
    /// Cost limit of the run.
    pub limit: f64,
}

impl CostSpread {
    /// Statistics of the costs of at least one episode.
    pub fn of(episodes: &[Episode], limit: f64) -> Self {
        let within = episodes.iter().filter(|e| e.cost <= limit).count();
        let mut spread = Spread::of(episodes.iter().map(|e| e.cost));
        let mut costs: Vec<f64> = episodes.iter().map(|e| e.cost).collect();
        costs.sort_by(f64::total_cmp);
        if let Some([low, _]) = spread.ci95.as_mut().filter(|_| costs[0] >= 0.0) {
            *low = low.max(0.0);
        }
        let median = (costs[(costs.len() - 1) / 2] + costs[costs.len() / 2]) / 2.0;
        Self { spread, median, p_feasible: within as f64 / episodes.len() as f64, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        // 1, 2, 3: mean 2, deviation 1, t(2) = 4.3027, so ± 4.3027/√3 = 2.4842
        let spread = Spread::of([1.0, 2.0, 3.0].into_iter());
        assert_eq!((spread.mean, spread.std), (2.0, Some(1.0)));
        assert!((spread.ci95.unwrap()[1] - 4.4842).abs() < 1e-4, "{spread:?}");
    }

    /// This test fails if one episode is shown with an interval of width 0, as if the mean were known exactly.
    #[test]
    fn a_single_value_has_no_interval() {
        let spread = Spread::of([5.0].into_iter());
        assert_eq!(spread, Spread { mean: 5.0, std: None, ci95: None });
        assert_eq!(
            serde_json::to_value(spread).unwrap(),
            serde_json::json!({"mean": 5.0, "std": null, "ci95": null})
        );
    }

    #[test]
    fn a_cost_equal_to_the_limit_is_within_it() {
        let episode = |cost| Episode { ret: 0.0, cost, len: 1 };
        let cost = CostSpread::of(&[episode(0.0), episode(25.0), episode(25.5), episode(9.0)], 25.0);
        assert_eq!((cost.p_feasible, cost.median), (0.75, 17.0));
        let json = serde_json::to_value(cost).unwrap();
        assert!(
            json["mean"].is_number() && json["ci95"].is_array() && json["p_feasible"].is_number(),
            "{json}"
        );
    }

    #[test]
    fn the_interval_of_a_cost_does_not_go_below_zero() {
        let episode = |cost| Episode { ret: 0.0, cost, len: 1 };
        let cost = CostSpread::of(&[episode(0.0), episode(320.0)], 25.0);
        let [low, high] = cost.spread.ci95.unwrap();
        assert_eq!((low, cost.median), (0.0, 160.0));
        assert!(high > 2000.0, "{cost:?}");
        let negative = CostSpread::of(&[episode(-1.0), episode(320.0)], 25.0);
        assert!(
            negative.spread.ci95.unwrap()[0] < -1000.0,
            "an environment whose costs are negative keeps Student's interval"
        );
    }

    #[test]
    fn evaluations_are_kept_side_by_side_and_old_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let one = |policy, seed, hash: &str| Evaluation {
            physics: Physics::Published,
            policy,
            episodes: 1,
            seed,
            ret: Spread::of([1.0].into_iter()),
            cost: CostSpread::of(&[Episode { ret: 1.0, cost: 2.0, len: 3 }], 25.0),
            length: Spread::of([3.0].into_iter()),
            hash: hash.to_owned(),
        };
        let run = || ResolvedRun::from_layers(None, &[]).unwrap();
        let both = |seed, hash| ActionMode::ALL.map(|mode| one(mode, seed, hash)).to_vec();
        EvalReport::new(dir.path(), run(), both(0, "a"), ActionMode::Mean).write(dir.path()).unwrap();
        EvalReport::new(dir.path(), run(), both(1, "a"), ActionMode::Mean).write(dir.path()).unwrap();
        let last = EvalReport::new(dir.path(), run(), both(0, "a"), ActionMode::Sampled);
        last.write(dir.path()).unwrap();
        let seeds: Vec<_> = last.evaluations.iter().map(|e| (e.policy, e.seed)).collect();
        use ActionMode::{Mean, Sampled};
        assert_eq!(
            seeds,
            [(Mean, 1), (Sampled, 1), (Mean, 0), (Sampled, 0)],
            "repeated: replaced; new: added"
        );
        let mut short = both(0, "a");
        short.iter_mut().for_each(|e| e.episodes = 2);
        let added = EvalReport::new(dir.path(), run(), short, ActionMode::Mean);
        assert_eq!(added.evaluations.len(), 6, "another number of episodes replaces nothing");
        assert_eq!(added.side_by_side().count(), 2);
        assert_eq!(last.shown.policy, Sampled);
        assert_eq!(last.side_by_side().count(), 2);
        let file = dir.path().join(EvalReport::FILE);
        let read: EvalReport = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read, last);
        // version 0.3
        let old = r#"{"task":"T","algo":"epo","episodes":2,"seed":4,"stochastic":true,
            "return":{"mean":1.0,"std":0.0,"ci95":[1.0,1.0]},
            "cost":{"mean":2.0,"std":0.0,"ci95":[2.0,2.0],"p_feasible":1.0,"limit":25.0},
            "length":{"mean":3.0,"std":0.0,"ci95":[3.0,3.0]},"hash":"h"}"#;
        std::fs::write(&file, old).unwrap();
        let read = EvalReport::evaluations(dir.path());
        assert_eq!((read.len(), read[0].policy, read[0].seed), (1, Sampled, 4));
    }
}
