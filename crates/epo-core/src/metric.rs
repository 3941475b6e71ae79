//! Metrics are constants. Each one is declared in the file that computes it.

/// A recorded quantity. Its key is the column name in `progress.csv` and the tag in TensorBoard.
///
/// ```
/// use epo_core::Metric;
/// pub const MU: Metric = Metric::new("Penalty/Mu", "1", "penalty factor μ; smaller is stricter");
/// assert_eq!(MU.key, "Penalty/Mu");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Column name and TensorBoard tag. Metrics that OmniSafe also records have OmniSafe's name.
    pub key: &'static str,
    /// Unit; `1` for a dimensionless quantity.
    pub unit: &'static str,
    /// Description in one line, for the glossary.
    pub meaning: &'static str,
}

impl Metric {
    /// Declares a metric.
    pub const fn new(key: &'static str, unit: &'static str, meaning: &'static str) -> Self {
        Self { key, unit, meaning }
    }
}
