//! `epo work`

use std::path::PathBuf;

use anyhow::Context;
use epo_lab::engine::EngineError;
use epo_lab::engine::task::{TaskFolder, WorkOptions};
use epo_lab::sweep::RunOutcome;

use crate::exit::Code;
use crate::output;

/// Arguments of `epo work`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of the tasks, such as DIR/slurm/0001
    tasks: PathBuf,
    /// Number of the task, from 0; `check` only checks that this machine can make the runs
    #[arg(long, value_parser = task)]
    task: TaskArg,
    /// Number of cores, which the runs of the task share [default: SLURM_CPUS_PER_TASK, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    cpus: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskArg {
    Number(usize),
    Check,
}

fn task(text: &str) -> Result<TaskArg, String> {
    match text {
        "check" => Ok(TaskArg::Check),
        _ => text
            .parse()
            .map(TaskArg::Number)
            .map_err(|_| format!("`{text}` is not a task: write a number or `check`")),
    }
}

/// Makes the runs of one task.
pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let variable = |name: &str| std::env::var(name).ok();
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    let named = variable("EPO_NODE").or_else(|| variable("SLURMD_NODENAME"));
    let node = named.or_else(|| host().ok()).unwrap_or_else(|| "unknown".into());
    let folder = TaskFolder(args.tasks.clone());
    let number = match args.task {
        TaskArg::Check => {
            let first = folder.task(0).map_err(EngineError::from);
            folder.check(&first.unwrap_or_default(), &node)?;
            std::fs::write(args.tasks.join("checked"), &node)
                .with_context(|| format!("cannot write to {}", args.tasks.display()))?;
            output::print(&format!("node {node} can make the runs"))?;
            return Ok(Code::Done);
        }
        TaskArg::Number(number) => number,
    };
    let given = variable("SLURM_CPUS_PER_TASK").and_then(|text| text.parse().ok());
    let cpus = args.cpus.map(usize::from).or(given).unwrap_or(1);
    let program = output::program_command().context("cannot find this program")?;
    let stop = epo_lab::stop::on_signals().context("cannot listen for signals")?;
    let options = WorkOptions { cpus, node: node.clone(), program };
    let outcomes = folder.work(number, &options, &stop, &mut |_| {});
    if let Err(EngineError::Unavailable(why)) = &outcomes {
        // later submissions avoid this node
        let bad = args.tasks.join("../bad-nodes");
        // renamed when complete: the program that waits for the tasks reads every file of the folder
        let unfinished = args.tasks.join(format!("../bad-node-{}", std::process::id()));
        let _ = std::fs::create_dir_all(&bad)
            .and_then(|()| std::fs::write(&unfinished, why))
            .and_then(|()| std::fs::rename(&unfinished, bad.join(&node)));
    }
    let outcomes = outcomes?;
    let count = |wanted: fn(&RunOutcome) -> bool| outcomes.iter().filter(|outcome| wanted(outcome)).count();
    let done = count(|outcome| matches!(outcome, RunOutcome::Done(_)));
    let failed = count(|outcome| matches!(outcome, RunOutcome::Failed(..)));
    output::print(&format!("task {number} on {node}: {done} of {} done, {failed} failed", outcomes.len()))?;
    Ok(match (outcomes.len() - done - failed, failed) {
        (0, 0) => Code::Done,
        (0, _) => Code::Failed,
        _ => Code::Interrupted,
    })
}
