//! Follows a CSV file that grows: only new bytes are read, and only whole rows are returned.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

/// Maximum length of a row, in bytes. A file with a longer row is not read further.
pub(crate) const MOST_ROW: usize = 1 << 20;
/// Maximum number of bytes that one call reads, so that a huge file does not hold up the others.
const MOST_BYTES: u64 = 4 << 20;
/// Number of bytes before the position that are compared to notice a file that was rewritten.
const REMEMBERED: u64 = 64;

/// Position in a file that grows.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    inode: u64,
    /// Number of bytes that were returned as rows.
    offset: u64,
    /// The last bytes before `offset`.
    before: Vec<u8>,
}

/// Result of one call of [`Tail::read`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NewRows {
    /// There is no new row.
    Nothing,
    /// These are new rows, each with its line end. If `again` is true, the file was rewritten, and these are its
    /// first rows.
    Rows {
        /// The rows.
        text: Vec<u8>,
        /// True if all earlier rows are invalid.
        again: bool,
        /// True if the end of the file was not reached.
        more: bool,
    },
    /// A row is longer than [`MOST_ROW`].
    TooLong,
}

impl Tail {
    /// Returns the rows that were added since the last call. A half-written last row waits for the next call.
    pub(crate) fn read(&mut self, file: &mut File) -> io::Result<NewRows> {
        let about = file.metadata()?;
        let mut again = false;
        if about.ino() != self.inode || about.len() < self.offset {
            again = self.offset > 0;
            *self = Self { inode: about.ino(), ..Self::default() };
        }
        if about.len() == self.offset {
            return Ok(if again {
                NewRows::Rows { text: Vec::new(), again, more: false }
            } else {
                NewRows::Nothing
            });
        }
        let known = self.before.len() as u64;
        file.seek(SeekFrom::Start(self.offset - known))?;
        let mut text = Vec::new();
        file.take(known + MOST_BYTES).read_to_end(&mut text)?;
        if !text.starts_with(&self.before) {
            // The file was truncated and has grown past the old position, as when a run is resumed.
            *self = Self { inode: about.ino(), ..Self::default() };
            file.seek(SeekFrom::Start(0))?;
            text.clear();
            file.take(MOST_BYTES).read_to_end(&mut text)?;
            again = true;
        } else {
            text.drain(..known as usize);
        }
        let full = text.len() as u64 == MOST_BYTES;
        let end = text.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        if text.len() - end > MOST_ROW {
            return Ok(NewRows::TooLong);
        }
        text.truncate(end);
        if end == 0 {
            return Ok(if again { NewRows::Rows { text, again, more: false } } else { NewRows::Nothing });
        }
        self.offset += end as u64;
        let kept = (REMEMBERED as usize).min(end);
        self.before = text[end - kept..].to_vec();
        Ok(NewRows::Rows { text, again, more: full })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn rows(tail: &mut Tail, path: &std::path::Path) -> (String, bool) {
        match tail.read(&mut File::open(path).unwrap()).unwrap() {
            NewRows::Rows { text, again, .. } => (String::from_utf8(text).unwrap(), again),
            NewRows::Nothing => (String::new(), false),
            NewRows::TooLong => panic!("too long"),
        }
    }

    /// This test fails if a half-written row is returned, a row is returned twice, or a rewritten file is missed.
    #[test]
    fn rows_are_returned_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let append = |text: &str| {
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        use std::fs::OpenOptions;
        let mut tail = Tail::default();
        append("a,b\n1,2\n3,");
        assert_eq!(rows(&mut tail, &path), ("a,b\n1,2\n".into(), false));
        assert_eq!(rows(&mut tail, &path), (String::new(), false));
        append("4\n");
        assert_eq!(rows(&mut tail, &path), ("3,4\n".into(), false));
        // shorter than before
        fs::write(&path, "a,b\n9,9\n").unwrap();
        assert_eq!(rows(&mut tail, &path), ("a,b\n9,9\n".into(), true));
        // truncated, and longer than before when it is seen next
        fs::write(&path, "a,b\n7,7\n8,8\n").unwrap();
        assert_eq!(rows(&mut tail, &path), ("a,b\n7,7\n8,8\n".into(), true));
    }

    #[test]
    fn a_file_without_line_ends_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, vec![b'x'; MOST_ROW + 1]).unwrap();
        assert_eq!(Tail::default().read(&mut File::open(&path).unwrap()).unwrap(), NewRows::TooLong);
    }

    #[test]
    fn a_large_file_comes_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let line = "x".repeat(99) + "\n";
        fs::write(&path, line.repeat(100_000)).unwrap();
        let (mut tail, mut lines, mut calls) = (Tail::default(), 0, 0);
        loop {
            calls += 1;
            match tail.read(&mut File::open(&path).unwrap()).unwrap() {
                NewRows::Rows { text, more, again: false } => {
                    lines += text.iter().filter(|&&b| b == b'\n').count();
                    if !more {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((lines, calls), (100_000, 3));
    }
}
