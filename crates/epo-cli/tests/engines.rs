//! Tests of `epo sweep --on slurm|ray` through the binary, without a cluster: small scripts stand in for Slurm's
//! commands, a small module for Ray. `tests/cluster/` has the tests with the real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

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
const SBATCH: &str = r#"#!/bin/bash
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
        [ -n "$last" ] && export SLURM_ARRAY_TASK_ID=$i
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

/// A folder with a sweep file, and with Slurm's commands in its subfolder `bin`.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new(more: &str) -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(site.bin()).unwrap();
        site.write_file(more);
        site
    }

    fn with_slurm(more: &str) -> Self {
        let site = Self::new(more);
        for (name, text) in [
            ("sbatch", SBATCH),
            ("squeue", SQUEUE),
            ("scancel", SCANCEL),
            ("scontrol", "#!/bin/sh\nexit 1\n"),
        ] {
            let path = site.bin().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        site
    }

    fn write_file(&self, more: &str) {
        fs::write(self.dir.path().join("s.toml"), format!("{TINY}{more}")).unwrap();
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("o")
    }

    fn command(&self, args: &[&str]) -> Command {
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
            .args(["sweep", "s.toml"])
            .args(if args.contains(&"--out") { &[][..] } else { &["--out", "o"] })
            .args(args)
            .current_dir(self.dir.path())
            .env("PATH", path);
        command.env_remove("RAY_ADDRESS").env_remove("SLURM_CONF");
        command
    }

    fn epo(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the sweep without an engine, and returns the hashes of its runs.
    fn local(&self) -> Vec<(String, String)> {
        let local = Command::new(env!("CARGO_BIN_EXE_epo"))
            .args(["sweep", "s.toml", "--out", "local", "--quiet"])
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(local.status.success(), "{}", text(&local.stderr));
        hashes(&self.dir.path().join("local"))
    }

    /// Calls `epo sweep --json` and returns its exit code and document.
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let got = self.epo(&[args, &["--json", "--quiet"]].concat());
        let document = serde_json::from_slice(&got.stdout);
        (code(&got), document.unwrap_or_else(|e| panic!("{e}: {}{}", text(&got.stdout), text(&got.stderr))))
    }

    /// Fails unless the command ends with this exit code and a message of one line that has these parts.
    fn refuses(&self, args: &[&str], exit: i32, parts: &[&str]) -> String {
        let got = self.epo(args);
        let said = text(&got.stderr);
        assert_eq!(code(&got), exit, "{said}");
        let last = said.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}"));
        for part in parts {
            assert!(said.contains(part), "“{said}” does not say “{part}”");
        }
        last.to_owned()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.bin().join("calls")).unwrap_or_default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Returns the hash of the newest checkpoint of every run.
