//! Tests of `epo report` through the binary: the files that it writes, and its messages about folders that it cannot use.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn report(dir: &Path, runs: &[&str]) -> Output {
    let args = [&["report"], runs, &["--out", "out"]].concat();
    Command::new(env!("CARGO_BIN_EXE_epo")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(dir: &Path, name: &str, algo: &str, seed: u64, rows: &str) {
    let folder = dir.join(name);
    fs::create_dir_all(&folder).unwrap();
    let config =
        format!("[run]\ntask = \"SafetyPointGoal1-v0\"\nalgo = \"{algo}\"\nseed = {seed}\nlimit = 25.0\n");
    fs::write(folder.join("config.toml"), config).unwrap();
    fs::write(folder.join("progress.csv"), format!("Metrics/EpRet,Metrics/EpCost,TotalEnvSteps\n{rows}"))
        .unwrap();
}

fn three_seeds(dir: &Path) {
    for seed in 0..3 {
        run(
            dir,
            &format!("runs/epo-{seed}"),
            "epo",
            seed,
            &format!("0,60,1000000\n{},20,2000000\n", 20 + seed),
        );
        run(
            dir,
            &format!("runs/ppo-{seed}"),
            "ppo",
            seed,
            &format!("0,60,1000000\n{},50,2000000\n", 30 + seed),
        );
    }
}

#[test]
fn a_report_holds_figures_tables_and_one_page_that_needs_no_network() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    let got = report(dir.path(), &["runs"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let out = dir.path().join("out");
    for file in [
        "figures/SafetyPointGoal1-v0.svg",
        "figures/SafetyPointGoal1-v0.png",
        "curves/SafetyPointGoal1-v0.csv",
        "tables/table1-final.md",
        "tables/table1-final.csv",
        "tables/table1-final.tex",
        "tables/table2-violations.md",
        "tables/table3-scores.csv",
        "tables/table4-beats.tex",
        "report.md",
    ] {
        assert!(out.join(file).metadata().is_ok_and(|m| m.len() > 0), "{file}");
    }
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    for remote in ["http://", "https://", "src=", "@import", "url(", "<script ", "<link", "fetch("] {
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(remote);
        assert!(!found, "the page loads something from a network: {remote}");
    }
    let stdout = text(&got.stdout);
    assert!(stdout.contains("| SafetyPointGoal1-v0 | EPO | 3 | 21.00 ± 1.00 |"), "{stdout}");
    assert!(stdout.contains("With 3 seeds no difference"), "the caveat about few seeds is missing: {stdout}");
    // The same runs must give the same bytes.
    let first = fs::read(out.join("index.html")).unwrap();
    report(dir.path(), &["runs"]);
    assert_eq!(fs::read(out.join("index.html")).unwrap(), first);
}

/// This test fails if figures of a task that is not in the new report are kept, or if the clean-up removes
/// other files.
#[test]
fn a_second_report_removes_the_files_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    assert!(report(dir.path(), &["runs"]).status.success());
    let out = dir.path().join("out");
    let old = out.join("figures/SafetyPointGoal1-v0.svg");
    assert!(old.exists());
    for name in ["out/figures/mine.svg", "outside.txt"] {
        fs::write(dir.path().join(name), "mine").unwrap();
    }
    let list = fs::read_to_string(out.join("files.txt")).unwrap();
    fs::write(out.join("files.txt"), format!("../outside.txt\n{list}")).unwrap();
    let config = dir.path().join("runs/epo-0/config.toml");
    let other = fs::read_to_string(&config).unwrap().replace("PointGoal1", "CarGoal1");
    fs::write(config, other).unwrap();
    assert!(report(dir.path(), &["runs/epo-0"]).status.success());
    assert!(!old.exists() && out.join("figures/SafetyCarGoal1-v0.svg").exists());
    assert!(out.join("figures/mine.svg").exists() && dir.path().join("outside.txt").exists());
}

/// The path of a run folder of version 0.3.0 that is part of the repository.
fn old_run() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../epo-lab/tests/data/run-0.3.0")
}

