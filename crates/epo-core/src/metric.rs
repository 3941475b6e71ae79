//! Metrics are constants: declared once, in the file that produces them.

/// A recorded quantity. Its key is the column of `progress.csv` and the tag in TensorBoard.
///
/// ```
/// use epo_core::Metric;
/// pub const MU: Metric = Metric::new("Penalty/Mu", "1", "penalty factor μ; smaller is stricter");
/// assert_eq!(MU.key, "Penalty/Mu");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Column and tag, OmniSafe's where it has one.
    pub key: &'static str,
    /// Unit, `1` if it has none.
    pub unit: &'static str,
    /// One line for the glossary.
    pub meaning: &'static str,
}

impl Metric {
    /// Declares a metric.
    pub const fn new(key: &'static str, unit: &'static str, meaning: &'static str) -> Self {
        Self { key, unit, meaning }
    }
}
