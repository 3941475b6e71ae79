//! Writes `policies.bin`: the policy and the normaliser of each epoch, from which every episode of training can be
//! repeated. [`epo_report::policies`] describes the format.
//!
//! Nothing that a run learns depends on the file, so it is neither synced to the disk nor compared at a resume. A replay
//! checks whether it gives the recorded episode.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use epo_core::EnvSpec;
use epo_nn::{Normalizer, Policy};
use epo_report::policies::{self, EpochPlace, EpochPolicy, Policies, Sizes};

use crate::LabError;
use crate::config::ResolvedRun;

/// Size of the file in bytes above which epochs are left out. A run that is extended may reach twice this size.
///
/// Ten million steps of any task of this program fit with the default networks. A test checks this.
const BYTES: u64 = 128 << 20;

/// The file `policies.bin` of a run.
#[derive(Debug)]
pub(crate) struct PolicyLog {
    path: PathBuf,
    /// `None` until [`PolicyLog::truncate`] is called.
    file: Option<File>,
    sizes: Sizes,
    /// Number of consecutive epochs that are all recorded or all left out.
    block: u64,
    /// Length of header and records, in bytes; 0 if the file is missing or does not belong to the run.
    length: u64,
    /// Record of the running epoch. It is empty if the epoch is left out.
    record: Vec<u8>,
}

impl PolicyLog {
    /// Returns the log of a run. `None` if the configuration excludes it, if the task cannot be replayed because MuJoCo
    /// does not simulate it, or if not even one record would fit.
    pub(crate) fn new(dir: &Path, run: &ResolvedRun, spec: &EnvSpec, policy: &Policy) -> Option<Self> {
        let replayed = epo_tasks::task(&run.run.task).is_ok_and(|task| task.is_simulated());
        let sizes = Sizes {
            envs: run.train.envs as u32,
            observations: u32::try_from(spec.obs_len).ok()?,
            parameters: policy.params().len() as u64,
        };
        if !run.train.save_policies || !replayed || sizes.record_bytes() > BYTES {
            return None;
        }
        // most episodes lie within one block, also if they continue over epochs
        let steps = (run.train.steps_per_epoch / run.train.envs).max(1);
        let block = (spec.max_steps.div_ceil(steps) as u64).saturating_add(1).saturating_mul(4);
        let record = Vec::with_capacity(sizes.record_bytes() as usize);
        Some(Self { path: dir.join(policies::FILE), file: None, sizes, block, length: 0, record })
    }

    /// Finds the end of the epochs of a run that has made `steps` steps. It changes nothing.
    ///
    /// # Errors
    /// If the file exists and cannot be read. A damaged or foreign file is used up to the damage.
    pub(crate) fn reopen(&mut self, steps: u64) -> Result<(), LabError> {
        let file = match epo_core::open_file(&self.path, policies::MOST_BYTES) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(crate::csv::unreadable(&self.path))?,
        };
        let unreadable = |e| LabError::io("read", &self.path)(e);
        let own = Policies::open(&file).map_err(unreadable)?.filter(|file| file.sizes() == self.sizes);
        let Some(file) = own else { return Ok(()) };
        let (mut records, mut at) = (0, 0);
        while records < file.records() {
            let place = match file.place(records) {
                Err(e) if e.kind() == io::ErrorKind::InvalidData => break,
                place => place.map_err(unreadable)?,
            };
            if place.begin < at || place.end > steps {
                break;
            }
            (records, at) = (records + 1, place.end);
        }
        self.length = policies::HEADER + records * self.sizes.record_bytes();
        Ok(())
    }

    /// Opens the file for writing, and removes everything after the epochs that [`PolicyLog::reopen`] found.
    pub(crate) fn truncate(&mut self) -> Result<(), LabError> {
        let file = OpenOptions::new().append(true).create(true).open(&self.path);
        let mut file = file.map_err(LabError::io("open", &self.path))?;
        file.set_len(self.length).map_err(LabError::io("truncate", &self.path))?;
        if self.length == 0 {
            file.write_all(&self.sizes.header()).map_err(LabError::io("write", &self.path))?;
            self.length = policies::HEADER;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Keeps the policy of an epoch for [`PolicyLog::write`], before the epoch changes it. `epochs` is the number of epochs
    /// of the run. It does not allocate.
    pub(crate) fn hold(&mut self, place: EpochPlace, epochs: u32, policy: &Policy, normalizer: &Normalizer) {
        self.record.clear();
        if !self.keeps(place.epoch, epochs) {
            return;
        }
        let seen = normalizer.moments();
        EpochPolicy { place, seen: seen.count(), mean: seen.mean(), m2: seen.m2(), policy: policy.params() }
            .write(&mut self.record);
    }

    /// Appends the policy that was kept.
    pub(crate) fn write(&mut self) -> Result<(), LabError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(&self.record).map_err(LabError::io("write", &self.path))?;
        self.length += self.record.len() as u64;
        Ok(())
    }

    /// Whether an epoch is recorded. If not all epochs fit into [`BYTES`], only one in two, three, … blocks is.
    fn keeps(&self, epoch: u64, epochs: u32) -> bool {
        let one = self.sizes.record_bytes();
        let one_in = u64::from(epochs).saturating_mul(one).div_ceil(BYTES).max(1);
        (epoch / self.block).is_multiple_of(one_in) && self.length + one <= 2 * BYTES
    }
}

#[cfg(test)]
mod tests {
    use epo_core::{ActionSpace, Purpose, Stream};

    use super::*;