/// This test fails if the reader needs data that only newer folders have, if the evaluation is left out, or if
/// the text says "1 runs".
#[test]
fn a_run_folder_of_version_0_3_0_is_reported_with_its_evaluation() {
    let dir = tempfile::tempdir().unwrap();
    let got = report(dir.path(), &[old_run().to_str().unwrap()]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(text(&got.stderr).contains("1 run in out/index.html"), "{}", text(&got.stderr));
    let stdout = text(&got.stdout);
    assert!(stdout.contains("Cost, mean action") && !stdout.contains("sampled action |"), "{stdout}");
    let out = dir.path().join("out");
    let csv = fs::read_to_string(out.join("tables/table6-evaluation.csv")).unwrap();
    let (header, row) = csv.split_once('\n').unwrap();
    let cell = |name: &str| {
        let at = header.split(',').position(|n| n == name).unwrap_or_else(|| panic!("{name}: {header}"));
        row.trim().split(',').nth(at).unwrap().parse::<f64>().unwrap()
    };
    assert_eq!((cell("cost_training_mean"), cell("cost_mean_action_mean")), (69.3125, 0.0));
    assert!((cell("return_mean_action_mean") + 11.866737967068985).abs() < 1e-12);
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    for part in ["9fde6cdf25df", "0.3.0", "KL divergence", "μ (Penalty/Mu)", "prefers-color-scheme:dark"] {
        assert!(page.contains(part), "the page has no {part}");
    }
    assert!(!page.contains("The band"), "the page describes a band, but one seed has none");
    assert!(out.join("figures/plane/SafetyPointGoal1-v0.svg").is_file());
    assert!(
        !out.join("figures/overview.svg").exists(),
        "a figure of all tasks was written for a single task"
    );
}

/// This test fails if the names of two tasks share a file, or if a name leads out of the folder or is too long. It also
/// fails if control characters reach the terminal or the tables.
#[test]
fn dangerous_task_names_are_made_safe() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(300);
    let tasks =
        ["A/B", "A_B", "overview", "../../up", &long, "=1+1", "<script>alert(1)</script>", "\\u001b[2J"];
    for (i, task) in tasks.iter().enumerate() {
        let name = format!("runs/{i}");
        run(dir.path(), &name, "epo", 0, "0,60,1000000\n1,20,2000000\n");
        let config = dir.path().join(name).join("config.toml");
        let text = fs::read_to_string(&config).unwrap().replace("SafetyPointGoal1-v0", task);
        fs::write(config, text).unwrap();
    }
    let got = report(dir.path(), &["runs"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let count = |folder: &str| fs::read_dir(dir.path().join("out").join(folder)).unwrap().count();
    assert_eq!(count("curves"), tasks.len());
    assert_eq!(count("figures/plane"), 2 * tasks.len());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a file was written outside of `out`");
    let said = text(&got.stdout) + &text(&got.stderr);
    assert!(!said.contains('\u{1b}') && !said.contains("<script"), "{said}");
    let page = fs::read_to_string(dir.path().join("out/index.html")).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "only the two scripts of the page itself");
    let csv = fs::read_to_string(dir.path().join("out/tables/table1-final.csv")).unwrap();
    assert!(csv.contains("\n'=1+1,"), "{csv}");
}

/// This test fails if reading blocks on a FIFO or never ends on a device.
#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    let fifo = dir.path().join("runs/epo-0/progress.csv");
    fs::remove_file(&fifo).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("runs/epo-1/eval.json")).unwrap();
    let got = report(dir.path(), &["runs"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let said = text(&got.stderr);
    assert!(said.contains("progress.csv cannot be read: it is not a regular file"), "{said}");
    assert!(said.contains("eval.json cannot be read: it is not a regular file"), "{said}");
    assert!(said.contains("5 runs in"), "{said}");
}

#[test]
fn a_moving_mean_over_zero_epochs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    for option in ["--smooth", "--smooth-cost"] {
        let got = report(dir.path(), &["runs", option, "0"]);
        assert_eq!(got.status.code(), Some(2), "{}", text(&got.stderr));
        assert!(text(&got.stderr).contains(option), "{}", text(&got.stderr));
    }
}

/// This test fails if the clean-up follows a link out of the folder.
#[test]
fn clean_up_does_not_follow_links() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    assert!(report(dir.path(), &["runs"]).status.success());
    let (tables, elsewhere) = (dir.path().join("out/tables"), dir.path().join("elsewhere"));
    fs::rename(&tables, &elsewhere).unwrap();
    fs::write(elsewhere.join("old.md"), "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &tables).unwrap();
    let list = fs::read_to_string(dir.path().join("out/files.txt")).unwrap();
    fs::write(dir.path().join("out/files.txt"), format!("{list}tables/old.md\n")).unwrap();
    assert!(report(dir.path(), &["runs"]).status.success());
    assert!(elsewhere.join("old.md").exists());
}

#[test]
fn json_alone_is_on_stdout_and_has_the_documented_keys() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    run(dir.path(), "runs/half", "cpo", 0, "0,60,1000000\n1,50,2000000\n2,4");
    let got = report(dir.path(), &["runs", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["caveats", "files", "notes", "page", "runs", "tables"]);
    assert_eq!((json["page"].as_str(), json["runs"].as_u64()), (Some("out/index.html"), Some(7)));
    for file in json["files"].as_array().unwrap() {
        assert!(dir.path().join(file.as_str().unwrap()).is_file(), "{file}");
    }
    assert!(json["caveats"][0].as_str().unwrap().contains("one seed"), "{json}");
    let half = json["notes"].as_array().unwrap().iter().find(|n| n["path"] == "runs/half").unwrap();
    assert!(half["message"].as_str().unwrap().contains("half-written"), "{half}");
    assert!(text(&got.stderr).contains("note: "), "the note is missing on stderr: {}", text(&got.stderr));
    let table = &json["tables"][0];
    assert_eq!(table["name"], "table1-final");
    let row = &table["rows"][0];
    assert_eq!((row["algorithm"].as_str(), row["seeds"].as_f64()), (Some("EPO"), Some(3.0)));
    assert_eq!((row["return_mean"].as_f64(), row["return_sd"].as_f64()), (Some(21.0), Some(1.0)));
    for key in table["columns"].as_array().unwrap() {
        assert!(row.get(key.as_str().unwrap()).is_some(), "{key}");
    }
}

