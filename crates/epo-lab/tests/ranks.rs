//! Claim: a run on several ranks has bit-identical results to the same run on one, also if a rank is lost and the run is
//! resumed on another number of ranks. The ranks of these tests are threads that talk over channels; the MPI transport is
//! tested by `crates/epo-cli/tests/mpi.sh`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};

use common::{Walk, config, rows, walk};
use epo_core::{ActionSpace, Env};
use epo_lab::LabError;
use epo_lab::collect::MakeEnv;
use epo_lab::config::{ResolvedRun, algorithms};
use epo_lab::ranks::{Ranks, call_off, follow};
use epo_lab::runs::task_maker;
use epo_lab::train::{End, ResumeOptions, Trainer};

/// A rank that exchanges messages with the others over channels.
struct ChannelRanks {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
    /// Number of messages exchanged.
    round: usize,
    /// The rank is lost from this round on: it neither sends nor receives.
    lost_in: Option<usize>,
    /// In this round, the last byte of the message of rank 0 arrives changed.
    changed_in: Option<usize>,
}

impl std::fmt::Debug for ChannelRanks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.to.len())
    }
}

impl Ranks for ChannelRanks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.to.len()
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, LabError> {
        self.round += 1;
        let lost = || LabError::RankLost { why: "a channel is closed".into() };
        if self.lost_in.is_some_and(|round| self.round >= round) {
            return Err(lost());
        }
        for to in &self.to {
            to.send(mine.clone()).map_err(|_| lost())?;
        }
        let mut all: Vec<Vec<u8>> =
            self.from.iter().map(|from| from.recv().map_err(|_| lost())).collect::<Result<_, _>>()?;
        if self.changed_in == Some(self.round) {
            *all[0].last_mut().unwrap() ^= 1;
        }
        Ok(all)
    }
}

fn ranks(count: usize) -> Vec<ChannelRanks> {
    let mut all: Vec<ChannelRanks> = (0..count)
        .map(|rank| ChannelRanks {
            rank,
            to: vec![],
            from: vec![],
            round: 0,
            lost_in: None,
            changed_in: None,
        })
        .collect();
    for i in 0..count {
        for j in 0..count {
            let (to, from) = channel();
            all[i].to.push(to);
            all[j].from.push(from);
        }
    }
    all
}

/// The way in which rank 0 begins.
enum Begin<'a> {
    Create(Box<ResolvedRun>),
    Resume,
    CallOff(&'a str),
}

