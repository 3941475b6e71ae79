//! `policies.bin` of a run folder: the policy and the normaliser of each epoch.
//!
//! An episode is a function of its seed and its actions. An action is a function of the observation, the policy, the
//! normaliser and the random stream of its environment. So this file repeats every episode of training exactly, although
//! it has no action. It begins with a header and then has one record of fixed length per epoch, in the order of the epochs.
//! All numbers are little-endian:
//!
//! ```text
//! header   magic          8 bytes   epo-pol1
//!          envs           u32       number of environments
//!          observations   u32       number o of entries of an observation
//!          parameters     u64       number p of parameters of the policy
//! record   epoch          u64       number of the epoch, from 0
//!          begin          u64       environment steps of the run before the epoch
//!          end            u64       environment steps of the run after the epoch
//!          position       u64       position of the random stream of the actions before the epoch, in every environment
//!          seen           u64       number of observations that the normaliser has seen
//!          mean           f64 × o   their mean
//!          m2             f64 × o   sum of their squared deviations from the mean
//!          policy         f32 × p   parameters of the policy
//! ```
//! A file may end in the middle of a record that is being written. That record is ignored.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Name of the file in a run folder.
pub const FILE: &str = "policies.bin";
/// Maximum size of a file that is read, in bytes.
pub const MOST_BYTES: u64 = 4 << 30;
/// Length of the header, in bytes.
pub const HEADER: u64 = 24;

const MAGIC: [u8; 8] = *b"epo-pol1";
/// Length of the numbers at the start of a record, in bytes.
const HEAD: usize = 40;
/// Largest number of steps, and largest position of a stream, of a valid record.
const MOST_STEPS: u64 = 1 << 62;

/// The sizes of a file. They are the same in all epochs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of environments.
    pub envs: u32,
    /// Number of entries of an observation.
    pub observations: u32,
    /// Number of parameters of the policy.
    pub parameters: u64,
}

impl Sizes {
    /// Returns the header of a file.
    pub fn header(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.envs.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.observations.to_le_bytes());
        bytes[16..].copy_from_slice(&self.parameters.to_le_bytes());
        bytes
    }

    /// Returns the length of a record, in bytes.
    pub fn record_bytes(&self) -> u64 {
        (HEAD as u64 + 16 * u64::from(self.observations)).saturating_add(self.parameters.saturating_mul(4))
    }
}

/// The place of an epoch in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPlace {
    /// Number of the epoch, from 0.
    pub epoch: u64,
    /// Number of environment steps of the run before the epoch.
    pub begin: u64,
    /// Number of environment steps of the run after the epoch.
    pub end: u64,
    /// Position of the random stream of the actions before the epoch. It is the same in every environment, because all
    /// environments make the same number of steps.
    pub position: u64,
}

/// The policy of an epoch, as it collected the epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochPolicy<T, P> {
    /// The epoch.
    pub place: EpochPlace,
    /// Number of observations that the normaliser has seen.
    pub seen: u64,
    /// Mean of these observations.
    pub mean: T,
    /// Sum of their squared deviations from the mean.
    pub m2: T,
    /// Parameters of the policy.
    pub policy: P,
}

