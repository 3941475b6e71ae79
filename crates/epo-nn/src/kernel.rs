//! Matrix products and tanh for small networks, generic over the instruction set (`pulp`).
//!
//! A network needs two kinds of product. Both keep a tile of C in registers, up to 6 × 2 vectors, or 6 × 4 vectors with
//! AVX-512:
//!
//! ```text
//! product       C[m][j] = Σ_k A[m][k] B[k][j]    followed by tanh or by its slope
//! outer_product C[i][j] = Σ_m A[m][i] D[m][j]
//! ```
//!
//! All matrices are row-major. The rows of B and D are padded to whole vectors.
//!
//! Every element of C is one chain of multiply-adds in the order of the sum, in every tile. The bits of a row therefore
//! depend neither on the size of the batch, nor on the position of the row in it, nor on the width of a vector. The
//! portable instruction set does not fuse the multiply-add, so its last bits differ.
//!
//! Tiny results become zero, see [`crate::tiny`].

use std::slice::ChunksExact;

use pulp::Simd;

use crate::tiny::{TINY, flush};

/// Maximum number of rows in a tile. Accumulators, vectors of B and one of A fill 12 + 2 + 1 of 16 registers, or
/// 24 + 4 + 1 of 32.
const TILE_ROWS: usize = 6;

/// `n` rounded up to whole vectors.
pub(crate) fn padded(n: usize, lanes: usize) -> usize {
    n.div_ceil(lanes) * lanes
}

/// Copies the rows of `w` (dense, `n` wide) to rows of stride `ld`. Padding columns are left unchanged.
#[inline(always)]
pub(crate) fn pad_rows(w: &[f32], n: usize, out: &mut [f32], ld: usize) {
    for (row, out) in w.chunks_exact(n).zip(out.chunks_exact_mut(ld)) {
        // rows are short here, and `copy_from_slice` would be a function call per row
        for (out, w) in out.iter_mut().zip(row) {
            *out = *w;
        }
    }
}

/// Writes the transpose of `w` (dense, `n` wide) to rows of stride `ld`.
#[inline(always)]
pub(crate) fn transpose(w: &[f32], n: usize, out: &mut [f32], ld: usize) {
    // eight rows at a time: a column of them is collected in a vector register and stored at once
    let eights = w.chunks_exact(8 * n);
    let (rest, done) = (eights.remainder(), w.len() / n / 8 * 8);
    for (e, rows) in eights.enumerate() {
        let rows: [&[f32]; 8] = std::array::from_fn(|i| &rows[i * n..][..n]);
        for (j, out) in out.chunks_exact_mut(ld).take(n).enumerate() {
            let column: [f32; 8] = std::array::from_fn(|i| rows[i][j]);
            out[8 * e..][..8].copy_from_slice(&column);
        }
    }
    for (r, row) in rest.chunks_exact(n).enumerate() {
        for (out, w) in out[done + r..].iter_mut().step_by(ld).zip(row) {
            *out = *w;
        }
    }
}

/// The factors A and B of a product. `a` has rows of stride `lda`, of which the first `depth` columns are used. `b` has
/// rows of stride `ldb`, a whole number of vectors.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) lda: usize,
    pub(crate) b: &'a [f32],
    pub(crate) ldb: usize,
    pub(crate) depth: usize,
}

/// What a product does with its result while it is still in the first-level cache.
#[derive(Clone, Copy)]
pub(crate) enum Then<'a> {
    /// Leaves it unchanged.
    Store,
    /// Replaces it by its tanh.
    Tanh,
    /// Multiplies it by `1 − h²`, where `h` is a matrix of the same shape and stride.
    TimesSlope(&'a [f32]),
}

