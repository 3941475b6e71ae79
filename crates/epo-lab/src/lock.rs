//! The lock on a run folder: at most one process writes to it.
//!
//! The lock is an advisory lock (`flock`) on the file `lock` in the folder. The operating system releases it
//! when the process ends, however it ends, so a killed run never leaves a stale lock behind. On a shared folder
//! it works across machines if the file system supports this (NFS 4 and the common cluster file systems do).
//!
//! The same object detects that the folder is moved or replaced while a run trains ([`RunLock::check_place`]):
//! open files would be written to the moved folder, but new checkpoints would not.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// Exclusive right to write to a run folder; released when dropped.
#[derive(Debug)]
pub struct RunLock {
    dir: PathBuf,
    /// Device and inode of the folder when it was locked.
    id: (u64, u64),
    /// Holds the lock while it is open.
    _file: File,
}

impl RunLock {
    /// Locks an existing run folder.
    ///
    /// # Errors
    /// [`LabError::Locked`] if another process, or another `RunLock` of this process, holds it. A file system without
    /// locks is not an error: the run continues without a lock.
    pub fn acquire(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("lock");
        // a link could lead out of the folder, and the file is emptied below
        if fs::symlink_metadata(&path).is_ok_and(|about| !about.is_file()) {
            return Err(LabError::run(&path, "the lock is not a regular file"));
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(LabError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&mut file).take(1000).read_to_string(&mut holder);
                let known = Some(holder.trim()).filter(|text| !text.is_empty());
                let holder = known.unwrap_or("another process").to_owned();
                return Err(LabError::Locked { dir: dir.to_owned(), holder });
            }
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(LabError::io("lock", &path)(e)),
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let holder = format!("process {} on {}\n", std::process::id(), host.trim());
        let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        written.map_err(LabError::io("write", &path))?;
        Ok(Self { id: identity(dir)?, dir: dir.to_owned(), _file: file })
    }

    /// Returns an error if the folder that was locked has been moved, deleted or replaced.
    pub fn check_place(&self) -> Result<(), LabError> {
        match identity(&self.dir) {
            Ok(id) if id == self.id => Ok(()),
            _ => Err(LabError::Moved(self.dir.clone())),
        }
    }
}

fn identity(dir: &Path) -> Result<(u64, u64), LabError> {
    let metadata = fs::metadata(dir).map_err(LabError::io("read", dir))?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunLock::acquire(dir.path()).unwrap();
        let refused = RunLock::acquire(dir.path()).unwrap_err();
        let LabError::Locked { holder, .. } = &refused else { panic!("{refused}") };
        assert!(holder.starts_with(&format!("process {} on ", std::process::id())), "{holder}");
        drop(first);
        RunLock::acquire(dir.path()).unwrap();
    }

    /// Fails if a lock that is a link empties the file that it leads to.
    #[test]
    fn a_lock_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (run, victim) = (dir.path().join("run"), dir.path().join("victim"));
        fs::create_dir(&run).unwrap();
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, run.join("lock")).unwrap();
        assert!(matches!(RunLock::acquire(&run), Err(LabError::Run { .. })));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn a_moved_or_replaced_folder_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("run"), dir.path().join("moved"));
        fs::create_dir(&here).unwrap();
        let lock = RunLock::acquire(&here).unwrap();
        lock.check_place().unwrap();
        fs::rename(&here, &there).unwrap();
        assert!(matches!(lock.check_place(), Err(LabError::Moved(_))), "moved");
        fs::create_dir(&here).unwrap();
        assert!(matches!(lock.check_place(), Err(LabError::Moved(_))), "replaced");
        fs::remove_dir(&here).unwrap();
        fs::rename(&there, &here).unwrap();
        lock.check_place().unwrap();
    }
}
