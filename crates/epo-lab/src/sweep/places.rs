//! Locations of the files of a sweep.
//!
//! ```text
//! DIR/layout                           `flat` or `sharded`; written once, by the first process
//! DIR/journal/<run>/                   journal of a run; flat layout
//! DIR/runs/ALGO-{TASK}/<run>/          run folder; flat layout
//! DIR/journal/3f/<run>/                sharded layout: 256 parts, chosen by a hash of the run's name
//! DIR/runs/3f/ALGO-{TASK}/<run>/
//! ```
//! A sweep of more than [`MOST_FLAT`] runs is sharded, so no folder has more than a few thousand
//! entries. A sweep keeps its layout, even if runs are added later.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Maximum number of runs of a sweep whose folders are not spread over 256 parts.
pub const MOST_FLAT: usize = 1000;

/// The folders of one sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    dir: PathBuf,
    sharded: bool,
}

impl Places {
    /// Opens the folder of a sweep of `runs` runs, and makes it if it does not exist.
    ///
    /// # Errors
    /// If the folder cannot be made or its file `layout` cannot be read.
    pub fn open(dir: &Path, runs: usize) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let path = dir.join("layout");
        // sweeps of version 0.3 and earlier have no such file and are flat
        let sharded = runs > MOST_FLAT && !dir.join("journal").exists();
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                let text = if sharded { "sharded\n" } else { "flat\n" };
                file.write_all(text.as_bytes()).map_err(at(&path))?;
                Ok(Self { dir: dir.to_owned(), sharded })
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::find(dir),
            Err(e) => Err(at(&path)(e)),
        }
    }

    /// Opens the folder of a sweep for reading; nothing is written. A folder that does not exist has no runs.
    ///
    /// # Errors
    /// If the file `layout` cannot be read or has other content.
    pub fn find(dir: &Path) -> io::Result<Self> {
        let path = dir.join("layout");
        let mut tries = 0;
        let sharded = loop {
            let text = match epo_core::read_text(&path, 100) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => break false,
                text => text.map_err(at(&path))?,
            };
            match text.trim() {
                "flat" => break false,
                "sharded" => break true,
                // another process has made the file and has not written it yet
                "" if tries < 100 => std::thread::sleep(std::time::Duration::from_millis(20)),
                other => {
                    let why =
                        format!("`{}` is not a sweep layout: write flat or sharded", other.escape_debug());
                    return Err(at(&path)(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
            }
            tries += 1;
        };
        Ok(Self { dir: dir.to_owned(), sharded })
    }

    /// Folder of the sweep.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the folders are spread over 256 parts.
    pub fn is_sharded(&self) -> bool {
        self.sharded
    }

    /// Returns the folder of run `id` in the journal.
    pub fn journal(&self, id: &str) -> PathBuf {
        self.part("journal", id).join(id)
    }

    /// Returns the folder that `epo train --runs` is given for run `id`.
    pub fn runs(&self, id: &str) -> PathBuf {
        self.part("runs", id)
    }

    /// Returns the run folder of run `id`; `None` if it does not exist.
    pub fn run_folder(&self, id: &str) -> Option<PathBuf> {
        let parents = fs::read_dir(self.runs(id)).ok()?;
        parents.filter_map(Result::ok).map(|parent| parent.path().join(id)).find(|dir| dir.is_dir())
    }

    /// Returns all run folders by the name of their run. Each folder above them is listed once, so this is cheap for
    /// many runs.
    pub fn run_folders(&self) -> HashMap<String, PathBuf> {
        let roots = if self.sharded { entries(&self.dir.join("runs")) } else { vec![self.dir.join("runs")] };
        let runs = roots.iter().flat_map(|root| entries(root)).flat_map(|parent| entries(&parent));
        let name = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), path));
        runs.filter_map(name).collect()
    }

    fn part(&self, kind: &str, id: &str) -> PathBuf {
        let root = self.dir.join(kind);
        match self.sharded {
            true => root.join(format!("{:02x}", Sha256::digest(id.as_bytes())[0])),
            false => root,
        }
    }
}

/// Returns the folders in a folder.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    all.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Adds the path of a file to an error. For use with `map_err`.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.to_owned();
    move |e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_sweep_is_spread_and_keeps_its_layout() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::open(dir.path(), MOST_FLAT + 1).unwrap();
        let part = places.runs("epo-a");
        assert_eq!(part.parent(), Some(&*dir.path().join("runs")), "one part below `runs`: {part:?}");
        assert_eq!(places.journal("epo-a").parent().unwrap().file_name(), part.file_name(), "same part");
        assert_eq!(places.run_folder("epo-a"), None);
        let run = part.join("EPO-{T}/epo-a");
        fs::create_dir_all(&run).unwrap();
        assert_eq!(places.run_folder("epo-a"), Some(run.clone()));
        assert_eq!(places.run_folders(), HashMap::from([("epo-a".to_owned(), run)]));
        assert_eq!(Places::open(dir.path(), 1).unwrap(), places, "fewer runs later");
        let parts: std::collections::BTreeSet<_> = (0..4000).map(|i| places.runs(&format!("{i}"))).collect();
        assert_eq!(parts.len(), 256, "the runs are spread over all parts");
    }

    /// Fails if runs that are added to a flat sweep are looked for elsewhere, or if a sweep of 0.3 is not flat.
    #[test]
    fn a_small_or_old_sweep_stays_flat() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::open(&dir.path().join("new"), MOST_FLAT).unwrap();
        assert_eq!(places.journal("a"), dir.path().join("new/journal/a"));
        assert_eq!(Places::open(&dir.path().join("new"), MOST_FLAT + 1).unwrap(), places);
        fs::create_dir_all(dir.path().join("old/journal/a")).unwrap();
        let old = Places::open(&dir.path().join("old"), MOST_FLAT + 1).unwrap();
        assert_eq!(old.runs("a"), dir.path().join("old/runs"));
        fs::write(dir.path().join("old/layout"), "round\n").unwrap();
        assert!(
            Places::find(&dir.path().join("old")).unwrap_err().to_string().contains("not a sweep layout")
        );
    }
}
