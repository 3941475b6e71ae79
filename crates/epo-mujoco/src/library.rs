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

unsafe extern "C" {
    fn epo_open(path: *const c_char) -> *const c_char;
}

/// Folder that a program has named with [`set_library_dir`], and the SHA-256 of the library in it.
static NAMED: Mutex<Option<(PathBuf, &'static str)>> = Mutex::new(None);

/// Sets a folder in which the library is looked for, after `MUJOCO_LIB_DIR` and before the folder of the program.
///
/// It is for a shared object that brings the library along, such as a Python module: the program is then the Python
/// interpreter. The library there has the SHA-256 `sha256` in hexadecimal, because a package may change the name inside
/// the file. Call it before the first model is compiled; later calls have no effect.
pub fn set_library_dir(dir: impl Into<PathBuf>, sha256: &'static str) {
    *NAMED.lock().unwrap_or_else(PoisonError::into_inner) = Some((dir.into(), sha256));
}

/// A place where the library may be, and the SHA-256 that it must have there.
#[derive(Clone, Debug, PartialEq)]
struct Candidate {
    path: PathBuf,
    hash: &'static str,
}

impl Candidate {
    /// The library of the build in this folder.
    fn built(folder: impl AsRef<Path>) -> Self {
        Self { path: folder.as_ref().join(NAME), hash: HASH }
    }
}

/// Opens the library. All later calls return what the first one did.
pub(crate) fn open() -> Result<(), Error> {
    static OPENED: OnceLock<Result<(), String>> = OnceLock::new();
    OPENED.get_or_init(|| try_each(&candidates())).clone().map_err(Error::Library)
}

/// Returns the places where the library may be, the most specific first: the folder that `MUJOCO_LIB_DIR` names and
/// nothing else, if it is set; otherwise the folder of [`set_library_dir`], the folder of the program, `lib` beside it,
/// the user's data folder, and the folder of the build.
fn candidates() -> Vec<Candidate> {
    if let Some(folder) = env::var_os("MUJOCO_LIB_DIR") {
        return vec![Candidate::built(PathBuf::from(folder))];
    }
    let program = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let beside = program.iter().flat_map(|dir| [dir.clone(), dir.join("../lib")]);
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home).map(|dir| dir.join("epo"));
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let named = named.map(|(dir, hash)| Candidate { path: dir.join(NAME), hash });
    let folders = beside.chain(data).chain([PathBuf::from(BUILT_WITH)]);
    named.into_iter().chain(folders.map(Candidate::built)).collect()
}

/// Opens the first library of the list that can be used. The error names every place and what was wrong there.
fn try_each(candidates: &[Candidate]) -> Result<(), String> {
    let mut tried = String::new();
    for candidate in candidates {
        match check(candidate).and_then(|()| open_at(&candidate.path)) {
            Ok(()) => return Ok(()),
            Err(reason) => tried += &format!("\n  {}: {reason}", candidate.path.display()),
        }
    }
    Err(tried)
}

/// Refuses a file that is not the library that the program was built with: it could give other results or do harm. The
/// build folder is trusted, because the build has just checked it.
fn check(Candidate { path, hash: wanted }: &Candidate) -> Result<(), String> {
    if !path.is_file() {
        return Err("no such file".into());
    }
    if path.parent() == Some(Path::new(BUILT_WITH)) {
        return Ok(());
    }
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|e| e.to_string())? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let got: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    match got == *wanted {
        true => Ok(()),
        false => Err(format!(
            "not the library that this program was built with (SHA-256 {got} instead of {wanted}); \
             copy that one here, or build the program with MUJOCO_LIB_DIR set to this folder"
        )),
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
        let error =
            try_each(&[Candidate::built(folder.join("none")), Candidate::built(&folder)]).unwrap_err();
        let same = check(&Candidate { path: copy.clone(), hash: HASH });
        let other = check(&Candidate { path: copy, hash: "00" });
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(same, Ok(()), "a copy of the library of the build");
        assert!(other.is_err(), "a folder that is named has a hash of its own");
        assert!(error.contains("no such file"), "{error}");
        let line = error.lines().find(|line| line.contains(changed.to_str().unwrap())).unwrap();
        assert!(line.contains(HASH) && line.contains("build the program with MUJOCO_LIB_DIR"), "{line}");
    }

    /// This test fails if a folder that is named is not searched, or is searched after the folder of the build.
    #[test]
    fn a_folder_that_the_program_names_comes_before_the_folder_of_the_build() {
        set_library_dir("/named/by/the/program", "1234");
        let all = candidates();
        let at = |candidate: &Candidate| all.iter().position(|c| c == candidate);
        let named = Candidate { path: Path::new("/named/by/the/program").join(NAME), hash: "1234" };
        assert!(at(&named).unwrap() < at(&Candidate::built(BUILT_WITH)).unwrap(), "{all:?}");
    }

    #[test]
    fn the_folder_of_the_build_is_a_candidate_and_opens() {
        let built = Candidate::built(BUILT_WITH);
        assert!(candidates().contains(&built));
        assert_eq!(try_each(&[built]), Ok(()));
    }
}
