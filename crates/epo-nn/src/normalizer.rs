//! Normalisation of observations by their running mean and standard deviation.
//!
//! ```text
//! x̂ = clip((x − mean) / max(std, 0.01), ±5)
//! ```
//!
//! Each environment updates its own [`Moments`] while it collects. Between epochs they are merged into the
//! [`Normalizer`] in a fixed order, so the result does not depend on the number of threads. The normaliser does not
//! change while environments collect. `std` is the sample standard deviation (n − 1).
//!
//! Sources: Welford 1962 (one observation at a time), Chan, Golub & LeVeque 1979 (merging).

use crate::tiny::narrow;

/// Lower bound on the standard deviation.
const STD_FLOOR: f64 = 0.01;
/// Largest magnitude of a normalised observation.
const CLIP: f64 = 5.0;

/// Number of observations, and their mean and sum of squared deviations per dimension, in `f64`.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    count: u64,
    mean: Vec<f64>,
    m2: Vec<f64>,
}

impl Moments {
    /// Empty statistics of dimension `dim`.
    pub fn new(dim: usize) -> Self {
        Self { count: 0, mean: vec![0.0; dim], m2: vec![0.0; dim] }
    }

    /// Statistics from a checkpoint.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn from_parts(count: u64, mean: Vec<f64>, m2: Vec<f64>) -> Self {
        assert_eq!(mean.len(), m2.len(), "mean and m2");
        Self { count, mean, m2 }
    }

    /// Adds one observation.
    ///
    /// # Panics
    /// If the length of `x` is not the dimension.
    pub fn push(&mut self, x: &[f64]) {
        assert_eq!(x.len(), self.mean.len(), "observation");
        self.count += 1;
        let weight = 1.0 / self.count as f64;
        for ((x, mean), m2) in x.iter().zip(&mut self.mean).zip(&mut self.m2) {
            let delta = x - *mean;
            *mean += delta * weight;
            *m2 += delta * (x - *mean);
        }
    }

    /// Adds all observations of `other`.
    ///
    /// # Panics
    /// If the dimensions differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(other.mean.len(), self.mean.len(), "moments");
        if other.count == 0 {
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let n = a + b;
        for i in 0..self.mean.len() {
            let delta = other.mean[i] - self.mean[i];
            self.mean[i] += delta * (b / n);
            self.m2[i] += other.m2[i] + delta * delta * (a * b / n);
        }
        self.count += other.count;
    }

    /// Removes all observations.
    pub fn clear(&mut self) {
        self.count = 0;
        self.mean.fill(0.0);
        self.m2.fill(0.0);
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean per dimension.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Sum of squared deviations from the mean, per dimension.
    pub fn m2(&self) -> &[f64] {
        &self.m2
    }
}

/// Normalises observations by the statistics merged into it. With fewer than two observations it is the identity,
/// without clipping.
///
/// ```
/// use epo_nn::{Moments, Normalizer};
/// let mut norm = Normalizer::new(1);
/// let mut out = [0.0];
/// norm.normalize(&[7.0], &mut out);
/// assert_eq!(out, [7.0]); // no observation was merged
/// let mut seen = Moments::new(1);
/// for x in [1.0, 2.0, 3.0] { seen.push(&[x]); } // mean 2, deviation 1
/// norm.merge(&seen);
/// norm.normalize(&[3.5], &mut out);
/// assert_eq!(out, [1.5]);
/// norm.normalize(&[99.0], &mut out);
/// assert_eq!(out, [5.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Normalizer {
    moments: Moments,
    scale: Vec<f64>,
}

impl Normalizer {
    /// A normaliser of dimension `dim` without observations: the identity.
    pub fn new(dim: usize) -> Self {
        Self::from_moments(Moments::new(dim))
    }

    /// A normaliser with the given statistics.
    pub fn from_moments(moments: Moments) -> Self {
        let mut this = Self { scale: vec![1.0; moments.mean.len()], moments };
        this.refresh();
        this
    }

    /// Adds the observations of an environment. The order of calls affects the last digits, so it has to be fixed.
    pub fn merge(&mut self, seen: &Moments) {
        self.moments.merge(seen);
        self.refresh();
    }

    /// Statistics of all merged observations.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Mean and factor per dimension, and the largest magnitude: `x̂ = clip((x − mean) · factor, ±bound)`. `None` if the
    /// normaliser is the identity.
    pub fn transform(&self) -> Option<(&[f64], &[f64], f64)> {
        (self.moments.count >= 2).then_some((&self.moments.mean, &self.scale, CLIP))
    }