impl EpochPolicy<&[f64], &[f32]> {
    /// Writes the record to `bytes`, which is cleared first.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let EpochPlace { epoch, begin, end, position } = self.place;
        bytes.clear();
        for number in [epoch, begin, end, position, self.seen] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in self.mean.iter().chain(self.m2) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in self.policy {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// A file that is being read.
#[derive(Clone, Copy, Debug)]
pub struct Policies<'a> {
    file: &'a File,
    sizes: Sizes,
    records: u64,
}

impl<'a> Policies<'a> {
    /// Reads the header of a file; `None` if it is not such a file.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn open(file: &'a File) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        if !(HEADER..=MOST_BYTES).contains(&length) {
            return Ok(None);
        }
        let mut header = [0; HEADER as usize];
        file.read_exact_at(&mut header, 0)?;
        let sizes = Sizes {
            envs: number(&header[8..12]) as u32,
            observations: number(&header[12..16]) as u32,
            parameters: number(&header[16..]),
        };
        let records = (length - HEADER) / sizes.record_bytes();
        Ok((header[..8] == MAGIC).then_some(Self { file, sizes, records }))
    }

    /// The sizes of the file.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Number of complete records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the place of the epoch of record `index`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if its numbers are impossible; otherwise the error of the system.
    pub fn place(&self, index: u64) -> io::Result<EpochPlace> {
        let mut head = [0; HEAD - 8];
        self.file.read_exact_at(&mut head, self.offset(index))?;
        let [epoch, begin, end, position] = [0, 8, 16, 24].map(|at| number(&head[at..at + 8]));
        if begin >= end || end > MOST_STEPS || position > MOST_STEPS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an epoch has impossible numbers"));
        }
        Ok(EpochPlace { epoch, begin, end, position })
    }

    /// Returns the records of the epochs in which an episode of `length` steps was played that ended at step `end` of the
    /// run. `None` if one of them is missing. The time that this takes grows with the number of these epochs, and with
    /// the logarithm of the number of records.
    ///
    /// # Errors
    /// As [`Policies::place`].
    pub fn of_episode(&self, end: u64, length: u64) -> io::Result<Option<Range<u64>>> {
        let steps = length.checked_mul(u64::from(self.sizes.envs)).filter(|steps| *steps > 0);
        let Some(begin) = steps.and_then(|steps| end.checked_sub(steps)) else { return Ok(None) };
        // the last record that begins at this step or earlier
        let (mut low, mut high) = (0, self.records);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.place(middle)?.begin <= begin { low = middle + 1 } else { high = middle }
        }
        let Some(first) = low.checked_sub(1) else { return Ok(None) };
        let (mut at, mut next) = (begin, first);
        while at < end {
            if next == self.records {
                return Ok(None);
            }
            let place = self.place(next)?;
            if place.begin > at || place.end <= at {
                return Ok(None); // the epoch was left out
            }
            (at, next) = (place.end, next + 1);
        }
        Ok(Some(first..next))
    }

    /// Reads record `index`. The memory that this takes is the length of a record. So compare [`Policies::sizes`] with
    /// those of the run first.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if a number is impossible or not finite; otherwise the error of the system.
    pub fn read(&self, index: u64) -> io::Result<EpochPolicy<Vec<f64>, Vec<f32>>> {
        let place = self.place(index)?;
        let invalid = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        if index >= self.records {
            return Err(invalid("there is no such record"));
        }
        let length = usize::try_from(self.sizes.record_bytes());
        let mut bytes = vec![0; length.map_err(|_| invalid("a record is too long"))?];
        self.file.read_exact_at(&mut bytes, self.offset(index))?;
        let (head, values) = bytes.split_at(HEAD);
        let (moments, policy) = values.split_at(16 * self.sizes.observations as usize);
        let mut mean: Vec<f64> = moments.chunks_exact(8).map(|b| f64::from_bits(number(b))).collect();
        let m2 = mean.split_off(self.sizes.observations as usize);
        let policy: Vec<f32> = policy.chunks_exact(4).map(|b| f32::from_bits(number(b) as u32)).collect();
        let finite = mean.iter().chain(&m2).all(|x| x.is_finite()) && policy.iter().all(|x| x.is_finite());
        if !finite || m2.iter().any(|x| *x < 0.0) {
            return Err(invalid("a policy or a normaliser has an entry that is not valid"));
        }
        Ok(EpochPolicy { place, seen: number(&head[HEAD - 8..]), mean, m2, policy })
    }

    fn offset(&self, index: u64) -> u64 {
        HEADER + index.saturating_mul(self.sizes.record_bytes())
    }
}

