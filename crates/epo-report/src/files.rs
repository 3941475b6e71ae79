//! Reads untrusted files, and makes file names and texts that are safe to write.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use epo_core::MOST_TEXT_BYTES;

/// Maximum size of a `progress.csv`, in bytes; larger files are not read.
pub(crate) const MOST_RECORD_BYTES: u64 = 4 << 30;

/// Opens a regular file of at most `most` bytes; `None` if it does not exist. The error is a full sentence.
pub(crate) fn open(path: &Path, most: u64) -> Result<Option<(File, fs::Metadata)>, String> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let opened = epo_core::open_file(path, most).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((about, file)) => Ok(Some((file, about))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{name} cannot be read: {e}.")),
    }
}

/// Reads a regular file of at most [`MOST_TEXT_BYTES`] bytes as text; `None` if it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, String> {
    let Some((file, _)) = open(path, MOST_TEXT_BYTES)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let read = file.take(MOST_TEXT_BYTES).read_to_end(&mut bytes);
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    read.map_err(|e| format!("{name} cannot be read: {e}."))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns a text that is safe to print on a terminal.
///
/// Control characters, including escape codes and line ends, become `�`. So do marks that change the writing direction.
///
/// ```
/// assert_eq!(epo_report::printable("EPO\x1b[2J"), "EPO�[2J");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    match text.contains(hidden) {
        true => text.replace(hidden, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// Serialises a path as text. Bytes that are not UTF-8 become `�`; serde would refuse the whole document.
pub(crate) fn path_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Returns `text` with at most `most` characters; a shortened text ends in `…`.
pub fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Makes unique file names of at most 90 characters: letters, digits, `-`, `_` and `.` only.
#[derive(Debug, Default)]
pub(crate) struct FileNames(BTreeSet<String>);

impl FileNames {
    /// Returns a file name without extension for `text`. It is `text` itself if that is safe and not yet used.
    /// Otherwise it ends in a hash of `text`, so that `A/B` and `A_B` have different names.
    pub(crate) fn name(&mut self, text: &str) -> String {
        const MOST: usize = 80;
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let mut stem: String = text.chars().take(MOST).map(|c| if safe(c) { c } else { '_' }).collect();
        if stem.is_empty() || stem.starts_with(['.', '-']) {
            stem.insert(0, '_');
        }
        // some file systems do not distinguish upper and lower case
        if stem == text && self.0.insert(stem.to_lowercase()) {
            return stem;
        }
        let name = format!("{stem}-{:08x}", fnv(text.as_bytes()));
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        let mut free =
            std::iter::once(name.clone()).chain(numbered).filter(|n| self.0.insert(n.to_lowercase()));
        free.next().unwrap_or(name)
    }
}

/// Returns the 32-bit FNV-1a hash.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if names lack the hash, are too long, leave the folder, or differ only in case.
    #[test]
    fn no_two_texts_have_one_file_name() {
        let mut names = FileNames::default();
        let long = "x".repeat(300);
        let texts = ["overview", "A_B", "A/B", "A B", "a_b", "..", "", &long, &long[1..], "A_B", "-rf"];
        let got: Vec<String> = texts.iter().map(|text| names.name(text)).collect();
        let different: BTreeSet<String> = got.iter().map(|name| name.to_lowercase()).collect();
        assert_eq!(different.len(), texts.len(), "{got:?}");
        assert_eq!(got[..2], ["overview", "A_B"], "a safe name stays");
        for name in &got {
            assert!(name.len() <= 100 && !name.starts_with(['.', '-']) && !name.contains('/'), "{name}");
        }
    }

    #[test]
    fn text_is_made_printable_and_short() {
        assert_eq!(printable("a\nb\u{202e}c\u{9b}"), "a�b�c�");
        assert!(matches!(printable("SafetyPointGoal1-v0 μ"), Cow::Borrowed(_)));
        assert_eq!((shorten("abcd", 4).as_str(), shorten("abcde", 4).as_str()), ("abcd", "abc…"));
    }

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(read_text(&path).unwrap().is_none());
        fs::write(&path, "abc").unwrap();
        assert_eq!(read_text(&path).unwrap().as_deref(), Some("abc"));
        assert!(open(&path, 2).unwrap_err().contains("3 bytes, and at most 2"));
        let link = dir.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(read_text(&link).unwrap_err().contains("zero cannot be read: it is not a regular file"));
    }
}
