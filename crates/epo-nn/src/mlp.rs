//! Multi-layer perceptron: tanh hidden layers, linear output.
//!
//! ```text
//! h₀ = x,   h_{l+1} = tanh([h_l 1] W_l),   y = [h_L 1] W_L
//! δ_L = ∂L/∂y,   ∂L/∂W_l = [h_l 1]ᵀ δ_{l+1},   δ_l = (δ_{l+1} W̄_lᵀ) (1 − h_l²)
//! ```
//!
//! `W` is `[in + 1][out]`, its last row the bias; `W̄` is without that row. The flat parameters are the layers
//! one after the other. (PyTorch keeps the transpose: see [`Tensor`].)
//!
//! A batch runs in chunks of 64 rows, so activations stay in the cache. The gradient of a chunk is summed in
//! `f32`, chunks are added in order in `f64`.

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
    /// On a cache line, since the kernels read most weights here.
    params: Buffer,
    layers: Vec<Layer>,
    arch: Arch,
}

/// One affine map, with the copies of its weights that the kernels need.
#[derive(Clone, Debug)]
struct Layer {
    n_in: usize,
    n_out: usize,
    /// Where `W` begins in the flat parameters.
    at: usize,
    /// Row stride of `W` for the kernels: `n_out` in whole vectors.
    ld: usize,
    /// Row stride of `W̄ᵀ`: `n_in` in whole vectors.
    ld_back: usize,
    /// `W` with that stride, if it is not `n_out` itself; else empty, and the flat parameters serve.
    padded: Buffer,
    /// `W̄ᵀ`; empty for the first layer, whose input needs no gradient.
    transposed: Buffer,
}

impl Layer {
    /// The part of a flat vector that is this layer's.
    fn of<'a>(&self, flat: &'a [f32]) -> &'a [f32] {
        &flat[self.at..][..(self.n_in + 1) * self.n_out]
    }

    /// Weights for the kernels, with stride `ld`: `padded`, or the flat vector it would be a copy of.
    fn rows<'a>(&self, flat: &'a [f32], padded: &'a [f32]) -> &'a [f32] {
        if padded.is_empty() { self.of(flat) } else { padded }
    }
}

/// Where a named tensor lies in the flat parameters.
///
/// A weight is stored `[in, out]`: transpose it for PyTorch, whose `Linear.weight` is `[out, in]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// `0.weight`, `0.bias`, …
    pub name: String,
    /// `[in, out]` for weights, `[out]` for biases.
    pub shape: Vec<usize>,
    /// Place in the flat vector.
    pub range: std::ops::Range<usize>,
}

/// Buffers of forward and backward passes: the rows loaded, their activations, scratch.
///
/// Made by [`Mlp::workspace`] for networks of the same sizes. It grows when more rows are loaded and allocates
/// nothing otherwise.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// `[h_l 1]` of all rows loaded.
    batch: Activations,
    /// The same for one chunk: what `predict` works in.
    chunk: Activations,
    /// Two of one chunk: `δ_l`, or the tangents of `h_l`.
    delta: [Buffer; 2],
    /// Padded direction of `jvp`.
    padded: Vec<Buffer>,
    /// Outputs, dense.
    out: Vec<f32>,
    /// Sum over chunks.
    sum: Vec<f64>,
    rows: usize,
    n_out: usize,
}

#[derive(Clone, Debug)]
struct Activations {
    /// `h₀ … h_L, y`: one buffer per size; that of `y` holds one chunk.
    h: Vec<Buffer>,
    /// Their row strides.
    ld: Vec<usize>,
    sizes: Vec<usize>,
    n_in: usize,
    n_out: usize,
}

impl Mlp {
    /// A network of these sizes, input first, with PyTorch's default initial values: weights and biases
    /// uniform in ±1/√fan_in.
    ///
    /// # Panics
    /// With fewer than two sizes, or a size of 0.
    pub fn new(sizes: &[usize], stream: &mut Stream) -> Self {
        Self::with_tail(sizes, 0, stream)
    }

    /// The same with `tail` more parameters, zero, at the end, which the network itself does not use.
    pub(crate) fn with_tail(sizes: &[usize], tail: usize, stream: &mut Stream) -> Self {
        Self::with_arch(sizes, tail, stream, Arch::new())
    }

    /// The same with the given instruction set.
    pub(crate) fn with_arch(sizes: &[usize], tail: usize, stream: &mut Stream, arch: Arch) -> Self {
        assert!(sizes.len() >= 2, "an input and an output size");
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

    /// Width of the input.
    pub fn inputs(&self) -> usize {
        self.layers[0].n_in
    }

    /// Width of the output.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].n_out
    }

