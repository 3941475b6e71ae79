//! The rows of a run's `progress.csv` in memory: which quantities are kept, and sums over all rows.

use epo_algos::report as metrics;

/// A quantity that curves can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// Name in requests and answers.
    pub(crate) key: &'static str,
    /// Column of `progress.csv`.
    column: &'static str,
    /// Smallest and largest possible value.
    pub(crate) range: [f64; 2],
}

const ANY: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];
const POSITIVE: [f64; 2] = [0.0, f64::INFINITY];
const SHARE: [f64; 2] = [0.0, 1.0];

/// Quantities in the order in which rows are stored. The last one is computed, not read.
pub(crate) const QUANTITIES: [Quantity; 17] = [
    Quantity { key: "ret", column: "Metrics/EpRet", range: ANY },
    Quantity { key: "cost", column: "Metrics/EpCost", range: POSITIVE },
    Quantity { key: "time", column: "Time/Total", range: POSITIVE },
    Quantity { key: "fps", column: "Time/FPS", range: POSITIVE },
    Quantity { key: "mu", column: metrics::MU.key, range: POSITIVE },
    Quantity { key: "alpha", column: metrics::ALPHA.key, range: SHARE },
    Quantity { key: "psi", column: metrics::PSI.key, range: POSITIVE },
    Quantity { key: "weight", column: metrics::COST_WEIGHT.key, range: POSITIVE },
    Quantity { key: "f", column: metrics::F_HAT.key, range: ANY },
    Quantity { key: "lambda", column: metrics::LAMBDA.key, range: POSITIVE },
    Quantity { key: "kappa", column: metrics::KAPPA.key, range: POSITIVE },
    Quantity { key: "explained_r", column: metrics::EXPLAINED_R.key, range: [f64::NEG_INFINITY, 1.0] },
    Quantity { key: "explained_c", column: metrics::EXPLAINED_C.key, range: [f64::NEG_INFINITY, 1.0] },
    Quantity { key: "kl", column: metrics::KL.key, range: POSITIVE },
    Quantity { key: "feasible", column: "Metrics/FeasibleRate", range: SHARE },
    Quantity { key: "entropy", column: metrics::ENTROPY.key, range: ANY },
    Quantity { key: "excess", column: "", range: POSITIVE },
];

/// Index of the return in [`QUANTITIES`].
pub(crate) const RET: usize = 0;
/// Index of the cost.
pub(crate) const COST: usize = 1;
/// Index of the time since the start of the run.
pub(crate) const TIME: usize = 2;
/// Index of the speed.
pub(crate) const FPS: usize = 3;
/// Index of the sum of the excess over the limit.
pub(crate) const EXCESS: usize = 16;

/// Maximum number of rows of a run that are kept. If a run has more, only the row with the highest
/// cost out of every two, four, … rows is kept, and the newest row.
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
    /// Number of consecutive rows of which one is kept.
    pub(crate) stride: usize,
    /// True if the last row is kept only because it is the newest.
    newest_only: bool,
    /// Sums over all rows, `stride` at a time; empty while every row is kept.
    parts: Vec<Part>,
}

/// Sums of return and cost over consecutive rows, with the numbers of rows that have them.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Environment steps at the end of the last of the rows.
    steps: f64,
    ret: (f64, u32),
    cost: (f64, u32),
}

impl Part {
    fn of(steps: f64, ret: f32, cost: f32) -> Self {
        let sum = |v: f32| if v.is_finite() { (f64::from(v), 1) } else { (0.0, 0) };
        Self { steps, ret: sum(ret), cost: sum(cost) }
    }

    fn add(&mut self, later: Self) {
        let sum = |a: (f64, u32), b: (f64, u32)| (a.0 + b.0, a.1 + b.1);
        *self = Self { steps: later.steps, ret: sum(self.ret, later.ret), cost: sum(self.cost, later.cost) };
    }
}

