//! Finds Apache ECharts, the chart library of the page, or fetches it.
//!
//! ECharts is taken from the Python wheel of NiceGUI, which carries it as a module that browsers load without a build
//! step. So the build needs `pip`, as that of `epo-mujoco` does, and no Node. `EPO_ECHARTS_DIR` names a folder with the
//! same two files instead.

use std::env;
use std::path::{Path, PathBuf};

use epo_fetch::Wheel;

const WHEEL: Wheel = Wheel {
    name: "nicegui",
    version: "3.18.0",
    sha256: "a2bd51642312d98aab6d8b641245d796ff1b89da5829777170bcc488140c3dcd",
    platform: None,
    files: &[
        ("nicegui/elements/echart/dist/index.js", FILES[0]),
        ("nicegui/elements/echart/dist/index-DlVyZyb_.js", FILES[1]),
    ],
};
/// The entry, which exports `echarts`, and the library that it imports.
const FILES: [&str; 2] = ["index.js", "index-DlVyZyb_.js"];
const HELP: &str =
    "set EPO_ECHARTS_DIR to the folder nicegui/elements/echart/dist of the unpacked wheel of nicegui 3.18.0.";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EPO_ECHARTS_DIR");
    let folder = match env::var_os("EPO_ECHARTS_DIR") {
        Some(dir) => installed(Path::new(&dir)),
        None => WHEEL.unpack(None, HELP),
    };
    epo_fetch::finish(folder.map(|dir| {
        for (file, variable) in FILES.iter().zip(["EPO_ECHARTS_ENTRY", "EPO_ECHARTS_LIBRARY"]) {
            println!("cargo::rustc-env={variable}={}", dir.join(file).display());
        }
    }));
}

/// The folder that the user named, if it holds both files.
fn installed(dir: &Path) -> Result<PathBuf, String> {
    let dir = dir.canonicalize().map_err(|e| format!("EPO_ECHARTS_DIR={}: {e}", dir.display()))?;
    match FILES.iter().find(|file| !dir.join(file).is_file()) {
        None => Ok(dir),
        Some(missing) => Err(format!(
            "EPO_ECHARTS_DIR={} holds no {missing}.\nUnset the variable to have it fetched, or {HELP}",
            dir.display()
        )),
    }
}
