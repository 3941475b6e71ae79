//! A CSV file that grows by rows and can be truncated to a number of rows. It keeps a running hash of its content.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::LabError;
use crate::checkpoint::hex;

/// Maximum length of a row, in bytes.
const MOST_ROW_BYTES: u64 = 1 << 20;
/// Maximum size of a file of the record, in bytes.
pub(crate) const MOST_RECORD_BYTES: u64 = 64 << 30;

/// A comma-separated file with a header, open for appending.
#[derive(Debug)]
pub(crate) struct Csv {
    path: PathBuf,
    file: File,
    rows: u64,
    /// Length of the header and of all rows, in bytes.
    length: u64,
    /// Whether a column is part of the hash.
    hashed: Vec<bool>,
    hash: Sha256,
}

impl Csv {
    /// Creates a file with the header `header` and no rows. An existing file is overwritten.
    pub(crate) fn create(path: PathBuf, header: &str) -> Result<Self, LabError> {
        let file = File::create(&path);
        let file = file.map_err(LabError::io("create", &path))?;
        let mut table = Self::new(path, file, header);
        table.write(&format!("{header}\n"))?;
        Ok(table)
    }

    fn new(path: PathBuf, file: File, header: &str) -> Self {
        let hashed = header.split(',').map(|column| !depends_on_the_clock(column)).collect();
        let mut table = Self { path, file, rows: 0, length: 0, hashed, hash: Sha256::new() };
        table.count(header.as_bytes());
        table
    }

    /// Opens an existing file at its row number `rows`. It reads every row up to there and gives it to `row`, which may
    /// refuse it with a reason. It changes nothing: [`Csv::truncate`] removes the later rows.
    ///
    /// # Errors
    /// If the file cannot be read, has another header, has fewer than `rows` complete rows, or a row is refused.
    pub(crate) fn reopen(
        path: PathBuf,
        header: &str,
        rows: u64,
        mut row: impl FnMut(u64, &str) -> Result<(), String>,
    ) -> Result<Self, LabError> {
        let mut lines = Lines::open(&path)?;
        let first = lines.next()?.unwrap_or_default();
        if first != header {
            return Err(LabError::run(&path, "the columns differ from those of this run"));
        }
        let file = OpenOptions::new().append(true).open(&path).map_err(LabError::io("open", &path))?;
        let mut table = Self::new(path, file, header);
        for index in 0..rows {
            let Some(line) = lines.next()? else {
                let why = format!("the file has {index} rows, but the checkpoint needs {rows}");
                return Err(LabError::run(&table.path, why));
            };
            row(index, line).map_err(|why| LabError::run(&table.path, why))?;
            table.count(line.as_bytes());
        }
        (table.rows, table.length) = (rows, lines.bytes);
        Ok(table)
    }

    /// Removes everything after the row that [`Csv::reopen`] stopped at.
    pub(crate) fn truncate(&self) -> Result<(), LabError> {
        self.file.set_len(self.length).map_err(LabError::io("truncate", &self.path))
    }

    /// Appends rows in one write. Each row must end with a newline.
    pub(crate) fn append(&mut self, lines: &str) -> Result<(), LabError> {
        debug_assert!(lines.is_empty() || lines.ends_with('\n'));
        for line in lines.lines() {
            self.rows += 1;
            self.count(line.as_bytes());
        }
        self.write(lines)
    }

    /// Number of rows, without the header.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the hash of header and rows, without the columns that depend on the clock. The time that this takes does
    /// not depend on the number of rows.
    pub(crate) fn hash(&self) -> String {
        hex(&self.hash.clone().finalize())
    }

    /// The rows up to [`Csv::rows`], read again.
    pub(crate) fn lines(&self) -> Result<Lines, LabError> {
        let mut lines = Lines::open(&self.path)?;
        lines.next()?; // the header
        Ok(lines)
    }

    /// Waits until all rows are written to the disk.
    pub(crate) fn sync(&self) -> Result<(), LabError> {
        self.file.sync_data().map_err(LabError::io("sync", &self.path))
    }

    /// Adds a line to the hash and to the counters.
    fn count(&mut self, line: &[u8]) {
        for (i, cell) in line.split(|&b| b == b',').enumerate() {
            if self.hashed.get(i).copied().unwrap_or(true) {
                self.hash.update(cell);
            }
            self.hash.update(b",");
        }
        self.hash.update(b"\n");
    }

