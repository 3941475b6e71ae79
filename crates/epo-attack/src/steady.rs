//! Properties that must stay constant: the results for any number of threads, the memory and the
//! open files over time, and the memory of the C library under valgrind.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

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

/// Interval of the samples of memory and open files.
const MINUTE: Duration = Duration::from_secs(60);

/// One long run in this process. After its first part, memory may not grow by more than 4 MB, and the number of open
/// files not at all. An attempt is a part of the run. Memory and files are printed every minute.
pub(crate) fn leaks(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let dir = lab.place();
    let parts = budget.most.max(1);
    let slot = budget.left() / (parts as u32 + 1);
    let epochs_at_least = 20;
    let make = epo_lab::runs::task_maker("SafetyPointGoal1-v0", Physics::Fast);
    let run = small_run(&[
        "run.task=SafetyPointGoal1-v0",
        "run.physics=fast",
        "run.steps=1e9",
        "train.eval_every=50",
        "train.eval_episodes=1",
    ]);
    let (make, run) = match (make, run) {
        (Ok(make), Ok(run)) => (make, run),
        (Err(e), _) | (_, Err(e)) => {
            attack.count(Err(e.to_string()));
            return attack;
        }
    };
    let mut trainer = match Trainer::create(&dir, run, &make) {
        Ok(trainer) => trainer,
        Err(e) => {
            attack.count(Err(e.to_string()));
            return attack;
        }
    };
    let start = Instant::now();
    let (mut samples, mut epochs, mut next) = (Samples::default(), 0_u64, MINUTE);
    let mut train_for = |attack: &mut Attack, samples: &mut Samples| {
        let (stop, begun, first) = (AtomicBool::new(false), Instant::now(), epochs);
        let trained = trainer.train(&stop, |_| {
            epochs += 1;
            stop.store(epochs - first >= epochs_at_least && begun.elapsed() > slot, Relaxed);
            if start.elapsed() >= next {
                next += MINUTE;
                samples.take(start.elapsed(), epochs);
            }
        });
        if let Err(e) = trained {
            attack.count(Err(e.to_string()));
        }
        usage()
    };
    let base = train_for(&mut attack, &mut samples);
    samples.0.clear(); // memory may grow in the first part
    for _ in 0..parts {
        let now = train_for(&mut attack, &mut samples);
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
    attack.note =
        Some(format!("{epochs} epochs in {:.0} s{}", start.elapsed().as_secs_f64(), samples.summary()));
    drop(trainer);
    let _ = std::fs::remove_dir_all(&dir);
    attack
}

/// Hours since the start, memory in kB and number of open files, once a minute.
#[derive(Debug, Default)]
struct Samples(Vec<(f64, u64, usize)>);

impl Samples {
    fn take(&mut self, time: Duration, epochs: u64) {
        if let Some((memory, files)) = usage() {
            let hours = time.as_secs_f64() / 3600.0;
            eprintln!("{:.1} min, {epochs} epochs: memory {memory} kB, open files {files}", 60.0 * hours);
            self.0.push((hours, memory, files));
        }
    }

    /// Largest memory, largest number of open files, and the slope of the memory by least squares.
    fn summary(&self) -> String {
        let Some((memory, files)) = self.0.iter().map(|s| s.1).max().zip(self.0.iter().map(|s| s.2).max())
        else {
            return String::new();
        };
        let n = self.0.len() as f64;
        let mean = |f: &dyn Fn(&(f64, u64, usize)) -> f64| self.0.iter().map(f).sum::<f64>() / n;
        let (time, level) = (mean(&|s| s.0), mean(&|s| s.1 as f64));
        let slope = mean(&|s| (s.0 - time) * (s.1 as f64 - level)) / mean(&|s| (s.0 - time).powi(2));
        format!(
            "; after the first part: memory at most {memory} kB with a slope of {slope:.0} kB per hour, open files at most {files}"
        )
    }
}

/// Memory of this process in kB, and its number of open files.
fn usage() -> Option<(u64, usize)> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let files = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some((line.split_whitespace().nth(1)?.parse().ok()?, files))
}

/// Steps of every task in both simulations under valgrind's memory checker. An attempt is a task in a process of its own.
pub(crate) fn valgrind(_: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let tasks =
        epo_tasks::tasks().into_iter().flat_map(|task| Physics::ALL.map(|physics| (&task.id, physics)));
    for (task, physics) in tasks {
        if !budget.more(attack.tried) {
            break;
        }
        let mut command = std::process::Command::new("valgrind");
        let worker = epo(&[]);
        command.args(["--error-exitcode=9", "--quiet"]).arg(worker.get_program());
        match finish(command.args(["physics-worker", task, physics.name()])) {
            Ok(output) if output.status.success() => attack.count(Ok(())),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                attack.count(Err(format!("{task}, {physics}: {}: {}", output.status, said.trim())));
            }
            Err(e) => {
                attack.note = Some(format!("valgrind: {e}"));
                break;
            }
        }
    }
    attack
}

/// Plays a few steps of a task under valgrind.
pub(crate) fn physics_worker() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(2).collect();
    let [task, physics] = &args[..] else { return ExitCode::from(2) };
    let Ok(physics) = physics.parse::<Physics>() else { return ExitCode::from(2) };
    let played = epo_lab::runs::task_maker(task, physics).and_then(|make| {
        let mut env: Box<dyn Env> = make()?;
        let (mut obs, action) = (vec![0.0; env.spec().obs_len], vec![0.5; env.spec().action.len()]);
        for seed in 1..3 {
            env.reset(seed, &mut obs)?;
            for _ in 0..20 {
                env.step(&action, &mut obs)?;
            }
        }
        Ok(())
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {task}: {e}");
            ExitCode::FAILURE
        }
    }
}
