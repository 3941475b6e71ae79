//! Finished episodes, and the cost reading that is taken from them.
//!
//! ```text
//! J_c = mean cost of the episodes that finished in this epoch, and of so many before them that there are `cost_window`
//!     | if there are none: Σ cost so far / Σ steps so far · longest episode      (running episodes, extrapolated)
//! ```
//! OmniSafe reads the mean of the last 100 episodes always, and NaN if an epoch finishes none. Episode costs have heavy
//! tails: their deviation is about their mean, so the mean of 32 (an epoch of 32,000 steps) is uncertain by a fifth. A
//! longer window is steadier and lags. The columns `Metrics/EpRet`, `EpCost` and `EpLen` keep OmniSafe's meaning.

use std::collections::VecDeque;

use epo_core::CostReading;
use serde::{Deserialize, Serialize};

/// How many finished episodes the `Metrics/Ep…` columns look back on.
pub const WINDOW: usize = 100;

/// Sums over an episode, finished or running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Sum of the rewards.
    pub ret: f64,
    /// Sum of the costs.
    pub cost: f64,
    /// Steps.
    pub len: u64,
}

impl Episode {
    /// Takes one step in.
    pub fn add(&mut self, reward: f64, cost: f64) {
        self.ret += reward;
        self.cost += cost;
        self.len += 1;
    }
}

/// The last [`WINDOW`] finished episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episodes {
    window: VecDeque<Episode>,
}

impl Episodes {
    /// Takes in the episodes that an epoch finished, in order.
    pub fn extend(&mut self, finished: impl IntoIterator<Item = Episode>) {
        for episode in finished {
            if self.window.len() == WINDOW {
                self.window.pop_front();
            }
            self.window.push_back(episode);
        }
    }

    /// Mean of a quantity over the window; `None` before the first episode has finished.
    pub fn mean(&self, of: impl Fn(&Episode) -> f64 + Copy) -> Option<f64> {
        mean_and_std(self.window.iter().map(of)).map(|(mean, _)| mean)
    }

    /// The cost reading of an epoch: over at least `window` episodes, those that `finished` in it first; failing any, from
    /// the episodes that are `running`, none longer than `max_steps`.
    ///
    /// `None` only if a cost is not finite, which [`epo_core::Slot::step`] does not let through.
    pub fn measure(
        &self,
        finished: &[Episode],
        running: &[Episode],
        window: usize,
        max_steps: usize,
        limit: f64,
    ) -> Option<CostReading> {
        let older = window.max(1).saturating_sub(finished.len()).min(self.window.len());
        let older = self.window.range(self.window.len() - older..);
        let (mean, spread) = mean_and_std(older.chain(finished).map(|e| e.cost))
            .unwrap_or_else(|| extrapolate(running, max_steps));
        CostReading::with_spread(mean, limit, spread)
    }
}

/// Mean and spread of the whole-episode costs that the running episodes promise; 0 if there are none.
fn extrapolate(running: &[Episode], max_steps: usize) -> (f64, f64) {
    let begun = || running.iter().filter(|e| e.len > 0);
    let steps: u64 = begun().map(|e| e.len).sum();
    let cost: f64 = begun().map(|e| e.cost).sum();
    let spread = mean_and_std(begun().map(|e| e.cost / e.len as f64 * max_steps as f64));
    (cost / steps.max(1) as f64 * max_steps as f64, spread.map_or(0.0, |(_, std)| std))
}

/// Mean and standard deviation (over n) of some numbers, `None` if there are none.
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

    #[test]
    fn the_epoch_then_the_window_then_the_running_episodes() {
        let mut episodes = Episodes::default();
        let running = [episode(3.0, 10), episode(0.0, 20), episode(0.0, 0)];
        // nothing has ever finished: 3 per 30 steps, 100 for an episode of 1000
        let reading = episodes.measure(&[], &running, 0, 1000, 25.0).unwrap();
        assert!(
            (reading.mean() - 100.0).abs() < 1e-12 && (reading.spread() - 150.0).abs() < 1e-12,
            "{reading:?}"
        );
        // nor even begun
        assert_eq!(episodes.measure(&[], &[], 0, 1000, 25.0).unwrap().mean(), 0.0);
        // an epoch with two finished episodes: those only
        episodes.extend([episode(50.0, 1000)]);
        let now = [episode(10.0, 1000), episode(30.0, 1000)];
        let reading = episodes.measure(&now, &running, 0, 1000, 25.0).unwrap();
        assert_eq!((reading.mean(), reading.spread(), reading.limit()), (20.0, 10.0, 25.0));
        // those and so many older ones that there are three, or as many as there are
        for window in [3, 100] {
            let reading = episodes.measure(&now, &running, window, 1000, 25.0).unwrap();
            assert_eq!(reading.mean(), 30.0, "window {window}");
        }
        assert_eq!(episodes.measure(&now, &running, 2, 1000, 25.0).unwrap().mean(), 20.0);
        // an epoch with none: the window
        assert_eq!(episodes.measure(&[], &running, 0, 1000, 25.0).unwrap().mean(), 50.0);
    }

    #[test]
    fn the_window_forgets_the_oldest() {
        let mut episodes = Episodes::default();
        assert_eq!(episodes.mean(|e| e.cost), None);
        episodes.extend((0..WINDOW as u64 + 50).map(|i| episode(i as f64, 1)));
        assert_eq!(episodes.mean(|e| e.cost), Some(99.5)); // 50 ..= 149
    }
}
