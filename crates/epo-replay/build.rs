//! Fetches the two JavaScript libraries of the viewer: three.js (3D) and uPlot (charts).
//!
//! Both are taken from Python wheels, because `pip` is needed for MuJoCo already and Node is not.
//! `EPO_VIEWER_WHEELS` names a folder with both wheels for builds without a network. `docs/decisions.md` compares the
//! sources.

use std::{env, fs};

use epo_fetch::Wheel;

/// NiceGUI's scene bundle is one minified ES module with three.js r180 and its OrbitControls.
const THREE: Wheel = Wheel {
    name: "nicegui",
    version: "3.18.0",
    sha256: "a2bd51642312d98aab6d8b641245d796ff1b89da5829777170bcc488140c3dcd",
    platform: None,
    files: &[("nicegui/elements/scene/dist/index.js", "three.module.js")],
};

/// uPlot 1.6.16.
const UPLOT: Wheel = Wheel {
    name: "uplot-python",
    version: "1.1.1",
    sha256: "07c96cc34ff9107c3751fc31dfad48ccd6e86c6deebb8b41d7ec7d9811722208",
    platform: None,
    files: &[("uplot/static/uPlot.iife.js", "uplot.js"), ("uplot/static/uPlot.min.css", "uplot.css")],
};

const HELP: &str =
    "set EPO_VIEWER_WHEELS to a folder that holds the wheels nicegui 3.18.0 and uplot-python 1.1.1.";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=EPO_VIEWER_WHEELS");
    epo_fetch::finish(build());
}

fn build() -> Result<(), String> {
    let wheels = env::var_os("EPO_VIEWER_WHEELS");
    let three = THREE.unpack(wheels.as_deref(), HELP)?;
    let uplot = UPLOT.unpack(wheels.as_deref(), HELP)?;
    let module = fs::read_to_string(three.join("three.module.js")).map_err(|e| e.to_string())?;
    let script = classic(&module).ok_or("the three.js module does not end in a list of exports")?;
    let file = three.join("three.js");
    fs::write(&file, script).map_err(|e| format!("{}: {e}", file.display()))?;
    println!("cargo::rustc-env=EPO_THREE={}", file.display());
    println!("cargo::rustc-env=EPO_UPLOT={}", uplot.display());
    Ok(())
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
