//! `actions.bin` of a run folder: the actions of the costliest episode of each epoch.
//!
//! An episode is a function of its seed and its actions, so these actions repeat it exactly. The file begins with
//! [`MAGIC`] and then has one record per episode, in the order of the rows of `episodes.csv`. All numbers are
//! little-endian:
//!
//! ```text
//! row     u64      row of episodes.csv, from 1
//! epoch   u32      epoch in which the episode ended, from 0
//! count   u32      number of the values that follow
//! values  f32 …    the actions as the policy chose them, one after the other
//! ```
//! A file may end in the middle of a record that is being written. Everything from there on is ignored.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Name of the file in a run folder.
pub const FILE: &str = "actions.bin";
/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"epo-act1";
/// Maximum size of a file that is read, in bytes.
pub const MOST_BYTES: u64 = 4 << 30;
/// Length of the numbers before the values of a record.
const HEAD: usize = 16;
/// Maximum number of values of a record. The action of 20 numbers of an episode of 200,000 steps still fits.
const MOST_VALUES: u32 = 4 << 20;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Row of `episodes.csv`, from 1.
    pub row: u64,
    /// Epoch in which the episode ended, from 0.
    pub epoch: u32,
    /// Position of the first byte of the values.
    values: u64,
    /// Number of values.
    count: u32,
}

impl Place {
    /// Position of the first byte after the record.
    pub fn end(&self) -> u64 {
        self.values + 4 * u64::from(self.count)
    }
}

/// Returns the bytes of a record; `None` if it has too many values.
pub fn record(row: u64, epoch: u32, actions: &[f32]) -> Option<Vec<u8>> {
    let count = u32::try_from(actions.len()).ok().filter(|n| *n <= MOST_VALUES)?;
    let mut bytes = Vec::with_capacity(HEAD + 4 * actions.len());
    bytes.extend(row.to_le_bytes());
    bytes.extend(epoch.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(actions.iter().flat_map(|value| value.to_le_bytes()));
    Some(bytes)
}

/// The complete records of a file, in its order. Only their first 16 bytes are read.
#[derive(Debug)]
pub struct Places<'a> {
    file: &'a File,
    at: u64,
    end: u64,
    row: u64,
}

impl<'a> Places<'a> {
    /// Begins to read a file; `None` if it does not begin with [`MAGIC`].
    ///
    /// # Errors
    /// The errors of the system.
    pub fn new(mut file: &'a File) -> io::Result<Option<Self>> {
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let mut magic = [0; MAGIC.len()];
        if end < MAGIC.len() as u64 {
            return Ok(None);
        }
        file.read_exact(&mut magic)?;
        Ok((magic == MAGIC).then_some(Self { file, at: MAGIC.len() as u64, end, row: 0 }))
    }

    /// Returns the place of the next record; `None` at the end or before a damaged one.
    fn read(&mut self) -> io::Result<Option<Place>> {
        if self.end.saturating_sub(self.at) < HEAD as u64 {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_exact(&mut head)?;
        let (first, rest) = head.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
        let (row, epoch, count) = (number(first), number(&rest[..4]) as u32, number(&rest[4..]) as u32);
        let place = Place { row, epoch, values: self.at + HEAD as u64, count };
        if row <= self.row || count > MOST_VALUES || place.end() > self.end {
            return Ok(None);
        }
        (self.at, self.row) = (place.end(), row);
        Ok(Some(place))
    }
}

impl Iterator for Places<'_> {
    type Item = io::Result<Place>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Returns the actions of the episode in row `row` of `episodes.csv`; `None` if they are not recorded.
///
/// # Errors
/// The errors of the system.
pub fn of_row(mut file: &File, row: u64) -> io::Result<Option<Vec<f32>>> {
    let Some(places) = Places::new(file)? else { return Ok(None) };
    for place in places {
        let place = place?;
        if place.row == row {
            file.seek(SeekFrom::Start(place.values))?;
            let mut bytes = vec![0; 4 * place.count as usize];
            file.read_exact(&mut bytes)?;
            return Ok(Some(
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            ));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if a record is read from the wrong place, or if a damaged file is read beyond its damage.
    #[test]
    fn the_actions_of_a_row_come_back_and_a_damaged_rest_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let records = [(3, 0, vec![0.5_f32, -1.0]), (7, 1, vec![]), (9, 4, vec![f32::MIN_POSITIVE])];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(records.iter().flat_map(|(row, epoch, values)| record(*row, *epoch, values).unwrap()));
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            File::open(&path).unwrap()
        };
        let rows = |bytes: &[u8]| -> Vec<(u64, u32)> {
            let file = read(bytes);
            let places = Places::new(&file).unwrap().into_iter().flatten();
            places.map(|place| place.unwrap()).map(|place| (place.row, place.epoch)).collect()
        };
        for (row, _, values) in &records {
            assert_eq!(of_row(&read(&bytes), *row).unwrap().as_ref(), Some(values), "row {row}");
        }
        assert_eq!(of_row(&read(&bytes), 8).unwrap(), None);
        assert_eq!(rows(&bytes), [(3, 0), (7, 1), (9, 4)]);
        assert_eq!(rows(&bytes[..bytes.len() - 1]), [(3, 0), (7, 1)], "the last one is being written");
        assert_eq!(rows(&bytes[..7]), [], "an empty file");
        let broken = |at: usize, value: u8| {
            let mut broken = bytes.clone();
            broken[at] = value;
            broken
        };
        assert_eq!(rows(&broken(0, b'x')), [], "another file");
        assert_eq!(rows(&broken(23, 0xff)), [], "a length of 4 billion values");
        assert_eq!(rows(&broken(8 + 16 + 8, 2)), [(3, 0)], "rows must grow");
        assert!(record(1, 0, &vec![0.0; MOST_VALUES as usize + 1]).is_none());
    }
}