    /// Widths, input first.
    pub fn sizes(&self) -> Vec<usize> {
        std::iter::once(self.inputs()).chain(self.layers.iter().map(|l| l.n_out)).collect()
    }

    /// All parameters.
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

    fn refresh(&mut self) {
        self.arch.dispatch(Refresh { params: &self.params, layers: &mut self.layers });
    }

    /// The parts of the flat vector, by name.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut out = Vec::new();
        for (l, &Layer { n_in, n_out, at, .. }) in self.layers.iter().enumerate() {
            let bias = at + n_in * n_out;
            out.push(Tensor { name: format!("{l}.weight"), shape: vec![n_in, n_out], range: at..bias });
            out.push(Tensor { name: format!("{l}.bias"), shape: vec![n_out], range: bias..bias + n_out });
        }
        out
    }

    /// Buffers for up to `rows` rows (they grow when more are loaded).
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

    /// Computes the output for the rows loaded in the workspace: `[rows][outputs]`.
    ///
    /// # Panics
    /// If the workspace was made for other sizes.
    pub fn forward<'w>(&self, ws: &'w mut Workspace) -> &'w [f32] {
        assert!(self.fits(ws), "a workspace of other sizes");
        ws.out.resize(ws.rows * ws.n_out, 0.0);
        for first in (0..ws.rows).step_by(CHUNK) {
            let rows = CHUNK.min(ws.rows - first);
            self.arch.dispatch(Forward { net: self, acts: &mut ws.batch, first, rows });
            ws.batch.copy_out(rows, &mut ws.out[first * ws.n_out..]);
        }
        &ws.out
    }

    /// Gradient of `Σ_i dout_i · y_i` for the rows of the last [`forward`](Self::forward), written (not added)
    /// to `grad`, which is as long as the parameters. `dout` is `[rows][outputs]`.
    ///
    /// # Panics
    /// If a length differs.
    pub fn backward(&self, ws: &mut Workspace, dout: &[f32], grad: &mut [f32]) {
        assert!(self.fits(ws), "a workspace of other sizes");
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

    fn fits(&self, ws: &Workspace) -> bool {
        let sizes = &ws.batch.sizes;
        let same = |(l, size): (&Layer, &[usize])| [l.n_in, l.n_out] == size;
        sizes.len() == self.layers.len() + 1 && self.layers.iter().zip(sizes.windows(2)).all(same)
    }

    fn backward_chunk(&self, ws: &mut Workspace, first: usize, dout: &[f32], grad: &mut [f32]) {
        let Workspace { batch, delta, .. } = ws;
        self.arch.dispatch(Backward { layers: &self.layers, acts: batch, delta, first, dout, grad });
    }

    /// Directional derivative of the outputs of the last [`forward`](Self::forward) along `v` (a vector of
    /// parameters): `out = J v`, `[rows][outputs]`.
    ///
    /// # Panics
    /// If a length differs.
    pub fn jvp(&self, ws: &mut Workspace, v: &[f32], out: &mut [f32]) {
        assert!(self.fits(ws), "a workspace of other sizes");
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

    /// Outputs for any number of rows. Leaves the rows loaded in the workspace, and what
    /// [`backward`](Self::backward) needs, as they are. `x` is `[n][inputs]`, `out` `[n][outputs]`.
    ///
    /// # Panics
    /// If a length differs.
    pub fn predict(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        let (n_in, n_out) = (self.inputs(), self.outputs());
        assert!(self.fits(ws), "a workspace of other sizes");
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

    /// The output for one row. Its bits are those of the same row in any batch.
    ///
    /// # Panics
    /// If a length differs.
    pub fn forward_one(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        assert!(self.fits(ws), "a workspace of other sizes");
        assert_eq!(out.len(), self.outputs(), "out");
        ws.chunk.set_row(0, x);
        self.arch.dispatch(ForwardOne { net: self, acts: &mut ws.chunk });
        ws.chunk.copy_out(1, out);
    }
}

impl Workspace {
    /// Loads rows `[n][inputs]`.
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

    /// Loads the rows of `source` (`[any][inputs]`) that `index` names, in that order.
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

    /// Rows loaded.
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
        // room for the 1; an odd number of cache lines, so that the rows fall in different cache sets
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

    /// The outputs of the last chunk, dense.
    fn copy_out(&self, rows: usize, out: &mut [f32]) {
        let (y, ld) = (&self.h[self.h.len() - 1], self.ld[self.ld.len() - 1]);
        for (y, out) in y.chunks_exact(ld).zip(out.chunks_exact_mut(self.n_out)).take(rows) {
            out.copy_from_slice(&y[..self.n_out]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{f64s, mlp as reference};
    use epo_core::Purpose;

    /// Widths around the vector (8) and panel (16) of AVX2, and the net of the benchmark.
    const SHAPES: [&[usize]; 7] =
        [&[1, 1], &[3, 2], &[5, 7, 3], &[9, 16, 8, 1], &[4, 17, 33, 9], &[60, 64, 64, 2], &[13, 130, 70, 24]];

    fn stream(index: u32) -> Stream {
        Stream::new(7, Purpose::Random, index)
    }

    fn normals(n: usize, index: u32) -> Vec<f32> {
        let mut stream = stream(index);
        (0..n).map(|_| stream.normal() as f32).collect()
    }

    fn nets() -> impl Iterator<Item = Mlp> {
        let make = |arch| move |sizes: &&[usize]| Mlp::with_arch(sizes, 0, &mut stream(1), arch);
        SHAPES.iter().map(make(Arch::new())).chain(SHAPES.iter().map(make(Arch::Scalar)))
    }

    /// Kills: a bias or a last column left out, tanh on the output, a chunk misplaced.
    #[test]
    fn forward_is_the_definition() {
        for net in nets() {
            let sizes = net.sizes();
            let params = f64s(net.params());
            let mut ws = net.workspace(1);
            for rows in [1, 6, 64, 65, 130] {
                let x = normals(rows * sizes[0], 2);
                ws.load(&x);
                let y = net.forward(&mut ws).chunks_exact(net.outputs());
                assert_eq!(y.len(), rows);
                for (i, (x, y)) in x.chunks_exact(sizes[0]).zip(y).enumerate() {
                    for (got, want) in y.iter().zip(reference(&sizes, &params, x)) {
                        let error = (f64::from(*got) - want).abs();
                        assert!(error < 2e-6, "{sizes:?} row {i} of {rows}: {got} for {want}");
                    }
                }
            }
        }
    }

    /// Kills: an order of summation that depends on the tile, a row read from its neighbour.
    #[test]
    fn the_bits_of_a_row_do_not_depend_on_the_batch() {
        for net in nets() {
            let (n_in, n_out) = (net.inputs(), net.outputs());
            let mut ws = net.workspace(64);
            let x = normals(131 * n_in, 3);
            let mut one = vec![0.0; 131 * n_out];
            for (x, y) in x.chunks_exact(n_in).zip(one.chunks_exact_mut(n_out)) {
                net.forward_one(x, &mut ws, y);
            }
            for rows in [1, 2, 5, 7, 63, 64, 131] {
                ws.load(&x[..rows * n_in]);
                assert_eq!(net.forward(&mut ws), &one[..rows * n_out], "{:?}, batch of {rows}", net.sizes());
            }
            // another place: reversed
            let index: Vec<u32> = (0..131).rev().collect();
            ws.gather(&x, &index);
            let y = net.forward(&mut ws);
            for (i, y) in y.chunks_exact(n_out).enumerate() {
                assert_eq!(y, &one[(130 - i) * n_out..][..n_out], "{:?}, reversed row {i}", net.sizes());
            }
            let mut predicted = vec![0.0; one.len()];
            net.predict(&x, &mut ws, &mut predicted);
            assert_eq!(predicted, one, "{:?}, predict", net.sizes());
        }
    }

    /// Central differences of the f64 reference. Kills: a missing 1 − h², a transposed weight, a chunk that
    /// overwrites another, a gradient of the bias left out.
    #[test]
    fn gradients_agree_with_finite_differences() {
        for net in nets().filter(|net| net.params().len() < 3000) {
            let sizes = net.sizes();
            let mut ws = net.workspace(1);
            for rows in [1, 9, 70] {
                let (x, c) = (normals(rows * sizes[0], 4), normals(rows * net.outputs(), 5));
                ws.load(&x);
                net.forward(&mut ws);
                let mut grad = vec![f32::NAN; net.params().len()];
                net.backward(&mut ws, &c, &mut grad);
                let loss = |params: &[f64]| -> f64 {
                    let y = x.chunks_exact(sizes[0]).flat_map(|x| reference(&sizes, params, x));
                    y.zip(&c).map(|(y, c)| y * f64::from(*c)).sum()
                };
                let mut params = f64s(net.params());
                assert!(grad.iter().map(|g| g.abs()).fold(0.0, f32::max) > 1e-3, "a gradient to speak of");
                for i in (0..params.len()).step_by(1 + params.len() / 300) {
                    let old = params[i];
                    params[i] = old + 1e-5;
                    let up = loss(&params);
                    params[i] = old - 1e-5;
                    let down = loss(&params);
                    params[i] = old;
                    let want = (up - down) / 2e-5;
                    let error = (f64::from(grad[i]) - want).abs();
                    assert!(error < 3e-5, "{sizes:?}, {rows} rows, ∂/∂θ_{i}: {} for {want}", grad[i]);
                }
            }
        }
    }

    /// `cᵀ(Jv)` computed forwards equals `(Jᵀc)ᵀv` computed backwards. Kills: a tangent not carried to the next
    /// layer, the bias's direction left out, a missing 1 − h².
    #[test]
    fn jvp_is_the_adjoint_of_backward() {
        for net in nets() {
            let mut ws = net.workspace(1);
            for rows in [3, 64, 100] {
                let (x, c) = (normals(rows * net.inputs(), 6), normals(rows * net.outputs(), 7));
                let v = normals(net.params().len(), 8);
                ws.load(&x);
                net.forward(&mut ws);
                let (mut jv, mut grad) = (vec![0.0; c.len()], vec![0.0; v.len()]);
                net.jvp(&mut ws, &v, &mut jv);
                net.backward(&mut ws, &c, &mut grad);
                let dot = |a: &[f32], b: &[f32]| -> (f64, f64) {
                    let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
                };
                let ((a, size), (b, _)) = (dot(&jv, &c), dot(&grad, &v));
                assert!((a - b).abs() < 1e-6 * size, "{:?}, {rows} rows: {a} and {b}", net.sizes());
                assert!(a.abs() > 1e-3 * size, "a product to speak of");
            }
        }
    }

    /// Kills: padding or a workspace that remembers.
    #[test]
    fn what_a_workspace_held_before_does_not_matter() {
        for net in nets() {
            let x = normals(7 * net.inputs(), 9);
            let c = normals(7 * net.outputs(), 10);
            let run = |ws: &mut Workspace| {
                let mut grad = vec![0.0; net.params().len()];
                ws.load(&x);
                let y = net.forward(ws).to_vec();
                let mut other = vec![0.0; 3 * net.outputs()];
                net.predict(&x[..3 * net.inputs()], ws, &mut other); // leaves the loaded rows alone
                net.backward(ws, &c, &mut grad);
                (y, grad)
            };
            let fresh = run(&mut net.workspace(7));
            let mut used = net.workspace(200);
            used.load(&vec![1e3; 200 * net.inputs()]);
            net.forward(&mut used);
            net.backward(&mut used, &vec![1e3; 200 * net.outputs()], &mut vec![0.0; net.params().len()]);
            assert_eq!(run(&mut used), fresh, "{:?}", net.sizes());
        }
    }

    /// Kills: weights changed without their packed copies.
    #[test]
    fn new_parameters_are_used_at_once() {
        let mut net = Mlp::new(&[3, 20, 2], &mut stream(1));
        let other = Mlp::new(&[3, 20, 2], &mut stream(2));
        let x = normals(30, 11);
        let run = |net: &Mlp| {
            let (mut ws, mut grad) = (net.workspace(10), vec![0.0; net.params().len()]);
            ws.load(&x);
            let y = net.forward(&mut ws).to_vec();
            net.backward(&mut ws, &y, &mut grad);
            (y, grad)
        };
        assert_ne!(run(&net), run(&other));
        net.set_params(other.params());
        assert_eq!(run(&net), run(&other));
    }

    /// Kills: a bound of 1/fan_in or √3/√fan_in, biases of zero.
    #[test]
    fn initial_values_fill_their_range() {
        let net = Mlp::new(&[60, 64, 64, 2], &mut stream(12));
        let mut end = 0;
        for Tensor { name, shape, range } in net.tensors() {
            assert_eq!(range.start, end, "{name} follows");
            assert_eq!(range.len(), shape.iter().product::<usize>(), "{name}");
            end = range.end;
            let fan_in = if name.starts_with('0') { 60.0_f32 } else { 64.0 };
            let largest = net.params()[range].iter().map(|w| w.abs()).fold(0.0, f32::max);
            let full = if shape.len() == 2 { 0.95 } else { 0.3 }; // two biases only in the last layer
            assert!(largest <= fan_in.sqrt().recip() && largest > full / fan_in.sqrt(), "{name}: {largest}");
        }
        assert_eq!(end, net.params().len());
    }

    /// Kills: a NaN that a cut-off swallows.
    #[test]
    fn a_nan_is_seen_at_the_output() {
        for net in nets() {
            let mut ws = net.workspace(2);
            let mut x = normals(2 * net.inputs(), 13);
            x[0] = f32::NAN;
            ws.load(&x);
            let y = net.forward(&mut ws);
            assert!(y[..net.outputs()].iter().all(|y| y.is_nan()), "{:?}", net.sizes());
            assert!(y[net.outputs()..].iter().all(|y| y.is_finite()), "and only in its row");
        }
    }
}
