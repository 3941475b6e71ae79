//! Finished episodes, and the estimate of the episode cost of an epoch (the stage *measure* of the training loop).
//!
//! ```text
//! J_c = mean cost of the episodes that finished in this epoch; earlier ones are added until there are `cost_window`
//!     | if no episode has finished yet: Σ cost / Σ steps · maximum length   (extrapolated from the running episodes)
//! spread = standard deviation over these episodes and all others of the last 100
//! ```
//! OmniSafe always uses the mean of the last 100 episodes, which is NaN if an epoch finishes none. Episode costs have
//! heavy tails: their standard deviation is about as large as their mean. The mean of 16 episodes (an epoch of 16,000
//! steps) therefore has a relative standard error of about a quarter. A longer window has less noise but a longer delay.
//! The columns `Metrics/EpRet`, `EpCost` and `EpLen` have the same meaning as in OmniSafe.

use std::collections::VecDeque;

use epo_algos::UpdateError;
use epo_core::CostReading;
use serde::{Deserialize, Serialize};

/// Number of finished episodes over which the columns `Metrics/Ep…` are averaged.
pub const WINDOW: usize = 100;

/// Return, cost and length of an episode, finished or running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Sum of the rewards.
    pub ret: f64,
    /// Sum of the costs.
    pub cost: f64,
    /// Number of steps.
    pub len: u64,
}

impl Episode {
    /// Adds one step.
    pub fn add(&mut self, reward: f64, cost: f64) {
        self.ret += reward;
        self.cost += cost;
        self.len += 1;
    }
}

/// A finished episode, with its environment and the step at which it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedEpisode {
    /// Number of environment steps of the run when the episode ended.
    pub step: u64,
    /// Number of the environment.
    pub env: u32,
    /// Return, cost and length.
    pub episode: Episode,
}

/// Settings of the cost estimate of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRule {
    /// Minimum number of finished episodes in the estimate, if there are as many; see `train.cost_window`.
    pub window: usize,
    /// Maximum length of an episode, in steps.
    pub max_steps: usize,
    /// Cost limit d.
    pub limit: f64,
}

/// The last [`WINDOW`] finished episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeWindow {
    window: VecDeque<Episode>,
}

impl EpisodeWindow {
    /// Returns the cost estimate of an epoch, and then adds its finished episodes to the window.
    ///
    /// The estimate is the mean over all episodes that `finished` in this epoch. If these are fewer than `rule.window`,
    /// the newest earlier episodes are added. If no episode has finished yet, the cost is extrapolated from the
    /// `running` episodes.
    ///
    /// # Errors
    /// If a cost is not finite. [`epo_core::Slot::step`] rejects such costs earlier.
    pub fn measure(
        &mut self,
        finished: &[FinishedEpisode],
        running: &[Episode],
        rule: CostRule,
    ) -> Result<CostReading, UpdateError> {
        let reading = self.read(finished, running, rule);
        for finished in finished {
            if self.window.len() == WINDOW {
                self.window.pop_front();
            }
            self.window.push_back(finished.episode);
        }
        let (what, value, place) = ("episode cost".into(), f64::NAN, "measurement".to_owned());
        reading.ok_or(UpdateError::NotFinite { what, value, place })
    }

    fn read(&self, finished: &[FinishedEpisode], running: &[Episode], rule: CostRule) -> Option<CostReading> {
        let older = rule.window.max(1).saturating_sub(finished.len()).min(self.window.len());
        let older = self.window.range(self.window.len() - older..);
        let read = older.chain(finished.iter().map(|f| &f.episode));
        let (episodes, length) = (read.clone().count(), mean_and_std(read.clone().map(|e| e.len as f64)));
        // the spread varies less from epoch to epoch if it is taken over all episodes that are known
        let known = self.window.iter().chain(finished.iter().map(|f| &f.episode));
        let (mean, spread) = match (mean_and_std(read.map(|e| e.cost)), mean_and_std(known.map(|e| e.cost))) {
            (Some((mean, _)), Some((_, spread))) => (mean, spread),
            _ => extrapolate(running, rule.max_steps),
        };
        let length = length.map_or(rule.max_steps as f64, |(mean, _)| mean);
        let episodes = if episodes > 0 { episodes } else { running.iter().filter(|e| e.len > 0).count() };
        Some(CostReading::with_spread(mean, rule.limit, spread)?.of_episodes(episodes, length))
    }

