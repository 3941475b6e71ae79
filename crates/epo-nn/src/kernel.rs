//! Matrix products and tanh for small networks, generic over the instruction set (`pulp`).
//!
//! Two products are enough for a network. Both keep a tile of up to 6 × 2 vectors in registers:
//!
//! ```text
//! product       C[m][j] = Σ_k A[m][k] B[k][j]    B packed in panels of two vectors' width
//! outer_product C[i][j] = Σ_m A[m][i] D[m][j]    D row-major, its rows padded to whole vectors
//! ```
//!
//! Every element of C is one chain of multiply-adds in the order of the sum, whatever the tile it falls in: so
//! the bits of a row depend neither on the size of the batch nor on the row's place in it, nor on the width of a
//! vector. The portable instruction set does not fuse the multiply-add, so its last bits differ.

use pulp::Simd;

/// Rows of a tile: 6 × 2 accumulators, two vectors of B and one of A fill 15 of 16 registers.
const TILE_ROWS: usize = 6;

/// Columns of `n` padded to whole vectors.
pub(crate) fn padded(n: usize, lanes: usize) -> usize {
    n.div_ceil(lanes) * lanes
}

/// Packs `B` (`depth × n`, dense) in panels: panel, then k, then the panel's columns. All panels are two vectors
/// wide but a last one of at most one vector. Padding is zero.
#[inline(always)]
pub(crate) fn pack<S: Simd>(simd: S, b: &[f32], n: usize, panels: &mut [f32]) {
    let lanes = S::F32_LANES;
    let depth = b.len() / n;
    for first in (0..n).step_by(2 * lanes) {
        let panel = S::as_mut_simd_f32s(&mut panels[first * depth..]).0;
        if n - first >= 2 * lanes {
            for (row, dst) in b.chunks_exact(n).zip(panel.as_chunks_mut::<2>().0) {
                dst.copy_from_slice(&S::as_simd_f32s(&row[first..]).0[..2]);
            }
        } else if n - first > lanes {
            for (row, dst) in b.chunks_exact(n).zip(panel.as_chunks_mut::<2>().0) {
                let (whole, part) = row[first..].split_at(lanes);
                *dst = [S::as_simd_f32s(whole).0[0], simd.partial_load_f32s(part)];
            }
        } else {
            for (row, dst) in b.chunks_exact(n).zip(panel) {
                *dst = simd.partial_load_f32s(&row[first..]);
            }
        }
    }
}

/// Packs the transpose of `w` (`n × depth`, dense) as [`pack`] would.
#[inline(always)]
pub(crate) fn pack_transposed<S: Simd>(w: &[f32], depth: usize, panels: &mut [f32]) {
    let n = w.len() / depth;
    let width = 2 * S::F32_LANES;
    for first in (0..n).step_by(width) {
        let padded = padded((n - first).min(width), S::F32_LANES);
        let panel = &mut panels[first * depth..][..padded * depth];
        let mut rows = w[first * depth..].chunks_exact(depth).take(padded).enumerate();
        // eight rows at a time in squares of eight: the compiler turns a square into shuffles
        while let Some((r, row0)) = rows.next() {
            if rows.len() >= 7 {
                let mut square = [row0; 8];
                for row in &mut square[1..] {
                    *row = rows.next().map_or(row0, |(_, row)| row);
                }
                transpose_rows(square, r, padded, panel);
            } else {
                for (dst, w) in panel[r..].iter_mut().step_by(padded).zip(row0) {
                    *dst = *w;
                }
            }
        }
    }
}

/// Writes eight rows as eight columns, from column `r` on, of a matrix with stride `ld`.
#[inline(always)]
fn transpose_rows(rows: [&[f32]; 8], r: usize, ld: usize, out: &mut [f32]) {
    let depth = rows[0].len();
    let mut k = 0;
    while k + 8 <= depth {
        let mut square = [[0.0_f32; 8]; 8];
        for i in 0..8 {
            let row = &rows[i][k..k + 8];
            for j in 0..8 {
                square[j][i] = row[j];
            }
        }
        for (j, column) in square.iter().enumerate() {
            out[(k + j) * ld + r..][..8].copy_from_slice(column);
        }
        k += 8;
    }
    for k in k..depth {
        for i in 0..8 {
            out[k * ld + r + i] = rows[i][k];
        }
    }
}

