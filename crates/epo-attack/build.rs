//! Compiles `src/fault.c`, a library that makes system calls of a process fail.

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/fault.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("libepo_fault.so");
    let mut compiler = cc::Build::new().opt_level(1).get_compiler().to_command();
    let status = compiler
        .args(["-shared", "-fPIC", "-Wall", "-o"])
        .arg(&out)
        .args(["src/fault.c", "-ldl"])
        .status()?;
    if !status.success() {
        println!("cargo::error=src/fault.c could not be compiled");
    }
    println!("cargo::rustc-env=EPO_FAULT_LIB={}", out.display());
    Ok(())
}
