//! Tests of `epo bench physics` through the binary: a short comparison of both physics, and its output.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use serde_json::Value;

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_epo")).args(["bench", "physics"]).args(args).output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The random policy touches few objects, so few episodes are enough. In the last task the two physics are identical.
#[test]
fn a_short_comparison_finds_both_physics_equivalent() {
    let tasks = ["SafetyPointGoal1-v0", "SafetyPointPush1-v0", "SafetyPointButton2-v0"];
    let mut args = vec!["--json", "--policy", "random", "--episodes", "20", "--max-episodes", "20"];
    args.extend(tasks.iter().flat_map(|task| ["--task", task]));
    let output = check(&args);
    let rows = rows(&output);
    assert_eq!(output.status.code(), Some(0), "{rows:#?}");
    let mut keys: Vec<_> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let want = [
        "difference",
        "episodes",
        "equivalent",
        "fast",
        "margin",
        "metric",
        "p_value",
        "policy",
        "published",
    ];
    assert_eq!(keys, [&want[..], &["task"]].concat());
    for task in tasks {
        let of = |metric: &str| rows.iter().find(|r| r["task"] == task && r["metric"] == metric).unwrap();
        for metric in ["return", "cost", "length", "cost_hazards", "cost_exception"] {
            let row = of(metric);
            assert_eq!((&row["episodes"], &row["equivalent"]), (&20.into(), &true.into()), "{row}");
        }
        let opening = of("observation_before_contact")["fast"].as_f64().unwrap();
        let sleeps = task != "SafetyPointButton2-v0";
        assert_eq!(opening > 0.0, sleeps, "{task}: {opening}");
        assert!(opening < 1e-4, "{task}: {opening}");
        assert!(of("cost")["published"].as_f64().unwrap() > 0.0, "{task}");
    }
}

/// With a policy that seeks collisions, few episodes cannot show equivalence. This test fails if the check claims it.
#[test]
fn too_few_episodes_show_no_equivalence_and_results_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let out = file.to_str().unwrap();
    let small = ["--task", "SafetyPointPush1-v0", "--episodes", "6", "--max-episodes", "6", "--out", out];
    let first = check(&[&small[..], &["--policy", "scripted", "--json", "--threads", "1"]].concat());
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    let row = |rows: &[Value], policy: &str| {
        rows.iter().find(|r| r["policy"] == policy && r["metric"] == "return").unwrap().clone()
    };
    let played = row(&rows(&first), "scripted");
    assert_eq!(played["equivalent"], false);
    assert_ne!(
        played["published"], played["fast"],
        "the policy pushes the box, so the two physics must differ"
    );
    // Results that exist are not computed again, also with other settings. Missing ones are added.
    let second = check(&[&small[..], &["--policy", "scripted", "--policy", "random", "--json"]].concat());
    let (kept, saved): (_, Vec<Value>) =
        (rows(&second), serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap());
    assert_eq!(kept, saved);
    assert_eq!(row(&kept, "scripted")["published"], played["published"]);
    assert_eq!(row(&kept, "random")["episodes"], 6);
    // The number of threads does not change the results.
    let again = check(&["--task", "SafetyPointPush1-v0", "--episodes", "6", "--max-episodes", "6", "--json"]);
    assert_eq!(rows(&again).iter().filter(|r| r["policy"] == "scripted").count(), 6);
    for policy in ["random", "scripted"] {
        assert_eq!(row(&rows(&again), policy)["difference"], row(&kept, policy)["difference"], "{policy}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (args, code, says) in [
        (&["--task", "SafetyPointGoal9-v0"][..], 2, "SafetyPointGoal"),
        (&["--policy", "trained"], 2, "--run"),
        (&["--policy", "best"], 2, "random"),
        (&["--run", "nowhere"], 4, "nowhere"),
        (&["--out", "Cargo.toml"], 1, "Cargo.toml does not hold results"),
    ] {
        let output = check(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(says), "{args:?}: {output:?}");
    }
}