/// One factor pair of a product: rows of `a` with stride `lda`, the first `depth` columns used; packed `b`.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) lda: usize,
    pub(crate) depth: usize,
    pub(crate) b: &'a [f32],
    /// Rows that each panel of `b` has; at least `depth`.
    pub(crate) b_depth: usize,
}

/// `C = Σ_f A_f B_f` over the factor pairs, `rows × n`, stored with stride `ldc` and padded columns.
#[inline(always)]
pub(crate) fn product<S: Simd, const F: usize>(
    simd: S,
    factors: [Factors<'_>; F],
    rows: usize,
    n: usize,
    c: &mut [f32],
    ldc: usize,
) {
    for first in (0..n).step_by(2 * S::F32_LANES) {
        let mut panel = factors;
        for f in &mut panel {
            f.b = &f.b[first * f.b_depth..];
        }
        if n - first > S::F32_LANES {
            product_panel::<S, F, 2>(simd, panel, rows, &mut c[first..], ldc);
        } else {
            product_panel::<S, F, 1>(simd, panel, rows, &mut c[first..], ldc);
        }
    }
}

#[inline(always)]
fn product_panel<S: Simd, const F: usize, const NV: usize>(
    simd: S,
    mut factors: [Factors<'_>; F],
    rows: usize,
    mut c: &mut [f32],
    ldc: usize,
) {
    for size in even_tiles(rows) {
        match size {
            6 => product_tile::<S, F, 6, NV>(simd, &factors, c, ldc),
            5 => product_tile::<S, F, 5, NV>(simd, &factors, c, ldc),
            4 => product_tile::<S, F, 4, NV>(simd, &factors, c, ldc),
            3 => product_tile::<S, F, 3, NV>(simd, &factors, c, ldc),
            2 => product_tile::<S, F, 2, NV>(simd, &factors, c, ldc),
            _ => product_tile::<S, F, 1, NV>(simd, &factors, c, ldc),
        }
        // the slices move on, so that the inner loop has no index to compute
        for f in &mut factors {
            f.a = &f.a[(size * f.lda).min(f.a.len())..];
        }
        let end = (size * ldc).min(c.len());
        c = &mut c[end..];
    }
}

#[inline(always)]
fn product_tile<S: Simd, const F: usize, const MR: usize, const NV: usize>(
    simd: S,
    factors: &[Factors<'_>; F],
    c: &mut [f32],
    ldc: usize,
) {
    let mut acc = [[simd.splat_f32s(0.0); NV]; MR];
    for f in factors {
        let panel = &S::as_simd_f32s(f.b).0.as_chunks::<NV>().0[..f.depth];
        let mut a = [&f.a[..0]; MR];
        for r in 0..MR {
            a[r] = &f.a[r * f.lda..][..panel.len()];
        }
        for (k, b) in panel.iter().enumerate() {
            for r in 0..MR {
                let x = simd.splat_f32s(a[r][k]);
                for v in 0..NV {
                    acc[r][v] = simd.mul_add_e_f32s(x, b[v], acc[r][v]);
                }
            }
        }
    }
    for r in 0..MR {
        let row = S::as_mut_simd_f32s(&mut c[r * ldc..]).0;
        row[..NV].copy_from_slice(&acc[r]);
    }
}

/// `C[i][j] = Σ_m A[m][i] D[m][j]` for `i < rows`, `j < n`; C is dense with stride `n`.
/// `a` and `d` hold the same number of rows, of strides `lda` and `ldd`.
#[inline(always)]
pub(crate) fn outer_product<S: Simd>(
    simd: S,
    a: &[f32],
    lda: usize,
    d: &[f32],
    ldd: usize,
    rows: usize,
    n: usize,
    c: &mut [f32],
) {
    let width = 2 * S::F32_LANES;
    for first in (0..n).step_by(width) {
        if n - first > S::F32_LANES {
            outer_panel::<S, 2>(simd, a, lda, d, ldd, rows, n, first, c);
        } else {
            outer_panel::<S, 1>(simd, a, lda, d, ldd, rows, n, first, c);
        }
    }
}

#[inline(always)]
fn outer_panel<S: Simd, const NV: usize>(
    simd: S,
    a: &[f32],
    lda: usize,
    d: &[f32],
    ldd: usize,
    rows: usize,
    n: usize,
    first: usize,
    c: &mut [f32],
) {
    let mut i = 0;
    for size in even_tiles(rows) {
        match size {
            6 => outer_tile::<S, 6, NV>(simd, a, lda, d, ldd, i, n, first, c),
            5 => outer_tile::<S, 5, NV>(simd, a, lda, d, ldd, i, n, first, c),
            4 => outer_tile::<S, 4, NV>(simd, a, lda, d, ldd, i, n, first, c),
            3 => outer_tile::<S, 3, NV>(simd, a, lda, d, ldd, i, n, first, c),
            2 => outer_tile::<S, 2, NV>(simd, a, lda, d, ldd, i, n, first, c),
            _ => outer_tile::<S, 1, NV>(simd, a, lda, d, ldd, i, n, first, c),
        }
        i += size;
    }
}

#[inline(always)]
fn outer_tile<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    a: &[f32],
    lda: usize,
    d: &[f32],
    ldd: usize,
    i: usize,
    n: usize,
    first: usize,
    c: &mut [f32],
) {
    let mut acc = [[simd.splat_f32s(0.0); NV]; MR];
    let (i_end, v0) = (i + MR, first / S::F32_LANES);
    assert!(i_end <= lda && (v0 + NV) * S::F32_LANES <= ldd, "tile within the rows");
    let d = S::as_simd_f32s(d).0;
    for (a, d) in a.chunks_exact(lda).zip(d.chunks_exact(ldd / S::F32_LANES)) {
        let (a, d) = (&a[i..i_end], &d[v0..v0 + NV]);
        for r in 0..MR {
            let x = simd.splat_f32s(a[r]);
            for v in 0..NV {
                acc[r][v] = simd.mul_add_e_f32s(x, d[v], acc[r][v]);
            }
        }
    }
    for r in 0..MR {
        let row = &mut c[(i + r) * n..][..n];
        for v in 0..NV {
            let at = first + v * S::F32_LANES;
            if at + S::F32_LANES <= n {
                S::as_mut_simd_f32s(&mut row[at..]).0[0] = acc[r][v];
            } else {
                simd.partial_store_f32s(&mut row[at..], acc[r][v]);
            }
        }
    }
}

/// `rows` cut in as few tiles as possible and as evenly as possible.
#[inline(always)]
fn even_tiles(rows: usize) -> impl Iterator<Item = usize> {
    let tiles = rows.div_ceil(TILE_ROWS);
    let (size, larger) = (rows / tiles.max(1), rows % tiles.max(1));
    (0..tiles).map(move |t| size + usize::from(t < larger))
}

/// `out = x B` for one row: the bits of [`product`], four panels at a time to fill the pipeline.
#[inline(always)]
pub(crate) fn product_one<S: Simd>(simd: S, x: &[f32], b: &[f32], n: usize, out: &mut [f32]) {
    let (lanes, depth) = (S::F32_LANES, x.len());
    let mut first = 0;
    while first < n {
        let (b, out) = (&b[first * depth..], &mut out[first..]);
        if n - first > 7 * lanes {
            one_tile::<S, 4, 2>(simd, x, b, out);
            first += 8 * lanes;
        } else if n - first > lanes {
            one_tile::<S, 1, 2>(simd, x, b, out);
            first += 2 * lanes;
        } else {
            one_tile::<S, 1, 1>(simd, x, b, out);
            first += lanes;
        }
    }
}

#[inline(always)]
fn one_tile<S: Simd, const NP: usize, const NV: usize>(simd: S, x: &[f32], b: &[f32], out: &mut [f32]) {
    let mut acc = [[simd.splat_f32s(0.0); NV]; NP];
    let panels = S::as_simd_f32s(b).0.as_chunks::<NV>().0;
    let mut p = [&panels[..0]; NP];
    for i in 0..NP {
        p[i] = &panels[i * x.len()..][..x.len()];
    }
    for k in 0..x.len() {
        let x = simd.splat_f32s(x[k]);
        for i in 0..NP {
            for v in 0..NV {
                acc[i][v] = simd.mul_add_e_f32s(x, p[i][k][v], acc[i][v]);
            }
        }
    }
    let out = S::as_mut_simd_f32s(out).0.as_chunks_mut::<NV>().0;
    out[..NP].copy_from_slice(&acc);
}

/// tanh(x) ≈ x P(x²)/Q(x²) on ±9, cut off at ±1.
///
/// Own least-squares fit, made minimax by Lawson's weights: exact error 1.9e-8; in f32 the largest absolute
/// error is below 4e-7. Odd, since only x itself carries the sign. NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const P: [f32; 5] = [0.999_999_9, 0.133_732, 0.003_486_583_7, 2.047_185_7e-5, 1.318_425_7e-8];
    const Q: [f32; 5] = [1.0, 0.467_064_96, 0.025_841_986, 3.271_388e-4, 7.702_678e-7];
    let s = |c: f32| simd.splat_f32s(c);
    let x = clamp(simd, x, 9.0);
    let y = simd.mul_f32s(x, x);
    let (mut p, mut q) = (s(P[4]), s(Q[4]));
    for i in (0..4).rev() {
        p = simd.mul_add_e_f32s(p, y, s(P[i]));
        q = simd.mul_add_e_f32s(q, y, s(Q[i]));
    }
    clamp(simd, simd.div_f32s(simd.mul_f32s(x, p), q), 1.0)
}

/// x within ±bound; NaN stays NaN.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::f32s, bound: f32) -> S::f32s {
    let (low, high) = (simd.splat_f32s(-bound), simd.splat_f32s(bound));
    if S::IS_SCALAR {
        // `f32::min` would drop the NaN
        let x = simd.select_f32s(simd.greater_than_f32s(x, high), high, x);
        simd.select_f32s(simd.less_than_f32s(x, low), low, x)
    } else {
        // the constant comes first: on x86 min and max return the second operand on NaN
        simd.max_f32s(low, simd.min_f32s(high, x))
    }
}

