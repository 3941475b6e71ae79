//! `epo licences`

use crate::exit::Code;
use crate::output::print;

/// Names, versions and licence texts of the crates inside this program; `build.rs` collects them.
const CRATES: &str = include_str!(concat!(env!("OUT_DIR"), "/licences.txt"));

/// Prints the licences.
pub(crate) fn run() -> anyhow::Result<Code> {
    let rule = "=".repeat(80);
    let parts = [
        "epo is licensed under MIT or the Apache License 2.0, at your option. It contains or loads the parts below.\n\n\
         MuJoCo, copyright DeepMind Technologies Limited, is loaded from its own file and has the Apache License 2.0. \
         Its licences are the files LICENSE and LICENSES_THIRD_PARTY.md beside that file.",
        epo_replay::LICENCES,
        epo_dash::LICENCES,
        CRATES,
    ];
    print(&parts.map(str::trim_end).join(&format!("\n\n{rule}\n")))?;
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if the build leaves out crates or their texts, or writes folders of this machine into the program.
    #[test]
    fn every_crate_has_its_licence() {
        for name in ["axum ", "clap ", "rayon ", "serde ", "tokio "] {
            assert!(CRATES.lines().any(|line| line.starts_with(name)), "{name} is missing");
        }
        let listed = CRATES.lines().take_while(|line| !line.starts_with("----")).count();
        assert!(listed > 100, "{listed} lines");
        assert!(CRATES.matches("Permission is hereby granted, free of charge").count() > 20);
        assert!(CRATES.contains("Redistributions in binary form must reproduce"));
        assert!(!CRATES.contains(env!("CARGO_MANIFEST_DIR")) && !CRATES.contains("registry/src"));
    }
}
