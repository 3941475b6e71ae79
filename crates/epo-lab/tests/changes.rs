//! Claim: changes that someone made to a run folder are noticed when the run is resumed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{config, rows, train, walk};
use epo_lab::train::{ResumeOptions, Trainer};
use epo_lab::{LabError, changes, checkpoint};

const EVENTS: &str = "tb/events.out.tfevents.epo";

/// Makes a run that stopped after three of its six epochs.
fn stopped(dir: &Path) {
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::create(dir, config(&[]), &walk).unwrap();
    let mut seen = 0;
    trainer
        .train(&stop, |_| {
            seen += 1;
            stop.store(seen == 3, Relaxed);
        })
        .unwrap();
}

fn resume(dir: &Path, accept_changes: bool) -> Result<Trainer<'_>, LabError> {
    Trainer::resume(dir, ResumeOptions { accept_changes, ..ResumeOptions::default() }, &walk)
}

/// Replaces a part of a text file of the run.
fn edit(dir: &Path, file: &str, from: &str, to: &str) {
    let text = std::fs::read_to_string(dir.join(file)).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}: {text}");
    std::fs::write(dir.join(file), text.replacen(from, to, 1)).unwrap();
}

/// Returns all files of a folder but the lock, with their content.
fn content(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(content(&path)),
            false if path.ends_with("lock") => {}
            false => found.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

/// Fails if a changed configuration, row, episode or event is not noticed, not named, or changes the folder before it is
/// accepted. Also fails if the run cannot go on afterwards, or if a change has to be accepted twice.
#[test]
fn every_change_is_named_and_must_be_accepted_once() {
    let whole = tempfile::tempdir().unwrap();
    train(whole.path(), config(&[]), &walk).unwrap();
    type Change = fn(&Path);
    let cases: [(&str, Change); 7] = [
        ("config.toml: `train.gamma` is 0.9, but was 0.99 at the checkpoint", |dir| {
            edit(dir, "config.toml", "gamma = 0.99", "gamma = 0.9");
        }),
        ("progress.csv: a row up to the checkpoint was changed", |dir| {
            let text = std::fs::read_to_string(dir.join("progress.csv")).unwrap();
            let row = text.lines().nth(2).unwrap();
            let (first, rest) = row.split_once(',').unwrap();
            edit(
                dir,
                "progress.csv",
                row,
                &format!("{}1,{rest}", if first.is_empty() { "0." } else { first }),
            );
        }),
        ("episodes.csv: a row up to the checkpoint was changed", |dir| {
            let text = std::fs::read_to_string(dir.join("episodes.csv")).unwrap();
            let row = text.lines().nth(1).unwrap().to_owned();
            edit(dir, "episodes.csv", &row, &format!("{row}0"));
        }),
        ("events.out.tfevents.epo: the checksum of a record is wrong", |dir| {
            let mut bytes = std::fs::read(dir.join(EVENTS)).unwrap();
            bytes[60] ^= 1;
            std::fs::write(dir.join(EVENTS), bytes).unwrap();
        }),
        ("events.out.tfevents.epo: the file ends within a record", |dir| {
            let bytes = std::fs::read(dir.join(EVENTS)).unwrap();
            std::fs::write(dir.join(EVENTS), &bytes[..bytes.len() - 10]).unwrap();
        }),
        ("events.out.tfevents.epo: it is missing", |dir| {
            std::fs::remove_dir_all(dir.join("tb")).unwrap();
        }),
        ("events.out.tfevents.epo: an event up to the checkpoint was changed", |dir| {
            // a record that is valid in itself, at the place of another one
            let bytes = std::fs::read(dir.join(EVENTS)).unwrap();
            let length = |at: usize| 16 + usize::from(bytes[at]) + 256 * usize::from(bytes[at + 1]);
            let first = length(0);
            let (one, two) = (length(first), length(first + length(first)));
            let swapped = [
                &bytes[..first],
                &bytes[first + one..first + one + two],
                &bytes[first..first + one],
                &bytes[first + one + two..],
            ];
            std::fs::write(dir.join(EVENTS), swapped.concat()).unwrap();
        }),
    ];
    for (part, change) in cases {
        let dir = tempfile::tempdir().unwrap();
        stopped(dir.path());
        change(dir.path());
        let before = content(dir.path());
        let error = resume(dir.path(), false).unwrap_err();
        assert!(matches!(error, LabError::Run { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(part) && said.contains("--accept-changes"), "{said} does not say {part}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(content(dir.path()) == before, "{part}: a refusal changed the folder");

        let trainer = resume(dir.path(), true).unwrap();
        assert!(trainer.notes().iter().any(|note| note.contains(part)), "{:?}", trainer.notes());
        drop(trainer); // killed before its next checkpoint
        let list = changes::accepted(dir.path()).unwrap();
        assert_eq!((list.len(), list[0].epoch), (1, 3));
        assert!(list[0].changes.iter().any(|change| change.contains(part)), "{list:?}");

        let mut trainer = resume(dir.path(), false).unwrap();
        assert!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap().finished, "{part}");
        drop(trainer);
        let trainer = resume(dir.path(), false).unwrap();
        assert!(trainer.notes().is_empty(), "{part}: {:?}", trainer.notes());
        if part.contains("events") {
            assert_eq!(rows(dir.path()), rows(whole.path()));
            let length = |dir: &Path| std::fs::metadata(dir.join(EVENTS)).unwrap().len();
            assert_eq!(length(dir.path()), length(whole.path()), "the events are written again");
        }
    }
}

/// Fails if something that no result depends on has to be accepted: measured times, threads, spelling, a longer run.
#[test]
fn what_no_result_depends_on_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    let text = std::fs::read_to_string(dir.path().join("progress.csv")).unwrap();
    let row = text.lines().nth(1).unwrap();
    let (rest, _) = row.rsplit_once(',').unwrap(); // Time/FPS
    edit(dir.path(), "progress.csv", row, &format!("{rest},1"));
    edit(dir.path(), "config.toml", "threads = 1", "threads = 2");
    edit(dir.path(), "config.toml", "gamma = 0.99", "gamma = 9.9e-1 # as it was");
    edit(dir.path(), "config.toml", "steps = 1200", "steps = 1400");
    let trainer = resume(dir.path(), false).unwrap();
    assert_eq!(trainer.notes(), ["run.steps is 1400, but was 1200 at the checkpoint"]);
    assert!(!dir.path().join(changes::FILE).exists());
}

/// Fails if a folder of an older version, whose manifests do not cover the record, cannot be resumed.
#[test]
fn a_folder_without_these_hashes_is_resumed() {
    let whole = tempfile::tempdir().unwrap();
    let end = train(whole.path(), config(&[]), &walk).unwrap();
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    let root = dir.path().join("checkpoint");
    let loaded = checkpoint::load(&root, |_, _| Ok(())).unwrap();
    assert!(loaded.covered.is_some());
    std::fs::remove_dir_all(root.join("000003")).unwrap();
    checkpoint::save(&root, 3, &loaded.files, None).unwrap();
    edit(dir.path(), "config.toml", "gamma = 0.99", "gamma = 0.990"); // nothing to compare it with
    let mut trainer = resume(dir.path(), false).unwrap();
    assert!(trainer.notes().is_empty(), "{:?}", trainer.notes());
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), end);
}

