//! Numerical checks of the statements of the paper, on random CMDPs.
//!
//! Every check is an inequality "residual ≤ tolerance" that must hold in many cases. A check records its largest
//! residual and the case in which it occurs. If the largest residual is negative, the inequality holds with a margin.
//! [`counter`] contains counter-examples: small cases in which a statement fails because it lacks a condition
//! that the paper does not state.

pub mod counter;
mod penalty;
mod solver;
mod trust;

use serde::Serialize;

use crate::SolveError;

/// The result of checking one statement in many cases.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Short name of the check.
    pub name: &'static str,
    /// The statement, as an inequality or as the residual that must be small.
    pub statement: &'static str,
    /// Number of cases checked.
    pub n: usize,
    /// Largest accepted residual.
    pub tolerance: f64,
    /// Largest residual of all cases.
    pub worst: f64,
    /// The case with the largest residual.
    pub worst_case: String,
    /// Whether there is at least one case and all residuals are within the tolerance.
    pub ok: bool,
    /// Additional measurements, in words. Can be empty.
    pub note: String,
}

/// The complete result of `epo theory`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether every check passes and every counter-example is confirmed.
    pub ok: bool,
    /// Number of random CMDPs per check.
    pub cmdps: usize,
    /// The results of the checks.
    pub checks: Vec<Check>,
    /// Cases in which a statement fails because of a condition that the paper does not state.
    pub counter_examples: Vec<counter::CounterExample>,
}

impl Report {
    /// Creates a report. It is `ok` only if all checks and all counter-examples are.
    pub fn new(cmdps: usize, checks: Vec<Check>, counter_examples: Vec<counter::CounterExample>) -> Self {
        let ok = checks.iter().all(|c| c.ok) && counter_examples.iter().all(|c| c.ok);
        Self { ok, cmdps, checks, counter_examples }
    }
}

/// Collects the residuals of one check.
#[derive(Debug)]
pub(crate) struct Tally {
    check: Check,
}

impl Tally {
    pub(crate) fn new(name: &'static str, tolerance: f64, statement: &'static str) -> Self {
        let (worst, worst_case, note) = (f64::NEG_INFINITY, String::new(), String::new());
        Self { check: Check { name, statement, n: 0, tolerance, worst, worst_case, ok: true, note } }
    }

    /// Adds one case. A NaN fails the check and is then reported as its worst residual.
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
        self.check.ok &= self.check.n > 0; // a check without cases fails
        self.check.note = note.into();
        self.check
    }
}

/// Runs all checks, each on `cmdps` random CMDPs, and returns their results.
///
/// `progress` is called with the completed fraction, from 0 to 1. The result depends only on `cmdps`.
pub fn run(cmdps: usize, mut progress: impl FnMut(f64)) -> Result<Report, SolveError> {
    type Group = fn(usize, &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError>;
    // approximate fractions of the run time, for the progress bar
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
