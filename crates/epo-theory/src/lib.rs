//! Tabular constrained MDPs with exact optima, and the paper's theorems as checks.
