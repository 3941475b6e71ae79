//! `epo tasks`

use epo_tasks::Physics;
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
struct Row {
    id: &'static str,
    obs: usize,
    act: usize,
    max_steps: usize,
    reward: &'static str,
    cost: &'static str,
    physics: [Physics; 2],
}

/// Lists the tasks.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let rows: Vec<Row> = epo_tasks::tasks()
        .iter()
        .map(|t| Row {
            id: &t.id,
            obs: t.obs_len,
            act: t.act_len,
            max_steps: t.max_steps,
            reward: t.reward,
            cost: t.cost,
            physics: Physics::ALL,
        })
        .collect();
    if args.json {
        print(&serde_json::to_string_pretty(&rows)?)?;
        return Ok(Code::Done);
    }
    let width = |column: fn(&Row) -> usize| rows.iter().map(column).max().unwrap_or(0);
    let (id_width, reward_width) = (width(|r| r.id.len()), width(|r| r.reward.len()));
    let mut text = format!("{:<id_width$}  obs  act  steps  {:<reward_width$}  cost", "id", "reward");
    for Row { id, obs, act, max_steps, reward, cost, .. } in &rows {
        text += &format!(
            "\n{id:<id_width$}  {obs:>3}  {act:>3}  {max_steps:>5}  {reward:<reward_width$}  {cost}"
        );
    }
    text += "\n\nEvery task can be simulated in two ways (--physics): `published`, as in Safety-Gymnasium, or `fast`,\n\
             where vases and boxes at rest sleep. `epo bench physics` compares the two.";
    print(&text)?;
    Ok(Code::Done)
}
