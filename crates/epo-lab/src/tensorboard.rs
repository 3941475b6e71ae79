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
}
