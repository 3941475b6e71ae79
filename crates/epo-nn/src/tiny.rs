//! Flushing of tiny numbers to zero, so that no kernel processes a subnormal number.
//!
//! An `f32` below 1.2e-38 is subnormal. Intel processors handle each operation on such a number in microcode, about
//! a hundred times slower than usual. A critic whose targets are all zero drives its weights, gradients and Adam's
//! moments there within a few hundred steps.
//!
//! Numbers below a threshold are therefore replaced by zero at these places:
//!
//! | number | place | threshold |
//! |---|---|---|
//! | observation, `∂L/∂y`, gradient summed over chunks | conversion from `f64`, [`narrow`] | [`TINY`] |
//! | hidden unit `h` | argument of tanh | [`TINY`] |
//! | `δ_l` | product with `1 − h²` | [`TINY`] |
//! | gradient of a weight | end of its sum over the rows; again in Adam | [`TINY`] |
//! | weight | Adam | [`TINY`] |
//! | moments `m` and `v` | Adam | `TINY²` |
//!
//! All factors of a matrix product are then zero or at least `TINY = 2⁻⁵⁰`, so a product is zero or
//! at least `2⁻¹⁰⁰`. A sum of such products could only become subnormal if its terms cancelled in
//! their first 26 binary digits. The moments appear only in products with a rate, so their
//! threshold is smaller.
//!
//! The thresholds are too small to affect training. A weight of order 0.1 does not change when 1e-9 is added. Adam's ε
//! of 1e-8 makes the step of a gradient of `TINY` smaller than 1e-10.
//!
//! The comparison is ordinary arithmetic. It gives the same bits on every processor and does not touch the
//! floating-point mode of the thread. NaN stays NaN.

use pulp::Simd;

/// Smallest magnitude of a number in a matrix product: 2⁻⁵⁰ ≈ 8.9e-16. Smaller ones are replaced by zero.
pub const TINY: f32 = 1.0 / (1_u64 << 50) as f32;

/// `x` as `f32`, or zero if `|x| <` [`TINY`].
///
/// ```
/// use epo_nn::narrow;
/// assert_eq!(narrow(-0.1), -0.1_f32);
/// assert_eq!(narrow(1e-20), 0.0);
/// assert!(narrow(f64::NAN).is_nan());
/// ```
#[inline(always)]
pub fn narrow(x: f64) -> f32 {
    // before the conversion, whose result could be subnormal
    (if x.abs() < f64::from(TINY) { 0.0 } else { x }) as f32
}

/// `x`, or zero where `|x| < threshold`.
#[inline(always)]
pub(crate) fn flush<S: Simd>(simd: S, x: S::f32s, threshold: f32) -> S::f32s {
    let small = simd.less_than_f32s(simd.abs_f32s(x), simd.splat_f32s(threshold));
    simd.select_f32s(small, simd.splat_f32s(0.0), x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Critic;
    use pulp::{Arch, WithSimd};

    struct Flush<'a>(&'a mut [f32]);

    impl WithSimd for Flush<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for x in S::as_mut_simd_f32s(self.0).0 {
                *x = flush(simd, *x, TINY);
            }
        }
    }

    /// This test fails if the sign of a number matters, if the threshold itself becomes zero, or if a NaN becomes zero.
    #[test]
    fn only_numbers_below_the_threshold_become_zero() {
        assert_eq!(TINY, 2_f32.powi(-50));
        let below = TINY.next_down();
        let cases = [
            (TINY, TINY),
            (-TINY, -TINY),
            (below, 0.0),
            (-below, 0.0),
            (1e-45, 0.0),
            (0.0, 0.0),
            (-3.5, -3.5),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ];
        for arch in [Arch::new(), Arch::Scalar] {
            let mut x = cases.map(|(x, _)| [x; 16]); // at least one whole vector each
            arch.dispatch(Flush(x.as_flattened_mut()));
            assert_eq!(x, cases.map(|(_, want)| [want; 16]), "{arch:?}");
            let mut nan = [f32::NAN; 16];
            arch.dispatch(Flush(&mut nan));
            assert!(nan.iter().all(|x| x.is_nan()), "{arch:?}");
        }
        for (x, want) in cases {
            assert_eq!(narrow(f64::from(x)), want);
        }
    }

    /// This test fails if tiny weights or first moments are not set to zero. It does not detect the other
    /// places: gradients are set to zero twice, and second moments decay too slowly. The tests of Adam and of
    /// the kernels check each place alone.
    #[test]
    fn a_critic_with_zero_targets_meets_no_subnormal_number() {
        let mut critic = Critic::new(&[7, 24, 24, 1], 32, 0.0);
        for step in 0..12_000 {
            critic.step();
            for (name, values) in [
                ("weights", critic.net.params()),
                ("gradients", &critic.grad),
                ("first moments", critic.adam.m()),
                ("second moments", critic.adam.v()),
            ] {
                let count = values.iter().filter(|x| x.is_subnormal()).count();
                assert_eq!(count, 0, "{count} subnormal {name} after step {step}");
            }
        }
        // the run did reach the thresholds
        let size = critic.net.params().iter().map(|w| w.abs()).fold(0.0, f32::max);
        let zeros = critic.net.params().iter().filter(|w| **w == 0.0).count();
        assert!(size < 1e-9 && zeros > 0, "largest weight {size}, {zeros} zeros");
    }
}
