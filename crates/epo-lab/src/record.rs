//! The record of a run: `progress.csv`, `episodes.csv` and TensorBoard events (the stage *record* of the training loop).
//! `policies.rs` writes the policies.
//!
//! A row has one value per metric, and all epochs of a run have the same metrics. A value that does not exist yet, such
//! as the mean return before the first episode has ended, is an empty cell and never NaN. Columns have the names that
//! OmniSafe uses, if it has the metric. TensorBoard tags are the names of the columns. The TensorBoard step is
//! `TotalEnvSteps`, so runs with different epoch lengths can be compared.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use epo_algos::UpdateReport;
use epo_core::{CostReading, Metric};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::checkpoint::hex;
use crate::csv::{Csv, MOST_RECORD_BYTES, cell};
use crate::episodes::{Episode, EpisodeWindow, FinishedEpisode};
use crate::{LabError, tensorboard};

/// Metrics that every run records, for any algorithm.
#[allow(missing_docs, reason = "a metric has its meaning in its definition")]
pub mod metrics {
    use epo_core::Metric;

    pub const EP_RET: Metric =
        Metric::new("Metrics/EpRet", "return", "mean return of the last 100 finished episodes");
    pub const EP_COST: Metric =
        Metric::new("Metrics/EpCost", "cost", "mean cost of the last 100 finished episodes");
    pub const EP_LEN: Metric =
        Metric::new("Metrics/EpLen", "steps", "mean length of the last 100 finished episodes");
    pub const FEASIBLE: Metric = Metric::new(
        "Metrics/FeasibleRate",
        "1",
        "share of the last 100 episodes whose cost is within the limit",
    );
    pub const EPISODES: Metric = Metric::new("Metrics/Episodes", "1", "episodes that finished in this epoch");
    pub const COST_READING: Metric = Metric::new(
        "Metrics/CostReading",
        "cost",
        "J_c, the episode cost that this epoch's update was given",
    );
    pub const COST_SPREAD: Metric = Metric::new(
        "Metrics/CostSpread",
        "cost",
        "standard deviation of the episode costs behind the reading",
    );
    pub const EPOCH: Metric = Metric::new("Train/Epoch", "1", "epochs done before this one");
    pub const STEPS: Metric = Metric::new("TotalEnvSteps", "steps", "environment steps so far");
    pub const EVAL_RET: Metric = Metric::new(
        "Eval/EpRet",
        "return",
        "mean return of the evaluation with the mean action, if there was one",
    );
    pub const EVAL_COST: Metric =
        Metric::new("Eval/EpCost", "cost", "mean cost of the evaluation with the mean action");
    pub const EVAL_LEN: Metric =
        Metric::new("Eval/EpLen", "steps", "mean length of the evaluation's episodes");
    pub const TIME_TOTAL: Metric =
        Metric::new("Time/Total", "s", "time since the run began, pauses left out");
    pub const TIME_ROLLOUT: Metric = Metric::new("Time/Rollout", "s", "time of this epoch's collection");
    pub const TIME_UPDATE: Metric =
        Metric::new("Time/Update", "s", "time of this epoch's estimates and update");
    pub const TIME_EPOCH: Metric = Metric::new("Time/Epoch", "s", "time of this epoch, up to its row");
    pub const FPS: Metric = Metric::new("Time/FPS", "steps/s", "environment steps per second in this epoch");
}

/// The results of an epoch, without the report of the algorithm.
#[derive(Clone, Debug)]
pub struct EpochRecord {
    /// Number of the epoch, from 0.
    pub epoch: u32,
    /// Number of environment steps of the run up to and including this epoch.
    pub steps: u64,
    /// Number of environment steps in this epoch.
    pub steps_per_epoch: usize,
    /// Episodes that finished in this epoch, in order of time.
    pub finished: Vec<FinishedEpisode>,
    /// Estimate of the episode cost that the update used.
    pub cost: CostReading,
    /// Episodes of the evaluation after this epoch, if one was due.
    pub evaluation: Option<Vec<Episode>>,
    /// Seconds spent on collecting the batch.
    pub rollout_s: f64,
    /// Seconds spent on advantage estimates and the update.
    pub update_s: f64,
    /// Seconds of the whole epoch.
    pub epoch_s: f64,
    /// Seconds of the run up to and including this epoch, without pauses.
    pub total_s: f64,
}

