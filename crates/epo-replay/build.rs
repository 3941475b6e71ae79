//! Fetches the two JavaScript libraries of the viewer: three.js (3D) and uPlot (charts).
//!
//! Both are taken from Python wheels, because `pip` is needed for MuJoCo already and Node is not. `pip` checks the
//! hashes. `EPO_VIEWER_WHEELS` names a folder with both wheels for builds without a network. Nothing that is fetched is
//! committed; `docs/decisions.md` compares the sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A file of a wheel.
struct Library {
    /// Requirement of `pip`.
    wheel: &'static str,
    sha256: &'static str,
    /// Files of the wheel, and their names in the build folder.
    files: &'static [(&'static str, &'static str)],
}

/// NiceGUI's scene bundle is one minified ES module with three.js r180 and its OrbitControls.
const THREE: Library = Library {
    wheel: "nicegui==3.18.0",
    sha256: "a2bd51642312d98aab6d8b641245d796ff1b89da5829777170bcc488140c3dcd",
    files: &[("nicegui/elements/scene/dist/index.js", "three.module.js")],
};

/// uPlot 1.6.16.
const UPLOT: Library = Library {
    wheel: "uplot-python==1.1.1",
    sha256: "07c96cc34ff9107c3751fc31dfad48ccd6e86c6deebb8b41d7ec7d9811722208",
    files: &[("uplot/static/uPlot.iife.js", "uplot.js"), ("uplot/static/uPlot.min.css", "uplot.css")],
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EPO_VIEWER_WHEELS");
    if let Err(reason) = build() {
        for line in reason.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fetch(&THREE, &out)?;
    fetch(&UPLOT, &out)?;
    let module = fs::read_to_string(out.join("three.module.js")).map_err(|e| e.to_string())?;
    let script = classic(&module).ok_or("the three.js module does not end in a list of exports")?;
    fs::write(out.join("three.js"), script).map_err(|e| format!("{}: {e}", out.display()))
}

/// Turns the ES module into a script that defines `EpoThree`, because a page in one file has nothing to import from.
fn classic(module: &str) -> Option<String> {
    let (body, exports) = module.rsplit_once("export{")?;
    let (exports, _) = exports.split_once('}')?;
    let local = |wanted: &str| {
        let mut pairs = exports.split(',').map(|item| item.split_once(" as ").unwrap_or((item, item)));
        pairs.find(|(_, name)| *name == wanted).map(|(local, _)| local.to_owned())
    };
    let (three, orbit) = (local("THREE")?, local("OrbitControls")?);
    Some(format!(
        "const EpoThree=(()=>{{\"use strict\";{body}\nreturn{{THREE:{three},OrbitControls:{orbit}}}}})();\n"
    ))
}

/// Downloads a wheel and unpacks its files into `out`, unless they are there.
fn fetch(library: &Library, out: &Path) -> Result<(), String> {
    if library.files.iter().all(|(_, name)| out.join(name).is_file()) {
        return Ok(());
    }
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    let name = library.wheel.split('=').next().unwrap_or_default();
    let (requirements, folder) = (out.join(format!("{name}.txt")), out.join(format!("{name}-wheel")));
    // `--require-hashes` needs a requirements file; everything stays inside OUT_DIR
    fs::write(&requirements, format!("{} --hash=sha256:{}\n", library.wheel, library.sha256)).map_err(io)?;
    fs::create_dir_all(&folder).map_err(io)?;
    let mut pip = Command::new("python3");
    pip.args("-m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all:".split(' '))
        .args("--python-version 3.12 --require-hashes -r".split(' '))
        .arg(&requirements)
        .arg("-d")
        .arg(&folder);
    if let Some(wheels) = env::var_os("EPO_VIEWER_WHEELS") {
        pip.args(["--no-index", "--find-links"]).arg(wheels);
    }
    run(&mut pip, library.wheel)?;
    let wheel = fs::read_dir(&folder).map_err(io)?.filter_map(Result::ok).map(|entry| entry.path());
    let wheel = wheel.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| format!("pip left no wheel in {}", folder.display()))?;
    for (member, file) in library.files {
        let unpack = "import sys, zipfile; open(sys.argv[3], 'wb').write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))";
        // the rename comes last: a file that is there is complete
        let partial = out.join(format!("{file}.partial"));
        let mut python = Command::new("python3");
        python.arg("-c").arg(unpack).arg(&wheel).arg(member).arg(&partial);
        run(&mut python, library.wheel)?;
        fs::rename(&partial, out.join(file)).map_err(io)?;
    }
    fs::remove_dir_all(&folder).map_err(io)
}

/// Runs Python; the error says what to do about it.
fn run(command: &mut Command, wheel: &str) -> Result<(), String> {
    let help = format!(
        "The viewer of replays needs the wheel {wheel}. Either\n\
         - install Python 3 with pip (Debian: apt-get install python3-pip) and let pip reach its package index, or\n\
         - set EPO_VIEWER_WHEELS to a folder that holds the wheels {} and {}.",
        THREE.wheel, UPLOT.wheel
    );
    match command.output() {
        Err(e) => Err(format!("python3 could not be started: {e}.\n{help}")),
        Ok(out) if !out.status.success() => Err(format!(
            "fetching {wheel} failed:\n{}\n{help}",
            String::from_utf8_lossy(&out.stderr).trim_end()
        )),
        Ok(_) => Ok(()),
    }
}
