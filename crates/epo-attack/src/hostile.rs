//! A user's environment that panics, aborts, crashes or hangs. The process may end, but the run
//! must not be lost: resumed with a healthy environment, it ends like a run that was always
//! healthy.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::lab::{Attack, Budget, Lab, complete, finish, reap, train, undisturbed};
use crate::walk::{ID, MISBEHAVE};

const WAYS: [&str; 4] = ["panic", "abort", "segfault", "hang"];

pub(crate) fn attack(lab: &mut Lab, budget: &Budget) -> Attack {
    let mut attack = Attack::default();
    let whole = match undisturbed(&lab.place(), ID, "epo") {
        Ok((whole, _)) => whole,
        Err(e) => {
            attack.count(Err(e));
            return attack;
        }
    };
    while budget.more(attack.tried) {
        let way = WAYS[attack.tried as usize % WAYS.len()];
        let runs = lab.place();
        let mut command = train(&runs, ID, "epo");
        command.env(MISBEHAVE, way);
        let left = match way {
            "hang" => hang(&mut command),
            _ => finish(&mut command).and_then(|output| match (way, output.status.code()) {
                ("panic", Some(1)) | ("abort" | "segfault", None) => Ok(()),
                _ => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
            }),
        };
        let result = left.and_then(|()| complete(&runs, ID, "epo", &whole));
        let _ = std::fs::remove_dir_all(&runs);
        attack.count(result.map_err(|e| format!("{way}: {e}")));
    }
    attack
}

/// A process that hangs must end at the second signal, with code 130.
fn hang(command: &mut std::process::Command) -> Result<(), String> {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let mut signals = 0;
    while begun.elapsed() < Duration::from_secs(30) {
        match child.try_wait() {
            Ok(Some(status)) if status.code() == Some(130) => return Ok(()),
            Ok(Some(status)) => return Err(format!("{status} after {signals} signals")),
            _ => {}
        }
        // the first signal comes when the environment certainly hangs
        if begun.elapsed() > Duration::from_millis(1500 + 300 * signals) && signals < 2 {
            signals += 1;
            let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    reap(child);
    Err("two signals did not end the process".into())
}
