//! `epo train` and `epo eval` end to end: killed at random instants, interrupted, out of disk, and what they print.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use epo_core::{Purpose, Stream};
use epo_lab::config::ResolvedRun;

/// Fifteen small epochs on a real task, with the physics that has more state to lose.
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

/// The same with sixty epochs, so that something can happen to it on the way.
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

/// What a run leaves behind: its hash, its rows without the clock, its episodes, the length of its events.
#[derive(Debug, PartialEq)]
struct Left {
    hash: String,
    rows: Vec<Vec<String>>,
    episodes: String,
    event_bytes: u64,
}

fn left(output: &Output, dir: &Path) -> Left {
    assert_eq!(code(output), 0, "{output:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let hash =
        stdout.lines().find_map(|line| line.strip_prefix("hash ")).expect("a hash is printed").to_owned();
    let text = std::fs::read_to_string(dir.join("progress.csv")).unwrap();
    let keep: Vec<bool> = text.lines().next().unwrap().split(',').map(|c| !c.starts_with("Time/")).collect();
    let row =
        |line: &str| line.split(',').zip(&keep).filter(|(_, k)| **k).map(|(c, _)| c.to_owned()).collect();
    Left {
        hash,
        rows: text.lines().map(row).collect(),
        episodes: std::fs::read_to_string(dir.join("episodes.csv")).unwrap(),
        event_bytes: std::fs::metadata(dir.join("tb/events.out.tfevents.epo")).unwrap().len(),
    }
}

#[derive(Clone, Copy, Debug)]
enum When {
    After(Duration),
    /// The n-th time that a save is seen under way.
    InSave(usize),
}

/// Lets a process run for a while and kills it with SIGKILL.
fn kill(mut child: Child, dir: &Path, when: When) {
    match when {
        When::After(time) => std::thread::sleep(time),
        When::InSave(n) => {
            let tmp = dir.join("checkpoint/tmp");
            for i in 0..n {
                while !tmp.exists() {
                    if child.try_wait().unwrap().is_some() {
                        return;
                    }
                }
                while i + 1 < n && tmp.exists() {} // the next one
            }
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
}

/// `EPO_KILLS=1000 cargo test -p epo-cli --test train killed` for a long trial.
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
        0 => When::After(time.mul_f64(random.uniform())),
        _ => When::InSave(1 + random.below(8)),
    };
    for k in 0..kills {
        let path = root.path().join(format!("killed-{k}"));
        let dir = folder(&path);
        let when = [draw(k), draw(k / 2)];
        let quiet = |mut c: Command| c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        kill(quiet(train_in(&path)), &dir, when[0]);
        // killed before the configuration was written, there is nothing to resume yet
        let has_begun = dir.join("config.toml").exists();
        if has_begun && k % 3 == 0 {
            kill(quiet(resume(&dir)), &dir, when[1]); // and once more
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

/// Time that a process has spent computing, from `/proc`: unlike the clock, it does not run while others have the cores.
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
    for name in ["TERM", "INT", "HUP"] {
        let path = root.path().join(name);
        let mut child = train_long_in(&path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("steps/s")), "a line per epoch");
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
    // a signal before the first epoch would end it at once; nothing but an epoch takes two seconds of computing
    while cpu_time(&child) < Duration::from_secs(2) {
        assert!(child.try_wait().unwrap().is_none(), "it has not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first only asks");
    signal(&child, "INT");
    let begun = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_full_disk_stops_with_74_and_the_run_goes_on_when_there_is_room() {
    let root = tempfile::tempdir().unwrap();
    let whole = train_long_in(&root.path().join("whole")).output().unwrap();
    let whole = left(&whole, &folder(&root.path().join("whole")));
    // no file may grow beyond 40 KiB: the events reach that before the sixtieth epoch. The program catches SIGXFSZ, so a
    // write then fails as it does on a full disk.
    let path = root.path().join("full");
    let full = train_long_in(&path);
    let script = "ulimit -f 40; exec \"$0\" \"$@\"";
    let output =
        Command::new("bash").args(["-c", script]).arg(full.get_program()).args(full.get_args()).output();
    let output = output.unwrap();
    assert_eq!(code(&output), 74, "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("error: cannot write"), "{message}");
    assert!(message.matches("steps/s").count() > 5, "it had begun well: {message}");
    let dir = folder(&path);
    assert_eq!(left(&resume(&dir).output().unwrap(), &dir), whole);

    let mut nowhere = epo(&["train", "--runs", "/dev/null/runs"]);
    assert_eq!(code(&nowhere.args(SMALL).output().unwrap()), 74);
}

#[test]
fn wrong_arguments_exit_with_2_and_folders_that_are_no_runs_with_4() {
    let root = tempfile::tempdir().unwrap();
    for (args, says) in [
        (&["--set", "train.gama=1"][..], "train.gamma"),
        (&["--set", "train.minibatch=1000"], "train.steps_per_epoch"),
        (&["--algo", "epoo"], "`epo`"),
        (
            &["--set", "run.physics=slow"],
            "`run.physics = \"slow\"`: unknown variant `slow`, expected `published` or",
        ),
        (&["SafetyPointGoal-v0"], "SafetyPointGoal"),
        (&["--resume", "x"], "--resume"), // with all the others
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
    assert!(std::fs::read_dir(root.path()).unwrap().next().is_none(), "no folder was made");
    let missing = root.path().join("none");
    assert_eq!(code(&resume(&missing).output().unwrap()), 4);
    assert_eq!(code(&epo(&["eval"]).arg(&missing).output().unwrap()), 4);
}

/// Kills: a number that is taken for a flag, and another message for the same mistake.
#[test]
fn a_number_that_makes_no_sense_is_refused_in_one_line_that_names_its_key() {
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
fn a_resumed_run_says_where_it_stands_and_can_be_made_longer() {
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
    assert!(stderr.contains("going on after epoch 3 of 5, at 250 of 400 steps"), "{stderr}");
    let (refused, stderr) = said(&["--steps", "100"]);
    assert!(refused == 2 && stderr.contains("has already made 400 steps"), "{stderr}");
}

/// Kills: a changed configuration that is used without a word, a refusal without its exit code, and a flag that accepts
/// nothing.
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

/// Kills: parameters without documentation where users look.
#[test]
fn algos_explains_the_parameters_of_one_algorithm() {
    let output = epo(&["algos", "p3o"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let want = "# Penalty factor κ in the first epoch. Default: 20.0.\nalgo.kappa = 20.0\n";
    assert!(text.starts_with("p3o") && text.contains(want), "{text}");
    assert_eq!(code(&epo(&["algos", "p4o"]).output().unwrap()), 2);
}

#[test]
fn the_printed_configuration_is_one_that_can_be_read() {
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
fn a_run_keeps_its_physics() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).output().unwrap();
    let dir = folder(root.path());
    let hash = left(&trained, &dir).hash;
    let config = std::fs::read_to_string(dir.join("config.toml")).unwrap();
    assert!(config.contains("physics = \"fast\"\n"), "{config}");

    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let other = resume(&dir).args(["--physics", "published"]).output().unwrap();
    assert!(code(&other) == 2 && said(&other).contains("--physics"), "{other:?}");
    // a configuration of version 0.3 has no such key: then it was published
    std::fs::write(dir.join("config.toml"), config.replace("physics = \"fast\"\n", "")).unwrap();
    let other = resume(&dir).output().unwrap();
    assert_eq!(code(&other), 4, "{other:?}");
    assert!(said(&other).contains("made with fast physics, but `run.physics` is `published`"), "{other:?}");
    std::fs::write(dir.join("config.toml"), config).unwrap();
    assert_eq!(left(&resume(&dir).output().unwrap(), &dir).hash, hash, "nothing is lost");

    let path = root.path().join("published");
    let published = train_in(&path).args(["--set", "run.physics=published"]).output().unwrap();
    assert_ne!(left(&published, &folder(&path)).hash, hash);
    let state = |dir: &Path| {
        let newest = std::fs::read_dir(dir.join("checkpoint")).unwrap().map(|e| e.unwrap().path()).max();
        std::fs::read_to_string(newest.unwrap().join("state.json")).unwrap()
    };
    assert!(state(&dir).contains("\"physics\": \"fast\""), "{}", state(&dir));
    assert!(!state(&folder(&path)).contains("physics"), "the same bytes as in version 0.3");

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
    // a step so long that the policy is lost in the update, or only its noise, in the next epoch
    for (lr, says, evaluation) in [("1e38", "is NaN", 0), ("1e30", "environment 0 failed at step 50", 5)] {
        let path = root.path().join(lr);
        let mut command = train_in(&path);
        command.args(["--set", "train.kl_stop=false", "--set", &format!("train.lr={lr}")]);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(code(&output), 5, "{message}");
        assert!(message.contains("error: ") && message.contains(says), "{message}");
        assert_eq!(code(&resume(&folder(&path)).output().unwrap()), 5, "the same again");
        let output = epo(&["eval", "--episodes", "1"]).arg(folder(&path)).output().unwrap();
        assert_eq!(
            code(&output),
            evaluation,
            "the checkpoint is intact; with 1e30 its noise is infinite: {output:?}"
        );
    }
}

#[test]
fn a_run_of_another_version_is_said_and_its_configuration_still_usable() {
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
    assert_eq!(said(), [false; 3], "this version");
    let ours = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, ours.replacen(env!("CARGO_PKG_VERSION"), "0.0.9", 1)).unwrap();
    assert_eq!(said(), [true; 3], "resume, eval and report");
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

/// A run in the background that has added two rows to the record in `dir`.
fn in_background(mut command: Command, dir: &Path) -> Child {
    let rows = || std::fs::read_to_string(dir.join("progress.csv")).map_or(1, |text| text.lines().count());
    let before = rows();
    command.arg("--quiet"); // nobody reads the pipe before the end
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while rows() < before + 2 {
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// A run that takes far longer than a test.
fn train_for_ever_in(root: &Path) -> Command {
    let mut command = train_in(root);
    command.args(["--set", "run.steps=1e6"]);
    command
}

#[test]
fn a_folder_in_use_is_refused_and_nothing_is_written_twice() {
    let root = tempfile::tempdir().unwrap();
    let mut child = in_background(train_for_ever_in(root.path()), &folder(root.path()));
    let second = resume(&folder(root.path())).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(code(&second), 75, "{said}");
    assert!(said.contains(&format!("in use by process {}", child.id())), "{said}");
    let eval = epo(&["eval", "--episodes", "1"]).arg(folder(root.path())).output().unwrap();
    assert_eq!(code(&eval), 0, "the lock of a killed process is gone: {eval:?}");
    let rows = std::fs::read_to_string(folder(root.path()).join("progress.csv")).unwrap();
    let column = rows.lines().next().unwrap().split(',').position(|name| name == "Train/Epoch").unwrap();
    let epochs: Vec<&str> = rows.lines().skip(1).filter_map(|row| row.split(',').nth(column)).collect();
    let counted: Vec<String> = (0..epochs.len()).map(|n| n.to_string()).collect();
    assert_eq!(epochs, counted);
}

#[test]
fn a_folder_that_is_moved_stops_the_run_and_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let child = in_background(train_for_ever_in(root.path()), &folder(root.path()));
    let moved = root.path().join("moved");
    std::fs::rename(folder(root.path()), &moved).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(code(&ended), 74, "{said}");
    assert!(said.contains("was moved or replaced") && !folder(root.path()).exists(), "{said}");
    let again = in_background(resume(&moved), &moved);
    signal(&again, "HUP");
    assert_eq!(code(&again.wait_with_output().unwrap()), 75, "it continues where it was moved to");
}

#[test]
fn eval_plays_the_same_episodes_on_any_number_of_threads_and_knows_its_threshold() {
    let root = tempfile::tempdir().unwrap();
    let trained = train_in(root.path()).arg("--quiet").output().unwrap();
    assert!(trained.stderr.is_empty(), "--quiet: {trained:?}");
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
    assert_eq!(saved["policy"].as_str(), Some("sampled"), "the last one is at the top");
    let kept: Vec<_> =
        saved["evaluations"].as_array().unwrap().iter().map(|e| (&e["policy"], &e["seed"])).collect();
    assert_eq!(kept.len(), 4, "both policies for seeds 1 and 0: {kept:?}");
    let gate = epo(&["eval", "--max-cost", "nan"]).arg(&dir).output().unwrap();
    assert_eq!(code(&gate), 2, "a gate that compares with NaN would always pass");
}
