//! `epo sweep --on ray`, with a small module that stands in for Ray.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::site::{Site, code, hashes, text};

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
    assert!((exit == 69 || exit == 2) && message.contains("no-such-protocol://x"), "{message}");
    assert!(!site.out().exists(), "a refusal leaves nothing behind");
}

/// Fails if the status of a sweep through a storage says that nothing happens: the run folders are on the nodes.
#[test]
fn the_status_of_ray_shows_runs_that_are_on_other_machines() {
    let site = Site::new("");
    site.change_file("run.steps = 800", "run.steps = 24_000");
    site.change_file("[0, 1, 2]", "[0]");
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let mut command = site.command(&["--on", "ray", "--quiet", "--storage", "storage"]);
    let mut waiting = command.env("PYTHONPATH", &modules).stdout(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    loop {
        let (_, status) = site.json(&["--on", "ray", "--status"]);
        if status["running"] == 1 && status["runs"][0]["epoch"].as_u64() >= Some(1) {
            assert!(status["runs"][0]["engine_id"].is_null(), "{status}");
            break;
        }
        let over = waiting.try_wait().unwrap();
        assert!(over.is_none() && begun.elapsed().as_secs() < 60, "{over:?} {status}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(!site.out().join("runs").exists());
    assert!(waiting.wait().unwrap().success());
    let (_, status) = site.json(&["--on", "ray", "--status"]);
    assert_eq!((&status["done"], &status["running"]), (&1.into(), &0.into()), "{status}");
}

/// Fails if Ray starts a run through a storage that a local sweep makes at the same time: its folder would be deleted.
#[test]
fn ray_with_a_storage_waits_for_a_local_sweep() {
    let site = Site::new("");
    site.change_file("run.steps = 800", "run.steps = 8000");
    site.change_file("[0, 1, 2]", "[0]");
    let mut local = site.command(&["--quiet"]).stdout(Stdio::null()).spawn().unwrap();
    while !site.out().join("runs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // there is no Ray, so it would fail if it started the run
    let got = site.epo(&["--on", "ray", "--storage", "storage"]);
    assert!(local.wait().unwrap().success());
    let said = text(&got.stderr);
    assert!(code(&got) == 0 && said.contains("waiting for the runs of another process"), "{said}");
}

/// Fails if the reason why a task on a node ended is lost.
#[test]
fn a_full_disk_of_a_node_of_ray_is_named() {
    let site = Site::new("");
    let program = site.dir.path().join("full");
    let script =
        "#!/bin/sh\ncase \"$*\" in *check*) exit 0;; esac\necho 'error: no space left on device'\nexit 74\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let mut command = site.command(&["--on", "ray", "--command", program.to_str().unwrap()]);
    let got = command.env("PYTHONPATH", &modules).output().unwrap();
    let said = text(&got.stderr);
    assert!(code(&got) == 74 && said.contains("no space left on device"), "{said}");
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

/// Writes a program that is started on the nodes: a shell script that may end, and otherwise becomes `epo`.
fn program(site: &Site, script: &str) -> String {
    let program = site.dir.path().join("program");
    let text = format!("#!/bin/sh\n{script}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_epo"));
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

/// Calls `epo sweep --on ray`.
fn on_ray(site: &Site, args: &[&str]) -> Output {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/fake");
    let mut command = site.command(&[&["--on", "ray"], args].concat());
    command.env("PYTHONPATH", modules).output().unwrap()
}

/// Fails if a node that cannot make the runs ends the sweep although another node can, or gets task after task.
#[test]
fn a_bad_node_of_ray_costs_no_run_and_is_avoided() {
    let site = Site::new("");
    let bad = "[ \"$EPO_NODE\" = aaaaaaaa ] && echo \"$*\" >> taken && echo 'error: node aaaaaaaa cannot make the runs' && exit 69";
    let late = format!("case \"$*\" in *check*) ;; *) {bad};; esac");
    for (script, taken) in [(&*late, 2), (bad, 1)] {
        let got = on_ray(&site, &["--quiet", "--jobs", "2", "--command", &program(&site, script)]);
        let said = text(&got.stderr);
        assert_eq!(code(&got), 0, "{}{said}", text(&got.stdout));
        assert_eq!(
            said.matches("node aaaaaaaa cannot make the runs; this command gives").count(),
            1,
            "{said}"
        );
        let tasks = fs::read_to_string(site.dir.path().join("taken")).unwrap();
        assert!(tasks.lines().count() <= taken, "{tasks}");
        assert_eq!(hashes(&site.out()).len(), 3);
        fs::remove_dir_all(site.out()).unwrap();
        fs::remove_file(site.dir.path().join("taken")).unwrap();
    }
    let all = program(&site, "echo 'error: there is no library' && exit 69");
    let got = on_ray(&site, &["--command", &all]);
    let said = text(&got.stderr);
    assert!(code(&got) == 69 && said.contains("no run was started: there is no library"), "{said}");
}

/// Fails if a run that always loses its task ends the sweep, so that the other runs are never made.
#[test]
fn a_run_of_ray_that_used_up_its_retries_has_failed_and_the_others_go_on() {
    let site = Site::new("");
    let dies = program(&site, "case \"$*\" in *'--task 1 '*) echo x >> starts; kill -KILL $$;; esac");
    let got = on_ray(&site, &["--quiet", "--json", "--retries", "2", "--command", &dies]);
    let summary: Value =
        serde_json::from_slice(&got.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&got.stderr)));
    assert_eq!((code(&got), &summary["done"], &summary["failed"]), (1, &2.into(), &1.into()), "{summary}");
    let run = &summary["runs"][1];
    let message = run["message"].as_str().unwrap();
    let want = "the run has not finished after 3 starts (--retries 2): the run was ended by signal 9 on node aaaaaaaa";
    assert_eq!(message, want);
    assert!(Path::new(run["log"].as_str().unwrap()).exists(), "{run}");
    assert_eq!(fs::read_to_string(site.dir.path().join("starts")).unwrap().lines().count(), 3);
    let got = on_ray(&site, &["--retry-failed"]);
    assert_eq!((code(&got), hashes(&site.out()).len()), (0, 3), "{}", text(&got.stderr));
}

/// Fails if a run that fails before its first checkpoint gets lost on its way through the storage.
#[test]
fn a_run_that_fails_at_once_is_reported_through_a_storage() {
    let site = Site::new("");
    // files of more than a kilobyte cannot be written, so a run fails at its first checkpoint
    let small = program(&site, "case \"$*\" in *check*) ;; *) ulimit -f 2;; esac");
    let got = on_ray(&site, &["--quiet", "--json", "--storage", "storage", "--command", &small]);
    let summary: Value =
        serde_json::from_slice(&got.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&got.stderr)));
    assert_eq!((code(&got), &summary["failed"]), (1, &3.into()), "{summary}");
    let run = &summary["runs"][1];
    assert!(run["message"].as_str().unwrap().contains("cannot write the checkpoint"), "{run}");
    assert!(site.dir.path().join(run["log"].as_str().unwrap()).exists(), "{run}");
    let got = on_ray(&site, &["--storage", "storage", "--retry-failed"]);
    assert_eq!((code(&got), hashes(&site.out()).len()), (0, 3), "{}", text(&got.stderr));
}
