//! Checkpoint folders. A checkpoint is written atomically, and damaged files are detected by their hashes.
//!
//! ```text
//! checkpoint/000041/manifest.json    name, length and SHA-256 of every other file, and a hash over this list;
//!                                    the configuration and the hashes of the record at that time (`changes.rs`)
//! checkpoint/000041/…                the files
//! checkpoint/000040/                 the previous checkpoint, which is kept
//! ```
//! A checkpoint is first written to `checkpoint/tmp`. Its files and the folder are synced to disk, and the
//! folder is then renamed to its number, which is atomic. Only then are checkpoints older than the previous one
//! removed. So the newest numbered folder is complete, no matter when the process dies.
//!
//! If a hash shows that the newest checkpoint was damaged later, the previous one is used. A run that resumes from it
//! renames the damaged one to `damaged-000041`. A read error is not treated as damage: it is reported, and nothing is
//! changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::LabError;
use crate::changes::FolderSummary;

/// A checkpoint that was read from disk and whose hashes are correct.
#[derive(Debug)]
pub struct LoadedCheckpoint {
    /// Number of the checkpoint, which is the number of epochs done.
    pub number: u64,
    /// Hash over names, lengths and hashes of all files.
    pub hash: String,
    /// Content of the files, by name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Configuration and record at the time of the checkpoint; `None` before version 0.4.
    pub covered: Option<FolderSummary>,
    /// One message for each newer checkpoint that is damaged and was skipped.
    pub passed_over: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    files: BTreeMap<String, FileEntry>,
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<FolderSummary>,
    /// Hash over `hash` and `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder_hash: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    bytes: u64,
    sha256: String,
}

const FORMAT: u32 = 1;

impl Manifest {
    fn of(files: &BTreeMap<String, Vec<u8>>, folder: Option<&FolderSummary>) -> Self {
        let entry = |(name, data): (&String, &Vec<u8>)| {
            (name.clone(), FileEntry { bytes: data.len() as u64, sha256: sha256(data) })
        };
        let files: BTreeMap<_, _> = files.iter().map(entry).collect();
        let lines: String =
            files.iter().map(|(name, f)| format!("{name} {} {}\n", f.bytes, f.sha256)).collect();
        let hash = sha256(lines.as_bytes());
        let folder_hash = folder.map(|folder| sha256(format!("{hash}\n{}", folder.text()).as_bytes()));
        Self { format: FORMAT, files, hash, folder: folder.cloned(), folder_hash }
    }

    fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n" // strings and integers always serialise
    }
}

/// Returns the SHA-256 hash of `data` in lower-case hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

/// Returns bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes checkpoint `number` into `root` and returns its hash. Only this checkpoint and the previous one are kept.
///
/// The manifest also gets `folder`; the returned hash does not depend on it. If writing fails, the existing checkpoints
/// stay unchanged.
pub fn save(
    root: &Path,
    number: u64,
    files: &BTreeMap<String, Vec<u8>>,
    folder: Option<&FolderSummary>,
) -> Result<String, LabError> {
    save_on(&mut Disk::default(), root, number, files, folder)
        .map_err(LabError::io("write the checkpoint in", root))
}

/// Reads the newest checkpoint in `root` whose hashes are correct and whose content `fits` accepts for its number.
///
/// # Errors
/// If there is no such checkpoint, or if a file exists but cannot be read. In the latter case no older checkpoint is
/// used.
pub fn load(
    root: &Path,
    fits: impl Fn(u64, &BTreeMap<String, Vec<u8>>) -> Result<(), String>,
) -> Result<LoadedCheckpoint, LabError> {
    let mut passed_over = Vec::new();
    for (number, path) in numbered(root).map_err(|e| LabError::run(root, format!("no checkpoints ({e})")))? {
        let read = read_whole(&path).and_then(|whole| match fits(number, &whole.1) {
            Ok(()) => Ok(whole),
            Err(why) => Err(ReadError::Damaged(why)),
        });
        match read {
            Ok((manifest, files)) => {
                let Manifest { hash, folder: covered, .. } = manifest;
                return Ok(LoadedCheckpoint { number, hash, files, covered, passed_over });
            }
            Err(e) => match e.describe(&format!("checkpoint {}", path.display())) {
                Ok(why) => passed_over.push(why),
                Err((file, e)) => return Err(LabError::io("read", &file)(e)),
            },
        }
    }
    let why = if passed_over.is_empty() { "there is none".into() } else { passed_over.join("; ") };
    Err(LabError::run(root, format!("no checkpoint can be loaded: {why}")))
}

