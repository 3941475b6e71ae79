//! Extracts files from Python wheels, for build scripts.
//!
//! Libraries that are not crates come from Python wheels, because a package index is reachable from more
//! machines than a release page, and `pip` is usually installed with Python. `pip` checks the hash of the
//! wheel. Fetched files are not committed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// A wheel and the files that a build takes out of it.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// Name of the package.
    pub name: &'static str,
    /// Version of the package.
    pub version: &'static str,
    /// SHA-256 of the wheel.
    pub sha256: &'static str,
    /// Platform of a wheel with compiled code. `None` for a wheel that fits every platform.
    pub platform: Option<&'static str>,
    /// Files of the wheel, each with its name in the folder. If both names end in `/`, all files of
    /// that folder of the wheel are taken.
    pub files: &'static [(&'static str, &'static str)],
}

impl Wheel {
    /// Returns a folder below `OUT_DIR` with the files. If they are not there yet, the wheel is fetched.
    ///
    /// `wheels` is a folder that contains the wheel, for builds without a network. `help` explains
    /// how to build without fetching; error messages show it as an item of a list.
    pub fn unpack(&self, wheels: Option<&OsStr>, help: &str) -> Result<PathBuf, String> {
        let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
        let folder = out.join(format!("{}-{}", self.name, self.version));
        if self.is_complete(&folder) {
            return Ok(folder);
        }
        self.fetch(&out, &folder, wheels).map_err(|reason| {
            format!(
                "{reason}\nThe build needs the wheel of {} {}. Either\n\
                 - install Python 3 with pip (Debian: apt-get install python3-pip) and let pip reach its package index, or\n\
                 - {help}",
                self.name, self.version
            )
        })?;
        Ok(folder)
    }

    fn is_complete(&self, folder: &Path) -> bool {
        self.files.iter().all(|(_, name)| folder.join(name).exists())
    }

    fn fetch(&self, out: &Path, folder: &Path, wheels: Option<&OsStr>) -> Result<(), String> {
        let Self { name, version, sha256, .. } = self;
        let io = |e: io::Error| format!("{}: {e}", out.display());
        let (requirements, fetched) = (out.join(format!("{name}.txt")), out.join(format!("{name}.wheel")));
        // `--require-hashes` needs a requirements file; everything stays inside OUT_DIR
        fs::write(&requirements, format!("{name}=={version} --hash=sha256:{sha256}\n")).map_err(io)?;
        empty(&fetched).map_err(io)?;
        let mut pip = Command::new("python3");
        let flags = "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
                     --python-version 3.12 --require-hashes -r";
        pip.args(flags.split(' ')).arg(&requirements).arg("-d").arg(&fetched);
        if let Some(platform) = self.platform {
            pip.args(["--implementation", "cp", "--platform", platform]);
        }
        if let Some(wheels) = wheels {
            pip.args(["--no-index", "--find-links"]).arg(wheels);
        }
        run(&mut pip)?;
        let mut files = fs::read_dir(&fetched).map_err(io)?.filter_map(Result::ok).map(|entry| entry.path());
        let wheel = files.find(|path| path.extension().is_some_and(|e| e == "whl"));
        let wheel = wheel.ok_or_else(|| format!("pip left no wheel in {}", fetched.display()))?;

        // the rename comes last, so an existing folder is complete
        let partial = out.join(format!("{name}.partial"));
        empty(&partial).map_err(io)?;
        let mut python = Command::new("python3");
        python.args(["-c", UNPACK]).arg(&wheel).arg(&partial);
        run(python.args(self.files.iter().flat_map(|(member, name)| [member, name])))?;
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(io)?;
        }
        fs::rename(&partial, folder).map_err(io)?;
        fs::remove_dir_all(&fetched).map_err(io)
    }
}

