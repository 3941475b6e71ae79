//! Adam and the clip of the gradient's norm, as PyTorch has them.
//!
//! ```text
//! m ← β₁ m + (1 − β₁) g          v ← β₂ v + (1 − β₂) g²
//! θ ← θ − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
//! ```
//!
//! Source: Kingma & Ba, 2015; the place of ε is that of `torch.optim.Adam`.

/// First and second moments of the gradient, and the number of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    beta1: f64,
    beta2: f64,
    eps: f64,
    m: Vec<f32>,
    v: Vec<f32>,
    t: u64,
}

impl Adam {
    /// For `n` parameters, with β = (0.9, 0.999) and ε = 1e-8.
    pub fn new(n: usize) -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, m: vec![0.0; n], v: vec![0.0; n], t: 0 }
    }

    /// The same with another ε.
    pub fn with_eps(self, eps: f64) -> Self {
        Self { eps, ..self }
    }

    /// One step against `grad`. The learning rate is the caller's, so that a decay needs no state here.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, params: &mut [f32], grad: &[f32], lr: f64) {
        assert_eq!(params.len(), self.m.len(), "parameters");
        assert_eq!(grad.len(), self.m.len(), "gradient");
        self.t += 1;
        let t = self.t as f64;
        let step = (lr / (1.0 - self.beta1.powf(t))) as f32;
        let root = (1.0 / (1.0 - self.beta2.powf(t)).sqrt()) as f32;
        let (b1, b2, eps) = (self.beta1 as f32, self.beta2 as f32, self.eps as f32);
        let (c1, c2) = ((1.0 - self.beta1) as f32, (1.0 - self.beta2) as f32);
        for (((p, g), m), v) in params.iter_mut().zip(grad).zip(&mut self.m).zip(&mut self.v) {
            *m = b1 * *m + c1 * g;
            *v = b2 * *v + c2 * g * g;
            *p -= step * *m / (v.sqrt() * root + eps);
        }
    }

    /// First moments.
    pub fn m(&self) -> &[f32] {
        &self.m
    }

    /// Second moments.
    pub fn v(&self) -> &[f32] {
        &self.v
    }

    /// Steps taken.
    pub fn t(&self) -> u64 {
        self.t
    }

    /// Continues from stored moments.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn restore(&mut self, m: &[f32], v: &[f32], t: u64) {
        self.m.copy_from_slice(m);
        self.v.copy_from_slice(v);
        self.t = t;
    }
}

/// Scales `grad` so that its Euclidean norm is at most `max_norm`; returns the norm before.
///
/// As `torch.nn.utils.clip_grad_norm_`: the factor is `max_norm / (norm + 1e-6)`, used when below 1. A
/// non-finite norm leaves the gradient as it is: the caller sees it in the result.
///
/// ```
/// let mut g = [3.0, 4.0];
/// assert_eq!(epo_nn::clip_grad_norm(&mut g, 10.0), 5.0);
/// assert_eq!(g, [3.0, 4.0]);
/// epo_nn::clip_grad_norm(&mut g, 1.0);
/// assert!((g[0] - 0.6).abs() < 1e-6 && (g[1] - 0.8).abs() < 1e-6);
/// ```
pub fn clip_grad_norm(grad: &mut [f32], max_norm: f64) -> f64 {
    let norm = grad.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
    let scale = max_norm / (norm + 1e-6);
    if norm.is_finite() && scale < 1.0 {
        for g in grad {
            *g *= scale as f32;
        }
    }
    norm
}
