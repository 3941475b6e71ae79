//! Conjugate gradient for `H x = b` with `H` symmetric and positive definite, known only by its products.
//!
//! Source: Hestenes & Stiefel, 1952.

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgInfo {
    /// Products `H p` made.
    pub iters: usize,
    /// `‖b − H x‖` as the recurrence has it.
    pub residual: f64,
}

/// A direction of non-positive (or not-a-number) curvature was met.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the matrix is not positive definite: pᵀHp = {curvature}")]
pub struct NotPositiveDefinite {
    /// `pᵀHp`.
    pub curvature: f64,
}

/// Buffers of a solve, kept between solves.
#[derive(Clone, Debug, Default)]
pub struct CgScratch {
    r: Vec<f64>,
    p: Vec<f64>,
    hp: Vec<f64>,
}

/// Solves `H x = b` from `x = 0`; stops when `‖r‖ ≤ tol ‖b‖` or after `max_iters` products.
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
/// On a direction of non-positive curvature; `x` is then the iterate before it.
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
        let alpha = rr / curvature; // step that zeroes the residual along p
        for i in 0..x.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * hp[i];
        }
        let rr_new = dot(r, r);
        let beta = rr_new / rr; // keeps the next direction H-orthogonal to this one
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
