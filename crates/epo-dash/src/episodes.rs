//! Finds the episodes of an epoch in `episodes.csv`.
//!
//! The file is indexed as it grows: every byte is read once to build the index. A request then reads only the part of
//! the file that it asks for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::folder::Folder;

/// Number of rows between two marks of the index.
const SPACING: u64 = 512;
/// Maximum length of a row in bytes.
const MOST_ROW: u64 = 1 << 16;
/// Maximum number of bytes that are indexed.
const MOST_BYTES: u64 = 2 << 30;
/// Maximum number of episodes of an epoch that are read.
const MOST_EPISODES: usize = 20_000;
/// Maximum number of runs with an index.
const MOST_RUNS: usize = 64;

/// One episode of training, a row of `episodes.csv`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Episode {
    /// Row of `episodes.csv`, from 1; the header is not counted. It names the episode in the address of its replay.
    pub row: u64,
    /// Environment steps of the run when the episode ended.
    pub step: f64,
    /// Number of the environment.
    pub env: f64,
    /// Return.
    #[serde(rename = "return")]
    pub ret: f64,
    /// Cost.
    pub cost: f64,
    /// Number of steps of the episode.
    pub length: f64,
}

/// Positions of the rows of one `episodes.csv`.
#[derive(Debug, Default)]
struct Index {
    inode: u64,
    /// Number of bytes and rows that are indexed, the header not counted as a row.
    offset: u64,
    rows: u64,
    /// Columns step, env, return, cost and length.
    columns: [usize; 5],
    /// Step and position of every [`SPACING`]-th row, and the number of rows before it.
    marks: Vec<(f64, u64, u64)>,
}

impl Index {
    /// Indexes the bytes that were added.
    fn extend(&mut self, file: &mut File) -> Result<(), String> {
        let wrong = |e: io::Error| format!("episodes.csv cannot be read: {e}.");
        let about = file.metadata().map_err(wrong)?;
        if about.ino() != self.inode || about.len() < self.offset {
            *self = Self { inode: about.ino(), ..Self::default() };
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(wrong)?;
        let mut reader = BufReader::with_capacity(1 << 18, file.take(MOST_BYTES.saturating_sub(self.offset)));
        let mut line = Vec::new();
        while let Some(length) = next_row(&mut reader, &mut line).map_err(wrong)? {
            if self.offset == 0 {
                self.columns = columns(&line)?;
            } else {
                if self.rows.is_multiple_of(SPACING) {
                    self.marks.push((
                        cell(&line, self.columns[0]).unwrap_or(f64::NAN),
                        self.offset,
                        self.rows,
                    ));
                }
                self.rows += 1;
            }
            self.offset += length;
        }
        Ok(())
    }

    /// Returns the episodes that ended after `from` and not after `to` steps, the costliest first.
    fn find(&self, file: &mut File, from: f64, to: f64) -> Result<Vec<Episode>, String> {
        let wrong = |e: io::Error| format!("episodes.csv cannot be read: {e}.");
        let first = self.marks.partition_point(|m| m.0 <= from).saturating_sub(1);
        let Some(&(_, offset, before)) = self.marks.get(first) else { return Ok(Vec::new()) };
        let mut row = before;
        file.seek(SeekFrom::Start(offset)).map_err(wrong)?;
        let mut reader = BufReader::new(file.take(self.offset - offset));
        let (mut line, mut found) = (Vec::new(), Vec::new());
        while next_row(&mut reader, &mut line).map_err(wrong)?.is_some() && found.len() < MOST_EPISODES {
            let [step, env, ret, cost, length] = self.columns.map(|c| cell(&line, c).unwrap_or(f64::NAN));
            if step > to {
                break;
            }
            row += 1;
            if step > from {
                found.push(Episode { row, step, env, ret, cost, length });
            }
        }
        found.sort_by(|a, b| b.cost.total_cmp(&a.cost).then(a.row.cmp(&b.row)));
        Ok(found)
    }

    /// Returns the episode in row `row`.
    fn get(&self, file: &mut File, row: u64) -> Result<Option<Episode>, String> {
        let wrong = |e: io::Error| format!("episodes.csv cannot be read: {e}.");
        let Some(before) = row.checked_sub(1).filter(|_| row <= self.rows) else { return Ok(None) };
        let Some(&(_, offset, first)) = self.marks.get((before / SPACING) as usize) else { return Ok(None) };
        file.seek(SeekFrom::Start(offset)).map_err(wrong)?;
        let mut reader = BufReader::new(file.take(self.offset - offset));
        let mut line = Vec::new();
        for _ in first..row {
            next_row(&mut reader, &mut line).map_err(wrong)?;
        }
        let [step, env, ret, cost, length] = self.columns.map(|c| cell(&line, c).unwrap_or(f64::NAN));
        Ok(Some(Episode { row, step, env, ret, cost, length }))
    }
}

/// Reads one row with its line end into `line` and returns its length; `None` at the end or before a half-written row.
fn next_row(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let length = reader.take(MOST_ROW).read_until(b'\n', line)? as u64;
    match line.last() {
        Some(b'\n') => Ok(Some(length)),
        _ if length == MOST_ROW => Err(io::Error::other("a row is too long")),
        _ => Ok(None),
    }
}

fn cells(line: &[u8]) -> impl Iterator<Item = &str> {
    line.split(|&b| b == b',').map(|cell| std::str::from_utf8(cell).unwrap_or_default().trim())
}

fn cell(line: &[u8], column: usize) -> Option<f64> {
    cells(line).nth(column)?.parse().ok()
}

fn columns(header: &[u8]) -> Result<[usize; 5], String> {
    let mut found = [0; 5];
    for (place, name) in found.iter_mut().zip(["step", "env", "return", "cost", "length"]) {
        let column = cells(header).position(|cell| cell == name);
        *place = column.ok_or_else(|| format!("episodes.csv has no column {name}."))?;
    }
    Ok(found)
}

/// Indices of the runs that clients asked for.
#[derive(Debug, Default)]
pub(crate) struct Episodes(Mutex<BTreeMap<String, Arc<Mutex<Index>>>>);

/// Extends the index of a run and calls the closure with the index and the file.
fn with_index<T>(
    all: &Episodes,
    id: &str,
    folder: &Folder,
    ask: impl FnOnce(&Index, &mut File) -> Result<T, String>,
) -> Result<T, String> {
    let Some((mut file, _)) = folder.open("episodes.csv")? else {
        return Err("The run has no episodes.csv, so its single episodes are not known.".into());
    };
    let index = {
        let mut indices = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if indices.len() >= MOST_RUNS && !indices.contains_key(id) {
            indices.clear();
        }
        indices.entry(id.to_owned()).or_default().clone()
    };
    let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
    index.extend(&mut file)?;
    ask(&index, &mut file)
}

impl Episodes {
    /// Returns the episodes of a run that ended after `from` and not after `to` steps, the costliest first.
    pub(crate) fn find(&self, id: &str, folder: &Folder, from: f64, to: f64) -> Result<Vec<Episode>, String> {
        with_index(self, id, folder, |index, file| index.find(file, from, to))
    }

