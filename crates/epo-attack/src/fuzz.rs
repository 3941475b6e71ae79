//! Mutated input for every parser. An input fails if a parser panics or uses more than a second of
//! CPU time, or if the process uses more than 200 MB.
//!
//! Inputs are mutations of valid ones: changed bits and bytes, cut, repeated and inserted parts, other numbers, and parts
//! of other inputs. They depend on the seed alone. The inputs are parsed in a child process, so that a crash is counted.
//! Among the valid inputs are those of `corpus/`, which libFuzzer found (`coverage.rs`): each reaches other code.

use std::io::Cursor;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use epo_core::{Purpose, Stream};
use epo_lab::checkpoint;
use epo_lab::config::ResolvedRun;
use epo_lab::sweep::SweepFile;
use epo_lab::train::{ResumeOptions, Trainer};

use crate::coverage;
use crate::damage::half;
use crate::lab::{self, Attack, Budget, Lab, PATIENCE, SMALL, copy, epo, walk};

/// Maximum memory of a worker, in MB.
pub(crate) const MOST_MEMORY: u64 = 200;

macro_rules! targets {
    ($($name:ident),*) => {
        $(pub(crate) fn $name(lab: &mut Lab, budget: &Budget) -> Attack {
            attack(lab, budget, stringify!($name))
        })*
    };
}
targets!(configuration, assignments, sweeps, npz, tensors, folders);

/// Starts workers until the number of inputs or the time is used up.
fn attack(lab: &mut Lab, budget: &Budget, target: &'static str) -> Attack {
    if let Some(program) = lab.coverage.clone() {
        return coverage::attack(lab, budget, target, &program);
    }
    let mut attack = Attack::default();
    let mut peak = 0;
    while budget.more(attack.tried) {
        let inputs = (budget.most - attack.tried).min(20_000);
        let seed = lab.random.below(1 << 30);
        let seconds = budget.left().as_secs_f64().max(1.0);
        let place = lab.place();
        let (inputs_text, seed_text, seconds) = (inputs.to_string(), seed.to_string(), seconds.to_string());
        let mut command = epo(&["fuzz-worker", target, &seed_text, &inputs_text, &seconds]);
        command.arg(&place).stdout(Stdio::piped()).stderr(Stdio::piped());
        let told = lab::finish_within(&mut command, budget.left() + PATIENCE).and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let numbers: Vec<u64> =
                text.lines().last().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
            match numbers[..] {
                [tried, failed, memory] => {
                    Ok((tried, failed, memory, String::from_utf8_lossy(&output.stderr).into_owned()))
                }
                _ => Err(format!(
                    "the worker ended with {}: {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr).trim()
                )),
            }
        });
        let _ = std::fs::remove_dir_all(&place);
        match told {
            Ok((tried, failed, memory, said)) => {
                attack.tried += tried;
                attack.failed += failed;
                attack
                    .failures
                    .extend(said.lines().filter(|line| line.starts_with("FAILED")).map(str::to_owned));
                peak = peak.max(memory);
                if memory > MOST_MEMORY {
                    attack.count(Err(format!("the worker took {memory} MB (seed {seed})")));
                }
            }
            Err(e) => {
                attack.count(Err(format!("seed {seed}: {e}")));
                break;
            }
        }
    }
    attack.note = Some(format!("largest memory {peak} MB"));
    attack
}

