//! Mean episode cost against its limit.

/// Mean episode cost `J_c` of an iteration and its limit `d`. Finite by construction.
///
/// `f64::max` ignores NaN, so an unchecked NaN cost would reset a multiplier to 0 in silence; this type cannot hold one.
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
    /// `None` if either number is NaN or infinite. The spread is taken as 0.
    pub const fn new(mean: f64, limit: f64) -> Option<Self> {
        Self::with_spread(mean, limit, 0.0)
    }

    /// With the standard deviation of the episode costs that the mean was taken over.
    pub const fn with_spread(mean: f64, limit: f64, spread: f64) -> Option<Self> {
        if mean.is_finite() && limit.is_finite() && spread.is_finite() && spread >= 0.0 {
            Some(Self { mean, limit, spread })
        } else {
            None
        }
    }

    /// `J_c`, the mean undiscounted cost of an episode.
    pub const fn mean(self) -> f64 {
        self.mean
    }

    /// `d`, the limit.
    pub const fn limit(self) -> f64 {
        self.limit
    }

    /// Standard deviation of the episode costs.
    pub const fn spread(self) -> f64 {
        self.spread
    }

    /// `J_c − d`; positive means that the constraint is violated.
    pub const fn excess(self) -> f64 {
        self.mean - self.limit
    }
}
