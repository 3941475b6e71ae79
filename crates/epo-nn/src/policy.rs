//! Stochastic policies: a network whose output parametrises a distribution over actions.
//!
//! ```text
//! Gaussian      a ~ N(μ(s), diag σ²),  ln σ a parameter, not a function of s, initially 0
//!               ln π = Σ_j −½ z_j² − ln σ_j − ½ ln 2π,          z = (a − μ)/σ
//!               H = Σ_j ln σ_j + ½ ln 2πe
//!               KL(p‖q) = Σ_j ln σ_q/σ_p + (σ_p² + (μ_p − μ_q)²)/(2σ_q²) − ½
//!               Fisher: diag(1/σ²) for μ, 2 for ln σ
//! categorical   p = softmax(l(s)),  ln π = l_a − ln Σ e^l,  H = −Σ p ln p,  Fisher: diag p − p pᵀ
//! ```
//!
//! The network computes in `f32`; numbers per sample are `f64`. KL and entropy are summed over action dimensions and
//! averaged over states.

use epo_core::{ActionSpace, Stream};

use crate::dist::{Dist, HALF_LN_TAU, gaussian_log_prob, log_sum_exp, row_entropy};
use crate::mlp::{Mlp, Tensor, Workspace};
use crate::tiny::narrow;

/// Family of the action distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Diagonal Gaussian. Its standard deviations are parameters that do not depend on the state.
    Gaussian,
    /// Softmax over the outputs. An action is one number, the index of the output.
    Categorical,
}

/// A stochastic policy: a network and a family of distributions.
#[derive(Clone, Debug)]
pub struct Policy {
    net: Mlp,
    head: Head,
    /// σ per action dimension. Empty for a categorical policy.
    std: Vec<f64>,
    /// 1/σ.
    inv_std: Vec<f64>,
    /// `Σ_j ln σ_j + ½ ln 2π`.
    log_norm: f64,
}

/// Buffers for a batch: loaded observations and actions, activations, numbers per sample.
#[derive(Clone, Debug)]
pub struct PolicyWorkspace {
    net: Workspace,
    actions: Vec<f32>,
    action_len: usize,
    logp: Vec<f64>,
    dout: Vec<f32>,
    one: Vec<f32>,
    v: Vec<f32>,
    fv: Vec<f32>,
}

impl Policy {
    /// A policy for observations with `obs` entries and the given action space, with hidden layers
    /// of the given sizes.
    pub fn new(obs: usize, hidden: &[usize], actions: &ActionSpace, stream: &mut Stream) -> Self {
        let (head, outputs) = match actions {
            ActionSpace::Box { low, .. } => (Head::Gaussian, low.len()),
            ActionSpace::Discrete { n } => (Head::Categorical, *n),
        };
        let sizes: Vec<usize> = [&[obs], hidden, &[outputs]].concat();
        let tail = if head == Head::Gaussian { outputs } else { 0 };
        let net = Mlp::with_tail(&sizes, tail, stream);
        let mut this = Self { net, head, std: vec![1.0; tail], inv_std: vec![1.0; tail], log_norm: 0.0 };
        this.update(|_| {}); // computes σ, 1/σ and `log_norm`
        this
    }

    /// Family of the action distribution.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The network that computes the mean or the logits.
    pub fn net(&self) -> &Mlp {
        &self.net
    }

    /// Length of a stored action: the number of dimensions for a Gaussian, 1 for a categorical policy.
    pub fn action_len(&self) -> usize {
        match self.head {
            Head::Gaussian => self.net.outputs(),
            Head::Categorical => 1,
        }
    }

    /// Number of 64-bit random numbers that [`act`](Self::act) draws.
    pub fn draws(&self) -> u64 {
        match self.head {
            Head::Gaussian => 2 * self.net.outputs() as u64, // a normal number is made of two
            Head::Categorical => 1,
        }
    }

    /// All parameters: those of the network, followed by `ln σ` for a Gaussian.
    pub fn params(&self) -> &[f32] {
        self.net.params()
    }

