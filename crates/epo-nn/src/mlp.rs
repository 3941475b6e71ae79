//! Multi-layer perceptron: tanh hidden layers, linear output.
//!
//! ```text
//! h₀ = x,   h_{l+1} = tanh(h_l W_l + b_l),   y = h_L W_L + b_L
//! ```
//!
//! Parameters are one flat vector: for each layer `W` as `[in][out]` (the transpose of PyTorch's), then `b`.

use epo_core::Stream;

/// A fully connected network.
#[derive(Clone, Debug)]
pub struct Mlp {
    sizes: Vec<usize>,
    params: Vec<f32>,
}

/// Where a named tensor lies in the flat parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// `0.weight`, `0.bias`, …
    pub name: String,
    /// `[in, out]` for weights, `[out]` for biases.
    pub shape: Vec<usize>,
    /// Place in the flat vector.
    pub range: std::ops::Range<usize>,
}

/// Buffers of a batched forward and backward pass: the input rows, all activations, the gradients.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// `h₀ … y`, each `[rows][size]`.
    acts: Vec<Vec<f32>>,
    deltas: Vec<Vec<f32>>,
    rows: usize,
    inputs: usize,
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
        assert!(sizes.len() >= 2, "an input and an output size");
        assert!(sizes.iter().all(|&n| n > 0), "sizes are positive: {sizes:?}");
        let mut params = Vec::new();
        for w in sizes.windows(2) {
            let bound = 1.0 / (w[0] as f64).sqrt();
            params.extend((0..(w[0] + 1) * w[1]).map(|_| ((2.0 * stream.uniform() - 1.0) * bound) as f32));
        }
        params.extend(std::iter::repeat_n(0.0, tail));
        Self { sizes: sizes.to_vec(), params }
    }

    /// Widths, input first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Width of the input.
    pub fn inputs(&self) -> usize {
        self.sizes[0]
    }

    /// Width of the output.
    pub fn outputs(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    /// All parameters.
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// Changes the parameters in place: `mlp.update(|p| adam.step(p, &grad, lr))`.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        change(&mut self.params);
    }

    /// Replaces the parameters.
    ///
    /// # Panics
    /// If the length differs.
    pub fn set_params(&mut self, params: &[f32]) {
        self.update(|p| p.copy_from_slice(params));
    }

    /// The parts of the flat vector, by name.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut at = 0;
        let mut out = Vec::new();
        for (l, w) in self.sizes.windows(2).enumerate() {
            let (n, m) = (w[0], w[1]);
            out.push(Tensor { name: format!("{l}.weight"), shape: vec![n, m], range: at..at + n * m });
            out.push(Tensor {
                name: format!("{l}.bias"),
                shape: vec![m],
                range: at + n * m..at + (n + 1) * m,
            });
            at += (n + 1) * m;
        }
        out
    }

    /// Buffers for up to `rows` rows (they grow when more are loaded).
    pub fn workspace(&self, rows: usize) -> Workspace {
        let buffers: Vec<Vec<f32>> = self.sizes.iter().map(|n| vec![0.0; n * rows]).collect();
        Workspace { deltas: buffers.clone(), acts: buffers, rows: 0, inputs: self.inputs() }
    }

    /// Computes the output for the rows loaded in the workspace: `[rows][outputs]`.
    pub fn forward<'w>(&self, ws: &'w mut Workspace) -> &'w [f32] {
        let mut at = 0;
        for l in 0..self.sizes.len() - 1 {
            let (n, m) = (self.sizes[l], self.sizes[l + 1]);
            let (w, b) = self.params[at..at + (n + 1) * m].split_at(n * m);
            let hidden = l + 2 < self.sizes.len();
            let (x, y) = ws.acts.split_at_mut(l + 1);
            y[0].resize(ws.rows * m, 0.0);
            for (x, y) in x[l].chunks_exact(n).zip(y[0].chunks_exact_mut(m)) {
                for j in 0..m {
                    let mut acc = 0.0_f32;
                    for k in 0..n {
                        acc = x[k].mul_add(w[k * m + j], acc);
                    }
                    acc += b[j];
                    y[j] = if hidden { acc.tanh() } else { acc };
                }
            }
            at += (n + 1) * m;
        }
        ws.output()
    }

    /// Gradient of `Σ_i dout_i · y_i` for the rows of the last [`forward`](Self::forward), written (not added)
    /// to `grad`, which is as long as the parameters.
    pub fn backward(&self, ws: &mut Workspace, dout: &[f32], grad: &mut [f32]) {
        assert_eq!(dout.len(), ws.rows * self.outputs(), "dout");
        assert_eq!(grad.len(), self.params.len(), "grad");
        grad.fill(0.0);
        let last = self.sizes.len() - 1;
        ws.deltas[last].clear();
        ws.deltas[last].extend_from_slice(dout);
        let mut at: usize = self.sizes.windows(2).map(|w| (w[0] + 1) * w[1]).sum();
        for l in (0..last).rev() {
            let (n, m) = (self.sizes[l], self.sizes[l + 1]);
            at -= (n + 1) * m;
            let w = &self.params[at..at + n * m];
            let (dw, db) = grad[at..at + (n + 1) * m].split_at_mut(n * m);
            let (dx, dy) = ws.deltas.split_at_mut(l + 1);
            dx[l].resize(ws.rows * n, 0.0);
            let (h, dy) = (&ws.acts[l], &dy[0]);
            for ((h, dy), dx) in h.chunks_exact(n).zip(dy.chunks_exact(m)).zip(dx[l].chunks_exact_mut(n)) {
                for j in 0..m {
                    db[j] += dy[j];
                }
                for k in 0..n {
                    let mut acc = 0.0;
                    for j in 0..m {
                        dw[k * m + j] += h[k] * dy[j];
                        acc += w[k * m + j] * dy[j];
                    }
                    dx[k] = acc * (1.0 - h[k] * h[k]);
                }
            }
        }
    }

    /// Directional derivative of the outputs of the last [`forward`](Self::forward) along `v` (a vector of
    /// parameters): `out = J v`, `[rows][outputs]`.
    pub fn jvp(&self, ws: &mut Workspace, v: &[f32], out: &mut [f32]) {
        let mut dh = vec![0.0; ws.rows * self.sizes[0]];
        let mut at = 0;
        for l in 0..self.sizes.len() - 1 {
            let (n, m) = (self.sizes[l], self.sizes[l + 1]);
            let hidden = l + 2 < self.sizes.len();
            let mut next = vec![0.0; ws.rows * m];
            for i in 0..ws.rows {
                for j in 0..m {
                    let mut acc = v[at + n * m + j];
                    for k in 0..n {
                        acc += dh[i * n + k] * self.params[at + k * m + j];
                        acc += ws.acts[l][i * n + k] * v[at + k * m + j];
                    }
                    let h = ws.acts[l + 1][i * m + j];
                    next[i * m + j] = if hidden { acc * (1.0 - h * h) } else { acc };
                }
            }
            dh = next;
            at += (n + 1) * m;
        }
        out.copy_from_slice(&dh);
    }

    /// Outputs for any number of rows, without keeping what `backward` needs. `x` is `[n][inputs]`, `out`
    /// `[n][outputs]`.
    pub fn predict(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        for (x, out) in x.chunks(64 * self.inputs()).zip(out.chunks_mut(64 * self.outputs())) {
            ws.load(x);
            out.copy_from_slice(self.forward(ws));
        }
    }

    /// The output for one row. Its bits are those of the same row in any batch.
    pub fn forward_one(&self, x: &[f32], ws: &mut Workspace, out: &mut [f32]) {
        self.predict(x, ws, out);
    }
}

impl Workspace {
    /// Loads rows `[n][inputs]`.
    ///
    /// # Panics
    /// If the length is not a whole number of rows.
    pub fn load(&mut self, rows: &[f32]) {
        let n = self.inputs;
        assert_eq!(rows.len() % n, 0, "whole rows");
        self.rows = rows.len() / n;
        self.acts[0].clear();
        self.acts[0].extend_from_slice(rows);
    }

    /// Loads the rows of `source` (`[any][inputs]`) that `index` names, in that order.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn gather(&mut self, source: &[f32], index: &[u32]) {
        let n = self.inputs;
        self.rows = index.len();
        self.acts[0].clear();
        for &i in index {
            self.acts[0].extend_from_slice(&source[i as usize * n..][..n]);
        }
    }

    /// Rows loaded.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The outputs of the last forward pass, `[rows][outputs]`.
    pub fn output(&self) -> &[f32] {
        &self.acts[self.acts.len() - 1]
    }
}
