//! Reads NumPy's `.npz` files: a zip archive of `.npy` arrays.
//!
//! It reads the types that recordings contain: little-endian doubles, booleans and single unicode strings, in C
//! order. A file may come from anywhere, so every length is checked before it is used. Memory is allocated for
//! the data that is present, not for the size that a header states.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

/// Maximum size of one array in bytes. The arrays of an episode are much smaller.
const MAX_ARRAY_BYTES: u64 = 1 << 26;
/// Largest size of a file, and of all its arrays together, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 27;
/// Largest length of a header in bytes. NumPy's own limit is 10,000.
const MAX_HEADER_BYTES: usize = 10_000;

/// The reason why a `.npz` file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// Not a zip archive, or a truncated or damaged one.
    #[error("is not a whole .npz file: {0}")]
    Archive(String),
    /// The arrays together are larger than the arrays of any episode.
    #[error("holds more than {MAX_FILE_BYTES} bytes of arrays")]
    TooLarge,
    /// An array that cannot be used.
    #[error("array `{name}` {problem}")]
    Array {
        /// Name of the array.
        name: String,
        /// Description of the problem, as the end of a sentence that begins with the name.
        problem: String,
    },
}

impl NpzError {
    pub(crate) fn array(name: &str, problem: impl Into<String>) -> Self {
        Self::Array { name: name.to_owned(), problem: problem.into() }
    }
}

/// The values of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// `float64`
    F64(Vec<f64>),
    /// `bool`
    Bool(Vec<bool>),
    /// `str`, one value only
    Text(String),
}

/// An array: its shape and values, the last index running fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Length along each axis; empty for a single value.
    pub shape: Vec<usize>,
    /// Values.
    pub values: Values,
}

/// The arrays of a file, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Npz {
    arrays: BTreeMap<String, Array>,
}

impl Npz {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, NpzError> {
        Self::read(BufReader::new(epo_core::open_file(path, MAX_FILE_BYTES)?))
    }

    /// Reads an archive.
    pub fn read(source: impl Read + Seek) -> Result<Self, NpzError> {
        let mut zip = zip::ZipArchive::new(source).map_err(|e| NpzError::Archive(e.to_string()))?;
        let (mut arrays, mut budget) = (BTreeMap::new(), MAX_FILE_BYTES);
        for index in 0..zip.len() {
            let broken = |e: zip::result::ZipError| NpzError::Archive(e.to_string());
            let mut member = zip.by_index(index).map_err(broken)?;
            let name = member.name().map_err(broken)?.trim_end_matches(".npy").to_owned();
            let array = read_npy(&mut member, budget.min(MAX_ARRAY_BYTES)).map_err(|e| match e {
                Problem::Io(e) => NpzError::Archive(format!("array `{name}`: {e}")),
                Problem::Npy(problem) => NpzError::Array { name: name.clone(), problem },
            })?;
            budget = budget.checked_sub(array.bytes()).ok_or(NpzError::TooLarge)?;
            arrays.insert(name, array);
        }
        Ok(Self { arrays })
    }

    /// The array of that name.
    pub fn get(&self, name: &str) -> Result<&Array, NpzError> {
        self.arrays.get(name).ok_or_else(|| NpzError::array(name, "is missing"))
    }

    /// The doubles of that name, with `axes` axes.
    pub fn f64s(&self, name: &str, axes: usize) -> Result<(&[usize], &[f64]), NpzError> {
        match self.get(name)? {
            Array { shape, values: Values::F64(values) } if shape.len() == axes => Ok((shape, values)),
            array => Err(NpzError::array(name, format!("is {array}, not float64 with {axes} axes"))),
        }
    }

    /// The booleans of that name, along one axis.
    pub fn bools(&self, name: &str) -> Result<&[bool], NpzError> {
        match self.get(name)? {
            Array { shape, values: Values::Bool(values) } if shape.len() == 1 => Ok(values),
            array => Err(NpzError::array(name, format!("is {array}, not bool with 1 axis"))),
        }
    }

