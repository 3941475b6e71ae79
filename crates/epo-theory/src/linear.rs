//! Solves dense linear systems by Gaussian elimination with partial pivoting. The systems have at most a few hundred
//! rows.

/// Solves `A x = b` and writes the solution to `b`. The matrix `a` is row-major; its contents are overwritten.
///
/// # Panics
/// If the matrix is singular. The callers pass I − γP, and [`crate::Cmdp`] guarantees that it is invertible.
pub(crate) fn solve(a: &mut [f64], b: &mut [f64]) {
    let n = b.len();
    assert_eq!(a.len(), n * n, "square system");
    for k in 0..n {
        // row with the largest pivot in column k
        let p = (k..n).max_by(|&i, &j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs())).unwrap_or(k);
        assert!(a[p * n + k] != 0.0, "singular system at column {k}");
        if p != k {
            for j in k..n {
                a.swap(k * n + j, p * n + j);
            }
            b.swap(k, p);
        }
        // eliminate the column below the pivot
        for i in k + 1..n {
            let f = a[i * n + k] / a[k * n + k];
            if f != 0.0 {
                for j in k..n {
                    a[i * n + j] -= f * a[k * n + j];
                }
                b[i] -= f * b[k];
            }
        }
    }
    for k in (0..n).rev() {
        let tail: f64 = (k + 1..n).map(|j| a[k * n + j] * b[j]).sum();
        b[k] = (b[k] - tail) / a[k * n + k];
    }
}

/// Returns Σ aᵢ bᵢ.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_system_that_needs_pivoting() {
        // 0x + 2y = 4, 3x + y = 5  →  x = 1, y = 2
        let mut b = [4.0, 5.0];
        super::solve(&mut [0.0, 2.0, 3.0, 1.0], &mut b);
        assert!((b[0] - 1.0).abs() < 1e-15 && (b[1] - 2.0).abs() < 1e-15, "{b:?}");
    }
}