impl EpochRecord {
    /// Returns the columns of `progress.csv`: those of every run and, between them, those of the algorithm. The columns
    /// of evaluations are included only if `evaluates` is true.
    pub fn columns(algorithm: &[Metric], evaluates: bool) -> Vec<Metric> {
        use metrics::*;
        let mut columns =
            vec![EP_RET, EP_COST, EP_LEN, FEASIBLE, EPISODES, COST_READING, COST_SPREAD, EPOCH, STEPS];
        columns.extend(algorithm);
        if evaluates {
            columns.extend([EVAL_RET, EVAL_COST, EVAL_LEN]);
        }
        columns.extend([TIME_TOTAL, TIME_ROLLOUT, TIME_UPDATE, TIME_EPOCH, FPS]);
        columns
    }

    /// Returns the row of the epoch, in the order of `columns`.
    fn row(&self, columns: &[Metric], episodes: &EpisodeWindow, report: &UpdateReport) -> Row {
        let limit = self.cost.limit();
        let evaluated = |of: fn(&Episode) -> f64| {
            let played = self.evaluation.as_ref()?;
            Some(played.iter().map(of).sum::<f64>() / played.len() as f64)
        };
        let value = |metric: &Metric| match *metric {
            metrics::EP_RET => episodes.mean(|e| e.ret),
            metrics::EP_COST => episodes.mean(|e| e.cost),
            metrics::EP_LEN => episodes.mean(|e| e.len as f64),
            metrics::FEASIBLE => episodes.mean(|e| f64::from(e.cost <= limit)),
            metrics::EPISODES => Some(self.finished.len() as f64),
            metrics::COST_READING => Some(self.cost.mean()),
            metrics::COST_SPREAD => Some(self.cost.spread()),
            metrics::EPOCH => Some(f64::from(self.epoch)),
            metrics::STEPS => Some(self.steps as f64),
            metrics::EVAL_RET => evaluated(|e| e.ret),
            metrics::EVAL_COST => evaluated(|e| e.cost),
            metrics::EVAL_LEN => evaluated(|e| e.len as f64),
            metrics::TIME_TOTAL => Some(self.total_s),
            metrics::TIME_ROLLOUT => Some(self.rollout_s),
            metrics::TIME_UPDATE => Some(self.update_s),
            metrics::TIME_EPOCH => Some(self.epoch_s),
            metrics::FPS => Some(self.steps_per_epoch as f64 / self.epoch_s),
            other => report.get(other),
        };
        columns.iter().map(|metric| (*metric, value(metric))).collect()
    }
}

/// One row of `progress.csv`: metrics and their values. `None` means that the value does not exist yet.
pub type Row = Vec<(Metric, Option<f64>)>;

/// Returns the value of a metric in a row; `None` if the row has no such metric or its value does not exist yet.
pub fn value(row: &Row, metric: Metric) -> Option<f64> {
    row.iter().find(|(m, _)| m.key == metric.key).and_then(|(_, value)| *value)
}

/// The length of each file at a checkpoint. The length of a CSV file is its number of rows: its number of bytes would
/// depend on the digits of measured times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    pub(crate) progress_rows: u64,
    episode_rows: u64,
    event_bytes: u64,
}

/// SHA-256 hashes of the parts of a record that repetitions of a run share: everything but measured times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHashes {
    /// Hash of `progress.csv` without the columns `Time/…`.
    pub progress: String,
    /// Hash of `episodes.csv`.
    pub episodes: String,
    /// Hash of the TensorBoard events without wall times and the values of `Time/…`.
    pub events: String,
}

/// Data that [`Recorder::reopen`] reads from the files of a record, up to the checkpoint.
#[derive(Debug)]
pub struct ReopenedRecord {
    /// Number of seconds that the run had taken.
    pub elapsed: f64,
    /// Number of environment steps in the last row; `None` without a row.
    pub steps: Option<f64>,
    /// Description of the damage if the TensorBoard file cannot be read as events of this program.
    pub broken_events: Option<String>,
}

/// Writes the record of a run; it keeps the files of the run folder open.
#[derive(Debug)]
pub struct Recorder {
    progress: Csv,
    episodes: Csv,
    /// `None` if the file was missing when the record was reopened.
    events: Option<File>,
    events_path: PathBuf,
    event_bytes: u64,
    /// Hash of all events, without the parts that depend on the clock.
    event_hash: Sha256,
    columns: Vec<Metric>,
}

/// Maximum length of an event, in bytes.
const MOST_EVENT_BYTES: u64 = 1 << 20;

const EPISODE_HEADER: &str = "step,env,return,cost,length";

