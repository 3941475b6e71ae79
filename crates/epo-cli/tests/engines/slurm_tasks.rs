//! Slurm: tasks that fail, and nodes that cannot make the runs.

use std::fs;
use std::path::Path;

use crate::site::{SBATCH, SCONTROL, START, Site, code, hashes, text};

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