/// Returns the numbers of the checkpoints in `root`, newest first. They may be damaged.
pub fn numbers(root: &Path) -> Result<Vec<u64>, LabError> {
    let all = numbered(root).map_err(|e| LabError::run(root, format!("no checkpoints ({e})")))?;
    Ok(all.into_iter().map(|(number, _)| number).collect())
}

/// Reads checkpoint `number` in `root`, if its hashes are correct and `fits` accepts its content.
///
/// # Errors
/// If there is no such checkpoint, or it is damaged or cannot be read. No other checkpoint is used.
pub fn load_number(
    root: &Path,
    number: u64,
    fits: impl Fn(u64, &BTreeMap<String, Vec<u8>>) -> Result<(), String>,
) -> Result<LoadedCheckpoint, LabError> {
    let there = numbers(root)?;
    if !there.contains(&number) {
        let list: Vec<String> = there.iter().map(u64::to_string).collect();
        let kept = if list.is_empty() { "none".to_owned() } else { list.join(" and ") };
        return Err(LabError::run(root, format!("there is no checkpoint {number}; the run has {kept}")));
    }
    let path = root.join(format!("{number:06}"));
    let read = read_whole(&path).and_then(|(manifest, files)| match fits(number, &files) {
        Ok(()) => {
            let Manifest { hash, folder: covered, .. } = manifest;
            Ok(LoadedCheckpoint { number, hash, files, covered, passed_over: Vec::new() })
        }
        Err(why) => Err(ReadError::Damaged(why)),
    });
    read.map_err(|e| match e.describe("the checkpoint") {
        Ok(why) => LabError::run(&path, why),
        Err((file, e)) => LabError::io("read", &file)(e),
    })
}

/// Returns true if `root` contains no checkpoint, not even a damaged one.
pub fn is_empty(root: &Path) -> Result<bool, LabError> {
    match numbered(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        found => Ok(found.map_err(LabError::io("list", root))?.is_empty()),
    }
}

/// Prepares `root` for a run that resumes from checkpoint `number`. Newer checkpoints, which are damaged, are renamed
/// to `damaged-…`. The remains of an unfinished save are removed.
pub fn set_aside_after(root: &Path, number: u64) -> Result<(), LabError> {
    let all = numbered(root).map_err(LabError::io("list", root))?;
    for (n, path) in all.into_iter().filter(|(n, _)| *n > number) {
        let name = |k: u32| match k {
            1 => format!("damaged-{n:06}"),
            _ => format!("damaged-{n:06}-{k}"),
        };
        let aside = (1..).map(|k| root.join(name(k))).find(|path| !path.exists());
        let aside = aside.unwrap_or_else(|| unreachable!("some number is free"));
        fs::rename(&path, &aside).map_err(LabError::io("rename", &path))?;
    }
    let tmp = root.join(TMP);
    if tmp.exists() {
        fs::remove_dir_all(&tmp).map_err(LabError::io("remove", &tmp))?;
    }
    Ok(())
}

const TMP: &str = "tmp";

