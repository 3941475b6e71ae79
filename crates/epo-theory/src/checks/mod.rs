//! The paper's statements, checked on random CMDPs.
//!
//! Every check is an inequality "residual ≤ tolerance" over many cases; the worst residual and its case are kept. A
//! negative worst residual is room to spare. [`counter`] holds the other half: small explicit cases in which a
//! statement fails without a condition that the paper does not spell out.

pub mod counter;
mod penalty;
mod solver;
mod trust;

use serde::Serialize;

use crate::SolveError;

/// One statement over many cases.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Short name.
    pub name: &'static str,
    /// What is claimed, as an inequality.
    pub statement: &'static str,
    /// How many cases were looked at.
    pub n: usize,
    /// The largest residual that is accepted.
    pub tolerance: f64,
    /// The largest residual seen.
    pub worst: f64,
    /// Where it was seen.
    pub worst_case: String,
    /// Whether all residuals are within the tolerance.
    pub ok: bool,
    /// Anything else that was measured, in words.
    pub note: String,
}

/// Everything that `epo theory` reports.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether every check holds and every counter-example is one.
    pub ok: bool,
    /// Random CMDPs per check.
    pub cmdps: usize,
    /// The statements.
    pub checks: Vec<Check>,
    /// Where statements need a condition that is not spelt out.
    pub counter_examples: Vec<counter::CounterExample>,
}

impl Report {
    /// Passed only if all of it is.
    pub fn new(cmdps: usize, checks: Vec<Check>, counter_examples: Vec<counter::CounterExample>) -> Self {
        let ok = checks.iter().all(|c| c.ok) && counter_examples.iter().all(|c| c.ok);
        Self { ok, cmdps, checks, counter_examples }
    }
}

/// Collects residuals.
#[derive(Debug)]
pub(crate) struct Tally {
    check: Check,
}

impl Tally {
    pub(crate) fn new(name: &'static str, tolerance: f64, statement: &'static str) -> Self {
        let (worst, worst_case, note) = (f64::NEG_INFINITY, String::new(), String::new());
        Self { check: Check { name, statement, n: 0, tolerance, worst, worst_case, ok: true, note } }
    }

    /// Adds one case. A NaN is a failure that stays the worst.
    pub(crate) fn see(&mut self, residual: f64, case: impl FnOnce() -> String) {
        let c = &mut self.check;
        c.n += 1;
        c.ok &= residual <= c.tolerance;
        if residual > c.worst || residual.is_nan() {
            c.worst = residual;
            c.worst_case = case();
        }
    }

    pub(crate) fn finish(mut self, note: impl Into<String>) -> Check {
        self.check.ok &= self.check.n > 0; // a check of nothing is not passed
        self.check.note = note.into();
        self.check
    }
}

/// Runs all checks on `cmdps` random CMDPs each; `progress` is told how much of the whole is done, from 0 to 1.
///
/// The result is a function of `cmdps` alone.
pub fn run(cmdps: usize, mut progress: impl FnMut(f64)) -> Result<Report, SolveError> {
    type Group = fn(usize, &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError>;
    // rough shares of the run time, for the progress bar
    let groups: [(Group, f64); 6] = [
        (solver::agreement, 0.10),
        (penalty::properties1, 0.02),
        (penalty::lemma1, 0.25),
        (penalty::theorem1, 0.03),
        (penalty::corollary1, 0.55),
        (trust::bounds, 0.05),
    ];
    let (mut checks, mut before) = (vec![], 0.0);
    for (group, share) in groups {
        checks.extend(group(cmdps, &mut |i| progress(before + share * (i + 1) as f64 / cmdps as f64))?);
        before += share;
    }
    Ok(Report::new(cmdps, checks, counter::all()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_keeps_the_worst_and_never_passes_on_nan_or_nothing() {
        let mut t = Tally::new("t", 1.0, "");
        t.see(-2.0, || "a".into());
        t.see(0.5, || "b".into());
        let c = t.finish("");
        assert!(c.ok && c.n == 2 && c.worst == 0.5 && c.worst_case == "b");
        let mut t = Tally::new("t", 1.0, "");
        t.see(f64::NAN, || "n".into());
        t.see(0.0, || "z".into());
        let c = t.finish("");
        assert!(!c.ok && c.worst.is_nan() && c.worst_case == "n");
        assert!(!Tally::new("t", 1.0, "").finish("").ok);
    }
}
