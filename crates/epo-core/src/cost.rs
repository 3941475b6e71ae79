//! Mean episode cost and its limit.

/// Mean episode cost `J_c` of an epoch, its limit `d`, and the spread of the episode costs. All are finite.
///
/// `f64::max` ignores NaN, so an unchecked NaN cost would silently reset a multiplier to 0. The constructors
/// therefore reject NaN.
///
/// ```
/// use epo_core::CostReading;
/// let reading = CostReading::new(40.0, 25.0).ok_or("not finite")?;
/// assert_eq!(reading.excess(), 15.0);
/// assert!(CostReading::new(f64::NAN, 25.0).is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostReading {
    mean: f64,
    limit: f64,
    spread: f64,
}

impl CostReading {
    /// Returns the reading with spread 0, or `None` if one of the numbers is NaN or infinite.
    pub const fn new(mean: f64, limit: f64) -> Option<Self> {
        Self::with_spread(mean, limit, 0.0)
    }

    /// Returns the reading with `spread`, the standard deviation of the episode costs.
    ///
    /// Returns `None` if a number is NaN or infinite, or if `spread` is negative.
    pub const fn with_spread(mean: f64, limit: f64, spread: f64) -> Option<Self> {
        if mean.is_finite() && limit.is_finite() && spread.is_finite() && spread >= 0.0 {
            Some(Self { mean, limit, spread })
        } else {
            None
        }
    }

    /// `J_c`, the mean undiscounted episode cost.
    pub const fn mean(self) -> f64 {
        self.mean
    }

    /// `d`, the limit on the mean episode cost.
    pub const fn limit(self) -> f64 {
        self.limit
    }

    /// Standard deviation of the episode costs.
    pub const fn spread(self) -> f64 {
        self.spread
    }

    /// Returns `J_c − d`. A positive value means that the constraint is violated.
    pub const fn excess(self) -> f64 {
        self.mean - self.limit
    }
}