impl Recorder {
    /// Creates the files of the record in the run folder `dir`.
    pub fn create(dir: &Path, columns: Vec<Metric>) -> Result<Self, LabError> {
        let events_path = events_path(dir);
        let parent = dir.join("tb");
        std::fs::create_dir_all(&parent).map_err(LabError::io("create", &parent))?;
        let mut recorder = Self {
            progress: Csv::create(dir.join("progress.csv"), &header(&columns))?,
            episodes: Csv::create(dir.join("episodes.csv"), EPISODE_HEADER)?,
            events: Some(File::create(&events_path).map_err(LabError::io("create", &events_path))?),
            events_path,
            event_bytes: 0,
            event_hash: Sha256::new(),
            columns,
        };
        recorder.write_event(&tensorboard::header(now()))?;
        Ok(recorder)
    }

    /// Opens the files of a run at their lengths at a checkpoint, and reads them up to there. It changes
    /// nothing: [`Recorder::truncate`] removes newer data.
    ///
    /// # Errors
    /// If a CSV file cannot be read, is too short or has other columns, or if the epochs of its rows are not 0, 1, 2, …
    pub fn reopen(
        dir: &Path,
        columns: Vec<Metric>,
        marks: Marks,
    ) -> Result<(Self, ReopenedRecord), LabError> {
        let (header, events_path) = (header(&columns), events_path(dir));
        let counted = columns.contains(&metrics::EPOCH);
        let mut last = None;
        let progress = Csv::reopen(dir.join("progress.csv"), &header, marks.progress_rows, |index, row| {
            let epoch = cell(&header, row, metrics::EPOCH.key);
            if counted && epoch != Some(index as f64) {
                let got = epoch.map_or_else(|| "none".to_owned(), |e| e.to_string());
                return Err(format!("row {} has epoch {got} instead of {index}", index + 1));
            }
            last = (index + 1 == marks.progress_rows).then(|| row.to_owned());
            Ok(())
        })?;
        let episodes =
            Csv::reopen(dir.join("episodes.csv"), EPISODE_HEADER, marks.episode_rows, |_, _| Ok(()))?;
        let (event_hash, broken_events) = hash_events(&events_path, marks.event_bytes)?;
        let events = match OpenOptions::new().append(true).open(&events_path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            file => Some(file.map_err(LabError::io("open", &events_path))?),
        };
        let number = |metric: Metric| last.as_ref().and_then(|row| cell(&header, row, metric.key));
        let elapsed = number(metrics::TIME_TOTAL).unwrap_or(0.0);
        let found = ReopenedRecord { elapsed, steps: number(metrics::STEPS), broken_events };
        let event_bytes = marks.event_bytes;
        Ok((Self { progress, episodes, events, events_path, event_bytes, event_hash, columns }, found))
    }

    /// Removes everything that is newer than the checkpoint that [`Recorder::reopen`] was given.
    pub fn truncate(&self) -> Result<(), LabError> {
        self.progress.truncate()?;
        self.episodes.truncate()?;
        let Some(events) = &self.events else { return Ok(()) };
        events.set_len(self.event_bytes).map_err(LabError::io("truncate", &self.events_path))
    }

    /// Writes the TensorBoard file again from the rows of `progress.csv`, because the file is damaged or
    /// missing.
    pub(crate) fn rebuild_events(&mut self) -> Result<(), LabError> {
        let part = self.events_path.with_extension("tmp");
        let tb = self.events_path.parent().unwrap_or(&part);
        std::fs::create_dir_all(tb).map_err(LabError::io("create", tb))?;
        self.events = Some(File::create(&part).map_err(LabError::io("create", &part))?);
        (self.event_bytes, self.event_hash) = (0, Sha256::new());
        self.write_event(&tensorboard::header(now()))?;
        let mut lines = self.progress.lines()?;
        for _ in 0..self.progress.rows() {
            let Some(line) = lines.next()? else { break };
            let cells = line.split(',').map(|cell| cell.parse().ok());
            let row: Row = self.columns.iter().copied().zip(cells).collect();
            self.write_row_event(&row)?;
        }
        self.sync_events()?;
        std::fs::rename(&part, &self.events_path).map_err(LabError::io("rename", &part))
    }

    /// Returns the hashes of everything that is recorded. The time that this takes does not depend on the length of the
    /// record.
    pub fn hashes(&self) -> RecordHashes {
        RecordHashes {
            progress: self.progress.hash(),
            episodes: self.episodes.hash(),
            events: hex(&self.event_hash.clone().finalize()),
        }
    }

