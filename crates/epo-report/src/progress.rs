//! Reads `progress.csv`, the record of a run with one row per epoch.

use std::io::{BufRead, Read};

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

impl Progress {
    /// Reads the rows of the file. Rows that are left out are noted.
    pub(crate) fn read(file: impl BufRead, notes: &mut Vec<String>) -> Result<Self, String> {
        let mut rows = RowReader { file, line: Vec::new() };
        let header = rows.next(notes)?.ok_or("progress.csv is empty: the run has not finished an epoch.")?;
        let column = |c: &str| printable(c.trim().trim_matches('"')).into_owned();
        let columns: Vec<String> = header.split(',').map(column).collect();
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
