//! Claim: `ARCHITECTURE.md` lists every crate and its dependencies. The files and functions in its picture of an
//! iteration exist. Only `epo-mujoco` has unsafe code.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the rows of the table, highest first: a crate and the crates that it may use.
fn table(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let rows: Vec<(String, String)> = text
        .lines()
        .filter(|line| line.starts_with("| `epo-"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), cells[3].to_owned())
        })
        .collect();
    let below = |i: usize| rows[i + 1..].iter().map(|(name, _)| name.clone());
    let named = |text: &str| -> BTreeSet<String> {
        text.split('`').filter(|word| word.starts_with("epo-")).map(str::to_owned).collect()
    };
    let may_use = |i: usize, words: &str| match words.strip_prefix("everything below") {
        Some(but) => below(i).filter(|name| !named(but).contains(name)).collect(),
        None => named(words),
    };
    rows.iter().enumerate().map(|(i, (name, words))| (name.clone(), may_use(i, words))).collect()
}

/// The workspace as cargo describes it.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// This test fails if `cargo run -- train`, the first command of the README, finds more than one program.
#[test]
fn cargo_run_means_epo() {
    let metadata = metadata();
    let defaults = metadata["workspace_default_members"].as_array().unwrap();
    assert_eq!(defaults.len(), 1, "{defaults:?}");
    assert!(defaults[0].as_str().unwrap().contains("epo-cli"), "{defaults:?}");
}

/// Returns the dependencies of each crate within the workspace, as (name, only for development).
fn dependencies() -> BTreeMap<String, BTreeSet<(String, bool)>> {
    let metadata = metadata();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let within = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let ours = all.filter(|d| d["name"].as_str().unwrap().starts_with("epo-"));
        ours.map(|d| (text(&d["name"]), d["kind"] == "dev")).collect()
    };
    packages.iter().map(|package| (text(&package["name"]), within(package))).collect()
}

#[test]
fn every_crate_is_in_the_table_and_arrows_go_down_it() {
    let table = table(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    let dependencies = dependencies();
    let listed: BTreeSet<_> = table.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(
        listed,
        dependencies.keys().cloned().collect(),
        "crates in ARCHITECTURE.md and in the workspace"
    );
    assert_eq!(listed.len(), table.len(), "a crate is listed twice");

    let rank = |name: &str| table.iter().position(|(n, _)| n == name).unwrap();
    for (name, may_use) in &table {
        for (used, only_dev) in &dependencies[name] {
            assert!(rank(used) > rank(name), "{name} depends on {used}, which is above it");
            assert!(*only_dev || may_use.contains(used), "{name} depends on {used}; it may use {may_use:?}");
        }
    }
}

#[test]
fn algorithms_do_not_reach_mujoco_and_tasks_do_not_reach_networks() {
    let dependencies = dependencies();
    let reach = |from: &str| {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(name) = todo.pop() {
            for (used, only_dev) in &dependencies[&name] {
                if !only_dev && seen.insert(used.clone()) {
                    todo.push(used.clone());
                }
            }
        }
        seen
    };
    let algos = reach("epo-algos");
    assert!(!algos.contains("epo-mujoco") && !algos.contains("epo-tasks"), "epo-algos reaches {algos:?}");
    let tasks = reach("epo-tasks");
    assert!(!tasks.contains("epo-nn") && !tasks.contains("epo-algos"), "epo-tasks reaches {tasks:?}");
}

#[test]
fn the_parser_of_the_table_works() {
    let text = "| crate | purpose | may use |\n|---|---|---|\n| `epo-a` | x | everything below |\n\
                | `epo-b` | x | everything below but `epo-d` |\n| `epo-c` | x | `epo-d` |\n| `epo-d` | x | – |\n";
    let got: Vec<_> = table(text).into_iter().map(|(_, uses)| uses.into_iter().collect::<Vec<_>>()).collect();
    let want: [&[&str]; 4] = [&["epo-b", "epo-c", "epo-d"], &["epo-c"], &["epo-d"], &[]];
    assert_eq!(got, want);
}

/// Returns the files of the picture, each with the functions on the same line.
fn picture(text: &str) -> Vec<(&str, Vec<&str>)> {
    let block = text.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let rows = block.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| !word.ends_with(".rs"));
        Some((words.next()?, words.map(|word| word.strip_suffix("()").unwrap()).collect()))
    });
    rows.collect()
}

/// This test fails if a file is moved or a function is renamed while the picture stays as it is.
#[test]
fn every_file_and_function_of_the_picture_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = picture(&text);
    assert!(rows.len() >= 18, "the picture was not read: {rows:?}");
    for (file, functions) in rows {
        let source =
            fs::read_to_string(root().join("crates").join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(!functions.is_empty(), "{file}: no function is named");
        for function in functions {
            let found = ["(", "<"].iter().any(|after| source.contains(&format!("fn {function}{after}")));
            assert!(found, "{file} has no function {function}");
        }
    }
}

/// This test fails if the loop makes its stages in another order than its header and the picture name them.
#[test]
fn the_stages_have_one_order_in_the_loop_its_header_and_the_picture() {
    const STAGES: [(&str, &str); 6] = [
        ("collect", ".collect("),
        ("estimate", ".estimate("),
        ("measure", ".measure("),
        ("update", ".update("),
        ("evaluate", ".evaluate_if_due("),
        ("record", ".record("),
    ];
    let source = fs::read_to_string(root().join("crates/epo-lab/src/train.rs")).unwrap();
    let picture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let body = source.split("fn one_epoch(").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let header: String =
        source.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    let in_order = |place: &str, text: &str, words: Vec<String>| {
        let at: Vec<usize> = words
            .iter()
            .map(|word| text.find(word).unwrap_or_else(|| panic!("{place} has no `{word}`")))
            .collect();
        assert!(at.is_sorted(), "{place}: {words:?} are at {at:?}");
    };
    let all = || STAGES.iter().map(|(stage, _)| *stage).chain(["checkpoint"]);
    in_order("one_epoch", body, STAGES.iter().map(|(_, call)| (*call).to_owned()).collect());
    in_order("the header of train.rs", &header, all().map(|stage| format!("\n//! {stage} ")).collect());
    in_order("the picture", &picture, all().map(|stage| format!("│   │  {stage} ")).collect());
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, files);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn only_epo_mujoco_has_unsafe_code() {
    let word = ["un", "safe"].concat(); // this file is searched too
    let is_code = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        // Comments may use the word. In code a block or an item follows it.
        let opens = |after: &str| {
            let after = after.trim_start();
            after.is_empty()
                || ["{", "fn ", "impl ", "extern ", "trait "].iter().any(|k| after.starts_with(k))
        };
        code.match_indices(&word).any(|(at, _)| opens(&code[at + word.len()..]))
    };
    let mut files = Vec::new();
    for folder in ["crates", "examples"] {
        rust_files(&root().join(folder), &mut files);
    }
    let (inside, outside): (Vec<_>, Vec<_>) =
        files.iter().partition(|path| path.components().any(|c| c.as_os_str() == "epo-mujoco"));
    let uses = |path: &&&PathBuf| fs::read_to_string(path).unwrap().lines().any(is_code);
    assert!(inside.iter().any(|path| uses(&path)), "the search does not find the unsafe code of epo-mujoco");
    let offenders: Vec<_> = outside.iter().filter(uses).collect();
    assert!(offenders.is_empty(), "{offenders:?}");

    // The compiler refuses it too: the lints of the workspace deny it, and every other crate uses them.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("{word}_code = \"deny\"")));
    for name in dependencies().keys().filter(|name| *name != "epo-mujoco") {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
    }
}
