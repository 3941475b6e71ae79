//! Finds and opens the MuJoCo library, once per process.

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use crate::Error;

/// File name of the library.
const NAME: &str = env!("EPO_MUJOCO_NAME");
/// Folder in which the build found or put it.
const BUILT_WITH: &str = env!("EPO_MUJOCO_DIR");
/// SHA-256 of the library that the program was built with, in hexadecimal.
const HASH: &str = env!("EPO_MUJOCO_SHA256");

/// Maximum length of the library, in bytes.
const MOST_BYTES: u64 = 1 << 28;

unsafe extern "C" {
    fn epo_open(path: *const c_char) -> *const c_char;
}

/// Folder that a program has named with [`set_library_dir`].
static NAMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets a folder in which the library may be. It is tried after `MUJOCO_LIB_DIR` and before the
/// folder of the program.
///
/// It is meant for a shared object that ships the library, such as a Python module: there the
/// program is the Python interpreter. Call it before the first model is compiled; later calls have
/// no effect.
pub fn set_library_dir(dir: impl Into<PathBuf>) {
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir.into());
}

/// Opens the library. All later calls return the result of the first one.
pub(crate) fn open() -> Result<(), Error> {
    static OPENED: OnceLock<Result<(), String>> = OnceLock::new();
    OPENED.get_or_init(|| try_each(&candidates())).clone().map_err(Error::Library)
}

/// Returns the paths where the library may be, in the order in which they are tried. If
/// `MUJOCO_LIB_DIR` is set, only that folder is tried. Otherwise it is the folder of
/// [`set_library_dir`], the folder of the program, `lib` beside it, the user's data folder, and the
/// folder of the build.
fn candidates() -> Vec<PathBuf> {
    if let Some(folder) = env::var_os("MUJOCO_LIB_DIR") {
        return vec![PathBuf::from(folder).join(NAME)];
    }
    let program = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let beside = program.iter().flat_map(|dir| [dir.clone(), dir.join("../lib")]);
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home).map(|dir| dir.join("epo"));
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let folders = named.into_iter().chain(beside).chain(data).chain([PathBuf::from(BUILT_WITH)]);
    folders.map(|dir| dir.join(NAME)).collect()
}

/// Opens the first library of the list that can be used. The error names every place and the problem there.
fn try_each(paths: &[PathBuf]) -> Result<(), String> {
    let mut tried = String::new();
    for path in paths {
        match check(path).and_then(|()| open_at(path)) {
            Ok(()) => return Ok(()),
            Err(reason) => tried += &format!("\n  {}: {reason}", path.display()),
        }
    }
    Err(tried)
}

/// Returns an error for a file that is not the library that the program was built with, because it
/// could give different results or be malicious. The build folder is trusted, because the build has
/// just checked it.
fn check(path: &Path) -> Result<(), String> {
    if !path.is_file() {
        return Err("no such file".into());
    }
    if path.parent() == Some(Path::new(BUILT_WITH)) {
        return Ok(());
    }
    let file = File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    restore_name(&mut bytes);
    let got: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    match got == HASH {
        true => Ok(()),
        false => Err(format!(
            "not the library that this program was built with (SHA-256 {got} instead of {HASH}); \
             copy that one here, or build the program with MUJOCO_LIB_DIR set to this folder"
        )),
    }
}

/// Undoes the only change that the wheel of the Python package `epo` makes to the library: an `e`
/// replaces the `m` in its SONAME (the name of the file).
fn restore_name(bytes: &mut [u8]) {
    let name = format!("\0{NAME}\0").into_bytes();
    let changed: Vec<u8> = name.iter().map(|b| if *b == b'm' { b'e' } else { *b }).collect();
    if let Some(at) = bytes.windows(changed.len()).position(|window| window == changed) {
        bytes[at..at + name.len()].copy_from_slice(&name);
    }
}

fn open_at(path: &Path) -> Result<(), String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the path ends with a zero. `OnceLock` lets one thread in. Nothing else of this crate calls the library
    // before this has succeeded: a simulation begins with the compilation of a model, which calls this function first.
    let reason = unsafe { epo_open(path.as_ptr()) };
    if reason.is_null() {
        return Ok(());
    }
    // SAFETY: a reason is a text that lives until the next call.
    Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a library with another content is opened, or if the message does not say what to do.
    #[test]
    fn a_library_that_cannot_be_used_is_named_with_the_reason() {
        let folder = env::temp_dir().join(format!("epo-mujoco-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (changed, copy) = (folder.join(NAME), folder.join("copy"));
        let mut bytes = std::fs::read(Path::new(BUILT_WITH).join(NAME)).unwrap();
        std::fs::write(&copy, &bytes).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&changed, bytes).unwrap();
        let error = try_each(&[folder.join("none").join(NAME), changed.clone()]).unwrap_err();
        let same = check(&copy);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(same, Ok(()), "a copy of the library of the build");
        assert!(error.contains("no such file"), "{error}");
        let line = error.lines().find(|line| line.contains(changed.to_str().unwrap())).unwrap();
        assert!(line.contains(HASH) && line.contains("build the program with MUJOCO_LIB_DIR"), "{line}");
    }

    /// This test fails if the copy in a wheel is refused. The copy has its own SONAME and no other difference.
    #[test]
    fn the_library_of_a_wheel_is_the_library_of_the_build() {
        let mut bytes = std::fs::read(Path::new(BUILT_WITH).join(NAME)).unwrap();
        let original = bytes.clone();
        let name = format!("\0{NAME}\0");
        let at = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        bytes[at..at + name.len()].copy_from_slice(name.replace('m', "e").as_bytes());
        let folder = env::temp_dir().join(format!("epo-wheel-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let copy = folder.join(NAME);
        std::fs::write(&copy, &bytes).unwrap();
        let same = check(&copy);
        bytes[at / 2] ^= 1;
        std::fs::write(&copy, &bytes).unwrap();
        let changed = check(&copy);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(same, Ok(()));
        assert!(changed.is_err(), "another byte was changed too");
        restore_name(&mut bytes);
        bytes[at / 2] ^= 1;
        assert!(bytes == original);
    }

    /// This test fails if a folder that is named is not tried, or is tried after the folder of the
    /// build.
    #[test]
    fn a_folder_that_the_program_names_comes_before_the_folder_of_the_build() {
        set_library_dir("/named/by/the/program");
        let all = candidates();
        let at = |path: &Path| all.iter().position(|p| p == path);
        let named = at(&Path::new("/named/by/the/program").join(NAME)).unwrap();
        assert!(named < at(&Path::new(BUILT_WITH).join(NAME)).unwrap(), "{all:?}");
    }

    #[test]
    fn the_folder_of_the_build_is_a_candidate_and_opens() {
        let built = Path::new(BUILT_WITH).join(NAME);
        assert!(candidates().contains(&built));
        assert_eq!(try_each(&[built]), Ok(()));
    }
}
