//! Finds MuJoCo, or fetches it, and compiles `src/shim.c` against its headers.
//!
//! Library and headers are taken from MuJoCo's own Python wheel, because a package index is reachable from more machines
//! than a release page. `pip` checks the hash. `MUJOCO_LIB_DIR` names an existing installation instead. The library is
//! not linked: the program opens it when it runs (`src/library.rs`), and only if it is the file of the build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use sha2::{Digest, Sha256};

const VERSION: &str = "3.17.0";
const LIBRARY: &str = "libmujoco.so.3.17.0";
const WHEEL_SHA256: &str = "42371356efe53a5f5f73ed03fcb967bdf04048017f80e2fca01e71a360e42da2";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-env-changed=MUJOCO_LIB_DIR");
    let lib_dir = match env::var_os("MUJOCO_LIB_DIR") {
        Some(dir) => installed(Path::new(&dir)),
        None => fetched(),
    };
    match lib_dir.and_then(|dir| Ok((headers(&dir)?, sha256(&dir.join(LIBRARY))?, dir))) {
        Ok((headers, hash, dir)) => {
            println!("cargo::rustc-env=EPO_MUJOCO_SHA256={hash}");
            println!("cargo::rustc-env=EPO_MUJOCO_DIR={}", dir.display());
            println!("cargo::rustc-env=EPO_MUJOCO_NAME={LIBRARY}");
            // for the build script of a crate that ships the library, such as epo-py
            println!("cargo::metadata=dir={}", dir.display());
            println!("cargo::metadata=library={LIBRARY}");
            cc::Build::new().file("src/shim.c").include(headers).std("gnu11").compile("epo_mujoco_shim");
        }
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo::error={line}");
            }
        }
    }
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

/// Downloads the wheel into this crate's build folder and unpacks the library, its licences and the headers.
fn fetched() -> Result<PathBuf, String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let lib_dir = out.join(format!("mujoco-{VERSION}-with-licences"));
    if lib_dir.join(LIBRARY).is_file() {
        return Ok(lib_dir);
    }
    let target = (env::var("CARGO_CFG_TARGET_OS"), env::var("CARGO_CFG_TARGET_ARCH"));
    if target != (Ok("linux".into()), Ok("x86_64".into())) {
        return Err(format!(
            "MuJoCo {VERSION} is fetched for Linux on x86-64 only.\nSet MUJOCO_LIB_DIR to the folder of a \
             MuJoCo {VERSION} library for this target."
        ));
    }

    // `--require-hashes` needs a requirements file; everything stays inside OUT_DIR
    let io = |e: std::io::Error| format!("{}: {e}", out.display());
    let (requirements, wheels) = (out.join("mujoco.txt"), out.join("wheel"));
    fs::write(&requirements, format!("mujoco=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")).map_err(io)?;
    fs::create_dir_all(&wheels).map_err(io)?;
    let flags = "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
                 --implementation cp --python-version 3.12 --platform manylinux_2_28_x86_64 --require-hashes";
    python(flags, &[Path::new("-r"), &requirements, Path::new("-d"), &wheels])?;

    let wheel = fs::read_dir(&wheels)
        .map_err(io)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("pip left no wheel in {}", wheels.display()))?;
    python("-m zipfile -e", &[&wheel, &wheels])?;

    // the rename comes last: a folder that is there is complete
    let (partial, include) = (out.join("partial"), "include/mujoco");
    fs::create_dir_all(partial.join(include)).map_err(io)?;
    fs::copy(wheels.join("mujoco").join(LIBRARY), partial.join(LIBRARY)).map_err(io)?;
    for header in fs::read_dir(wheels.join("mujoco").join(include)).map_err(io)?.filter_map(Result::ok) {
        if header.path().is_file() {
            fs::copy(header.path(), partial.join(include).join(header.file_name())).map_err(io)?;
        }
    }
    for licence in ["LICENSE", "LICENSES_THIRD_PARTY.md"] {
        let from = wheels.join(format!("mujoco-{VERSION}.dist-info/licenses")).join(licence);
        fs::copy(from, partial.join(licence)).map_err(io)?;
    }
    fs::rename(&partial, &lib_dir).map_err(io)?;
    fs::remove_dir_all(&wheels).map_err(io)?;
    Ok(lib_dir)
}

/// Runs `python3 <flags> <paths>`; the error says what to do about it.
fn python(flags: &str, paths: &[&Path]) -> Result<(), String> {
    let help = format!(
        "The build needs the MuJoCo {VERSION} library. Either\n\
         - install Python 3 with pip (Debian: apt-get install python3-pip) and let pip reach its package index, or\n\
         - set MUJOCO_LIB_DIR to the folder that holds {LIBRARY}, e.g. `lib` of a MuJoCo {VERSION} release."
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
