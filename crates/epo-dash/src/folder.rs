//! Opens files of run folders. Nothing outside the folders that the user named can be reached.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use epo_report::policies;
use rustix::fs::OFlags;

/// Maximum size of a configuration, evaluation or manifest, in bytes; larger files are not read.
const MOST_TEXT: u64 = 1 << 20;
/// Maximum size of a checkpoint that is replayed, in bytes. A replay takes a multiple of it in memory.
const MOST_CHECKPOINT: u64 = 32 << 20;

/// A run folder below a folder that the user named.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    /// The folder that the user named, without links.
    root: PathBuf,
    /// The run folder.
    pub(crate) dir: PathBuf,
}

impl Folder {
    pub(crate) fn new(root: &Path, dir: &Path) -> Self {
        Self { root: root.to_owned(), dir: dir.to_owned() }
    }

    /// Opens a regular file of the folder; `None` if it does not exist. The error is a full sentence.
    ///
    /// Links are not followed, neither at the file nor on the way to it from the folder that the user named. A FIFO or
    /// a device does not block: it is opened without waiting and then refused.
    pub(crate) fn open(&self, name: &str) -> Result<Option<(File, Metadata)>, String> {
        let path = self.dir.join(name);
        let wrong = |why: String| format!("{name} cannot be read: {why}.");
        let parent = match path.parent().unwrap_or(&self.dir).canonicalize() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            parent => parent.map_err(|e| wrong(e.to_string()))?,
        };
        if !parent.starts_with(&self.root) {
            return Err(wrong("it is outside the folders that are shown".into()));
        }
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(_) if path.is_symlink() => return Err(wrong("it is a link".into())),
            file => file.map_err(|e| wrong(e.to_string()))?,
        };
        let about = file.metadata().map_err(|e| wrong(e.to_string()))?;
        match about.is_file() {
            true => Ok(Some((file, about))),
            false => Err(wrong("it is not a regular file".into())),
        }
    }

    /// Reads a small file as text; `None` if it does not exist.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some((file, about)) = self.open(name)? else { return Ok(None) };
        if about.len() > MOST_TEXT {
            let size = about.len();
            return Err(format!(
                "{name} cannot be read: it has {size} bytes, and at most {MOST_TEXT} are read."
            ));
        }
        let mut bytes = Vec::new();
        file.take(MOST_TEXT).read_to_end(&mut bytes).map_err(|e| format!("{name} cannot be read: {e}."))?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the number of finished epochs in the newest checkpoint; `None` if there is no checkpoint.
    pub(crate) fn newest_checkpoint(&self) -> Option<u64> {
        self.checkpoints().into_iter().max()
    }

    /// Returns the numbers of finished epochs in the checkpoints.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        let dir = self.dir.join("checkpoint");
        if dir.is_symlink() {
            return Vec::new();
        }
        let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.take(1000).filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
    }

    /// Refuses a folder in which a file that a replay reads is neither a regular file nor a folder, for example a link.
    /// Also refuses a folder with a checkpoint that is too large. The error is a full sentence.
    pub(crate) fn check_for_replay(&self) -> Result<(), String> {
        let wrong = |path: &Path| {
            let name = path.strip_prefix(&self.dir).unwrap_or(path).display().to_string();
            format!("The run cannot be replayed: {name} is a link or a special file.")
        };
        let whole = self.dir.canonicalize().map_err(|e| format!("The run cannot be replayed: {e}."))?;
        if !whole.starts_with(&self.root) {
            return Err("The run cannot be replayed: it is outside the folders that are shown.".into());
        }
        let files = ["config.toml", "episodes.csv", policies::FILE];
        let mut paths: Vec<PathBuf> = files.iter().map(|name| self.dir.join(name)).collect();
        let mut folders = vec![self.dir.join("checkpoint")];
        while let Some(folder) = folders.pop() {
            match folder.symlink_metadata() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                about if !about.as_ref().is_ok_and(Metadata::is_dir) => return Err(wrong(&folder)),
                _ => {}
            }
            let mut size: u64 = 0;
            for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok).take(1000) {
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir {
                    folders.push(entry.path())
                } else {
                    paths.push(entry.path())
                }
                size = size.saturating_add(entry.metadata().map_or(0, |about| about.len()));
            }
            if size > MOST_CHECKPOINT {
                return Err(format!(
                    "The run cannot be replayed here: a checkpoint has {size} bytes, and at most {MOST_CHECKPOINT} are \
                     read. Use `epo replay` on the command line."
                ));
            }
        }
        for path in paths {
            match path.symlink_metadata() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                about if !about.as_ref().is_ok_and(Metadata::is_file) => return Err(wrong(&path)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// This test fails if a reader follows a link out of the folder, at the file or above it, or waits for a FIFO.
    #[test]
    fn links_and_special_files_are_refused() {
        let tree = tempfile::tempdir().unwrap();
        let base = tree.path().canonicalize().unwrap();
        let (root, outside) = (base.join("runs"), base.join("outside"));
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("config.toml"), "secret").unwrap();
        fs::write(root.join("a/config.toml"), "mine").unwrap();
        symlink(outside.join("config.toml"), root.join("a/linked.toml")).unwrap();
        symlink(&outside, root.join("b")).unwrap();
        symlink("/dev/zero", root.join("a/zero")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("a/fifo"), rustix::fs::Mode::RUSR).unwrap();

        let a = Folder::new(&root, &root.join("a"));
        assert_eq!(a.text("config.toml").unwrap().as_deref(), Some("mine"));
        assert_eq!(a.text("none").unwrap(), None);
        for (name, why) in [("linked.toml", "a link"), ("zero", "a link"), ("fifo", "not a regular file")] {
            let said = a.text(name).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let said = Folder::new(&root, &root.join("b")).text("config.toml").unwrap_err();
        assert!(said.contains("outside"), "{said}");
        let said = a.text("../../outside/config.toml").unwrap_err();
        assert!(said.contains("outside"), "{said}");
    }
}
