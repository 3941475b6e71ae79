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
//! The network computes in `f32`, everything per sample is `f64`. KL and entropy are summed over action
//! dimensions and averaged over states.

use epo_core::{ActionSpace, Stream};

use crate::mlp::{Mlp, Tensor, Workspace};

/// ½ ln 2π
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_8;

/// The family of the action distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Diagonal Gaussian with a log-deviation per action dimension that does not depend on the state.
    Gaussian,
    /// Softmax over the outputs. An action is one number, the index.
    Categorical,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    net: Mlp,
    head: Head,
    /// σ per action dimension; empty for a categorical policy.
    std: Vec<f64>,
}

/// Buffers for a batch: observations and actions loaded, activations, per-sample numbers.
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

/// The distributions of a policy at some states, kept for a later comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Dist {
    head: Head,
    /// μ or logits, `[n][outputs]`.
    rows: Vec<f32>,
    outputs: usize,
    log_std: Vec<f64>,
}

impl Policy {
    /// A policy for this action space with these hidden widths.
    pub fn new(obs: usize, hidden: &[usize], actions: &ActionSpace, stream: &mut Stream) -> Self {
        let (head, outputs) = match actions {
            ActionSpace::Box { low, .. } => (Head::Gaussian, low.len()),
            ActionSpace::Discrete { n } => (Head::Categorical, *n),
        };
        let sizes: Vec<usize> = [&[obs], hidden, &[outputs]].concat();
        let tail = if head == Head::Gaussian { outputs } else { 0 };
        let net = Mlp::with_tail(&sizes, tail, stream);
        Self { net, head, std: vec![1.0; tail] }
    }

    /// The family of the distribution.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The network.
    pub fn net(&self) -> &Mlp {
        &self.net
    }

    /// Numbers in one stored action: the dimensions of a Gaussian, 1 for a categorical policy.
    pub fn action_len(&self) -> usize {
        match self.head {
            Head::Gaussian => self.net.outputs(),
            Head::Categorical => 1,
        }
    }

    /// All parameters: those of the network, then `ln σ` of a Gaussian.
    pub fn params(&self) -> &[f32] {
        self.net.params()
    }

