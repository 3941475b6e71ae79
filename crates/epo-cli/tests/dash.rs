//! Claim: `epo dash` prints its address, takes another port if its own is in use, and lets no other machine in by mistake.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

struct Dash(Child);

impl Drop for Dash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_epo"));
    command.arg("dash").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the answer to a request for `path`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts the dashboard and returns it with its address.
fn start(arguments: &[&str]) -> (Dash, String) {
    let mut dash = Dash(command(arguments).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(dash.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (dash, line.trim().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned())
}

/// This test fails if the dashboard makes no replays, or another episode than the one in the address.
#[test]
fn an_episode_of_training_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let set =
        "train.envs=2 train.steps_per_epoch=2000 train.passes=1 train.hidden=[8] train.final_eval_episodes=0";
    let mut train = Command::new(env!("CARGO_BIN_EXE_epo"));
    train.args(["train", "SafetyPointGoal1-v0", "--quiet", "--steps", "2000", "--runs", folder]);
    train.args(set.split(' ').flat_map(|set| ["--set", set]));
    assert!(train.output().unwrap().status.success());

    let (_dash, address) = start(&[folder, "--port", "0"]);
    // runs are read after the address is printed
    let id = (0..100).find_map(|_| {
        let answer = get(&address, "/api/overview");
        let overview: serde_json::Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1.trim()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        overview["runs"][0]["id"].as_str().map(str::to_owned)
    });
    let id = id.unwrap();
    let answer = get(&address, &format!("/replay?run={id}&episode=2"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{}", &answer[..answer.len().min(500)]);
    assert!(answer.contains("exactly the actions of training"), "the last epoch is replayed exactly");
    let missing = get(&address, &format!("/replay?run={id}&episode=3"));
    assert!(
        missing.starts_with("HTTP/1.1 404") && missing.ends_with("The run has no such episode."),
        "{missing}"
    );
}

/// This test fails if the address does not answer, or if a port in use ends the command or is not mentioned.
#[test]
fn the_printed_address_answers_also_if_the_port_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = dir.path().to_str().unwrap();
    let (mut dash, address) = start(&[folder, "--port", &port.to_string()]);
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(&format!(":{port}")), "{address}");
    let answer = get(&address, "/api/overview");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"runs\":[]"), "{answer}");
    let mut said = String::new();
    BufReader::new(dash.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said.trim(), format!("note: port {port} is in use, so another one is taken"));
}

#[test]
fn another_address_needs_a_token() {
    for (arguments, why) in [
        (&["--bind", "0.0.0.0"][..], "--bind 0.0.0.0 needs a token"),
        (&["--bind", "::1"], "--bind ::1 needs a token"),
        (&["--bind", "127.0.0.2"], "--bind 127.0.0.2 needs a token"),
        (&["--bind", "0.0.0.0", "--token", "a b"], "letters, digits"),
        (&["--bind", "nowhere"], "invalid"),
        (&["--port", "70000"], "70000"),
    ] {
        let output = command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
