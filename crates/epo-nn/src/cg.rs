//! The conjugate gradient method for `H x = b`, with `H` symmetric and positive definite and given by its product with
//! a vector.
//!
//! Source: Hestenes & Stiefel, 1952.

/// Number of iterations and residual of a solution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgInfo {
    /// Number of products `H p`.
    pub iters: usize,
    /// `‖b − H x‖`, computed by the recurrence of the method.
    pub residual: f64,
}

/// The error that `pᵀHp` is not positive, or NaN, for a direction `p`.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the matrix is not positive definite: pᵀHp = {curvature}")]
pub struct NotPositiveDefinite {
    /// `pᵀHp`.
    pub curvature: f64,
}

/// Buffers of [`conjugate_gradient`], reused between calls.
#[derive(Clone, Debug, Default)]
pub struct CgScratch {
    r: Vec<f64>,
    p: Vec<f64>,
    hp: Vec<f64>,
}

/// Solves `H x = b`, starting at `x = 0`. Stops when `‖b − H x‖ ≤ tol ‖b‖` or after `max_iters` products.
///
/// ```
/// use epo_nn::{CgScratch, conjugate_gradient};
/// let mut x = [0.0; 2];
/// let h = |p: &[f64], hp: &mut [f64]| (hp[0], hp[1]) = (2.0 * p[0], 4.0 * p[1]);
/// let info = conjugate_gradient(h, &[2.0, 8.0], &mut x, 10, 1e-12, &mut CgScratch::default())?;
/// assert_eq!(info.iters, 2); // two distinct eigenvalues
/// assert!((x[0] - 1.0).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12);
/// # Ok::<(), epo_nn::NotPositiveDefinite>(())
/// ```
///
/// # Errors
/// If a direction has a curvature that is not positive. `x` is then the last iterate before it.
///
/// # Panics
/// If `b` and `x` differ in length.
pub fn conjugate_gradient(
    mut apply_h: impl FnMut(&[f64], &mut [f64]),
    b: &[f64],
    x: &mut [f64],
    max_iters: usize,
    tol: f64,
    scratch: &mut CgScratch,
) -> Result<CgInfo, NotPositiveDefinite> {
    assert_eq!(b.len(), x.len(), "b and x");
    let CgScratch { r, p, hp } = scratch;
    for buffer in [&mut *r, &mut *p, &mut *hp] {
        buffer.clear();
        buffer.extend_from_slice(b);
    }
    x.fill(0.0);
    let mut rr = dot(r, r);
    let stop = tol * tol * rr;
    let mut iters = 0;
    while iters < max_iters && rr > stop {
        apply_h(p, hp);
        let curvature = dot(p, hp);
        if curvature.is_nan() || curvature <= 0.0 {
            return Err(NotPositiveDefinite { curvature });
        }
        let alpha = rr / curvature; // makes the residual orthogonal to p
        for i in 0..x.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * hp[i];
        }
        let rr_new = dot(r, r);
        let beta = rr_new / rr; // makes the next direction H-orthogonal to this one
        for i in 0..x.len() {
            p[i] = r[i] + beta * p[i];
        }
        (rr, iters) = (rr_new, iters + 1);
    }
    Ok(CgInfo { iters, residual: rr.sqrt() })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use epo_core::{Purpose, Stream};

    /// `H = AᵀA + I/10` of size n, dense.
    fn random_spd(n: usize, stream: &mut Stream) -> Vec<f64> {
        let a: Vec<f64> = (0..n * n).map(|_| stream.normal()).collect();
        let entry = |i: usize, j: usize| (0..n).map(|k| a[k * n + i] * a[k * n + j]).sum::<f64>();
        (0..n * n).map(|ij| entry(ij / n, ij % n) + if ij / n == ij % n { 0.1 } else { 0.0 }).collect()
    }

    fn times<'a>(h: &'a [f64]) -> impl FnMut(&[f64], &mut [f64]) + 'a {
        |p, hp| {
            for (hp, row) in hp.iter_mut().zip(h.chunks_exact(p.len())) {
                *hp = dot(row, p);
            }
        }
    }

    /// This test fails if α or β is wrong, or if scratch space affects the next solution.
    #[test]
    fn random_systems_are_solved() {
        let mut stream = Stream::new(1, Purpose::Problem, 0);
        let mut scratch = CgScratch::default();
        for n in [1, 2, 10, 30, 3] {
            let h = random_spd(n, &mut stream);
            let b: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
            let mut x = vec![7.0; n]; // the initial `x` is ignored
            let info = conjugate_gradient(times(&h), &b, &mut x, 3 * n, 1e-10, &mut scratch).unwrap();
            let mut hx = vec![0.0; n];
            times(&h)(&x, &mut hx);
            let error = hx.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            assert!(error < 1e-8 * dot(&b, &b).sqrt(), "n = {n}: residual {error}");
            assert!(info.residual <= 1e-10 * dot(&b, &b).sqrt() && info.iters > 0, "{info:?}");
        }
    }

    #[test]
    fn non_positive_curvature_is_an_error() {
        let mut x = [0.0; 2];
        let negative = |p: &[f64], hp: &mut [f64]| (hp[0], hp[1]) = (-3.0 * p[0], p[1]);
        let error = conjugate_gradient(negative, &[2.0, 0.0], &mut x, 9, 1e-9, &mut CgScratch::default());
        assert_eq!(error, Err(NotPositiveDefinite { curvature: -12.0 }));
        let nan = |_: &[f64], hp: &mut [f64]| hp.fill(f64::NAN);
        assert!(conjugate_gradient(nan, &[2.0, 0.0], &mut x, 9, 1e-9, &mut CgScratch::default()).is_err());
    }

    #[test]
    fn a_zero_right_side_needs_no_product() {
        let mut x = [3.0];
        let never = |_: &[f64], _: &mut [f64]| panic!("a product for b = 0");
        let info = conjugate_gradient(never, &[0.0], &mut x, 9, 1e-9, &mut CgScratch::default()).unwrap();
        assert_eq!((info.iters, info.residual, x), (0, 0.0, [0.0]));
    }
}
