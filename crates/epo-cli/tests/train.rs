//! Tests of `epo train` and `epo eval` through the binary: runs that are killed, interrupted or out of disk space, and
//! the messages.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use epo_algos::AlgoConfig;
use epo_core::{Purpose, Stream, TaskFamily};
use epo_lab::config::ResolvedRun;

/// Arguments of fifteen small epochs on a real task. Fast physics has more state that a resumed run must restore.
const SMALL: [&str; 20] = [
    "--physics",
    "fast",
    "--set",
    "train.final_eval_episodes=0",
    "--steps",
    "1500",
    "--envs",
    "2",
    "--threads",
    "2",
    "--set",
    "train.steps_per_epoch=100",
    "--set",
    "train.passes=2",
    "--set",
    "train.minibatch=50",
    "--set",
    "train.hidden=[4]",
    "--name",
    "run",
];

fn epo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
    command.args(args);
    command
}

fn train_in(root: &Path) -> Command {
    let mut command = epo(&["train", "--runs"]);
    command.arg(root).args(SMALL);
    command
}

/// The same with sixty epochs, so that a test has time to interrupt the run.
fn train_long_in(root: &Path) -> Command {
    let mut command = train_in(root);
    command.args(["--set", "run.steps=6000"]);
    command
}

fn folder(root: &Path) -> PathBuf {
    root.join("EPO-{SafetyPointGoal1-v0}/run")
}

fn resume(dir: &Path) -> Command {
    let mut command = epo(&["train", "--resume"]);
    command.arg(dir);
    command
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {output:?}"))
}

/// The results of a run: its hash, its rows without times, its episodes, and the length of its events.
#[derive(Debug, PartialEq)]
struct RunResults {
    hash: String,
    rows: Vec<Vec<String>>,
    episodes: String,
    event_bytes: u64,
}