/// Parses mutated inputs and prints the number of inputs, of failures, and the largest memory in MB.
pub(crate) fn worker() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, _, target, seed, inputs, seconds, place] = &args[..] else { return ExitCode::from(2) };
    let (Ok(seed), Ok(inputs), Ok(seconds)) = (seed.parse(), inputs.parse::<u64>(), seconds.parse()) else {
        return ExitCode::from(2);
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let place = Path::new(place);
    let Some(mut target) = Target::new(target, place) else { return ExitCode::from(2) };
    std::panic::set_hook(Box::new(|info| eprintln!("{}", info.to_string().replace('\n', " "))));
    let mut random = Stream::new(seed, Purpose::Random, 1);
    let (mut tried, mut failed) = (0, 0);
    while tried < inputs && (tried == 0 || Instant::now() < end) {
        tried += 1;
        let input = target.mutate(&mut random);
        let (clock, computing) = (Instant::now(), Computing::begin());
        let parsed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target.parse(&input)));
        let slow = clock.elapsed().min(computing.spent()) > Duration::from_secs(1);
        if parsed.is_err() || slow {
            failed += 1;
            let why = if slow { "took more than a second" } else { "panicked" };
            eprintln!("FAILED: input {tried} of seed {seed} {why}: {}", shown(&input));
        }
    }
    #[allow(clippy::print_stdout, reason = "the result of the worker")]
    {
        println!("{tried} {failed} {}", peak_memory());
    }
    ExitCode::SUCCESS
}

/// The beginning of an input as text.
fn shown(input: &[u8]) -> String {
    String::from_utf8_lossy(&input[..input.len().min(300)]).escape_debug().to_string()
}

/// Largest memory of this process so far, in MB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Measures the time that this process computes. Other programs on the machine do not count.
#[derive(Debug)]
pub(crate) struct Computing {
    begun: Duration,
}

impl Computing {
    pub(crate) fn begin() -> Self {
        Self { begun: Self::total() }
    }

    pub(crate) fn spent(&self) -> Duration {
        Self::total() - self.begun
    }

    fn total() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// A parser, valid inputs for it, and words that have a meaning in these inputs.
#[derive(Debug)]
pub(crate) struct Target {
    /// The valid inputs, and then those that libFuzzer found.
    corpus: Vec<Vec<u8>>,
    /// Number of the valid inputs.
    valid: usize,
    words: Vec<&'static str>,
    parser: Parser,
}

#[derive(Debug)]
enum Parser {
    Configuration,
    Assignments,
    Sweeps,
    Npz,
    /// A run folder whose tensors are replaced, with correct hashes.
    Tensors(std::path::PathBuf),
    /// A run folder of which one file is replaced.
    Folders {
        dir: std::path::PathBuf,
        files: Vec<std::path::PathBuf>,
        next: usize,
    },
}

const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1e300",
    "nan",
    "inf",
    "-inf",
    "9223372036854775807",
    "18446744073709551616",
    "1e-320",
    "0x7f",
    "\"\"",
    "[]",
];
const WORDS: [&str; 14] = [
    "[run]",
    "[train]",
    "[algo]",
    "[grid]",
    "[base]",
    "[[list]]",
    "run.task",
    "train.hidden",
    "train.envs",
    "algo.variant",
    "run.steps",
    "true",
    "\"auto\"",
    "\u{202e}",
];
const RECORDING: &[u8] = include_bytes!("../../epo-tasks/tests/recordings/SafetyPointGoal0-v0.npz");

