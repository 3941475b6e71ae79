//! System calls that fail. The library `fault.c` is loaded into the process. It makes the k-th call
//! on the run folder fail, write only half, or kill the process. It can also simulate a disk of a
//! given size. Afterwards the run is resumed without faults, and its results must be those of a run
//! that never had one. The process itself must end with a documented exit code.

use std::path::Path;
use std::process::Command;

use crate::lab::{
    Attack, Budget, Lab, Left, complete, copy, finish, folder, resume, same, succeed, train, undisturbed,
};
use crate::walk::ID;

/// Path of the library.
const LIBRARY: &str = env!("EPO_FAULT_LIB");
/// Kinds of faults. With `+`, all later calls fail too.
const KINDS: [&str; 8] = ["ENOSPC", "EIO", "EMFILE", "SHORT", "KILL", "ENOSPC+", "EIO+", "EMFILE+"];

/// Adds the library to a command. `dir` is the folder whose calls are counted.
pub(crate) fn preload(command: &mut Command, dir: &Path) {
    command.env("LD_PRELOAD", LIBRARY).env("EPO_FAULT_DIR", dir);
}

/// Makes each system call of a run fail, one per attempt, from the beginning of the run to its end.
pub(crate) fn training(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let whole = match undisturbed(&lab.place(), ID, "epo") {
        Ok((whole, _)) => whole,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    each_call(lab, budget, &mut attack, |lab, set_up| {
        let runs = lab.place();
        let mut command = train(&runs, ID, "epo");
        set_up(&mut command, &runs);
        let result = leave(&mut command).and_then(|()| complete(&runs, ID, "epo", &whole));
        let _ = std::fs::remove_dir_all(&runs);
        result
    });
    attack
}

/// Makes each system call of a run fail, one per attempt, after the run is resumed at half of its
/// epochs.
pub(crate) fn resuming(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let (runs, half) = (lab.place(), lab.place());
    let prepared = undisturbed(&runs, ID, "epo").and_then(|(whole, _)| {
        succeed(train(&half, ID, "epo").args(["--set", "train.save_every=3", "--set", "run.steps=180"]))?;
        Ok(whole)
    });
    let (Ok(whole), Some(half)) = (&prepared, folder(&half)) else {
        attack.count(Err(prepared.err().unwrap_or_else(|| "the run made no folder".into())));
        return attack;
    };
    // a run of half the length is extended to the whole length; its learning rate then differs, so it has its
    // own reference run
    let extend = |dir: &Path| {
        let mut command = resume(dir);
        command.args(["--steps", "360"]);
        command
    };
    let reference = lab.place();
    let longer = copy(&half, &reference).map_err(|e| e.to_string()).and_then(|()| {
        succeed(&mut extend(&reference))?;
        crate::lab::left(&reference)
    });
    let longer: Left = match longer {
        Ok(longer) => longer,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    if &longer == whole {
        attack.note = Some("an extended run equals a long one, which is unexpected".into());
    }
    each_call(lab, budget, &mut attack, |lab, set_up| {
        let dir = lab.place();
        copy(&half, &dir).map_err(|e| e.to_string())?;
        let mut command = extend(&dir);
        set_up(&mut command, &dir);
        let result = leave(&mut command).and_then(|()| {
            succeed(&mut extend(&dir))?;
            same(&dir, &longer)
        });
        let _ = std::fs::remove_dir_all(&dir);
        result
    });
    attack
}

/// Tries calls and kinds of faults in turn: all of them if there is time, otherwise an even sample. `attempt` is given a
/// function that adds the fault to its command.
fn each_call(
    lab: &mut Lab,
    budget: &Budget,
    attack: &mut Attack,
    mut attempt: impl FnMut(&mut Lab, &dyn Fn(&mut Command, &Path)) -> Result<(), String>,
) {
    let mut try_one = |lab: &mut Lab, k: u64, kind: &str| {
        let mark = lab.place();
        let result = attempt(lab, &|command, dir| {
            preload(command, dir);
            command
                .env("EPO_FAULT_AT", k.to_string())
                .env("EPO_FAULT_KIND", kind)
                .env("EPO_FAULT_MARK", &mark);
        });
        let struck = mark.exists();
        let _ = std::fs::remove_file(&mark);
        (struck, result.map_err(|e| format!("{kind} at call {k}: {e}")))
    };
    // the number of calls: double it until no call has this number, then bisect
    let (mut low, mut high) = (0, 64);
    while try_one(lab, high, "KILL").0 {
        (low, high) = (high, 2 * high);
        if high > 1 << 20 {
            break;
        }
    }
    while low + 1 < high {
        let middle = low.midpoint(high);
        match try_one(lab, middle, "KILL").0 {
            true => low = middle,
            false => high = middle,
        }
    }
    let calls = low;
    if calls == 0 {
        attack.count(Err("no system call was intercepted".into()));
        return;
    }
    let all = calls * KINDS.len() as u64;
    attack.note = Some(format!("{calls} calls, {} kinds of faults", KINDS.len()));
    // a stride without a common divisor visits every pair of call and kind once, spread over all of them
    let stride =
        (all / budget.most.clamp(1, all)..=all).find(|&stride| divisor(stride, all) == 1).unwrap_or(1);
    let mut at = lab.random.below(all as usize) as u64;
    while budget.more(attack.tried) && attack.tried < all {
        let (struck, result) = try_one(lab, 1 + at % calls, KINDS[(at / calls) as usize % KINDS.len()]);
        at = (at + stride) % all;
        match (struck, result) {
            (false, Ok(())) => attack.tried += 1, // the program needed fewer calls this time
            (_, result) => attack.count(result),
        }
    }
}

/// Greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Runs a command that has a fault. It may end well, with a documented code, or by the kill that was asked for.
fn leave(command: &mut Command) -> Result<(), String> {
    let output = finish(command)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        None | Some(0 | 4 | 74) if !text.contains("panicked") => Ok(()),
        _ => Err(format!("{}: {}", output.status, text.trim())),
    }
}

/// Disks of twenty sizes, from one without any space to one that almost has room for the run.
pub(crate) fn full_disk(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let place = lab.place();
    let whole = match undisturbed(&place, ID, "epo") {
        Ok((whole, _)) => whole,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    // everything that the run writes, including checkpoints that it removes again
    let most =
        6 * crate::lab::files(&place).iter().filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum::<u64>();
    let sizes = 20;
    while budget.more(attack.tried) {
        let size = most * (attack.tried * sizes / budget.most.max(1) % sizes) / sizes;
        let runs = lab.place();
        let mut command = train(&runs, ID, "epo");
        preload(&mut command, &runs);
        command.env("EPO_FAULT_BYTES", size.to_string());
        let result = leave(&mut command).and_then(|()| complete(&runs, ID, "epo", &whole));
        let _ = std::fs::remove_dir_all(&runs);
        attack.count(result.map_err(|e| format!("{size} bytes: {e}")));
    }
    attack
}
