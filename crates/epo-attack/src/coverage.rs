//! Fuzzed inputs that are guided by coverage: libFuzzer keeps a mutation if it reaches code that no earlier input reached.
//!
//! `coverage.sh` builds this program a second time, with the feature `coverage` and with counters in every branch. That
//! program is libFuzzer and parses inputs with `parse`; this one starts it and counts.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::fuzz::{MOST_MEMORY, Target};
use crate::lab::{self, Attack, Budget, Lab};

/// Environment variables with the name of the parser and with a folder for its files.
const TARGET: &str = "EPO_FUZZ_TARGET";
const PLACE: &str = "EPO_FUZZ_PLACE";

/// Runs `program` on a target until the number of inputs or the time is used up. A failed input ends it.
pub(crate) fn attack(lab: &mut Lab, budget: &Budget, target: &str, program: &Path) -> Attack {
    let mut attack = Attack::default();
    let place = lab.place();
    match run(lab, budget, target, program, &place) {
        Ok((tried, memory)) => {
            attack.tried = tried;
            attack.note = Some(format!("guided by coverage, largest memory {memory} MB"));
            if memory > MOST_MEMORY {
                attack.count(Err(format!("the worker took {memory} MB")));
            }
        }
        Err(e) => attack.count(Err(e)),
    }
    let _ = std::fs::remove_dir_all(&place);
    attack
}

/// Returns the number of inputs and the largest memory in MB.
fn run(
    lab: &mut Lab,
    budget: &Budget,
    target: &str,
    program: &Path,
    place: &Path,
) -> Result<(u64, u64), String> {
    let corpus = place.join("corpus");
    std::fs::create_dir_all(&corpus).map_err(|e| e.to_string())?;
    let valid = Target::new(target, &place.join("valid")).ok_or("the valid inputs cannot be made")?;
    for (i, input) in valid.inputs().iter().enumerate() {
        std::fs::write(corpus.join(i.to_string()), input).map_err(|e| e.to_string())?;
    }
    let mut command = std::process::Command::new(program);
    command.arg(&corpus).current_dir(place).env(TARGET, target).env(PLACE, place.join("worker"));
    command.args(["-print_final_stats=1", "-timeout=30", "-rss_limit_mb=0", "-max_len=65536"]);
    command.arg(format!("-runs={}", budget.most));
    command.arg(format!("-max_total_time={}", budget.left().as_secs().max(1)));
    command.arg(format!("-seed={}", 1 + lab.random.below(1 << 30)));
    let output = lab::finish_within(&mut command, budget.left() + lab::PATIENCE)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some(folder) = &lab.keep {
        keep(program, target, place, folder).map_err(|e| format!("the inputs cannot be kept: {e}"))?;
    }
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        line.ok_or_else(|| format!("libFuzzer did not say {key}"))
    };
    match output.status.success() {
        true => Ok((number("stat::number_of_executed_units:")?, number("stat::peak_rss_mb:")?)),
        false => {
            let end: Vec<&str> = said.lines().rev().take(12).collect();
            Err(end.into_iter().rev().collect::<Vec<_>>().join(" | "))
        }
    }
}

/// Writes the inputs that libFuzzer found to `folder`, one for each branch that only it reaches. Long inputs are left out.
fn keep(program: &Path, target: &str, place: &Path, folder: &Path) -> std::io::Result<()> {
    let merged = place.join("merged");
    std::fs::create_dir_all(&merged)?;
    let mut command = std::process::Command::new(program);
    command
        .args(["-merge=1", "-use_counters=0", "-rss_limit_mb=0", "-max_len=400"])
        .arg(&merged)
        .arg(place.join("corpus"));
    command.current_dir(place).env(TARGET, target).env(PLACE, place.join("worker"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let read = |path: PathBuf| -> std::io::Result<String> {
        let text: String = std::fs::read(path)?.into_iter().map(char::from).collect();
        Ok(serde_json::to_string(&text)? + "\n")
    };
    let mut lines = lab::files(&merged).into_iter().map(read).collect::<std::io::Result<Vec<_>>>()?;
    lines.sort_by_key(|line| (line.len(), line.clone()));
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(format!("{target}.jsonl")), lines.concat())
}

/// Parses one input of libFuzzer. libFuzzer turns a panic into a failure.
#[cfg(feature = "coverage")]
pub(crate) fn parse(input: &[u8]) {
    use std::sync::{LazyLock, Mutex};
    use std::time::Duration;

    static PARSER: LazyLock<Mutex<Option<Target>>> = LazyLock::new(|| {
        let name = std::env::var(TARGET).unwrap_or_default();
        let place = std::env::var(PLACE).unwrap_or_default();
        Mutex::new(Target::new(&name, Path::new(&place)))
    });
    let mut target = PARSER.lock().expect("no panic is caught");
    let target = target.as_mut().expect("EPO_FUZZ_TARGET names a parser");
    let computing = crate::fuzz::Computing::begin();
    target.parse_chosen(input);
    assert!(computing.spent() < Duration::from_secs(1), "the parser took more than a second");
}