    fn write(&mut self, text: &str) -> Result<(), LabError> {
        self.file.write_all(text.as_bytes()).map_err(LabError::io("write", &self.path))
    }
}

/// Whether the values of a column differ between repetitions of a run.
pub(crate) fn depends_on_the_clock(column: &str) -> bool {
    column.starts_with("Time/")
}

/// The complete lines of a file, without their line ends.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    line: Vec<u8>,
    /// Number of bytes of the lines that were read.
    bytes: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, LabError> {
        let file = epo_core::open_file(path, MOST_RECORD_BYTES).map_err(unreadable(path))?;
        Ok(Self { path: path.to_owned(), file: BufReader::new(file), line: Vec::new(), bytes: 0 })
    }

    /// Returns the next line; `None` at the end of the file or if the last line has no line end.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, LabError> {
        self.line.clear();
        let read = (&mut self.file).take(MOST_ROW_BYTES).read_until(b'\n', &mut self.line);
        let read = read.map_err(LabError::io("read", &self.path))?;
        if self.line.pop() != Some(b'\n') {
            return match read as u64 == MOST_ROW_BYTES {
                true => Err(LabError::run(&self.path, "a row is longer than 1 MiB")),
                false => Ok(None),
            };
        }
        self.bytes += read as u64;
        let line = std::str::from_utf8(&self.line);
        Ok(Some(line.map_err(|e| LabError::run(&self.path, e.to_string()))?))
    }
}

/// Turns the error of opening a file into [`LabError::Run`] if the file is missing or not regular.
pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let path = path.to_owned();
    move |e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData | io::ErrorKind::NotADirectory => {
            LabError::run(&path, format!("the file cannot be read ({e})"))
        }
        _ => LabError::io("read", &path)(e),
    }
}

/// Returns the number in the column `column` of a row; `None` if there is no such column or the cell is not a number.
pub(crate) fn cell(header: &str, row: &str, column: &str) -> Option<f64> {
    let index = header.split(',').position(|name| name == column)?;
    row.split(',').nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_its_rows_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let mut table = Csv::create(path.clone(), "a,b").unwrap();
        table.append("1,2\n3,4\n").unwrap();
        let two = table.hash();
        table.append("5,6\n").unwrap();
        table.write("7,").unwrap(); // the process died in the middle of a row
        assert_eq!(table.rows(), 3);
        let mut seen = Vec::new();
        let mut reopen = |rows| {
            Csv::reopen(path.clone(), "a,b", rows, |i, row| {
                seen.push((i, row.to_owned()));
                Ok(())
            })
        };
        let mut table = reopen(2).unwrap();
        assert_eq!(table.hash(), two);
        assert!(reopen(4).is_err(), "fewer rows than asked for");
        assert_eq!(seen[..2], [(0, "1,2".to_owned()), (1, "3,4".to_owned())]);
        assert_eq!(cell("a,b", "3,4", "b"), Some(4.0));
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("7,"), "reopening changes nothing");
        table.truncate().unwrap();
        table.append("8,9\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,2\n3,4\n8,9\n");
        let ok = |_, _: &str| Ok(());
        assert!(Csv::reopen(path.clone(), "a,c", 1, ok).is_err(), "other columns");
        assert!(Csv::reopen(path.clone(), "a,b", 1, |_, _| Err("no".into())).is_err(), "a refused row");
        assert!(Csv::reopen(dir.path().join("none"), "a,b", 0, ok).is_err());
    }

    /// Fails if the hash leaves out a cell, depends on a measured time, or does not tell cells apart.
    #[test]
    fn the_hash_covers_every_cell_without_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |rows: &str| {
            let mut table = Csv::create(dir.path().join("t.csv"), "a,Time/Total,b").unwrap();
            table.append(rows).unwrap();
            table.hash()
        };
        let one = hash("1,2,3\n");
        assert_eq!(one, hash("1,9.5,3\n"), "the clock");
        for other in ["1,2,4\n", "2,2,3\n", "1,2,3,4\n", "1,2\n", "1,2,3\n1,2,3\n", ""] {
            assert_ne!(one, hash(other), "{other:?}");
        }
    }
}
