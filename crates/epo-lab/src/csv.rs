//! A CSV file that grows by rows and can be truncated to a number of rows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::LabError;

/// A comma-separated file with a header, open for appending.
#[derive(Debug)]
pub(crate) struct Csv {
    path: PathBuf,
    file: File,
    rows: u64,
}

impl Csv {
    /// Creates a file with the header `header` and no rows. An existing file is overwritten.
    pub(crate) fn create(path: PathBuf, header: &str) -> Result<Self, LabError> {
        let file = File::create(&path);
        let file = file.map_err(LabError::io("create", &path))?;
        let mut table = Self { path, file, rows: 0 };
        table.write(&format!("{header}\n"))?;
        Ok(table)
    }

    /// Opens an existing file and truncates it to `rows` rows. Returns the table and the last row that is kept.
    ///
    /// # Errors
    /// If the file cannot be read, has another header or has fewer than `rows` complete rows.
    pub(crate) fn reopen(path: PathBuf, header: &str, rows: u64) -> Result<(Self, Option<String>), LabError> {
        let text = std::fs::read_to_string(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => LabError::run(&path, e.to_string()),
            _ => LabError::io("read", &path)(e),
        })?;
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let first = lines.next().unwrap_or_default();
        if first.trim_end() != header {
            return Err(LabError::run(&path, "the columns differ from those of this run"));
        }
        let kept: Vec<&str> = lines.take(rows as usize).collect();
        if (kept.len() as u64) < rows {
            return Err(LabError::run(
                &path,
                format!("the file has {} rows, but the checkpoint needs {rows}", kept.len()),
            ));
        }
        let length = first.len() + kept.iter().map(|line| line.len()).sum::<usize>();
        let file = OpenOptions::new().append(true).open(&path).map_err(LabError::io("open", &path))?;
        file.set_len(length as u64).map_err(LabError::io("truncate", &path))?;
        Ok((Self { path, file, rows }, kept.last().map(|line| line.trim_end().to_owned())))
    }

    /// Appends rows in one write. Each row must end with a newline.
    pub(crate) fn append(&mut self, lines: &str) -> Result<(), LabError> {
        debug_assert!(lines.is_empty() || lines.ends_with('\n'));
        self.rows += lines.bytes().filter(|&b| b == b'\n').count() as u64;
        self.write(lines)
    }

    /// Number of rows, without the header.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Waits until all rows are on the disk.
    pub(crate) fn sync(&self) -> Result<(), LabError> {
        self.file.sync_data().map_err(LabError::io("sync", &self.path))
    }

    fn write(&mut self, text: &str) -> Result<(), LabError> {
        self.file.write_all(text.as_bytes()).map_err(LabError::io("write", &self.path))
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
        table.append("5,6\n").unwrap();
        table.write("7,").unwrap(); // the process died in the middle of a row
        assert_eq!(table.rows(), 3);
        let (mut table, last) = Csv::reopen(path.clone(), "a,b", 2).unwrap();
        assert_eq!(last.as_deref(), Some("3,4"));
        assert_eq!(cell("a,b", "3,4", "b"), Some(4.0));
        table.append("8,9\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,2\n3,4\n8,9\n");
        assert!(Csv::reopen(path.clone(), "a,b", 4).is_err(), "fewer rows than asked for");
        assert!(Csv::reopen(path.clone(), "a,c", 1).is_err(), "other columns");
        assert!(Csv::reopen(dir.path().join("none"), "a,b", 0).is_err());
    }
}
