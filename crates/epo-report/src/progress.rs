//! Reads `progress.csv`, the record of a run with one row per epoch.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use crate::files::printable;
use crate::history::{DIAGNOSTICS, Point, Timing};

/// Maximum number of rows of diagnostics per run. If a run has more rows, only some are kept.
const MOST_DIAGNOSTICS: usize = 100;

/// Content of `progress.csv`.
pub(crate) struct Progress {
    pub(crate) columns: Vec<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) epoch_steps: f64,
    pub(crate) diagnostics: Vec<(f64, Vec<f32>)>,
    pub(crate) timing: Option<Timing>,
}

/// Maximum length of a row of `progress.csv`, in bytes.
const MOST_ROW_BYTES: u64 = 1 << 20;

/// Indices of the columns that reports need.
struct ColumnIndices {
    columns: usize,
    steps: usize,
    ret: usize,
    cost: usize,
    epoch: Option<usize>,
    total: Option<usize>,
    times: [Option<usize>; 3],
    diagnostics: Vec<Option<usize>>,
}

impl ColumnIndices {
    fn of(columns: &[String]) -> Result<Self, String> {
        let find = |name: &str| columns.iter().position(|c| c == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("progress.csv has no column {name}."));
        Ok(Self {
            columns: columns.len(),
            steps: need("TotalEnvSteps")?,
            ret: need("Metrics/EpRet")?,
            cost: need("Metrics/EpCost")?,
            epoch: find("Train/Epoch"),
            total: find("Time/Total"),
            times: ["Time/Rollout", "Time/Update", "Time/Epoch"].map(find),
            diagnostics: DIAGNOSTICS.iter().map(|(metric, _)| find(metric.key)).collect(),
        })
    }
}

/// Reads one row after the other.
struct RowReader<R> {
    file: R,
    line: Vec<u8>,
}

impl<R: BufRead> RowReader<R> {
    /// Returns the next row that is not empty, without its line end; `None` at the end of the file.
    fn next(&mut self, notes: &mut Vec<String>) -> Result<Option<String>, String> {
        loop {
            self.line.clear();
            let read = (&mut self.file).take(MOST_ROW_BYTES).read_until(b'\n', &mut self.line);
            if read.map_err(|e| format!("progress.csv cannot be read: {e}."))? == 0 {
                return Ok(None);
            }
            if self.line.last() != Some(&b'\n') {
                if self.line.len() as u64 == MOST_ROW_BYTES {
                    return Err("progress.csv cannot be read: a row is longer than 1 MiB.".into());
                }
                notes.push("The last row of progress.csv is half-written and is left out.".into());
                return Ok(None);
            }
            let row = String::from_utf8_lossy(&self.line);
            if !row.trim().is_empty() {
                return Ok(Some(row.trim_end().to_owned()));
            }
        }
    }
}

/// Maximum number of bytes that [`Newest::read`] reads from the beginning and from the end of the file.
const NEWEST_BYTES: u64 = 64 << 10;

/// The newest values of `progress.csv`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest {
    /// Number of finished epochs.
    pub(crate) epochs: u64,
    /// Total number of environment steps.
    pub(crate) steps: f64,
    /// Return and cost of the newest row that has both.
    pub(crate) ret: Option<f64>,
    pub(crate) cost: Option<f64>,
    /// Time since the start of the run.
    pub(crate) seconds: Option<f64>,
}

impl Newest {
    /// Reads the header and the last rows of a file of `length` bytes. Rows that are broken or half-written are left out.
    pub(crate) fn read(mut file: File, length: u64) -> Result<Self, String> {
        let wrong = |e: std::io::Error| format!("progress.csv cannot be read: {e}.");
        let too_long = || Err("progress.csv cannot be read: a row is longer than 64 KiB.".to_owned());
        let mut header = Vec::new();
        BufReader::with_capacity(4096, (&mut file).take(NEWEST_BYTES))
            .read_until(b'\n', &mut header)
            .map_err(wrong)?;
        if header.last() != Some(&b'\n') {
            return if header.len() as u64 == NEWEST_BYTES { too_long() } else { Ok(Self::default()) };
        }
        let begin = length.saturating_sub(NEWEST_BYTES).max(header.len() as u64);
        let mut end = Vec::new();
        file.seek(SeekFrom::Start(begin)).map_err(wrong)?;
        file.take(NEWEST_BYTES).read_to_end(&mut end).map_err(wrong)?;
        let (header, end) = (String::from_utf8_lossy(&header), String::from_utf8_lossy(&end));
        let places = ColumnIndices::of(&columns(&header))?;
        // the first line is a whole row only if it follows the header; the text after the last line end is half a row
        let cut = begin > header.len() as u64;
        let whole: Vec<&str> =
            end.split_inclusive('\n').skip(usize::from(cut)).filter(|row| row.ends_with('\n')).collect();
        if whole.is_empty() && end.len() as u64 == NEWEST_BYTES {
            return too_long();
        }
        let mut newest = Self::default();
        for row in whole.iter().rev() {
            let cells: Vec<&str> = row.split(',').map(str::trim).collect();
            let number = |i: usize| cells.get(i)?.parse::<f64>().ok().filter(|v| v.is_finite());
            let Some(steps) = number(places.steps).filter(|_| cells.len() == places.columns) else {
                continue;
            };
            if newest.steps == 0.0 {
                newest.steps = steps;
                newest.epochs =
                    places.epoch.and_then(number).map_or(whole.len() as u64, |epoch| 1 + epoch as u64);
                newest.seconds = places.total.and_then(number);
            }
            if let Some((ret, cost)) = number(places.ret).zip(number(places.cost)) {
                (newest.ret, newest.cost) = (Some(ret), Some(cost));
                break;
            }
        }
        Ok(newest)
    }
}

