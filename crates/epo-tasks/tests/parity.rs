//! Claim: from id, seed and actions alone, our episodes are those of the Python package: observations and rewards
//! within 1e-8 at every step, costs, cost terms and flags equal.
//!
//! A few short recordings are in `tests/traces`. All of them are in `shared/parity/traces` beside the checkout, or where
//! `EPO_PARITY_TRACES` says.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::path::{Path, PathBuf};

use epo_tasks::parity::{Recording, compare};

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "npz")).collect();
    files.sort();
    files
}

fn check(files: &[PathBuf]) {
    let mut wrong = Vec::new();
    for file in files {
        let result = Recording::open(file).and_then(|recording| {
            let comparison = compare(&recording)?;
            assert!(comparison.steps == recording.steps() || !comparison.ok);
            Ok(comparison)
        });
        match result {
            Ok(comparison) if comparison.ok => {}
            Ok(comparison) => wrong.push(format!("{}: {comparison:?}", file.display())),
            Err(error) => wrong.push(format!("{}: {error}", file.display())),
        }
    }
    assert!(wrong.is_empty(), "{} of {} episodes differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn our_own_short_recordings_are_reproduced() {
    let files = recordings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces"));
    assert!(files.len() >= 6, "only {} recordings found", files.len());
    check(&files);
}

#[test]
fn the_reference_episodes_are_reproduced() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/traces");
    let folder = std::env::var_os("EPO_PARITY_TRACES").map_or(beside, PathBuf::from);
    let files = recordings(&folder);
    if files.is_empty() {
        eprintln!("SKIPPED: no reference episodes in {} (set EPO_PARITY_TRACES)", folder.display());
        return;
    }
    check(&files);
}
