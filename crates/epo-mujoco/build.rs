//! Finds MuJoCo, or fetches it, and compiles `src/shim.c` against its headers.
//!
//! Library and headers are taken from MuJoCo's own Python wheel, because a package index is reachable from more machines
//! than a release page. `MUJOCO_LIB_DIR` names an existing installation instead. The library is not linked: the program
//! opens it when it runs (`src/library.rs`), and only if it is the file of the build.

use std::path::{Path, PathBuf};
use std::{env, fs};

use epo_fetch::Wheel;
use sha2::{Digest, Sha256};

const VERSION: &str = "3.17.0";
const LIBRARY: &str = "libmujoco.so.3.17.0";
const WHEEL: Wheel = Wheel {
    name: "mujoco",
    version: VERSION,
    sha256: "42371356efe53a5f5f73ed03fcb967bdf04048017f80e2fca01e71a360e42da2",
    platform: Some("manylinux_2_28_x86_64"),
    files: &[
        ("mujoco/libmujoco.so.3.17.0", LIBRARY),
        ("mujoco/include/mujoco/", "include/mujoco/"),
        ("mujoco-3.17.0.dist-info/licenses/LICENSE", "LICENSE"),
        ("mujoco-3.17.0.dist-info/licenses/LICENSES_THIRD_PARTY.md", "LICENSES_THIRD_PARTY.md"),
    ],
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-env-changed=MUJOCO_LIB_DIR");
    let lib_dir = match env::var_os("MUJOCO_LIB_DIR") {
        Some(dir) => installed(Path::new(&dir)),
        None => fetched(),
    };
    epo_fetch::finish(lib_dir.and_then(|dir| build(&dir)));
}

fn build(dir: &Path) -> Result<(), String> {
    let (headers, hash) = (headers(dir)?, sha256(&dir.join(LIBRARY))?);
    println!("cargo::rustc-env=EPO_MUJOCO_SHA256={hash}");
    println!("cargo::rustc-env=EPO_MUJOCO_DIR={}", dir.display());
    println!("cargo::rustc-env=EPO_MUJOCO_NAME={LIBRARY}");
    // for the build script of a crate that ships the library, such as epo-py
    println!("cargo::metadata=dir={}", dir.display());
    println!("cargo::metadata=library={LIBRARY}");
    cc::Build::new().file("src/shim.c").include(headers).std("gnu11").compile("epo_mujoco_shim");
    Ok(())
}

/// The SHA-256 hash of a file, in hexadecimal.
fn sha256(path: &Path) -> Result<String, String> {
    let data = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The folder of the headers that belong to a library: `include` in the same folder (a wheel) or beside it (a release).
fn headers(lib_dir: &Path) -> Result<PathBuf, String> {
    let places = [lib_dir.join("include"), lib_dir.join("../include")];
    let found = places.iter().find(|dir| dir.join("mujoco/mujoco.h").is_file());
    found.cloned().ok_or_else(|| {
        format!(
            "The headers of MuJoCo {VERSION} are neither in {} nor in {}.",
            places[0].display(),
            places[1].display()
        )
    })
}

/// The folder that the user named, if it holds the version that the bindings are made for.
fn installed(dir: &Path) -> Result<PathBuf, String> {
    let dir = dir.canonicalize().map_err(|e| format!("MUJOCO_LIB_DIR={}: {e}", dir.display()))?;
    if dir.join(LIBRARY).is_file() {
        return Ok(dir);
    }
    Err(format!(
        "MUJOCO_LIB_DIR={} holds no {LIBRARY}.\nName the `lib` folder of a MuJoCo {VERSION} installation, \
         or unset the variable to have it fetched.",
        dir.display()
    ))
}

/// Fetches the wheel and returns the folder with the library, its licences and the headers.
fn fetched() -> Result<PathBuf, String> {
    let target = (env::var("CARGO_CFG_TARGET_OS"), env::var("CARGO_CFG_TARGET_ARCH"));
    if target != (Ok("linux".into()), Ok("x86_64".into())) {
        return Err(format!(
            "MuJoCo {VERSION} is fetched for Linux on x86-64 only.\nSet MUJOCO_LIB_DIR to the folder of a \
             MuJoCo {VERSION} library for this target."
        ));
    }
    WHEEL.unpack(
        None,
        &format!(
            "set MUJOCO_LIB_DIR to the folder that holds {LIBRARY}, e.g. `lib` of a MuJoCo {VERSION} release."
        ),
    )
}
