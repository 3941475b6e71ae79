//! Multi-layer perceptron: tanh hidden layers, linear output.
//!
//! ```text
//! h₀ = x,   h_{l+1} = tanh([h_l 1] W_l),   y = [h_L 1] W_L
//! δ_L = ∂L/∂y,   ∂L/∂W_l = [h_l 1]ᵀ δ_{l+1},   δ_l = (δ_{l+1} W̄_lᵀ) (1 − h_l²)
//! ```
//!
//! `W` is `[in + 1][out]`. Its last row is the bias, and `W̄` is `W` without that row. The flat parameters are the layers
//! one after the other. PyTorch stores the transpose, see [`Tensor`].
//!
//! A batch is processed in chunks of 64 rows, so that activations stay in the cache. The gradient of a chunk is summed
//! in `f32`. Gradients of chunks are added in order, in `f64`.

mod passes;

use epo_core::Stream;
use pulp::Arch;

use crate::buffer::{Buffer, LINE};
use crate::kernel;
use crate::tiny::narrow;
use passes::{Backward, Forward, ForwardOne, Jvp, Lanes, Refresh};

/// Rows processed together.
const CHUNK: usize = 64;

/// A fully connected network.
///
/// ```
/// use epo_core::{Purpose, Stream};
/// use epo_nn::Mlp;
/// let mut mlp = Mlp::new(&[2, 1], &mut Stream::new(0, Purpose::Init, 0));
/// mlp.set_params(&[3.0, 4.0, 0.5]); // y = 3 x₀ + 4 x₁ + 0.5
/// let mut ws = mlp.workspace(64);
/// ws.load(&[1.0, 1.0, 0.0, 2.0]); // two rows
/// assert_eq!(mlp.forward(&mut ws), [7.5, 8.5]);
/// let mut grad = [0.0; 3];
/// mlp.backward(&mut ws, &[1.0, 1.0], &mut grad); // of the sum of both outputs
/// assert_eq!(grad, [1.0, 3.0, 2.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Mlp {
    /// Aligned to a cache line, because the kernels read most weights from here.
    params: Buffer,
    layers: Vec<Layer>,
    arch: Arch,
}

/// The affine map of one layer, with the copies of its weights that the kernels need.
#[derive(Clone, Debug)]
struct Layer {
    n_in: usize,
    n_out: usize,
    /// Index of the first weight in the flat parameters.
    at: usize,
    /// Row stride of `W` for the kernels: `n_out` rounded up to whole vectors.
    ld: usize,
    /// Row stride of `W̄ᵀ`: `n_in` rounded up to whole vectors.
    ld_back: usize,
    /// `W` with stride `ld`. Empty if `ld` equals `n_out`: the flat parameters are then used directly.
    padded: Buffer,
    /// `W̄ᵀ`. Empty for the first layer, whose input needs no gradient.
    transposed: Buffer,
}

impl Layer {
    /// The part of a flat vector that belongs to this layer.
    fn of<'a>(&self, flat: &'a [f32]) -> &'a [f32] {
        &flat[self.at..][..(self.n_in + 1) * self.n_out]
    }

    /// Weights with stride `ld`: `padded`, or the flat vector if `padded` is empty.
    fn rows<'a>(&self, flat: &'a [f32], padded: &'a [f32]) -> &'a [f32] {
        if padded.is_empty() { self.of(flat) } else { padded }
    }
}

/// Name, shape and position of a tensor in the flat parameters.
///
/// A weight is stored as `[in, out]`. PyTorch's `Linear.weight` is its transpose, `[out, in]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Layer and kind: `0.weight`, `0.bias`, …
    pub name: String,
    /// `[in, out]` for weights, `[out]` for biases.
    pub shape: Vec<usize>,
    /// Position in the flat vector.
    pub range: std::ops::Range<usize>,
}

/// Buffers of forward and backward passes: the loaded rows, their activations and scratch space.
///
/// [`Mlp::workspace`] makes it, and it works for every network of the same sizes. It allocates only when more
/// rows are loaded than ever before.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// `[h_l 1]` of all loaded rows.
    batch: Activations,
    /// The same for one chunk, used by `predict` and `forward_one`.
    chunk: Activations,
    /// `δ` of two layers, or tangents of two layers, for one chunk.
    delta: [Buffer; 2],
    /// The direction of `jvp`, padded per layer.
    padded: Vec<Buffer>,
    /// Outputs of all loaded rows, without padding.
    out: Vec<f32>,
    /// Sum of the gradients of the chunks.
    sum: Vec<f64>,
    rows: usize,
    n_out: usize,
}

