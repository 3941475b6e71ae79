//! Tests of `epo sweep --on slurm|ray` through the binary, without a cluster: small scripts stand in for Slurm's
//! commands, a small module for Ray. `tests/cluster/` has the tests with the real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const TINY: &str = "[base]\nrun.steps = 800\nrun.task = \"SafetyPointGoal1-v0\"\ntrain.steps_per_epoch = 200\n\
                    train.final_eval_episodes = 0\ntrain.envs = 4\ntrain.minibatch = 100\ntrain.passes = 1\n\
                    train.hidden = [8]\n[grid]\nrun.seed = [0, 1, 2]\n";

/// Stands in for `sbatch`: runs the tasks of an array one after another in the background. `refuse` in its folder makes
/// it refuse, with the text of that file. A job with a dependency waits for it and vanishes if it failed.
const SBATCH: &str = r#"#!/bin/bash
dir=$(dirname "$0")
echo "$*" >> "$dir/calls"
if [ -f "$dir/refuse" ]; then cat "$dir/refuse" >&2; exit 1; fi
job=$(( $(cat "$dir/last" 2>/dev/null || echo 0) + 1 )); echo $job > "$dir/last"
for a in "$@"; do
    case $a in --array=*) a=${a#--array=}; last=${a#*-}; last=${last%%%*};; --output=*) out=${a#--output=};;
        --dependency=*) needs=${a##*:};; *) script=$a;; esac
done
mkdir -p "$dir/queue"
for i in $(seq 0 ${last:-0}); do echo "$job|$job|${last:+$i}|PD|Priority|$script" > "$dir/queue/$job.$i"; done
(
    while [ -n "$needs" ] && [ ! -f "$dir/ended.$needs" ]; do sleep 0.05; done
    if [ -n "$needs" ] && [ "$(cat "$dir/ended.$needs")" != 0 ]; then rm -f "$dir/queue/$job."*; exit; fi
    for i in $(seq 0 ${last:-0}); do
        [ -f "$dir/queue/$job.$i" ] || continue
        echo "$job|$job|${last:+$i}|R|None|$script" > "$dir/queue/$job.$i"
        [ -n "$last" ] && export SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_JOB_ID=$job
        SLURMD_NODENAME=n1 SLURM_JOB_ID=$job bash "$script" >> "${out/\%a/$i}" 2>&1
        echo $? > "$dir/ended.$job"
        rm -f "$dir/queue/$job.$i"
    done
) < /dev/null > /dev/null 2>&1 &
echo $job
"#;

const SQUEUE: &str = r#"#!/bin/bash
dir=$(dirname "$0")
if [ -f "$dir/away" ]; then cat "$dir/away" >&2; exit 1; fi
# a script of the user may have another job name, so a question by name finds nothing here
case "$*" in *--name*) exit 0;; esac
cat "$dir"/queue/* 2>/dev/null
exit 0
"#;

const SCANCEL: &str = r#"#!/bin/bash
dir=$(dirname "$0")
echo "scancel $*" >> "$dir/calls"
for a in "$@"; do rm -f "$dir/queue/${a%_*}".*; done
"#;

const SCONTROL: &str = r#"#!/bin/bash
echo "scontrol $*" >> "$(dirname "$0")/calls"
exit 1
"#;

/// The part of [`SBATCH`] that starts a task.
const START: &str = r#"SLURMD_NODENAME=n1 SLURM_JOB_ID=$job bash "$script" >> "${out/\%a/$i}" 2>&1"#;

/// A folder with a sweep file, and with Slurm's commands in its subfolder `bin`.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new(more: &str) -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(site.bin()).unwrap();
        site.write_file(more);
        site
    }

    fn with_slurm(more: &str) -> Self {
        let site = Self::new(more);
        for (name, text) in
            [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("scontrol", SCONTROL)]
        {
            let path = site.bin().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        site
    }

    /// Replaces a part of `sbatch`.
    fn change_sbatch(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.bin().join("sbatch")).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.bin().join("sbatch"), text.replace(from, to)).unwrap();
    }

    /// Lets `sbatch` put the tasks into the queue and not start them.
    fn leave_tasks_in_the_queue(&self) {
        self.change_sbatch("(\n    while", "(\n exit\n while");
    }

    /// Replaces a part of the sweep file.
    fn change_file(&self, from: &str, to: &str) {
        let path = self.dir.path().join("s.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Returns the number of arrays that were submitted.
    fn arrays(&self) -> usize {
        self.calls().lines().filter(|line| line.contains("--array=")).count()
    }

    fn write_file(&self, more: &str) {
        fs::write(self.dir.path().join("s.toml"), format!("{TINY}{more}")).unwrap();
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("o")
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of("sweep", args)
    }

    /// Calls `epo sweep` or `epo tune`.
    fn command_of(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
        // bash and sleep are found, a Slurm of this machine is not
        let plain = self.dir.path().join("plain");
        if !plain.exists() {
            fs::create_dir(&plain).unwrap();
            for name in ["bash", "sh", "cat", "dirname", "seq", "sleep", "rm", "mkdir", "python3"] {
                let find = match name {
                    // the interpreter itself: what is in PATH may be a script that needs more commands
                    "python3" => "python3 -c 'import sys; print(sys.executable)'".to_owned(),
                    _ => format!("command -v {name}"),
                };
                let found = Command::new("sh").args(["-c", &find]).output().unwrap();
                let path = String::from_utf8(found.stdout).unwrap();
                std::os::unix::fs::symlink(path.trim(), plain.join(name)).unwrap();
            }
        }
        let path = format!("{}:{}", self.bin().display(), plain.display());
        command
            .args([name, if name == "repro" { "paper" } else { "s.toml" }])
            .args(if args.contains(&"--out") { &[][..] } else { &["--out", "o"] })
            .args(args)
            .current_dir(self.dir.path())
            .env("PATH", path);
        command.env_remove("RAY_ADDRESS").env_remove("SLURM_CONF");
        command
    }

    fn epo(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the sweep without an engine, and returns the hashes of its runs.
    fn local(&self) -> Vec<(String, String)> {
        let local = Command::new(env!("CARGO_BIN_EXE_epo"))
            .args(["sweep", "s.toml", "--out", "local", "--quiet"])
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(local.status.success(), "{}", text(&local.stderr));
        hashes(&self.dir.path().join("local"))
    }

    /// Calls `epo sweep --json` and returns its exit code and document.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let got = self.epo(&[args, &["--json", "--quiet"]].concat());
        let document = serde_json::from_slice(&got.stdout);
        (code(&got), document.unwrap_or_else(|e| panic!("{e}: {}{}", text(&got.stdout), text(&got.stderr))))
    }

    /// Fails unless the command ends with this exit code and a message of one line that has these parts.
    fn refuses(&self, args: &[&str], exit: i32, parts: &[&str]) -> String {
        let got = self.epo(args);
        let said = text(&got.stderr);
        assert_eq!(code(&got), exit, "{said}");
        let last = said.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}"));
        for part in parts {
            assert!(said.contains(part), "“{said}” does not say “{part}”");
        }
        last.to_owned()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.bin().join("calls")).unwrap_or_default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Returns the hash of the newest checkpoint of every run.
fn hashes(sweep: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for run in
        fs::read_dir(sweep.join("runs")).unwrap().flat_map(|kind| fs::read_dir(kind.unwrap().path()).unwrap())
    {
        let run = run.unwrap();
        let newest =
            fs::read_dir(run.path().join("checkpoint")).unwrap().map(|e| e.unwrap().path()).max().unwrap();
        let manifest: Value =
            serde_json::from_str(&fs::read_to_string(newest.join("manifest.json")).unwrap()).unwrap();
        found.push((run.file_name().into_string().unwrap(), manifest["hash"].as_str().unwrap().to_owned()));
    }
    found.sort();
    found
}

#[test]
fn without_slurm_or_its_controller_the_message_says_so_and_nothing_is_written() {
    let site = Site::new("");
    site.refuses(&["--on", "slurm"], 69, &["`squeue` is not on this machine", "--on local"]);
    assert!(!site.out().exists());
    let site = Site::with_slurm("");
    let away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n";
    fs::write(site.bin().join("away"), away).unwrap();
    site.refuses(
        &["--on", "slurm"],
        69,
        &["Unable to contact slurm controller", "is the Slurm controller running?"],
    );
    assert!(!site.out().exists());
    // what the commands of Slurm 22.05 say on a machine without slurm.conf
    let unknown = "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n\
                   squeue: fatal: Could not establish a configuration source\n";
    fs::write(site.bin().join("away"), unknown).unwrap();
    site.refuses(&["--on", "slurm"], 69, &["finds no configuration of Slurm", "SLURM_CONF", "--on local"]);
    assert!(!site.out().exists());
}

/// Fails if a refusal of `sbatch` is swallowed, leaves a job behind, or keeps the same command from working later.
#[test]
fn a_refused_request_is_named_and_the_same_command_continues() {
    let site = Site::with_slurm("");
    let refusal =
        "sbatch: error: Batch job submission failed: User's group not permitted to use this partition\n";
    fs::write(site.bin().join("refuse"), refusal).unwrap();
    let said = site.refuses(&["--on", "slurm", "--partition", "big"], 1, &["User's group not permitted"]);
    assert!(!said.contains("sbatch: error:"), "the prefix of Slurm is not repeated: {said}");
    assert!(!site.out().exists(), "a refusal leaves nothing behind");
    fs::remove_file(site.bin().join("refuse")).unwrap();
    let got = site.epo(&["--on", "slurm"]);
    assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
}

#[test]
fn tasks_that_can_never_start_are_cancelled_and_the_reason_is_named() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    site.change_sbatch("PD|Priority", "PD|PartitionTimeLimit");
    site.refuses(
        &["--on", "slurm", "--time", "99-0"],
        1,
        &["never start", "PartitionTimeLimit", "are cancelled"],
    );
    assert!(site.calls().contains("scancel --state=PENDING"), "{}", site.calls());
    assert!(fs::read_dir(site.bin().join("queue")).unwrap().next().is_none(), "a task is left in the queue");
}

#[test]
fn runs_of_slurm_are_those_of_a_local_sweep_and_the_status_follows_them() {
    let site = Site::with_slurm("[slurm]\ncpus = 2\npack = 2\n");
    let (exit, before) = site.json(&["--on", "slurm", "--status"]);
    assert_eq!((exit, &before["pending"], &before["done"]), (0, &3.into(), &0.into()), "{before}");
    let (exit, summary) = site.json(&["--on", "slurm", "--jobs", "7"]);
    assert_eq!((exit, &summary["done"], &summary["pending"]), (0, &3.into(), &0.into()), "{summary}");
    let calls = site.calls();
    let (check, array) = calls.split_once('\n').unwrap();
    assert!(check.contains("--job-name=epo-s-check") && check.contains("/check.txt"), "{calls}");
    assert!(array.contains("--array=0-1%7"), "three runs, two per task: {calls}");
    assert!(array.contains("--dependency=afterok:1 --kill-on-invalid-dep=yes"), "{calls}");
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let counts =
        ["planned", "done", "running", "queued", "failed", "pending"].map(|key| status[key].as_u64());
    assert_eq!(counts, [3, 3, 0, 0, 0, 0].map(Some), "{status}");
    let run = &status["runs"][0];
    assert_eq!(
        (run["state"].as_str(), &run["epoch"], &run["epochs"]),
        (Some("done"), &4.into(), &4.into()),
        "{run}"
    );
    assert!(
        run["engine_id"].is_null() && run["id"].as_str().unwrap().starts_with("epo-SafetyPointGoal1"),
        "{run}"
    );
    let on_slurm = hashes(&site.out());
    assert_eq!(on_slurm, site.local());
    assert_eq!(on_slurm.len(), 3);
    let script = text(&site.epo(&["--on", "slurm", "--print-script"]).stdout);
    assert!(script.contains("# all runs have ended: no array would be submitted"), "{script}");
    // nothing is left to submit
    assert_eq!(code(&site.epo(&["--on", "slurm"])), 0);
    assert_eq!(site.calls(), calls);
}

/// Fails if the array starts although the check failed, or if the reason stays in a log.
#[test]
fn a_node_without_the_library_is_found_before_the_array_starts() {
    let site = Site::with_slurm("");
    let got = site.command(&["--on", "slurm"]).env("MUJOCO_LIB_DIR", "/no/such/folder").output().unwrap();
    let said = text(&got.stderr);
    assert_eq!(code(&got), 69, "{said}");
    for part in
        ["no run was started", "node n1", "MuJoCo library cannot be opened", "/no/such/folder", "check.txt"]
    {
        assert!(said.contains(part), "“{said}” does not say “{part}”");
    }
    assert!(!site.out().join("runs").exists(), "a run was started");
    assert_eq!(code(&site.epo(&["--on", "slurm"])), 0, "with the library the same command continues");
}

/// Fails if a task on a bad node marks its run as failed, if the node keeps the tasks that still wait, or if the user is
/// not told.
#[test]
fn a_bad_node_costs_no_run_and_is_avoided() {
    let site = Site::with_slurm("");
    // the first four arrays find no library, although the check did: more than a run may fail otherwise
    let broken = "[ -n \"$last\" ] && [ $job -lt 6 ] && export MUJOCO_LIB_DIR=/no/such/folder\n(\n    while";
    site.change_sbatch("(\n    while", broken);
    // what scontrol says about an array with running tasks must not hide the message of the task
    fs::write(
        site.bin().join("scontrol"),
        SCONTROL.replace("exit 1", "echo 2_0-5: Job is no longer pending execution; echo 2_6-23: No error"),
    )
    .unwrap();
    let got = site.epo(&["--on", "slurm", "--sbatch=--exclude=n9"]);
    let said = text(&got.stderr);
    assert_eq!(code(&got), 0, "{}{said}", text(&got.stdout));
    assert!(site.out().join("slurm/bad-nodes/n1").exists());
    let calls = site.calls();
    assert!(calls.contains("scontrol update JobId=2 ExcNodeList=n9,n1"), "{calls}");
    assert!(calls.lines().last().unwrap().contains("--exclude=n9,n1"), "{calls}");
    assert_eq!(said.matches("node n1 cannot make the runs").count(), 1, "{said}");
    assert!(said.contains("the node is excluded (delete "), "{said}");
    assert_eq!(hashes(&site.out()).len(), 3);
}

/// Fails if a task that Slurm holds, because a node failed to start it, is waited for.
#[test]
fn a_task_that_slurm_holds_is_submitted_again() {
    let site = Site::with_slurm("");
    let held = format!(
        "if [ -n \"$last\" ] && [ $job = 2 ]; then echo \"2|2|$i|PD|launch failed requeued held|$script\" > \
         \"$dir/queue/2.$i\"; continue; fi\n{START}"
    );
    site.change_sbatch(START, &held);
    let got = site.epo(&["--on", "slurm"]);
    assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
    let calls = site.calls();
    assert!(calls.contains("scancel 2_0") && site.arrays() == 2, "{calls}");
    assert_eq!(hashes(&site.out()).len(), 3);
}

/// Fails if an upgrade of the program in the middle of a sweep excludes its nodes for good.
#[test]
fn a_node_with_another_version_gets_a_new_chance() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    let nodes = site.out().join("slurm/bad-nodes");
    fs::create_dir_all(&nodes).unwrap();
    fs::write(nodes.join("n7"), "node n7 cannot make the runs: no library").unwrap();
    let why = "node n8 cannot make the runs: its program has version 0.0.2, the plan was made by 0.0.1";
    fs::write(nodes.join("n8"), why).unwrap();
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    assert!(site.calls().contains("--exclude=n7 ") && !nodes.join("n8").exists(), "{}", site.calls());
}

/// Fails if a refusal while other tasks are in the queue is invisible with `--quiet`.
#[test]
fn a_refusal_is_printed_even_with_quiet() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    site.change_file("[0, 1, 2]", "[0, 1, 2, 3]");
    fs::write(site.bin().join("refuse"), "sbatch: error: invalid partition specified: big").unwrap();
    let got = site.epo(&["--on", "slurm", "--detach", "--quiet", "--partition", "big"]);
    let said = text(&got.stderr);
    assert!(
        said.starts_with("Slurm has not accepted all runs") && said.contains("partition specified: big"),
        "{said}"
    );
    assert!(code(&got) == 75 && said.contains("1 of them not submitted"), "{said}");
}

/// Fails if a refusal does not name the nodes that were excluded.
#[test]
fn a_refusal_names_the_excluded_nodes() {
    let site = Site::with_slurm("");
    fs::create_dir_all(site.out().join("slurm/bad-nodes")).unwrap();
    fs::write(site.out().join("slurm/bad-nodes/n7"), "node n7 cannot make the runs: no library").unwrap();
    fs::write(site.bin().join("refuse"), "sbatch: error: Requested node configuration is not available")
        .unwrap();
    site.refuses(&["--on", "slurm"], 1, &["not available (excluded, because they cannot make the runs: n7;"]);
}

/// Fails if a run whose tasks die at once is submitted for ever, is tried again by the next command, or if its message
/// names a log that does not exist.
#[test]
fn a_run_whose_tasks_die_at_once_is_given_up_with_the_log_of_its_task() {
    let site = Site::with_slurm("");
    site.change_file("[0, 1, 2]", "[0]");
    let dies =
        format!("if [ -n \"$last\" ]; then echo 'oom_kill event' >> \"${{out/\\%a/$i}}\"; else {START}; fi");
    site.change_sbatch(START, &dies);
    let (exit, summary) = site.json(&["--on", "slurm"]);
    let run = &summary["runs"][0];
    assert_eq!((exit, run["state"].as_str()), (1, Some("failed")), "{summary}");
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("ended without a new epoch") && message.contains("oom_kill event"), "{message}");
    let log = run["log"].as_str().unwrap();
    assert!(log.ends_with("slurm/0003/log/0.txt") && Path::new(log).exists(), "{log}");
    assert_eq!(site.arrays(), 3);
    let (exit, again) = site.json(&["--on", "slurm"]);
    assert_eq!((exit, again["runs"][0]["log"].as_str(), site.arrays()), (1, Some(log), 3), "{again}");
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    assert_eq!((&status["failed"], &status["runs"][0]["message"]), (&1.into(), &message.into()), "{status}");
    fs::write(site.bin().join("sbatch"), SBATCH).unwrap();
    assert_eq!(code(&site.epo(&["--on", "slurm", "--retry-failed"])), 0);
}

/// Fails if a new array begins to count from zero: the run is then continued for ever.
#[test]
fn retries_are_counted_over_all_arrays() {
    let site = Site::with_slurm("");
    site.change_file("[0, 1, 2]", "[0]");
    site.change_file("run.steps = 800", "run.steps = 1_000_000");
    // every task gets SIGTERM when its run has made some epochs; the run saves and ends with 75
    let stop = "for n in $(seq 200); do sleep 0.1; set -- \"$dir\"/../o/runs/*/*/checkpoint/*; [ -d \"${3:-}\" ] && break; done";
    let limited = format!("{{ {START} & pid=$!; sleep 1; {stop}; kill -TERM $pid; wait $pid; wait $pid; }}");
    site.change_sbatch(START, &format!("if [ -n \"$last\" ]; then {limited}; else {START}; fi"));
    let (exit, summary) = site.json(&["--on", "slurm", "--retries", "1"]);
    let run = &summary["runs"][0];
    assert_eq!((exit, run["state"].as_str()), (1, Some("failed")), "{summary}");
    assert!(run["message"].as_str().unwrap().contains("not finished after 2 starts (--retries 1)"), "{run}");
    assert_eq!(site.arrays(), 2, "{}", site.calls());
    assert_eq!(site.json(&["--on", "slurm", "--retries", "1"]).0, 1);
    assert_eq!(site.arrays(), 2, "a failed run is not submitted");
}

/// Fails if `--detach` claims that runs are in Slurm which it refused, or if two arrays have together more tasks at once
/// than `--jobs` allows.
#[test]
fn what_slurm_refuses_of_a_large_sweep_is_named_and_arrays_share_the_number_of_tasks() {
    let site = Site::with_slurm("");
    let seeds: Vec<String> = (0..1001).map(|seed| seed.to_string()).collect();
    site.change_file("[0, 1, 2]", &format!("[{}]", seeds.join(", ")));
    site.leave_tasks_in_the_queue();
    let limit = "[ \"$(cat \"$dir/last\")\" = 2 ] && [ ! -f \"$dir/room\" ] && { echo 'job limit' >&2; exit 1; }\njob=";
    site.change_sbatch("job=", limit);
    let got = site.epo(&["--on", "slurm", "--jobs", "5", "--detach"]);
    let said = text(&got.stderr);
    assert_eq!(code(&got), 75, "{said}");
    assert!(said.contains("1 of them not submitted") && said.contains("job limit"), "{said}");
    fs::write(site.bin().join("room"), "").unwrap();
    let got = site.epo(&["--on", "slurm", "--jobs", "5", "--detach"]);
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    let last = site.calls().lines().last().unwrap().to_owned();
    assert!(last.contains("--array=0-0%5 ") && last.contains("--dependency=afterok:3,afterany:2 "), "{last}");
}

/// Fails if a detached user never hears why no run starts.
#[test]
fn the_status_says_why_no_run_starts() {
    let site = Site::with_slurm("");
    let got = site
        .command(&["--on", "slurm", "--detach"])
        .env("MUJOCO_LIB_DIR", "/no/such/folder")
        .output()
        .unwrap();
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    let begun = std::time::Instant::now();
    while fs::read_dir(site.bin().join("queue")).unwrap().next().is_some() {
        assert!(begun.elapsed().as_secs() < 60, "the check has not ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let status = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(status.contains("the check of a node failed") && status.contains("/no/such/folder"), "{status}");
    // a sweep of more than 1000 tasks has several submissions, and the check belongs to the first
    fs::create_dir(site.out().join("slurm/0002")).unwrap();
    let status = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(status.contains("the check of a node failed"), "{status}");
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    site.change_sbatch("PD|Priority", "PD|PartitionTimeLimit");
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let problem = status["problems"][0].as_str().unwrap();
    assert!(problem.contains("will never start") && problem.contains("PartitionTimeLimit"), "{status}");
    let table = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(table.contains("| PartitionTimeLimit | 0 of 4 |"), "{table}");
}

/// Fails if a full queue, for which `sbatch` waits, keeps the command from stopping.
#[test]
fn a_command_stops_while_sbatch_waits() {
    let site = Site::with_slurm("");
    site.change_sbatch("job=", "exec sleep 60\njob=");
    let waiting =
        site.command(&["--on", "slurm"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while site.calls().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let begun = std::time::Instant::now();
    let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", waiting.id())]).status().unwrap();
    let got = waiting.wait_with_output().unwrap();
    assert!(kill.success() && begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    let said = text(&got.stderr);
    assert!(code(&got) == 75 && said.contains("3 of them not submitted"), "{said}");
}

/// Fails if the waiting command says that Slurm continues the runs although they were cancelled.
#[test]
fn a_command_that_waits_notices_a_cancel() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    let waiting =
        site.command(&["--on", "slurm"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while site.arrays() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(code(&site.epo(&["--on", "slurm", "--cancel"])), 0);
    let got = waiting.wait_with_output().unwrap();
    let said = text(&got.stderr);
    assert!(code(&got) == 75 && said.contains("the sweep was cancelled"), "{said}");
    assert!(!said.contains("continues them") && site.arrays() == 1, "{said}");
}

/// Fails if a sweep that is cancelled while `sbatch` works stays in the queue, also with `--detach`.
#[test]
fn tasks_that_are_submitted_during_a_cancel_are_cancelled() {
    for detach in [&[][..], &["--detach"]] {
        let site = Site::with_slurm("");
        site.leave_tasks_in_the_queue();
        let wait = "for n in $(seq 600); do [ -f \"$dir/go\" ] && break; sleep 0.05; done\njob=";
        site.change_sbatch("job=", wait);
        let mut command = site.command(&[&["--on", "slurm"], detach].concat());
        let waiting = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while site.calls().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(code(&site.epo(&["--on", "slurm", "--cancel"])), 0);
        fs::write(site.bin().join("go"), "").unwrap();
        let got = waiting.wait_with_output().unwrap();
        let said = text(&got.stderr);
        assert!(said.contains("the sweep was cancelled"), "{said}");
        assert!(fs::read_dir(site.bin().join("queue")).unwrap().next().is_none(), "{}", site.calls());
    }
}

/// Fails if `sbatch` submits an array without saying so, and its tasks lose their folder or are submitted twice.
#[test]
fn an_array_that_slurm_accepted_without_an_answer_is_found_again() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    let silent = "&\nif [ -n \"$last\" ]; then echo 'Socket timed out' >&2; exit 1; fi\necho $job";
    site.change_sbatch("&\necho $job", silent);
    site.refuses(&["--on", "slurm", "--detach"], 69, &["Socket timed out"]);
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    assert_eq!(site.arrays(), 1, "{}", site.calls());
    assert!(!site.calls().contains("scancel"), "the array waits for its check: {}", site.calls());
    assert_eq!(site.json(&["--on", "slurm", "--status"]).1["queued"], 3);
}

/// Fails if `epo repro --detach` makes a report although no run has ended.
#[test]
fn a_detached_experiment_has_no_report_yet() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    let small = ["--steps", "20000", "--seeds", "1", "--tasks", "SafetyPointGoal1-v0", "--algos", "epo"];
    let mut command = site.command_of("repro", &["--on", "slurm", "--detach", "--json"]);
    let got = command.args(small).output().unwrap();
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    let document: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert!(document["report"].is_null() && document["sweep"]["pending"] == 1, "{document}");
}

/// Fails if `--status --watch` cannot be ended while the controller is away.
#[test]
fn a_status_that_waits_for_the_controller_stops() {
    let site = Site::with_slurm("");
    let mut command = site.command(&["--on", "slurm", "--status", "--watch"]);
    let mut watching = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut table = std::io::BufReader::new(watching.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut table, &mut String::new()).unwrap();
    fs::write(site.bin().join("away"), "Unable to contact slurm controller").unwrap();
    let mut said = std::io::BufReader::new(watching.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    assert!(Command::new("kill").arg(watching.id().to_string()).status().unwrap().success());
    for _ in 0..100 {
        if watching.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    watching.kill().unwrap();
    panic!("it has not stopped");
}

#[test]
fn a_changed_sweep_file_is_noticed_while_it_runs() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    let got = site.epo(&["--on", "slurm", "--detach"]);
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    assert!(text(&got.stderr).contains("--cancel ends them"), "{}", text(&got.stderr));
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    assert_eq!((&status["queued"], &status["runs"][2]["engine_id"]), (&3.into(), &"2_2".into()), "{status}");
    site.change_file("[0, 1, 2]", "[1, 2, 3, 4]");
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let counts = ["planned", "queued", "pending", "not_in_plan"].map(|key| status[key].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 2, 1], "{status}");
    let table = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(table.contains("1 further run in the queue that the sweep file does not have"), "{table}");
    // only the new runs are submitted
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    assert!(site.calls().lines().last().unwrap().contains("--array=0-1 "), "{}", site.calls());
    let cancelled = text(&site.epo(&["--on", "slurm", "--cancel"]).stdout);
    assert!(cancelled.starts_with("5 runs cancelled"), "{cancelled}");
    assert!(fs::read_dir(site.bin().join("queue")).unwrap().next().is_none(), "a task is left in the queue");
}

#[test]
fn the_script_is_printed_without_a_cluster_and_can_be_replaced() {
    let site = Site::new("[slurm]\ntime = \"4:00:00\"\nsetup = \"module load gcc\"\n");
    let args = ["--on", "slurm", "--print-script", "--partition", "big", "--sbatch=--qos=high"];
    let script = text(&site.epo(&args).stdout);
    for line in [
        "#!/bin/bash",
        "#SBATCH --time=4:00:00",
        "#SBATCH --partition=big",
        "#SBATCH --qos=high",
        "module load gcc",
    ] {
        assert!(script.lines().any(|l| l == line), "no line `{line}` in\n{script}");
    }
    assert!(script.contains("# sbatch --array=0-2 --output="), "{script}");
    assert!(!site.out().exists(), "something was written");
    let site = Site::with_slurm("");
    let own = script.replace("module load gcc", "echo rules of the site");
    fs::write(site.dir.path().join("own.sh"), own).unwrap();
    let got = site.epo(&["--on", "slurm", "--script", "own.sh"]);
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    let log = fs::read_to_string(site.out().join("slurm/0001/log/2.txt")).unwrap();
    assert!(log.contains("rules of the site") && log.contains("1 of 1 done"), "{log}");
}

#[test]
fn wrong_options_of_an_engine_are_refused_with_2() {
    let site = Site::new("");
    site.refuses(&["--partition", "big"], 2, &["--partition needs another engine: add `--on slurm`"]);
    site.refuses(
        &["--on", "slurm", "--storage", "/x"],
        2,
        &["--storage needs another engine: add `--on ray`"],
    );
    site.refuses(&["--on", "ray", "--time", "1:00"], 2, &["--time needs another engine: add `--on slurm`"]);
    site.refuses(&["--on", "ray", "--cancel"], 2, &["`--on ray` has no queue: press Ctrl-C"]);
    site.refuses(&["--cpus", "2"], 2, &["`--on slurm` or `--on ray`"]);
    site.write_file("[slurm]\ntiem = \"1:00\"\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.tiem`; did you mean `slurm.time`?"]);
    site.write_file("[slurm]\nzzz = 1\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.zzz`; the keys of `[slurm]` are ", ", time"]);
    fs::write(site.dir.path().join("s.toml"), [b'#', 0xff]).unwrap();
    site.refuses(&[], 2, &["cannot read s.toml", "UTF-8"]);
    site.write_file("[slurm]\ntime = \"2:00\"\n");
    site.refuses(&["--on", "slurm"], 2, &["slurm.grace is 120 s"]);
    site.write_file("[ray]\ncpus = 0\n");
    site.refuses(&["--on", "ray"], 2, &["ray.cpus must be a whole number of at least 1, not 0"]);
    assert!(!site.out().exists());
}

/// A run folder on a cluster where the task folder is missing, and a task that does not exist.
#[test]
fn a_task_without_its_folder_says_what_is_shared() {
    let dir = tempfile::tempdir().unwrap();
    let work = |task: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
        command.args(["work", "nowhere/slurm/0001", "--task", task]).current_dir(dir.path()).output().unwrap()
    };
    for task in ["0", "check"] {
        let got = work(task);
        assert_eq!(code(&got), 69, "{}", text(&got.stderr));
        assert!(text(&got.stderr).contains("a file system that all nodes share"), "{}", text(&got.stderr));
    }
    assert_eq!(code(&work("first")), 2);
}

/// Writes a module `ray` for Python into the folder, and returns the folder.
fn fake_ray(site: &Site, text: &str) -> PathBuf {
    let modules = site.dir.path().join("modules");
    fs::create_dir_all(modules.join("ray")).unwrap();
    fs::write(modules.join("ray/__init__.py"), text).unwrap();
    modules
}

#[test]
fn without_ray_its_cluster_or_its_storage_the_message_says_so() {
    let site = Site::new("[ray]\npython = \"/no/such/python\"\n");
    site.refuses(&["--on", "ray"], 69, &["there is no `/no/such/python`", "a Python with the package ray"]);
    site.write_file("");
    let said = |modules: &Path, args: &[&str], address: Option<&str>| {
        let mut command = site.command(&[&["--on", "ray"], args].concat());
        command.env("PYTHONPATH", modules);
        address.map(|address| command.env("RAY_ADDRESS", address));
        let got = command.output().unwrap();
        (code(&got), text(&got.stderr))
    };
    let none = fake_ray(&site, "raise ImportError('no ray here')\n");
    let (exit, message) = said(&none, &[], None);
    assert!(
        exit == 69 && message.contains("this Python has no Ray") && message.contains("pip install ray"),
        "{message}"
    );
    let ray = fake_ray(&site, "def init(**_):\n    raise ConnectionError('nobody home')\n");
    let (exit, message) = said(&ray, &[], Some("127.0.0.1:1"));
    assert!(exit == 69 && message.contains("no Ray cluster answers at 127.0.0.1:1"), "{message}");
    let (exit, message) = said(&ray, &[], None);
    assert!(
        exit == 69 && message.contains("set RAY_ADDRESS") && message.contains("nobody home"),
        "{message}"
    );
    let (exit, message) = said(&ray, &["--storage", "/proc/epo"], None);
    assert!(exit == 74 && message.contains("the storage /proc/epo cannot be written"), "{message}");
    let (exit, message) = said(&ray, &["--storage", "no-such-protocol://x"], None);
    assert!((exit == 69 || exit == 2) && message.contains("no-such-protocol://x"), "{message}");
    assert!(!site.out().exists(), "a refusal leaves nothing behind");
}

/// Fails if the status of a sweep through a storage says that nothing happens: the run folders are on the nodes.
#[test]
fn the_status_of_ray_shows_runs_that_are_on_other_machines() {
    let site = Site::new("");
    site.change_file("run.steps = 800", "run.steps = 24_000");
    site.change_file("[0, 1, 2]", "[0]");
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let mut command = site.command(&["--on", "ray", "--quiet", "--storage", "storage"]);
    let mut waiting = command.env("PYTHONPATH", &modules).stdout(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    loop {
        let (_, status) = site.json(&["--on", "ray", "--status"]);
        if status["running"] == 1 && status["runs"][0]["epoch"].as_u64() >= Some(1) {
            assert!(status["runs"][0]["engine_id"].is_null(), "{status}");
            break;
        }
        let over = waiting.try_wait().unwrap();
        assert!(over.is_none() && begun.elapsed().as_secs() < 60, "{over:?} {status}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(!site.out().join("runs").exists());
    assert!(waiting.wait().unwrap().success());
    let (_, status) = site.json(&["--on", "ray", "--status"]);
    assert_eq!((&status["done"], &status["running"]), (&1.into(), &0.into()), "{status}");
}

/// Fails if Ray starts a run through a storage that a local sweep makes at the same time: its folder would be deleted.
#[test]
fn ray_with_a_storage_waits_for_a_local_sweep() {
    let site = Site::new("");
    site.change_file("run.steps = 800", "run.steps = 8000");
    site.change_file("[0, 1, 2]", "[0]");
    let mut local = site.command(&["--quiet"]).stdout(Stdio::null()).spawn().unwrap();
    while !site.out().join("runs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // there is no Ray, so it would fail if it started the run
    let got = site.epo(&["--on", "ray", "--storage", "storage"]);
    assert!(local.wait().unwrap().success());
    let said = text(&got.stderr);
    assert!(code(&got) == 0 && said.contains("waiting for the runs of another process"), "{said}");
}

/// Fails if the reason why a task on a node ended is lost.
#[test]
fn a_full_disk_of_a_node_of_ray_is_named() {
    let site = Site::new("");
    let program = site.dir.path().join("full");
    let script =
        "#!/bin/sh\ncase \"$*\" in *check*) exit 0;; esac\necho 'error: no space left on device'\nexit 74\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let mut command = site.command(&["--on", "ray", "--command", program.to_str().unwrap()]);
    let got = command.env("PYTHONPATH", &modules).output().unwrap();
    let said = text(&got.stderr);
    assert!(code(&got) == 74 && said.contains("no space left on device"), "{said}");
}

/// Fails if a search cannot be cancelled, or if a refusal leaves its folder behind.
#[test]
fn a_search_on_slurm_is_shown_and_cancelled() {
    let site = Site::with_slurm("");
    site.change_file(
        "[grid]\nrun.seed = [0, 1, 2]\n",
        "[tune]\ntrials = 2\nseeds = [0]\n[space]\ntrain.lr = [1e-3, 1e-4]\n",
    );
    let tune = |args: &[&str]| site.command_of("tune", &[&["--on", "slurm"], args].concat());
    fs::write(site.bin().join("refuse"), "sbatch: error: invalid partition").unwrap();
    let refused = tune(&[]).output().unwrap();
    assert_eq!((code(&refused), site.out().exists()), (1, false), "{}", text(&refused.stderr));
    fs::remove_file(site.bin().join("refuse")).unwrap();
    site.leave_tasks_in_the_queue();
    let waiting = tune(&[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while site.arrays() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let status = tune(&["--status"]).output().unwrap();
    assert!(
        text(&status.stdout).contains(" queued, 0 failed"),
        "{}{}",
        text(&status.stdout),
        text(&status.stderr)
    );
    let cancelled = text(&tune(&["--cancel"]).output().unwrap().stdout);
    assert!(cancelled.contains("cancelled; those that were running save first"), "{cancelled}");
    let got = waiting.wait_with_output().unwrap();
    assert_eq!(code(&got), 75, "{}", text(&got.stderr));
    assert!(text(&got.stderr).contains("the search is not finished"), "{}", text(&got.stderr));
}

/// Fails if a round of a search forgets that the search was cancelled.
#[test]
fn a_search_that_is_cancelled_between_two_rounds_ends() {
    let site = Site::with_slurm("");
    site.change_file(
        "[grid]\nrun.seed = [0, 1, 2]\n",
        "[tune]\ntrials = 1\nseeds = [0]\nrungs = [4000]\nmethod = \"random\"\n[space]\ntrain.lr = [1e-3, 1e-4]\n",
    );
    site.change_file("run.steps = 800", "run.steps = 5000");
    // the first round is cancelled by its task at the very end
    let cancel = format!("{START}; code=$?; [ $job = 2 ] && > \"$dir/../o/slurm/cancelled\"; (exit $code)");
    site.change_sbatch(START, &cancel);
    let tune = || site.command_of("tune", &["--on", "slurm"]).output().unwrap();
    let got = tune();
    assert_eq!((code(&got), site.arrays()), (75, 1), "{}{}", text(&got.stderr), site.calls());
    let got = tune();
    assert_eq!((code(&got), site.arrays()), (0, 2), "{}{}", text(&got.stderr), site.calls());
    let status = site.command_of("tune", &["--on", "slurm", "--status", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&document["planned"], &document["done"]), (&1.into(), &1.into()), "{document}");
}

/// Fails if a run that was interrupted on a node is lost or restarted, if its folder does not arrive from the storage,
/// or if something is left in the storage.
#[test]
fn runs_of_ray_are_those_of_a_local_sweep_with_and_without_a_storage() {
    let site = Site::new("");
    let file = fs::read_to_string(site.dir.path().join("s.toml")).unwrap();
    // long enough to be interrupted
    let file = file.replace("run.steps = 800", "run.steps = 8000").replace("[0, 1, 2]", "[0, 1]");
    fs::write(site.dir.path().join("s.toml"), file + "[ray]\nsync = 1\n").unwrap();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let want = site.local();
    for storage in [None, Some("storage")] {
        let out = if storage.is_some() { "far" } else { "near" };
        let mut command = site.command(&["--on", "ray", "--quiet", "--json", "--out", out]);
        command.args(storage.iter().flat_map(|path| ["--storage", path]));
        command.env("PYTHONPATH", &modules).env("FAKE_RAY_STOP", "0.8");
        let got = command.output().unwrap();
        assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
        let out = site.dir.path().join(out);
        assert_eq!(hashes(&out), want, "storage: {storage:?}");
        for (run, _) in &want {
            let rows =
                fs::read_to_string(out.join("runs/EPO-{SafetyPointGoal1-v0}").join(run).join("progress.csv"));
            assert_eq!(rows.unwrap().lines().count(), 41, "the header and 40 epochs, each once");
            assert!(out.join("journal").join(run).join("done.json").is_file());
        }
        let again =
            site.command(&["--on", "ray", "--quiet", "--out", out.to_str().unwrap()]).output().unwrap();
        assert_eq!(code(&again), 0, "nothing is left to do, so no Ray is needed: {}", text(&again.stderr));
    }
    let left: Vec<_> = fs::read_dir(site.dir.path().join("storage"))
        .unwrap()
        .flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