fn left(output: &Output, dir: &Path) -> RunResults {
    assert_eq!(code(output), 0, "{output:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let hash =
        stdout.lines().find_map(|line| line.strip_prefix("hash ")).expect("a line with the hash").to_owned();
    let text = std::fs::read_to_string(dir.join("progress.csv")).unwrap();
    let keep: Vec<bool> = text.lines().next().unwrap().split(',').map(|c| !c.starts_with("Time/")).collect();
    let row =
        |line: &str| line.split(',').zip(&keep).filter(|(_, k)| **k).map(|(c, _)| c.to_owned()).collect();
    RunResults {
        hash,
        rows: text.lines().map(row).collect(),
        episodes: std::fs::read_to_string(dir.join("episodes.csv")).unwrap(),
        event_bytes: std::fs::metadata(dir.join("tb/events.out.tfevents.epo")).unwrap().len(),
    }
}

#[derive(Clone, Copy, Debug)]
enum KillTime {
    After(Duration),
    /// While the n-th save is in progress.
    InSave(usize),
}

/// Lets a process run for a while and kills it with SIGKILL.
fn kill(mut child: Child, dir: &Path, when: KillTime) {
    match when {
        KillTime::After(time) => std::thread::sleep(time),
        KillTime::InSave(n) => {
            let tmp = dir.join("checkpoint/tmp");
            for i in 0..n {
                while !tmp.exists() {
                    if child.try_wait().unwrap().is_some() {
                        return;
                    }
                }
                while i + 1 < n && tmp.exists() {} // wait for the end of this save
            }
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
}

/// `EPO_KILLS=1000 cargo test -p epo-cli --test train killed` makes more trials.
#[test]
fn a_run_killed_at_any_instant_and_resumed_is_the_run_never_killed() {
    let kills: u64 = std::env::var("EPO_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let root = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let whole = train_in(&root.path().join("whole")).output().unwrap();
    let time = begun.elapsed();
    let whole = left(&whole, &folder(&root.path().join("whole")));
    assert_eq!(whole.rows.len(), 16, "a header and fifteen epochs");
    let mut random = Stream::new(kills, Purpose::Random, 0);
    let mut draw = |k: u64| match k % 2 {
        0 => KillTime::After(time.mul_f64(random.uniform())),
        _ => KillTime::InSave(1 + random.below(8)),
    };
    for k in 0..kills {
        let path = root.path().join(format!("killed-{k}"));
        let dir = folder(&path);
        let when = [draw(k), draw(k / 2)];
        let quiet = |mut c: Command| c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        kill(quiet(train_in(&path)), &dir, when[0]);
        // a run that was killed before its configuration was written cannot be resumed
        let has_begun = dir.join("config.toml").exists();
        if has_begun && k % 3 == 0 {
            kill(quiet(resume(&dir)), &dir, when[1]); // a second kill
        }
        let output = match has_begun {
            true => resume(&dir).output().unwrap(),
            false => {
                let _ = std::fs::remove_dir_all(&path);
                train_in(&path).output().unwrap()
            }
        };
        assert_eq!(left(&output, &dir), whole, "kill {k}: {when:?}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Returns the processor time of a process, from `/proc`. It does not grow while other processes use the cores.
fn cpu_time(child: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks: u64 = after_name.split_whitespace().nth(11).unwrap().parse().unwrap(); // utime, in 1/100 s
    Duration::from_millis(10 * ticks)
}

#[test]
fn signals_finish_the_epoch_save_and_exit_with_75() {
    let root = tempfile::tempdir().unwrap();
    let whole = train_long_in(&root.path().join("whole")).output().unwrap();
    let whole = left(&whole, &folder(&root.path().join("whole")));
    for name in ["TERM", "INT", "HUP", "USR1"] {
        let path = root.path().join(name);
        let mut child = train_long_in(&path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("steps/s")), "no line for an epoch");
        signal(&child, name);
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{rest:?}");
        assert!(rest.last().unwrap().contains("epo train --resume"), "{rest:?}");
        let dir = folder(&path);
        assert_eq!(left(&resume(&dir).output().unwrap(), &dir), whole);
    }
}

#[test]
fn a_second_signal_leaves_at_once() {
    let root = tempfile::tempdir().unwrap();
    let mut command = train_in(root.path());
    // an epoch that takes far longer than this test
    command.args(["--set", "train.passes=300000", "--set", "train.kl_stop=false"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A signal before the first epoch would end the process at once. After two seconds of processor time an epoch runs.
    while cpu_time(&child) < Duration::from_secs(2) {
        assert!(child.try_wait().unwrap().is_none(), "the process ended before its first epoch");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first signal must not end the process at once");
    signal(&child, "INT");
    let begun = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_full_disk_stops_with_74_and_the_run_can_be_resumed_with_free_space() {
    let root = tempfile::tempdir().unwrap();
    let whole = train_long_in(&root.path().join("whole")).output().unwrap();
    let whole = left(&whole, &folder(&root.path().join("whole")));
    // No file may grow beyond 40 KiB. The events reach that size before the sixtieth epoch. The program catches SIGXFSZ,
    // so the write fails as it does on a full disk.
    let path = root.path().join("full");
    let full = train_long_in(&path);
    let script = "ulimit -f 40; exec \"$0\" \"$@\"";
    let output =
        Command::new("bash").args(["-c", script]).arg(full.get_program()).args(full.get_args()).output();
    let output = output.unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("error: cannot write"), "{message}");
    assert!(message.matches("steps/s").count() > 5, "too few epochs before the disk was full: {message}");
    let dir = folder(&path);
    assert_eq!(left(&resume(&dir).output().unwrap(), &dir), whole);

    let mut nowhere = epo(&["train", "--runs", "/dev/null/runs"]);
    assert_eq!(code(&nowhere.args(SMALL).output().unwrap()), 74);
}

#[test]
fn wrong_arguments_exit_with_2_and_folders_without_a_run_with_4() {
    let root = tempfile::tempdir().unwrap();
    for (args, says) in [
        (&["--set", "train.gama=1"][..], "train.gamma"),
        (&["--set", "train.minibatch=1000"], "train.steps_per_epoch"),
        (&["--algo", "epoo"], "`epo`"),
        (&["--set", "run.physics=slow"], "`run.physics = \"slow\"`: must be `published` or `fast`"),
        (&["SafetyPointGoal-v0"], "SafetyPointGoal"),
        (&["--resume", "x"], "--resume"), // together with settings of a new run
        (&["--set", "run.steps=-5"], "`run.steps = -5`: must be at least 1"),
        (&["--set", "train.steps_per_epoch=9223372036854775804"], "`train.steps_per_epoch = "),
        (&["--set", "train.hidden=[4000000000000000000]"], "`train.hidden = "),
        (
            &["--set", "train.hidden=[65536, 65536, 65536]"],
            "`train.hidden = [65536, 65536, 65536]`: the run needs",
        ),
        (&["--set", "train.passes=1e15"], "`train.passes = "),
        (&["--set", "train.threads=100000"], "`train.threads = 100000`: must be at most 1024"),
    ] {
        let output = train_in(root.path()).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 2, "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    assert!(std::fs::read_dir(root.path()).unwrap().next().is_none(), "a folder was created");
    let missing = root.path().join("none");
    assert_eq!(code(&resume(&missing).output().unwrap()), 4);
    assert_eq!(code(&epo(&["eval"]).arg(&missing).output().unwrap()), 4);
}

/// This test fails if a number is taken for a flag, or if the same mistake has two messages.
#[test]
fn an_invalid_number_is_refused_in_one_line_that_names_its_key() {
    for (args, says) in [
        (&["--steps", "-5"][..], "`run.steps = -5`: must be at least 1"),
        (&["--steps=-5"], "`run.steps = -5`: must be at least 1"),
        (&["--steps", "0"], "`run.steps = 0`: must be at least 1"),
        (&["--steps", "1e30"], "`run.steps = 1e30`: is too large"),
        (&["--seed", "-1"], "`run.seed = -1`: must be at least 0"),
        (&["--limit", "-1"], "`run.limit = -1`: must be a finite number of at least 0"),
        (&["--limit", "inf"], "`run.limit = inf`: must be a finite number of at least 0"),
        (&["--limit", "nan"], "`run.limit = NaN`: must be a finite number of at least 0"),
        (&["--threads", "100000"], "`train.threads = 100000`: must be at most 1024"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let output = epo(&["train", "--runs"]).arg(root.path()).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 2, "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(says), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    }
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("mine.toml");
    std::fs::write(&file, "[run\nseed = 1\n").unwrap();
    let output = epo(&["train", "--config"]).arg(&file).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("mine.toml is not a configuration"),
        "{output:?}"
    );
    std::fs::write(&file, "[grid]\nrun.seed = [1, 2]\n").unwrap();
    let output = epo(&["train", "--config"]).arg(&file).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        code(&output) == 2 && stderr.contains("`epo sweep`") && !stderr.contains("did you mean"),
        "{stderr}"
    );
}

#[test]
fn a_resumed_run_reports_its_progress_and_can_be_extended() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).args(["--set", "run.steps=250"]).output().unwrap();
    assert_eq!(code(&trained), 0, "{trained:?}");
    let dir = folder(root.path());
    let said = |args: &[&str]| {
        let output = resume(&dir).args(args).output().unwrap();
        (code(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (done, stderr) = said(&[]);
    assert!(done == 0 && stderr.contains("the run is finished: 250 steps in 3 epochs"), "{stderr}");
    let (done, stderr) = said(&["--steps", "4e2"]);
    assert!(done == 0 && stderr.contains("400 steps instead of 250"), "{stderr}");
    assert!(stderr.contains("continuing after epoch 3 of 5, at 250 of 400 steps"), "{stderr}");
    let (refused, stderr) = said(&["--steps", "100"]);
    assert!(refused == 2 && stderr.contains("has already made 400 steps"), "{stderr}");
}

/// This test fails if a pause changes a run (for example its learning rate), counts as an interruption, or evaluates.
#[test]
fn a_paused_run_continues_to_the_bytes_of_one_that_was_not_paused() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let steps = ["--set", "run.steps=400", "--set", "train.final_eval_episodes=1"];
    let whole = train_in(a.path()).args(steps).output().unwrap();
    let whole = left(&whole, &folder(a.path()));
    let paused = train_in(b.path()).args(steps).args(["--until", "150"]).output().unwrap();
    let (dir, said) = (folder(b.path()), String::from_utf8_lossy(&paused.stderr).into_owned());
    assert!(code(&paused) == 0 && said.contains("paused at 200 of 400 steps"), "{said}");
    assert!(!dir.join("eval.json").exists(), "a paused run is not evaluated");
    let further = resume(&dir).args(["--until", "200"]).output().unwrap();
    assert_eq!(left(&further, &dir).rows.len(), 3, "the header and two epochs: nothing was left to do");
    assert_eq!(left(&resume(&dir).output().unwrap(), &dir), whole);
    assert!(dir.join("eval.json").exists());
}

/// This test fails if a second SIGTERM ends a run on a cluster before it has saved.
#[test]
fn a_run_of_a_cluster_saves_although_sigterm_comes_twice() {
    let root = tempfile::tempdir().unwrap();
    let mut command = train_in(root.path());
    command
        .args(["--set", "train.passes=4000", "--set", "train.kl_stop=false"])
        .env("EPO_SWEEP_CHILD", "patient");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while cpu_time(&child) < Duration::from_secs(1) {
        assert!(child.try_wait().unwrap().is_none(), "the process ended before its first epoch");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, "TERM");
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
}

/// This test fails if a changed configuration is used silently, if the refusal has no exit code of its own, or if the
/// flag accepts nothing.
#[test]
fn a_changed_folder_is_refused_with_4_until_the_changes_are_accepted() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).args(["--set", "run.steps=200"]).output().unwrap();
    assert_eq!(code(&trained), 0, "{trained:?}");
    let dir = folder(root.path());
    let config = dir.join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("gamma = 0.99\n", "gamma = 0.9\n")).unwrap();
    let said = |args: &[&str]| {
        let output = resume(&dir).args(args).output().unwrap();
        (code(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (refused, stderr) = said(&[]);
    assert!(refused == 4 && stderr.lines().count() == 1, "{refused}: {stderr}");
    assert!(
        stderr.contains("`train.gamma` is 0.9, but was 0.99") && stderr.contains("--accept-changes"),
        "{stderr}"
    );
    let (done, stderr) = said(&["--accept-changes", "--steps", "300"]);
    assert!(done == 0 && stderr.contains("changes of the run folder are accepted"), "{stderr}");
    assert_eq!(code(&epo(&["train", "--accept-changes"]).output().unwrap()), 2, "it belongs to --resume");
}

/// This test fails if `epo algos NAME` prints parameters without their documentation.
/// This test fails if a command opens a file of a run folder that is not a regular file: a pipe would block it, and
/// /dev/zero would fill the memory.
#[test]
fn special_files_in_a_run_folder_are_refused() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(code(&train_in(root.path()).output().unwrap()), 0);
    let dir = folder(root.path());
    let out = root.path().join("out");
    for (name, args) in [
        ("env.json", &["export", "--onnx"][..]),
        ("episodes.csv", &["replay", "--training", "1", "--out"]),
        ("config.toml", &["eval"]),
    ] {
        let _ = std::fs::remove_file(dir.join(name));
        std::os::unix::fs::symlink("/dev/null", dir.join(name)).unwrap();
        let mut command = epo(args);
        if args.len() > 1 {
            command.arg(&out);
        }
        let refused = command.arg(&dir).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(code(&refused), 4, "{name}: {said}");
        assert!(said.contains(name) && said.contains("not a regular file"), "{said}");
        std::fs::remove_file(dir.join(name)).unwrap();
    }
}

/// This test fails if a program without the MuJoCo library does not say where it looked, or leaves a run folder.
#[test]
fn without_the_mujoco_library_the_exit_code_is_69() {
    let root = tempfile::tempdir().unwrap();
    let refused = train_in(root.path()).env("MUJOCO_LIB_DIR", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(code(&refused), 69, "{said}");
    assert!(said.contains("set MUJOCO_LIB_DIR") && said.contains("/nowhere/libmujoco"), "{said}");
    assert!(!folder(root.path()).exists());
}

/// This test fails if a name in a path or in a file of the folder reaches the terminal unchanged: it could forge the line
/// with the hash, or send escape codes.
#[test]
fn foreign_names_are_printed_safely() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(code(&train_in(root.path()).output().unwrap()), 0);
    let odd = root.path().join("odd\nhash 0000\x1b[2J");
    std::fs::rename(folder(root.path()), &odd).unwrap();
    let safe = |output: &Output, lines: usize| {
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(!said.contains('\u{1b}') && !said.contains("\nhash 0000"), "{said:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), lines, "{said:?}");
    };
    let resumed = resume(&odd).output().unwrap();
    assert_eq!(code(&resumed), 0);
    safe(&resumed, 2);
    let config = std::fs::read_to_string(odd.join("config.toml")).unwrap();
    let task = config.lines().find(|line| line.starts_with("task = ")).unwrap();
    std::fs::write(odd.join("config.toml"), config.replace(task, r#"task = "T\u001b[2J\nhash 0000""#))
        .unwrap();
    for command in [&mut resume(&odd), epo(&["eval"]).arg(&odd), epo(&["replay"]).arg(&odd)] {
        let refused = command.output().unwrap();
        assert_ne!(code(&refused), 0);
        safe(&refused, 0);
    }
}

#[test]
fn algos_explains_the_parameters_of_one_algorithm() {
    let output = epo(&["algos", "p3o"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let want = "# Penalty factor κ in the first epoch. Default: 20.0.\nalgo.kappa = 20.0\n";
    assert!(text.starts_with("p3o") && text.contains(want), "{text}");
    assert_eq!(code(&epo(&["algos", "p4o"]).output().unwrap()), 2);
}

/// This test fails if `epo algos NAME` does not show the value of a preset, or shows one where there is none.
#[test]
fn algos_shows_the_presets_of_every_algorithm() {
    let values = |config: &AlgoConfig| serde_json::to_value(config).unwrap().as_object().unwrap().clone();
    for config in AlgoConfig::all_defaults() {
        let output = epo(&["algos", config.name()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).replace("\n# ", " ");
        let defaults = values(&config);
        for family in TaskFamily::ALL {
            for (key, value) in values(&config.preset(family)) {
                let line = text.lines().position(|line| line.starts_with(&format!("algo.{key} = ")));
                let Some(line) = line else {
                    assert_eq!(key, "name", "{text}");
                    continue;
                };
                let paragraph = text.lines().nth(line - 1).unwrap();
                let preset = format!(", on {} tasks {value}", family.name());
                let differs = value != defaults[&key];
                assert_eq!(paragraph.contains(&preset), differs, "{key}: {paragraph}");
            }
        }
    }
}

#[test]
fn the_printed_configuration_can_be_read_again() {
    let root = tempfile::tempdir().unwrap();
    let set = ["--set", "train.gamma=0.9", "--algo", "ppo-lag", "--steps", "1e6", "--print-config"];
    let first = epo(&["train"]).args(set).output().unwrap();
    let file = root.path().join("config.toml");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = epo(&["train", "--print-config", "--config"]).arg(&file).output().unwrap();
    assert_eq!(code(&second), 0);
    assert_eq!(first.stdout, second.stdout);
    let text = String::from_utf8(first.stdout).unwrap();
    assert!(text.contains("\ngamma = 0.9\n") && text.contains("\nsteps = 1000000\n"), "{text}");
    assert!(text.contains("# Learning rate of the policy. Default: 0.0003.\nlr = 0.0003\n"), "{text}");
}

#[test]
fn the_physics_of_a_run_cannot_be_changed() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).output().unwrap();
    let dir = folder(root.path());
    let hash = left(&trained, &dir).hash;
    let config = std::fs::read_to_string(dir.join("config.toml")).unwrap();
    assert!(config.contains("physics = \"fast\"\n"), "{config}");

    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let other = resume(&dir).args(["--physics", "published"]).output().unwrap();
    assert!(code(&other) == 2 && said(&other).contains("--physics"), "{other:?}");
    // A configuration of version 0.3 has no such key and means published physics.
    std::fs::write(dir.join("config.toml"), config.replace("physics = \"fast\"\n", "")).unwrap();
    let other = resume(&dir).output().unwrap();
    assert_eq!(code(&other), 4, "{other:?}");
    assert!(said(&other).contains("made with fast physics, but `run.physics` is `published`"), "{other:?}");
    std::fs::write(dir.join("config.toml"), config).unwrap();
    assert_eq!(left(&resume(&dir).output().unwrap(), &dir).hash, hash, "the hash after resuming");

    let path = root.path().join("published");
    let published = train_in(&path).args(["--set", "run.physics=published"]).output().unwrap();
    assert_ne!(left(&published, &folder(&path)).hash, hash);
    let state = |dir: &Path| {
        let newest = std::fs::read_dir(dir.join("checkpoint")).unwrap().map(|e| e.unwrap().path()).max();
        std::fs::read_to_string(newest.unwrap().join("state.json")).unwrap()
    };
    assert!(state(&dir).contains("\"physics\": \"fast\""), "{}", state(&dir));
    assert!(
        !state(&folder(&path)).contains("physics"),
        "a run with published physics must have the state of version 0.3"
    );

    let eval = |args: &[&str]| {
        let output = epo(&["eval", "--episodes", "2", "--json"]).arg(&dir).args(args).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    assert_eq!(eval(&[])["physics"], "published", "the default of an evaluation");
    let both = eval(&["--physics", "fast"]);
    assert_eq!(both["physics"], "fast");
    let kept = both["evaluations"].as_array().unwrap().iter().map(|e| e["physics"].as_str().unwrap());
    assert_eq!(kept.collect::<Vec<_>>(), ["published", "published", "fast", "fast"]);
    let text = epo(&["eval", "--episodes", "2", "--physics", "fast"]).arg(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("with fast physics") && text.matches(" action ").count() == 2, "{text}");
    assert_eq!(code(&epo(&["eval", "--physics", "slow"]).arg(&dir).output().unwrap()), 2);
}

#[test]
fn numbers_that_are_not_finite_end_a_run_with_5_and_leave_a_whole_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    // The learning rate is so large that numbers overflow in the update. With a large entropy bonus, only the noise of
    // the policy overflows, and the next epoch fails.
    for (lr, entropy, says, evaluation) in
        [("1e38", "0", "is NaN", 0), ("1e30", "1e6", "environment 0 failed at step 50", 5)]
    {
        let path = root.path().join(lr);
        let mut command = train_in(&path);
        command.args(["--set", "train.kl_stop=false", "--set", &format!("train.lr={lr}")]);
        command.args(["--set", &format!("train.entropy={entropy}")]);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 5, "{message}");
        assert!(message.contains("error: ") && message.contains(says), "{message}");
        assert_eq!(code(&resume(&folder(&path)).output().unwrap()), 5, "a resumed run fails in the same way");
        let output = epo(&["eval", "--episodes", "1"]).arg(folder(&path)).output().unwrap();
        assert_eq!(
            code(&output),
            evaluation,
            "the checkpoint is intact; with 1e30 its noise is infinite: {output:?}"
        );
    }
}

#[test]
fn a_run_of_another_version_is_reported_and_its_configuration_can_be_used() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).args(["--set", "run.steps=2200"]).output().unwrap(); // an episode ends
    assert_eq!(code(&trained), 0, "{trained:?}");
    let (dir, out) = (folder(root.path()), root.path().join("report"));
    let file = dir.join("config.toml");
    let said = || {
        let outputs = [
            resume(&dir).output().unwrap(),
            epo(&["eval", "--episodes", "1"]).arg(&dir).output().unwrap(),
            epo(&["report"]).arg(&dir).arg("--out").arg(&out).output().unwrap(),
        ];
        outputs.map(|output| {
            assert_eq!(code(&output), 0, "{output:?}");
            String::from_utf8_lossy(&output.stderr).contains("begun by version 0.0.9")
        })
    };
    assert_eq!(said(), [false; 3], "no note for a run of this version");
    let ours = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, ours.replacen(env!("CARGO_PKG_VERSION"), "0.0.9", 1)).unwrap();
    assert_eq!(said(), [true; 3], "resume, eval and report must name the other version");
    let again = epo(&["train", "--print-config", "--config"]).arg(&file).output().unwrap();
    assert_eq!(code(&again), 0, "{again:?}");
    let printed = ResolvedRun::from_layers(Some(&String::from_utf8_lossy(&again.stdout)), &[]).unwrap();
    assert_eq!(printed, ResolvedRun::from_saved(&ours).unwrap());
}

#[test]
fn a_run_ends_with_an_evaluation_of_both_policies() {
    let root = tempfile::tempdir().unwrap();
    let mut command = train_in(root.path());
    let trained = command.args(["--set", "train.final_eval_episodes=2"]).output().unwrap();
    assert_eq!(code(&trained), 0, "{trained:?}");
    let dir = folder(root.path());
    let said = String::from_utf8_lossy(&trained.stdout).into_owned();
    assert!(said.contains("| mean action ") && said.contains("| sampled action "), "{said}");
    let read = || std::fs::read_to_string(dir.join("eval.json")).unwrap();
    let first = read();
    let json: serde_json::Value = serde_json::from_str(&first).unwrap();
    let policies: Vec<_> =
        json["evaluations"].as_array().unwrap().iter().map(|e| e["policy"].as_str()).collect();
    assert_eq!(policies, [Some("mean"), Some("sampled")]);
    assert_eq!(json["evaluations"][0]["hash"].as_str(), Some(left(&trained, &dir).hash.as_str()));
    assert_ne!(json["evaluations"][0]["return"], json["evaluations"][1]["return"]);
    let again = resume(&dir).output().unwrap();
    assert_eq!((code(&again), String::from_utf8_lossy(&again.stdout).contains("mean action")), (0, false));
    assert_eq!(read(), first, "a finished run is not evaluated again");
}

/// Starts a run in the background and waits until it has added two rows to the record in `dir`.
fn in_background(mut command: Command, dir: &Path) -> Child {
    let rows = || std::fs::read_to_string(dir.join("progress.csv")).map_or(1, |text| text.lines().count());
    let before = rows();
    command.arg("--quiet"); // the pipe is read only at the end and must not fill up
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while rows() < before + 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// A run that takes much longer than a test.
fn train_very_long_in(root: &Path) -> Command {
    let mut command = train_in(root);
    command.args(["--set", "run.steps=1e6"]);
    command
}

#[test]
fn a_folder_in_use_is_refused_and_no_row_is_written_twice() {
    let root = tempfile::tempdir().unwrap();
    let mut child = in_background(train_very_long_in(root.path()), &folder(root.path()));
    let second = resume(&folder(root.path())).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(code(&second), 75, "{said}");
    assert!(said.contains(&format!("in use by process {}", child.id())), "{said}");
    let eval = epo(&["eval", "--episodes", "1"]).arg(folder(root.path())).output().unwrap();
    assert_eq!(code(&eval), 0, "the lock of a killed process must be released: {eval:?}");
    let rows = std::fs::read_to_string(folder(root.path()).join("progress.csv")).unwrap();
    let column = rows.lines().next().unwrap().split(',').position(|name| name == "Train/Epoch").unwrap();
    let epochs: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(column)).collect();
    let counted: Vec<String> = (0..epochs.len()).map(|n| n.to_string()).collect();
    assert_eq!(epochs, counted);
}

#[test]
fn a_run_stops_when_its_folder_is_moved_and_can_be_resumed_there() {
    let root = tempfile::tempdir().unwrap();
    let child = in_background(train_very_long_in(root.path()), &folder(root.path()));
    let moved = root.path().join("moved");
    std::fs::rename(folder(root.path()), &moved).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(code(&ended), 74, "{said}");
    assert!(said.contains("was moved or replaced") && !folder(root.path()).exists(), "{said}");
    let again = in_background(resume(&moved), &moved);
    signal(&again, "HUP");
    assert_eq!(
        code(&again.wait_with_output().unwrap()),
        75,
        "the run continues in the moved folder until it is interrupted"
    );
}

#[test]
fn eval_plays_the_same_episodes_on_any_number_of_threads_and_checks_the_threshold() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).arg("--quiet").output().unwrap();
    assert!(trained.stderr.is_empty(), "--quiet printed a message: {trained:?}");
    let dir = folder(root.path());
    let hash = left(&trained, &dir).hash;
    let eval = |args: &[&str]| {
        let output = epo(&["eval", "--episodes", "3", "--json"]).arg(&dir).args(args).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (code(&output), json)
    };
    let (done, json) = eval(&["--threads", "1"]);
    assert_eq!(done, 0);
    assert_eq!(eval(&["--threads", "2"]).1, json);
    assert_ne!(eval(&["--seed", "1"]).1["return"], json["return"]);
    assert_eq!((json["task"].as_str(), json["algo"].as_str()), (Some("SafetyPointGoal1-v0"), Some("epo")));
    assert_eq!((json["episodes"].as_u64(), json["hash"].as_str()), (Some(3), Some(hash.as_str())));
    assert_eq!(json["length"]["mean"].as_f64(), Some(1000.0));
    for key in ["return", "cost", "length"] {
        assert!(json[key]["std"].is_number() && json[key]["ci95"][1].is_number(), "{json}");
    }
    assert!((0.0..=1.0).contains(&json["cost"]["p_feasible"].as_f64().unwrap()));
    assert_eq!(eval(&["--max-cost=-1"]).0, 3);
    assert_eq!(eval(&["--max-cost", "1e9"]).0, 0);
    assert_ne!(eval(&["--stochastic"]).1["return"], json["return"]);
    let saved: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("eval.json")).unwrap()).unwrap();
    assert_eq!(saved["policy"].as_str(), Some("sampled"), "the newest evaluation is at the top level");
    let kept: Vec<_> =
        saved["evaluations"].as_array().unwrap().iter().map(|e| (&e["policy"], &e["seed"])).collect();
    assert_eq!(kept.len(), 4, "both policies for seeds 1 and 0: {kept:?}");
    let gate = epo(&["eval", "--max-cost", "nan"]).arg(&dir).output().unwrap();
    assert_eq!(code(&gate), 2, "NaN must be refused: a comparison with it would always pass");
    let many = epo(&["eval", "--threads", "100000"]).arg(&dir).output().unwrap();
    let said = String::from_utf8_lossy(&many.stderr).into_owned();
    assert!(code(&many) == 2 && said.contains("`--threads = 100000`: must be at most 1024"), "{said}");
}

/// This test fails if a program without MPI makes two separate runs instead of one run on two ranks.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_refuses_to_be_one_of_several_ranks() {
    let root = tempfile::tempdir().unwrap();
    for (count, code) in [("2", 2), ("1", 0)] {
        let output = train_in(root.path()).env("OMPI_COMM_WORLD_SIZE", count).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("--features mpi"), count == "2", "{said}");
        assert_eq!(folder(root.path()).exists(), count == "1");
    }
}
