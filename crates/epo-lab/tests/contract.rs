//! The contract of a run: its results are bit-identical for any number of threads, and also if it is stopped and
//! resumed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Walk, column, config, rows, train, walk};
use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Step};
use epo_lab::config::algorithms;
use epo_lab::train::{ResumeOptions, Trainer};
use epo_lab::{LabError, checkpoint, runs};
use epo_report::policies::{self, EpochPlace, Policies};

fn episodes(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("episodes.csv")).unwrap()
}

/// This test fails if the policies of a run depend on its number of threads, if an epoch is missing, if saving them changes
/// what is learned, or if they are saved for an environment that cannot be replayed.
#[test]
fn the_policies_of_all_epochs_are_saved_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let make = runs::task_maker("SafetyPointGoal1-v0", epo_tasks::Physics::Published).unwrap();
    let run = |name: &str, set: &[&str]| {
        let path = dir.path().join(name);
        let end = train(&path, config(&[&["run.task=SafetyPointGoal1-v0"], set].concat()), &make).unwrap();
        (end.hash, std::fs::read(path.join(policies::FILE)).ok())
    };
    let one = run("one", &[]);
    assert_eq!(one, run("two", &["train.threads=2"]));
    assert_eq!((one.0, None), run("none", &["train.save_policies=false"]));
    let file = std::fs::File::open(dir.path().join("one").join(policies::FILE)).unwrap();
    let file = Policies::open(&file).unwrap().unwrap();
    for epoch in 0..6 {
        let want = EpochPlace { epoch, begin: 200 * epoch, end: 200 * epoch + 200, position: 200 * epoch };
        assert_eq!(file.place(epoch).unwrap(), want, "50 steps of two normal numbers per environment");
        assert_eq!(file.read(epoch).unwrap().seen, 200 * epoch);
    }
    assert_eq!(file.records(), 6);
    train(&dir.path().join("walk"), config(&[]), &walk).unwrap();
    assert!(!dir.path().join("walk").join(policies::FILE).exists());
}

#[test]
fn the_number_of_threads_changes_no_bit() {
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
            // a resume removes everything that was written after the last checkpoint
            let progress = path.join("progress.csv");
            let text = std::fs::read_to_string(&progress).unwrap();
            std::fs::write(&progress, text + "1,2,").unwrap();
            drop(trainer);
            let mut trainer =
                Trainer::resume(&path, ResumeOptions { threads: Some(2), ..ResumeOptions::default() }, &walk)
                    .unwrap();
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
fn a_damaged_checkpoint_is_skipped_with_a_note_and_the_results_are_the_same() {
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
    drop(trainer);
    let mut trainer = Trainer::resume(&path, ResumeOptions::default(), &walk).unwrap();
    assert_eq!(trainer.epoch(), 3);
    let note = trainer.notes()[0].clone();
    assert!(note.contains("000004 is damaged") && note.contains("continuing from epoch 3"), "{note}");
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
    assert_eq!(rows(&path), rows(&dir.path().join("whole")));
}

/// Returns the number of epochs in the newest checkpoint of a run folder.
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
    drop(trainer);
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
    drop(trainer);
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
    assert!(error.contains("checkpoints are missing"), "{error}");
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

fn resume(dir: &Path, steps: Option<u64>) -> Result<Trainer<'_>, LabError> {
    Trainer::resume(dir, ResumeOptions { steps, ..ResumeOptions::default() }, &walk)
}

/// This test fails in any of these cases:
/// - The number of steps is rounded up to whole epochs.
/// - A step is lost or repeated where the run was extended.
/// - The configuration keeps the old length.
/// - A run that is stopped after its extension resumes with the old length.
#[test]
fn a_run_ends_at_its_steps_and_can_be_made_longer() {
    let dir = tempfile::tempdir().unwrap();
    let steps = |dir: &Path| column(dir, "TotalEnvSteps").join(" ");
    train(dir.path(), config(&["run.steps=500"]), &walk).unwrap();
    assert_eq!(steps(dir.path()), "200 400 500");

    let trainer = resume(dir.path(), None).unwrap();
    assert!(trainer.is_finished() && trainer.epoch() == 3 && trainer.notes().is_empty(), "{trainer:?}");
    drop(trainer);
    let said = resume(dir.path(), Some(496)).unwrap_err().to_string();
    assert_eq!(said, "`run.steps = 496`: the run has already made 500 steps");

    let stop = AtomicBool::new(false);
    let mut trainer = resume(dir.path(), Some(1002)).unwrap();
    let note = trainer.notes().join("; ");
    assert!(note.contains("1004 steps instead of 500"), "a multiple of 4 environments: {note}");
    assert!(
        note.contains("learning rate of the policy continues at 1.500e-4"),
        "3 of 6 epochs are done: {note}"
    );
    trainer.train(&stop, |_| stop.store(true, Relaxed)).unwrap();
    assert_eq!(runs::read_config(dir.path()).unwrap().run.steps, 1002);
    drop(trainer);
    let mut trainer = resume(dir.path(), None).unwrap();
    assert_eq!((trainer.epoch(), trainer.epochs(), trainer.steps()), (4, 6, 700));
    assert!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap().finished);
    assert_eq!(steps(dir.path()), "200 400 500 700 900 1004");
}