fn hashes(sweep: &Path) -> Vec<(String, String)> {
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

#[test]
fn without_slurm_or_its_controller_the_message_says_so_and_nothing_is_written() {
    let site = Site::new("");
    site.refuses(&["--on", "slurm"], 69, &["`squeue` is not on this machine", "--on local"]);
    assert!(!site.out().exists());
    let site = Site::with_slurm("");
    let away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n";
    fs::write(site.bin().join("away"), away).unwrap();
    site.refuses(
        &["--on", "slurm"],
        69,
        &["Unable to contact slurm controller", "is the Slurm controller running?"],
    );
    assert!(!site.out().exists());
    // what the commands of Slurm 22.05 say on a machine without slurm.conf
    let unknown = "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n\
                   squeue: fatal: Could not establish a configuration source\n";
    fs::write(site.bin().join("away"), unknown).unwrap();
    site.refuses(&["--on", "slurm"], 69, &["finds no configuration of Slurm", "SLURM_CONF", "--on local"]);
    assert!(!site.out().exists());
}

/// Fails if a refusal of `sbatch` is swallowed, leaves a job behind, or keeps the same command from working later.
#[test]
fn a_refused_request_is_named_and_the_same_command_continues() {
    let site = Site::with_slurm("");
    let refusal =
        "sbatch: error: Batch job submission failed: User's group not permitted to use this partition\n";
    fs::write(site.bin().join("refuse"), refusal).unwrap();
    let said = site.refuses(&["--on", "slurm", "--partition", "big"], 1, &["User's group not permitted"]);
    assert!(!said.contains("sbatch: error:"), "the prefix of Slurm is not repeated: {said}");
    fs::remove_file(site.bin().join("refuse")).unwrap();
    let got = site.epo(&["--on", "slurm"]);
    assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
}

#[test]
fn tasks_that_can_never_start_are_cancelled_and_the_reason_is_named() {
    let site = Site::with_slurm("");
    // this sbatch only puts the tasks into the queue
    let sbatch =
        SBATCH.replace("PD|Priority", "PD|PartitionTimeLimit").replace("(\n    while", "(\n exit\n while");
    fs::write(site.bin().join("sbatch"), sbatch).unwrap();
    site.refuses(
        &["--on", "slurm", "--time", "99-0"],
        1,
        &["never start", "PartitionTimeLimit", "are cancelled"],
    );
    assert!(site.calls().contains("scancel --state=PENDING"), "{}", site.calls());
    assert!(fs::read_dir(site.bin().join("queue")).unwrap().next().is_none(), "a task is left in the queue");
}

#[test]
fn runs_of_slurm_are_those_of_a_local_sweep_and_the_status_follows_them() {
    let site = Site::with_slurm("[slurm]\ncpus = 2\npack = 2\n");
    let (exit, before) = site.json(&["--on", "slurm", "--status"]);
    assert_eq!((exit, &before["pending"], &before["done"]), (0, &3.into(), &0.into()), "{before}");
    let (exit, summary) = site.json(&["--on", "slurm", "--jobs", "7"]);
    assert_eq!((exit, &summary["done"], &summary["pending"]), (0, &3.into(), &0.into()), "{summary}");
    let calls = site.calls();
    let (check, array) = calls.split_once('\n').unwrap();
    assert!(check.contains("--job-name=epo-s-check") && check.contains("/check.txt"), "{calls}");
    assert!(array.contains("--array=0-1%7"), "three runs, two per task: {calls}");
    assert!(array.contains("--dependency=afterok:1 --kill-on-invalid-dep=yes"), "{calls}");
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let counts =
        ["planned", "done", "running", "queued", "failed", "pending"].map(|key| status[key].as_u64());
    assert_eq!(counts, [3, 3, 0, 0, 0, 0].map(Some), "{status}");
    let run = &status["runs"][0];
    assert_eq!(
        (run["state"].as_str(), &run["epoch"], &run["epochs"]),
        (Some("done"), &4.into(), &4.into()),
        "{run}"
    );
    assert!(
        run["engine_id"].is_null() && run["id"].as_str().unwrap().starts_with("epo-SafetyPointGoal1"),
        "{run}"
    );
    let on_slurm = hashes(&site.out());
    assert_eq!(on_slurm, site.local());
    assert_eq!(on_slurm.len(), 3);
    // nothing is left to submit
    assert_eq!(code(&site.epo(&["--on", "slurm"])), 0);
    assert_eq!(site.calls(), calls);
}

/// Fails if the array starts although the check failed, or if the reason stays in a log.
#[test]
fn a_node_without_the_library_is_found_before_the_array_starts() {
    let site = Site::with_slurm("");
    let got = site.command(&["--on", "slurm"]).env("MUJOCO_LIB_DIR", "/no/such/folder").output().unwrap();
    let said = text(&got.stderr);
    assert_eq!(code(&got), 69, "{said}");
    for part in
        ["no run was started", "node n1", "MuJoCo library cannot be opened", "/no/such/folder", "check.txt"]
    {
        assert!(said.contains(part), "“{said}” does not say “{part}”");
    }
    assert!(!site.out().join("runs").exists(), "a run was started");
    assert_eq!(code(&site.epo(&["--on", "slurm"])), 0, "with the library the same command continues");
}

/// Fails if a task on a bad node marks its run as failed, or if the node is used again.
#[test]
fn a_bad_node_costs_no_run_and_is_avoided() {
    let site = Site::with_slurm("");
    // the first array finds no library, although the check did
    let broken = "[ -n \"$last\" ] && [ ! -f \"$dir/once\" ] && { export MUJOCO_LIB_DIR=/no/such/folder; touch \"$dir/once\"; }\n";
    let sbatch = SBATCH.replace("(\n    while", &format!("{broken}(\n    while")).replace("touch", ": >");
    fs::write(site.bin().join("sbatch"), sbatch).unwrap();
    let got = site.epo(&["--on", "slurm"]);
    assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
    assert!(site.out().join("slurm/bad-nodes/n1").exists());
    let calls = site.calls();
    assert!(calls.lines().last().unwrap().contains("--exclude=n1"), "{calls}");
    assert_eq!(hashes(&site.out()).len(), 3);
}

#[test]
fn a_changed_sweep_file_is_noticed_while_it_runs() {
    let site = Site::with_slurm("");
    // tasks stay in the queue
    let sbatch = SBATCH.replace("(\n    while", "(\n exit\n while");
    fs::write(site.bin().join("sbatch"), sbatch).unwrap();
    let got = site.epo(&["--on", "slurm", "--detach"]);
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    assert!(text(&got.stderr).contains("--cancel ends them"), "{}", text(&got.stderr));
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    assert_eq!((&status["queued"], &status["runs"][2]["engine_id"]), (&3.into(), &"2_2".into()), "{status}");
    let file =
        fs::read_to_string(site.dir.path().join("s.toml")).unwrap().replace("[0, 1, 2]", "[1, 2, 3, 4]");
    fs::write(site.dir.path().join("s.toml"), file).unwrap();
    let (_, status) = site.json(&["--on", "slurm", "--status"]);
    let counts = ["planned", "queued", "pending", "not_in_plan"].map(|key| status[key].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 2, 1], "{status}");
    let table = text(&site.epo(&["--on", "slurm", "--status"]).stdout);
    assert!(table.contains("1 further run in the queue that the sweep file does not have"), "{table}");
    // only the new runs are submitted
    assert_eq!(code(&site.epo(&["--on", "slurm", "--detach"])), 0);
    assert!(site.calls().lines().last().unwrap().contains("--array=0-1 "), "{}", site.calls());
    let cancelled = text(&site.epo(&["--on", "slurm", "--cancel"]).stdout);
    assert!(cancelled.starts_with("5 runs cancelled"), "{cancelled}");
    assert!(fs::read_dir(site.bin().join("queue")).unwrap().next().is_none(), "a task is left in the queue");
}