/// Returns the names in the first row of `progress.csv`.
fn columns(header: &str) -> Vec<String> {
    header.split(',').map(|c| printable(c.trim().trim_matches('"')).into_owned()).collect()
}

impl Progress {
    /// Reads the rows of the file. Rows that are left out are noted.
    pub(crate) fn read(file: impl BufRead, notes: &mut Vec<String>) -> Result<Self, String> {
        let mut rows = RowReader { file, line: Vec::new() };
        let header = rows.next(notes)?.ok_or("progress.csv is empty: the run has not finished an epoch.")?;
        let columns = columns(&header);
        let places = ColumnIndices::of(&columns)?;
        let mut sums = [0.0; 3];
        let (mut points, mut diagnostics) = (Vec::new(), Vec::new());
        let (mut broken, mut epoch, mut last_steps, mut epoch_steps) = (0, 0, 0.0, 0.0_f64);
        while let Some(row) = rows.next(notes)? {
            let cells: Vec<&str> = row.split(',').map(str::trim).collect();
            let number = |i: usize| cells[i].parse::<f64>().ok().filter(|v| v.is_finite());
            let steps = match cells.len() == places.columns {
                true => number(places.steps).filter(|&s| s > last_steps),
                false => None,
            };
            let Some(steps) = steps else {
                broken += 1;
                continue;
            };
            epoch_steps = epoch_steps.max(steps - last_steps);
            last_steps = steps;
            for (sum, column) in sums.iter_mut().zip(places.times) {
                *sum += column.and_then(number).unwrap_or(f64::NAN);
            }
            let value = |column: Option<usize>| column.and_then(number).map_or(f32::NAN, |v| v as f32);
            diagnostics.push((steps, places.diagnostics.iter().map(|&column| value(column)).collect()));
            match (number(places.ret), number(places.cost)) {
                (Some(ret), Some(cost)) => points.push(Point { epoch, steps, ret, cost }),
                // An empty cell means that no episode had finished yet. Any other text makes the row broken.
                _ if cells[places.ret].is_empty() || cells[places.cost].is_empty() => {}
                _ => broken += 1,
            }
            epoch += 1;
        }
        match broken {
            0 => {}
            1 => notes.push("1 row of progress.csv is broken and left out.".into()),
            n => notes.push(format!("{n} rows of progress.csv are broken and left out.")),
        }
        if points.is_empty() {
            return Err("progress.csv holds no finished episode yet.".into());
        }
        let timing = sums.iter().all(|s| s.is_finite()).then(|| {
            let [rollout, update, total] = sums.map(|s| s / last_steps * 1e6);
            Timing { rollout, update, total }
        });
        points.shrink_to_fit();
        let stride = diagnostics.len().div_ceil(MOST_DIAGNOSTICS);
        let diagnostics = diagnostics.into_iter().step_by(stride).collect();
        Ok(Self { columns, points, epoch_steps, diagnostics, timing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_written_row_and_broken_rows_are_left_out() {
        let text = "Train/Epoch,Metrics/EpRet,Metrics/EpCost,TotalEnvSteps\n\
                    0,1,2,10\n1,1,2\n2,x,2,30\n3,1,2,30\n4,1,2,40\n5,1,2,50\n6,1,2,6";
        let mut notes = Vec::new();
        let got = Progress::read(text.as_bytes(), &mut notes).unwrap();
        let steps: Vec<f64> = got.points.iter().map(|p| p.steps).collect();
        assert_eq!(
            steps,
            [10.0, 40.0, 50.0],
            "short row, word for a number, steps that do not rise, half a row"
        );
        assert!(notes[0].contains("half-written") && notes[1].contains("3 rows of"), "{notes:?}");
    }
}
