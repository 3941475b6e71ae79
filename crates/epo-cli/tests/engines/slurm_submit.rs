//! Slurm: what is submitted, and what Slurm refuses.

use std::fs;
use std::process::{Command, Stdio};

use crate::site::{Site, code, hashes, text};

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
