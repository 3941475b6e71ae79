//! NaN, infinite and huge numbers in observations, rewards and costs. A huge number is finite; it overflows later, in the
//! advantages or in a gradient.
//!
//! The run must stop with an error that says so, or stay finite to its end. Its last checkpoint must be intact:
//! resumed with a healthy environment, it ends like a run that was always healthy.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::AtomicBool;

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
        let algo = &algos[attack.tried as usize % algos.len()];
        let result = once(lab, algo).map_err(|e| format!("{algo}: {e}"));
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

/// Whether all numbers of the record are finite, and the checkpoint can be loaded.
fn finite(dir: &Path) -> Result<(), String> {
    checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(dir.join("progress.csv")).map_err(|e| e.to_string())?;
    let cells = text.lines().skip(1).flat_map(|line| line.split(','));
    let bad = cells.filter(|cell| !cell.is_empty() && !cell.parse::<f64>().is_ok_and(f64::is_finite)).count();
    if bad == 0 { Ok(()) } else { Err(format!("{bad} cells are not finite, but the run reported no error")) }
}