fn save_on(
    disk: &mut Disk,
    root: &Path,
    number: u64,
    files: &BTreeMap<String, Vec<u8>>,
    folder: Option<&FolderSummary>,
) -> io::Result<String> {
    let manifest = Manifest::of(files, folder);
    let (tmp, path) = (root.join(TMP), root.join(format!("{number:06}")));
    if tmp.exists() {
        disk.remove_dir(&tmp)?;
    }
    disk.create_dir(&tmp)?;
    for (name, data) in files {
        disk.write(&tmp.join(name), data)?;
    }
    disk.write(&tmp.join("manifest.json"), manifest.to_json().as_bytes())?;
    disk.sync_dir(&tmp)?;
    disk.rename(&tmp, &path)?;
    disk.sync_dir(root)?;
    for (_, old) in numbered(root)?.into_iter().filter(|(n, _)| *n < number).skip(1) {
        disk.remove_dir(&old)?;
    }
    Ok(manifest.hash)
}

/// Returns number and path of all numbered folders, newest first.
fn numbered(root: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().filter(|n| n.len() >= 6 && n.bytes().all(|b| b.is_ascii_digit()));
        if let Some(number) = digits.and_then(|n| n.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The reason why a checkpoint could not be read.
enum ReadError {
    /// The content differs from what was written.
    Damaged(String),
    /// The manifest has another format, with this number.
    OtherVersion(u64),
    /// A file exists but cannot be read.
    Unreadable(PathBuf, io::Error),
}

impl ReadError {
    /// Returns the reason why the checkpoint `name` is not used, or the error of the system if a
    /// file cannot be read.
    fn describe(self, name: &str) -> Result<String, (PathBuf, io::Error)> {
        match self {
            Self::Damaged(why) => Ok(format!("{name} is damaged ({why})")),
            Self::OtherVersion(format) => Ok(format!(
                "{name} was written by another version of epo (format {format}; this version reads format {FORMAT})"
            )),
            Self::Unreadable(file, e) => Err((file, e)),
        }
    }
}

impl From<String> for ReadError {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

/// Maximum length of a manifest, in bytes. Manifests usually have a few hundred bytes.
const MANIFEST_BYTES: u64 = 1 << 20;

/// Reads a regular file of at most `most` bytes. A file that is missing, not regular or longer counts as damage.
fn read_file(path: &Path, name: &str, most: u64) -> Result<Vec<u8>, ReadError> {
    let path = path.join(name);
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            ReadError::Damaged(format!("{name}: {e}"))
        }
        _ => ReadError::Unreadable(path.clone(), e),
    };
    let metadata = fs::symlink_metadata(&path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(ReadError::Damaged(format!("{name} is not a regular file")));
    }
    if metadata.len() > most {
        return Err(ReadError::Damaged(format!("{name} has {} bytes instead of {most}", metadata.len())));
    }
    fs::read(&path).map_err(unreadable)
}

fn read_whole(path: &Path) -> Result<(Manifest, BTreeMap<String, Vec<u8>>), ReadError> {
    let text = read_file(path, "manifest.json", MANIFEST_BYTES)?;
    let any: serde_json::Value = serde_json::from_slice(&text).map_err(|e| format!("manifest.json: {e}"))?;
    if let Some(format) = any["format"].as_u64().filter(|format| *format != u64::from(FORMAT)) {
        return Err(ReadError::OtherVersion(format)); // it may have fields that this version does not know
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| format!("manifest.json: {e}"))?;
    let mut files = BTreeMap::new();
    for (name, entry) in &manifest.files {
        let plain = Path::new(name).file_name().is_some_and(|n| n == name.as_str());
        if !plain {
            return Err(format!("{name:?} is not a file name").into());
        }
        let data = read_file(path, name, entry.bytes)?;
        if data.len() as u64 != entry.bytes || sha256(&data) != entry.sha256 {
            return Err(format!("{name}: the length or the hash is wrong").into());
        }
        files.insert(name.clone(), data);
    }
    // the files determine the manifest, so a manifest generated from them must have the same bytes
    let again = Manifest::of(&files, manifest.folder.as_ref());
    if again.to_json().as_bytes() != text {
        return Err("manifest.json does not match the files".to_owned().into());
    }
    Ok((again, files))
}

/// All changes that a save makes to the disk. They are methods of this type so that a test can let the k-th
/// change fail.
#[derive(Default)]
struct Disk {
    #[cfg(test)]
    fail_at: Option<usize>,
    #[cfg(test)]
    changes: usize,
}

impl Disk {
    fn change(&mut self) -> io::Result<()> {
        #[cfg(test)]
        {
            self.changes += 1;
            if self.fail_at == Some(self.changes) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.change()?;
        fs::create_dir(path) // without its parents: a run folder that was moved away must not be created again
    }

    fn write(&mut self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.change()?;
        let mut file = fs::File::create(path)?;
        let (head, tail) = data.split_at(data.len() / 2); // in two parts, so that a test can fail in the middle
        file.write_all(head)?;
        self.change()?;
        file.write_all(tail)?;
        self.change()?;
        file.sync_all()
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.change()?;
        fs::File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        fs::rename(from, to)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.change()?;
        fs::remove_dir_all(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(salt: u8) -> BTreeMap<String, Vec<u8>> {
        let data = |n: u8| (0..200_u8).map(|i| i.wrapping_mul(n).wrapping_add(salt)).collect();
        [("state.json".to_owned(), data(3)), ("tensors.safetensors".to_owned(), data(7))].into()
    }

    fn any(_: u64, _: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
        Ok(())
    }

    /// Returns a folder with the complete checkpoints 1 and 2.
    fn two() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), 1, &files(1), None).unwrap();
        save(dir.path(), 2, &files(2), None).unwrap();
        dir
    }

    #[test]
    fn the_newest_and_the_one_before_are_kept() {
        let dir = two();
        let hash = save(dir.path(), 3, &files(3), None).unwrap();
        let loaded = load(dir.path(), any).unwrap();
        assert_eq!((loaded.number, &loaded.hash, &loaded.files), (3, &hash, &files(3)));
        let kept: Vec<u64> = numbered(dir.path()).unwrap().into_iter().map(|(n, _)| n).collect();
        assert_eq!(kept, [3, 2]);
        assert!(!dir.path().join(TMP).exists());
    }

    #[test]
    fn every_changed_or_missing_byte_is_found_and_the_previous_one_used() {
        let dir = two();
        for name in ["manifest.json", "state.json", "tensors.safetensors"] {
            let path = dir.path().join("000002").join(name);
            let good = fs::read(&path).unwrap();
            let flips = (0..good.len()).map(|i| {
                let mut bad = good.clone();
                bad[i] ^= 1 << (i % 8);
                bad
            });
            let cuts = (0..good.len()).map(|n| good[..n].to_vec());
            for bad in flips.chain(cuts).chain([[&good[..], &[0]].concat()]) {
                fs::write(&path, bad).unwrap();
                let loaded = load(dir.path(), any).unwrap();
                assert_eq!((loaded.number, &loaded.files), (1, &files(1)));
                assert!(loaded.passed_over[0].contains("000002 is damaged"), "{:?}", loaded.passed_over);
            }
            fs::remove_file(&path).unwrap();
            assert_eq!(load(dir.path(), any).unwrap().number, 1);
            fs::write(&path, good).unwrap();
        }
        assert_eq!(load(dir.path(), any).unwrap().number, 2, "restored");
        fs::write(dir.path().join("000001/state.json"), "").unwrap();
        fs::write(dir.path().join("000002/state.json"), "").unwrap();
        let error = load(dir.path(), any).unwrap_err().to_string();
        assert!(error.contains("000001 is damaged") && error.contains("000002 is damaged"), "{error}");
    }

    #[test]
    fn a_save_that_fails_at_any_point_leaves_a_whole_checkpoint() {
        let mut fails = 0;
        for k in 1.. {
            let dir = two();
            fs::create_dir(dir.path().join(TMP)).unwrap(); // left by a process that died during a save
            let mut disk = Disk { fail_at: Some(k), changes: 0 };
            let result = save_on(&mut disk, dir.path(), 3, &files(3), None);
            let loaded = load(dir.path(), any).unwrap();
            assert!(loaded.passed_over.is_empty(), "{:?}", loaded.passed_over);
            assert_eq!(loaded.files, files(loaded.number as u8));
            assert!(loaded.number == 2 || loaded.number == 3);
            // the next save must succeed
            save(dir.path(), loaded.number + 1, &files(9), None).unwrap();
            assert_eq!(load(dir.path(), any).unwrap().files, files(9));
            if result.is_ok() {
                break;
            }
            fails += 1;
        }
        assert_eq!(fails, 2 + 3 * 3 + 2 + 1 + 1, "tmp removed and made, three files, syncs, rename, removal");
    }

    #[test]
    fn names_in_a_manifest_cannot_leave_the_folder() {
        let dir = two();
        let outside = files(5);
        let mut manifest = Manifest::of(&outside, None);
        let entry = manifest.files.remove("state.json").unwrap();
        manifest.files.insert("../state.json".into(), entry);
        fs::write(dir.path().join("000002/manifest.json"), manifest.to_json()).unwrap();
        let loaded = load(dir.path(), any).unwrap();
        assert!(loaded.passed_over[0].contains("not a file name"), "{:?}", loaded.passed_over);
    }

    #[test]
    fn a_checkpoint_of_another_format_is_not_called_damaged() {
        let dir = two();
        fs::write(dir.path().join("000002/manifest.json"), r#"{"format": 7, "new": []}"#).unwrap();
        let said = load(dir.path(), any).unwrap().passed_over.remove(0);
        assert!(said.contains("000002 was written by another version of epo (format 7;"), "{said}");
        let said = load_number(dir.path(), 2, any).unwrap_err().to_string();
        assert!(said.contains("another version of epo") && !said.contains("damaged"), "{said}");
    }

    #[test]
    fn content_that_does_not_fit_the_number_is_passed_over() {
        let dir = two();
        fs::rename(dir.path().join("000001"), dir.path().join("000007")).unwrap();
        let fits = |number: u64, content: &BTreeMap<String, Vec<u8>>| match *content == files(number as u8) {
            true => Ok(()),
            false => Err("it is another one".to_owned()),
        };
        let loaded = load(dir.path(), fits).unwrap();
        assert_eq!(loaded.number, 2);
        assert!(loaded.passed_over[0].contains("000007 is damaged (it is another one)"), "{loaded:?}");
    }

    #[test]
    fn a_damaged_checkpoint_is_set_aside_and_a_special_file_does_not_hang() {
        let dir = two();
        let state = dir.path().join("000002/state.json");
        fs::remove_file(&state).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &state).unwrap();
        let loaded = load(dir.path(), any).unwrap();
        assert!(loaded.number == 1 && loaded.passed_over[0].contains("not a regular file"), "{loaded:?}");
        for name in ["damaged-000002", "damaged-000002-2"] {
            set_aside_after(dir.path(), 1).unwrap();
            assert!(dir.path().join(name).is_dir() && !dir.path().join("000002").exists(), "{name}");
            save(dir.path(), 2, &files(2), None).unwrap();
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_changes_nothing() {
        let dir = two();
        let state = dir.path().join("000002/state.json");
        // a name that is too long for the file system gives an error that is neither "not found" nor damage
        let long = dir.path().join("000002").join("x".repeat(300));
        assert!(matches!(
            read_file(&dir.path().join("000002"), &"x".repeat(300), 10),
            Err(ReadError::Unreadable(path, _)) if path == long
        ));
        assert!(matches!(read_file(&dir.path().join("000002"), "none", 10), Err(ReadError::Damaged(_))));
        assert!(state.is_file());
    }
}
