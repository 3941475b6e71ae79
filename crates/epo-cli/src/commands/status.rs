//! `epo sweep --status`

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context;
use epo_lab::engine::{Engine, EngineError, Plan};
use epo_lab::sweep::{PlannedState, Status, StatusReader};

use crate::output;

/// Interval at which `--watch` reads the state again.
const LOOK: Duration = Duration::from_secs(2);

/// Prints the state of the runs, once or until all have ended.
pub(crate) fn print(plan: &Plan, engine: &mut dyn Engine, json: bool, watch: bool) -> anyhow::Result<()> {
    let mut reader = StatusReader::open(&plan.dir, &plan.runs).context("the sweep cannot be read")?;
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let mut last = None;
    let (mut asked, mut ends) = (Vec::new(), HashMap::new());
    loop {
        let queue = match engine.queue(plan) {
            // a controller that restarts does not end --watch
            Err(EngineError::Unavailable(why) | EngineError::Refused(why)) if last.is_some() => {
                tell!("{why}");
                pause(&stop);
                if stop.load(Relaxed) {
                    return Ok(());
                }
                continue;
            }
            queue => queue?,
        };
        let mut status = reader.read(&queue).context("the sweep cannot be read")?;
        let pending = status.runs.iter().filter(|run| run.state == PlannedState::Pending);
        let ids: Vec<String> = pending.map(|run| run.id.clone()).collect();
        if ids != asked {
            (asked, ends) = (ids, engine.ended_tasks(plan)?); // not at every look: it is more work for the engine
        }
        for run in status.runs.iter_mut().filter(|run| run.state == PlannedState::Pending) {
            run.message = ends.get(&run.id).cloned();
        }
        if last.as_ref() != Some(&status) {
            if watch && std::io::stdout().is_terminal() && !json {
                output::print("\x1b[2J\x1b[H")?; // clear the screen
            }
            output::print(&if json { serde_json::to_string(&status)? } else { text(&status) })?;
        }
        let ended = status.running + status.queued + status.pending == 0;
        last = Some(status);
        if !watch || ended || stop.load(Relaxed) {
            reader.finish().context("the index of the sweep cannot be written")?;
            return Ok(());
        }
        pause(&stop);
    }
}

fn pause(stop: &std::sync::atomic::AtomicBool) {
    let begun = Instant::now();
    while begun.elapsed() < LOOK && !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Maximum number of runs that the table lists.
const MOST_ROWS: usize = 200;

fn text(status: &Status) -> String {
    let header = ["Run", "State", "Task", "Reason", "Epoch"].map(str::to_owned);
    // runs that need attention come first: failed, running, queued, pending, done
    let order = |state| match state {
        PlannedState::Failed => 0,
        PlannedState::Running => 1,
        PlannedState::Queued => 2,
        PlannedState::Pending => 3,
        PlannedState::Done => 4,
    };
    let mut runs: Vec<_> = status.runs.iter().collect();
    runs.sort_by_key(|run| order(run.state));
    let row = |run: &&epo_lab::sweep::RunStatus| {
        let state = format!("{:?}", run.state).to_lowercase();
        let epoch = format!("{} of {}", run.epoch, run.epochs);
        let reason = run.message.clone().filter(|_| run.state != PlannedState::Failed);
        [run.id.clone(), state, run.engine_id.clone().unwrap_or_default(), reason.unwrap_or_default(), epoch]
    };
    let rows: Vec<_> = [header].into_iter().chain(runs.iter().take(MOST_ROWS).map(row)).collect();
    let mut lines = output::table(&rows, 4);
    if runs.len() > MOST_ROWS {
        lines.push(format!("and {} more runs (--json lists all)", runs.len() - MOST_ROWS));
    }
    for run in runs.iter().filter(|run| run.state == PlannedState::Failed) {
        lines.push(format!("{} failed, {}", run.id, run.message.as_deref().unwrap_or("without a message")));
    }
    lines.push(format!(
        "{} planned: {} done, {} running, {} queued, {} failed, {} pending",
        output::count(status.planned, "run"),
        status.done,
        status.running,
        status.queued,
        status.failed,
        status.pending
    ));
    if status.not_in_plan > 0 {
        lines.push(format!(
            "{} in the queue that the sweep file does not have (was it changed?); --cancel removes all",
            output::count(status.not_in_plan, "further run")
        ));
    }
    lines.extend(status.problems.iter().cloned());
    lines.join("\n")
}
