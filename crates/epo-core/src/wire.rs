//! Numbers as bytes, for messages between the processes of one run.
//!
//! Numbers are little endian. A slice is preceded by its number of elements. Every bit of a number is kept, NaN included.

use std::fmt;

/// Builds a message. [`WireReader`] reads it.
///
/// ```
/// use epo_core::{WireReader, WireWriter};
/// let mut message = WireWriter::default();
/// message.u64(7);
/// message.f64s(&[0.5, -0.0]);
/// let bytes = message.finish();
/// let mut reader = WireReader::new(&bytes);
/// assert_eq!(reader.u64()?, 7);
/// let mut numbers = [0.0; 2];
/// reader.f64s(&mut numbers)?;
/// assert!(numbers[1].is_sign_negative());
/// reader.end()?;
/// # Ok::<(), epo_core::WireError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WireWriter(Vec<u8>);

impl WireWriter {
    /// Appends an integer.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a number.
    pub fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    /// Appends a slice of numbers.
    pub fn f64s(&mut self, values: &[f64]) {
        self.u64(values.len() as u64);
        self.0.reserve(8 * values.len());
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_le_bytes()));
    }

    /// Appends a slice of `f32` numbers.
    pub fn f32s(&mut self, values: &[f32]) {
        self.u64(values.len() as u64);
        self.0.reserve(4 * values.len());
        values.iter().for_each(|value| self.0.extend_from_slice(&value.to_le_bytes()));
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Returns the message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// A message that does not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError;

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message of another process does not have the expected form")
    }
}

impl std::error::Error for WireError {}

/// Reads a message in the order in which [`WireWriter`] wrote it.
#[derive(Clone, Debug)]
pub struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    /// Begins to read a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// If the message ends too early. The other functions return the same error.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        let (first, rest) = self.0.split_first_chunk::<8>().ok_or(WireError)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*first))
    }

    /// Reads a number.
    pub fn f64(&mut self) -> Result<f64, WireError> {
        self.u64().map(f64::from_bits)
    }

    /// Reads numbers into a slice. A message with another number of elements is an error.
    pub fn f64s(&mut self, out: &mut [f64]) -> Result<(), WireError> {
        let elements = self.elements::<8>()?;
        if elements.len() != out.len() {
            return Err(WireError);
        }
        out.iter_mut().zip(elements).for_each(|(out, element)| *out = f64::from_le_bytes(*element));
        Ok(())
    }

    /// Reads `f32` numbers into a slice. A message with another number of elements is an error.
    pub fn f32s(&mut self, out: &mut [f32]) -> Result<(), WireError> {
        let elements = self.elements::<4>()?;
        if elements.len() != out.len() {
            return Err(WireError);
        }
        out.iter_mut().zip(elements).for_each(|(out, element)| *out = f32::from_le_bytes(*element));
        Ok(())
    }

    /// Reads all `f32` numbers of the next slice into `out`. Earlier content of `out` is removed.
    pub fn f32_vec(&mut self, out: &mut Vec<f32>) -> Result<(), WireError> {
        let elements = self.elements::<4>()?;
        out.clear();
        out.extend(elements.iter().map(|element| f32::from_le_bytes(*element)));
        Ok(())
    }

    /// Reads bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        self.elements::<1>().map(<[[u8; 1]]>::as_flattened)
    }

    /// Reads UTF-8 text.
    pub fn text(&mut self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError)
    }

    /// Returns an error if the message has not been read to its end.
    pub fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError) }
    }

    /// Reads the number of elements, and then the elements of N bytes each.
    fn elements<const N: usize>(&mut self) -> Result<&'a [[u8; N]], WireError> {
        let bytes = usize::try_from(self.u64()?).ok().and_then(|n| n.checked_mul(N)).ok_or(WireError)?;
        let (elements, rest) = self.0.split_at_checked(bytes).ok_or(WireError)?;
        self.0 = rest;
        Ok(elements.as_chunks().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a bit of a number is lost, or if a message that was cut off at any byte is read without an error.
    #[test]
    fn every_bit_arrives_and_a_shorter_message_is_an_error() {
        let odd = f64::from_bits(0x7ff0_0000_0000_1234);
        let single = [f32::MIN_POSITIVE / 2.0, -0.0, f32::INFINITY];
        let mut message = WireWriter::default();
        message.u64(u64::MAX);
        message.f64(odd);
        message.f64s(&[0.1, -0.0]);
        message.f32s(&single);
        message.f32s(&single);
        message.bytes("µ".as_bytes());
        let bytes = message.finish();
        let read = |bytes: &[u8]| -> Result<(), WireError> {
            let mut reader = WireReader::new(bytes);
            assert_eq!(reader.u64()?, u64::MAX);
            assert_eq!(reader.f64()?.to_bits(), odd.to_bits());
            let (mut two, mut three, mut any) = ([9.0; 2], [9.0; 3], vec![9.0; 7]);
            reader.f64s(&mut two)?;
            assert_eq!(two.map(f64::to_bits), [0.1_f64, -0.0].map(f64::to_bits));
            reader.f32s(&mut three)?;
            reader.f32_vec(&mut any)?;
            for got in [&three[..], &any] {
                assert!(got.iter().map(|x| x.to_bits()).eq(single.iter().map(|x| x.to_bits())), "{got:?}");
            }
            assert_eq!(reader.text()?, "µ");
            reader.end()
        };
        assert_eq!(read(&bytes), Ok(()));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Err(WireError), "{end} bytes");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), Err(WireError), "one byte too many");
    }

    #[test]
    fn a_slice_of_another_length_is_an_error() {
        let mut message = WireWriter::default();
        message.f64s(&[1.0, 2.0]);
        let bytes = message.finish();
        for len in [1, 3] {
            assert_eq!(WireReader::new(&bytes).f64s(&mut vec![0.0; len]), Err(WireError));
        }
        // a length that no memory could hold
        let huge = u64::MAX.to_le_bytes();
        assert_eq!(WireReader::new(&huge).f32_vec(&mut Vec::new()), Err(WireError));
    }
}
