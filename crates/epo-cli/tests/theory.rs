//! Tests of `epo theory` through the binary: checks, figures, training against the exact optimum, and errors.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn theory(dir: &Path, args: &[&str]) -> Output {
    let args = [&["theory"], args].concat();
    Command::new(env!("CARGO_BIN_EXE_epo")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that every tag is closed in order, and returns the names of all elements.
fn elements(xml: &str) -> Vec<String> {
    let (mut open, mut all, mut rest) = (Vec::new(), Vec::new(), xml);
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, next) = after.split_once('>').expect("a tag is not closed by >");
        rest = next;
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).unwrap().to_owned();
        if tag.starts_with(['?', '!']) {
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "an attribute is not closed: {tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "tags are closed in the wrong order");
        } else {
            all.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "tags that are not closed: {open:?}");
    all
}

#[test]
fn the_checks_are_one_json_document_and_three_well_formed_figures() {
    let dir = tempfile::tempdir().unwrap();
    let got = theory(dir.path(), &["--cmdps", "5", "--json", "--out", "a/b"]);
    assert_eq!(got.status.code(), Some(0), "{}", text(&got.stderr));
    let report: Value = serde_json::from_slice(&got.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(report["ok"] == true && report["cmdps"] == 5 && checks.len() >= 10, "{report}");
    for check in checks {
        let [n, tolerance, worst] = ["n", "tolerance", "worst"].map(|key| check[key].as_f64().unwrap());
        assert!(check["name"].as_str().is_some_and(|name| !name.is_empty()), "{check}");
        assert!(check["ok"] == true && n >= 5.0 && worst <= tolerance, "{check}");
    }
    let folder = dir.path().join("a/b");
    assert_eq!(fs::read(folder.join("report.json")).unwrap(), got.stdout.trim_ascii_end());
    for figure in ["path.svg", "penalty.svg", "threshold.svg"] {
        let found = elements(&fs::read_to_string(folder.join(figure)).unwrap());
        assert_eq!(found[0], "svg", "{figure}");
        assert!(found.iter().any(|name| name == "polyline" || name == "path"), "{figure} has no curve");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "the folder holds other files");
    let seconds = text(&got.stderr);
    assert!(seconds.trim().strip_suffix(" s").is_some_and(|s| s.parse::<f64>().is_ok()), "{seconds}");
}

#[test]
fn trained_policies_are_compared_with_the_optimum() {
    let dir = tempfile::tempdir().unwrap();
    let small = ["--learn", "--algo", "ppo", "--algo", "epo", "--seeds", "2", "--steps", "8e3", "--out", "o"];
    let got = theory(dir.path(), &small);
    assert_eq!(got.status.code(), Some(0), "{}", text(&got.stderr));
    let table = text(&got.stdout);
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let begin =
        ["| fast-or-slow | ppo | 12.20 |", "| fast-or-slow | epo | 12.20 |", "| hazard-grid | ppo | 7.61 |"];
    assert!(rows.len() == 8 && begin.iter().zip(&rows).all(|(want, row)| row.starts_with(want)), "{table}");
    assert!(table.contains("2 seeds, 8000 steps each"), "{table}");

    let csv = fs::read_to_string(dir.path().join("o/learn.csv")).unwrap();
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().count() == 17 && csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
    let json: Value = serde_json::from_slice(&fs::read(dir.path().join("o/learn.json")).unwrap()).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 8, "four problems, two algorithms");
    let number = |key: &str| rows[0][key].as_f64().unwrap();
    let gap = 100.0 * (number("optimum") - number("return")) / number("optimum");
    assert!((number("gap_percent") - gap).abs() < 1e-9 && number("limit") == 2.0, "{json}");
    assert_eq!(number("violation"), (number("cost") - 2.0).max(0.0), "{json}");
    assert_eq!(fs::read_dir(dir.path().join("o")).unwrap().count(), 2, "the folder holds other files");

    // The same command must give the same numbers.
    let again = theory(dir.path(), &[&small[..9], &["--json"]].concat());
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), json);
}

#[test]
fn a_signal_stops_the_training_with_code_75_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_epo"))
        .args(["theory", "--learn", "--algo", "ppo", "--steps", "1e8"])
        .env("TMPDIR", dir.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let entries = || fs::read_dir(dir.path()).unwrap().count();
    while entries() == 0 {
        std::thread::sleep(Duration::from_millis(10)); // its folder appears after its signal handlers
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let got = child.wait_with_output().unwrap();
    assert_eq!(got.status.code(), Some(75), "{}", text(&got.stderr));
    assert!(got.stdout.is_empty() && text(&got.stderr).contains("stopped") && entries() == 0);
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    for (args, part) in [
        (&["--learn", "--algo", "pppo"][..], "did you mean `ppo`"),
        (&["--learn", "--set", "algo.sharpnes=5", "--algo", "epo"], "algo.sharpness"),
        (&["--learn", "--steps", "0"], "at least 1"),
        (&["--learn", "--seeds", "0"], "--seeds"),
        (&["--learn", "--cmdps", "5"], "--cmdps"),
        (&["--algo", "epo"], "--learn"),
        (&["--cmdps", "0"], "--cmdps"),
    ] {
        let got = theory(dir.path(), args);
        assert_eq!(got.status.code(), Some(2), "{args:?}: {}", text(&got.stderr));
        assert!(text(&got.stderr).contains(part) && got.stdout.is_empty(), "{}", text(&got.stderr));
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_code_74() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "in the way").unwrap();
    fs::create_dir_all(dir.path().join("folder/report.json/in the way")).unwrap();
    for out in ["file", "file/below", "folder"] {
        let got = theory(dir.path(), &["--cmdps", "1", "--out", out]);
        assert_eq!(got.status.code(), Some(74), "{out}: {}", text(&got.stderr));
        assert!(text(&got.stderr).contains(out), "{}", text(&got.stderr));
    }
    let got = theory(dir.path(), &["--learn", "--algo", "ppo", "--steps", "4000", "--out", "file"]);
    assert_eq!(got.status.code(), Some(74), "{}", text(&got.stderr));
}

#[test]
fn the_check_of_tags_finds_broken_figures() {
    assert_eq!(elements("<?xml?><svg a=\"1\"><path d=\"\"/></svg>"), ["svg", "path"]);
    for broken in ["<svg><g></svg>", "<svg>", "<svg a=\"></svg>", "<svg"] {
        assert!(std::panic::catch_unwind(|| elements(broken)).is_err(), "{broken}");
    }
}
