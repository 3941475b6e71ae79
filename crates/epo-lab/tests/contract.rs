//! The contract of a run: same bits for any number of threads, stopped and resumed or not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Walk, config, rows, train, walk};
use epo_core::{ActionSpace, Env};
use epo_lab::checkpoint;
use epo_lab::config::algorithms;
use epo_lab::train::{ResumeOptions, Trainer};

fn episodes(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("episodes.csv")).unwrap()
}

#[test]
fn the_number_of_threads_does_not_reach_a_bit() {
    let dir = tempfile::tempdir().unwrap();
    let run = |threads: &str| {
        let path = dir.path().join(threads);
        let end = train(&path, config(&[&format!("train.threads={threads}")]), &walk).unwrap();
        (end.hash, rows(&path), episodes(&path))
    };
    let one = run("1");
    assert_eq!(one, run("2"));
    assert_eq!(one, run("4"));
    let other = train(&dir.path().join("seed"), config(&["run.seed=1"]), &walk).unwrap();
    assert_ne!(one.0, other.hash, "another seed, another run");
}

#[test]
fn every_algorithm_stopped_after_any_epoch_and_resumed_is_the_run_never_stopped() {
    for algo in algorithms() {
        let dir = tempfile::tempdir().unwrap();
        let run = config(&[&format!("run.algo={}", algo.name()), "run.steps=800", "train.eval_every=2"]);
        let whole = train(&dir.path().join("whole"), run.clone(), &walk).unwrap();
        for stop_after in 0..4 {
            let path = dir.path().join(format!("stopped-{stop_after}"));
            let stop = AtomicBool::new(stop_after == 0);
            let mut seen = 0;
            let mut trainer = Trainer::create(&path, run.clone(), &walk).unwrap();
            let end = trainer.train(&stop, |_| {
                seen += 1;
                stop.store(seen == stop_after, Relaxed);
            });
            assert!(!end.unwrap().finished || stop_after == 4);
            // what a process does after its last checkpoint is cut away
            let progress = path.join("progress.csv");
            let text = std::fs::read_to_string(&progress).unwrap();
            std::fs::write(&progress, text + "1,2,").unwrap();
            let mut trainer =
                Trainer::resume(&path, ResumeOptions { threads: Some(2), steps: None }, &walk).unwrap();
            let end = trainer.train(&AtomicBool::new(false), |_| ()).unwrap();
            assert_eq!(end, whole, "{} stopped after {stop_after}", algo.name());
            assert_eq!(rows(&path), rows(&dir.path().join("whole")));
            assert_eq!(episodes(&path), episodes(&dir.path().join("whole")));
            let tb = |p: &Path| std::fs::metadata(p.join("tb/events.out.tfevents.epo")).unwrap().len();
            assert_eq!(tb(&path), tb(&dir.path().join("whole")));
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_word_and_the_run_ends_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let whole = train(&dir.path().join("whole"), config(&[]), &walk).unwrap();
    let path = dir.path().join("damaged");
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::create(&path, config(&[]), &walk).unwrap();
    trainer.train(&stop, |_| stop.store(trainer_epoch(&path) == 4, Relaxed)).unwrap();
    let newest = path.join("checkpoint/000004/tensors.safetensors");
    let mut bytes = std::fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let mut trainer = Trainer::resume(&path, ResumeOptions::default(), &walk).unwrap();
    assert_eq!(trainer.epoch(), 3);
    let note = trainer.notes()[0].clone();
    assert!(note.contains("000004 is damaged") && note.contains("going on from epoch 3"), "{note}");
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
    assert_eq!(rows(&path), rows(&dir.path().join("whole")));
}

/// Epochs that the checkpoints of a run folder hold.
fn trainer_epoch(dir: &Path) -> u64 {
    checkpoint::load(&dir.join("checkpoint"), |_, _| Ok(())).unwrap().number
}

#[test]
fn discrete_actions_train_and_resume_too() {
    let make = || Ok(Box::new(Walk::new(ActionSpace::Discrete { n: 3 }, 70)) as Box<dyn Env>);
    let dir = tempfile::tempdir().unwrap();
    let whole = train(&dir.path().join("whole"), config(&[]), &make).unwrap();
    let path = dir.path().join("stopped");
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::create(&path, config(&[]), &make).unwrap();
    trainer.train(&stop, |_| stop.store(true, Relaxed)).unwrap();
    let mut trainer = Trainer::resume(&path, ResumeOptions::default(), &make).unwrap();
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
}

#[test]
fn a_stop_is_saved_whenever_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let rarely = || config(&["train.save_every=100"]);
    let whole = train(&dir.path().join("whole"), rarely(), &walk).unwrap();
    let path = dir.path().join("stopped");
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::create(&path, rarely(), &walk).unwrap();
    let end = trainer.train(&stop, |_| stop.store(true, Relaxed)).unwrap();
    assert_eq!(trainer_epoch(&path), 1, "the epoch that the stop came in is not lost");
    assert_eq!(end.hash, checkpoint::load(&path.join("checkpoint"), |_, _| Ok(())).unwrap().hash);
    let mut trainer = Trainer::resume(&path, ResumeOptions::default(), &walk).unwrap();
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
}

#[test]
fn a_record_without_checkpoints_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), config(&[]), &walk).unwrap();
    let record = std::fs::read(dir.path().join("progress.csv")).unwrap();
    std::fs::remove_dir_all(dir.path().join("checkpoint")).unwrap();
    let error = Trainer::resume(dir.path(), ResumeOptions::default(), &walk).unwrap_err().to_string();
    assert!(error.contains("checkpoints are gone"), "{error}");
    assert_eq!(std::fs::read(dir.path().join("progress.csv")).unwrap(), record);
}

#[test]
fn a_run_that_died_before_its_first_checkpoint_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let whole = train(&dir.path().join("whole"), config(&[]), &walk).unwrap();
    let path = dir.path().join("early");
    drop(Trainer::create(&path, config(&[]), &walk).unwrap());
    std::fs::remove_dir_all(path.join("checkpoint")).unwrap();
    std::fs::remove_file(path.join("episodes.csv")).unwrap();
    let mut trainer = Trainer::resume(&path, ResumeOptions::default(), &walk).unwrap();
    assert!(trainer.notes()[0].contains("starts from the beginning"));
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
}