    /// Changes the parameters in place: `policy.update(|p| adam.step(p, &grad, lr))`.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        self.net.update(change);
        let tail = self.net.params().len() - self.std.len();
        self.log_norm = 0.0;
        for (j, log_std) in self.net.params()[tail..].iter().enumerate() {
            self.std[j] = f64::from(*log_std).exp();
            self.inv_std[j] = (-f64::from(*log_std)).exp();
            self.log_norm += f64::from(*log_std) + HALF_LN_TAU;
        }
    }

    /// Replaces the parameters.
    ///
    /// # Panics
    /// If the length differs.
    pub fn set_params(&mut self, params: &[f32]) {
        self.update(|p| p.copy_from_slice(params));
    }

    /// `ln σ` of a Gaussian. Empty for a categorical policy.
    pub fn log_std(&self) -> &[f32] {
        &self.params()[self.params().len() - self.std.len()..]
    }

    /// σ of a Gaussian. Empty for a categorical policy.
    pub fn std(&self) -> &[f64] {
        &self.std
    }

    /// Names, shapes and positions of the parameters.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut out = self.net.tensors();
        let n = self.params().len();
        if self.head == Head::Gaussian {
            let range = n - self.std.len()..n;
            out.push(Tensor { name: "log_std".to_owned(), shape: vec![self.std.len()], range });
        }
        out
    }

    /// Buffers for up to `rows` rows. They grow if more are loaded.
    pub fn workspace(&self, rows: usize) -> PolicyWorkspace {
        let (n, outputs) = (self.params().len(), self.net.outputs());
        PolicyWorkspace {
            net: self.net.workspace(rows),
            actions: Vec::with_capacity(rows * self.action_len()),
            action_len: self.action_len(),
            logp: Vec::with_capacity(rows),
            dout: Vec::with_capacity(rows * outputs),
            one: vec![0.0; outputs],
            v: vec![0.0; n],
            fv: vec![0.0; n],
        }
    }

    /// Samples an action, writes it to `action`, and returns `ln π` of exactly the numbers written.
    ///
    /// # Panics
    /// If a length differs.
    pub fn act(&self, obs: &[f32], ws: &mut PolicyWorkspace, stream: &mut Stream, action: &mut [f32]) -> f64 {
        assert_eq!(action.len(), self.action_len(), "action");
        self.net.forward_one(obs, &mut ws.net, &mut ws.one);
        match self.head {
            Head::Gaussian => {
                for j in 0..action.len() {
                    action[j] = (f64::from(ws.one[j]) + self.std[j] * stream.normal()) as f32;
                }
            }
            Head::Categorical => {
                let lse = log_sum_exp(&ws.one);
                let mut left = stream.uniform();
                // rounding can leave a residual probability; it belongs to the last action
                let found = ws.one.iter().position(|&l| {
                    left -= (f64::from(l) - lse).exp();
                    left < 0.0
                });
                action[0] = found.unwrap_or(ws.one.len() - 1) as f32;
            }
        }
        self.row_log_prob(&ws.one, action)
    }

    /// Writes the most likely action: the mean of a Gaussian, or the index of the largest logit (the first, if several
    /// are equal).
    pub fn act_deterministic(&self, obs: &[f32], ws: &mut PolicyWorkspace, action: &mut [f32]) {
        self.net.forward_one(obs, &mut ws.net, &mut ws.one);
        match self.head {
            Head::Gaussian => action.copy_from_slice(&ws.one),
            Head::Categorical => {
                let mut best = 0;
                for j in 1..ws.one.len() {
                    if ws.one[j] > ws.one[best] {
                        best = j;
                    }
                }
                action[0] = best as f32;
            }
        }
    }

    /// Computes `ln π(a_i|s_i)` for the loaded rows.
    pub fn log_prob<'w>(&self, ws: &'w mut PolicyWorkspace) -> &'w [f64] {
        let out = self.net.forward(&mut ws.net);
        ws.logp.clear();
        for (y, a) in out.chunks_exact(self.net.outputs()).zip(ws.actions.chunks_exact(ws.action_len)) {
            ws.logp.push(self.row_log_prob(y, a));
        }
        &ws.logp
    }

    /// Writes the gradient of `Σ_i dlogp_i ln π(a_i|s_i) − entropy_coef · H̄` to `grad`, for the rows of the
    /// last [`log_prob`](Self::log_prob). `H̄` is the mean entropy. The earlier content of `grad` is
    /// overwritten.
    ///
    /// # Panics
    /// If a length differs.
    pub fn backward(&self, ws: &mut PolicyWorkspace, dlogp: &[f64], entropy_coef: f64, grad: &mut [f32]) {
        let m = self.net.outputs();
        assert_eq!(dlogp.len(), ws.net.rows(), "dlogp");
        ws.dout.clear();
        let rows = ws.net.output().chunks_exact(m).zip(ws.actions.chunks_exact(ws.action_len)).zip(dlogp);
        match self.head {
            Head::Gaussian => {
                for ((y, a), d) in rows {
                    for j in 0..m {
                        let z = (f64::from(a[j]) - f64::from(y[j])) * self.inv_std[j];
                        ws.dout.push(narrow(d * z * self.inv_std[j]));
                    }
                }
            }
            Head::Categorical => {
                let bonus = entropy_coef / ws.net.rows() as f64;
                for ((y, a), d) in rows {
                    let (lse, h) = (log_sum_exp(y), row_entropy(y));
                    for j in 0..m {
                        let ln_p = f64::from(y[j]) - lse;
                        let chosen = if j == a[0] as usize { 1.0 } else { 0.0 };
                        ws.dout.push(narrow(d * (chosen - ln_p.exp()) + bonus * ln_p.exp() * (ln_p + h)));
                    }
                }
            }
        }
        self.net.backward(&mut ws.net, &ws.dout, grad);
        if self.head == Head::Gaussian {
            self.log_std_gradient(ws, dlogp, entropy_coef, grad);
        }
    }

    /// Writes the derivative by `ln σ_j`: `Σ_i dlogp_i (z_ij² − 1) − entropy_coef`.
    fn log_std_gradient(&self, ws: &PolicyWorkspace, dlogp: &[f64], entropy_coef: f64, grad: &mut [f32]) {
        let m = self.net.outputs();
        let tail = grad.len() - m;
        for j in 0..m {
            let mut acc = -entropy_coef;
            for (i, d) in dlogp.iter().enumerate() {
                let z = (f64::from(ws.actions[i * m + j]) - f64::from(ws.net.output()[i * m + j]))
                    * self.inv_std[j];
                acc += d * (z * z - 1.0);
            }
            grad[tail + j] = narrow(acc);
        }
    }

    /// Writes `(F + damping · I) v` to `out`, with the exact Fisher matrix averaged over the rows of the last
    /// [`log_prob`](Self::log_prob): `F = 1/n Σ_i J_iᵀ M_i J_i`. `M_i` is the Fisher matrix of the distribution in its
    /// outputs, and `J_i` the Jacobian of the network.
    ///
    /// # Panics
    /// If a length differs.
    pub fn fisher_vector_product(&self, ws: &mut PolicyWorkspace, v: &[f64], damping: f64, out: &mut [f64]) {
        assert_eq!(v.len(), self.params().len(), "v");
        assert_eq!(out.len(), v.len(), "out");
        let (m, n) = (self.net.outputs(), ws.net.rows());
        for (v32, v) in ws.v.iter_mut().zip(v) {
            *v32 = narrow(*v);
        }
        ws.dout.resize(n * m, 0.0);
        self.net.jvp(&mut ws.net, &ws.v, &mut ws.dout);
        let weight = 1.0 / n as f64;
        for (y, u) in ws.net.output().chunks_exact(m).zip(ws.dout.chunks_exact_mut(m)) {
            match self.head {
                Head::Gaussian => {
                    for (u, s) in u.iter_mut().zip(&self.inv_std) {
                        *u = narrow(f64::from(*u) * weight * s * s);
                    }
                }
                Head::Categorical => {
                    let lse = log_sum_exp(y);
                    let p = |j: usize| (f64::from(y[j]) - lse).exp();
                    let mean: f64 = (0..m).map(|j| p(j) * f64::from(u[j])).sum();
                    for j in 0..m {
                        u[j] = narrow(weight * p(j) * (f64::from(u[j]) - mean));
                    }
                }
            }
        }
        self.net.backward(&mut ws.net, &ws.dout, &mut ws.fv);
        for ((out, fv), v) in out.iter_mut().zip(&ws.fv).zip(v) {
            *out = f64::from(*fv) + damping * v;
        }
        let tail = v.len() - self.std.len();
        for (out, v) in out[tail..].iter_mut().zip(&v[tail..]) {
            *out = (2.0 + damping) * v;
        }
    }

    /// Writes the action distributions at the states `obs` (`[n][inputs]`) to `dist`.
    pub fn dist(&self, obs: &[f32], ws: &mut PolicyWorkspace, dist: &mut Dist) {
        dist.head = self.head;
        dist.outputs = self.net.outputs();
        dist.rows.resize(obs.len() / self.net.inputs() * dist.outputs, 0.0);
        self.net.predict(obs, &mut ws.net, &mut dist.rows);
        dist.log_std.clear();
        dist.log_std.extend(self.log_std().iter().map(|&s| f64::from(s)));
        dist.inv_std.clone_from(&self.inv_std);
    }

    fn row_log_prob(&self, y: &[f32], action: &[f32]) -> f64 {
        match self.head {
            Head::Gaussian => gaussian_log_prob(y, action, &self.inv_std, self.log_norm),
            Head::Categorical => f64::from(y[action[0] as usize]) - log_sum_exp(y),
        }
    }
}

impl PolicyWorkspace {
    /// Loads observations (`[n][inputs]`) and actions (`[n][action_len]`).
    pub fn load(&mut self, obs: &[f32], actions: &[f32]) {
        self.net.load(obs);
        assert_eq!(actions.len(), self.net.rows() * self.action_len, "actions");
        self.actions.clear();
        self.actions.extend_from_slice(actions);
    }

    /// Loads the rows `index` of `obs` and `actions`, in the order of `index`.
    pub fn gather(&mut self, obs: &[f32], actions: &[f32], index: &[u32]) {
        self.net.gather(obs, index);
        self.actions.clear();
        for &i in index {
            self.actions.extend_from_slice(&actions[i as usize * self.action_len..][..self.action_len]);
        }
    }

    /// Number of loaded rows.
    pub fn rows(&self) -> usize {
        self.net.rows()
    }
}

#[cfg(test)]
mod tests;
