//! Gives `epo` a run path to the MuJoCo library, so that it starts from any folder.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(dir) = std::env::var("DEP_EPO_MUJOCO_LIB_DIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