/// This test fails if anything other than the learning rate depends on the length of the run.
#[test]
fn without_a_decaying_learning_rate_a_longer_run_is_the_run_that_was_longer_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let with = |steps: &str| config(&[&format!("run.steps={steps}"), "train.lr_decay=false"]);
    let whole = train(&dir.path().join("whole"), with("1200"), &walk).unwrap();
    let path = dir.path().join("extended");
    train(&path, with("600"), &walk).unwrap();
    let mut trainer = resume(&path, Some(1200)).unwrap();
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
    assert_eq!(rows(&path), rows(&dir.path().join("whole")));
}

/// This test fails if a run folder of version 0.3 is rejected, or if it continues with other results.
#[test]
fn a_run_of_the_released_variant_of_version_0_3_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let run = config(&["run.algo=epo-released", "algo.mu=4", "algo.alpha=1"]);
    let whole = train(&dir.path().join("whole"), run.clone(), &walk).unwrap();
    let path = dir.path().join("old");
    let stop = AtomicBool::new(false);
    Trainer::create(&path, run.clone(), &walk).unwrap().train(&stop, |_| stop.store(true, Relaxed)).unwrap();
    // write the folder in the format of version 0.3
    let old = run.to_toml().replace("minibatch = 50", "batch = 50").replace("epo-released", "epo");
    let algo = old.find("[algo]").unwrap();
    let end = old[algo + 1..].find('[').map_or(old.len(), |at| algo + 1 + at);
    let table = "[algo]\nvariant = \"released\"\nclip = 0.2\nmu_init = 4.0\npmn = \"linear\"\npsi_max = 5.0\n\
                 normalize_loss = true\nmu_rate = 0.07\n\n";
    let old = format!("epo_version = \"0.3.0\"\n\n{}{table}{}", &old[..algo], &old[end..]);
    std::fs::write(path.join("config.toml"), old).unwrap();
    let root = path.join("checkpoint");
    let mut files = checkpoint::load(&root, |_, _| Ok(())).unwrap().files;
    let state = String::from_utf8(files["state.json"].clone()).unwrap();
    files.insert("state.json".into(), state.replace("\"epo-released\"", "\"epo\"").into_bytes());
    std::fs::remove_dir_all(root.join("000001")).unwrap();
    checkpoint::save(&root, 1, &files, None).unwrap();

    let mut trainer = resume(&path, None).unwrap();
    assert_eq!(trainer.config(), &run);
    assert_eq!(trainer.train(&AtomicBool::new(false), |_| ()).unwrap(), whole);
    assert_eq!(rows(&path), rows(&dir.path().join("whole")));
}

/// An environment that records the seed of every episode.
struct Listener<'a>(Box<dyn Env>, &'a Mutex<Vec<u64>>);

impl Env for Listener<'_> {
    fn spec(&self) -> &EnvSpec {
        self.0.spec()
    }
    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.1.lock().unwrap().push(seed);
        self.0.reset(seed, obs)
    }
    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        self.0.step(action, obs)
    }
}

/// This test fails if an evaluation plays episodes of the training, or if two evaluations play different episodes.
#[test]
fn an_evaluation_plays_the_same_episodes_each_time_and_none_of_the_training() {
    static TRAINING: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    static EVALUATION: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let made = std::cell::Cell::new(0);
    let make = || {
        made.set(made.get() + 1);
        let seeds = if made.get() <= 4 { &TRAINING } else { &EVALUATION }; // the run has four environments
        Ok(Box::new(Listener(walk()?, seeds)) as Box<dyn Env>)
    };
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), config(&["train.eval_every=3", "train.eval_episodes=6"]), &make).unwrap();
    let training: BTreeSet<u64> = TRAINING.lock().unwrap().iter().copied().collect();
    let evaluation = EVALUATION.lock().unwrap().clone();
    // there are two evaluations of six episodes; after each episode an environment starts the next one
    assert!(training.len() > 12 && evaluation.len() == 24, "{} {}", training.len(), evaluation.len());
    assert!(evaluation.iter().all(|seed| !training.contains(seed)), "an episode of the training is played");
    let sorted = |seeds: &[u64]| seeds.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(sorted(&evaluation[..12]), sorted(&evaluation[12..]));
    assert_eq!(sorted(&evaluation).len(), 12, "no episode twice");
}
