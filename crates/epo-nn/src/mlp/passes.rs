//! The passes over the layers, each compiled once per instruction set.

use pulp::{Simd, WithSimd};

use super::{Activations, Layer, Mlp};
use crate::buffer::Buffer;
use crate::kernel::{self, Epilogue, Factors};

/// Returns the number of `f32` in a vector.
pub(super) struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Updates the padded and transposed copies of the weights.
pub(super) struct Refresh<'a> {
    pub(super) params: &'a [f32],
    pub(super) layers: &'a mut [Layer],
}

impl WithSimd for Refresh<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (l, layer) in self.layers.iter_mut().enumerate() {
            let (w, n) = (layer.of(self.params), layer.n_out);
            kernel::pad_rows(w, n, &mut layer.padded, layer.ld);
            if l > 0 {
                kernel::transpose(&w[..layer.n_in * n], n, &mut layer.transposed, layer.ld_back);
            }
        }
    }
}

/// Computes all layers for one chunk.
pub(super) struct Forward<'a> {
    pub(super) net: &'a Mlp,
    pub(super) acts: &'a mut Activations,
    pub(super) first: usize,
    pub(super) rows: usize,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { net, acts: Activations { h, ld, .. }, first, rows } = self;
        for (l, layer) in net.layers.iter().enumerate() {
            let hidden = l + 1 < net.layers.len();
            let (x, y) = h.split_at_mut(l + 1);
            let (x, y) = (&x[l][first * ld[l]..], &mut y[0][if hidden { first * ld[l + 1] } else { 0 }..]);
            let b = layer.rows(&net.params, &layer.padded);
            let factors = Factors { a: x, lda: ld[l], b, ldb: layer.ld, depth: layer.n_in + 1 };
            let then = if hidden { Epilogue::Tanh } else { Epilogue::Store };
            kernel::product(simd, [factors], rows, layer.n_out, y, ld[l + 1], then);
            if hidden {
                for row in y.chunks_exact_mut(ld[l + 1]).take(rows) {
                    row[layer.n_out] = 1.0;
                }
            }
        }
    }
}

/// Computes all layers for the first row of `acts`.
pub(super) struct ForwardOne<'a> {
    pub(super) net: &'a Mlp,
    pub(super) acts: &'a mut Activations,
}

impl WithSimd for ForwardOne<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let layers = &self.net.layers;
        for (l, layer) in layers.iter().enumerate() {
            let (x, y) = self.acts.h.split_at_mut(l + 1);
            let y = &mut y[0];
            let b = layer.rows(&self.net.params, &layer.padded);
            kernel::product_one(simd, &x[l][..layer.n_in + 1], b, layer.ld, layer.n_out, y);
            if l + 1 < layers.len() {
                kernel::tanh_in_place(simd, &mut y[..layer.ld]);
                y[layer.n_out] = 1.0;
            }
        }
    }
}

/// Computes the gradient of one chunk.
pub(super) struct Backward<'a> {
    pub(super) layers: &'a [Layer],
    pub(super) acts: &'a Activations,
    pub(super) delta: &'a mut [Buffer; 2],
    pub(super) first: usize,
    pub(super) dout: &'a [f32],
    pub(super) grad: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { layers, acts: Activations { h, ld, n_out, .. }, delta, first, dout, grad } = self;
        let rows = dout.len() / n_out;
        let [d, next] = delta;
        let (mut d, mut next) = (d, next);
        // padding columns of δ never reach a result, so they need no value
        for (d, dout) in d.chunks_exact_mut(ld[layers.len()]).zip(dout.chunks_exact(*n_out)) {
            d[..*n_out].copy_from_slice(dout);
        }
        for (l, layer) in layers.iter().enumerate().rev() {
            let (n_in, n_out, ldd) = (layer.n_in, layer.n_out, ld[l + 1]);
            let x = &h[l][first * ld[l]..][..rows * ld[l]];
            let dw = &mut grad[layer.at..][..(n_in + 1) * n_out];
            let of_rows = &d[..rows * ldd];
            if n_out < S::F32_LANES {
                kernel::outer_product_narrow(simd, x, ld[l], of_rows, ldd, n_in + 1, n_out, dw, next);
            } else {
                kernel::outer_product(simd, x, ld[l], of_rows, ldd, n_in + 1, n_out, dw);
            }
            if l > 0 {
                let (b, ldb) = (&layer.transposed[..], layer.ld_back);
                let factors = Factors { a: d, lda: ldd, b, ldb, depth: n_out };
                kernel::product(simd, [factors], rows, n_in, next, ld[l], Epilogue::TimesSlope(x));
                (d, next) = (next, d);
            }
        }
    }
}

/// Computes the tangents of one chunk: `ḣ_{l+1} = (ḣ_l W̄_l + [h_l 1] V_l)(1 − h_{l+1}²)`, `ḣ₀ = 0`.
pub(super) struct Jvp<'a> {
    pub(super) net: &'a Mlp,
    pub(super) acts: &'a Activations,
    pub(super) delta: &'a mut [Buffer; 2],
    pub(super) v: &'a [f32],
    pub(super) padded: &'a [Buffer],
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl WithSimd for Jvp<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { net, acts: Activations { h, ld, n_out, .. }, delta, v, padded, first, out } = self;
        let layers = &net.layers;
        let rows = out.len() / n_out;
        let [d, next] = delta;
        let (mut d, mut next) = (d, next);
        for (l, layer) in layers.iter().enumerate() {
            let (x, lda, ldb) = (&h[l][first * ld[l]..], ld[l], layer.ld);
            let direct = Factors { a: x, lda, b: layer.rows(v, &padded[l]), ldb, depth: layer.n_in + 1 };
            let b = layer.rows(&net.params, &layer.padded);
            let carried = Factors { a: d, lda, b, ldb, depth: layer.n_in };
            let hidden = l + 1 < layers.len();
            let then =
                if hidden { Epilogue::TimesSlope(&h[l + 1][first * ld[l + 1]..]) } else { Epilogue::Store };
            if l == 0 {
                kernel::product(simd, [direct], rows, layer.n_out, next, ld[l + 1], then);
            } else {
                kernel::product(simd, [direct, carried], rows, layer.n_out, next, ld[l + 1], then);
            }
            (d, next) = (next, d);
        }
        let ld = ld[layers.len()];
        for (d, out) in d.chunks_exact(ld).zip(out.chunks_exact_mut(*n_out)) {
            out.copy_from_slice(&d[..*n_out]);
        }
    }
}
