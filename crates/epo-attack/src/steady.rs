//! Properties that must stay constant: the results for any number of threads, the memory and the
//! open files over time, and the memory of the C library under valgrind.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use epo_core::Env;
use epo_lab::config::algorithms;
use epo_lab::train::Trainer;
use epo_tasks::Physics;

use crate::lab::{Attack, Budget, Lab, Left, epo, finish, left, small_run, walk};

/// Runs of every algorithm with 2, 3, 4 and 8 threads, each compared with the same run on one thread.
pub(crate) fn threads(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let algos: Vec<String> = algorithms().iter().map(|algo| algo.name().to_owned()).collect();
    let mut one: Option<(u64, Result<Left, String>)> = None;
    while budget.more(attack.tried) {
        let (threads, seed) = ([2, 3, 4, 8][attack.tried as usize % 4], attack.tried / 4);
        let algo = &algos[seed as usize % algos.len()];
        let mut train = |threads: u64| -> Result<Left, String> {
            let dir = lab.place();
            let set =
                [format!("run.algo={algo}"), format!("train.threads={threads}"), format!("run.seed={seed}")];
            let run = small_run(&[&set[0], &set[1], &set[2], "train.envs=6"]).map_err(|e| e.to_string())?;
            let mut trainer = Trainer::create(&dir, run, &walk).map_err(|e| e.to_string())?;
            trainer.train(&AtomicBool::new(false), |_| ()).map_err(|e| e.to_string())?;
            let left = left(&dir);
            let _ = std::fs::remove_dir_all(&dir);
            left
        };
        let alone = match one.take() {
            Some((of, left)) if of == seed => left,
            _ => train(1),
        };
        let result = alone.clone().and_then(|alone| match train(threads)? == alone {
            true => Ok(()),
            false => Err(format!("{algo} differs with {threads} threads")),
        });
        one = Some((seed, alone));
        attack.count(result);
    }
    attack
}

/// One long run in this process. After its first third, memory may not grow by more than 4 MB, and the number of open
/// files not at all. An attempt is a part of the run.
pub(crate) fn leaks(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let dir = lab.place();
    let parts = budget.most.max(1);
    let slot = (budget.left() / (parts as u32 + 1)).min(std::time::Duration::from_secs(3600));
    let epochs_at_least = 20;
    let make = epo_lab::runs::task_maker("SafetyPointGoal1-v0", Physics::Fast);
    let run = small_run(&[
        "run.task=SafetyPointGoal1-v0",
        "run.physics=fast",
        "run.steps=1e9",
        "train.eval_every=50",
        "train.eval_episodes=1",
    ]);
    let (Ok(make), Ok(run)) = (make, run) else {
        attack.count(Err("the run cannot be set up".into()));
        return attack;
    };
    let mut trainer = match Trainer::create(&dir, run, &make) {
        Ok(trainer) => trainer,
        Err(e) => {
            attack.count(Err(e.to_string()));
            return attack;
        }
    };
    let mut train_for = |attack: &mut Attack| {
        let (stop, begun, mut epochs) = (AtomicBool::new(false), Instant::now(), 0);
        let trained = trainer.train(&stop, |_| {
            epochs += 1;
            stop.store(epochs >= epochs_at_least && begun.elapsed() > slot, Relaxed);
        });
        if let Err(e) = trained {
            attack.count(Err(e.to_string()));
        }
        usage()
    };
    let base = train_for(&mut attack);
    for _ in 0..parts {
        let now = train_for(&mut attack);
        attack.count(match (base, now) {
            (Some((memory, files)), Some((more, open))) if more > memory + 4096 || open > files => {
                Err(format!("memory {memory} → {more} kB, open files {files} → {open}"))
            }
            (Some(_), Some(_)) => Ok(()),
            _ => Err("/proc/self cannot be read".into()),
        });
        if attack.failed > 0 {
            break;
        }
    }
    drop(trainer);
    let _ = std::fs::remove_dir_all(&dir);
    attack
}

/// Memory of this process in kB, and its number of open files.
fn usage() -> Option<(u64, usize)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let files = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some((line.split_whitespace().nth(1)?.parse().ok()?, files))
}

/// Steps of every family of tasks under valgrind's memory checker.
pub(crate) fn valgrind(_: &mut Lab, _: &Budget) -> Attack {
    let mut attack = Attack::default();
    let mut command = std::process::Command::new("valgrind");
    command.args(["--error-exitcode=9", "--quiet"]).arg(epo(&[]).get_program()).arg("physics-worker");
    match finish(&mut command) {
        Ok(output) if output.status.success() => attack.count(Ok(())),
        Ok(output) => {
            attack.count(Err(format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        Err(_) => attack.note = Some("valgrind is not installed".into()),
    }
    attack
}

/// Plays a few steps of tasks under valgrind.
pub(crate) fn physics_worker() -> ExitCode {
    for task in ["SafetyPointGoal1-v0", "SafetyCarButton1-v0", "SafetyHalfCheetahVelocity-v1"] {
        for physics in [Physics::Published, Physics::Fast] {
            let played = epo_lab::runs::task_maker(task, physics).and_then(|make| {
                let mut env: Box<dyn Env> = make()?;
                let (mut obs, action) = (vec![0.0; env.spec().obs_len], vec![0.5; env.spec().action.len()]);
                env.reset(1, &mut obs)?;
                for _ in 0..20 {
                    env.step(&action, &mut obs)?;
                }
                Ok(())
            });
            if let Err(e) = played {
                eprintln!("error: {task}: {e}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
