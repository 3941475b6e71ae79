//! Reading of files that someone else may have written or replaced.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file of at most `most` bytes for reading. Links are followed.
///
/// A FIFO or a device is refused before it is opened, because opening or reading it could block or never end.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a file that is not regular or too long; otherwise the error of the system.
pub fn open_file(path: &Path, most: u64) -> io::Result<File> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return refuse("it is not a regular file".into());
    }
    if about.len() > most {
        return refuse(format!("it has {} bytes, and at most {most} are read", about.len()));
    }
    File::open(path)
}

/// Reads a regular file of at most `most` bytes as text.
///
/// # Errors
/// As [`open_file`]; also [`io::ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    // a file that grows while it is read is cut off here
    open_file(path, most)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Maximum size of a configuration, a sweep file, an evaluation or a manifest, in bytes.
pub const MOST_TEXT_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the type or the size is not checked before the file is opened: a FIFO then blocks this test.
    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = std::env::temp_dir().join(format!("epo-core-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("f");
        assert_eq!(read_text(&path, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "abc").unwrap();
        assert_eq!(read_text(&path, 3).unwrap(), "abc");
        assert!(read_text(&path, 2).unwrap_err().to_string().contains("3 bytes, and at most 2"));
        let (zero, fifo) = (dir.join("zero"), dir.join("fifo"));
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&zero, &fifo, &dir] {
            let error = read_text(path, 9).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{}: {error}", path.display());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
