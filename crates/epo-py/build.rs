//! Copies the MuJoCo library and its licences into the build folder, from where maturin puts them into the wheel
//! (`include` in `pyproject.toml`).
//!
//! The copy gets its own SONAME. Otherwise the package `mujoco`, if it is imported after this one, would use
//! our copy instead of its own, and with it our error handler.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(reason) = copy() {
        println!("cargo::error={reason}");
    }
}

fn copy() -> Result<(), String> {
    // set by the build script of epo-mujoco
    let variable = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let from = PathBuf::from(variable("DEP_EPO_MUJOCO_SHIM_DIR")?);
    let library = variable("DEP_EPO_MUJOCO_SHIM_LIBRARY")?;
    let to = Path::new(&variable("OUT_DIR")?).join("mujoco");
    fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    let put = |file: &Path, name: &str| {
        fs::copy(file, to.join(name)).map(|_| ()).map_err(|e| format!("{}: {e}", file.display()))
    };
    let bytes =
        fs::read(from.join(&library)).map_err(|e| format!("{}: {e}", from.join(&library).display()))?;
    let renamed = with_own_name(bytes, &library)?;
    fs::write(to.join(&library), renamed).map_err(|e| format!("{}: {e}", to.display()))?;
    for licence in ["LICENSE", "LICENSES_THIRD_PARTY.md"] {
        // an installation that MUJOCO_LIB_DIR names has them beside its `lib` folder, if at all
        let places = [from.join(licence), from.join("..").join(licence)];
        match places.iter().find(|path| path.is_file()) {
            Some(path) => put(path, licence)?,
            None => println!(
                "cargo::warning=MuJoCo's {licence} is not in {}: do not distribute this wheel",
                from.display()
            ),
        }
    }
    Ok(())
}

/// Replaces the SONAME, which is the name of the file, by one of the same length.
fn with_own_name(mut bytes: Vec<u8>, library: &str) -> Result<Vec<u8>, String> {
    let old = format!("\0{library}\0").into_bytes();
    let new = old.iter().map(|b| if *b == b'm' { b'e' } else { *b }).collect::<Vec<_>>(); // libeujoco.so…
    let places: Vec<usize> =
        (0..bytes.len().saturating_sub(old.len())).filter(|&i| bytes[i..].starts_with(&old)).collect();
    match places[..] {
        [at] => bytes[at..at + new.len()].copy_from_slice(&new),
        _ => return Err(format!("{library} contains its name {} times instead of once", places.len())),
    }
    Ok(bytes)
}
