//! A folder with a sweep file, and commands that stand in for those of Slurm.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const TINY: &str = "[base]\nrun.steps = 800\nrun.task = \"SafetyPointGoal1-v0\"\ntrain.steps_per_epoch = 200\n\
                    train.final_eval_episodes = 0\ntrain.envs = 4\ntrain.minibatch = 100\ntrain.passes = 1\n\
                    train.hidden = [8]\n[grid]\nrun.seed = [0, 1, 2]\n";

/// Stands in for `sbatch`: runs the tasks of an array one after another in the background. `refuse` in its folder makes
/// it refuse, with the text of that file. A job with a dependency waits for it and vanishes if it failed.
pub(crate) const SBATCH: &str = r#"#!/bin/bash
dir=$(dirname "$0")
echo "$*" >> "$dir/calls"
if [ -f "$dir/refuse" ]; then cat "$dir/refuse" >&2; exit 1; fi
job=$(( $(cat "$dir/last" 2>/dev/null || echo 0) + 1 )); echo $job > "$dir/last"
for a in "$@"; do
    case $a in --array=*) a=${a#--array=}; last=${a#*-}; last=${last%%%*};; --output=*) out=${a#--output=};;
        --dependency=*) needs=${a##*:};; *) script=$a;; esac
done
mkdir -p "$dir/queue"
for i in $(seq 0 ${last:-0}); do echo "$job|$job|${last:+$i}|PD|Priority|$script" > "$dir/queue/$job.$i"; done
(
    while [ -n "$needs" ] && [ ! -f "$dir/ended.$needs" ]; do sleep 0.05; done
    if [ -n "$needs" ] && [ "$(cat "$dir/ended.$needs")" != 0 ]; then rm -f "$dir/queue/$job."*; exit; fi
    for i in $(seq 0 ${last:-0}); do
        [ -f "$dir/queue/$job.$i" ] || continue
        echo "$job|$job|${last:+$i}|R|None|$script" > "$dir/queue/$job.$i"
        [ -n "$last" ] && export SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_JOB_ID=$job
        SLURMD_NODENAME=n1 SLURM_JOB_ID=$job bash "$script" >> "${out/\%a/$i}" 2>&1
        echo $? > "$dir/ended.$job"
        rm -f "$dir/queue/$job.$i"
    done
) < /dev/null > /dev/null 2>&1 &
echo $job
"#;

const SQUEUE: &str = r#"#!/bin/bash
dir=$(dirname "$0")
if [ -f "$dir/away" ]; then cat "$dir/away" >&2; exit 1; fi
# a script of the user may have another job name, so a question by name finds nothing here
case "$*" in *--name*) exit 0;; esac
cat "$dir"/queue/* 2>/dev/null
exit 0
"#;

const SCANCEL: &str = r#"#!/bin/bash
dir=$(dirname "$0")
echo "scancel $*" >> "$dir/calls"
for a in "$@"; do rm -f "$dir/queue/${a%_*}".*; done
"#;

pub(crate) const SCONTROL: &str = r#"#!/bin/bash
echo "scontrol $*" >> "$(dirname "$0")/calls"
exit 1
"#;

/// The part of [`SBATCH`] that starts a task.
pub(crate) const START: &str =
    r#"SLURMD_NODENAME=n1 SLURM_JOB_ID=$job bash "$script" >> "${out/\%a/$i}" 2>&1"#;

/// A folder with a sweep file, and with Slurm's commands in its subfolder `bin`.
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new(more: &str) -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(site.bin()).unwrap();
        site.write_file(more);
        site
    }

    pub(crate) fn with_slurm(more: &str) -> Self {
        let site = Self::new(more);
        for (name, text) in
            [("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL), ("scontrol", SCONTROL)]
        {
            site.write_command(name, text);
        }
        site
    }

    /// Writes a command into the folder `bin`.
    pub(crate) fn write_command(&self, name: &str, text: &str) {
        let path = self.bin().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Replaces a part of `sbatch`.
    pub(crate) fn change_sbatch(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.bin().join("sbatch")).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.bin().join("sbatch"), text.replace(from, to)).unwrap();
    }

    /// Lets `sbatch` put the tasks into the queue and not start them.
    pub(crate) fn leave_tasks_in_the_queue(&self) {
        self.change_sbatch("(\n    while", "(\n exit\n while");
    }

    /// Replaces a part of the sweep file.
    pub(crate) fn change_file(&self, from: &str, to: &str) {
        let path = self.dir.path().join("s.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Returns the number of arrays that were submitted.
    pub(crate) fn arrays(&self) -> usize {
        self.calls().lines().filter(|line| line.contains("--array=")).count()
    }

    pub(crate) fn write_file(&self, more: &str) {
        fs::write(self.dir.path().join("s.toml"), format!("{TINY}{more}")).unwrap();
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.dir.path().join("o")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of("sweep", args)
    }

    /// Calls `epo sweep` or `epo tune`.
    pub(crate) fn command_of(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
        // bash and sleep are found, a Slurm of this machine is not
        let plain = self.dir.path().join("plain");
        if !plain.exists() {
            fs::create_dir(&plain).unwrap();
            for name in ["bash", "sh", "cat", "dirname", "seq", "sleep", "rm", "mkdir", "python3"] {
                let find = match name {
                    // the interpreter itself: what is in PATH may be a script that needs more commands
                    "python3" => "python3 -c 'import sys; print(sys.executable)'".to_owned(),
                    _ => format!("command -v {name}"),
                };
                let found = Command::new("sh").args(["-c", &find]).output().unwrap();
                let path = String::from_utf8(found.stdout).unwrap();
                std::os::unix::fs::symlink(path.trim(), plain.join(name)).unwrap();
            }
        }
        let path = format!("{}:{}", self.bin().display(), plain.display());
        command
            .args([name, if name == "repro" { "paper" } else { "s.toml" }])
            .args(if args.contains(&"--out") { &[][..] } else { &["--out", "o"] })
            .args(args)
            .current_dir(self.dir.path())
            .env("PATH", path);
        command.env_remove("RAY_ADDRESS").env_remove("SLURM_CONF");
        command
    }

    pub(crate) fn epo(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the sweep without an engine, and returns the hashes of its runs.
    pub(crate) fn local(&self) -> Vec<(String, String)> {
        let local = Command::new(env!("CARGO_BIN_EXE_epo"))
            .args(["sweep", "s.toml", "--out", "local", "--quiet"])
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(local.status.success(), "{}", text(&local.stderr));
        hashes(&self.dir.path().join("local"))
    }

    /// Calls `epo sweep --json` and returns its exit code and document.
    pub(crate) fn json(&self, args: &[&str]) -> (i32, Value) {
        let got = self.epo(&[args, &["--json", "--quiet"]].concat());
        let document = serde_json::from_slice(&got.stdout);
        (code(&got), document.unwrap_or_else(|e| panic!("{e}: {}{}", text(&got.stdout), text(&got.stderr))))
    }

    /// Fails unless the command ends with this exit code and a message of one line that has these parts.
    pub(crate) fn refuses(&self, args: &[&str], exit: i32, parts: &[&str]) -> String {
        let got = self.epo(args);
        let said = text(&got.stderr);
        assert_eq!(code(&got), exit, "{said}");
        let last = said.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}"));
        for part in parts {
            assert!(said.contains(part), "“{said}” does not say “{part}”");
        }
        last.to_owned()
    }

    pub(crate) fn calls(&self) -> String {
        fs::read_to_string(self.bin().join("calls")).unwrap_or_default()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Returns the hash of the newest checkpoint of every run.
pub(crate) fn hashes(sweep: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for run in
        fs::read_dir(sweep.join("runs")).unwrap().flat_map(|kind| fs::read_dir(kind.unwrap().path()).unwrap())
    {
        let run = run.unwrap();
        let newest =
            fs::read_dir(run.path().join("checkpoint")).unwrap().map(|e| e.unwrap().path()).max().unwrap();
        let manifest: Value =
            serde_json::from_str(&fs::read_to_string(newest.join("manifest.json")).unwrap()).unwrap();
        found.push((run.file_name().into_string().unwrap(), manifest["hash"].as_str().unwrap().to_owned()));
    }
    found.sort();
    found
}
