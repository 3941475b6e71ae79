//! One run on several processes (ranks), on one machine or on many, with the same results as on one.
//!
//! ```text
//!           environments 0‥15             environments 16‥31
//! rank 0    collect ─┐          rank 1    collect ─┐
//!                    ▼                             ▼
//!           all ranks send their part to all ranks; each puts the parts in the order of the environments
//!                    │                             │
//!           estimate, measure, update     estimate, measure, update      (the same numbers on every rank)
//!           record, checkpoint            –
//! ```
//! An episode depends only on the seed of the run, the number of the environment and the number of the episode. The
//! batch is therefore the same for any number of ranks, and so is the update. Gradients are not averaged between ranks,
//! because the rounding of a sum depends on the number of its parts.
//!
//! Rank 0 alone reads and writes the run folder. The others get the configuration and the checkpoint from rank 0, so no
//! shared folder is needed. Before each batch is used, the ranks compare a hash of everything that they learned
//! ([`LabError::RanksDiffer`]).
//!
//! [`Ranks`] is the transport: MPI in `epo-cli` (feature `mpi`), threads in the tests, [`OneRank`] otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use epo_core::{EnvError, EnvFailure, WireError, WireReader, WireWriter};

use crate::LabError;
use crate::collect::MakeEnv;
use crate::config::{ConfigError, ResolvedRun};
use crate::train::Trainer;

/// The processes of one run, seen from one of them.
pub trait Ranks: fmt::Debug {
    /// Number of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn count(&self) -> usize;

    /// Sends `mine` to all ranks and returns the messages of all ranks, ordered by rank.
    ///
    /// Every rank must call it, and it returns only when all of them have.
    ///
    /// # Errors
    /// [`LabError::RankLost`] if another process cannot be reached.
    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, LabError>;
}

/// A run on one process. Nothing is sent anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneRank;

impl Ranks for OneRank {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, LabError> {
        Ok(vec![mine])
    }
}

/// Returns the environments of a rank: a block of neighbours. The blocks of all ranks differ in length by at most 1.
pub fn share(envs: usize, rank: usize, count: usize) -> Range<usize> {
    envs * rank / count..envs * (rank + 1) / count
}

/// Refuses a run with fewer environments than ranks.
pub(crate) fn check(run: &ResolvedRun, ranks: &dyn Ranks) -> Result<(), ConfigError> {
    let (envs, count) = (run.train.envs, ranks.count());
    if envs >= count {
        return Ok(());
    }
    let why = format!("{count} ranks need at least {count} environments, one each");
    Err(ConfigError::Value { key: "train.envs".to_owned(), got: envs.to_string(), why })
}

/// Tells the other ranks whether this one failed or was asked to stop, and receives the same from them. Returns
/// true if any rank was asked to stop.
///
/// # Errors
/// [`LabError::OtherRank`] if another rank failed.
pub(crate) fn agree(ranks: &mut dyn Ranks, failure: Option<&LabError>, stop: bool) -> Result<bool, LabError> {
    // a rank that has lost the others sends nothing more: they would mistake it for their next message
    if ranks.count() == 1 || matches!(failure, Some(LabError::RankLost { .. })) {
        return Ok(stop);
    }
    let mut message = WireWriter::default();
    message.u64(u64::from(stop));
    message.bytes(failure.map_or_else(String::new, explain).as_bytes());
    let mut any = false;
    for (rank, bytes) in ranks.all_gather(message.finish())?.iter().enumerate() {
        let mut reader = WireReader::new(bytes);
        any |= reader.u64()? != 0;
        let why = reader.text()?.to_owned();
        reader.end()?;
        if !why.is_empty() && rank != ranks.rank() {
            return Err(LabError::OtherRank { rank, why });
        }
    }
    Ok(any)
}

/// Returns an error and all its causes in one line.
fn explain(error: &LabError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Data that the other ranks need to begin: the configuration, and the files of the checkpoint to continue
/// from.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) run: ResolvedRun,
    /// Empty for a new run.
    pub(crate) checkpoint: BTreeMap<String, Vec<u8>>,
}

/// Version of this program. Ranks of other versions do not join.
const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Start {
    /// Sends the data of a run to the other ranks, and waits until all of them have built their environments.
    pub(crate) fn send(&self, ranks: &mut dyn Ranks) -> Result<(), LabError> {
        if ranks.count() == 1 {
            return Ok(());
        }
        let mut message = WireWriter::default();
        message.u64(1);
        message.bytes(VERSION.as_bytes());
        message.bytes(self.run.to_toml().as_bytes());
        message.u64(self.checkpoint.len() as u64);
        for (name, bytes) in &self.checkpoint {
            message.bytes(name.as_bytes());
            message.bytes(bytes);
        }
        ranks.all_gather(message.finish())?;
        agree(ranks, None, false).map(drop)
    }

    /// Receives the data of a run from rank 0.
    fn receive(ranks: &mut dyn Ranks) -> Result<Self, LabError> {
        let all = ranks.all_gather(Vec::new())?;
        let mut message = WireReader::new(all.first().ok_or(WireError)?);
        if message.u64()? == 0 {
            return Err(LabError::OtherRank { rank: 0, why: message.text()?.to_owned() });
        }
        let version = message.text()?;
        if version != VERSION {
            let why =
                format!("rank 0 has version {version} of this program, rank {} has {VERSION}", ranks.rank());
            return Err(LabError::Version(why));
        }
        let run = ResolvedRun::from_saved(message.text()?)?;
        let files = message.u64()?;
        let file = |_| Ok((message.text()?.to_owned(), message.bytes()?.to_vec()));
        let checkpoint = (0..files).map(file).collect::<Result<_, WireError>>()?;
        message.end()?;
        Ok(Self { run, checkpoint })
    }
}

