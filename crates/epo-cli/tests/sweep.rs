//! Tests of `epo sweep` and `epo repro` through the binary: short runs, kills at any moment, and wrong files.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn epo(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_epo")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const TINY: &str = "[base]\nrun.steps = 12000\nrun.task = \"SafetyPointGoal1-v0\"\ntrain.steps_per_epoch = 2000\n\
                    train.final_eval_episodes = 0\n\
                    train.envs = 4\ntrain.minibatch = 200\ntrain.passes = 2\ntrain.hidden = [16]\n";

/// Returns `episodes.csv` of every run of a sweep. The file holds no times, so equal runs have equal bytes.
fn episodes(sweep: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for algo in std::fs::read_dir(sweep.join("runs")).unwrap() {
        for run in std::fs::read_dir(algo.unwrap().path()).unwrap() {
            let run = run.unwrap().path();
            let name = run.strip_prefix(sweep).unwrap().to_owned();
            found.push((name, std::fs::read_to_string(run.join("episodes.csv")).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_sweep_killed_at_any_moment_ends_with_the_same_results() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("{TINY}[grid]\nrun.algo = [\"epo\", \"ppo\"]\nrun.seed = [0, 1]\n");
    std::fs::write(dir.path().join("s.toml"), file).unwrap();
    let whole = epo(dir.path(), &["sweep", "s.toml", "--out", "whole"]);
    let hint = concat!("run: ", env!("CARGO_BIN_EXE_epo"), " report 'whole/runs'"); // `epo` may not be in the search path
    assert!(text(&whole.stderr).contains(hint), "{}", text(&whole.stderr));
    assert!(whole.status.success(), "{}", text(&whole.stderr));
    assert_eq!(text(&whole.stdout).matches("| done  |").count(), 4, "{}", text(&whole.stdout));
    for i in 0..5 {
        // Two drivers work on one folder. SIGKILL lets neither of them clean up.
        let mut drivers: Vec<_> = (0..2)
            .map(|_| {
                Command::new(env!("CARGO_BIN_EXE_epo"))
                    .args(["sweep", "s.toml", "--out", "killed", "--quiet"])
                    .current_dir(dir.path())
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for driver in &mut drivers {
            std::thread::sleep(Duration::from_millis(150 + 170 * i));
            driver.kill().unwrap();
            driver.wait().unwrap();
        }
    }
    let last = epo(dir.path(), &["sweep", "s.toml", "--out", "killed"]);
    assert!(last.status.success(), "{}", text(&last.stderr));
    assert_eq!(episodes(&dir.path().join("killed")).len(), 4, "each run must exist once");
    assert_eq!(episodes(&dir.path().join("killed")), episodes(&dir.path().join("whole")));
}

#[test]
fn a_failed_run_is_reported_and_the_others_finish() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("{TINY}[grid]\nrun.seed = [0, 1]\n");
    std::fs::write(dir.path().join("s.toml"), file).unwrap();
    // A wrapper fails for one of the two seeds, in place of a crash.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *seed-001*) echo 'out of order' >&2; exit 9;; esac\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_epo")
    );
    let wrapper = dir.path().join("wrapper.sh");
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let args = ["sweep", "s.toml", "--out", "o", "--command", wrapper.to_str().unwrap()];
    let got = epo(dir.path(), &args);
    let out = text(&got.stdout);
    assert_eq!(got.status.code(), Some(1), "{out}");
    assert!(out.contains("| done   |") && out.contains("| failed |"), "{out}");
    assert!(out.contains("exit code 9: out of order"), "{out}");
    let json = epo(dir.path(), &["sweep", "s.toml", "--out", "o", "--json"]); // it stays failed
    assert_eq!(json.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let counts = ["done", "failed", "pending"].map(|key| json[key].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)], "{json}");
    let [done, failed] = &json["runs"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((done["state"].as_str(), done["seed"].as_u64()), (Some("done"), Some(0)));
    assert!(done["return"].is_number() && done["cost"].is_number() && done["seconds"].is_number(), "{done}");
    assert!(dir.path().join(done["folder"].as_str().unwrap()).join("progress.csv").is_file(), "{done}");
    assert_eq!((failed["state"].as_str(), failed["exit_code"].as_i64()), (Some("failed"), Some(9)));
    assert!(
        failed["message"].as_str().unwrap().contains("out of order") && failed["return"].is_null(),
        "{failed}"
    );
    assert!(dir.path().join(failed["log"].as_str().unwrap()).is_file(), "{failed}");
    // Without the wrapper, `--retry-failed` finishes the failed run.
    let again = epo(dir.path(), &["sweep", "s.toml", "--out", "o", "--retry-failed"]);
    assert!(again.status.success(), "{}", text(&again.stdout));
}

#[test]
fn the_example_of_the_documentation_works() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sweeps.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let example = docs.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.toml"), example).unwrap();
    let got = epo(dir.path(), &["sweep", "s.toml", "--dry-run", "--json"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    let json: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 24, "the number that the example states");
}

#[test]
fn a_wrong_file_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    for (file, part) in [
        ("[grid]\nrun.seed = [0]\ntrain.gama = [0.9]\n", "did you mean `train.gamma`"),
        ("[grid]\nrun.task = [\"SafetyPointGoal1-v0\", \"SafetyPointGaol1-v0\"]\n", "SafetyPointGoal1-v0"),
        ("[grid]\nrun.seed = 1\n", "must be a list"),
        (
            "[base]\nalgo.clip = 0.1\n[grid]\nrun.algo = [\"ppo\", \"cpo\"]\n",
            "run.algo = \"cpo\": there is no `algo.clip`",
        ),
        ("[grid\nrun.seed = [1]\n", "TOML parse error at line 1"),
        ("[run]\nseed = 1\n", "below [base] or [grid]"),
    ] {
        std::fs::write(dir.path().join("s.toml"), file).unwrap();
        let got = epo(dir.path(), &["sweep", "s.toml", "--out", "o"]);
        assert_eq!(got.status.code(), Some(2), "{}", text(&got.stderr));
        let stderr = text(&got.stderr);
        assert!(stderr.starts_with("error: s.toml: ") && stderr.contains(part), "{stderr}");
        assert!(!dir.path().join("o").exists(), "a run was started");
    }
    assert_eq!(epo(dir.path(), &["sweep", "none.toml"]).status.code(), Some(74));
}

#[test]
fn repro_trains_reports_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["repro", "paper", "--steps", "32000", "--seeds", "1", "--tasks", "SafetyPointGoal1-v0", "--algos"];
    let args = [&args[..], &["ppo-lag", "--out", "o"]].concat();
    let dry = epo(dir.path(), &[&args[..], &["--dry-run"]].concat());
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    assert!(
        text(&dry.stdout).contains("\n1 run, 1 side by side")
            && text(&dry.stdout).contains("on this machine"),
        "{}",
        text(&dry.stdout)
    );
    assert!(!dir.path().join("o").exists(), "a dry run wrote a folder");
    let json = |args: &[&str]| {
        let got = epo(dir.path(), &[args, &["--json"]].concat());
        assert!(got.status.success(), "{}", text(&got.stderr));
        serde_json::from_slice::<serde_json::Value>(&got.stdout).unwrap()
    };
    let dry = json(&[&args[..], &["--dry-run"]].concat());
    let (least, most) = (dry["seconds_least"].as_f64().unwrap(), dry["seconds"].as_f64().unwrap());
    assert!(0.0 < least && least < most && dry["jobs"] == 1, "{dry}");
    assert!(
        dry["runs"][0]["seconds"].as_f64().unwrap() > 0.0 && dry["runs"][0]["algo"] == "ppo-lag",
        "{dry}"
    );
    let got = json(&args);
    assert_eq!((&got["sweep"]["done"], &got["sweep"]["runs"][0]["state"]), (&1.into(), &"done".into()));
    assert_eq!((&got["report"]["page"], &got["report"]["runs"]), (&"o/report/index.html".into(), &1.into()));
    let page = std::fs::read_to_string(dir.path().join("o/report/index.html")).unwrap();
    assert!(
        page.contains("PPO-Lag") && page.contains("<svg"),
        "the page names the algorithm and holds a figure"
    );
    let said = epo(dir.path(), &["repro", "limits", "--algos", "cpo", "--out", "x"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said.stderr).contains("--algos does not apply"), "{}", text(&said.stderr));
}
