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
//! do not depend on the size of the batch, on the position of the row, or on the width of a vector. The portable
//! instruction set does not fuse the multiply-add, so its last bits differ.
//!
//! Tiny results become zero, see [`crate::tiny`].

#![allow(clippy::too_many_arguments, reason = "kernels take their slices one by one")]

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
    // the transpose of a block of 4 × 4 stays in registers
    let fours = w.chunks_exact(4 * n);
    let (rest, done) = (fours.remainder(), w.len() / n / 4 * 4);
    for (i, rows) in fours.enumerate() {
        let rows: [&[f32]; 4] = std::array::from_fn(|r| &rows[r * n..][..n]);
        let blocks: [&[[f32; 4]]; 4] = std::array::from_fn(|r| rows[r].as_chunks().0);
        for (j, out) in out.chunks_exact_mut(4 * ld).take(n / 4).enumerate() {
            let columns = transpose_block([blocks[0][j], blocks[1][j], blocks[2][j], blocks[3][j]]);
            for (c, column) in columns.iter().enumerate() {
                out[c * ld + 4 * i..][..4].copy_from_slice(column);
            }
        }
        for j in n / 4 * 4..n {
            for r in 0..4 {
                out[j * ld + 4 * i + r] = rows[r][j];
            }
        }
    }
    for (r, row) in rest.chunks_exact(n).enumerate() {
        for (out, w) in out[done + r..].iter_mut().step_by(ld).zip(row) {
            *out = *w;
        }
    }
}

/// The transpose of a block. The compiler does not find these shuffles by itself.
#[inline(always)]
fn transpose_block(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    if let Some(sse) = pulp::core_arch::x86::Sse::try_new() {
        use pulp::cast;
        let [a, b, c, d] = [cast(rows[0]), cast(rows[1]), cast(rows[2]), cast(rows[3])];
        let (ab, cd) = (sse._mm_unpacklo_ps(a, b), sse._mm_unpacklo_ps(c, d));
        let (ab2, cd2) = (sse._mm_unpackhi_ps(a, b), sse._mm_unpackhi_ps(c, d));
        return [
            cast(sse._mm_movelh_ps(ab, cd)),
            cast(sse._mm_movehl_ps(cd, ab)),
            cast(sse._mm_movelh_ps(ab2, cd2)),
            cast(sse._mm_movehl_ps(cd2, ab2)),
        ];
    }
    std::array::from_fn(|j| std::array::from_fn(|i| rows[i][j]))
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

/// The operation on the result of a product while it is still in the first-level cache.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue<'a> {
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
    then: Epilogue<'_>,
) {
    let factors = &factors.map(|f| TileFactors::<S>::new(&f));
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
struct TileFactors<'a, S: Simd> {
    a: &'a [f32],
    lda: usize,
    b: ChunksExact<'a, S::f32s>,
    depth: usize,
}

impl<'a, S: Simd> TileFactors<'a, S> {
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
    factors: &[TileFactors<'_, S>; F],
    i: usize,
    n: usize,
    c: &mut [f32],
    ldc: usize,
    then: Epilogue<'_>,
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
            Epilogue::Store => {}
            Epilogue::Tanh => tanh_in_place(simd, row),
            Epilogue::TimesSlope(h) => times_slope(simd, &h[r * ldc..][..width], row),
        }
    }
}

#[inline(always)]
fn product_tile<S: Simd, const F: usize, const MR: usize, const NV: usize>(
    simd: S,
    factors: &[TileFactors<'_, S>; F],
    i: usize,
    first: usize,
    c: &mut [f32],
    ldc: usize,
) {
    let mut acc = [[simd.splat_f32s(0.0); NV]; MR];
    let v0 = first / S::F32_LANES;
    for TileFactors { a, lda, b, depth } in factors {
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

/// Does the same as [`outer_product`], with the same bits, for an `n` below the width of a vector. Most of a
/// vector along `j` would be padding, so the vectors run along `i`. `scratch` holds the transpose of C.
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
    // of |x|, which needs one bound instead of two; the sign comes back at the end
    let a = simd.abs_f32s(x);
    let tiny = simd.less_than_f32s(a, s(TINY));
    let a = at_most(simd, a, 9.0);
    let y = simd.mul_f32s(a, a);
    let (mut p, mut q) = (s(P[4]), s(Q[4]));
    for i in (0..4).rev() {
        p = simd.mul_add_e_f32s(p, y, s(P[i]));
        q = simd.mul_add_e_f32s(q, y, s(Q[i]));
    }
    let size = at_most(simd, simd.div_f32s(simd.mul_f32s(a, p), q), 1.0);
    let sign = simd.and_f32s(x, s(-0.0));
    simd.select_f32s(tiny, s(0.0), simd.or_f32s(size, sign))
}

/// The smaller of x and `bound`. NaN stays NaN.
#[inline(always)]
fn at_most<S: Simd>(simd: S, x: S::f32s, bound: f32) -> S::f32s {
    let bound = simd.splat_f32s(bound);
    if S::IS_SCALAR {
        // `f32::min` would replace NaN by the bound
        simd.select_f32s(simd.greater_than_f32s(x, bound), bound, x)
    } else {
        simd.min_f32s(bound, x) // x comes second, because min of x86 returns the second operand if one is NaN
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
mod tests;