#[derive(Clone, Debug)]
struct Activations {
    /// `h₀ … h_L, y`, one buffer each. The buffer of `y` holds one chunk.
    h: Vec<Buffer>,
    /// Row strides of `h`.
    ld: Vec<usize>,
    sizes: Vec<usize>,
    n_in: usize,
    n_out: usize,
}

impl Mlp {
    /// A network of these sizes, input first, output last. Weights and biases are uniform in ±1/√fan_in, as in PyTorch.
    ///
    /// # Panics
    /// With fewer than two sizes, or a size of 0.
    pub fn new(sizes: &[usize], stream: &mut Stream) -> Self {
        Self::with_tail(sizes, 0, stream)
    }

    /// Does the same as [`new`](Self::new) with `tail` more parameters at the end. They are zero, and the
    /// network does not use them.
    pub(crate) fn with_tail(sizes: &[usize], tail: usize, stream: &mut Stream) -> Self {
        Self::with_arch(sizes, tail, stream, Arch::new())
    }

    /// Does the same as [`with_tail`](Self::with_tail) with the given instruction set.
    pub(crate) fn with_arch(sizes: &[usize], tail: usize, stream: &mut Stream, arch: Arch) -> Self {
        assert!(sizes.len() >= 2, "a network needs an input and an output size");
        assert!(sizes.iter().all(|&n| n > 0), "sizes are positive: {sizes:?}");
        let lanes = arch.dispatch(Lanes);
        let (mut params, mut layers) = (Vec::new(), Vec::new());
        for (l, w) in sizes.windows(2).enumerate() {
            let (n_in, n_out, at) = (w[0], w[1], params.len());
            let bound = 1.0 / (n_in as f64).sqrt();
            params.extend((0..(n_in + 1) * n_out).map(|_| ((2.0 * stream.uniform() - 1.0) * bound) as f32));
            let (ld, ld_back) = (kernel::padded(n_out, lanes), kernel::padded(n_in, lanes));
            let padded = Buffer::new(if ld == n_out { 0 } else { (n_in + 1) * ld });
            let transposed = Buffer::new(if l == 0 { 0 } else { n_out * ld_back });
            layers.push(Layer { n_in, n_out, at, ld, ld_back, padded, transposed });
        }
        params.extend(std::iter::repeat_n(0.0, tail));
        let mut this = Self { params: Buffer::new(params.len()), layers, arch };
        this.set_params(&params);
        this
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.layers[0].n_in
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].n_out
    }

    /// Number of inputs, of units in each hidden layer, and of outputs.
    pub fn sizes(&self) -> Vec<usize> {
        std::iter::once(self.inputs()).chain(self.layers.iter().map(|l| l.n_out)).collect()
    }

    /// All parameters, as one flat vector.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// Changes the parameters in place: `mlp.update(|p| adam.step(p, &grad, lr))`.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        change(&mut self.params);
        self.refresh();
    }

    /// Replaces the parameters.
    ///
    /// # Panics
    /// If the length differs.
    pub fn set_params(&mut self, params: &[f32]) {
        self.update(|p| p.copy_from_slice(params));
    }

    /// Multiplies the outputs by `factor`: scales the weights and biases of the last layer.
    pub fn scale_outputs(&mut self, factor: f32) {
        let Layer { n_in, n_out, at, .. } = self.layers[self.layers.len() - 1];
        self.update(|p| p[at..at + (n_in + 1) * n_out].iter_mut().for_each(|w| *w *= factor));
    }

    /// Updates the copies of the weights.
    fn refresh(&mut self) {
        self.arch.dispatch(Refresh { params: &self.params, layers: &mut self.layers });
    }

    /// Names, shapes and positions of the weights and biases.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        for (l, &Layer { n_in, n_out, at, .. }) in self.layers.iter().enumerate() {
            let bias = at + n_in * n_out;
            out.push(Tensor { name: format!("{l}.weight"), shape: vec![n_in, n_out], range: at..bias });
            out.push(Tensor { name: format!("{l}.bias"), shape: vec![n_out], range: bias..bias + n_out });
        }
        out
    }

    /// Buffers for up to `rows` rows. They grow if more are loaded.
    pub fn workspace(&self, rows: usize) -> Workspace {
        let sizes = self.sizes();
        let batch = Activations::new(&sizes, rows);
        let widest = batch.ld.iter().max().copied().unwrap_or(0);
        Workspace {
            batch,
            chunk: Activations::new(&sizes, CHUNK),
            delta: [Buffer::new(CHUNK * widest), Buffer::new(CHUNK * widest)],
            padded: self.layers.iter().map(|l| Buffer::new(l.padded.len())).collect(),
            out: Vec::with_capacity(rows * self.outputs()),
            sum: vec![0.0; if rows > CHUNK { self.params.len() } else { 0 }],
            rows: 0,
            n_out: self.outputs(),
        }
    }

    /// Computes the outputs of the loaded rows, `[rows][outputs]`.
    ///
    /// # Panics
    /// If the workspace was made for other sizes.
    pub fn forward<'w>(&self, ws: &'w mut Workspace) -> &'w [f32] {
        assert!(self.fits(ws), "workspace of a network of other sizes");
        ws.out.resize(ws.rows * ws.n_out, 0.0);
        for first in (0..ws.rows).step_by(CHUNK) {
            let rows = CHUNK.min(ws.rows - first);
            self.arch.dispatch(Forward { net: self, acts: &mut ws.batch, first, rows });
            ws.batch.copy_out(rows, &mut ws.out[first * ws.n_out..]);
        }
        &ws.out
    }

    /// Writes the gradient of `Σ_i dout_i · y_i` to `grad`, for the rows of the last [`forward`](Self::forward).
    ///
    /// `dout` is `[rows][outputs]`, with the derivative of the loss by each output; see [`narrow`] for
    /// conversions from `f64`. `grad` is as long as the parameters; its earlier content is overwritten.
    ///
    /// # Panics
    /// If a length differs.
    pub fn backward(&self, ws: &mut Workspace, dout: &[f32], grad: &mut [f32]) {
        assert!(self.fits(ws), "workspace of a network of other sizes");
        assert_eq!(dout.len(), ws.rows * self.outputs(), "dout");
        assert_eq!(grad.len(), self.params.len(), "grad");
        if ws.rows <= CHUNK {
            let last = &self.layers[self.layers.len() - 1];
            grad[last.at + (last.n_in + 1) * last.n_out..].fill(0.0); // the tail
            self.backward_chunk(ws, 0, dout, grad);
            return;
        }
        ws.sum.clear();
        ws.sum.resize(grad.len(), 0.0);
        for (c, dout) in dout.chunks(CHUNK * self.outputs()).enumerate() {
            self.backward_chunk(ws, c * CHUNK, dout, grad);
            for (sum, g) in ws.sum.iter_mut().zip(&*grad) {
                *sum += f64::from(*g);
            }
        }
        for (g, sum) in grad.iter_mut().zip(&ws.sum) {
            *g = narrow(*sum);
        }
    }

    /// Whether a workspace was made for a network of these sizes.
    fn fits(&self, ws: &Workspace) -> bool {
        let sizes = &ws.batch.sizes;
        let same = |(l, size): (&Layer, &[usize])| [l.n_in, l.n_out] == size;
        sizes.len() == self.layers.len() + 1 && self.layers.iter().zip(sizes.windows(2)).all(same)
    }

    fn backward_chunk(&self, ws: &mut Workspace, first: usize, dout: &[f32], grad: &mut [f32]) {
        let Workspace { batch, delta, .. } = ws;
        self.arch.dispatch(Backward { layers: &self.layers, acts: batch, delta, first, dout, grad });
    }

    /// Writes the derivative of the outputs of the last [`forward`](Self::forward) along the direction `v` in parameter
    /// space: `out = J v`, `[rows][outputs]`.
    ///
    /// # Panics
    /// If a length differs.
    pub fn jvp(&self, ws: &mut Workspace, v: &[f32], out: &mut [f32]) {
        assert!(self.fits(ws), "workspace of a network of other sizes");
        assert_eq!(v.len(), self.params.len(), "v");
        assert_eq!(out.len(), ws.rows * self.outputs(), "out");
        let Workspace { batch, delta, padded, .. } = ws;
        for (layer, padded) in self.layers.iter().zip(&mut *padded) {
            kernel::pad_rows(layer.of(v), layer.n_out, padded, layer.ld);
        }
        for (c, out) in out.chunks_mut(CHUNK * self.outputs()).enumerate() {
            self.arch.dispatch(Jvp { net: self, acts: batch, delta, v, padded, first: c * CHUNK, out });
        }
    }

    /// Writes the outputs for the rows `x` (`[n][inputs]`) to `out` (`[n][outputs]`).
    ///
    /// The loaded rows and their activations are kept: [`backward`](Self::backward) still refers to the last
    /// [`forward`](Self::forward).
    ///
    /// # Panics
    /// If a length differs.
    pub fn predict(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        let (n_in, n_out) = (self.inputs(), self.outputs());
        assert!(self.fits(ws), "workspace of a network of other sizes");
        assert_eq!(x.len() % n_in, 0, "whole rows");
        assert_eq!(out.len(), x.len() / n_in * n_out, "out");
        for (x, out) in x.chunks(CHUNK * n_in).zip(out.chunks_mut(CHUNK * n_out)) {
            for (i, x) in x.chunks_exact(n_in).enumerate() {
                ws.chunk.set_row(i, x);
            }
            let rows = x.len() / n_in;
            self.arch.dispatch(Forward { net: self, acts: &mut ws.chunk, first: 0, rows });
            ws.chunk.copy_out(rows, out);
        }
    }

    /// Writes the output for the row `x`. Its bits are those of the same row in any batch.
    ///
    /// # Panics
    /// If a length differs.
    pub fn forward_one(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        assert!(self.fits(ws), "workspace of a network of other sizes");
        assert_eq!(out.len(), self.outputs(), "out");
        ws.chunk.set_row(0, x);
        self.arch.dispatch(ForwardOne { net: self, acts: &mut ws.chunk });
        ws.chunk.copy_out(1, out);
    }
}

