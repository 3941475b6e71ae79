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

use crate::dist::{Dist, HALF_LN_TAU, gaussian_log_prob, log_sum_exp, row_entropy};
use crate::mlp::{Mlp, Tensor, Workspace};
use crate::tiny::narrow;

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
    /// 1/σ.
    inv_std: Vec<f64>,
    /// `Σ_j ln σ_j + ½ ln 2π`.
    log_norm: f64,
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
        let mut this = Self { net, head, std: vec![1.0; tail], inv_std: vec![1.0; tail], log_norm: 0.0 };
        this.update(|_| {}); // fills what is derived from ln σ
        this
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

    /// Gradient of `Σ_i dlogp_i ln π(a_i|s_i) − entropy_coef · H̄` for the rows of the last
    /// [`log_prob`](Self::log_prob), `H̄` the mean entropy; written (not added) to `grad`.
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

    /// ∂/∂ln σ_j: `Σ_i dlogp_i (z_ij² − 1) − entropy_coef`.
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

    /// `out = (F + damping · I) v` with the exact Fisher matrix, averaged over the rows of the last
    /// [`log_prob`](Self::log_prob): `F = 1/n Σ_i Jᵢᵀ M_i J_i`, `M` the Fisher matrix of the distribution.
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

    /// The distributions at the states `obs` (`[n][inputs]`), into `dist`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{self, f64s};
    use epo_core::Purpose;

    const SIZES: [usize; 3] = [5, 8, 7];

    fn policies() -> [Policy; 2] {
        let mut stream = Stream::new(1, Purpose::Init, 0);
        let space = ActionSpace::Box { low: vec![-1.0; 3], high: vec![1.0; 3] };
        let mut gaussian = Policy::new(5, &SIZES[1..], &space, &mut stream);
        gaussian.update(|p| {
            let n = p.len();
            p[n - 3..].copy_from_slice(&[-0.5, 0.1, 0.3]);
        });
        let mut categorical = Policy::new(5, &SIZES[1..], &ActionSpace::Discrete { n: 4 }, &mut stream);
        categorical.update(|p| p.iter_mut().for_each(|p| *p *= 2.0)); // away from uniform
        [gaussian, categorical]
    }

    /// Observations, sampled actions and their log-probabilities.
    fn samples(policy: &Policy, n: usize) -> (Vec<f32>, Vec<f32>, Vec<f64>) {
        let mut ws = policy.workspace(1);
        let mut stream = Stream::new(3, Purpose::Action, 0);
        let obs: Vec<f32> = (0..n * 5).map(|_| stream.normal() as f32).collect();
        let mut actions = vec![0.0; n * policy.action_len()];
        let rows = obs.chunks_exact(5).zip(actions.chunks_exact_mut(policy.action_len()));
        let logp = rows.map(|(x, a)| policy.act(x, &mut ws, &mut stream, a)).collect();
        (obs, actions, logp)
    }

    /// Kills: `ln π` of the action before it was rounded to f32, another formula in the batch than in `act`.
    #[test]
    fn the_log_probability_of_act_is_that_of_the_stored_action() {
        for policy in policies() {
            let (obs, actions, logp) = samples(&policy, 100);
            let mut ws = policy.workspace(64);
            ws.load(&obs, &actions);
            assert_eq!(policy.log_prob(&mut ws), logp, "{:?}", policy.head());
            ws.gather(&obs, &actions, &[7, 0, 99]);
            assert_eq!(policy.log_prob(&mut ws), [logp[7], logp[0], logp[99]], "{:?}", policy.head());
        }
    }

    /// The mean of −ln π over samples is the entropy, and a categorical policy's samples have its frequencies.
    /// Kills: noise of the wrong scale, sampling from another distribution than `ln π` states.
    #[test]
    fn samples_follow_the_distribution() {
        for policy in policies() {
            let n = 40_000;
            let mut ws = policy.workspace(1);
            let mut stream = Stream::new(4, Purpose::Action, 0);
            let (x, mut a) = ([0.3, -1.0, 0.5, 2.0, 0.1], vec![0.0; policy.action_len()]);
            let (mut sum, mut squares, mut counts) = (0.0, 0.0, [0.0; 4]);
            for _ in 0..n {
                let logp = policy.act(&x, &mut ws, &mut stream, &mut a);
                sum -= logp / f64::from(n);
                squares += logp * logp / f64::from(n);
                if policy.head() == Head::Categorical {
                    counts[a[0] as usize] += 1.0 / f64::from(n);
                }
            }
            let mut dist = Dist::default();
            policy.dist(&x, &mut ws, &mut dist);
            let entropy = dist.entropy();
            let error = ((squares - sum * sum) / f64::from(n)).sqrt();
            assert!((sum - entropy).abs() < 5.0 * error, "{:?}: {sum} for {entropy}", policy.head());
            if policy.head() == Head::Categorical {
                let logits = reference::mlp(&policy.net.sizes(), &f64s(policy.params()), &x);
                let total: f64 = logits.iter().map(|l| l.exp()).sum();
                for (count, l) in counts.iter().zip(logits) {
                    let p = l.exp() / total;
                    assert!(
                        (count - p).abs() < 5.0 * (p * (1.0 - p) / f64::from(n)).sqrt(),
                        "{count} for {p}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_deterministic_action_is_the_likeliest() {
        for policy in policies() {
            let (obs, actions, logp) = samples(&policy, 50);
            let mut ws = policy.workspace(64);
            let mut best = actions.clone();
            for (x, a) in obs.chunks_exact(5).zip(best.chunks_exact_mut(policy.action_len())) {
                policy.act_deterministic(x, &mut ws, a);
            }
            assert_ne!(best, actions);
            ws.load(&obs, &best);
            let at_best = policy.log_prob(&mut ws);
            assert!(at_best.iter().zip(&logp).all(|(best, sampled)| best >= sampled), "{:?}", policy.head());
        }
    }

    /// `ln π` and entropy of one state in f64, from the definitions.
    fn reference_logp(policy: &Policy, params: &[f64], x: &[f32], a: &[f32]) -> (f64, f64) {
        let y = reference::mlp(&policy.net.sizes(), params, x);
        match policy.head {
            Head::Gaussian => {
                let log_std = &params[params.len() - y.len()..];
                let tau = std::f64::consts::TAU;
                let logp = (0..y.len()).map(|j| {
                    let var = (2.0 * log_std[j]).exp();
                    -(f64::from(a[j]) - y[j]).powi(2) / (2.0 * var) - 0.5 * (tau * var).ln()
                });
                let entropy = log_std.iter().map(|s| 0.5 * (tau * std::f64::consts::E).ln() + s);
                (logp.sum(), entropy.sum())
            }
            Head::Categorical => {
                let total: f64 = y.iter().map(|l| l.exp()).sum();
                let p: Vec<f64> = y.iter().map(|l| l.exp() / total).collect();
                (p[a[0] as usize].ln(), p.iter().map(|p| -p * p.ln()).sum())
            }
        }
    }

    /// Kills: a wrong sign or factor in ∂ln π/∂μ, ∂/∂ln σ, ∂/∂logits, or in the gradient of the entropy.
    #[test]
    fn gradients_agree_with_finite_differences() {
        for policy in policies() {
            let n = 70; // more than a chunk
            let (obs, actions, _) = samples(&policy, n);
            let mut stream = Stream::new(5, Purpose::Random, 0);
            let dlogp: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
            for coef in [0.0, 3.0] {
                let mut ws = policy.workspace(n);
                ws.load(&obs, &actions);
                policy.log_prob(&mut ws);
                let mut grad = vec![f32::NAN; policy.params().len()];
                policy.backward(&mut ws, &dlogp, coef, &mut grad);
                let loss = |params: &[f64]| -> f64 {
                    let rows = obs.chunks_exact(5).zip(actions.chunks_exact(policy.action_len()));
                    let terms = rows.zip(&dlogp).map(|((x, a), d)| {
                        let (logp, entropy) = reference_logp(&policy, params, x, a);
                        d * logp - coef * entropy / n as f64
                    });
                    terms.sum()
                };
                let mut params = f64s(policy.params());
                assert!(grad.iter().map(|g| g.abs()).fold(0.0, f32::max) > 0.5, "a gradient to speak of");
                for i in 0..params.len() {
                    let old = params[i];
                    params[i] = old + 1e-5;
                    let up = loss(&params);
                    params[i] = old - 1e-5;
                    let down = loss(&params);
                    params[i] = old;
                    let want = (up - down) / 2e-5;
                    let error = (f64::from(grad[i]) - want).abs();
                    assert!(error < 1e-4, "{:?} ∂/∂θ_{i}: {} for {want}", policy.head(), grad[i]);
                }
            }
        }
    }

    /// Mean KL(θ₀ ‖ θ) in f64, from the definition `E_p[ln p − ln q]`.
    fn reference_kl(policy: &Policy, from: &[f64], to: &[f64], obs: &[f32]) -> f64 {
        let sizes = policy.net.sizes();
        let mut sum = 0.0;
        for x in obs.chunks_exact(5) {
            let (p, q) = (reference::mlp(&sizes, from, x), reference::mlp(&sizes, to, x));
            let m = p.len();
            match policy.head {
                Head::Gaussian => {
                    let (sp, sq) = (&from[from.len() - m..], &to[to.len() - m..]);
                    for j in 0..m {
                        let (vp, vq) = ((2.0 * sp[j]).exp(), (2.0 * sq[j]).exp());
                        sum += sq[j] - sp[j] + (vp + (p[j] - q[j]).powi(2)) / (2.0 * vq) - 0.5;
                    }
                }
                Head::Categorical => {
                    let total = |l: &[f64]| l.iter().map(|l| l.exp()).sum::<f64>().ln();
                    let (tp, tq) = (total(&p), total(&q));
                    sum += (0..m).map(|j| (p[j] - tp).exp() * (p[j] - tp - q[j] + tq)).sum::<f64>();
                }
            }
        }
        sum / (obs.len() / 5) as f64
    }

    /// Mixed second differences of the KL. Kills: a Fisher matrix of the outputs that is the identity, a missing
    /// −p pᵀ, 1 instead of 2 for ln σ, a sum instead of a mean.
    #[test]
    fn fisher_vector_product_is_the_curvature_of_the_kl() {
        for policy in policies() {
            let n = 66; // more than a chunk
            let (obs, actions, _) = samples(&policy, n);
            let mut ws = policy.workspace(n);
            ws.load(&obs, &actions);
            policy.log_prob(&mut ws);
            let theta = f64s(policy.params());
            let mut stream = Stream::new(6, Purpose::Random, 0);
            let v: Vec<f64> = theta.iter().map(|_| stream.normal()).collect();
            let (mut fv, mut damped) = (vec![0.0; v.len()], vec![0.0; v.len()]);
            policy.fisher_vector_product(&mut ws, &v, 0.0, &mut fv);
            policy.fisher_vector_product(&mut ws, &v, 0.1, &mut damped);
            let size = fv.iter().map(|f| f.abs()).fold(0.0, f64::max);
            let eps = 1e-3;
            for i in 0..v.len() {
                let kl = |a: f64, b: f64| {
                    let mut to: Vec<f64> = theta.iter().zip(&v).map(|(t, v)| t + a * eps * v).collect();
                    to[i] += b * eps;
                    reference_kl(&policy, &theta, &to, &obs)
                };
                let want =
                    (kl(1.0, 1.0) - kl(1.0, -1.0) - kl(-1.0, 1.0) + kl(-1.0, -1.0)) / (4.0 * eps * eps);
                let error = (fv[i] - want).abs();
                assert!(error < 1e-4 * size, "{:?} (Fv)_{i}: {} for {want}", policy.head(), fv[i]);
                assert!((damped[i] - fv[i] - 0.1 * v[i]).abs() < 1e-12, "damping");
            }
        }
    }

    /// The stored distributions give the same KL as the definition in f64, both ways round.
    #[test]
    fn kl_is_the_definition() {
        for policy in policies() {
            let (obs, _, _) = samples(&policy, 100);
            let mut other = policy.clone();
            other.update(|p| p.iter_mut().for_each(|p| *p += 0.05));
            let mut ws = policy.workspace(1);
            let (mut p, mut q) = (Dist::default(), Dist::default());
            policy.dist(&obs, &mut ws, &mut p);
            other.dist(&obs, &mut ws, &mut q);
            let (from, to) = (f64s(policy.params()), f64s(other.params()));
            for (got, want) in [
                (p.kl(&q), reference_kl(&policy, &from, &to, &obs)),
                (q.kl(&p), reference_kl(&policy, &to, &from, &obs)),
            ] {
                assert!((got - want).abs() < 1e-6 && want > 1e-4, "{:?}: {got} for {want}", policy.head());
            }
        }
    }

    /// Kills: a forgotten maximum in the softmax.
    #[test]
    fn large_logits_stay_finite() {
        let mut policy = policies()[1].clone();
        policy.update(|p| {
            let n = p.len();
            p[n - 4..].copy_from_slice(&[2000.0, -2000.0, 0.0, 1999.0]);
        });
        let mut ws = policy.workspace(1);
        ws.load(&[0.0; 10], &[1.0, 0.0]);
        let logp = policy.log_prob(&mut ws).to_vec();
        assert!((logp[0] + 4000.0).abs() < 10.0 && logp[1] > -2.0, "{logp:?}");
        let mut grad = vec![0.0; policy.params().len()];
        policy.backward(&mut ws, &[1.0, 1.0], 0.01, &mut grad);
        let mut dist = Dist::default();
        policy.dist(&[0.0; 10], &mut ws, &mut dist);
        assert!(grad.iter().all(|g| g.is_finite()) && dist.entropy().is_finite());
    }

    #[test]
    fn tensors_cover_all_parameters() {
        for policy in policies() {
            let tensors = policy.tensors();
            let mut end = 0;
            for t in &tensors {
                assert_eq!(t.range.start, end, "{}", t.name);
                end = t.range.end;
            }
            assert_eq!(end, policy.params().len());
        }
    }
}
