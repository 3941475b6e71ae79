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

/// This test fails if the address does not answer, or if a port in use ends the command or is not mentioned.
#[test]
fn the_printed_address_answers_also_if_the_port_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = dir.path().to_str().unwrap();
    let mut dash = Dash(command(&[folder, "--port", &port.to_string()]).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(dash.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(&format!(":{port}")), "{line}");

    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /api/overview HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"runs\":[]"), "{answer}");
    let mut said = String::new();
    BufReader::new(dash.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said.trim(), format!("note: port {port} is in use, so another one is taken"));
}

#[test]
fn another_address_needs_a_token() {
    for (arguments, why) in [
        (&["--bind", "0.0.0.0"][..], "a token is needed"),
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
