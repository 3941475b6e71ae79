//! Finished episodes, and the cost reading of an epoch (the verb *measure* of the training loop).
//!
//! ```text
//! J_c = mean cost of the episodes that finished in this epoch; earlier ones are added until there are `cost_window`
//!     | if no episode has finished yet: Σ cost so far / Σ steps so far · longest episode   (running episodes, extrapolated)
//! ```
//! OmniSafe always reads the mean of the last 100 episodes, which is NaN if an epoch finishes none. Episode costs have
//! heavy tails: their standard deviation is about their mean, so the mean of 32 episodes (an epoch of 32,000 steps) is
//! uncertain by a fifth. A longer window is steadier and lags behind. The columns `Metrics/EpRet`, `EpCost` and `EpLen`
//! keep OmniSafe's meaning.

use std::collections::VecDeque;

use epo_algos::UpdateError;
use epo_core::CostReading;
use serde::{Deserialize, Serialize};

/// Number of finished episodes behind the columns `Metrics/Ep…`.
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

/// A finished episode and where it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedEpisode {
    /// Environment steps of the run when the episode ended.
    pub step: u64,
    /// Number of the environment.
    pub env: u32,
    /// Return, cost and length.
    pub episode: Episode,
}

/// How the cost of an epoch is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRule {
    /// Minimum number of finished episodes behind the reading; see `train.cost_window`.
    pub window: usize,
    /// Length of the longest episode, in steps.
    pub max_steps: usize,
    /// Limit d.
    pub limit: f64,
}

/// The last [`WINDOW`] finished episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeWindow {
    window: VecDeque<Episode>,
}

impl EpisodeWindow {
    /// Reads the cost of an epoch, then adds its finished episodes to the window.
    ///
    /// The reading is the mean over at least `rule.window` episodes, those that `finished` in this epoch first. If no
    /// episode has finished yet, it is extrapolated from the `running` ones.
    ///
    /// # Errors
    /// If a cost is not finite, which [`epo_core::Slot::step`] does not let through.
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
        let (mean, spread) = mean_and_std(older.chain(finished.iter().map(|f| &f.episode)).map(|e| e.cost))
            .unwrap_or_else(|| extrapolate(running, rule.max_steps));
        CostReading::with_spread(mean, rule.limit, spread)
    }

    /// Returns the mean of a quantity over the window; `None` before the first episode has finished.
    pub fn mean(&self, of: impl Fn(&Episode) -> f64 + Copy) -> Option<f64> {
        mean_and_std(self.window.iter().map(of)).map(|(mean, _)| mean)
    }
}

/// Mean and standard deviation of the episode costs that the running episodes would have at full length; 0 if there are
/// none.
fn extrapolate(running: &[Episode], max_steps: usize) -> (f64, f64) {
    let begun = || running.iter().filter(|e| e.len > 0);
    let steps: u64 = begun().map(|e| e.len).sum();
    let cost: f64 = begun().map(|e| e.cost).sum();
    let spread = mean_and_std(begun().map(|e| e.cost / e.len as f64 * max_steps as f64));
    (cost / steps.max(1) as f64 * max_steps as f64, spread.map_or(0.0, |(_, std)| std))
}

/// Mean and standard deviation (divided by n) of some numbers; `None` if there are none.
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
    fn the_epoch_then_the_window_then_the_running_episodes() {
        let mut episodes = EpisodeWindow::default();
        let running = [episode(3.0, 10), episode(0.0, 20), episode(0.0, 0)];
        // nothing has ever finished: 3 per 30 steps, 100 for an episode of 1000
        let reading = episodes.measure(&[], &running, rule(0)).unwrap();
        assert!(
            (reading.mean() - 100.0).abs() < 1e-12 && (reading.spread() - 150.0).abs() < 1e-12,
            "{reading:?}"
        );
        // nor even begun
        assert_eq!(episodes.measure(&[], &[], rule(0)).unwrap().mean(), 0.0);
        // an epoch with two finished episodes: those only
        episodes.measure(&finished(&[50.0]), &[], rule(0)).unwrap();
        let now = finished(&[10.0, 30.0]);
        let reading = |episodes: &EpisodeWindow, now: &[FinishedEpisode], window| {
            episodes.clone().measure(now, &running, rule(window)).unwrap()
        };
        let read = reading(&episodes, &now, 0);
        assert_eq!((read.mean(), read.spread(), read.limit()), (20.0, 10.0, 25.0));
        // those and so many older ones that there are three, or as many as there are
        for window in [3, 100] {
            assert_eq!(reading(&episodes, &now, window).mean(), 30.0, "window {window}");
        }
        assert_eq!(reading(&episodes, &now, 2).mean(), 20.0);
        // an epoch with none: the window
        assert_eq!(reading(&episodes, &[], 0).mean(), 50.0);
    }

    /// Kills: a reading that counts the episodes of its own epoch twice, because the window has them already.
    #[test]
    fn measuring_adds_the_episodes_to_the_window_after_it_has_read_it() {
        let mut episodes = EpisodeWindow::default();
        episodes.measure(&finished(&[50.0]), &[], rule(100)).unwrap();
        let reading = episodes.measure(&finished(&[20.0]), &[], rule(100)).unwrap();
        assert_eq!(reading.mean(), 35.0, "(50 + 20) / 2");
        assert_eq!(episodes.mean(|e| e.cost), Some(35.0));
    }

    #[test]
    fn the_window_forgets_the_oldest() {
        let mut episodes = EpisodeWindow::default();
        assert_eq!(episodes.mean(|e| e.cost), None);
        let costs: Vec<f64> = (0..WINDOW as u32 + 50).map(f64::from).collect();
        episodes.measure(&finished(&costs), &[], rule(0)).unwrap();
        assert_eq!(episodes.mean(|e| e.cost), Some(99.5)); // 50 ..= 149
    }
}