    /// Changes the parameters in place: `policy.update(|p| adam.step(p, &grad, lr))`.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        self.net.update(change);
        let tail = self.net.params().len() - self.std.len();
        for (std, log_std) in self.std.iter_mut().zip(&self.net.params()[tail..]) {
            *std = f64::from(*log_std).exp();
        }
    }

    /// Replaces the parameters.
    ///
    /// # Panics
    /// If the length differs.
    pub fn set_params(&mut self, params: &[f32]) {
        self.update(|p| p.copy_from_slice(params));
    }

    /// `ln σ` of a Gaussian, empty otherwise.
    pub fn log_std(&self) -> &[f32] {
        &self.params()[self.params().len() - self.std.len()..]
    }

    /// σ of a Gaussian, empty otherwise.
    pub fn std(&self) -> &[f64] {
        &self.std
    }

    /// The parts of the flat vector, by name.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut out = self.net.tensors();
        let n = self.params().len();
        if self.head == Head::Gaussian {
            let range = n - self.std.len()..n;
            out.push(Tensor { name: "log_std".to_owned(), shape: vec![self.std.len()], range });
        }
        out
    }

    /// Buffers for up to `rows` rows (they grow when more are loaded).
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

    /// Samples an action and returns `ln π` of exactly the numbers written to `action`.
    pub fn act(&self, obs: &[f32], ws: &mut PolicyWorkspace, stream: &mut Stream, action: &mut [f32]) -> f64 {
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
                // rounding can leave a rest after the last: it is then the last
                let found = ws.one.iter().position(|&l| {
                    left -= (f64::from(l) - lse).exp();
                    left < 0.0
                });
                action[0] = found.unwrap_or(ws.one.len() - 1) as f32;
            }
        }
        self.row_log_prob(&ws.one, action)
    }

    /// The mean of a Gaussian, the likeliest action (the first of equals) of a categorical policy.
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

    /// Forward pass over the loaded rows: `ln π(a_i|s_i)`.
    pub fn log_prob<'w>(&self, ws: &'w mut PolicyWorkspace) -> &'w [f64] {
        let out = self.net.forward(&mut ws.net);
        ws.logp.clear();
        for (y, a) in out.chunks_exact(self.net.outputs()).zip(ws.actions.chunks_exact(ws.action_len)) {
            ws.logp.push(self.row_log_prob(y, a));
        }
        &ws.logp
    }

    /// Mean entropy over the rows of the last [`log_prob`](Self::log_prob).
    pub fn entropy(&self, ws: &PolicyWorkspace) -> f64 {
        match self.head {
            Head::Gaussian => self.log_std().iter().map(|&s| f64::from(s) + HALF_LN_TAU + 0.5).sum(),
            Head::Categorical => {
                let rows = ws.net.output().chunks_exact(self.net.outputs());
                rows.map(row_entropy).sum::<f64>() / ws.net.rows() as f64
            }
        }
    }

    /// Gradient of `Σ_i dlogp_i ln π(a_i|s_i) − entropy_coef · H̄` for the rows of the last
    /// [`log_prob`](Self::log_prob), `H̄` the mean entropy; written (not added) to `grad`.
    pub fn backward(&self, ws: &mut PolicyWorkspace, dlogp: &[f64], entropy_coef: f64, grad: &mut [f32]) {
        let m = self.net.outputs();
        assert_eq!(dlogp.len(), ws.net.rows(), "dlogp");
        ws.dout.clear();
        let rows = ws.net.output().chunks_exact(m).zip(ws.actions.chunks_exact(ws.action_len)).zip(dlogp);
        match self.head {
            Head::Gaussian => {
                for ((y, a), d) in rows {
                    for j in 0..m {
                        let z = (f64::from(a[j]) - f64::from(y[j])) / self.std[j];
                        ws.dout.push((d * z / self.std[j]) as f32);
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
                        ws.dout.push((d * (chosen - ln_p.exp()) + bonus * ln_p.exp() * (ln_p + h)) as f32);
                    }
                }
            }
        }
        self.net.backward(&mut ws.net, &ws.dout, grad);
        if self.head == Head::Gaussian {
            self.log_std_gradient(ws, dlogp, entropy_coef, grad);
        }
    }

    /// ∂/∂ln σ_j: `Σ_i dlogp_i (z_ij² − 1) − entropy_coef`.
    fn log_std_gradient(&self, ws: &PolicyWorkspace, dlogp: &[f64], entropy_coef: f64, grad: &mut [f32]) {
        let m = self.net.outputs();
        let tail = grad.len() - m;
        for j in 0..m {
            let mut acc = -entropy_coef;
            for (i, d) in dlogp.iter().enumerate() {
                let z =
                    (f64::from(ws.actions[i * m + j]) - f64::from(ws.net.output()[i * m + j])) / self.std[j];
                acc += d * (z * z - 1.0);
            }
            grad[tail + j] = acc as f32;
        }
    }

    /// `out = (F + damping · I) v` with the exact Fisher matrix, averaged over the rows of the last
    /// [`log_prob`](Self::log_prob): `F = 1/n Σ_i Jᵢᵀ M_i J_i`, `M` the Fisher matrix of the distribution.
    pub fn fisher_vector_product(&self, ws: &mut PolicyWorkspace, v: &[f64], damping: f64, out: &mut [f64]) {
        let (m, n) = (self.net.outputs(), ws.net.rows());
        for (v32, v) in ws.v.iter_mut().zip(v) {
            *v32 = *v as f32;
        }
        ws.dout.resize(n * m, 0.0);
        self.net.jvp(&mut ws.net, &ws.v, &mut ws.dout);
        let weight = 1.0 / n as f64;
        for (y, u) in ws.net.output().chunks_exact(m).zip(ws.dout.chunks_exact_mut(m)) {
            match self.head {
                Head::Gaussian => {
                    for (u, s) in u.iter_mut().zip(&self.std) {
                        *u = (f64::from(*u) * weight / (s * s)) as f32;
                    }
                }
                Head::Categorical => {
                    let lse = log_sum_exp(y);
                    let p = |j: usize| (f64::from(y[j]) - lse).exp();
                    let mean: f64 = (0..m).map(|j| p(j) * f64::from(u[j])).sum();
                    for j in 0..m {
                        u[j] = (weight * p(j) * (f64::from(u[j]) - mean)) as f32;
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

    /// The distributions at the states `obs` (`[n][inputs]`), into `dist`.
    pub fn dist(&self, obs: &[f32], ws: &mut PolicyWorkspace, dist: &mut Dist) {
        dist.head = self.head;
        dist.outputs = self.net.outputs();
        dist.rows.resize(obs.len() / self.net.inputs() * dist.outputs, 0.0);
        self.net.predict(obs, &mut ws.net, &mut dist.rows);
        dist.log_std.clear();
        dist.log_std.extend(self.log_std().iter().map(|&s| f64::from(s)));
    }

    fn row_log_prob(&self, y: &[f32], action: &[f32]) -> f64 {
        match self.head {
            Head::Gaussian => {
                let mut logp = 0.0;
                for j in 0..y.len() {
                    let z = (f64::from(action[j]) - f64::from(y[j])) / self.std[j];
                    logp -= 0.5 * z * z + self.std[j].ln() + HALF_LN_TAU;
                }
                logp
            }
            Head::Categorical => f64::from(y[action[0] as usize]) - log_sum_exp(y),
        }
    }
}

impl PolicyWorkspace {
    /// Loads rows: observations `[n][inputs]` and actions `[n][action_len]`.
    pub fn load(&mut self, obs: &[f32], actions: &[f32]) {
        self.net.load(obs);
        assert_eq!(actions.len(), self.net.rows() * self.action_len, "actions");
        self.actions.clear();
        self.actions.extend_from_slice(actions);
    }

    /// Loads the rows that `index` names, in that order.
    pub fn gather(&mut self, obs: &[f32], actions: &[f32], index: &[u32]) {
        self.net.gather(obs, index);
        self.actions.clear();
        for &i in index {
            self.actions.extend_from_slice(&actions[i as usize * self.action_len..][..self.action_len]);
        }
    }

    /// Rows loaded.
    pub fn rows(&self) -> usize {
        self.net.rows()
    }
}

impl Default for Dist {
    /// Of no state.
    fn default() -> Self {
        Self { head: Head::Gaussian, rows: Vec::new(), outputs: 1, log_std: Vec::new() }
    }
}

impl Dist {
    /// States.
    pub fn rows(&self) -> usize {
        self.rows.len() / self.outputs
    }

    /// Mean over the states of `KL(self ‖ other)`, summed over action dimensions.
    ///
    /// # Panics
    /// If the two are not of the same kind and number of states.
    pub fn kl(&self, other: &Self) -> f64 {
        assert_eq!((self.head, self.outputs, self.rows.len()), (other.head, other.outputs, other.rows.len()));
        let m = self.outputs;
        let mut sum = 0.0;
        for (p, q) in self.rows.chunks_exact(m).zip(other.rows.chunks_exact(m)) {
            sum += match self.head {
                Head::Gaussian => self.gaussian_kl(other, p, q),
                Head::Categorical => {
                    let (lse_p, lse_q) = (log_sum_exp(p), log_sum_exp(q));
                    let term = |(p, q): (&f32, &f32)| {
                        let ln_p = f64::from(*p) - lse_p;
                        ln_p.exp() * (ln_p - (f64::from(*q) - lse_q))
                    };
                    p.iter().zip(q).map(term).sum()
                }
            };
        }
        sum / self.rows() as f64
    }

    /// `ln π` of one action per state, `actions` `[n][action_len]`, into `logp`: no second forward pass.
    ///
    /// # Panics
    /// If `logp` has another length than the number of states.
    pub fn log_prob(&self, actions: &[f32], logp: &mut [f64]) {
        assert_eq!(logp.len(), self.rows(), "one number per state");
        let m = self.outputs;
        let ln_std: f64 = self.log_std.iter().map(|s| s + HALF_LN_TAU).sum();
        for (i, (y, out)) in self.rows.chunks_exact(m).zip(logp).enumerate() {
            *out = match self.head {
                Head::Gaussian => {
                    let z =
                        |j: usize| (f64::from(actions[i * m + j]) - f64::from(y[j])) / self.log_std[j].exp();
                    -ln_std - (0..m).map(|j| 0.5 * z(j) * z(j)).sum::<f64>()
                }
                Head::Categorical => f64::from(y[actions[i] as usize]) - log_sum_exp(y),
            };
        }
    }

    /// Mean entropy over the states.
    pub fn entropy(&self) -> f64 {
        match self.head {
            Head::Gaussian => self.log_std.iter().map(|s| s + HALF_LN_TAU + 0.5).sum(),
            Head::Categorical => {
                self.rows.chunks_exact(self.outputs).map(row_entropy).sum::<f64>() / self.rows() as f64
            }
        }
    }

    fn gaussian_kl(&self, other: &Self, p: &[f32], q: &[f32]) -> f64 {
        let mut kl = 0.0;
        for j in 0..p.len() {
            let d = self.log_std[j] - other.log_std[j];
            let z = (f64::from(p[j]) - f64::from(q[j])) / other.log_std[j].exp();
            kl += 0.5 * ((2.0 * d).exp_m1() + z * z) - d;
        }
        kl
    }
}

fn log_sum_exp(l: &[f32]) -> f64 {
    let max = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + l.iter().map(|&l| (f64::from(l) - f64::from(max)).exp()).sum::<f64>().ln()
}

fn row_entropy(l: &[f32]) -> f64 {
    let lse = log_sum_exp(l);
    l.iter().map(|&l| f64::from(l) - lse).map(|ln_p| -ln_p.exp() * ln_p).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use epo_core::Purpose;

    fn policies() -> [Policy; 2] {
        let mut stream = Stream::new(1, Purpose::Init, 0);
        let space = ActionSpace::Box { low: vec![-1.0; 3], high: vec![1.0; 3] };
        let mut gaussian = Policy::new(5, &[8, 7], &space, &mut stream);
        gaussian.update(|p| {
            let n = p.len();
            p[n - 3..].copy_from_slice(&[-0.5, 0.1, 0.3]);
        });
        [gaussian, Policy::new(5, &[8, 7], &ActionSpace::Discrete { n: 4 }, &mut stream)]
    }

    #[test]
    fn the_log_probability_of_act_is_that_of_the_stored_action() {
        for policy in policies() {
            let mut ws = policy.workspace(64);
            let mut stream = Stream::new(3, Purpose::Action, 0);
            let obs: Vec<f32> = (0..100 * 5).map(|_| stream.normal() as f32).collect();
            let mut actions = vec![0.0; 100 * policy.action_len()];
            let mut logp = Vec::new();
            for (x, a) in obs.chunks(5).zip(actions.chunks_mut(policy.action_len())) {
                logp.push(policy.act(x, &mut ws, &mut stream, a));
            }
            ws.load(&obs, &actions);
            assert_eq!(policy.log_prob(&mut ws), logp, "{:?}", policy.head());
            let (mut dist, mut again) = (Dist::default(), vec![0.0; 100]);
            policy.dist(&obs, &mut ws, &mut dist);
            dist.log_prob(&actions, &mut again);
            assert!(again.iter().zip(&logp).all(|(a, b)| (a - b).abs() < 1e-12), "{:?}", policy.head());
            ws.load(&obs, &actions);
            policy.log_prob(&mut ws);
            assert!((dist.entropy() - policy.entropy(&ws)).abs() < 1e-12, "{:?}", policy.head());
        }
    }
}
