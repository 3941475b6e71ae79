//! The short form of the attacks (`./check long` runs the long one). The program that is tested is this package's own.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::process::Command;

/// Fails if any attack does harm, or if one is never tried. The output names the attack and what it did.
#[test]
fn no_attack_does_harm() {
    let output = Command::new(env!("CARGO_BIN_EXE_epo-attack"))
        .args(["--short", "--minutes", "2", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows.len() >= 19, "{rows:?}");
    for row in rows {
        let bound = row["bound"].as_f64().unwrap();
        assert!(row["tried"].as_u64().unwrap() > 0 && bound > 0.0 && bound <= 1.0, "{row}");
        assert_eq!(row["failed"], 0, "{row}\n{said}");
    }
    assert!(output.status.success());
}