/// Runs rank 0 in this thread and each other rank in its own. Returns the result of each of them.
///
/// `stop` is the number of the rank that is asked to stop before it begins.
fn run(
    all: Vec<ChannelRanks>,
    dir: &Path,
    begin: Begin<'_>,
    make: fn() -> Result<Box<dyn Env>, LabError>,
    stop: Option<usize>,
) -> (Result<End, LabError>, Vec<Result<(), LabError>>) {
    let stop = &stop;
    std::thread::scope(|scope| {
        let mut all = all.into_iter();
        let first = all.next().unwrap();
        let follower = |ranks: ChannelRanks| {
            scope.spawn(move || {
                let asked = AtomicBool::new(*stop == Some(ranks.rank));
                follow(Box::new(ranks), 1, &asked, &|_| Ok(Box::new(make) as Box<MakeEnv<'static>>))
            })
        };
        let followers: Vec<_> = all.map(follower).collect();
        let lead = || {
            let mut trainer = match begin {
                Begin::Create(run) => Trainer::create_on(Box::new(first), dir, *run, &make)?,
                Begin::Resume => Trainer::resume_on(Box::new(first), dir, ResumeOptions::default(), &make)?,
                Begin::CallOff(why) => {
                    let mut first = first;
                    call_off(&mut first, why)?;
                    return Err(LabError::Interrupted("this test"));
                }
            };
            trainer.train(&AtomicBool::new(*stop == Some(0)), |_| ())
        };
        let end = lead();
        (end, followers.into_iter().map(|thread| thread.join().unwrap()).collect())
    })
}

/// Everything in a run folder that repetitions of a run share.
fn record(dir: &Path) -> (Vec<Vec<String>>, [Option<Vec<u8>>; 2]) {
    (rows(dir), ["episodes.csv", "policies.bin"].map(|name| std::fs::read(dir.join(name)).ok()))
}

/// This test fails if an environment is stepped by no rank or by two, if the parts of the batch are put in
/// another order, or if a part of the state of an environment is not sent.
#[test]
fn every_algorithm_learns_the_same_on_any_number_of_ranks() {
    for algo in algorithms() {
        let dir = tempfile::tempdir().unwrap();
        let set = [&format!("run.algo={}", algo.name()), "run.steps=500", "train.eval_every=2"];
        let whole = common::train(&dir.path().join("one"), config(&set), &walk).unwrap();
        for count in [1, 2, 3, 4] {
            let path = dir.path().join(count.to_string());
            let (end, others) = run(ranks(count), &path, Begin::Create(Box::new(config(&set))), walk, None);
            assert!(others.iter().all(Result::is_ok), "{others:?}");
            assert_eq!(end.unwrap(), whole, "{} on {count} ranks", algo.name());
            assert_eq!(record(&path), record(&dir.path().join("one")));
        }
    }
}

/// This test fails if the seeds of the episodes of a real task depend on the rank, for either physics.
#[test]
fn a_navigation_task_gives_the_same_run_with_both_physics() {
    fn published() -> Result<Box<dyn Env>, LabError> {
        task_maker("SafetyPointGoal1-v0", epo_tasks::Physics::Published)?()
    }
    fn fast() -> Result<Box<dyn Env>, LabError> {
        task_maker("SafetyPointGoal1-v0", epo_tasks::Physics::Fast)?()
    }
    for (physics, make) in [("published", published as fn() -> _), ("fast", fast)] {
        let dir = tempfile::tempdir().unwrap();
        let set = ["run.task=SafetyPointGoal1-v0", &format!("run.physics={physics}"), "run.steps=4200"];
        let set = config(&[&set[..], &["train.steps_per_epoch=2100", "train.envs=3"]].concat());
        let whole = common::train(&dir.path().join("one"), set.clone(), &make).unwrap();
        let (end, _) = run(ranks(2), &dir.path().join("two"), Begin::Create(Box::new(set)), make, None);
        assert_eq!(end.unwrap(), whole, "{physics}");
        assert!(dir.path().join("one/policies.bin").exists());
        assert_eq!(record(&dir.path().join("two")), record(&dir.path().join("one")));
    }
}

/// This test fails if a lost rank leaves the others waiting, if an epoch without all ranks is recorded, or if the state
/// that the others get at a resume differs from that of rank 0.
#[test]
fn a_run_that_lost_a_rank_is_resumed_on_any_number_of_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let whole = common::train(&dir.path().join("whole"), config(&[]), &walk).unwrap();
    // the ranks exchange the start, their readiness, whether to stop, and then two messages per epoch
    for lost_in in [1, 2, 3, 4, 5, 8, 9] {
        let path = dir.path().join(lost_in.to_string());
        let mut all = ranks(3);
        all[1].lost_in = Some(lost_in);
        let (end, others) = run(all, &path, Begin::Create(Box::new(config(&[]))), walk, None);
        let said = end.unwrap_err().to_string();
        assert!(said.contains("cannot be reached") && said.contains("--resume"), "{said}");
        assert!(others.iter().all(|end| matches!(end, Err(LabError::RankLost { .. }))), "{others:?}");
        for count in [2, 4] {
            let copy = dir.path().join(format!("{lost_in}-{count}"));
            copy_folder(&path, &copy);
            let (end, others) = run(ranks(count), &copy, Begin::Resume, walk, None);
            assert!(others.iter().all(Result::is_ok), "{others:?}");
            assert_eq!(end.unwrap(), whole, "lost in round {lost_in}, resumed on {count} ranks");
            assert_eq!(record(&copy), record(&dir.path().join("whole")));
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, name) = (entry.as_ref().unwrap().path(), entry.as_ref().unwrap().file_name());
        match entry.is_dir() {
            true => copy_folder(&entry, &to.join(name)),
            false => drop(std::fs::copy(&entry, to.join(name)).unwrap()),
        }
    }
}

/// This test fails if a signal that reaches one rank stops that rank alone, or if the stop is not saved.
#[test]
fn a_stop_on_any_rank_stops_and_saves_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let whole = common::train(&dir.path().join("whole"), config(&[]), &walk).unwrap();
    for rank in [0, 2] {
        let path = dir.path().join(rank.to_string());
        let (end, others) = run(ranks(3), &path, Begin::Create(Box::new(config(&[]))), walk, Some(rank));
        assert!(!end.unwrap().finished && others.iter().all(Result::is_ok), "{others:?}");
        let (end, _) = run(ranks(2), &path, Begin::Resume, walk, None);
        assert_eq!(end.unwrap(), whole);
    }
}

