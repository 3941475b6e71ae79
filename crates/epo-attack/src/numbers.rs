//! NaN, infinite and huge numbers in observations, rewards, costs and gradients. A huge number is finite; it overflows
//! later, in the advantages or in a gradient. For gradients, one parameter of a network is made huge: then its outputs or
//! its gradients are not finite.
//!
//! The run must stop with an error that says so, or stay finite to its end. Its last checkpoint must be intact:
//! resumed with a healthy environment, it ends like a run that was always healthy. If a parameter is huge, the checkpoint
//! must still be accepted.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epo_lab::config::algorithms;
use epo_lab::train::{ResumeOptions, Trainer};
use epo_lab::{LabError, checkpoint};

use crate::lab::{Attack, Budget, Lab, left, same, small_run, walk};
use crate::walk::{self, Fault};

const NUMBERS: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 1e38];

pub(crate) fn attack(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let algos: Vec<String> = algorithms().iter().map(|algo| algo.name().to_owned()).collect();
    while budget.more(attack.tried) {
        let algo = &algos[attack.tried as usize / 4 % algos.len()];
        let result = match attack.tried % 4 {
            3 => huge_parameter(lab, algo),
            _ => once(lab, algo),
        };
        let result = result.map_err(|e| format!("{algo}: {e}"));
        attack.count(result);
    }
    attack
}

fn once(lab: &mut Lab, algo: &str) -> Result<(), String> {
    let (healthy, sick) = (lab.place(), lab.place());
    let set = format!("run.algo={algo}");
    let run = small_run(&[&set]).map_err(|e| e.to_string())?;
    let number = NUMBERS[lab.random.below(NUMBERS.len())];
    let fault = [Fault::Observation, Fault::Reward, Fault::Cost][lab.random.below(3)](number);
    let at = 1 + lab.random.below(180) as u64;
    let made = Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        let fault = (made.get() == 2).then_some((at, fault)); // one of the two environments of the training
        Ok(walk::walk(fault))
    };
    let train = |dir: &Path| Trainer::create(dir, run.clone(), &make)?.train(&AtomicBool::new(false), |_| ());
    let name = format!("{fault:?} in step {at}");
    let result = match train(&sick) {
        Err(error) if error.is_not_finite() => {
            let resumed = |dir: &Path| -> Result<(), LabError> {
                Trainer::create(&healthy, run.clone(), &walk)?.train(&AtomicBool::new(false), |_| ())?;
                Trainer::resume(dir, ResumeOptions::default(), &walk)?
                    .train(&AtomicBool::new(false), |_| ())?;
                Ok(())
            };
            match resumed(&sick) {
                // a finite number of an earlier epoch is in the checkpoint, and the run stops at the same place again
                Err(error) if number.is_finite() && error.is_not_finite() => Ok(()),
                result => result.map_err(|e| e.to_string()).and_then(|()| same(&sick, &left(&healthy)?)),
            }
        }
        Err(error) => Err(format!("another error: {error}")),
        Ok(_) if !number.is_finite() => Err("the number was not noticed".into()),
        Ok(_) => finite(&sick),
    };
    for dir in [healthy, sick] {
        let _ = std::fs::remove_dir_all(dir);
    }
    result.map_err(|e| format!("{name}: {e}"))
}

/// Resumes a run after one parameter of its policy or critics was made huge in its checkpoint, with correct hashes.
fn huge_parameter(lab: &mut Lab, algo: &str) -> Result<(), String> {
    let dir = lab.place();
    let set = format!("run.algo={algo}");
    let (stop, mut epochs) = (AtomicBool::new(false), 0);
    let run = small_run(&[&set]).map_err(|e| e.to_string())?;
    let trained = Trainer::create(&dir, run, &walk).and_then(|mut trainer| {
        trainer.train(&stop, |_| {
            epochs += 1;
            stop.store(epochs == 3, Relaxed);
        })
    });
    trained.map_err(|e| e.to_string())?;
    let root = dir.join("checkpoint");
    let mut loaded = checkpoint::load(&root, |_, _| Ok(())).map_err(|e| e.to_string())?;
    let name = loaded.files.get_mut("tensors.safetensors").and_then(|tensors| enlarge(lab, tensors));
    let name = name.ok_or("the checkpoint has no parameters")?;
    std::fs::remove_dir_all(&root).and_then(|()| std::fs::create_dir(&root)).map_err(|e| e.to_string())?;
    checkpoint::save(&root, loaded.number, &loaded.files, loaded.covered.as_ref())
        .map_err(|e| e.to_string())?;
    let resume = || Trainer::resume(&dir, ResumeOptions::default(), &walk);
    let trained = resume().and_then(|mut trainer| trainer.train(&AtomicBool::new(false), |_| ()));
    let result = match trained {
        Err(error) if error.is_not_finite() => {
            resume().map(drop).map_err(|e| format!("the checkpoint is lost: {e}"))
        }
        Err(error) => Err(format!("another error: {error}")),
        Ok(_) => finite(&dir),
    };
    let _ = std::fs::remove_dir_all(&dir);
    result.map_err(|e| format!("a huge number in {name}: {e}"))
}

/// Sets one parameter of a policy or critic to 3e38, which is almost the largest number of its type. Returns its name.
fn enlarge(lab: &mut Lab, tensors: &mut [u8]) -> Option<String> {
    let length = u64::from_le_bytes(tensors.get(..8)?.try_into().ok()?) as usize;
    let header: serde_json::Value = serde_json::from_slice(tensors.get(8..8 + length)?).ok()?;
    let is_parameter =
        |name: &str| (name.starts_with("policy.") || name.starts_with("critic_")) && !name.contains(".adam.");
    let all: Vec<_> = header.as_object()?.iter().filter(|(name, _)| is_parameter(name)).collect();
    let (name, about) = all[lab.random.below(all.len())];
    let offset = |i: usize| about["data_offsets"][i].as_u64().map(|at| at as usize);
    let (begin, end) = (offset(0)?, offset(1)?);
    let at = 8 + length + begin + 4 * lab.random.below((end - begin) / 4);
    tensors.get_mut(at..at + 4)?.copy_from_slice(&3e38_f32.to_le_bytes());
    Some(name.clone())
}

/// Whether all numbers of the record are finite, and the checkpoint can be loaded.
fn finite(dir: &Path) -> Result<(), String> {
    checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(dir.join("progress.csv")).map_err(|e| e.to_string())?;
    let cells = text.lines().skip(1).flat_map(|line| line.split(','));
    let bad = cells.filter(|cell| !cell.is_empty() && !cell.parse::<f64>().is_ok_and(f64::is_finite)).count();
    if bad == 0 { Ok(()) } else { Err(format!("{bad} cells are not finite, but the run reported no error")) }
}