    /// Writes the row and the finished episodes of an epoch, and returns the row.
    pub(crate) fn record(
        &mut self,
        record: &EpochRecord,
        episodes: &EpisodeWindow,
        report: &UpdateReport,
    ) -> Result<Row, LabError> {
        let row = record.row(&self.columns, episodes, report);
        self.episodes(&record.finished)?;
        self.write(&row)?;
        Ok(row)
    }

    /// Writes a row to `progress.csv` and to the TensorBoard events.
    ///
    /// # Panics
    /// If the metrics of the row differ from the columns, or are in another order.
    fn write(&mut self, row: &Row) -> Result<(), LabError> {
        assert!(row.iter().map(|(m, _)| m).eq(&self.columns), "a row has the columns of its run");
        let cells: Vec<String> =
            row.iter().map(|(_, v)| v.map_or_else(String::new, |v| format!("{v}"))).collect();
        self.progress.append(&(cells.join(",") + "\n"))?;
        self.write_row_event(row)
    }

    /// Writes a row to the TensorBoard events.
    fn write_row_event(&mut self, row: &Row) -> Result<(), LabError> {
        let step = value(row, metrics::STEPS).unwrap_or(0.0) as u64;
        let scalars = row.iter().filter_map(|(m, v)| Some((m.key, (*v)?)));
        self.write_event(&tensorboard::scalars(now(), step, scalars))
    }

    /// Writes finished episodes to `episodes.csv`.
    fn episodes(&mut self, finished: &[FinishedEpisode]) -> Result<(), LabError> {
        let line = |f: &FinishedEpisode| {
            let FinishedEpisode { step, env, episode: Episode { ret, cost, len } } = f;
            format!("{step},{env},{ret},{cost},{len}\n")
        };
        self.episodes.append(&finished.iter().map(line).collect::<String>())
    }

    /// Waits until all data is written to the disk, and returns the length of each file.
    pub fn sync(&self) -> Result<Marks, LabError> {
        self.progress.sync()?;
        self.episodes.sync()?;
        self.sync_events()?;
        Ok(Marks {
            progress_rows: self.progress.rows(),
            episode_rows: self.episodes.rows(),
            event_bytes: self.event_bytes,
        })
    }

    fn write_event(&mut self, record: &[u8]) -> Result<(), LabError> {
        self.event_bytes += record.len() as u64;
        hash_event(&mut self.event_hash, &record[12..record.len() - 4]);
        let missing = || LabError::run(&self.events_path, "the file is missing");
        let file = self.events.as_mut().ok_or_else(missing)?;
        file.write_all(record).map_err(LabError::io("write", &self.events_path))
    }

    fn sync_events(&self) -> Result<(), LabError> {
        let Some(events) = &self.events else { return Ok(()) };
        events.sync_data().map_err(LabError::io("sync", &self.events_path))
    }
}

/// Adds an event to a hash.
fn hash_event(hash: &mut Sha256, data: &[u8]) {
    if let Some(kept) = tensorboard::clock_free(data) {
        hash.update((kept.len() as u64).to_le_bytes());
        hash.update(kept);
    }
}

/// Returns a hash of the first `bytes` bytes of a TensorBoard file, without the parts that depend on the clock.
/// The text describes the damage, if there is any.
fn hash_events(path: &Path, bytes: u64) -> Result<(Sha256, Option<String>), LabError> {
    let mut hash = Sha256::new();
    let file = match epo_core::open_file(path, MOST_RECORD_BYTES) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((hash, Some("it is missing".into()))),
        Err(e) => return Err(crate::csv::unreadable(path)(e)),
    };
    let mut file = BufReader::new(file).take(bytes);
    while file.limit() > 0 {
        let at = bytes - file.limit();
        let data = match tensorboard::read_event(&mut file, MOST_EVENT_BYTES) {
            Err(why) => return Ok((hash, Some(format!("{why} (at byte {at})")))),
            Ok(data) => data.map_err(LabError::io("read", path))?,
        };
        if tensorboard::clock_free(&data).is_none() {
            return Ok((hash, Some(format!("a record is not an event of this program (at byte {at})"))));
        }
        hash_event(&mut hash, &data);
    }
    Ok((hash, None))
}

fn header(columns: &[Metric]) -> String {
    columns.iter().map(|m| m.key).collect::<Vec<_>>().join(",")
}

