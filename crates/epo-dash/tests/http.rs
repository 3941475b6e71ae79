//! Claim: whatever a client sends, the dashboard shows only the content of the run folders, and only to its own
//! user.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use epo_dash::{Dashboard, DashboardError, Episode, Options, Replays, routes};
use epo_report::policies::{self, EpochPlace, EpochPolicy, Sizes};
use serde_json::Value;
use tempfile::TempDir;

const HEADER: &str = "Metrics/EpRet,Metrics/EpCost,TotalEnvSteps,Time/Total,Time/FPS,Penalty/Mu";

struct Pages;

impl Replays for Pages {
    fn replay(&self, run: &Path, episode: Option<&Episode>) -> Result<String, String> {
        let Some(Episode { row, cost, .. }) = episode else { return Ok("the costliest".into()) };
        Ok(format!("<script>replay of {} row {row} cost {cost}</script>", run.display()))
    }

    fn content_security_policy(&self) -> String {
        "default-src 'none'; script-src 'sha256-x'".into()
    }
}

struct Server {
    address: SocketAddr,
    _dir: TempDir,
    runs: PathBuf,
}

/// Starts a dashboard on an empty folder `runs` in a new folder.
fn start() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().canonicalize().unwrap().join("runs");
    fs::create_dir(&runs).unwrap();
    let address = serve(&runs, None);
    Server { address, _dir: dir, runs }
}

fn serve(runs: &Path, token: Option<&str>) -> SocketAddr {
    let options = Options {
        runs: vec![runs.to_owned()],
        port: 0,
        token: token.map(str::to_owned),
        ..Options::default()
    };
    let dashboard = Dashboard::bind(&options, Some(Arc::new(Pages))).unwrap();
    let url = dashboard.url();
    std::thread::spawn(move || dashboard.serve());
    url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap()
}

/// Writes files into a new folder that appears with all of them at once, so that the server never sees half of
/// a run.
fn appear(dir: &Path, files: &[(&str, String)]) {
    let made = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(made.path().join(name), text).unwrap();
    }
    fs::create_dir_all(dir.parent().unwrap()).unwrap();
    match fs::rename(made.path(), dir) {
        Ok(()) => drop(made.keep()),
        // the folder is there already, and its files are replaced one by one
        Err(_) => files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap()),
    }
}

fn write_run(runs: &Path, name: &str, algo: &str, seed: u64, rows: &str) -> PathBuf {
    let dir = runs.join(name);
    let config =
        format!("[run]\ntask = \"Task1\"\nalgo = \"{algo}\"\nseed = {seed}\nlimit = 25.0\nsteps = 1000\n");
    appear(&dir, &[("config.toml", config), ("progress.csv", format!("{HEADER}\n{rows}"))]);
    dir
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {}", self.status, self.text()))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).next()
    }
}

/// Sends these bytes and returns the answer; `None` if the connection is closed without one.
fn send(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).ok()?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).ok();
    let end = all.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head, body: all[end + 4..].to_vec() })
}

fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    (text + "\r\n").into_bytes()
}

fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, &request("GET", path, &[("Host", &address.to_string())])).unwrap()
}

