//! Finds Apache ECharts, the chart library of the page, or fetches it.
//!
//! ECharts is taken from the Python wheel of NiceGUI, which carries it as a module that browsers load without a build
//! step. So the build needs `pip`, as that of `epo-mujoco` does, and no Node. `pip` checks the hash.
//! `EPO_ECHARTS_DIR` names a folder with the same two files instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const WHEEL: &str = "nicegui";
const VERSION: &str = "3.18.0";
const WHEEL_SHA256: &str = "a2bd51642312d98aab6d8b641245d796ff1b89da5829777170bcc488140c3dcd";
const FOLDER: &str = "nicegui/elements/echart/dist";
/// The entry, which exports `echarts`, and the library that it imports.
const FILES: [&str; 2] = ["index.js", "index-DlVyZyb_.js"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EPO_ECHARTS_DIR");
    let folder = match env::var_os("EPO_ECHARTS_DIR") {
        Some(dir) => installed(Path::new(&dir)),
        None => fetched(),
    };
    match folder {
        Ok(dir) => {
            for (file, variable) in FILES.iter().zip(["EPO_ECHARTS_ENTRY", "EPO_ECHARTS_LIBRARY"]) {
                println!("cargo::rustc-env={variable}={}", dir.join(file).display());
            }
        }
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo::error={line}");
            }
        }
    }
}

/// The folder that the user named, if it holds both files.
fn installed(dir: &Path) -> Result<PathBuf, String> {
    let dir = dir.canonicalize().map_err(|e| format!("EPO_ECHARTS_DIR={}: {e}", dir.display()))?;
    match FILES.iter().find(|file| !dir.join(file).is_file()) {
        None => Ok(dir),
        Some(missing) => Err(format!(
            "EPO_ECHARTS_DIR={} holds no {missing}.\nName the folder {FOLDER} of an unpacked wheel of {WHEEL} {VERSION}, \
             or unset the variable to have it fetched.",
            dir.display()
        )),
    }
}

/// Downloads the wheel into this crate's build folder and unpacks the two files.
fn fetched() -> Result<PathBuf, String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let dir = out.join(format!("echarts-{VERSION}"));
    if dir.is_dir() {
        return Ok(dir);
    }
    // `--require-hashes` needs a requirements file; everything stays inside OUT_DIR
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    let (requirements, wheels) = (out.join("echarts.txt"), out.join("wheel"));
    fs::write(&requirements, format!("{WHEEL}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")).map_err(io)?;
    fs::create_dir_all(&wheels).map_err(io)?;
    let flags = "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
                 --implementation py --python-version 3.12 --platform any --require-hashes";
    python(flags, &[Path::new("-r"), &requirements, Path::new("-d"), &wheels])?;
    let wheel = fs::read_dir(&wheels)
        .map_err(io)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("pip left no wheel in {}", wheels.display()))?;
    python("-m zipfile -e", &[&wheel, &wheels])?;

    // the rename comes last: a folder that is there is complete
    let partial = out.join("partial");
    fs::create_dir_all(&partial).map_err(io)?;
    for file in FILES {
        fs::copy(wheels.join(FOLDER).join(file), partial.join(file)).map_err(io)?;
    }
    fs::rename(&partial, &dir).map_err(io)?;
    fs::remove_dir_all(&wheels).map_err(io)?;
    Ok(dir)
}

/// Runs `python3 <flags> <paths>`; the error says what to do about it.
fn python(flags: &str, paths: &[&Path]) -> Result<(), String> {
    let help = format!(
        "The build needs Apache ECharts from the wheel of {WHEEL} {VERSION}. Either\n\
         - install Python 3 with pip (Debian: apt-get install python3-pip) and let pip reach its package index, or\n\
         - set EPO_ECHARTS_DIR to the folder {FOLDER} of the unpacked wheel."
    );
    let done = Command::new("python3").args(flags.split_whitespace()).args(paths).output();
    match done {
        Err(e) => Err(format!("python3 could not be started: {e}.\n{help}")),
        Ok(out) if !out.status.success() => {
            let said = String::from_utf8_lossy(&out.stderr);
            Err(format!("`python3 {flags} …` failed:\n{}\n{help}", said.trim_end()))
        }
        Ok(_) => Ok(()),
    }
}
