//! The result of the suite: how often each attack was tried, how often it did harm, and the bound on the
//! failure rate.

use serde::Serialize;

/// Results of one attack.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the attack.
    pub(crate) test: &'static str,
    /// Number of attempts.
    pub(crate) tried: u64,
    /// Number of attempts that did harm.
    pub(crate) failed: u64,
    /// Upper end of the one-sided 95 % confidence interval of the failure rate; 1 if nothing was tried.
    pub(crate) bound: f64,
}

impl Row {
    pub(crate) fn new(test: &'static str, tried: u64, failed: u64) -> Self {
        Self { test, tried, failed, bound: upper_bound(tried, failed) }
    }
}

/// Returns the exact (Clopper–Pearson) upper bound of a failure rate with a confidence of 95 %. Without a failure it is
/// 1 − 0.05^(1/n), which is about 3/n (the rule of three).
pub(crate) fn upper_bound(tried: u64, failed: u64) -> f64 {
    if failed >= tried {
        return 1.0;
    }
    // bisection for the rate at which `failed` or fewer failures have a probability of 5 %
    let (mut low, mut high) = (failed as f64 / tried as f64, 1.0);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if at_most(tried, failed, middle) > 0.05 {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Probability of at most `failed` failures in `tried` attempts at the rate `p`.
fn at_most(tried: u64, failed: u64, p: f64) -> f64 {
    let n = tried as f64;
    let mut log_term = n * (-p).ln_1p();
    let mut sum = log_term.exp();
    for k in 1..=failed {
        let k = k as f64;
        log_term += ((n - k + 1.0) / k).ln() + p.ln() - (-p).ln_1p();
        sum += log_term.exp();
    }
    sum
}

/// Returns the table as text.
pub(crate) fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.test.chars().count()).max().unwrap_or(4);
    let mut text =
        format!("{:width$} {:>8} {:>7}  bound on the failure rate (95 %)", "test", "tried", "failed");
    for Row { test, tried, failed, bound } in rows {
        text += &format!("\n{test:width$} {tried:>8} {failed:>7}  {bound:.2e}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_agrees_with_published_values() {
        assert!((upper_bound(1000, 0) - 0.002_991).abs() < 1e-6, "the rule of three");
        assert!((upper_bound(10, 1) - 0.394_163).abs() < 1e-6, "table of Clopper and Pearson");
        assert!((upper_bound(20, 5) - 0.455_582).abs() < 1e-6, "solved with exact binomial coefficients");
        assert_eq!((upper_bound(0, 0), upper_bound(3, 3)), (1.0, 1.0));
    }
}