    /// Returns the episode in row `row` of a run.
    pub(crate) fn get(&self, id: &str, folder: &Folder, row: u64) -> Result<Option<Episode>, String> {
        with_index(self, id, folder, |index, file| index.get(file, row))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// This test fails if marks are off by one row, an end of the range is left out, or the index of an older file is used.
    #[test]
    fn the_episodes_of_an_epoch_are_found_in_a_growing_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folder = Folder::new(&root, &root);
        let all = Episodes::default();
        assert!(all.find("x", &folder, 0.0, 1.0).unwrap_err().contains("no episodes.csv"));

        let line = |i: u64| format!("{},{},{}.5,{},1000\n", i / 4 * 1000 + 1000, i % 4, i, i * 7 % 100);
        let text: String = (0..3000).map(line).collect();
        let path = root.join("episodes.csv");
        fs::write(&path, format!("step,env,return,cost,length\n{text}7510")).unwrap();
        let wanted = |from: f64, to: f64, rows: u64| -> Vec<u64> {
            let inside = |i: &u64| {
                let step = (i / 4 * 1000 + 1000) as f64;
                step > from && step <= to
            };
            let mut rows: Vec<u64> = (0..rows).filter(inside).collect();
            rows.sort_by_key(|i| (100 - i * 7 % 100, *i));
            rows.into_iter().map(|i| i + 1).collect()
        };
        for (from, to) in [(0.0, 1000.0), (127_000.0, 131_000.0), (600_000.0, 9e9), (9e8, 9e9)] {
            let got: Vec<u64> = all.find("x", &folder, from, to).unwrap().iter().map(|e| e.row).collect();
            assert_eq!(got, wanted(from, to, 3000), "{from} to {to}");
        }
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"00,0,1,1,1\n").unwrap(); // completes step 751000
        let last = all.find("x", &folder, 750_000.0, 9e9).unwrap();
        assert_eq!((last[0].row, last[0].step), (3001, 751_000.0));
        for row in [1, 511, 512, 513, 3000, 3001] {
            let got = all.get("x", &folder, row).unwrap().unwrap();
            assert_eq!(got.row, row);
            assert!(row == 3001 || got.ret == row as f64 - 0.5, "{got:?}");
        }
        assert_eq!(all.get("x", &folder, 3002).unwrap(), None);
        assert_eq!(all.get("x", &folder, 0).unwrap(), None);

        fs::write(&path, "step,env,return,cost,length\n5,0,1,2,3\n").unwrap();
        let new = all.find("x", &folder, 0.0, 9e9).unwrap();
        assert_eq!(new, [Episode { row: 1, step: 5.0, env: 0.0, ret: 1.0, cost: 2.0, length: 3.0 }]);
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folder = Folder::new(&root, &root);
        for (text, why) in [("a,b\n", "no column step"), (&"x".repeat(1 << 17), "too long")] {
            fs::write(root.join("episodes.csv"), text).unwrap();
            let said = Episodes::default().find("x", &folder, 0.0, 1.0).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
