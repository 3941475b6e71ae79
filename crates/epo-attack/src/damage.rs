//! Damage to every file of a run folder: single bits, lengths, exchanged and renamed files.
//!
//! The damaged run is resumed. Two results are allowed. The run may be refused, and then nothing in
//! the folder may change. Or it may continue, with a note or, if the damage does not matter,
//! without one. Then its final results must be those of an undamaged run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epo_lab::LabError;
use epo_lab::train::{ResumeOptions, Trainer};

use crate::lab::{self, Attack, Budget, Lab, Left, copy, left, same, small_run, walk};

/// Returns a run that stopped after three of six epochs, and the results that it would have at its end.
pub(crate) fn half(lab: &mut Lab) -> Result<(PathBuf, Left), String> {
    let (dir, whole) = (lab.place(), lab.place());
    let make = || -> Result<(), LabError> {
        Trainer::create(&whole, small_run(&[])?, &walk)?.train(&AtomicBool::new(false), |_| ())?;
        let (stop, mut epochs) = (AtomicBool::new(false), 0);
        Trainer::create(&dir, small_run(&[])?, &walk)?.train(&stop, |_| {
            epochs += 1;
            stop.store(epochs == 3, Relaxed);
        })?;
        Ok(())
    };
    make().map_err(|e| e.to_string())?;
    Ok((dir, left(&whole)?))
}

/// Resumes a damaged folder and judges the result.
fn judge(dir: &Path, whole: &Left) -> Result<(), String> {
    let before = content(dir);
    let resumed = std::panic::catch_unwind(|| {
        let mut trainer = Trainer::resume(dir, ResumeOptions::default(), &walk)?;
        let said = trainer.notes().iter().any(|note| note.contains("run.steps is "));
        trainer.train(&AtomicBool::new(false), |_| ()).map(|_| said)
    });
    match resumed {
        Err(_) => Err("the process panicked".into()),
        Ok(Ok(true)) => Ok(()), // a different number of steps is allowed, and a note mentions it
        Ok(Ok(false)) => same(dir, whole),
        Ok(Err(LabError::Run { .. } | LabError::Config(_) | LabError::Io { .. } | LabError::Task(_))) => {
            match content(dir) == before {
                true => Ok(()),
                false => Err("a refused folder was changed".into()),
            }
        }
        Ok(Err(other)) => Err(format!("an error that does not name the damage: {other}")),
    }
}

/// Names and content of all files. For a pipe or a link, only the name is read.
fn content(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let read = |path: PathBuf| {
        let regular = path.symlink_metadata().is_ok_and(|about| about.is_file());
        let data = regular.then(|| std::fs::read(&path).ok()).flatten();
        (path, data)
    };
    lab::files(dir).into_iter().map(read).collect()
}

/// Flips single bits, in every file in turn.
pub(crate) fn bits(lab: &mut Lab, budget: &Budget) -> Attack {
    attack(lab, budget, |lab, dir, files| {
        let file = &files[lab.random.below(files.len())];
        let mut data = std::fs::read(file).unwrap_or_default();
        if data.is_empty() {
            return format!("{} is empty", name(dir, file));
        }
        let bit = lab.random.below(8 * data.len());
        data[bit / 8] ^= 1 << (bit % 8);
        let _ = std::fs::write(file, data);
        format!("bit {bit} of {}", name(dir, file))
    })
}

/// Cuts, lengthens, exchanges, renames and removes files, and replaces them by links, pipes and folders.
fn damage_a_file(lab: &mut Lab, dir: &Path, files: &[PathBuf]) -> String {
    let file = &files[lab.random.below(files.len())];
    let other = &files[lab.random.below(files.len())];
    let data = std::fs::read(file).unwrap_or_default();
    let what = match lab.random.below(9) {
        0 => {
            let length = lab.random.below(data.len() + 1);
            let _ = std::fs::write(file, &data[..length]);
            format!("cut to {length} bytes")
        }
        1 => {
            let _ = std::fs::write(file, [&data[..], b"0,0,0,0,0\n"].concat());
            "made longer".into()
        }
        2 => {
            let theirs = std::fs::read(other).unwrap_or_default();
            let _ = std::fs::write(other, &data).and_then(|()| std::fs::write(file, theirs));
            format!("exchanged with {}", name(dir, other))
        }
        3 => {
            let _ = std::fs::rename(file, file.with_extension("old"));
            "renamed".into()
        }
        4 => {
            let _ = std::fs::remove_file(file);
            "removed".into()
        }
        5 => {
            let _ = std::fs::remove_file(file).and_then(|()| std::os::unix::fs::symlink("/dev/zero", file));
            "a link to /dev/zero".into()
        }
        6 => {
            let _ = std::fs::remove_file(file);
            let _ = std::process::Command::new("mkfifo").arg(file).status();
            "a pipe".into()
        }
        7 => {
            let _ = std::fs::remove_file(file).and_then(|()| std::fs::create_dir(file));
            "a folder".into()
        }
        _ => {
            // a checkpoint under the number of another
            let numbers = ["000002", "000003", "000004", "000099"];
            let from = dir.join("checkpoint").join(numbers[lab.random.below(2)]);
            let to = dir.join("checkpoint").join(numbers[2 + lab.random.below(2)]);
            let _ = std::fs::rename(&from, &to);
            return format!("{} renamed to {}", name(dir, &from), name(dir, &to));
        }
    };
    format!("{} {what}", name(dir, file))
}

/// Attacks whole files.
pub(crate) fn files(lab: &mut Lab, budget: &Budget) -> Attack {
    attack(lab, budget, damage_a_file)
}

fn name(dir: &Path, file: &Path) -> String {
    file.strip_prefix(dir).unwrap_or(file).display().to_string()
}

fn attack(
    lab: &mut Lab,
    budget: &Budget,
    mut damage: impl FnMut(&mut Lab, &Path, &[PathBuf]) -> String,
) -> Attack {
    let mut attack = Attack::default();
    let (healthy, whole) = match half(lab) {
        Ok(made) => made,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    std::panic::set_hook(Box::new(|_| {})); // a panic is counted, not printed
    while budget.more(attack.tried) {
        let dir = lab.place();
        let result = copy(&healthy, &dir).map_err(|e| e.to_string()).and_then(|()| {
            let what = damage(lab, &dir, &lab::files(&dir));
            judge(&dir, &whole).map_err(|e| format!("{what}: {e}"))
        });
        let _ = std::fs::remove_dir_all(&dir);
        attack.count(result);
    }
    let _ = std::panic::take_hook();
    attack
}