    /// The string of that name.
    pub fn text(&self, name: &str) -> Result<&str, NpzError> {
        match self.get(name)? {
            Array { values: Values::Text(text), .. } => Ok(text),
            array => Err(NpzError::array(name, format!("is {array}, not a string"))),
        }
    }
}

impl Array {
    fn bytes(&self) -> u64 {
        match &self.values {
            Values::F64(v) => 8 * v.len() as u64,
            Values::Bool(v) => v.len() as u64,
            Values::Text(t) => 4 * t.len() as u64,
        }
    }
}

impl std::fmt::Display for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.values {
            Values::F64(_) => "float64",
            Values::Bool(_) => "bool",
            Values::Text(_) => "str",
        };
        write!(f, "{kind} of shape {:?}", self.shape)
    }
}

/// An error inside one member of the archive.
enum Problem {
    Io(std::io::Error),
    Npy(String),
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

fn npy(problem: impl Into<String>) -> Problem {
    Problem::Npy(problem.into())
}

/// One `.npy`: magic, version, length of the header, header, values.
fn read_npy(source: &mut impl Read, max_bytes: u64) -> Result<Array, Problem> {
    let mut start = [0; 8];
    source.read_exact(&mut start).map_err(|_| npy("is not in NumPy's format: it is too short"))?;
    if start[..6] != *b"\x93NUMPY" {
        return Err(npy("is not in NumPy's format: its first bytes are wrong"));
    }
    let header_len = match start[6] {
        1 => {
            let mut len = [0; 2];
            source.read_exact(&mut len)?;
            usize::from(u16::from_le_bytes(len))
        }
        2 | 3 => {
            let mut len = [0; 4];
            source.read_exact(&mut len)?;
            u32::from_le_bytes(len) as usize
        }
        version => return Err(npy(format!("has format version {version}; 1 to 3 are known"))),
    };
    if header_len > MAX_HEADER_BYTES {
        return Err(npy(format!("has a header of {header_len} bytes, more than {MAX_HEADER_BYTES}")));
    }
    let mut header = vec![0; header_len];
    source.read_exact(&mut header)?;
    let header = std::str::from_utf8(&header).map_err(|_| npy("has a header that is not text"))?;
    let Header { kind, shape } = parse_header(header).map_err(npy)?;

    let count = shape.iter().try_fold(1_u64, |n, &len| n.checked_mul(len as u64));
    let want = count.and_then(|n| n.checked_mul(kind.item_bytes())).filter(|&n| n <= max_bytes);
    let want = want.ok_or_else(|| npy(format!("claims shape {shape:?}, too large for an episode")))?;
    let mut bytes = Vec::new(); // grows with the data that is present, not with the stated length
    source.take(want + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != want {
        return Err(npy(format!("claims {want} bytes of values and holds another number")));
    }
    Ok(Array { shape, values: kind.decode(&bytes)? })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ElementType {
    F64,
    Bool,
    Text { chars: u64 },
}

impl ElementType {
    const fn item_bytes(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::Bool => 1,
            Self::Text { chars } => chars.saturating_mul(4),
        }
    }

    fn decode(self, bytes: &[u8]) -> Result<Values, Problem> {
        Ok(match self {
            Self::F64 => Values::F64(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()),
            Self::Bool => Values::Bool(bytes.iter().map(|&b| b != 0).collect()),
            Self::Text { .. } => {
                // UTF-32, padded with zeros
                let codes = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b));
                let text: Option<String> = codes.take_while(|&code| code != 0).map(char::from_u32).collect();
                Values::Text(text.ok_or_else(|| npy("holds a character that does not exist"))?)
            }
        })
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    kind: ElementType,
    shape: Vec<usize>,
}

/// The header is a Python dictionary: `{'descr': '<f8', 'fortran_order': False, 'shape': (251, 60), }`.
fn parse_header(text: &str) -> Result<Header, String> {
    let malformed = || "has a header that is not NumPy's".to_owned();
    let mut rest =
        text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(malformed)?.trim();
    let (mut kind, mut order, mut shape) = (None, None, None);
    while !rest.is_empty() {
        let (key, after) = rest.strip_prefix('\'').and_then(|t| t.split_once('\'')).ok_or_else(malformed)?;
        let after = after.trim_start().strip_prefix(':').ok_or_else(malformed)?.trim_start();
        // a value ends at the next comma, a tuple at its bracket
        let end = if after.starts_with('(') { after.find(')').map(|i| i + 1) } else { after.find(',') };
        let (value, after) = after.split_at(end.unwrap_or(after.len()));
        let value = value.trim();
        match key {
            "descr" => kind = Some(parse_descr(value)?),
            "fortran_order" => order = Some(value == "True"),
            "shape" => shape = Some(parse_shape(value).ok_or_else(malformed)?),
            _ => return Err(malformed()),
        }
        let after = after.trim_start();
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        if rest.len() == after.len() && !rest.is_empty() {
            return Err(malformed()); // two entries without a comma
        }
    }
    let (Some(kind), Some(fortran), Some(shape)) = (kind, order, shape) else { return Err(malformed()) };
    if fortran && shape.len() > 1 {
        return Err("is in Fortran order; C order is needed".into());
    }
    if matches!(kind, ElementType::Text { .. }) && !shape.is_empty() {
        return Err("is an array of strings; a single one is needed".into());
    }
    Ok(Header { kind, shape })
}

fn parse_descr(value: &str) -> Result<ElementType, String> {
    let name = value.trim_matches('\'');
    let chars = name.strip_prefix("<U").and_then(|n| n.parse().ok()).map(|chars| ElementType::Text { chars });
    match name {
        "<f8" => Ok(ElementType::F64),
        "|b1" => Ok(ElementType::Bool),
        _ => chars.ok_or_else(|| format!("has type {name:?}; '<f8', '|b1' and '<U…' are known")),
    }
}

/// `()`, `(5,)`, `(251, 60)`
fn parse_shape(value: &str) -> Option<Vec<usize>> {
    let inner = value.strip_prefix('(')?.strip_suffix(')')?.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|n| n.trim().parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    /// A `.npy` of format version 1.
    pub(crate) fn npy_bytes(header: &str, values: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(values);
        bytes
    }

    /// A compressed archive of those arrays.
    pub(crate) fn npz_bytes(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in arrays {
            zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn sample() -> Vec<u8> {
        let doubles: Vec<u8> =
            [1.0, -2.5, 3.0, 0.25, 1e300, -0.0].iter().flat_map(|x: &f64| x.to_le_bytes()).collect();
        let text: Vec<u8> = "né".chars().flat_map(|c| (c as u32).to_le_bytes()).chain([0; 4]).collect();
        npz_bytes(&[
            (
                "x",
                npy_bytes(
                    "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }          \n",
                    &doubles,
                ),
            ),
            ("flag", npy_bytes("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }\n", &[1, 0])),
            ("meta", npy_bytes("{'descr': '<U3', 'fortran_order': False, 'shape': (), }\n", &text)),
        ])
    }

    fn read(bytes: &[u8]) -> Result<Npz, NpzError> {
        Npz::read(Cursor::new(bytes))
    }

    /// The error of an archive with the one array `a`.
    fn refusal(npy: Vec<u8>) -> String {
        read(&npz_bytes(&[("a", npy)])).unwrap_err().to_string()
    }

    #[test]
    fn the_three_kinds_of_array_are_read() {
        let npz = read(&sample()).unwrap();
        assert_eq!(npz.f64s("x", 2).unwrap(), (&[2, 3][..], &[1.0, -2.5, 3.0, 0.25, 1e300, -0.0][..]));
        assert_eq!(npz.bools("flag").unwrap(), [true, false]);
        assert_eq!(npz.text("meta").unwrap(), "né");
    }

    #[test]
    fn a_missing_array_or_one_of_another_kind_is_named() {
        let npz = read(&sample()).unwrap();
        assert_eq!(npz.get("y").unwrap_err().to_string(), "array `y` is missing");
        assert_eq!(
            npz.f64s("x", 1).unwrap_err().to_string(),
            "array `x` is float64 of shape [2, 3], not float64 with 1 axes"
        );
        assert!(npz.bools("x").is_err() && npz.text("flag").is_err());
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let whole = sample();
        for len in 0..whole.len() {
            assert!(read(&whole[..len]).is_err(), "the first {len} bytes were read without an error");
        }
    }

    #[test]
    fn a_damaged_byte_never_panics_and_never_changes_a_value_unnoticed() {
        let whole = sample();
        let good = read(&whole).unwrap();
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                // Damage to unused fields (dates, attributes) is harmless. The name of an array may change.
                if let Ok(npz) = read(&bytes) {
                    let values = |n: &Npz| n.arrays.values().cloned().collect::<Vec<_>>();
                    let (a, b) = (values(&npz), values(&good));
                    assert!(a.iter().all(|x| b.contains(x)), "byte {at} ^ {flip:#x} changed an array");
                }
            }
        }
    }

    #[test]
    fn unsupported_arrays_are_refused_with_the_reason() {
        let header = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n")
        };
        let cases = [
            (npy_bytes(&header(">f8", "False", "(1,)"), &[0; 8]), "has type \">f8\""),
            (npy_bytes(&header("|O", "False", "()"), &[0; 8]), "has type \"|O\""),
            (npy_bytes(&header("<f8", "True", "(1, 1)"), &[0; 8]), "Fortran order"),
            (npy_bytes(&header("<U1", "False", "(1,)"), &[0; 4]), "array of strings"),
            (npy_bytes(&header("<U1", "False", "()"), &[0, 0, 0x11, 0]), "character that does not exist"),
            (npy_bytes(&header("<f8", "False", "(2,)"), &[0; 8]), "claims 16 bytes"),
            (npy_bytes(&header("<f8", "False", "(1,)"), &[0; 9]), "claims 8 bytes"),
            (npy_bytes(&header("<f8", "False", "(99999999999, 99999999999)"), &[0; 8]), "too large"),
            (npy_bytes(&header("<f8", "False", "(999999999)"), &[0; 8]), "too large"),
            (npy_bytes(&header("<U99999999999999999999", "False", "()"), &[]), "has type"),
            (npy_bytes(&header("<f8", "False", "(-1,)"), &[]), "not NumPy's"),
            (npy_bytes("{'shape': () 'descr': '<f8', }", &[]), "not NumPy's"),
            (npy_bytes("{'descr': '<f8', }", &[]), "not NumPy's"),
            (npy_bytes("{", &[]), "not NumPy's"),
            (b"\x93NUMPY\x09\x00".to_vec(), "format version 9"),
            (b"PK".to_vec(), "too short"),
            (b"not an array at all".to_vec(), "first bytes are wrong"),
            ([b"\x93NUMPY\x02\x00".to_vec(), vec![0xff; 4]].concat(), "a header of 4294967295 bytes"),
        ];
        for (npy, says) in cases {
            let error = refusal(npy);
            assert!(
                error.starts_with("array `a` ") && error.contains(says),
                "{error:?} does not contain {says:?}"
            );
        }
    }

    #[test]
    fn a_zip_bomb_is_refused_before_it_is_unpacked() {
        // a gigabyte of zeros that the header declares
        let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,), }\n";
        assert!(refusal(npy_bytes(header, &[0; 64])).contains("too large"));
        // the same with a header that declares less
        let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n";
        assert!(refusal(npy_bytes(header, &vec![0; 1 << 22])).contains("claims 8 bytes"));
    }
}