    /// Writes the normalised observation to `out`.
    ///
    /// # Panics
    /// If a length differs.
    pub fn normalize(&self, obs: &[f64], out: &mut [f32]) {
        assert_eq!(obs.len(), self.scale.len(), "observation");
        assert_eq!(out.len(), self.scale.len(), "normalised observation");
        if self.moments.count < 2 {
            for (out, x) in out.iter_mut().zip(obs) {
                *out = narrow(*x);
            }
            return;
        }
        for (((out, x), mean), scale) in out.iter_mut().zip(obs).zip(&self.moments.mean).zip(&self.scale) {
            *out = narrow(((x - mean) * scale).clamp(-CLIP, CLIP));
        }
    }

    /// Computes the scales from the moments.
    fn refresh(&mut self) {
        if self.moments.count < 2 {
            return;
        }
        let weight = 1.0 / (self.moments.count - 1) as f64;
        for (scale, m2) in self.scale.iter_mut().zip(&self.moments.m2) {
            *scale = 1.0 / (m2 * weight).sqrt().max(STD_FLOOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use epo_core::{Purpose, Stream};

    fn rows(n: usize) -> Vec<[f64; 2]> {
        let mut stream = Stream::new(1, Purpose::Random, 0);
        (0..n).map(|_| [1e3 + 2.0 * stream.normal(), stream.uniform() - 0.5]).collect()
    }

    /// This test fails if a merge leaves out the difference of the means, or does not update the count.
    #[test]
    fn merged_moments_agree_with_one_pass_and_with_two() {
        let rows = rows(1000);
        let mut one = Moments::new(2);
        rows.iter().for_each(|r| one.push(r));
        let mut merged = Moments::new(2);
        for part in [&rows[..0], &rows[..1], &rows[1..400], &rows[400..]] {
            let mut moments = Moments::new(2);
            part.iter().for_each(|r| moments.push(r));
            merged.merge(&moments);
        }
        assert_eq!(merged.count(), 1000);
        for j in 0..2 {
            let mean = rows.iter().map(|r| r[j]).sum::<f64>() / 1000.0;
            let m2 = rows.iter().map(|r| (r[j] - mean).powi(2)).sum::<f64>();
            for got in [&one, &merged] {
                assert!((got.mean()[j] - mean).abs() < 1e-11 * mean.abs().max(1.0), "mean {j}");
                assert!((got.m2()[j] - m2).abs() < 1e-10 * m2, "m2 {j}: {} for {m2}", got.m2()[j]);
            }
        }
        merged.clear();
        assert_eq!(merged, Moments::new(2));
    }

    /// This test fails if the lower bound applies to the variance instead of the deviation. It also fails if values are
    /// not scaled, or are clipped before that.
    #[test]
    fn values_are_centred_scaled_floored_and_clipped() {
        // mean 2, sample deviation 1; the second dimension is constant
        let norm = Normalizer::from_moments(Moments::from_parts(3, vec![2.0, 4.0], vec![2.0, 0.0]));
        let mut out = [0.0; 2];
        norm.normalize(&[1.25, 4.001], &mut out);
        assert!((out[0] + 0.75).abs() < 1e-7 && (out[1] - 0.1).abs() < 1e-6, "{out:?}");
        norm.normalize(&[100.0, 3.0], &mut out);
        assert_eq!(out, [5.0, -5.0]);
        // NaN stays NaN
        norm.normalize(&[f64::NAN, 4.0], &mut out);
        assert!(out[0].is_nan());
    }

    #[test]
    fn a_restored_normaliser_gives_the_same_bits() {
        let mut norm = Normalizer::new(2);
        for part in rows(100).chunks(33) {
            let mut moments = Moments::new(2);
            part.iter().for_each(|r| moments.push(r));
            norm.merge(&moments);
        }
        let m = norm.moments();
        let again = Moments::from_parts(m.count(), m.mean().to_vec(), m.m2().to_vec());
        assert_eq!(Normalizer::from_moments(again), norm);
    }

    #[test]
    fn with_one_observation_the_normaliser_is_the_identity() {
        let mut norm = Normalizer::new(1);
        norm.merge(&Moments::from_parts(1, vec![9.0], vec![0.0]));
        let mut out = [0.0];
        norm.normalize(&[70.0], &mut out);
        assert_eq!(out, [70.0]);
    }
}