impl Target {
    /// Prepares a parser. `place` is a folder for its files.
    pub(crate) fn new(name: &str, place: &Path) -> Option<Self> {
        let texts = |list: &[&str]| list.iter().map(|text| text.as_bytes().to_vec()).collect();
        let configs = || {
            let with = |set: &[&str]| {
                let set: Vec<String> = set.iter().map(|&s| s.to_owned()).collect();
                ResolvedRun::from_layers(None, &set).map(|run| run.to_toml()).unwrap_or_default()
            };
            [
                with(&[]),
                with(&["run.algo=cpo"]),
                with(&["run.algo=p3o", "run.task=SafetyHalfCheetahVelocity-v1"]),
            ]
        };
        let words = [&NUMBERS[..], &WORDS[..]].concat();
        let (mut corpus, parser): (Vec<Vec<u8>>, Parser) = match name {
            "configuration" => (configs().map(String::into_bytes).to_vec(), Parser::Configuration),
            "assignments" => {
                let more = [
                    "run.algo=epo",
                    "algo.clip=0.1",
                    "train.hidden=[64, 64]",
                    "run.task=\"SafetyPointGoal1-v0\"",
                ];
                (texts(&[&SMALL[..], &more[..]].concat()), Parser::Assignments)
            }
            "sweeps" => {
                let grid = "[base]\nrun.steps = 64000\n[grid]\nrun.algo = [\"epo\", \"ppo\"]\nrun.seed = [0, 1]\n\
                            run.task = [\"SafetyPointGoal1-v0\", \"SafetyCarGoal1-v0\"]\n";
                let list = "[grid]\nrun.seed = [0, 1, 2]\n[[list]]\nalgo.pmn = \"both\"\n[[list]]\n\"train.hidden\" = [32, 32]\n";
                (texts(&[grid, list]), Parser::Sweeps)
            }
            "npz" => (vec![RECORDING.to_vec()], Parser::Npz),
            "tensors" | "folders" => {
                std::fs::create_dir_all(place).ok()?;
                let mut lab = Lab::new(0).ok()?; // its folder lives as long as it does
                let (healthy, _) = half(&mut lab).ok()?;
                let dir = place.join("run");
                copy(&healthy, &dir).ok()?;
                let files = lab::files(&dir);
                if name == "tensors" {
                    let file = files.iter().find(|f| f.ends_with("000003/tensors.safetensors"))?;
                    (vec![std::fs::read(file).ok()?], Parser::Tensors(dir))
                } else {
                    let read: Option<Vec<_>> = files.iter().map(|file| std::fs::read(file).ok()).collect();
                    (read?, Parser::Folders { dir, files, next: 0 })
                }
            }
            _ => return None,
        };
        let valid = corpus.len();
        corpus.extend(found(name));
        Some(Self { corpus, valid, words, parser })
    }

    /// The valid inputs, as `parse_chosen` reads them.
    pub(crate) fn inputs(&self) -> Vec<Vec<u8>> {
        let several = matches!(self.parser, Parser::Folders { .. });
        let input = |(i, data): (usize, &Vec<u8>)| {
            if several { [&[i as u8], &data[..]].concat() } else { data.clone() }
        };
        self.corpus.iter().enumerate().map(input).collect()
    }

    /// Parses an input. If there are several files to replace, its first byte chooses the file.
    #[cfg(feature = "coverage")]
    pub(crate) fn parse_chosen(&mut self, input: &[u8]) {
        match (&mut self.parser, input) {
            (Parser::Folders { files, next, .. }, [first, rest @ ..]) => {
                *next = usize::from(*first) % files.len();
                self.parse(rest);
            }
            _ => self.parse(input),
        }
    }

