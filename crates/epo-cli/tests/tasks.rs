//! Tests of `epo tasks`, `epo parity` and `epo rollout` through the binary: output, files and errors.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::tempdir;

fn epo(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_epo")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(stdout(output)).unwrap()
}

fn recording(robot: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../epo-tasks/tests/recordings");
    folder.join(format!("Safety{robot}Velocity-v1.npz")).to_str().unwrap().to_owned()
}

/// Writes the recording of the Swimmer with another seed in its description.
fn with_another_seed(folder: &Path) -> String {
    let mut source = zip::ZipArchive::new(fs::File::open(recording("Swimmer")).unwrap()).unwrap();
    let path = folder.join("altered.npz");
    let mut target = zip::ZipWriter::new(fs::File::create(&path).unwrap());
    let utf32 = |text: &str| text.chars().flat_map(|c| (c as u32).to_le_bytes()).collect::<Vec<u8>>();
    let (old, new) = (utf32("\"seed\": 20"), utf32("\"seed\": 21"));
    for i in 0..source.len() {
        let mut member = source.by_index(i).unwrap();
        let (name, mut bytes) = (member.name().unwrap().into_owned(), Vec::new());
        member.read_to_end(&mut bytes).unwrap();
        if name == "meta.npy" {
            let at = bytes.windows(old.len()).position(|w| w == old).unwrap();
            bytes[at..at + new.len()].copy_from_slice(&new);
        }
        target.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        target.write_all(&bytes).unwrap();
    }
    target.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tasks_lists_every_task_with_its_sizes_and_speed_limit() {
    let output = epo(&["tasks", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let listed = json(&output);
    let listed = listed.as_array().unwrap();
    let ids: Vec<_> = listed.iter().map(|task| task["id"].as_str().unwrap()).collect();
    let registered: Vec<_> = epo_tasks::tasks().iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, registered);
    let row = |id: &str| listed.iter().find(|task| task["id"] == id).unwrap();
    let goal = row("SafetyPointGoal1-v0");
    assert_eq!((&goal["obs"], &goal["act"], &goal["max_steps"]), (&60.into(), &2.into(), &1000.into()));
    assert_eq!(goal["cost"], "1 while over a hazard");
    assert!(goal.get("speed_limit").is_none(), "{goal}");
    assert_eq!(goal["physics"], serde_json::json!(["published", "fast"]));
    assert_eq!(row("SafetyHopperVelocity-v0")["speed_limit"], 0.37315);
    assert_eq!(row("SafetyHopperVelocity-v1")["speed_limit"], 0.7402);
}

#[test]
fn the_list_of_tasks_fits_a_terminal_and_describes_reward_and_cost() {
    let output = epo(&["tasks"]);
    let text = stdout(&output);
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(wide.is_empty(), "lines wider than 100 columns: {wide:#?}");
    for task in epo_tasks::tasks() {
        let at = text.lines().position(|line| line.split_whitespace().next() == Some(&task.id)).unwrap();
        let before = text.lines().take(at).collect::<Vec<_>>();
        let reward = before.iter().rev().find(|line| line.starts_with("Reward: ")).unwrap();
        assert_eq!(reward.strip_prefix("Reward: "), Some(task.reward.as_str()), "{}", task.id);
        assert!(text.lines().nth(at).unwrap().ends_with(task.cost.as_str()), "{}", task.id);
    }
    assert!(text.contains("`published`") && text.contains("`fast`"), "the physics are not described");
    let hopper = text.lines().find(|line| line.starts_with("SafetyHopperVelocity-v0")).unwrap();
    assert!(hopper.ends_with("1 while the forward speed is above 0.37315 m/s"), "{hopper}");
}

#[test]
fn parity_reports_the_agreed_keys_and_success() {
    let output = epo(&["parity", "--json", &recording("Swimmer"), &recording("HalfCheetah")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = json(&output);
    assert_eq!(rows.as_array().unwrap().len(), 2);
    let row = rows[0].as_object().unwrap();
    let mut keys: Vec<_> = row.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let want =
        ["env_id", "file", "first_diff_step", "max_cost", "max_obs", "max_qpos", "max_reward", "ok", "steps"];
    assert_eq!(keys, want);
    assert_eq!(
        (&row["file"], &row["env_id"]),
        (&recording("Swimmer").into(), &"SafetySwimmerVelocity-v1".into())
    );
    assert_eq!(
        (&row["ok"], &row["steps"], &row["first_diff_step"]),
        (&true.into(), &60.into(), &Value::Null)
    );
}

#[test]
fn parity_exits_with_3_when_an_episode_does_not_match() {
    let folder = tempdir().unwrap();
    let altered = with_another_seed(folder.path());
    let output = epo(&["parity", "--json", &altered, &recording("Hopper")]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let rows = json(&output);
    assert_eq!((&rows[0]["ok"], &rows[0]["first_diff_step"]), (&false.into(), &0.into()));
    assert_eq!(rows[1]["ok"], true);
    let plain = epo(&["parity", &altered]);
    assert!(stdout(&plain).contains("NO, from step 0"), "{}", stdout(&plain));
}

#[test]
fn parity_names_bad_files_and_still_checks_the_others() {
    let folder = tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = fs::read(recording("Walker2d")).unwrap();
    let truncated = file("truncated.npz", &whole[..whole.len() / 2]);
    let foreign = file("foreign.npz", b"this is not a zip file");
    let empty = file("empty.npz", b"");
    let good = recording("Hopper");
    let output = epo(&["parity", "--json", &truncated, &foreign, &good, &empty]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output).as_array().unwrap().len(), 1, "the valid file must be compared");
    assert_eq!(json(&output)[0]["ok"], true);
    for bad in [&truncated, &foreign, &empty] {
        let line = stderr(&output).lines().find(|line| line.contains(bad.as_str())).unwrap();
        assert!(line.starts_with("error: ") && line.contains("is not a whole .npz file"), "{line}");
    }
    assert!(!stderr(&output).contains("panicked"));

    let missing = folder.path().join("none.npz").to_str().unwrap().to_owned();
    let output = epo(&["parity", &missing]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(74), ""));
    assert!(stderr(&output).contains("none.npz: cannot be read"), "{}", stderr(&output));
    assert_eq!(epo(&["parity"]).status.code(), Some(2), "a call without a file must be refused");
}

#[test]
fn rollout_writes_geoms_and_poses_and_the_seed_determines_the_bytes() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |seed: &str, name: &str| {
        let output =
            epo(&["rollout", "SafetyPointGoal1-v0", "--seed", seed, "--steps", "20", "--out", &path(name)]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""), "{}", stderr(&output));
        fs::read(path(name)).unwrap()
    };
    let one = write("7", "one.json");
    assert_eq!(one, write("7", "two.json"), "the same seed must give the same bytes");
    assert_ne!(one, write("8", "three.json"));
    let rollout: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!((&rollout["format"], &rollout["version"]), (&"epo-rollout".into(), &1.into()));
    assert_eq!((&rollout["task"], &rollout["seed"]), (&"SafetyPointGoal1-v0".into(), &7.into()));
    let (geoms, frames) = (rollout["geoms"].as_array().unwrap(), rollout["frames"].as_array().unwrap());
    assert_eq!(frames.len(), 21, "one frame for the reset and one per step");
    let bodies = frames[0]["poses"].as_array().unwrap().len();
    for geom in geoms {
        assert!(geom["body"].as_u64().unwrap() < bodies as u64, "{geom}");
        for (key, len) in [("size", 3), ("rgba", 4), ("pos", 3), ("quat", 4)] {
            assert_eq!(geom[key].as_array().unwrap().len(), len, "{key} of {geom}");
        }
    }
    assert!(frames.iter().all(|f| f["poses"].as_array().unwrap().len() == bodies));
    assert!(frames.iter().any(|f| f["reward"].as_f64().unwrap() != 0.0));
    assert!((frames[20]["time"].as_f64().unwrap() - 0.4).abs() < 1e-9, "twenty steps of 0.02 s");
    assert_ne!(frames[0]["poses"], frames[20]["poses"], "no body has moved");
    assert_eq!(names(folder.path()), ["one.json", "three.json", "two.json"], "another file was left");
}

fn names(folder: &Path) -> Vec<String> {
    let entry = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(entry).collect();
    names.sort();
    names
}

#[test]
fn rollout_names_the_nearest_task() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("x.json");
    let output = epo(&["rollout", "SafetyPointGaol1-v0", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = "error: unknown task `SafetyPointGaol1-v0`; did you mean `SafetyPointGoal1-v0`?";
    assert!(stderr(&output).starts_with(said), "{}", stderr(&output));
    let output =
        epo(&["rollout", "SafetyPointGoal1-v0", "--seed", "4294967296", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("seed 4294967296 is too large"), "{}", stderr(&output));
    assert!(names(folder.path()).is_empty(), "a file was written");
}

#[test]
fn rollout_leaves_no_file_when_it_cannot_write() {
    let folder = tempdir().unwrap();
    let refused = |out: PathBuf| {
        let args = ["rollout", "SafetySwimmerVelocity-v1", "--steps", "2", "--out", out.to_str().unwrap()];
        let output = epo(&args);
        assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
        assert!(stderr(&output).contains("could not be written"), "{}", stderr(&output));
    };
    refused(folder.path().join("no/such/folder/x.json"));
    // A folder has the name of the file: the temporary file is written, but it cannot be renamed.
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("taken/inside"), "").unwrap();
    refused(folder.path().join("taken"));
    refused(PathBuf::from("/"));
    assert_eq!(names(folder.path()), ["taken"]);
}