fn events_path(dir: &Path) -> PathBuf {
    dir.join("tb").join("events.out.tfevents.epo") // TensorBoard looks for `tfevents` in the name
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_record_goes_on_from_its_marks() {
        let dir = tempfile::tempdir().unwrap();
        let columns = vec![metrics::STEPS, metrics::EP_RET, metrics::TIME_TOTAL];
        let row = |steps: f64, ret: Option<f64>, time: f64| -> Row {
            columns.iter().copied().zip([Some(steps), ret, Some(time)]).collect()
        };
        let one = FinishedEpisode { step: 7, env: 0, episode: Episode { ret: 1.5, cost: 2.0, len: 7 } };
        let mut recorder = Recorder::create(dir.path(), columns.clone()).unwrap();
        recorder.write(&row(10.0, None, 0.5)).unwrap();
        recorder.episodes(&[one]).unwrap();
        let (marks, early) = (recorder.sync().unwrap(), recorder.hashes());
        recorder.write(&row(20.0, Some(1.0), 123.456)).unwrap();
        recorder.episodes(&[one, one]).unwrap();
        let (whole, late) = (recorder.sync().unwrap(), recorder.hashes());
        drop(recorder);
        let (mut recorder, found) = Recorder::reopen(dir.path(), columns.clone(), marks).unwrap();
        assert_eq!((found.elapsed, found.steps, found.broken_events), (0.5, Some(10.0), None));
        assert_eq!(recorder.hashes(), early);
        recorder.truncate().unwrap();
        recorder.write(&row(20.0, Some(1.0), 9.0)).unwrap();
        recorder.episodes(&[one, one]).unwrap();
        assert_eq!(recorder.sync().unwrap(), whole, "the clock does not reach the marks");
        assert_eq!(recorder.hashes(), late, "nor the hashes");
        let text = std::fs::read_to_string(dir.path().join("progress.csv")).unwrap();
        assert_eq!(text, "TotalEnvSteps,Metrics/EpRet,Time/Total\n10,,0.5\n20,1,9\n");
        let text = std::fs::read_to_string(dir.path().join("episodes.csv")).unwrap();
        assert_eq!(text.lines().nth(1), Some("7,0,1.5,2,7"));
        // a damaged or missing TensorBoard file is named, and written again from the rows
        for damage in [Some("short"), None] {
            match damage {
                Some(text) => std::fs::write(events_path(dir.path()), text).unwrap(),
                None => std::fs::remove_file(events_path(dir.path())).unwrap(),
            }
            let (mut recorder, found) = Recorder::reopen(dir.path(), columns.clone(), whole).unwrap();
            assert!(found.broken_events.is_some() && recorder.hashes() != late);
            recorder.rebuild_events().unwrap();
            recorder.truncate().unwrap();
            assert_eq!((recorder.hashes(), recorder.sync().unwrap()), (late.clone(), whole));
            let (recorder, found) = Recorder::reopen(dir.path(), columns.clone(), whole).unwrap();
            assert!(found.broken_events.is_none() && recorder.hashes() == late);
        }
    }

    /// Fails if a record with a doubled, missing or exchanged epoch is continued.
    #[test]
    fn the_epochs_of_a_record_count_from_0_without_a_gap() {
        let columns = vec![metrics::EPOCH, metrics::STEPS];
        let reopen = |rows: &str, n: u64| {
            let dir = tempfile::tempdir().unwrap();
            drop(Recorder::create(dir.path(), columns.clone()).unwrap());
            std::fs::write(dir.path().join("progress.csv"), format!("Train/Epoch,TotalEnvSteps\n{rows}"))
                .unwrap();
            let marks = Marks { progress_rows: n, episode_rows: 0, event_bytes: 0 };
            Recorder::reopen(dir.path(), columns.clone(), marks).map(drop).map_err(|e| e.to_string())
        };
        reopen("0,10\n1,20\n2,30\n", 3).unwrap();
        reopen("0,10\n1,20\n1,20\n", 2).unwrap(); // rows after the checkpoint do not matter
        for (rows, part) in [
            ("0,10\n1,20\n1,20\n", "row 3 has epoch 1 instead of 2"),
            ("1,10\n2,20\n3,30\n", "row 1 has epoch 1 instead of 0"),
            ("0,10\n2,20\n1,30\n", "row 2 has epoch 2 instead of 1"),
            ("0,10\nx,20\n2,30\n", "row 2 has epoch none instead of 1"),
        ] {
            let error = reopen(rows, 3).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
