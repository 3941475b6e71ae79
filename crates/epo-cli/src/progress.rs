//! Progress of a run on stderr: a bar on a terminal, a plain line per epoch otherwise.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epo_core::Metric;
use epo_lab::config::ResolvedRun;
use epo_lab::record::{Row, metrics, value};
use indicatif::{ProgressBar, ProgressStyle};

/// Where progress goes.
#[derive(Debug)]
pub(crate) struct Progress {
    to: To,
    steps: u64,
    limit: f64,
    /// Metrics of the algorithm that a line shows, each with its symbol.
    headlines: &'static [(&'static str, Metric)],
    told: bool,
}

#[derive(Debug)]
enum To {
    Nowhere,
    Lines,
    Bar(ProgressBar),
}

impl Progress {
    /// Progress of a run that has made `done` steps. `NO_COLOR` keeps the bar and removes its colours.
    pub(crate) fn new(run: &ResolvedRun, done: u64, quiet: bool) -> Self {
        let steps = run.total_steps();
        let to = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => To::Nowhere,
            (_, false) => To::Lines,
            _ => {
                let bar = ProgressBar::new(steps);
                let template = match std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) {
                    true => "{bar:24} {percent:>3}% {eta:>4} {msg}",
                    false => "{bar:24.cyan/blue} {percent:>3}% {eta:>4} {msg}",
                };
                bar.set_style(
                    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
                );
                bar.set_position(done);
                bar.reset_eta();
                To::Bar(bar)
            }
        };
        Self { to, steps, limit: run.run.limit, headlines: run.algo.info().headlines, told: false }
    }

    /// A line beside the bar.
    pub(crate) fn note(&self, text: &str) {
        match &self.to {
            To::Nowhere => {}
            To::Lines => tell!("{text}"),
            To::Bar(bar) => bar.suspend(|| tell!("{text}")),
        }
    }

    /// A line that is told whatever was asked for.
    pub(crate) fn warn(&self, text: &str) {
        match &self.to {
            To::Nowhere => tell!("{text}"),
            _ => self.note(text),
        }
    }

    /// Shows an epoch.
    pub(crate) fn row(&mut self, row: &Row, stop: &AtomicBool) {
        if stop.load(Relaxed) && !std::mem::replace(&mut self.told, true) {
            self.note("stopping after this epoch");
        }
        let done = value(row, metrics::STEPS).unwrap_or(0.0) as u64;
        match &self.to {
            To::Nowhere => {}
            To::Lines => tell!("{done}/{} {}", self.steps, self.summary(row)),
            To::Bar(bar) => {
                bar.set_message(self.summary(row));
                bar.set_position(done);
            }
        }
    }

    /// Leaves the last state on the screen.
    pub(crate) fn finish(&self) {
        if let To::Bar(bar) = &self.to {
            bar.abandon();
        }
    }

    /// `6420 steps/s  return 12.3  cost 30.1/25  α 0.5000  μ 8.2000`
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