/// Sums over all rows, including those that are not kept.
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
    /// First of the final rows whose costs are all within the limit.
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
        if std::mem::take(&mut self.newest_only) {
            self.pop();
        }
        let bucket = |epoch: u32| epoch as usize / self.stride;
        let begins = self.epoch.last().is_none_or(|&last| bucket(last) != bucket(epoch as u32));
        if self.stride > 1 {
            let part = Part::of(steps, row[RET], row[COST]);
            match self.parts.last_mut().filter(|_| !begins) {
                Some(last) => last.add(part),
                None => self.parts.push(part),
            }
        }
        if !begins {
            let highest = self.values[COST].last().is_some_and(|&kept| is_higher(row[COST], kept));
            if highest { self.pop() } else { self.newest_only = true }
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

    fn pop(&mut self) {
        self.epoch.pop();
        self.steps.pop();
        for values in &mut self.values {
            values.pop();
        }
    }

    /// Mean return and mean cost over all rows that end after `from` steps, including rows that are
    /// not kept.
    pub(crate) fn means_after(&self, from: f64) -> Option<(f64, f64)> {
        let begin = self.steps.partition_point(|&s| s <= from);
        let kept = |i: usize| Part::of(self.steps[i], self.values[RET][i], self.values[COST][i]);
        let parts: Vec<Part> = match self.parts.is_empty() {
            true => (begin..self.steps.len()).map(kept).collect(),
            false => self.parts[self.parts.partition_point(|p| p.steps <= from)..].to_vec(),
        };
        let sum = parts.into_iter().reduce(|mut sum, part| {
            sum.add(part);
            sum
        })?;
        let mean = |(sum, n): (f64, u32)| (n > 0).then(|| sum / f64::from(n));
        Some((mean(sum.ret)?, mean(sum.cost)?))
    }

    /// Frees memory that more rows would have used.
    pub(crate) fn shrink(&mut self) {
        self.epoch.shrink_to_fit();
        self.steps.shrink_to_fit();
        self.values.iter_mut().for_each(Vec::shrink_to_fit);
    }

    /// Keeps the row with the highest cost of every two kept rows, and the newest row.
    fn thin(&mut self) {
        if self.parts.is_empty() {
            let one = |i: usize| Part::of(self.steps[i], self.values[RET][i], self.values[COST][i]);
            self.parts = (0..self.steps.len()).map(one).collect();
        }
        let rows = self.steps.len();
        self.stride *= 2;
        let (mut keep, mut last_bucket) = (vec![false; rows], None);
        let mut best = 0;
        for i in 0..rows - usize::from(self.newest_only) {
            let bucket = self.epoch[i] as usize / self.stride;
            if last_bucket != Some(bucket) || is_higher(self.values[COST][i], self.values[COST][best]) {
                if last_bucket == Some(bucket) {
                    keep[best] = false;
                }
                (best, keep[i]) = (i, true);
            }
            last_bucket = Some(bucket);
        }
        self.newest_only = !keep[rows - 1];
        keep[rows - 1] = true;
        fn only<T>(list: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter();
            list.retain(|_| keep.next() == Some(&true));
        }
        only(&mut self.epoch, &keep);
        only(&mut self.steps, &keep);
        self.values.iter_mut().for_each(|values| only(values, &keep));
        let parts = self.parts.chunks(2).map(|pair| {
            let mut sum = pair[0];
            pair.get(1).into_iter().for_each(|second| sum.add(*second));
            sum
        });
        self.parts = parts.collect();
    }
}

/// Whether a cost is higher than another; a missing one never is.
fn is_higher(a: f32, b: f32) -> bool {
    a > b || (b.is_nan() && !a.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if the dashboard cannot show a metric that an algorithm names as a headline.
    #[test]
    fn every_headline_of_an_algorithm_can_be_shown() {
        for algo in epo_algos::AlgoConfig::all_defaults() {
            for (symbol, metric) in algo.info().headlines {
                let known = QUANTITIES.iter().any(|quantity| quantity.column == metric.key);
                assert!(
                    known,
                    "{}: add {symbol} ({}) to QUANTITIES and to page/app.js",
                    algo.name(),
                    metric.key
                );
            }
        }
    }

    /// This test fails if a quantity is inserted and an index is not changed.
    #[test]
    fn the_places_are_those_of_the_quantities() {
        let keys = [RET, COST, TIME, FPS, EXCESS].map(|place| QUANTITIES[place].key);
        assert_eq!(keys, ["ret", "cost", "time", "fps", "excess"]);
    }
}