/// Fails if the configuration or the hashes in a manifest can be changed without a trace.
#[test]
fn a_manifest_that_was_changed_to_fit_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    edit(dir.path(), "config.toml", "gamma = 0.99", "gamma = 0.9");
    edit(
        dir.path(),
        "checkpoint/000003/manifest.json",
        "\"train.gamma\": \"0.99\"",
        "\"train.gamma\": \"0.9\"",
    );
    let said = resume(dir.path(), false).unwrap_err().to_string();
    assert!(said.contains("`train.gamma` is 0.9, but was 0.99"), "the previous checkpoint knows it: {said}");
}

/// Fails if a checkpoint with tensors of other shapes, an impossible epoch or a foreign record is used.
#[test]
fn a_checkpoint_that_does_not_fit_its_run_is_refused() {
    type Files = std::collections::BTreeMap<String, Vec<u8>>;
    fn change_state(files: &mut Files, from: &str, to: &str) {
        let text = String::from_utf8(files["state.json"].clone()).unwrap();
        assert!(text.contains(from), "{text}");
        files.insert("state.json".into(), text.replacen(from, to, 1).into_bytes());
    }
    fn change_tensors(files: &mut Files, from: &str, to: &str) {
        let bytes = files["tensors.safetensors"].clone();
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let changed = [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat();
        files.insert("tensors.safetensors".into(), changed);
    }
    type Case = (&'static str, u64, fn(&mut Files));
    let cases: [Case; 5] = [
        ("has the shape [8, 2], but the configuration needs [2, 8]", 3, |files| {
            change_tensors(files, "\"shape\":[2,8]", "\"shape\":[8,2]");
        }),
        ("600 steps after epoch 4294967295, but 4 environments make at least", 4_294_967_295, |files| {
            change_state(files, "\"epoch\": 3", "\"epoch\": 4294967295");
        }),
        ("the checkpoint counts 3 rows in 4 epochs", 4, |files| {
            change_state(files, "\"epoch\": 3", "\"epoch\": 4");
        }),
        ("has 600 steps, but the checkpoint has 596", 3, |files| {
            change_state(files, "\"steps\": 600", "\"steps\": 596");
        }),
        ("action values, which do not fit a running episode of", 3, |files| {
            let text = String::from_utf8(files["state.json"].clone()).unwrap();
            let at = text.rfind("\"len\": ").unwrap();
            files.insert(
                "state.json".into(),
                (text[..at + 7].to_owned() + "9" + &text[at + 7..]).into_bytes(),
            );
        }),
    ];
    for (part, number, change) in cases {
        let dir = tempfile::tempdir().unwrap();
        stopped(dir.path());
        let root = dir.path().join("checkpoint");
        let mut files = checkpoint::load(&root, |_, _| Ok(())).unwrap().files;
        change(&mut files);
        std::fs::remove_dir_all(&root).unwrap();
        std::fs::create_dir(&root).unwrap();
        checkpoint::save(&root, number, &files, None).unwrap();
        let before = content(dir.path());
        let said = match resume(dir.path(), true) {
            Err(error @ LabError::Run { .. }) => error.to_string(),
            other => panic!("{part}: {other:?}"),
        };
        assert!(said.contains(part), "{said} does not say {part}");
        assert!(content(dir.path()) == before, "{part}: a refusal changed the folder");
    }
}