/// Returns a little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { envs: 2, observations: 1, parameters: 3 };

    /// A file with these epochs: number, first and last step.
    fn bytes(epochs: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut all = SIZES.header().to_vec();
        let mut record = Vec::new();
        for &(epoch, begin, end) in epochs {
            let place = EpochPlace { epoch, begin, end, position: 7 * begin };
            let (mean, policy) = ([epoch as f64 + 0.5], [1.0, f32::MIN_POSITIVE, -(epoch as f32)]);
            EpochPolicy { place, seen: begin, mean: &mean[..], m2: &[2.0], policy: &policy[..] }
                .write(&mut record);
            assert_eq!(record.len() as u64, SIZES.record_bytes());
            all.extend(&record);
        }
        all
    }

    /// Writes the bytes to a file and calls `ask` with it.
    fn with<T>(bytes: &[u8], ask: impl Fn(Option<Policies<'_>>) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), bytes).unwrap();
        let file = File::open(dir.path().join(FILE)).unwrap();
        ask(Policies::open(&file).unwrap())
    }

    /// This test fails if a number is written to one place and read from another, or loses a bit.
    #[test]
    fn a_record_comes_back_bit_for_bit() {
        with(&bytes(&[(0, 0, 10), (1, 10, 20)]), |file| {
            let file = file.unwrap();
            assert_eq!((file.sizes(), file.records()), (SIZES, 2));
            let place = EpochPlace { epoch: 1, begin: 10, end: 20, position: 70 };
            let want = EpochPolicy {
                place,
                seen: 10,
                mean: vec![1.5],
                m2: vec![2.0],
                policy: vec![1.0, f32::MIN_POSITIVE, -1.0],
            };
            assert_eq!(file.read(1).unwrap(), want);
            assert!(file.read(2).is_err(), "there is no such record");
        });
    }

    /// This test fails if an epoch of an episode is left out or added, or if a missing epoch is not noticed.
    #[test]
    fn the_epochs_of_an_episode_are_found() {
        // epochs of 10, 10, 4 and 10 steps of two environments; epochs 4 and 5 were left out
        let file = bytes(&[(0, 0, 10), (1, 10, 20), (2, 20, 24), (3, 24, 34), (6, 54, 64)]);
        let found = |end, length| with(&file, |file| file.unwrap().of_episode(end, length).unwrap());
        for (end, length, want) in [
            (10, 5, Some(0..1)),
            (12, 1, Some(1..2)),
            (12, 2, Some(0..2)),
            (34, 17, Some(0..4)),
            (34, 8, Some(1..4)),
            (36, 2, None),
            (56, 2, None),
            (56, 1, Some(4..5)),
            (64, 5, Some(4..5)),
            (66, 1, None),
            (66, 6, None),
            (4, 3, None),
            (4, 0, None),
            (4, u64::MAX, None),
        ] {
            assert_eq!(found(end, length), want, "{length} steps up to {end}");
        }
        let none = with(&bytes(&[]), |file| file.unwrap().of_episode(10, 1).unwrap());
        assert_eq!(none, None, "no epoch is recorded");
    }

    /// This test fails if a damaged file is read beyond its end, takes memory for sizes that it does not have, or gives
    /// numbers that are not valid.
    #[test]
    fn damage_is_bounded() {
        let whole = bytes(&[(0, 0, 10), (1, 10, 20)]);
        let changed = |at: usize, value: &[u8]| {
            let mut changed = whole.clone();
            changed[at..at + value.len()].copy_from_slice(value);
            changed
        };
        let records = |bytes: &[u8]| with(bytes, |file| file.map(|file| file.records()));
        assert_eq!(records(&whole), Some(2));
        assert_eq!(records(&whole[..whole.len() - 1]), Some(1), "the last one is being written");
        assert_eq!(records(&whole[..23]), None, "the header is being written");
        assert_eq!(records(&changed(0, b"x")), None, "another file");
        assert_eq!(records(&changed(12, &[0xff; 12])), Some(0), "sizes of many gigabytes");
        assert_eq!(records(&changed(16, &[0xff; 8])), Some(0));
        let first = HEADER as usize;
        for (at, value) in [
            (first + 8, 10_u64.to_le_bytes()),                   // begin = end
            (first + 16, u64::MAX.to_le_bytes()),                // end
            (first + 24, u64::MAX.to_le_bytes()),                // position
            (first + HEAD, f64::NAN.to_le_bytes()),              // mean
            (first + HEAD + 8, (-1.0_f64).to_le_bytes()),        // m2
            (first + HEAD + 16, [0, 0, 0xc0, 0x7f, 0, 0, 0, 0]), // NaN in the policy
        ] {
            let read = with(&changed(at, &value), |file| file.unwrap().read(0).map(|_| ()));
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData, "byte {at}");
        }
    }
}
