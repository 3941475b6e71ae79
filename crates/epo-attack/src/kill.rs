//! SIGKILL at random moments. The resumed run must have the results of a run that was never killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use epo_lab::config::algorithms;

use crate::lab::{
    Attack, Budget, Lab, Left, complete, epo, folder, reap, resume, succeed, train, undisturbed,
};
use crate::walk::ID;

/// One to three kills of a run of every algorithm, half of them while a checkpoint is being written.
pub(crate) fn training(lab: &mut Lab, budget: &Budget) -> Attack {
    let algos: Vec<&str> = algorithms().iter().map(|algo| algo.name()).collect();
    attack(lab, budget, &algos, &[ID])
}

/// Kills on the simulated tasks: navigation and velocity.
pub(crate) fn tasks(lab: &mut Lab, budget: &Budget) -> Attack {
    attack(
        lab,
        budget,
        &["epo"],
        &["SafetyPointGoal1-v0", "SafetyHalfCheetahVelocity-v1", "SafetyCarButton1-v0"],
    )
}

fn attack(lab: &mut Lab, budget: &Budget, algos: &[&str], tasks: &[&str]) -> Attack {
    let mut attack = Attack::default();
    let mut known: BTreeMap<(usize, usize), (Left, Duration)> = BTreeMap::new();
    while budget.more(attack.tried) {
        let (a, t) = (attack.tried as usize % algos.len(), attack.tried as usize % tasks.len());
        let (algo, task) = (algos[a], tasks[t]);
        let whole = match known.get(&(a, t)) {
            Some(whole) => Ok(whole.clone()),
            None => undisturbed(&lab.place(), task, algo),
        };
        attack.count(whole.and_then(|whole| {
            known.insert((a, t), whole.clone());
            once(lab, task, algo, &whole)
        }));
    }
    attack
}

fn once(lab: &mut Lab, task: &str, algo: &str, (whole, time): &(Left, Duration)) -> Result<(), String> {
    let runs = lab.place();
    for n in 0..1 + lab.random.below(3) {
        let command = match folder(&runs).filter(|dir| dir.join("config.toml").exists()) {
            Some(dir) => resume(&dir),
            None if n > 0 => break, // killed before there was anything to resume
            None => train(&runs, task, algo),
        };
        let after = time.mul_f64(lab.random.uniform());
        let saves = (lab.random.below(2) == 0).then(|| 1 + lab.random.below(6));
        kill_once(command, &runs, after, saves)?;
    }
    let done = complete(&runs, task, algo, whole);
    let _ = std::fs::remove_dir_all(&runs);
    done.map_err(|e| format!("{algo} on {task}: {e}"))
}

/// Starts a process and kills it after a time, or while it writes its checkpoint number `saves`.
fn kill_once(mut command: Command, runs: &Path, after: Duration, saves: Option<usize>) -> Result<(), String> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let wait = |child: &mut std::process::Child, until: &dyn Fn() -> bool| {
        while !until() && begun.elapsed() < Duration::from_secs(60) {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_micros(50)); // the child may need this processor
        }
    };
    match saves {
        None => std::thread::sleep(after),
        Some(n) => {
            for i in 0..n {
                wait(&mut child, &|| folder(runs).is_some_and(|dir| dir.join("checkpoint/tmp").exists()));
                if i + 1 < n {
                    wait(&mut child, &|| {
                        !folder(runs).is_some_and(|dir| dir.join("checkpoint/tmp").exists())
                    });
                }
            }
        }
    }
    reap(child);
    Ok(())
}

/// Kills of `epo eval`. The evaluations in the folder afterwards must be those of an undisturbed evaluation.
pub(crate) fn evaluation(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let runs = lab.place();
    let eval = |dir: &Path| {
        let mut command = epo(&["eval", "--episodes", "40"]);
        command.arg(dir);
        command
    };
    let prepared = undisturbed(&runs, ID, "epo").and_then(|_| {
        let dir = folder(&runs).ok_or("the run made no folder")?;
        let begun = Instant::now();
        succeed(&mut eval(&dir))?;
        let whole = std::fs::read(dir.join("eval.json")).map_err(|e| e.to_string())?;
        Ok((dir, whole, begun.elapsed()))
    });
    let (dir, whole, time) = match prepared {
        Ok(prepared) => prepared,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    while budget.more(attack.tried) {
        let file = dir.join("eval.json");
        if attack.tried.is_multiple_of(2) {
            let _ = std::fs::remove_file(&file);
        }
        let killed = kill_once(eval(&dir), &runs, time.mul_f64(lab.random.uniform()), None);
        let result = killed.and_then(|()| {
            let intact =
                |data: Vec<u8>| if data == whole { Ok(()) } else { Err("eval.json differs".to_owned()) };
            std::fs::read(&file).map_or(Ok(()), intact)?;
            succeed(&mut eval(&dir))?;
            std::fs::read(&file).map_err(|e| e.to_string()).and_then(intact)
        });
        attack.count(result);
    }
    attack
}