    /// Returns a mutation of an input. In half of the cases it is one of the valid inputs.
    fn mutate(&mut self, random: &mut Stream) -> Vec<u8> {
        let from = [self.valid, self.corpus.len()][random.below(2)];
        let chosen = random.below(from);
        if let Parser::Folders { next, .. } = &mut self.parser {
            *next = chosen;
        }
        let mut data = self.corpus[chosen].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(data.len() + 1);
            let most = [4, 64, 4096][random.below(3)];
            let end = (at + random.below(1 + most)).min(data.len());
            match random.below(9) {
                0 if at < data.len() => data[at] ^= 1 << random.below(8),
                1 if at < data.len() => data[at] = [0, 0xff, 0x80, b'\n', b'"', b','][random.below(6)],
                2 => drop(data.drain(at..end)),
                3 => {
                    let part = data[at..end].to_vec();
                    data.splice(at..at, part);
                }
                4 => {
                    let word = self.words[random.below(self.words.len())];
                    data.splice(at..at, word.bytes());
                }
                5 => {
                    // replace a number by another one
                    let digit = |b: &u8| b.is_ascii_digit();
                    if let Some(start) = data[at..].iter().position(digit).map(|i| at + i) {
                        let stop =
                            data[start..].iter().position(|b| !digit(b)).map_or(data.len(), |i| start + i);
                        data.splice(start..stop, NUMBERS[random.below(NUMBERS.len())].bytes());
                    }
                }
                6 => {
                    let other = &self.corpus[random.below(self.corpus.len())];
                    let from = random.below(other.len() + 1);
                    let to = (from + random.below(200)).min(other.len());
                    data.splice(at..end, other[from..to].iter().copied());
                }
                7 if at + 8 <= data.len() => {
                    let number = [0, 1, u64::MAX, 1 << 31, 1 << 40, 0x7fff_ffff][random.below(6)];
                    data[at..at + 8].copy_from_slice(&number.to_le_bytes());
                }
                8 => data.truncate(at),
                _ => {}
            }
        }
        data
    }

    fn parse(&mut self, input: &[u8]) {
        let text = || String::from_utf8_lossy(input).into_owned();
        match &self.parser {
            Parser::Configuration => drop(ResolvedRun::from_layers(Some(&text()), &[])),
            Parser::Assignments => drop(ResolvedRun::from_layers(None, &[text()])),
            Parser::Sweeps => drop(SweepFile::parse(&text()).map(|file| file.plan())),
            Parser::Npz => drop(epo_tasks::npz::Npz::read(Cursor::new(input))),
            Parser::Tensors(dir) => {
                let root = dir.join("checkpoint");
                let Ok(loaded) = checkpoint::load(&root, |_, _| Ok(())) else { return };
                let mut files = loaded.files;
                files.insert("tensors.safetensors".into(), input.to_vec());
                let again = dir.join("again");
                let _ = std::fs::remove_dir_all(&again);
                let _ = std::fs::create_dir_all(again.join("checkpoint"));
                for name in ["config.toml", "progress.csv", "episodes.csv"] {
                    let _ = std::fs::copy(dir.join(name), again.join(name));
                }
                let _ = copy(&dir.join("tb"), &again.join("tb"));
                let _ = checkpoint::save(
                    &again.join("checkpoint"),
                    loaded.number,
                    &files,
                    loaded.covered.as_ref(),
                );
                drop(Trainer::resume(&again, ResumeOptions::default(), &walk));
            }
            Parser::Folders { dir, files, next } => {
                let file = &files[*next];
                let _ = std::fs::write(file, input);
                drop(Trainer::resume(dir, ResumeOptions::default(), &walk));
                drop(epo_report::history::read_run(dir, None));
                // undo everything that a resume may have changed: the files of the run, and checkpoints that it
                // set aside
                restore(dir, files, &self.corpus);
            }
        }
    }
}

/// Inputs that libFuzzer found, one per line, as JSON strings whose characters are the bytes.
fn found(target: &str) -> Vec<Vec<u8>> {
    let text = match target {
        "configuration" => include_str!("../corpus/configuration.jsonl"),
        "assignments" => include_str!("../corpus/assignments.jsonl"),
        "sweeps" => include_str!("../corpus/sweeps.jsonl"),
        "npz" => include_str!("../corpus/npz.jsonl"),
        _ => "",
    };
    let input =
        |line: &str| serde_json::from_str::<String>(line).ok().map(|s| s.chars().map(|c| c as u8).collect());
    text.lines().filter_map(input).collect()
}

/// Puts the valid files back.
fn restore(dir: &Path, files: &[std::path::PathBuf], corpus: &[Vec<u8>]) {
    let aside = std::fs::read_dir(dir.join("checkpoint")).into_iter().flatten().filter_map(Result::ok);
    for entry in aside.filter(|entry| entry.file_name().to_string_lossy().starts_with("damaged")) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
    for (file, data) in files.iter().zip(corpus) {
        let _ = std::fs::create_dir_all(file.parent().unwrap_or(dir));
        let _ = std::fs::write(file, data);
    }
}

#[cfg(test)]
mod tests {
    use super::found;

    /// Fails if a file of `corpus/` is not read as it was written: then the short form would not mutate its inputs.
    #[test]
    fn every_line_of_the_corpus_is_an_input() {
        for target in ["configuration", "assignments", "sweeps", "npz"] {
            let inputs = found(target);
            assert!(inputs.len() >= 50, "{target}: {} inputs", inputs.len());
            assert!(inputs.iter().all(|input| input.len() <= 400), "{target}");
        }
        assert!(found("npz").iter().any(|input| input.starts_with(b"PK\x03\x04")));
        assert!(found("sweeps").iter().any(|input| input.windows(6).any(|part| part == b"[grid]")));
    }
}
