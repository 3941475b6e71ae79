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
    episodes: usize,
    length: f64,
    step_std: f64,
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
            Some(Self { mean, limit, spread, episodes: 0, length: 0.0, step_std: 0.0 })
        } else {
            None
        }
    }

    /// Adds the number of episodes behind the mean and their mean length in steps.
    pub const fn of_episodes(self, episodes: usize, length: f64) -> Self {
        Self { episodes, length, ..self }
    }

    /// Adds the standard deviation of the cost of a single step.
    pub const fn with_step_std(self, step_std: f64) -> Self {
        Self { step_std, ..self }
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

    /// Standard error of `J_c`: the spread divided by the square root of the number of episodes. 0
    /// if that number is unknown.
    pub fn standard_error(self) -> f64 {
        if self.episodes == 0 { 0.0 } else { self.spread / (self.episodes as f64).sqrt() }
    }

    /// Mean length of the episodes, in steps. 0 if it is unknown.
    pub const fn length(self) -> f64 {
        self.length
    }

    /// Standard deviation of the cost of a single step. 0 if it is unknown.
    pub const fn step_std(self) -> f64 {
        self.step_std
    }

    /// Returns `J_c − d`. A positive value means that the constraint is violated.
    pub const fn excess(self) -> f64 {
        self.mean - self.limit
    }
}
