//! Slurm: status, cancel, and a sweep or a search that changes while it is watched.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::site::{START, Site, code, text};

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

/// Fails if Slurm's accounting knows how the task of an unfinished run ended, and the status does not say it.
#[test]
fn the_status_says_how_the_last_task_of_a_run_ended() {
    let site = Site::with_slurm("");
    site.leave_tasks_in_the_queue();
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    let sacct = "#!/bin/bash\necho \"sacct $*\" >> \"$(dirname \"$0\")/calls\"\n\
                 echo '2_0|OUT_OF_MEMORY'; echo '2_1|CANCELLED by 0'; echo '2_[2]|PENDING'\n";
    site.write_command("sacct", sacct);
    assert!(site.json(&["--on", "slurm", "--status"]).1["runs"][0]["message"] == "Priority");
    assert!(!site.calls().contains("sacct"), "all runs are in the queue: {}", site.calls());
    for task in 0..3 {
        fs::remove_file(site.bin().join(format!("queue/2.{task}"))).unwrap();
    }
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let messages: Vec<_> = (0..3).map(|run| status["runs"][run]["message"].as_str()).collect();
    assert_eq!(
        messages,
        [Some("task 2_0 ended: OUT_OF_MEMORY"), Some("task 2_1 ended: CANCELLED by 0"), None],
        "{status}"
    );
    assert!(site.calls().contains("--jobs=2\n"), "{}", site.calls());
    let table = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(table.contains("| task 2_0 ended: OUT_OF_MEMORY  | 0 of 4 |"), "{table}");
    // a site without accounting
    site.write_command("sacct", "#!/bin/bash\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n");
    let (exit, status) = site.json(&["--on", "slurm", "--status"]);
    assert!(exit == 0 && status["runs"][0]["message"].is_null(), "{status}");
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