    /// A log of a small policy with epochs of 10 steps of one environment, and its policy.
    fn log(dir: &Path) -> (PolicyLog, Policy) {
        let set = ["train.envs=1", "train.steps_per_epoch=10", "train.minibatch=10", "train.hidden=[]"];
        let run = ResolvedRun::from_layers(None, &set.map(String::from)).unwrap();
        let action = ActionSpace::symmetric(1);
        let policy = Policy::new(2, &[], &action, &mut Stream::new(1, Purpose::Init, 0));
        let spec = EnvSpec { id: String::new(), obs_len: 2, action, max_steps: 15, cost_terms: vec![] };
        (PolicyLog::new(dir, &run, &spec, &policy).unwrap(), policy)
    }

    fn add(log: &mut PolicyLog, policy: &Policy, epoch: u64, epochs: u32) {
        let place = EpochPlace { epoch, begin: 10 * epoch, end: 10 * epoch + 10, position: 0 };
        log.hold(place, epochs, policy, &Normalizer::new(2));
        log.write().unwrap();
    }

    fn epochs(dir: &Path) -> Vec<u64> {
        let file = File::open(dir.join(policies::FILE)).unwrap();
        let file = Policies::open(&file).unwrap().unwrap();
        (0..file.records()).map(|i| file.place(i).unwrap().epoch).collect()
    }

    /// This test fails if `policies.bin` grows without a bound, or if the epochs of an episode are not recorded together.
    #[test]
    fn a_long_run_leaves_out_blocks_of_epochs() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, policy) = log(dir.path());
        log.truncate().unwrap();
        let fit = (BYTES / log.sizes.record_bytes()) as u32;
        assert_eq!(log.block, 12, "an episode of 15 steps touches at most three epochs of ten");
        (0..40).for_each(|epoch| add(&mut log, &policy, epoch, 2 * fit));
        assert_eq!(epochs(dir.path()), (0..12).chain(24..36).collect::<Vec<_>>(), "one block of two");
        assert!((0..100).all(|epoch| log.keeps(epoch, fit)), "all epochs of a shorter run");
        log.length = 2 * BYTES;
        assert!(!log.keeps(0, 1), "there is a bound for runs that are extended");
    }

    /// This test fails if a run of an earlier version cannot be continued, or if a resumed run keeps policies that are newer
    /// than its checkpoint or belong to another run.
    #[test]
    fn the_policies_go_on_from_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(policies::FILE);
        let reopen = |steps| {
            let (mut log, policy) = log(dir.path());
            log.reopen(steps).unwrap();
            (log, policy)
        };
        let (mut log, policy) = reopen(0);
        assert!(!path.exists(), "reopening changes nothing");
        log.truncate().unwrap();
        (0..5).for_each(|epoch| add(&mut log, &policy, epoch, 5));
        let whole = std::fs::read(&path).unwrap();
        let (mut log, _) = reopen(30);
        assert_eq!(std::fs::read(&path).unwrap(), whole, "reopening changes nothing");
        log.truncate().unwrap();
        assert_eq!(epochs(dir.path()), [0, 1, 2]);
        (3..5).for_each(|epoch| add(&mut log, &policy, epoch, 5));
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        // a part of a record, a record that goes back, and a file of other sizes
        let half = whole.len() - log.sizes.record_bytes() as usize / 2;
        let again = [&whole[..], &whole[policies::HEADER as usize..]].concat();
        let mut other = whole.clone();
        other[8] ^= 1;
        for (bytes, left) in [(&whole[..half], 4), (&again, 5), (&other, 0), (b"something else", 0)] {
            std::fs::write(&path, bytes).unwrap();
            let (mut log, _) = reopen(1000);
            log.truncate().unwrap();
            assert_eq!(epochs(dir.path()).len(), left);
            assert!(left == 0 || whole.starts_with(&std::fs::read(&path).unwrap()));
        }
        let (mut log, policy) = reopen(0);
        log.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        log.hold(EpochPlace { epoch: 0, begin: 0, end: 10, position: 0 }, 5, &policy, &Normalizer::new(2));
        let error = log.write().unwrap_err();
        assert!(matches!(error, LabError::Io { what: "write", .. }), "{error}");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = self::log(dir.path()).0.reopen(10).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    /// This test fails if the default settings leave out an epoch of ten million steps.
    #[test]
    fn ten_million_steps_of_every_task_are_recorded_whole() {
        let mut tasks = 0;
        for task in epo_tasks::tasks().into_iter().filter(|task| task.is_simulated()) {
            let set = [format!("run.task={}", task.id)];
            let run = ResolvedRun::from_layers(None, &set).unwrap();
            assert_eq!(run.run.steps, 10_000_000);
            let action = ActionSpace::symmetric(task.act_len);
            let mut stream = Stream::new(0, Purpose::Init, 0);
            let policy = Policy::new(task.obs_len, &run.train.hidden, &action, &mut stream);
            let (obs_len, max_steps) = (task.obs_len, task.max_steps);
            let spec = EnvSpec { id: task.id.clone(), obs_len, action, max_steps, cost_terms: vec![] };
            let log = PolicyLog::new(Path::new("."), &run, &spec, &policy).unwrap();
            assert!((0..u64::from(run.epochs())).all(|epoch| log.keeps(epoch, run.epochs())), "{}", task.id);
            tasks += 1;
            let own = ResolvedRun::from_layers(None, &["run.task=Own".to_owned()]).unwrap();
            assert!(PolicyLog::new(Path::new("."), &own, &spec, &policy).is_none(), "it cannot be replayed");
            let off = [&set[..], &["train.save_policies=false".to_owned()]].concat();
            let off = ResolvedRun::from_layers(None, &off).unwrap();
            assert!(PolicyLog::new(Path::new("."), &off, &spec, &policy).is_none());
        }
        assert!(tasks >= 38);
    }
}