/// `C = Σ_f A_f B_f` over the pairs of factors, `rows × n`, stored with stride `ldc`. Padding columns are written too.
#[inline(always)]
pub(crate) fn product<S: Simd, const F: usize>(
    simd: S,
    factors: [Factors<'_>; F],
    rows: usize,
    n: usize,
    c: &mut [f32],
    ldc: usize,
    then: Then<'_>,
) {
    let factors = &factors.map(|f| Prepared::<S>::new(&f));
    let mut i = 0;
    for size in even_tiles(rows) {
        match size {
            6 => product_rows::<S, F, 6>(simd, factors, i, n, c, ldc, then),
            5 => product_rows::<S, F, 5>(simd, factors, i, n, c, ldc, then),
            4 => product_rows::<S, F, 4>(simd, factors, i, n, c, ldc, then),
            3 => product_rows::<S, F, 3>(simd, factors, i, n, c, ldc, then),
            2 => product_rows::<S, F, 2>(simd, factors, i, n, c, ldc, then),
            _ => product_rows::<S, F, 1>(simd, factors, i, n, c, ldc, then),
        }
        i += size;
    }
}

/// [`Factors`] with the rows of `b` as an iterator. Making the iterator takes a division, which is too slow to repeat
/// for every tile.
struct Prepared<'a, S: Simd> {
    a: &'a [f32],
    lda: usize,
    b: ChunksExact<'a, S::f32s>,
    depth: usize,
}

impl<'a, S: Simd> Prepared<'a, S> {
    #[inline(always)]
    fn new(f: &Factors<'a>) -> Self {
        let b = S::as_simd_f32s(f.b).0.chunks_exact(f.ldb / S::F32_LANES);
        Self { a: f.a, lda: f.lda, b, depth: f.depth }
    }
}