#[test]
fn the_script_is_printed_without_a_cluster_and_can_be_replaced() {
    let site = Site::new("[slurm]\ntime = \"4:00:00\"\nsetup = \"module load gcc\"\n");
    let args = ["--on", "slurm", "--print-script", "--partition", "big", "--sbatch=--qos=high"];
    let script = text(&site.epo(&args).stdout);
    for line in [
        "#!/bin/bash",
        "#SBATCH --time=4:00:00",
        "#SBATCH --partition=big",
        "#SBATCH --qos=high",
        "module load gcc",
    ] {
        assert!(script.lines().any(|l| l == line), "no line `{line}` in\n{script}");
    }
    assert!(script.contains("# sbatch --array=0-2 --output="), "{script}");
    assert!(!site.out().exists(), "something was written");
    let site = Site::with_slurm("");
    let own = script.replace("module load gcc", "echo rules of the site");
    fs::write(site.dir.path().join("own.sh"), own).unwrap();
    let got = site.epo(&["--on", "slurm", "--script", "own.sh"]);
    assert_eq!(code(&got), 0, "{}", text(&got.stderr));
    let log = fs::read_to_string(site.out().join("slurm/0001/log/2.txt")).unwrap();
    assert!(log.contains("rules of the site") && log.contains("1 of 1 done"), "{log}");
}

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
    site.refuses(&["--cpus", "2"], 2, &["`--on slurm` or `--on ray`"]);
    site.write_file("[slurm]\ntiem = \"1:00\"\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.tiem`; did you mean `slurm.time`?"]);
    site.write_file("[slurm]\nzzz = 1\n");
    site.refuses(&["--on", "slurm"], 2, &["there is no `slurm.zzz`; the keys of `[slurm]` are ", ", time"]);
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

