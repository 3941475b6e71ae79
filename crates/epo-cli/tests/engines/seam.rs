//! What all engines share: their options, and the folder of a task.

use std::fs;
use std::process::Command;

use crate::site::{Site, code, text};

#[test]
fn wrong_options_of_an_engine_are_refused_with_2() {
    let site = Site::new("");
    site.refuses(&["--partition", "big"], 2, &["--partition needs another engine: add `--on slurm`"]);
    site.refuses(
        &["--on", "slurm", "--storage", "/x"],
        2,
        &["--storage needs another engine: add `--on ray`"],
    );
    site.refuses(&["--on", "ray", "--time", "1:00"], 2, &["--time needs another engine: add `--on slurm`"]);
    site.refuses(&["--on", "ray", "--cancel"], 2, &["`--on ray` has no queue: press Ctrl-C"]);
    site.refuses(&["--cpus", "2"], 2, &["`--on slurm` or `--on ray`"]);
    site.write_file("[slurm]\ntiem = \"1:00\"\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.tiem`; did you mean `slurm.time`?"]);
    site.write_file("[slurm]\nzzz = 1\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.zzz`; the keys of `[slurm]` are ", ", time"]);
    fs::write(site.dir.path().join("s.toml"), [b'#', 0xff]).unwrap();
    site.refuses(&[], 2, &["cannot read s.toml", "UTF-8"]);
    site.write_file("[slurm]\ntime = \"2:00\"\n");
    site.refuses(&["--on", "slurm"], 2, &["slurm.grace is 120 s"]);
    site.write_file("[ray]\ncpus = 0\n");
    site.refuses(&["--on", "ray"], 2, &["ray.cpus must be a whole number of at least 1, not 0"]);
    assert!(!site.out().exists());
}

/// A run folder on a cluster where the task folder is missing, and a task that does not exist.
#[test]
fn a_task_without_its_folder_says_what_is_shared() {
    let dir = tempfile::tempdir().unwrap();
    let work = |task: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
        command.args(["work", "nowhere/slurm/0001", "--task", task]).current_dir(dir.path()).output().unwrap()
    };
    for task in ["0", "check"] {
        let got = work(task);
        assert_eq!(code(&got), 69, "{}", text(&got.stderr));
        assert!(text(&got.stderr).contains("a file system that all nodes share"), "{}", text(&got.stderr));
    }
    assert_eq!(code(&work("first")), 2);
}