/// Computes `MR` rows of C, tile by tile. B stays in the cache from one call to the next.
#[inline(always)]
fn product_rows<S: Simd, const F: usize, const MR: usize>(
    simd: S,
    factors: &[Prepared<'_, S>; F],
    i: usize,
    n: usize,
    c: &mut [f32],
    ldc: usize,
    then: Then<'_>,
) {
    let vectors = n.div_ceil(S::F32_LANES);
    let mut v = 0;
    while v < vectors {
        let first = v * S::F32_LANES;
        match vectors - v {
            4.. if S::REGISTER_COUNT >= 32 => {
                product_tile::<S, F, MR, 4>(simd, factors, i, first, c, ldc);
                v += 4;
            }
            2.. => {
                product_tile::<S, F, MR, 2>(simd, factors, i, first, c, ldc);
                v += 2;
            }
            _ => {
                product_tile::<S, F, MR, 1>(simd, factors, i, first, c, ldc);
                v += 1;
            }
        }
    }
    let width = padded(n, S::F32_LANES);
    for r in i..i + MR {
        let row = &mut c[r * ldc..][..width];
        match then {
            Then::Store => {}
            Then::Tanh => tanh_in_place(simd, row),
            Then::TimesSlope(h) => times_slope(simd, &h[r * ldc..][..width], row),
        }
    }
}

#[inline(always)]
fn product_tile<S: Simd, const F: usize, const MR: usize, const NV: usize>(
    simd: S,
    factors: &[Prepared<'_, S>; F],
    i: usize,
    first: usize,
    c: &mut [f32],
    ldc: usize,
) {
    let mut acc = [[simd.splat_f32s(0.0); NV]; MR];
    let v0 = first / S::F32_LANES;
    for Prepared { a, lda, b, depth } in factors {
        let mut rows = [&a[..0]; MR];
        for r in 0..MR {
            rows[r] = &a[(i + r) * lda..][..*depth];
        }
        let mut b = b.clone();
        for k in 0..*depth {
            let Some(b) = b.next() else { break };
            let b = &b[v0..v0 + NV];
            for r in 0..MR {
                let x = simd.splat_f32s(rows[r][k]);
                for v in 0..NV {
                    acc[r][v] = simd.mul_add_e_f32s(x, b[v], acc[r][v]);
                }
            }
        }
    }
    for r in 0..MR {
        let row = S::as_mut_simd_f32s(&mut c[(i + r) * ldc + first..]).0;
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
    let vectors = n.div_ceil(S::F32_LANES);
    let mut v = 0;
    while v < vectors {
        let first = v * S::F32_LANES;
        match vectors - v {
            4.. if S::REGISTER_COUNT >= 32 => {
                outer_panel::<S, 4>(simd, a, lda, d, ldd, rows, n, first, c);
                v += 4;
            }
            2.. => {
                outer_panel::<S, 2>(simd, a, lda, d, ldd, rows, n, first, c);
                v += 2;
            }
            _ => {
                outer_panel::<S, 1>(simd, a, lda, d, ldd, rows, n, first, c);
                v += 1;
            }
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
    let v0 = first / S::F32_LANES;
    assert!(i + MR <= lda && (v0 + NV) * S::F32_LANES <= ldd, "tile within the rows");
    let d = S::as_simd_f32s(d).0;
    for (a, d) in a.chunks_exact(lda).zip(d.chunks_exact(ldd / S::F32_LANES)) {
        let (a, d) = (&a[i..i + MR], &d[v0..v0 + NV]);
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
            let (at, sum) = (first + v * S::F32_LANES, flush(simd, acc[r][v], TINY));
            if at + S::F32_LANES <= n {
                S::as_mut_simd_f32s(&mut row[at..]).0[0] = sum;
            } else {
                simd.partial_store_f32s(&mut row[at..], sum);
            }
        }
    }
}

/// [`outer_product`] for an `n` below the width of a vector, with the same bits. Most of a vector along `j` would be
/// padding, so the vectors run along `i`. `scratch` holds the transpose of C.
#[inline(always)]
pub(crate) fn outer_product_narrow<S: Simd>(
    simd: S,
    a: &[f32],
    lda: usize,
    d: &[f32],
    ldd: usize,
    rows: usize,
    n: usize,
    c: &mut [f32],
    scratch: &mut [f32],
) {
    for j in 0..n {
        let mut first = 0;
        for size in even_tiles(rows.div_ceil(S::F32_LANES)) {
            match size {
                6 => outer_tile::<S, 1, 6>(simd, d, ldd, a, lda, j, rows, first, scratch),
                5 => outer_tile::<S, 1, 5>(simd, d, ldd, a, lda, j, rows, first, scratch),
                4 => outer_tile::<S, 1, 4>(simd, d, ldd, a, lda, j, rows, first, scratch),
                3 => outer_tile::<S, 1, 3>(simd, d, ldd, a, lda, j, rows, first, scratch),
                2 => outer_tile::<S, 1, 2>(simd, d, ldd, a, lda, j, rows, first, scratch),
                _ => outer_tile::<S, 1, 1>(simd, d, ldd, a, lda, j, rows, first, scratch),
            }
            first += size * S::F32_LANES;
        }
        for (c, from) in c[j..].iter_mut().step_by(n).zip(&scratch[j * rows..][..rows]) {
            *c = *from;
        }
    }
}

/// Sizes of the tiles for `rows` rows: as few tiles as possible, of sizes as equal as possible.
#[inline(always)]
fn even_tiles(rows: usize) -> impl Iterator<Item = usize> {
    let tiles = rows.div_ceil(TILE_ROWS);
    let (size, larger) = (rows / tiles.max(1), rows % tiles.max(1));
    (0..tiles).map(move |t| size + usize::from(t < larger))
}

/// `out = x B` for one row, `b` with stride `ldb`, with the same bits as [`product`]. Computes up to eight vectors at a
/// time to fill the pipeline.
#[inline(always)]
pub(crate) fn product_one<S: Simd>(simd: S, x: &[f32], b: &[f32], ldb: usize, n: usize, out: &mut [f32]) {
    let lanes = S::F32_LANES;
    let mut first = 0;
    while first < n {
        if n - first > 7 * lanes {
            one_tile::<S, 8>(simd, x, b, ldb, first, out);
            first += 8 * lanes;
        } else if n - first > lanes {
            one_tile::<S, 2>(simd, x, b, ldb, first, out);
            first += 2 * lanes;
        } else {
            one_tile::<S, 1>(simd, x, b, ldb, first, out);
            first += lanes;
        }
    }
}

#[inline(always)]
fn one_tile<S: Simd, const NV: usize>(
    simd: S,
    x: &[f32],
    b: &[f32],
    ldb: usize,
    first: usize,
    out: &mut [f32],
) {
    let mut acc = [simd.splat_f32s(0.0); NV];
    let (v0, width) = (first / S::F32_LANES, ldb / S::F32_LANES);
    assert!(v0 + NV <= width, "tile within the rows");
    for (x, b) in x.iter().zip(S::as_simd_f32s(b).0.chunks_exact(width)) {
        let (x, b) = (simd.splat_f32s(*x), &b[v0..v0 + NV]);
        for v in 0..NV {
            acc[v] = simd.mul_add_e_f32s(x, b[v], acc[v]);
        }
    }
    S::as_mut_simd_f32s(&mut out[first..]).0[..NV].copy_from_slice(&acc);
}

/// tanh(x) ≈ x P(x²)/Q(x²), with x clamped to ±9 and the result to ±1.
///
/// The coefficients are our own minimax fit (least squares with Lawson's weights). Its error is 1.9e-8 in exact
/// arithmetic and below 4e-7 in `f32`. The function is odd. NaN stays NaN. Below [`TINY`] the result is zero.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    const P: [f32; 5] = [0.999_999_9, 0.133_732, 0.003_486_583_7, 2.047_185_7e-5, 1.318_425_7e-8];
    const Q: [f32; 5] = [1.0, 0.467_064_96, 0.025_841_986, 3.271_388e-4, 7.702_678e-7];
    let s = |c: f32| simd.splat_f32s(c);
    let x = clamp(simd, flush(simd, x, TINY), 9.0);
    let y = simd.mul_f32s(x, x);
    let (mut p, mut q) = (s(P[4]), s(Q[4]));
    for i in (0..4).rev() {
        p = simd.mul_add_e_f32s(p, y, s(P[i]));
        q = simd.mul_add_e_f32s(q, y, s(Q[i]));
    }
    clamp(simd, simd.div_f32s(simd.mul_f32s(x, p), q), 1.0)
}

/// Clamps x to ±bound. NaN stays NaN.
#[inline(always)]
fn clamp<S: Simd>(simd: S, x: S::f32s, bound: f32) -> S::f32s {
    let (low, high) = (simd.splat_f32s(-bound), simd.splat_f32s(bound));
    if S::IS_SCALAR {
        // `f32::min` would replace NaN by the bound
        let x = simd.select_f32s(simd.greater_than_f32s(x, high), high, x);
        simd.select_f32s(simd.less_than_f32s(x, low), low, x)
    } else {
        // x comes second, because min and max of x86 return the second operand if one is NaN
        simd.max_f32s(low, simd.min_f32s(high, x))
    }
}

/// `h = tanh(h)`, including padding columns.
#[inline(always)]
pub(crate) fn tanh_in_place<S: Simd>(simd: S, h: &mut [f32]) {
    for h in S::as_mut_simd_f32s(h).0 {
        *h = tanh(simd, *h);
    }
}

/// `d = d (1 − h²)`.
#[inline(always)]
fn times_slope<S: Simd>(simd: S, h: &[f32], d: &mut [f32]) {
    let one = simd.splat_f32s(1.0);
    for (d, h) in S::as_mut_simd_f32s(d).0.iter_mut().zip(S::as_simd_f32s(h).0) {
        let slope = simd.sub_f32s(one, simd.mul_f32s(*h, *h));
        *d = flush(simd, simd.mul_f32s(*d, slope), TINY);
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

    /// Kills: a changed coefficient, a narrower range, a missing clamp, a NaN turned into a number.
    #[test]
    fn tanh_is_odd_accurate_to_4e_7_and_at_most_one() {
        for arch in [Arch::new(), Arch::Scalar] {
            // 2²⁰ points on ±12 and some special values, a multiple of 16: only whole vectors are computed
            let n = 1 << 20;
            let mut x: Vec<f32> = (0..n).map(|i| (i as f32 / (n - 1) as f32 - 0.5) * 24.0).collect();
            x.extend([0.0, -0.0, 1e-30, 9.0, 40.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
            x.extend([0.0; 8]);
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

    /// `[tanh(x), x (1 − 0²), x · 1]` for one vector of equal entries: a hidden unit, a δ and a gradient.
    struct Results(f32);

    impl WithSimd for Results {
        type Output = [f32; 3];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [f32; 3] {
            let row = [self.0; 16];
            let [mut h, mut delta, mut gradient] = [row; 3];
            tanh_in_place(simd, &mut h);
            times_slope(simd, &[0.0; 16], &mut delta);
            outer_product(simd, &[1.0], 1, &row, 16, 1, 16, &mut gradient);
            [h[0], delta[0], gradient[0]]
        }
    }

    /// Kills: a flush of one of the three that is left out, or has a larger threshold.
    #[test]
    fn tiny_results_become_zero() {
        for arch in [Arch::new(), Arch::Scalar] {
            for x in [TINY / 2.0, -TINY / 2.0] {
                assert_eq!(arch.dispatch(Results(x)), [0.0; 3], "{arch:?}");
                assert_eq!(
                    arch.dispatch(Results(4.0 * x)),
                    [4.0 * x * 0.999_999_9, 4.0 * x, 4.0 * x],
                    "{arch:?}"
                );
            }
        }
    }

    #[test]
    fn rows_are_padded_and_transposed() {
        for (rows, n) in [(1, 1), (7, 3), (8, 8), (17, 9), (64, 2)] {
            let w: Vec<f32> = (0..rows * n).map(|i| i as f32).collect();
            let (ld, ldt) = (n + 3, rows + 5);
            let (mut wide, mut turned) = (vec![-1.0; rows * ld], vec![-1.0; n * ldt]);
            pad_rows(&w, n, &mut wide, ld);
            transpose(&w, n, &mut turned, ldt);
            for (i, j) in (0..rows).flat_map(|i| (0..ld).map(move |j| (i, j))) {
                assert_eq!(wide[i * ld + j], if j < n { w[i * n + j] } else { -1.0 }, "{rows} × {n}");
            }
            for (j, i) in (0..n).flat_map(|j| (0..ldt).map(move |i| (j, i))) {
                assert_eq!(turned[j * ldt + i], if i < rows { w[i * n + j] } else { -1.0 }, "{rows} × {n}");
            }
        }
    }

    /// The result of `outer_product` and of `outer_product_narrow` for `A` (m × rows) and `D` (m × n) of stride 80.
    struct Outer<'a> {
        a: &'a [f32],
        d: &'a [f32],
        rows: usize,
        n: usize,
    }

    impl WithSimd for Outer<'_> {
        type Output = [Vec<f32>; 2];

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> [Vec<f32>; 2] {
            let Self { a, d, rows, n } = self;
            let [mut wide, mut narrow, mut scratch] = [(); 3].map(|()| vec![f32::NAN; rows * n]);
            outer_product(simd, a, 80, d, 80, rows, n, &mut wide);
            outer_product_narrow(simd, a, 80, d, 80, rows, n, &mut narrow, &mut scratch);
            [wide, narrow]
        }
    }

    /// Kills: a column of the transpose at the wrong position, a sum in another order.
    #[test]
    fn a_narrow_outer_product_has_the_bits_of_a_wide_one() {
        let x = |i: usize| ((i * 7919) % 1009) as f32 / 500.0 - 1.0;
        let (a, d): (Vec<f32>, Vec<f32>) = (0..5 * 80).map(|i| (x(i), x(3 * i + 1))).unzip();
        for arch in [Arch::new(), Arch::Scalar] {
            for (rows, n) in [(1, 1), (65, 1), (65, 2), (9, 3), (80, 7)] {
                let [wide, narrow] = arch.dispatch(Outer { a: &a, d: &d, rows, n });
                assert_eq!(wide, narrow, "{rows} × {n}");
                let want: f64 =
                    (0..5).map(|m| f64::from(a[m * 80 + rows - 1]) * f64::from(d[m * 80 + n - 1])).sum();
                assert!((f64::from(wide[rows * n - 1]) - want).abs() < 1e-6, "{rows} × {n}");
            }
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