/// Tells the other ranks that the run does not begin. Rank 0 calls it if it fails before it has made a
/// [`Trainer`].
///
/// # Errors
/// If another process cannot be reached.
pub fn call_off(ranks: &mut dyn Ranks, why: &str) -> Result<(), LabError> {
    if ranks.count() == 1 {
        return Ok(());
    }
    let mut message = WireWriter::default();
    message.u64(0);
    message.bytes(why.as_bytes());
    ranks.all_gather(message.finish()).map(drop)
}

/// Makes the environments of a task for [`follow`].
pub type Maker<'a> = dyn Fn(&ResolvedRun) -> Result<Box<MakeEnv<'static>>, LabError> + 'a;

/// Takes part in a run as a rank other than 0, until the run ends or is asked to stop. Rank 0 chooses the run.
///
/// `threads` is the number of threads of this rank; 0 means one per core.
///
/// # Errors
/// If an environment of any rank fails, a number is not finite, or another rank fails or is lost.
pub fn follow(
    mut ranks: Box<dyn Ranks + '_>,
    threads: usize,
    stop: &AtomicBool,
    maker: &Maker<'_>,
) -> Result<(), LabError> {
    let started = match Start::receive(&mut *ranks) {
        // rank 0 has called off the run and waits for no answer
        Err(error @ (LabError::OtherRank { .. } | LabError::RankLost { .. })) => return Err(error),
        other => other,
    };
    let prepared = started.and_then(|mut start| {
        start.run.train.threads = crate::config::threads("train.threads", threads)?;
        let make_env = maker(&start.run)?;
        Ok((start, make_env))
    });
    let (start, make_env) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            agree(&mut *ranks, Some(&error), false)?;
            return Err(error);
        }
    };
    let mut trainer = Trainer::join(start, &*make_env, ranks)?;
    trainer.train(stop, |_| ()).map(drop)
}

/// Appends the failure of an environment to a message.
pub(crate) fn write_failure(failure: &EnvFailure, message: &mut WireWriter) {
    let EnvFailure { task, env, seed, step, cause } = failure;
    message.bytes(task.as_bytes());
    message.u64(u64::from(*env));
    message.u64(*seed);
    message.u64(*step as u64);
    let (kind, text, value) = match cause {
        EnvError::NotFinite { what, value } => (0, what.clone(), *value),
        EnvError::Panicked(text) => (1, text.clone(), 0.0),
        other => (2, other.to_string(), 0.0),
    };
    message.u64(kind);
    message.bytes(text.as_bytes());
    message.f64(value);
}

/// Reads a failure that [`write_failure`] appended. Causes without numbers keep their text only.
pub(crate) fn read_failure(message: &mut WireReader<'_>) -> Result<EnvFailure, WireError> {
    let task = message.text()?.to_owned();
    let env = message.u64()? as u32;
    let (seed, step) = (message.u64()?, message.u64()? as usize);
    let (kind, text, value) = (message.u64()?, message.text()?.to_owned(), message.f64()?);
    let cause = match kind {
        0 => EnvError::NotFinite { what: text, value },
        1 => EnvError::Panicked(text),
        _ => EnvError::Other(text),
    };
    Ok(EnvFailure { task, env, seed, step, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_environments_once_in_order_and_even() {
        for envs in 1..20 {
            for count in 1..=envs {
                let shares: Vec<_> = (0..count).map(|rank| share(envs, rank, count)).collect();
                let all: Vec<usize> = shares.iter().cloned().flatten().collect();
                assert_eq!(all, (0..envs).collect::<Vec<_>>(), "{envs} environments on {count} ranks");
                let lengths: Vec<_> = shares.iter().map(ExactSizeIterator::len).collect();
                assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{lengths:?}");
            }
        }
    }

    /// Fails if the rank, the environment, the seed or the step of a failure is lost on the way, or if a number that is
    /// not finite loses its kind, which decides the exit code.
    #[test]
    fn failures_of_environments_arrive() {
        for cause in [
            EnvError::NotFinite { what: "the reward".into(), value: f64::INFINITY },
            EnvError::Panicked("oh".into()),
            EnvError::NeedsReset,
        ] {
            let sent = EnvFailure { task: "T".into(), env: 3, seed: 1 << 40, step: 17, cause };
            let mut message = WireWriter::default();
            write_failure(&sent, &mut message);
            let bytes = message.finish();
            let mut reader = WireReader::new(&bytes);
            let got = read_failure(&mut reader).unwrap();
            assert_eq!((got.to_string(), reader.end()), (sent.to_string(), Ok(())));
            assert_eq!(LabError::from(got).is_not_finite(), LabError::from(sent).is_not_finite());
        }
    }
}
