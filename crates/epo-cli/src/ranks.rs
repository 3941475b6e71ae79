//! The ranks of `epo train`: with the feature `mpi` the processes that `mpirun` started, otherwise this process alone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use epo_lab::ranks::{OneRank, Ranks};

/// Returns the number of processes that an MPI launcher started, from its environment variables; 1 without a launcher.
fn launched(variable: impl Fn(&str) -> Option<String>) -> usize {
    let number = |name: &str| variable(name).and_then(|text| text.parse().ok());
    let slurm = || variable("PMIX_RANK").and_then(|_| number("SLURM_STEP_NUM_TASKS"));
    number("OMPI_COMM_WORLD_SIZE").or_else(|| number("PMI_SIZE")).or_else(slurm).unwrap_or(1)
}

/// Returns the ranks of this run. `stop` is set when this process is asked to stop.
pub(crate) fn connect(stop: &Arc<AtomicBool>) -> anyhow::Result<Box<dyn Ranks>> {
    match launched(|name| std::env::var(name).ok()) {
        0 | 1 => Ok(Box::new(OneRank)), // MPI is not started
        count => several(count, stop),
    }
}

#[cfg(not(feature = "mpi"))]
fn several(count: usize, _: &Arc<AtomicBool>) -> anyhow::Result<Box<dyn Ranks>> {
    use crate::exit::{Code, Exit};
    Err(anyhow::Error::new(Exit(Code::Usage)).context(format!(
        "an MPI launcher started {count} processes, but this program was built without MPI, so they would be {count} \
         separate runs; build it with `cargo build --release --features mpi`"
    )))
}

#[cfg(feature = "mpi")]
fn several(_: usize, stop: &Arc<AtomicBool>) -> anyhow::Result<Box<dyn Ranks>> {
    Ok(Box::new(over_mpi::MpiRanks::start(Arc::clone(stop))?))
}

#[cfg(feature = "mpi")]
mod over_mpi {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use anyhow::Context;
    use epo_lab::LabError;
    use epo_lab::ranks::Ranks;
    use mpi::datatype::PartitionMut;
    use mpi::environment::Universe;
    use mpi::request::{Request, Scope, scope};
    use mpi::topology::SimpleCommunicator;
    use mpi::traits::{Communicator, CommunicatorCollectives};
    use mpi::{Count, Threading};

    /// Largest number of bytes that one call of MPI gathers. MPI counts in 32 bits.
    const MOST: u64 = 1 << 30;

    /// The processes that an MPI launcher started.
    pub(super) struct MpiRanks {
        world: SimpleCommunicator,
        stop: Arc<AtomicBool>,
        /// Whether the message about a stop was printed.
        stop_printed: bool,
        /// Ends MPI when dropped, after the communicator.
        _universe: Universe,
    }

    impl std::fmt::Debug for MpiRanks {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "MPI rank {} of {}", self.rank(), self.count())
        }
    }

    impl MpiRanks {
        /// Starts MPI. Only this thread may use it.
        pub(super) fn start(stop: Arc<AtomicBool>) -> anyhow::Result<Self> {
            let started = mpi::initialize_with_threading(Threading::Funneled);
            let (universe, _) = started.context("MPI was started twice in this process")?;
            Ok(Self { world: universe.world(), stop, stop_printed: false, _universe: universe })
        }

        /// Waits for a collective call without using the processor, which other ranks on the same machine need.
        fn wait<'a, D: ?Sized, S: Scope<'a>>(&mut self, mut request: Request<'a, D, S>) {
            let begun = Instant::now();
            while let Err(pending) = request.test() {
                request = pending;
                match begun.elapsed() < Duration::from_millis(1) {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(Duration::from_micros(100)),
                }
                if self.stop.load(Relaxed) && !self.stop_printed && self.world.rank() == 0 {
                    self.stop_printed = true;
                    tell!(
                        "asked to stop while the other ranks are not ready; if one of them was lost, the run ends here: \
                         continue it with `--resume`"
                    );
                }
            }
        }
    }

    impl Ranks for MpiRanks {
        fn rank(&self) -> usize {
            self.world.rank() as usize
        }

        fn count(&self) -> usize {
            self.world.size() as usize
        }

        fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, LabError> {
            let world = SimpleCommunicator::world();
            let (my_length, mut lengths) = ([mine.len() as u64], vec![0_u64; self.count()]);
            scope(|scope| {
                self.wait(world.immediate_all_gather_into(scope, &my_length[..], &mut lengths[..]));
            });
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let piece = MOST / lengths.len() as u64;
            let mut all: Vec<Vec<u8>> = lengths.iter().map(|n| Vec::with_capacity(*n as usize)).collect();
            for from in (0..longest).step_by(piece as usize) {
                let counts: Vec<Count> =
                    lengths.iter().map(|n| n.saturating_sub(from).min(piece) as Count).collect();
                let starts: Vec<Count> = counts
                    .iter()
                    .scan(0, |end, count| {
                        *end += count;
                        Some(*end - count)
                    })
                    .collect();
                let sent = mine.get(from as usize..).unwrap_or(&[]);
                let sent = &sent[..counts[self.rank()] as usize];
                let mut got = vec![0_u8; counts.iter().map(|count| *count as usize).sum()];
                {
                    let mut parts = PartitionMut::new(&mut got[..], &counts[..], &starts[..]);
                    scope(|scope| {
                        self.wait(world.immediate_all_gather_varcount_into(scope, sent, &mut parts));
                    });
                }
                for ((whole, start), count) in all.iter_mut().zip(&starts).zip(&counts) {
                    whole.extend_from_slice(&got[*start as usize..][..*count as usize]);
                }
            }
            Ok(all)
        }
    }

    impl Drop for MpiRanks {
        /// A rank that panics ends the other ranks, which would otherwise wait for it forever.
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.world.abort(101);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_processes_is_read_from_the_launcher() {
        let with = |set: &[(&str, &str)]| {
            launched(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(with(&[]), 1);
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", "3")]), 3);
        assert_eq!(with(&[("PMI_SIZE", "4")]), 4);
        // a batch job of Slurm is one process, unless `srun` started it with PMIx
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "5")]), 1);
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "5"), ("PMIX_RANK", "0")]), 5);
    }
}
