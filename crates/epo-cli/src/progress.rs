//! Shows the progress of a run on stderr: a bar on a terminal, otherwise one plain line per epoch.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use epo_core::Metric;
use epo_lab::config::ResolvedRun;
use epo_lab::evaluate::Watch;
use epo_lab::record::{Row, metrics, value};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::duration;

/// Progress of one run.
#[derive(Debug)]
pub(crate) struct Progress {
    target: Target,
    /// Number of environment steps of the whole run.
    steps: u64,
    limit: f64,
    /// Metrics of the algorithm that are shown, each with its symbol.
    headlines: &'static [(&'static str, Metric)],
    /// Whether the message that the run is stopping was printed.
    stop_printed: bool,
    /// Total steps and total seconds after each of the last epochs.
    recent: VecDeque<(u64, f64)>,
}

/// Number of epochs from which the remaining time is estimated.
const RECENT: usize = 20;

#[derive(Debug)]
enum Target {
    Nowhere,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// Returns the progress display of a run that has made `done` steps. `NO_COLOR` removes the colours of the bar.
    pub(crate) fn new(run: &ResolvedRun, done: u64, quiet: bool) -> Self {
        let steps = run.total_steps();
        let target = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Target::Nowhere,
            (_, false) => Target::Lines,
            _ => {
                let bar = ProgressBar::new(steps);
                let template = match std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) {
                    true => "{bar:24} {percent:>3}% {msg}",
                    false => "{bar:24.cyan/blue} {percent:>3}% {msg}",
                };
                bar.set_style(
                    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                bar.set_position(done);
                Target::Bar(bar)
            }
        };
        let (limit, headlines) = (run.run.limit, run.algo.info().headlines);
        Self { target, steps, limit, headlines, stop_printed: false, recent: VecDeque::new() }
    }

    /// Prints a line above the bar, unless `--quiet` is given.
    pub(crate) fn note(&self, text: &str) {
        match &self.target {
            Target::Nowhere => {}
            Target::Lines => tell!("{text}"),
            Target::Bar(bar) => bar.suspend(|| tell!("{text}")),
        }
    }

    /// Prints a line even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        match &self.target {
            Target::Nowhere => tell!("{text}"),
            _ => self.note(text),
        }
    }

    /// Shows the metrics of an epoch.
    pub(crate) fn row(&mut self, row: &Row, stop: &AtomicBool) {
        if stop.load(Relaxed) && !std::mem::replace(&mut self.stop_printed, true) {
            self.note("stopping after this epoch");
        }
        let done = value(row, metrics::STEPS).unwrap_or(0.0) as u64;
        let left = self.remaining(done, value(row, metrics::TIME_TOTAL).unwrap_or(0.0));
        match &self.target {
            Target::Nowhere => {}
            Target::Lines => tell!("{done}/{} {}", self.steps, self.summary(row)),
            Target::Bar(bar) => {
                let left = left.map_or(String::new(), |s| format!("{} left  ", duration(s)));
                bar.set_message(left + &self.summary(row));
                bar.set_position(done);
            }
        }
    }

    /// Returns the seconds left at the mean speed of the last [`RECENT`] epochs; `None` until two epochs are done.
    fn remaining(&mut self, done: u64, elapsed: f64) -> Option<f64> {
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((done, elapsed));
        let (first, began) = *self.recent.front()?;
        let per_step = (elapsed - began) / done.checked_sub(first).filter(|&n| n > 0)? as f64;
        Some(per_step * self.steps.saturating_sub(done) as f64)
    }

    /// Ends the display and leaves its last state on the screen.
    pub(crate) fn finish(&self) {
        if let Target::Bar(bar) = &self.target {
            bar.abandon();
        }
    }

    /// Returns the metrics of an epoch as text, such as `6420 steps/s  return 12.3  cost 30.1/25  α 0.5000  μ 8.2000`
    fn summary(&self, row: &Row) -> String {
        let number = |metric, digits: usize| match value(row, metric) {
            Some(x) => format!("{x:.digits$}"),
            None => "–".to_owned(),
        };
        let (ret, cost) = (number(metrics::EP_RET, 2), number(metrics::EP_COST, 1));
        let mut text =
            format!("{} steps/s  return {ret}  cost {cost}/{}", number(metrics::FPS, 0), self.limit);
        for (symbol, metric) in self.headlines {
            text += &format!("  {symbol} {}", number(*metric, 4));
        }
        text
    }
}

/// Does some work and shows a bar of the episodes that it has played, if stderr is a terminal.
pub(crate) fn with_bar<T>(episodes: usize, quiet: bool, watch: &Watch, work: impl FnOnce() -> T) -> T {
    if quiet || !std::io::stderr().is_terminal() {
        return work();
    }
    /// Ends the thread that draws, even if the work panics.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} episodes");
    let bar = ProgressBar::new(episodes as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                bar.set_position(watch.played.load(Relaxed) as u64);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let _done = Done(&done);
        work()
    });
    bar.finish_and_clear();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if the estimate uses only the last epoch, or the whole run.
    #[test]
    fn the_remaining_time_is_that_of_the_last_epochs() {
        let run = ResolvedRun::from_layers(None, &["run.steps=1e6".to_owned()]).unwrap();
        let mut progress = Progress::new(&run, 0, true);
        assert_eq!(progress.remaining(10_000, 100.0), None, "one epoch gives no estimate");
        // 1 s per epoch from here on; the last one takes 3 s
        let left: Vec<_> =
            (1..=30).map(|k| progress.remaining(10_000 + 10_000 * k, 100.0 + k as f64)).collect();
        let after = 1_000_000.0 - 310_000.0;
        assert!((left[29].unwrap() - after / 10_000.0).abs() < 1e-9, "{left:?}");
        let slow = progress.remaining(320_000, 133.0).unwrap();
        assert!((slow - 680_000.0 * 22.0 / 200_000.0).abs() < 1e-9, "20 epochs took 22 s: {slow}");
    }
}