    /// Returns the mean of a quantity over the window; `None` before the first episode has finished.
    pub fn mean(&self, of: impl Fn(&Episode) -> f64 + Copy) -> Option<f64> {
        mean_and_std(self.window.iter().map(of)).map(|(mean, _)| mean)
    }
}

/// Returns mean and standard deviation of the costs that the running episodes would have at the maximum length. Both
/// are 0 if there are no running episodes.
fn extrapolate(running: &[Episode], max_steps: usize) -> (f64, f64) {
    let begun = || running.iter().filter(|e| e.len > 0);
    let steps: u64 = begun().map(|e| e.len).sum();
    let cost: f64 = begun().map(|e| e.cost).sum();
    let spread = mean_and_std(begun().map(|e| e.cost / e.len as f64 * max_steps as f64));
    (cost / steps.max(1) as f64 * max_steps as f64, spread.map_or(0.0, |(_, std)| std))
}

/// Returns mean and standard deviation (with divisor n) of the values; `None` if there are no values.
fn mean_and_std(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (n > 0.0).then(|| (mean, variance.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(cost: f64, len: u64) -> Episode {
        Episode { ret: 0.0, cost, len }
    }

    fn finished(costs: &[f64]) -> Vec<FinishedEpisode> {
        costs.iter().map(|&cost| FinishedEpisode { step: 0, env: 0, episode: episode(cost, 1000) }).collect()
    }

    fn rule(window: usize) -> CostRule {
        CostRule { window, max_steps: 1000, limit: 25.0 }
    }

    #[test]
    fn the_reading_uses_the_epoch_then_the_window_then_the_running_episodes() {
        let mut episodes = EpisodeWindow::default();
        let running = [episode(3.0, 10), episode(0.0, 20), episode(0.0, 0)];
        // no episode has finished: a cost of 3 in 30 steps is 100 in an episode of 1000 steps
        let reading = episodes.measure(&[], &running, rule(0)).unwrap();
        assert!(
            (reading.mean() - 100.0).abs() < 1e-12 && (reading.spread() - 150.0).abs() < 1e-12,
            "{reading:?}"
        );
        // no episode has begun
        assert_eq!(episodes.measure(&[], &[], rule(0)).unwrap().mean(), 0.0);
        // with window 0, an epoch with two finished episodes uses only these two
        episodes.measure(&finished(&[50.0]), &[], rule(0)).unwrap();
        let now = finished(&[10.0, 30.0]);
        let reading = |episodes: &EpisodeWindow, now: &[FinishedEpisode], window| {
            episodes.clone().measure(now, &running, rule(window)).unwrap()
        };
        let read = reading(&episodes, &now, 0);
        assert_eq!((read.mean(), read.limit()), (20.0, 25.0));
        // the spread is that of all known episodes: 50, 10, 30 with mean 30
        assert!((read.spread() - (800.0_f64 / 3.0).sqrt()).abs() < 1e-12, "{read:?}");
        // with a larger window, earlier episodes are added, as far as there are any
        for window in [3, 100] {
            assert_eq!(reading(&episodes, &now, window).mean(), 30.0, "window {window}");
        }
        assert_eq!(reading(&episodes, &now, 2).mean(), 20.0);
        // an epoch without a finished episode uses the last earlier episode
        assert_eq!(reading(&episodes, &[], 0).mean(), 50.0);
    }

    /// This test fails if the episodes of the epoch are added to the window too early and then counted twice.
    #[test]
    fn measure_reads_the_window_before_it_adds_the_episodes() {
        let mut episodes = EpisodeWindow::default();
        episodes.measure(&finished(&[50.0]), &[], rule(100)).unwrap();
        let reading = episodes.measure(&finished(&[20.0]), &[], rule(100)).unwrap();
        assert_eq!(reading.mean(), 35.0, "(50 + 20) / 2");
        assert_eq!(episodes.mean(|e| e.cost), Some(35.0));
    }

    #[test]
    fn the_window_drops_the_oldest_episode() {
        let mut episodes = EpisodeWindow::default();
        assert_eq!(episodes.mean(|e| e.cost), None);
        let costs: Vec<f64> = (0..WINDOW as u32 + 50).map(f64::from).collect();
        episodes.measure(&finished(&costs), &[], rule(0)).unwrap();
        assert_eq!(episodes.mean(|e| e.cost), Some(99.5)); // 50 ..= 149
    }
}