/// Arguments: the wheel, the folder, and pairs of a member and its name.
const UNPACK: &str = r#"
import pathlib, sys, zipfile
wheel, folder, *pairs = sys.argv[1:]
archive = zipfile.ZipFile(wheel)
for member, name in zip(pairs[::2], pairs[1::2]):
    rest = lambda entry: entry[len(member):]
    below = lambda entry: member.endswith("/") and entry.startswith(member) and rest(entry) and "/" not in rest(entry)
    entries = [entry for entry in archive.namelist() if not entry.endswith("/") and (entry == member or below(entry))]
    if not entries:
        sys.exit(f"{wheel} has no {member}")
    for entry in entries:
        path = pathlib.Path(folder, name + rest(entry))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(entry))
"#;

/// Makes an empty folder.
fn empty(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)
}

fn run(python: &mut Command) -> Result<(), String> {
    match python.output() {
        Err(e) => Err(format!("python3 could not be started: {e}.")),
        Ok(out) if !out.status.success() => Err(String::from_utf8_lossy(&out.stderr).trim_end().to_owned()),
        Ok(_) => Ok(()),
    }
}

/// Ends a build script. An error is printed line by line, in the form that cargo expects.
#[allow(clippy::print_stdout, reason = "cargo reads the output of a build script")]
pub fn finish(result: Result<(), String>) {
    if let Err(reason) = result {
        for line in reason.lines() {
            println!("cargo::error={line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wheel is a zip file; Python writes it, as `UNPACK` needs Python anyway.
    const MAKE: &str = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as z:\n  for m in sys.argv[2:]: z.writestr(m, 'text of ' + m)";

    fn unpack(pairs: &[&str]) -> (tempfile::TempDir, Result<(), String>) {
        let dir = tempfile::tempdir().unwrap();
        let (wheel, to) = (dir.path().join("x.whl"), dir.path().join("to"));
        let members = ["a/", "a/one.js", "a/two.js", "a/deep/three.js", "a-other.js", "LICENSE"];
        run(Command::new("python3").args(["-c", MAKE]).arg(&wheel).args(members)).unwrap();
        let done = run(Command::new("python3").args(["-c", UNPACK]).arg(&wheel).arg(&to).args(pairs));
        (dir, done)
    }

    /// This test fails if a file gets the wrong name or content, or if a folder brings more than its own files.
    #[test]
    fn files_and_folders_are_unpacked_under_their_new_names() {
        let (dir, done) = unpack(&["a/", "include/x/", "LICENSE", "licence.txt"]);
        done.unwrap();
        let text = |name: &str| fs::read_to_string(dir.path().join("to").join(name)).ok();
        assert_eq!(text("include/x/one.js").as_deref(), Some("text of a/one.js"));
        assert_eq!(text("include/x/two.js").as_deref(), Some("text of a/two.js"));
        assert_eq!(text("licence.txt").as_deref(), Some("text of LICENSE"));
        assert_eq!(fs::read_dir(dir.path().join("to/include/x")).unwrap().count(), 2);
        assert_eq!(fs::read_dir(dir.path().join("to")).unwrap().count(), 2);
    }

    /// This test fails if a build continues without a file that it needs.
    #[test]
    fn a_file_that_the_wheel_lacks_is_an_error() {
        for missing in ["a/four.js", "b/", "one.js"] {
            let reason = unpack(&[missing, missing]).1.unwrap_err();
            assert!(reason.contains(&format!("has no {missing}")), "{reason}");
        }
    }

    /// This test fails if a folder of an earlier build, which lacks a file, counts as complete.
    #[test]
    fn a_folder_is_complete_if_it_has_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = &[("x/a", "a"), ("x/b/", "b/")];
        let wheel = Wheel { name: "n", version: "1", sha256: "", platform: None, files };
        fs::write(dir.path().join("a"), "").unwrap();
        assert!(!wheel.is_complete(dir.path()));
        fs::create_dir(dir.path().join("b")).unwrap();
        assert!(wheel.is_complete(dir.path()));
    }
}
