//! TensorBoard event files that contain scalars only.
//!
//! A file is a sequence of records. A record has this layout:
//! ```text
//! length: u64 LE │ masked crc32c(length): u32 LE │ data │ masked crc32c(data): u32 LE
//! masked(crc) = rotate_right(crc, 15) + 0xa282ead8
//! ```
//! The data of a record is one `Event` message (protocol buffers):
//! ```text
//! 1: wall_time double, 2: step int64, 3: file_version string,
//! 5: Summary { 1: Value { 1: tag, 2: simple_value float } }
//! ```
//! The first event contains only the wall time and the version `brain.Event:2`.
//!
//! The length of a record depends only on the step and the tags, not on the clock. A checkpoint can therefore store the
//! length of the file, and repetitions of a run store the same length.

use std::io::{self, Read};

use crate::csv::depends_on_the_clock;

/// Returns the first record of a file. `wall_time` is in seconds since 1970.
pub fn header(wall_time: f64) -> Vec<u8> {
    let mut event = Vec::new();
    fixed64(&mut event, 1, wall_time);
    bytes(&mut event, 3, b"brain.Event:2");
    record(&event)
}

/// Returns one record with all scalars of a step. `wall_time` is in seconds since 1970; each value has a tag.
pub fn scalars<'a>(wall_time: f64, step: u64, values: impl IntoIterator<Item = (&'a str, f64)>) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, tag.as_bytes());
        entry.push(2 << 3 | 5); // field 2, 32 bits
        entry.extend((value as f32).to_le_bytes());
        bytes(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    fixed64(&mut event, 1, wall_time);
    event.push(2 << 3); // field 2, varint
    varint(&mut event, step);
    bytes(&mut event, 5, &summary);
    record(&event)
}

/// Returns the parts of an event that repetitions of a run share: all but the wall time and the values of `Time/` tags.
/// `None` if the data is not an event of this program.
pub(crate) fn clock_free(event: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut kept) = (event, Vec::new());
    while !rest.is_empty() {
        match take(&mut rest, 1)?[0] {
            0x09 => drop(take(&mut rest, 8)?), // the wall time
            0x10 => kept.extend(take_varint(&mut rest)?.to_le_bytes()),
            0x1a => kept.extend(take_bytes(&mut rest)?),
            0x2a => {
                let mut summary = take_bytes(&mut rest)?;
                while !summary.is_empty() {
                    if take(&mut summary, 1)? != [0x0a] {
                        return None;
                    }
                    let mut entry = take_bytes(&mut summary)?;
                    if take(&mut entry, 1)? != [0x0a] {
                        return None;
                    }
                    let tag = take_bytes(&mut entry)?;
                    let [0x15, value @ ..] = entry else { return None };
                    if value.len() != 4 {
                        return None;
                    }
                    kept.extend((tag.len() as u64).to_le_bytes());
                    kept.extend(tag);
                    if !std::str::from_utf8(tag).is_ok_and(depends_on_the_clock) {
                        kept.extend(value);
                    }
                }
            }
            _ => return None,
        }
    }
    Some(kept)
}

/// Reads the next event from a file, checks both checksums and returns its data.
///
/// # Errors
/// A text that says what is wrong with the record, or the error of the system.
pub(crate) fn read_event(file: &mut impl Read, most: u64) -> Result<io::Result<Vec<u8>>, String> {
    let short = "the file ends within a record";
    let mut head = [0; 12];
    match file.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(short.into()),
        Err(e) => return Ok(Err(e)),
        Ok(()) => {}
    }
    let (length, crc) = head.split_at(8);
    if masked_crc(length).to_le_bytes() != *crc {
        return Err("the checksum of a length is wrong".into());
    }
    let length = length.iter().rev().fold(0_u64, |n, &byte| n << 8 | u64::from(byte));
    if length > most {
        return Err(format!("a record has {length} bytes"));
    }
    let mut data = Vec::new();
    match file.take(length + 4).read_to_end(&mut data) {
        Err(e) => return Ok(Err(e)),
        Ok(read) if (read as u64) < length + 4 => return Err(short.into()),
        Ok(_) => {}
    }
    let crc = data.split_off(length as usize);
    if masked_crc(&data).to_le_bytes() != *crc {
        return Err("the checksum of a record is wrong".into());
    }
    Ok(Ok(data))
}

/// Removes the first `n` bytes of `rest` and returns them.
fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n)?;
    *rest = tail;
    Some(head)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(rest)?).ok()?;
    take(rest, length)
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked_crc(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked_crc(data).to_le_bytes());
    out
}

fn fixed64(out: &mut Vec<u8>, field: u8, value: f64) {
    out.push(field << 3 | 1);
    out.extend(value.to_le_bytes());
}

/// Writes a field of bytes, a text or a message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

/// Writes an integer in groups of seven bits, the lowest first.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32C (Castagnoli) checksum: reflected, polynomial 0x1EDC6F41.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !data.iter().fold(!0, |crc, &byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_agrees_with_the_published_check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283); // check value of the CRC catalogue
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, B.4
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn an_event_is_the_bytes_of_the_protocol() {
        let record = scalars(1.5, 300, [("a", 2.0)]);
        let data = [
            &[9][..],
            &1.5_f64.to_le_bytes(),
            &[16, 0xac, 2],                  // step 300 as a varint
            &[42, 10, 10, 8],                // summary of 10 bytes, one value of 8
            &[10, 1, b'a', 21, 0, 0, 0, 64], // tag, then 2.0_f32
        ]
        .concat();
        assert_eq!(record[..8], (data.len() as u64).to_le_bytes());
        assert_eq!(record[12..12 + data.len()], data);
        assert_eq!(record.len(), data.len() + 16);
        assert_eq!(record[12 + data.len()..], masked_crc(&data).to_le_bytes());
    }

    /// Fails if a value, a tag or the step is left out of the comparison, or if a time takes part in it.
    #[test]
    fn the_clock_free_part_has_everything_but_times() {
        let part = |wall, step, a, time| {
            let record = scalars(wall, step, [("a", a), ("Time/FPS", time)]);
            let data = read_event(&mut &record[..], 1000).unwrap().unwrap();
            clock_free(&data).unwrap()
        };
        let one = part(1.5, 300, 2.0, 7.0);
        assert_eq!(one, part(9.5, 300, 2.0, 8.0));
        assert_ne!(one, part(1.5, 301, 2.0, 7.0));
        assert_ne!(one, part(1.5, 300, 2.5, 7.0));
        assert!(clock_free(&[0xff, 1]).is_none() && clock_free(&[0x2a, 200]).is_none());
        let head = read_event(&mut &header(1.0)[..], 1000).unwrap().unwrap();
        assert_eq!(clock_free(&head).unwrap(), b"brain.Event:2");
    }

    #[test]
    fn every_changed_bit_and_every_cut_of_a_record_is_found() {
        let record = scalars(1.5, 300, [("a", 2.0)]);
        for bit in 0..8 * record.len() {
            let mut bad = record.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_event(&mut &bad[..], 1000).is_err(), "bit {bit}");
        }
        for length in 0..record.len() {
            assert!(read_event(&mut &record[..length], 1000).is_err(), "{length} bytes");
        }
        assert!(read_event(&mut &record[..], 10).is_err(), "longer than allowed");
    }
}