/// `h = tanh(h)`, padded columns included.
#[inline(always)]
pub(crate) fn tanh_in_place<S: Simd>(simd: S, h: &mut [f32]) {
    for h in S::as_mut_simd_f32s(h).0 {
        *h = tanh(simd, *h);
    }
}

/// `d = d (1 − h²)`.
#[inline(always)]
pub(crate) fn tanh_backward<S: Simd>(simd: S, h: &[f32], d: &mut [f32]) {
    let one = simd.splat_f32s(1.0);
    for (d, h) in S::as_mut_simd_f32s(d).0.iter_mut().zip(S::as_simd_f32s(h).0) {
        let slope = simd.sub_f32s(one, simd.mul_f32s(*h, *h));
        *d = simd.mul_f32s(*d, slope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulp::{Arch, WithSimd};

    struct Tanh<'a>(&'a mut [f32]);

    impl WithSimd for Tanh<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            tanh_in_place(simd, self.0);
        }
    }

    /// Kills: a changed coefficient, a narrower range, a missing cut-off, a NaN turned into a number.
    #[test]
    fn tanh_is_within_4e_7_odd_and_ends_at_one() {
        for arch in [Arch::new(), Arch::Scalar] {
            // whole vectors: 2²⁰ points on ±12, then the ends
            let n = 1 << 20;
            let mut x: Vec<f32> = (0..n).map(|i| (i as f32 / (n - 1) as f32 - 0.5) * 24.0).collect();
            x.extend([0.0, -0.0, 1e-30, 9.0, 40.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
            let (mut y, mut minus) = (x.clone(), x.iter().map(|x| -x).collect::<Vec<_>>());
            arch.dispatch(Tanh(&mut y));
            arch.dispatch(Tanh(&mut minus));
            let (x, nan) = (&x[..n + 7], y[n + 7]);
            let mut worst = 0.0_f64;
            for (i, x) in x.iter().enumerate() {
                worst = worst.max((f64::from(y[i]) - f64::from(*x).tanh()).abs());
                assert_eq!(minus[i], -y[i], "odd at {x}");
                assert!(y[i].abs() <= 1.0 && (x.abs() < 9.0 || y[i].abs() == 1.0), "tanh({x}) = {}", y[i]);
            }
            assert!(worst < 4e-7, "largest error {worst:e}");
            assert!(nan.is_nan(), "tanh(NaN) = {nan}");
        }
    }

    #[test]
    fn tiles_are_even_and_cover_all_rows() {
        for rows in 0..200 {
            let sizes: Vec<usize> = even_tiles(rows).collect();
            assert_eq!(sizes.iter().sum::<usize>(), rows);
            assert_eq!(sizes.len(), rows.div_ceil(TILE_ROWS), "{rows}: no more tiles than needed");
            assert!(sizes.iter().all(|&s| s <= TILE_ROWS && s + 1 >= sizes[0]), "{rows}: {sizes:?}");
        }
    }
}
