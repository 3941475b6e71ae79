//! `epo tasks`

use epo_tasks::{Physics, TaskInfo};
use serde::Serialize;

use crate::exit::Code;
use crate::output::print;

/// Arguments of `epo tasks`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TaskEntry {
    id: &'static str,
    obs: usize,
    act: usize,
    max_steps: usize,
    reward: &'static str,
    cost: &'static str,
    /// Speed limit in m/s; only velocity tasks have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_limit: Option<f64>,
    physics: [Physics; 2],
}

/// Lists the tasks.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let row = |task: &'static TaskInfo| TaskEntry {
        id: &task.id,
        obs: task.obs_len,
        act: task.act_len,
        max_steps: task.max_steps,
        reward: &task.reward,
        cost: &task.cost,
        speed_limit: task.speed_limit,
        physics: Physics::ALL,
    };
    let rows: Vec<TaskEntry> = epo_tasks::tasks().into_iter().map(row).collect();
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
        return Ok(Code::Done);
    }
    print(&text(&rows))?;
    Ok(Code::Done)
}

/// Returns one line per task with its sizes and its cost. A line above each group of tasks describes their reward.
fn text(rows: &[TaskEntry]) -> String {
    let width = rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    let mut text = format!("{:<width$}  obs  act  steps  cost", "id");
    let mut last = "";
    for TaskEntry { id, obs, act, max_steps, reward, cost, .. } in rows {
        if *reward != last {
            text += &format!("\n\nReward: {reward}");
            last = reward;
        }
        text += &format!("\n{id:<width$}  {obs:>3}  {act:>3}  {max_steps:>5}  {cost}");
    }
    text += "\n\nEvery task has two physics simulations (--physics): `published` is the one of Safety-Gymnasium;\n\
             `fast` skips vases and boxes that are at rest. `epo bench physics` compares the two.";
    text
}