impl Workspace {
    /// Loads all rows of `rows` (`[n][inputs]`).
    ///
    /// # Panics
    /// If the length is not a whole number of rows.
    pub fn load(&mut self, rows: &[f32]) {
        let n = self.batch.n_in;
        assert_eq!(rows.len() % n, 0, "whole rows");
        self.rows = rows.len() / n;
        self.batch.reserve(self.rows);
        for (i, row) in rows.chunks_exact(n).enumerate() {
            self.batch.set_row(i, row);
        }
    }

    /// Loads the rows `index` of `source` (`[n][inputs]`), in the order of `index`.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn gather(&mut self, source: &[f32], index: &[u32]) {
        let n = self.batch.n_in;
        self.rows = index.len();
        self.batch.reserve(self.rows);
        for (i, &from) in index.iter().enumerate() {
            self.batch.set_row(i, &source[from as usize * n..][..n]);
        }
    }

    /// Number of loaded rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The outputs of the last forward pass, `[rows][outputs]`.
    pub fn output(&self) -> &[f32] {
        &self.out
    }
}

impl Activations {
    fn new(sizes: &[usize], rows: usize) -> Self {
        // one more for the 1; an odd number of cache lines, so that rows fall in different cache sets
        let ld: Vec<usize> = sizes.iter().map(|n| ((n + 1).div_ceil(LINE) | 1) * LINE).collect();
        let mut this = Self {
            h: sizes.iter().map(|_| Buffer::default()).collect(),
            ld,
            sizes: sizes.to_vec(),
            n_in: sizes[0],
            n_out: sizes[sizes.len() - 1],
        };
        this.reserve(rows.max(1));
        this
    }

    fn reserve(&mut self, rows: usize) {
        let last = self.h.len() - 1;
        for (l, (h, ld)) in self.h.iter_mut().zip(&self.ld).enumerate() {
            h.reserve(ld * if l == last { CHUNK } else { rows });
        }
    }

    fn set_row(&mut self, i: usize, x: &[f32]) {
        let row = &mut self.h[0][i * self.ld[0]..][..self.ld[0]];
        row[..self.n_in].copy_from_slice(x);
        row[self.n_in] = 1.0;
    }

    /// Copies the outputs of the last chunk, without padding.
    fn copy_out(&self, rows: usize, out: &mut [f32]) {
        let (y, ld) = (&self.h[self.h.len() - 1], self.ld[self.ld.len() - 1]);
        for (y, out) in y.chunks_exact(ld).zip(out.chunks_exact_mut(self.n_out)).take(rows) {
            out.copy_from_slice(&y[..self.n_out]);
        }
    }
}

#[cfg(test)]
mod tests;