/// Asks until `wanted` holds, for at most ten seconds. Returns the answer and the time it took.
fn wait_for(address: SocketAddr, path: &str, wanted: impl Fn(&Value) -> bool) -> (Value, Duration) {
    let begun = Instant::now();
    loop {
        let answer = get(address, path).json();
        if wanted(&answer) {
            return (answer, begun.elapsed());
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "not within ten seconds: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn new_rows_and_runs_come_and_deleted_runs_go() {
    let server = start();
    let (empty, _) = wait_for(server.address, "/api/overview", |o| o["all"] == 0);
    assert_eq!(empty["tasks"], Value::Array(Vec::new()));
    let one = write_run(&server.runs, "EPO-{Task1}/a", "epo", 0, "1,30,100,1,100,0.5\n2,20,200,2,1");
    write_run(&server.runs, "EPO-{Task1}/b", "epo", 1, "3,10,100,1,100,0.7\n");
    write_run(&server.runs, "PPO-{Task1}/c", "ppo", 0, "5,50,100,1,100,\n5,50,1000,2,100,\n");
    let (all, _) = wait_for(server.address, "/api/overview", |o| {
        o["total"] == 3
            && o["loading"] == 0
            && o["runs"].as_array().unwrap().iter().all(|r| r["ret"].is_number())
    });
    let groups = all["tasks"][0]["groups"].as_array().unwrap();
    let labels: Vec<_> =
        groups.iter().map(|g| (g["label"].as_str().unwrap(), g["n"].as_u64().unwrap())).collect();
    assert_eq!(labels, [("EPO", 2), ("PPO", 1)]);
    assert_eq!(
        (groups[0]["ret"]["mean"].as_f64(), groups[0]["cost"]["mean"].as_f64()),
        (Some(2.0), Some(20.0))
    );
    assert_eq!(groups[0]["feasible"]["mean"], 0.5);
    let run = |all: &Value, name: &str| {
        all["runs"].as_array().unwrap().iter().find(|r| r["name"].as_str().unwrap().ends_with(name)).cloned()
    };
    assert_eq!(run(&all, "a").unwrap()["epochs"], 1, "the half-written row waits");
    assert_eq!(run(&all, "c").unwrap()["state"], "done");
    let id = run(&all, "a").unwrap()["id"].as_str().unwrap().to_owned();

    // the row is completed: shown within a second, and only that run is sent
    let version = all["version"].as_u64().unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(one.join("progress.csv")).unwrap();
    file.write_all(b"00,0.4\n").unwrap();
    let (new, took) = wait_for(server.address, &format!("/api/overview?since={version}"), |o| {
        o["runs"].as_array().unwrap().iter().any(|r| r["epochs"] == 2)
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(new["runs"].as_array().unwrap().len(), 1);
    let curves = get(server.address, "/api/curves?task=Task1&y=ret,mu&band=range").json();
    let epo = &curves["groups"][0]["curves"];
    assert_eq!(epo["ret"]["x"].to_string(), "[100.0,200.0]");
    assert_eq!(epo["ret"]["mean"].to_string(), "[2.0,2.0]");
    assert_eq!(
        (epo["ret"]["n"].to_string(), epo["ret"]["lo"].to_string()),
        ("[2,1]".into(), "[1.0,null]".into())
    );
    assert_eq!(curves["groups"][1]["curves"].get("mu"), None, "a quantity that no run has");

    let version = new["version"].as_u64().unwrap();
    fs::remove_dir_all(&one).unwrap();
    let (gone, _) =
        wait_for(server.address, &format!("/api/overview?since={version}"), |o| o["gone"][0] == id.as_str());
    assert_eq!(gone["all"], 2);
    let missing = get(server.address, &format!("/api/run?run={id}"));
    assert_eq!((missing.status, missing.text().contains("deleted")), (404, true));
}

/// This test fails if folders of OmniSafe 0.5.0 are not found, or if their task, limit, length or rows are misread.
#[test]
fn folders_of_omnisafe_are_shown_while_they_train() {
    let server = start();
    let config = |algo: &str, seed: u64| {
        format!(
            r#"{{"seed": {seed}, "env_id": "Task1", "algo": "{algo}", "exp_name": "{algo}-{{Task1}}",
            "train_cfgs": {{"total_steps": 40000, "epochs": 2}}, "algo_cfgs": {{"steps_per_epoch": 20000, "clip": 0.2}},
            "model_cfgs": {{"std_range": [0.5, 0.1]}}, "lagrange_cfgs": {{"cost_limit": 20.0, "lambda_lr": 0.035}}}}"#
        )
    };
    let header = "Metrics/EpRet,Metrics/EpCost,Metrics/EpLen,Train/Epoch,TotalEnvSteps,Time/Total,Time/FPS,\
                  Metrics/LagrangeMultiplier\r\n";
    let first = "-0.25,76.25,1000.0,0.0,20000.0,193.5,103.5,0.036\r\n";
    let last = "2.0,50.0,1000.0,1.0,40000.0,386.5,103.5,0.05\r\n";
    let write = |seed: u64, rows: &str| {
        let dir = server.runs.join(format!("PPOLag-{{Task1}}/seed-00{seed}-2026-01-01-00-00-00"));
        let files = [
            ("config.json", config("PPOLag", seed).to_string()),
            ("progress.csv", format!("{header}{rows}")),
        ];
        appear(&dir, &files);
        fs::create_dir_all(dir.join("torch_save")).unwrap();
        dir
    };
    let training = write(0, &format!("{first}{}", &last[..9]));
    write(1, &format!("{first}{last}"));
    write_run(&server.runs, "EPO-{Task1}/a", "epo", 0, "1,30,20000,1,100,0.5\n");
    let ready = |o: &Value| {
        o["loading"] == 0 && o["total"] == 3 && o["runs"].to_string().matches("\"epochs\":").count() == 3
    };
    let (all, _) = wait_for(server.address, "/api/overview", ready);
    let seed = |all: &Value, name: &str| {
        let runs = all["runs"].as_array().unwrap();
        runs.iter().find(|r| r["name"].as_str().unwrap().contains(name)).cloned()
    };
    let (open, done) = (seed(&all, "seed-000").unwrap(), seed(&all, "seed-001").unwrap());
    assert_eq!((&open["epochs"], &done["epochs"]), (&1.into(), &2.into()), "the half-written row waits");
    assert_eq!((&open["state"], &done["state"]), (&"training".into(), &"done".into()));
    assert_eq!((done["limit"].as_f64(), done["seed"].as_u64()), (Some(20.0), Some(1)));
    let groups = all["tasks"][0]["groups"].as_array().unwrap();
    let labels: Vec<_> =
        groups.iter().map(|g| (g["label"].as_str().unwrap(), g["n"].as_u64().unwrap())).collect();
    assert_eq!(labels.len(), 2, "both programs on one task: {labels:?}");
    assert!(labels.iter().any(|(label, n)| label.contains("PPOLag") && *n == 2), "{labels:?}");

    let mut file = fs::OpenOptions::new().append(true).open(training.join("progress.csv")).unwrap();
    file.write_all(&last.as_bytes()[9..]).unwrap();
    let both = |o: &Value| seed(o, "seed-000").is_some_and(|r| r["epochs"] == 2);
    let (all, _) = wait_for(server.address, "/api/overview", both);
    assert_eq!(seed(&all, "seed-000").unwrap()["ret"].as_f64(), Some(2.0));
}

#[test]
fn an_answer_that_is_known_is_not_sent_again() {
    let server = start();
    write_run(&server.runs, "a", "epo", 0, "1,30,1000,1,100,0.5\n");
    wait_for(server.address, "/api/overview", |o| o["total"] == 1 && o["loading"] == 0);
    std::thread::sleep(Duration::from_millis(1200));
    for path in
        ["/api/overview?since=0", "/api/curves?task=Task1&y=ret", "/api/settings?task=Task1", "/app.js"]
    {
        let first = get(server.address, path);
        let etag = first.header("etag").unwrap_or_else(|| panic!("{path}: {}", first.head)).to_owned();
        let host = server.address.to_string();
        let again = send(server.address, &request("GET", path, &[("Host", &host), ("If-None-Match", &etag)]))
            .unwrap();
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
    }
}

#[test]
fn filters_choose_runs() {
    let server = start();
    for (name, algo, seed) in [("x/a", "epo", 0), ("x/b", "epo", 1), ("y/c", "ppo", 0)] {
        write_run(&server.runs, name, algo, seed, "1,30,1000,1,100,0.5\n");
    }
    wait_for(server.address, "/api/overview", |o| o["total"] == 3 && o["loading"] == 0);
    for (query, names) in [
        ("", "x/a x/b y/c"),
        ("epo", "x/a x/b"),
        ("-epo", "y/c"),
        ("seed=0", "x/a y/c"),
        ("-seed=0", "x/b"),
        ("run.algo=ppo", "y/c"),
        ("state=done+epo", "x/a x/b"),
        ("X%2F", "x/a x/b"),
        ("state=training", ""),
        ("nothing", ""),
    ] {
        let got = get(server.address, &format!("/api/overview?q={query}")).json();
        let mut shown: Vec<_> =
            got["runs"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        shown.sort_unstable();
        assert_eq!(shown.join(" "), names, "{query}");
        let csv = get(server.address, &format!("/api/runs.csv?q={query}")).text();
        assert_eq!(csv.lines().count() - 1, shown.len(), "{query}: {csv}");
    }
}

#[test]
fn episodes_of_an_epoch_are_listed_and_replayed() {
    let server = start();
    let dir = write_run(&server.runs, "a", "epo", 3, "1,30,100,3600,100,0.5\n1,30,200,7200,100,0.5\n");
    let rows =
        "step,env,return,cost,length\n50,0,1,5,50\n100,1,1,7,50\n150,0,2,1,50\n200,1,2,9,50\n200,2,2,4,50\n";
    fs::write(dir.join("episodes.csv"), rows).unwrap();
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 1 && o["loading"] == 0);
    let (run, group) = (&all["runs"][0]["id"], &all["tasks"][0]["groups"][0]["id"]);
    let (run, group) = (run.as_str().unwrap(), group.as_str().unwrap());
    for address in
        [format!("group={group}&steps=150"), format!("run={run}&steps=200"), format!("run={run}&hours=1.5")]
    {
        // the server may have seen the folder before all of its files were written
        let address = format!("/api/episodes?{address}");
        let (got, _) = wait_for(server.address, &address, |got| got["episodes"].is_array());
        let costs: Vec<_> =
            got["episodes"].as_array().unwrap().iter().map(|e| e["episode"]["cost"].as_f64()).collect();
        assert_eq!(costs, [Some(9.0), Some(4.0), Some(1.0)], "{address}");
        assert_eq!((&got["epochs"][0], &got["episodes"][0]["seed"]), (&1.into(), &3.into()));
    }
    let page = get(server.address, &format!("/replay?run={run}&episode=4"));
    assert_eq!((page.status, page.text().contains("row 4 cost 9")), (200, true), "{}", page.text());
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("sandbox allow-scripts;") && policy.contains("default-src 'none'"),
        "{policy}"
    );
    for (address, status) in [
        (format!("run={run}&episode=6"), 404),
        (format!("run={run}&episode=0"), 404),
        (format!("run={run}&episode=-1"), 400),
        (format!("run={run}&episode=x"), 400),
        ("run=nothing&episode=0".into(), 404),
        ("episode=0".into(), 400),
    ] {
        assert_eq!(get(server.address, &format!("/replay?{address}")).status, status, "{address}");
    }
}

/// This test fails if a cost of a single epoch disappears from the page or from the exported data.
#[test]
fn a_cost_of_one_epoch_is_in_the_curves() {
    let server = start();
    let rows = |n: usize| -> String {
        (1..=n).map(|i| format!("1,{},{i},1,100,0.5\n", if i == 311 { 99 } else { 1 })).collect()
    };
    write_run(&server.runs, "a", "epo", 0, &rows(625));
    write_run(&server.runs, "b", "ppo", 0, &rows(9000));
    wait_for(server.address, "/api/overview", |o| {
        let epochs = |runs: &Vec<Value>| runs.iter().filter_map(|run| run["epochs"].as_u64()).sum::<u64>();
        o["loading"] == 0 && o["runs"].as_array().map(epochs) == Some(625 + 9000)
    });
    let got = get(server.address, "/api/curves?task=Task1&y=cost&seeds=true").json();
    for (group, most) in [(0, 625), (1, 2048)] {
        let cost = &got["groups"][group]["curves"]["cost"];
        for curve in [&cost["mean"], &cost["seeds"][0]["y"]] {
            let values: Vec<f64> = curve.as_array().unwrap().iter().filter_map(Value::as_f64).collect();
            assert!(values.contains(&99.0) && values.len() <= most, "{}", values.len());
            assert!(group == 1 || values.len() == 625, "every epoch: {}", values.len());
        }
    }
    let csv = get(server.address, "/api/curves.csv?task=Task1&y=cost").text();
    assert!(csv.lines().count() > 1 + 625 + 2048, "all kept rows: {}", csv.lines().count());
}

/// This test fails if the ids of groups, which links contain, change when runs with other settings appear.
#[test]
fn a_group_keeps_its_id_when_another_variant_appears() {
    let server = start();
    let write = |name: &str, seed: u64, clip: f64| {
        let config = format!(
            "[run]\ntask = \"Task1\"\nalgo = \"epo\"\nseed = {seed}\nlimit = 25.0\nsteps = 1000\n[algo]\nclip = {clip}\n"
        );
        let rows = format!("{HEADER}\n1,30,1000,1,100,0.5\n");
        appear(&server.runs.join(name), &[("config.toml", config), ("progress.csv", rows)]);
    };
    write("a", 1, 0.2);
    let (one, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 1 && o["loading"] == 0);
    write("b", 0, 0.2);
    write("c", 0, 0.3);
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 3 && o["loading"] == 0);
    let groups = all["tasks"][0]["groups"].as_array().unwrap();
    assert_eq!(groups.iter().map(|g| g["n"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(one["tasks"][0]["groups"][0]["id"], groups[0]["id"]);
    assert_ne!(groups[0]["id"], groups[1]["id"]);
}

/// This test fails if the page learns of a finished run of a sweep only when something else changes.
#[test]
fn the_progress_of_a_sweep_raises_the_version() {
    let server = start();
    fs::create_dir_all(server.runs.join("mine/runs")).unwrap();
    let journal = server.runs.join("mine/journal/a");
    fs::create_dir_all(&journal).unwrap();
    let (before, _) = wait_for(server.address, "/api/overview", |o| o["sweeps"][0]["open"] == 1);
    fs::write(journal.join("done.json"), "{}").unwrap();
    let (after, _) = wait_for(server.address, "/api/overview", |o| o["sweeps"][0]["done"] == 1);
    assert!(
        after["version"].as_u64() > before["version"].as_u64(),
        "{} {}",
        before["version"],
        after["version"]
    );
}

/// This test fails if a replay is made of files outside the run folder, or of a checkpoint that fills the memory.
#[test]
fn a_run_with_links_or_a_huge_checkpoint_is_not_replayed() {
    let server = start();
    let outside = server.runs.parent().unwrap().join("outside");
    fs::create_dir_all(outside.join("000001")).unwrap();
    for name in ["manifest.json", "000001/manifest.json", "episodes.csv"] {
        fs::write(outside.join(name), "step,env,return,cost,length\n1000,0,1,5,50\n").unwrap();
    }
    let config = "[run]\ntask = \"Task1\"\nalgo = \"epo\"\nseed = 1\nlimit = 1\n";
    fs::write(outside.join("config.toml"), config).unwrap();
    let links = [
        ("a", "checkpoint", ""),
        ("b", "checkpoint/000001", "000001"),
        ("c", "checkpoint/000001/manifest.json", "manifest.json"),
        ("d", "episodes.csv", "episodes.csv"),
        ("e", "config.toml", "config.toml"),
        ("f", "policies.bin", "episodes.csv"),
    ];
    for (run, name, target) in links {
        let link = write_run(&server.runs, run, "epo", 0, "1,30,1000,1,100,0.5\n").join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(outside.join(target), &link).unwrap();
    }
    for run in ["good", "large"] {
        let checkpoint =
            write_run(&server.runs, run, "epo", 0, "1,30,1000,1,100,0.5\n").join("checkpoint/000001");
        fs::create_dir_all(&checkpoint).unwrap();
        fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
        let tensors = fs::File::create(checkpoint.join("tensors.safetensors")).unwrap();
        tensors.set_len(if run == "large" { 1 << 30 } else { 1000 }).unwrap();
    }
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 8 && o["loading"] == 0);
    for run in all["runs"].as_array().unwrap() {
        let answer = get(server.address, &format!("/replay?run={}", run["id"].as_str().unwrap()));
        let want = if run["name"] == "good" { 200 } else { 404 };
        assert_eq!(answer.status, want, "{}: {}", run["name"], answer.text());
        assert_eq!(
            answer.text().contains("a checkpoint has 1073741826 bytes"),
            run["name"] == "large",
            "{}",
            answer.text()
        );
    }
}

/// This test fails if the list of episodes ignores the filter, or says of the wrong ones that their replay is exact.
#[test]
fn episodes_obey_the_filter_and_say_whether_their_replay_is_exact() {
    let server = start();
    for seed in 0..2 {
        let config = format!(
            "[run]\ntask = \"Task1\"\nalgo = \"epo\"\nseed = {seed}\nlimit = 25.0\nsteps = 1000\n\
             [train]\nsteps_per_epoch = 100\n"
        );
        let rows = format!("{HEADER}\n1,30,100,1,100,0.5\n1,30,200,2,100,0.5\n");
        let episodes = "step,env,return,cost,length\n100,0,1,5,50\n101,0,1,6,50\n200,0,2,7,50\n".to_owned();
        let dir = server.runs.join(format!("s{seed}"));
        appear(&dir, &[("config.toml", config), ("progress.csv", rows), ("episodes.csv", episodes)]);
        fs::create_dir_all(dir.join("checkpoint/000001")).unwrap();
        fs::create_dir_all(dir.join("checkpoint/000002")).unwrap();
        let sizes = Sizes { envs: 1, observations: 1, parameters: 50 };
        let (mut bytes, mut record) = (sizes.header().to_vec(), Vec::new());
        for epoch in 0..2 {
            let place = EpochPlace { epoch, begin: 100 * epoch, end: 100 * epoch + 100, position: 0 };
            EpochPolicy { place, seen: 0, mean: &[0.0][..], m2: &[0.0], policy: &[0.5; 50][..] }
                .write(&mut record);
            bytes.extend(&record);
        }
        fs::write(dir.join(policies::FILE), &bytes[..bytes.len() - seed as usize]).unwrap();
    }
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 2 && o["loading"] == 0);
    let group = all["tasks"][0]["groups"][0]["id"].as_str().unwrap();
    let list = |rest: &str| {
        let got = get(server.address, &format!("/api/episodes?group={group}&{rest}")).json();
        let rows = got["episodes"].as_array().unwrap().clone();
        let of = |e: &Value| (e["seed"].as_u64().unwrap(), e["actions"].as_str().unwrap().to_owned());
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let of = |seed: u64, actions: &str| (seed, actions.to_owned());
    let (checkpoint, recorded, policy) = ("checkpoint", "recorded", "policy");
    let both = [of(0, checkpoint), of(1, checkpoint), of(0, checkpoint), of(1, checkpoint)];
    assert_eq!(list("steps=200"), both);
    assert_eq!(list("steps=200&q=seed=1"), both[..2].iter().map(|_| of(1, checkpoint)).collect::<Vec<_>>());
    assert_eq!(list("steps=100"), [of(0, recorded), of(1, recorded)], "no checkpoint has the policy");
    for seed in 0..2 {
        fs::remove_dir_all(server.runs.join(format!("s{seed}/checkpoint"))).unwrap();
    }
    // the file of seed 1 ends within its second record; the same question would get the answer that is kept
    assert_eq!(list("steps=199"), [of(0, recorded), of(1, policy), of(0, recorded), of(1, policy)]);
}

#[test]
fn the_printed_address_is_one_that_other_machines_can_use() {
    let open =
        Options { bind: "0.0.0.0".parse().unwrap(), port: 0, token: Some("x".into()), ..Options::default() };
    let url = Dashboard::bind(&open, None).unwrap().url();
    assert!(!url.contains("//0.0.0.0"), "{url}");
}

/// Headers that a browser sends if a user clicks on a link on another site.
fn link() -> [(&'static str, String); 3] {
    let headers =
        [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    headers.map(|(name, value)| (name, value.to_owned()))
}

/// This test fails if a route is not checked, or if the check leaves out one of the headers.
#[test]
fn foreign_hosts_and_origins_are_refused_on_every_route() {
    let server = start();
    let own = server.address.to_string();
    let port = server.address.port();
    let elsewhere = format!("evil.example:{port}");
    let cases: Vec<Vec<(&str, String)>> = vec![
        vec![("Host", elsewhere.clone())],
        vec![("Host", "evil.example".into())],
        vec![("Host", format!("127.0.0.1:{}", port ^ 1))],
        vec![("Host", format!("127.0.0.1.evil.example:{port}"))],
        vec![("Host", format!("192.168.1.1:{port}"))],
        vec![],
        vec![("Host", own.clone()), ("Host", elsewhere.clone())],
        vec![("Host", own.clone()), ("Origin", "http://evil.example".into())],
        vec![("Host", own.clone()), ("Origin", "null".into())],
        vec![("Host", own.clone()), ("Origin", format!("https://{own}"))],
        vec![("Host", own.clone()), ("Sec-Fetch-Site", "cross-site".into())],
        vec![("Host", own.clone()), ("Sec-Fetch-Site", "same-site".into())],
        [("Host", elsewhere.clone())].into_iter().chain(link()).collect(),
        [("Host", own.clone()), ("Origin", "http://evil.example".into())].into_iter().chain(link()).collect(),
    ];
    let all = routes();
    assert!(all.len() > 12, "{all:?}");
    for path in all.iter().copied().chain(["/nothing", "/.."]) {
        for case in &cases {
            let headers: Vec<(&str, &str)> = case.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let answer = send(server.address, &request("GET", path, &headers)).unwrap();
            assert!(matches!(answer.status, 400 | 403), "{path} {case:?}: {}", answer.status);
            assert!(answer.body.len() < 200, "{path} {case:?}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let answer = send(server.address, &request(method, path, &[("Host", &own)])).unwrap();
            assert_eq!(answer.status, 405, "{method} {path}");
        }
        // a link on another page may open the page itself
        let linked: Vec<_> = [("Host", own.clone())].into_iter().chain(link()).collect();
        let linked: Vec<_> = linked.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = send(server.address, &request("GET", path, &linked)).unwrap();
        assert_eq!(answer.status, if path == "/" { 200 } else { 403 }, "{path}");
        let answer = get(server.address, path);
        assert_eq!(answer.header("access-control-allow-origin"), None);
        let policy =
            answer.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {}", answer.head));
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn with_a_token_nothing_is_shown_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), Some("s3cret"));
    let host = address.to_string();
    for path in routes() {
        let answer = send(address, &request("GET", path, &[("Host", &host)])).unwrap();
        assert_eq!(answer.status, 401, "{path}");
        let cookie = ("Cookie", "epo_dash_token=s3cret");
        let answer = send(address, &request("GET", path, &[("Host", &host), cookie])).unwrap();
        assert_ne!(answer.status, 401, "{path}");
    }
    let answer = get(address, "/?token=s3cret");
    assert_eq!(answer.status, 200);
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("epo_dash_token=s3cret; HttpOnly; SameSite=Strict"), "{cookie}");
    assert_eq!(get(address, "/?token=S3cret").status, 401);

    for other in ["0.0.0.0", "::1", "127.0.0.2"] {
        let open = Options { bind: other.parse().unwrap(), port: 0, ..Options::default() };
        assert!(matches!(Dashboard::bind(&open, None), Err(DashboardError::NeedsToken(_))), "{other}");
    }
    let bad = Options { token: Some("a&b".into()), port: 0, ..Options::default() };
    assert!(matches!(Dashboard::bind(&bad, None), Err(DashboardError::BadToken)));
}

#[test]
fn a_port_in_use_is_not_a_reason_to_fail() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dashboard = Dashboard::bind(&Options { port, ..Options::default() }, None).unwrap();
    assert_eq!(dashboard.port_in_use(), Some(port));
    assert!(!dashboard.url().contains(&format!(":{port}/")), "{}", dashboard.url());
}

/// Spellings of paths that lead out of a folder on some server.
fn payloads(secret: &Path) -> Vec<String> {
    let secret = secret.display().to_string();
    let mut all = vec![
        secret.clone(),
        format!("file://{secret}"),
        secret.replace('/', "%2f"),
        secret.replace('/', "\\"),
    ];
    let ups = [
        "../",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "%252e%252e%252f",
        "..\\",
        "..%5c",
        "%2e%2e%5c",
        "....//",
        "..;/",
        ".%2e/",
        "..%c0%af",
        "%c0%ae%c0%ae/",
        "..%ef%bc%8f",
        "..%00/",
        "./../",
        "%2e%2e%3b/",
        "..//",
        "/../",
        "..%u2215",
    ];
    let targets =
        ["secret.txt", "outside/secret.txt", "etc/passwd", "outside/config.toml", "secret.txt%00.css"];
    for up in ups {
        for depth in [1, 2, 8] {
            all.extend(targets.iter().map(|target| format!("{}{target}", up.repeat(depth))));
        }
    }
    all.push("a/".repeat(20_000));
    all.push("%00".into());
    all
}

/// This test fails if a route takes a path, or if files of run folders are read through links.
#[test]
fn nothing_outside_the_run_folders_is_reached() {
    const SECRET: &str = "TOP-SECRET-4711";
    let server = start();
    let base = server.runs.parent().unwrap();
    let outside = base.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(base.join("secret.txt"), SECRET).unwrap();
    fs::write(outside.join("secret.txt"), SECRET).unwrap();
    let hidden = format!("[run]\ntask = \"{SECRET}\"\nalgo = \"epo\"\nseed = 1\nlimit = 1\n");
    fs::write(outside.join("config.toml"), hidden).unwrap();
    fs::write(outside.join("progress.csv"), format!("{HEADER}\n1,30,1000,1,100,4711\n")).unwrap();
    // a whole folder, and single files, that are links
    std::os::unix::fs::symlink(&outside, server.runs.join("linked")).unwrap();
    for name in ["config.toml", "progress.csv", "episodes.csv", "eval.json"] {
        let dir = write_run(&server.runs, &format!("link-{name}"), "epo", 0, "1,30,1000,1,100,0.5\n");
        let _ = fs::remove_file(dir.join(name));
        let target = if name == "config.toml" || name == "progress.csv" { name } else { "secret.txt" };
        std::os::unix::fs::symlink(outside.join(target), dir.join(name)).unwrap();
    }
    write_run(&server.runs, "good", "epo", 5, "1,30,1000,1,100,0.5\n");
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 5 && o["loading"] == 0);
    let good =
        all["runs"].as_array().unwrap().iter().find(|r| r["name"] == "good").unwrap()["id"].as_str().unwrap();

    let all = payloads(&base.join("secret.txt"));
    assert!(all.len() >= 300, "{}", all.len());
    let host = server.address.to_string();
    // one connection for many requests, so that the test is quick
    let mut stream = TcpStream::connect(server.address).unwrap();
    let mut ask = |path: &str| {
        let plain = path.replace([' ', '\r', '\n'], "%20");
        let request = format!("GET {plain} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        if stream.write_all(request.as_bytes()).is_err() {
            stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
        }
        let body = read_one(&mut stream);
        if body.is_none() {
            stream = TcpStream::connect(server.address).unwrap();
        }
        let body = body.unwrap_or_default();
        assert!(!body.contains(SECRET), "{path}: {body}");
        assert!(!body.contains("root:x:0:0"), "{path}: {body}");
        assert!(!body.contains("4711.0"), "{path}: {body}");
    };
    for route in routes() {
        for payload in &all {
            ask(&format!("{}/{payload}", route.trim_end_matches('/')));
            if route.starts_with("/api") || route == "/replay" {
                ask(&format!(
                    "{route}?run={payload}&task={payload}&group={payload}&groups={payload}&steps=1&episode=0&q={payload}"
                ));
            }
        }
        ask(&format!("{route}?run={good}&task=Task1&steps=1&episode=0&y=ret,mu"));
        ask(route);
    }
}

/// Reads one answer of a connection that stays open; `None` if the connection was closed.
fn read_one(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    let mut reader = std::io::BufReader::new(stream);
    while !head.ends_with(b"\r\n\r\n") {
        reader.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let length = text.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(String::from_utf8_lossy(&body).into_owned())
}

/// This test fails if slow or silent clients can stop the server.
#[test]
fn a_thousand_idle_and_slow_clients_do_not_stop_it() {
    let server = start();
    let rows: String = (1..=300).map(|i| format!("{i},{i},{i},1,100,0.5\n")).collect();
    for i in 0..50 {
        write_run(&server.runs, &format!("r{i}"), "epo", i, &rows);
    }
    wait_for(server.address, "/api/overview", |o| o["total"] == 50 && o["loading"] == 0);
    let host = server.address.to_string();
    let mut clients = Vec::new();
    for i in 0..1000 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let request = request("GET", "/echarts/index-DlVyZyb_.js", &[("Host", &host)]);
        // a third sends nothing, a third half a request, a third asks for a large file and does not read it
        let part = match i % 3 {
            0 => 0,
            1 => 20,
            _ => request.len(),
        };
        stream.write_all(&request[..part]).unwrap();
        clients.push(stream);
    }
    let begun = Instant::now();
    for path in ["/api/overview", "/api/curves?task=Task1&y=ret,cost&seeds=true", "/style.css"] {
        assert_eq!(get(server.address, path).status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(clients);
    assert_eq!(get(server.address, "/").status, 200);
}

#[test]
fn hostile_names_and_values_are_only_text() {
    let server = start();
    let evil = "<img src=x onerror=alert(1)>";
    let dir = write_run(&server.runs, &format!("{evil}-{{T}}/\u{202e}x"), "epo", 0, "1,30,1000,1,100,0.5\n");
    let config = format!(
        "[run]\ntask = \"\"\"{evil}\"\"\"\nalgo = \"=cmd|calc\"\nseed = 0\nlimit = 25.0\n[algo]\nx = \"\"\"</script>\\u001b[2J\"\"\"\n"
    );
    fs::write(dir.join("config.toml"), config).unwrap();
    let (all, _) = wait_for(server.address, "/api/overview", |o| o["total"] == 1 && o["loading"] == 0);
    assert_eq!(all["tasks"][0]["task"], evil);
    let name = all["runs"][0]["name"].as_str().unwrap();
    assert!(!name.contains('\u{202e}'), "{name}");
    let id = all["runs"][0]["id"].as_str().unwrap();
    let answer = get(server.address, &format!("/api/run?run={id}"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(!answer.text().contains('\u{1b}'));
    let csv = get(server.address, "/api/runs.csv").text();
    assert!(csv.contains(",'=CMD|CALC,"), "a spreadsheet must not run it: {csv}");
}

#[test]
fn bad_questions_are_refused() {
    let server = start();
    for path in [
        "/api/curves",
        "/api/curves?task=T&x=sideways",
        "/api/curves?task=T&band=rubber",
        "/api/curves?task=T&smooth=-1",
        "/api/overview?since=-1",
        "/api/episodes?steps=x",
        "/api/run",
    ] {
        assert_eq!(get(server.address, path).status, 400, "{path}");
    }
    let huge = format!("/api/curves?task=T&y=ret&smooth={}&groups={}", u64::MAX, ",x".repeat(1000));
    assert_eq!(get(server.address, &huge).status, 200);
}