/// This test fails if a folder whose name is not UTF-8 breaks the whole document.
#[test]
fn json_is_written_for_names_that_are_not_text() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"runs/odd\xff");
    fs::create_dir_all(dir.path().join::<&std::ffi::OsStr>(odd)).unwrap();
    fs::write(dir.path().join(odd).join("config.toml"), "[run").unwrap();
    let got = report(dir.path(), &["runs", "--json"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let found: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(found["notes"][0]["path"], "runs/odd\u{fffd}", "{}", found["notes"]);
}

#[test]
fn unusable_folders_are_named_and_the_rest_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    run(dir.path(), "runs/half", "cpo", 0, "0,60,1000000\n1,50,2000000\n2,4");
    run(dir.path(), "runs/no-rows", "cpo", 1, "");
    fs::create_dir_all(dir.path().join("empty")).unwrap();
    fs::create_dir_all(dir.path().join("runs/unreadable/config.toml")).unwrap(); // a folder where a file should be
    let got = report(dir.path(), &["runs", "empty", "absent"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let said = text(&got.stderr);
    for part in [
        "half-written",
        "no finished episode",
        "No run folder was found",
        "cannot be read",
        "CPO has no run of seed",
    ] {
        assert!(said.contains(part), "“{part}” is missing in: {said}");
    }
    assert!(text(&got.stdout).contains("| SafetyPointGoal1-v0 | CPO | 1 |"), "{}", text(&got.stdout));
}

#[test]
fn without_any_run_the_exit_code_is_4() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("empty")).unwrap();
    let got = report(dir.path(), &["empty"]);
    assert_eq!(got.status.code(), Some(4), "{}", text(&got.stderr));
    assert!(text(&got.stderr).contains("No run folder was found") && !dir.path().join("out").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_io_error() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    fs::write(dir.path().join("out"), "a file where the report should go").unwrap();
    let got = report(dir.path(), &["runs"]);
    assert_eq!(got.status.code(), Some(74), "{}", text(&got.stderr));
}

/// The program without privileges, or `None` if this system cannot start it in this way. Root can read and write all files.
fn unprivileged(dir: &Path) -> Option<Command> {
    let mode = |path: &Path, bits| fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    mode(dir, 0o755);
    let probe = dir.join("probe");
    fs::write(&probe, "").unwrap();
    mode(&probe, 0o000);
    if fs::read(&probe).is_err() {
        return Some(Command::new(env!("CARGO_BIN_EXE_epo")));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_epo")]);
    let works = Command::new("setpriv").args(command.get_args()).arg("--version").output();
    works.is_ok_and(|output| output.status.success()).then_some(command)
}

#[test]
fn files_without_permission_are_named_and_the_rest_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    three_seeds(dir.path());
    let Some(command) = unprivileged(dir.path()) else {
        println!("SKIPPED: the test runs as root, and setpriv is not installed");
        return;
    };
    let mode = |name: &str, bits| {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(bits)).unwrap();
    };
    fs::create_dir(dir.path().join("out")).unwrap();
    mode("out", 0o777);
    mode("runs/epo-0", 0o000); // a folder, a table, a configuration
    mode("runs/epo-1/progress.csv", 0o000);
    mode("runs/ppo-0/config.toml", 0o000);
    let epo = |args: &[&str]| {
        let mut epo = Command::new(command.get_program());
        epo.args(command.get_args()).args(args).current_dir(dir.path()).output().unwrap()
    };
    let got = epo(&["report", "runs", "--out", "out/report"]);
    let said = text(&got.stderr);
    assert!(got.status.success(), "{said}");
    for part in
        ["The folder cannot be read: Permission", "progress.csv cannot be read", "config.toml cannot be read"]
    {
        assert!(said.contains(part), "“{part}” is missing in: {said}");
    }
    assert!(said.contains("3 runs in out/report/index.html"), "{said}");
    mode("out", 0o555);
    fs::write(dir.path().join("s.toml"), "[grid]\nrun.seed = [0]\n").unwrap();
    let unwritable = ["report runs --out out/other", "sweep s.toml --out out/sweep", "train --runs out/runs"];
    for (args, names) in unwritable.into_iter().zip(["out/other/", "out/sweep", "out/runs/"]) {
        let got = epo(&args.split(' ').collect::<Vec<_>>());
        let said = text(&got.stderr);
        assert_eq!(got.status.code(), Some(74), "{args}: {said}");
        assert!(said.contains(names) && said.matches("Permission denied").count() == 1, "{args}: {said}");
    }
    let got = epo(&["eval", "runs/epo-0"]);
    assert_eq!(got.status.code(), Some(4));
    assert!(text(&got.stderr).contains("cannot be read (Permission denied"), "{}", text(&got.stderr));
    mode("runs/epo-0", 0o755); // so that it can be removed
}
