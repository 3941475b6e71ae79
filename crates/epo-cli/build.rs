//! Collects the licences of all crates in the program, for `epo licences`.
//!
//! `cargo tree` names the crates, and their sources hold the texts. A crate whose source is not found is listed
//! with the name of its licence only. A user's own program has its own lock file and possibly other crates. The
//! list may then be missing, and a warning says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let text = collect().unwrap_or_else(|reason| {
        println!("cargo::warning=`epo licences` lacks the Rust crates: {}", reason.replace('\n', " "));
        "The Rust crates inside this program are those that `cargo tree --edges normal` lists for it.\n"
            .to_owned()
    });
    let file = Path::new(&variable("OUT_DIR")).join("licences.txt");
    if let Err(e) = fs::write(&file, text) {
        println!("cargo::error={}: {e}", file.display());
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn collect() -> Result<String, String> {
    let features = if env::var_os("CARGO_FEATURE_MPI").is_some() { "mpi" } else { "" };
    let tree = Command::new(variable("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--no-dedupe"])
        .args([
            "--format",
            "{p}|{l}",
            "--features",
            features,
            "--target",
            &variable("TARGET"),
            "--manifest-path",
        ])
        .arg(Path::new(&variable("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .map_err(|e| format!("cargo tree: {e}"))?;
    if !tree.status.success() {
        return Err(String::from_utf8_lossy(&tree.stderr).into_owned());
    }
    let tree = String::from_utf8_lossy(&tree.stdout);
    // "name v1.2.3|MIT"; our own crates have their path after the version
    let crates: BTreeSet<(&str, &str, &str)> = tree
        .lines()
        .filter(|line| !line.contains("(/"))
        .filter_map(|line| {
            let (package, licence) = line.split_once('|')?;
            let mut words = package.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?, licence))
        })
        .collect();
    let sources = sources();
    let mut list = String::from("Rust crates inside this program\n===============================\n\n");
    list += "The standard library of Rust: MIT OR Apache-2.0, copyright The Rust Project Contributors\n";
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, version, licence) in crates {
        list += &format!("{name} {version}: {licence}\n");
        let places = sources.iter().flat_map(|dir| [dir.join(format!("{name}-{version}")), dir.join(name)]);
        let folder = places.into_iter().find(|dir| dir.is_dir());
        for text in folder.map(|dir| licences(&dir)).unwrap_or_default() {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    for (text, names) in texts {
        list += &format!("\n{}\n{}:\n\n{text}\n", "-".repeat(80), names.join(", "));
    }
    Ok(list)
}

/// Folders with the sources of crates: those of cargo, and that of `cargo vendor`.
fn sources() -> Vec<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    let registries = registries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    registries.chain([Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../vendor")]).collect()
}

/// Returns the texts of the licence files in the folder of a crate. `epo licences` prints the full Apache
/// License once, so plain copies of it are left out.
fn licences(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let is_licence = |name: &str| {
        let name = name.to_lowercase();
        ["licen", "copying", "copyright", "notice", "unlicense"].iter().any(|start| name.starts_with(start))
    };
    let files = files.filter(|file| file.file_name().to_str().is_some_and(is_licence));
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let texts =
        texts.map(|text| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned());
    let is_apache =
        |text: &str| text.contains("Apache License") && text.contains("END OF TERMS AND CONDITIONS");
    texts.filter(|text| !(is_apache(text) && text.len() < 12_000)).collect()
}
