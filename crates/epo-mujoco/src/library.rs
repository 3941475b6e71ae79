//! Finds and opens the MuJoCo library, once per process.

use std::env;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Error;

/// File name of the library.
const NAME: &str = env!("EPO_MUJOCO_NAME");
/// Folder in which the build found or put it.
const BUILT_WITH: &str = env!("EPO_MUJOCO_DIR");

unsafe extern "C" {
    fn epo_open(path: *const c_char) -> *const c_char;
}

/// Folder that a program has named with [`set_library_dir`].
static NAMED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets a folder in which the library is looked for, after `MUJOCO_LIB_DIR` and before the folder of the program.
///
/// It is for a shared object that brings the library along, such as a Python module: the program is then the Python
/// interpreter. Call it before the first model is compiled; later calls have no effect.
pub fn set_library_dir(dir: impl Into<PathBuf>) {
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = Some(dir.into());
}

/// Opens the library. All later calls return what the first one did.
pub(crate) fn open() -> Result<(), Error> {
    static OPENED: OnceLock<Result<(), String>> = OnceLock::new();
    OPENED.get_or_init(|| try_each(&candidates())).clone().map_err(Error::Library)
}

/// Returns the places where the library may be, the most specific first. They are the folder that `MUJOCO_LIB_DIR`
/// names, the folder of [`set_library_dir`], the folder of the program, `lib` beside it, the folder of the build, and
/// the places of the system's loader.
fn candidates() -> Vec<PathBuf> {
    let variable = env::var_os("MUJOCO_LIB_DIR").map(PathBuf::from);
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let program = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let beside = program.iter().flat_map(|dir| [dir.clone(), dir.join("../lib")]);
    let folders = variable.into_iter().chain(named).chain(beside).chain([PathBuf::from(BUILT_WITH)]);
    folders.map(|dir| dir.join(NAME)).chain([PathBuf::from(NAME)]).collect()
}

/// Opens the first library of the list that can be used. The error names every place and what was wrong there.
fn try_each(paths: &[PathBuf]) -> Result<(), String> {
    let mut tried = String::new();
    for path in paths {
        match open_at(path) {
            Ok(()) => return Ok(()),
            Err(reason) => tried += &format!("\n  {}: {reason}", path.display()),
        }
    }
    Err(tried)
}

fn open_at(path: &Path) -> Result<(), String> {
    let bare = path.parent() == Some(Path::new(""));
    if !bare && !path.is_file() {
        return Err("no such file".into());
    }
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

    #[test]
    fn a_library_that_cannot_be_used_is_named_with_the_reason() {
        let folder = env::temp_dir().join(format!("epo-mujoco-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let broken = folder.join(NAME);
        std::fs::write(&broken, "not a library").unwrap();
        let error = try_each(&[folder.join("none").join(NAME), broken.clone()]).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("no such file"), "{error}");
        let line = error.lines().find(|line| line.contains(broken.to_str().unwrap())).unwrap();
        assert!(line.contains("invalid ELF header") || line.contains("file too short"), "{line}");
    }

    /// Kills: a folder that is named and not looked into, or looked into after the folder of the build.
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