/// A walk whose tenth step has a reward that is not finite.
fn failing() -> Result<Box<dyn Env>, LabError> {
    let mut env = Walk::new(ActionSpace::symmetric(1), 70);
    env.change = Some(Box::new(|t, _obs, step| {
        if t == 10 {
            step.reward = f64::NAN;
        }
    }));
    Ok(Box::new(env))
}

/// This test fails if the failure of an environment of one rank leaves the others waiting, or is told differently.
#[test]
fn the_failure_of_an_environment_is_the_same_on_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    let alone = common::train(&dir.path().join("one"), config(&[]), &failing).unwrap_err();
    assert!(alone.is_not_finite());
    let (end, others) =
        run(ranks(3), &dir.path().join("three"), Begin::Create(Box::new(config(&[]))), failing, None);
    for error in others.into_iter().map(Result::unwrap_err).chain([end.unwrap_err()]) {
        assert_eq!((error.to_string(), error.is_not_finite()), (alone.to_string(), true));
    }
}

/// This test fails if ranks with different numbers go on together.
#[test]
fn ranks_that_differ_are_detected_before_their_batches_are_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = ranks(2);
    all[1].changed_in = Some(6); // the batch of the second epoch
    let (end, others) = run(all, dir.path(), Begin::Create(Box::new(config(&[]))), walk, None);
    for error in others.into_iter().map(Result::unwrap_err).chain([end.unwrap_err()]) {
        assert!(matches!(error, LabError::RanksDiffer { rank: 1, epoch: 2 }), "{error}");
    }
    assert_eq!(rows(dir.path()).len(), 3, "the header and two epochs");
}

#[test]
fn a_run_that_cannot_begin_or_go_on_ends_on_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    // more ranks than environments
    let (end, others) =
        run(ranks(5), &dir.path().join("five"), Begin::Create(Box::new(config(&[]))), walk, None);
    let said = end.unwrap_err().to_string();
    assert!(said.contains("train.envs = 4") && said.contains("5 ranks"), "{said}");
    assert!(!dir.path().join("five").exists(), "nothing was made");
    for error in others.into_iter().map(Result::unwrap_err) {
        assert!(matches!(&error, LabError::OtherRank { rank: 0, why } if *why == said), "{error}");
    }
    // rank 0 has no run to begin
    let (_, others) = run(ranks(2), dir.path(), Begin::CallOff("no such task"), walk, None);
    assert_eq!(others[0].as_ref().unwrap_err().to_string(), "rank 0 failed: no such task");
    // a rank cannot make its environments
    fn never() -> Result<Box<dyn Env>, LabError> {
        match std::thread::current().name() {
            None => Err(LabError::Interrupted("the construction")), // a thread of `run`
            Some(_) => walk(),
        }
    }
    let (end, others) =
        run(ranks(3), &dir.path().join("never"), Begin::Create(Box::new(config(&[]))), never, None);
    assert!(matches!(end, Err(LabError::OtherRank { rank: 1, .. })), "{end:?}");
    assert!(matches!(&others[0], Err(LabError::Interrupted(_))), "{others:?}");
    // rank 0 cannot write
    let path = dir.path().join("gone");
    let mut all = ranks(2).into_iter();
    let (first, second) = (all.next().unwrap(), all.next().unwrap());
    let other = std::thread::spawn(|| {
        follow(Box::new(second), 1, &AtomicBool::new(false), &|_| Ok(Box::new(walk) as Box<MakeEnv<'static>>))
    });
    let mut trainer = Trainer::create_on(Box::new(first), &path, config(&[]), &walk).unwrap();
    std::fs::rename(&path, dir.path().join("moved")).unwrap();
    let error = trainer.train(&AtomicBool::new(false), |_| ()).unwrap_err();
    assert!(matches!(error, LabError::Moved(_)), "{error}");
    let heard = other.join().unwrap().unwrap_err();
    assert!(matches!(&heard, LabError::OtherRank { rank: 0, why } if *why == error.to_string()), "{heard}");
}
