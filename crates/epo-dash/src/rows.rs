//! The rows of a run's `progress.csv` in memory: which quantities are kept, and sums over all rows.

use epo_algos::report as metrics;

/// A quantity that curves can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// Name in requests and answers.
    pub(crate) key: &'static str,
    /// Column of `progress.csv`.
    column: &'static str,
}

/// Quantities in the order in which rows are stored. The last one is computed, not read.
pub(crate) const QUANTITIES: [Quantity; 17] = [
    Quantity { key: "ret", column: "Metrics/EpRet" },
    Quantity { key: "cost", column: "Metrics/EpCost" },
    Quantity { key: "time", column: "Time/Total" },
    Quantity { key: "fps", column: "Time/FPS" },
    Quantity { key: "mu", column: metrics::MU.key },
    Quantity { key: "alpha", column: metrics::ALPHA.key },
    Quantity { key: "psi", column: metrics::PSI.key },
    Quantity { key: "weight", column: metrics::COST_WEIGHT.key },
    Quantity { key: "f", column: metrics::F_HAT.key },
    Quantity { key: "lambda", column: metrics::LAMBDA.key },
    Quantity { key: "kappa", column: metrics::KAPPA.key },
    Quantity { key: "explained_r", column: metrics::EXPLAINED_R.key },
    Quantity { key: "explained_c", column: metrics::EXPLAINED_C.key },
    Quantity { key: "kl", column: metrics::KL.key },
    Quantity { key: "feasible", column: "Metrics/FeasibleRate" },
    Quantity { key: "entropy", column: metrics::ENTROPY.key },
    Quantity { key: "excess", column: "" },
];

/// Place of the return in [`QUANTITIES`].
pub(crate) const RET: usize = 0;
/// Place of the cost.
pub(crate) const COST: usize = 1;
/// Place of the time since the start of the run.
pub(crate) const TIME: usize = 2;
/// Place of the speed.
pub(crate) const FPS: usize = 3;
/// Place of the sum of the excess over the limit.
pub(crate) const EXCESS: usize = 16;

/// Maximum number of rows that are kept of a run. Of a longer run, every second, fourth, … row is kept.
pub(crate) const MOST_ROWS: usize = 4096;

/// Rows of `progress.csv`, column by column.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Epoch of each kept row, from 0.
    pub(crate) epoch: Vec<u32>,
    /// Environment steps at the end of each kept row.
    pub(crate) steps: Vec<f64>,
    /// Values of [`QUANTITIES`]; NaN if the cell is empty. A quantity that the file lacks is an empty list.
    pub(crate) values: Vec<Vec<f32>>,
    /// Every `stride`-th row is kept.
    pub(crate) stride: usize,
}

/// Sums over all rows, also over those that are not kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Number of rows, which is the number of finished epochs.
    pub(crate) epochs: usize,
    /// Number of rows with a cost.
    pub(crate) counted: usize,
    /// Number of rows with a cost above the limit.
    pub(crate) above: usize,
    /// Sum of `max(0, cost − limit)`.
    pub(crate) excess: f64,
    /// Row from which on no cost is above the limit.
    pub(crate) stays_from: Option<usize>,
    /// Environment steps.
    pub(crate) steps: f64,
    /// Number of rows that could not be read.
    pub(crate) broken: usize,
}

/// Indices of the columns that are read.
#[derive(Debug)]
pub(crate) struct Places {
    columns: usize,
    steps: usize,
    /// For each column of the file: the quantity that it holds.
    quantity: Vec<Option<usize>>,
}

impl Places {
    pub(crate) fn of(header: &str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(|c| c.trim().trim_matches('"')).collect();
        let find = |name: &str| names.iter().position(|c| *c == name);
        let need = |name: &str| find(name).ok_or_else(|| format!("progress.csv has no column {name}."));
        need(QUANTITIES[RET].column)?;
        need(QUANTITIES[COST].column)?;
        let of = |name: &&str| QUANTITIES[..EXCESS].iter().position(|q| q.column == *name);
        Ok(Self {
            columns: names.len(),
            steps: need("TotalEnvSteps")?,
            quantity: names.iter().map(of).collect(),
        })
    }
}

impl Rows {
    pub(crate) fn start(&mut self) {
        self.stride = 1;
        self.values = vec![Vec::new(); QUANTITIES.len()];
    }

    /// Last value of a quantity that is a number.
    pub(crate) fn last(&self, quantity: usize) -> Option<f64> {
        self.values.get(quantity)?.iter().rev().find(|v| v.is_finite()).map(|&v| f64::from(v))
    }

    pub(crate) fn push(&mut self, line: &str, places: &Places, limit: Option<f64>, sums: &mut Sums) {
        let mut row = [f32::NAN; QUANTITIES.len()];
        let (mut steps, mut columns) = (f64::NAN, 0);
        for (i, cell) in line.split(',').enumerate() {
            columns += 1;
            if i == places.steps {
                steps = cell.trim().parse().unwrap_or(f64::NAN);
            } else if let Some(Some(q)) = places.quantity.get(i) {
                row[*q] = cell.trim().parse().ok().filter(|v: &f32| v.is_finite()).unwrap_or(f32::NAN);
            }
        }
        if columns != places.columns || !(steps.is_finite() && steps > sums.steps) {
            sums.broken += 1;
            return;
        }
        sums.steps = steps;
        let (epoch, cost) = (sums.epochs, f64::from(row[COST]));
        sums.epochs += 1;
        if let Some(limit) = limit.filter(|_| cost.is_finite()) {
            sums.counted += 1;
            if cost > limit {
                sums.above += 1;
                sums.excess += cost - limit;
                sums.stays_from = None;
            } else {
                sums.stays_from.get_or_insert(epoch);
            }
            row[EXCESS] = sums.excess as f32;
        }
        if epoch % self.stride != 0 {
            return;
        }
        self.epoch.push(epoch as u32);
        self.steps.push(steps);
        for (q, value) in row.into_iter().enumerate() {
            if q == EXCESS || places.quantity.contains(&Some(q)) {
                self.values[q].push(value);
            }
        }
        if self.steps.len() > MOST_ROWS {
            self.thin();
        }
    }

    /// Frees memory that more rows would have used.
    pub(crate) fn shrink(&mut self) {
        self.epoch.shrink_to_fit();
        self.steps.shrink_to_fit();
        self.values.iter_mut().for_each(Vec::shrink_to_fit);
    }

    /// Keeps every second row.
    fn thin(&mut self) {
        fn halve<T>(list: &mut Vec<T>) {
            let mut i = 0;
            list.retain(|_| {
                i += 1;
                i % 2 == 1
            });
        }
        halve(&mut self.epoch);
        halve(&mut self.steps);
        self.values.iter_mut().for_each(halve);
        self.stride *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if a quantity is inserted and a place is not changed.
    #[test]
    fn the_places_are_those_of_the_quantities() {
        let keys = [RET, COST, TIME, FPS, EXCESS].map(|place| QUANTITIES[place].key);
        assert_eq!(keys, ["ret", "cost", "time", "fps", "excess"]);
    }
}