/// Writes a module `ray` for Python into the folder, and returns the folder.
fn fake_ray(site: &Site, text: &str) -> PathBuf {
    let modules = site.dir.path().join("modules");
    fs::create_dir_all(modules.join("ray")).unwrap();
    fs::write(modules.join("ray/__init__.py"), text).unwrap();
    modules
}

#[test]
fn without_ray_its_cluster_or_its_storage_the_message_says_so() {
    let site = Site::new("[ray]\npython = \"/no/such/python\"\n");
    site.refuses(&["--on", "ray"], 69, &["there is no `/no/such/python`", "a Python with the package ray"]);
    site.write_file("");
    let said = |modules: &Path, args: &[&str], address: Option<&str>| {
        let mut command = site.command(&[&["--on", "ray"], args].concat());
        command.env("PYTHONPATH", modules);
        address.map(|address| command.env("RAY_ADDRESS", address));
        let got = command.output().unwrap();
        (code(&got), text(&got.stderr))
    };
    let none = fake_ray(&site, "raise ImportError('no ray here')\n");
    let (exit, message) = said(&none, &[], None);
    assert!(
        exit == 69 && message.contains("this Python has no Ray") && message.contains("pip install ray"),
        "{message}"
    );
    let ray = fake_ray(&site, "def init(**_):\n    raise ConnectionError('nobody home')\n");
    let (exit, message) = said(&ray, &[], Some("127.0.0.1:1"));
    assert!(exit == 69 && message.contains("no Ray cluster answers at 127.0.0.1:1"), "{message}");
    let (exit, message) = said(&ray, &[], None);
    assert!(
        exit == 69 && message.contains("set RAY_ADDRESS") && message.contains("nobody home"),
        "{message}"
    );
    let (exit, message) = said(&ray, &["--storage", "/proc/epo"], None);
    assert!(exit == 74 && message.contains("the storage /proc/epo cannot be written"), "{message}");
    let (exit, message) = said(&ray, &["--storage", "no-such-protocol://x"], None);
    assert!((exit == 69 || exit == 74) && message.contains("no-such-protocol://x"), "{message}");
}

/// Fails if a run that was interrupted on a node is lost or restarted, if its folder does not arrive from the storage,
/// or if something is left in the storage.
#[test]
fn runs_of_ray_are_those_of_a_local_sweep_with_and_without_a_storage() {
    let site = Site::new("");
    let file = fs::read_to_string(site.dir.path().join("s.toml")).unwrap();
    // long enough to be interrupted
    let file = file.replace("run.steps = 800", "run.steps = 8000").replace("[0, 1, 2]", "[0, 1]");
    fs::write(site.dir.path().join("s.toml"), file + "[ray]\nsync = 1\n").unwrap();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let want = site.local();
    for storage in [None, Some("storage")] {
        let out = if storage.is_some() { "far" } else { "near" };
        let mut command = site.command(&["--on", "ray", "--quiet", "--json", "--out", out]);
        command.args(storage.iter().flat_map(|path| ["--storage", path]));
        command.env("PYTHONPATH", &modules).env("FAKE_RAY_STOP", "0.8");
        let got = command.output().unwrap();
        assert_eq!(code(&got), 0, "{}{}", text(&got.stdout), text(&got.stderr));
        let out = site.dir.path().join(out);
        assert_eq!(hashes(&out), want, "storage: {storage:?}");
        for (run, _) in &want {
            let rows =
                fs::read_to_string(out.join("runs/EPO-{SafetyPointGoal1-v0}").join(run).join("progress.csv"));
            assert_eq!(rows.unwrap().lines().count(), 41, "the header and 40 epochs, each once");
            assert!(out.join("journal").join(run).join("done.json").is_file());
        }
        let again =
            site.command(&["--on", "ray", "--quiet", "--out", out.to_str().unwrap()]).output().unwrap();
        assert_eq!(code(&again), 0, "nothing is left to do, so no Ray is needed: {}", text(&again.stderr));
    }
    let left: Vec<_> = fs::read_dir(site.dir.path().join("storage"))
        .unwrap()
        .flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
