//! Adam and clipping of the gradient norm, as in PyTorch.
//!
//! ```text
//! m ← β₁ m + (1 − β₁) g          v ← β₂ v + (1 − β₂) g²
//! θ ← θ − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
//! ```
//!
//! Source: Kingma & Ba, 2015. ε is added as in `torch.optim.Adam`. Tiny numbers become zero, see [`crate::tiny`].

use pulp::{Arch, Simd, WithSimd};

use crate::tiny::{TINY, flush};

/// The optimiser Adam: first and second moments of the gradient, and the number of steps.
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
    /// An optimiser for `n` parameters, with β = (0.9, 0.999) and ε = 1e-8.
    pub fn new(n: usize) -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, m: vec![0.0; n], v: vec![0.0; n], t: 0 }
    }

    /// Takes one step against `grad` with learning rate `lr`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, params: &mut [f32], grad: &[f32], lr: f64) {
        self.step_with(Arch::new(), params, grad, lr);
    }

    /// Does the same as [`step`](Self::step) with the given instruction set.
    pub(crate) fn step_with(&mut self, arch: Arch, params: &mut [f32], grad: &[f32], lr: f64) {
        assert_eq!(params.len(), self.m.len(), "parameters");
        assert_eq!(grad.len(), self.m.len(), "gradient");
        self.t += 1;
        let t = self.t as f64;
        let step = -lr / (1.0 - self.beta1.powf(t));
        let root = 1.0 / (1.0 - self.beta2.powf(t)).sqrt();
        let [beta1, beta2, eps, step, root] =
            [self.beta1, self.beta2, self.eps, step, root].map(|x| x as f32);
        let rates = Rates {
            beta1,
            beta2,
            rest1: (1.0 - self.beta1) as f32,
            rest2: (1.0 - self.beta2) as f32,
            step,
            root,
            eps,
        };
        arch.dispatch(Step { params, grad, m: &mut self.m, v: &mut self.v, rates });
    }

    /// First moments `m`.
    pub fn m(&self) -> &[f32] {
        &self.m
    }

    /// Second moments `v`.
    pub fn v(&self) -> &[f32] {
        &self.v
    }

    /// Number of steps taken.
    pub fn t(&self) -> u64 {
        self.t
    }

    /// Sets moments and number of steps, to continue from a checkpoint.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn restore(&mut self, m: &[f32], v: &[f32], t: u64) {
        self.m.copy_from_slice(m);
        self.v.copy_from_slice(v);
        self.t = t;
    }
}

struct Rates {
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    /// −lr/(1 − β₁ᵗ)
    step: f32,
    /// 1/√(1 − β₂ᵗ)
    root: f32,
    eps: f32,
}

struct Step<'a> {
    params: &'a mut [f32],
    grad: &'a [f32],
    m: &'a mut [f32],
    v: &'a mut [f32],
    rates: Rates,
}

impl WithSimd for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { params, grad, m, v, rates } = self;
        let (params, params_end) = S::as_mut_simd_f32s(params);
        let (grad, grad_end) = S::as_simd_f32s(grad);
        let (m, m_end) = S::as_mut_simd_f32s(m);
        let (v, v_end) = S::as_mut_simd_f32s(v);
        for (((p, g), m), v) in params.iter_mut().zip(grad).zip(m).zip(v) {
            (*p, *m, *v) = adam(simd, &rates, *p, *g, *m, *v);
        }
        let [p, g, m, v] = [&*params_end, grad_end, &*m_end, &*v_end].map(|x| simd.partial_load_f32s(x));
        let (p, m, v) = adam(simd, &rates, p, g, m, v);
        simd.partial_store_f32s(params_end, p);
        simd.partial_store_f32s(m_end, m);
        simd.partial_store_f32s(v_end, v);
    }
}

/// The new parameters, first moments and second moments.
#[inline(always)]
fn adam<S: Simd>(
    simd: S,
    rates: &Rates,
    p: S::f32s,
    g: S::f32s,
    m: S::f32s,
    v: S::f32s,
) -> (S::f32s, S::f32s, S::f32s) {
    let s = |c: f32| simd.splat_f32s(c);
    let g = flush(simd, g, TINY);
    let m = simd.mul_add_e_f32s(s(rates.beta1), m, simd.mul_f32s(s(rates.rest1), g));
    let v = simd.mul_add_e_f32s(s(rates.beta2), v, simd.mul_f32s(s(rates.rest2), simd.mul_f32s(g, g)));
    let (m, v) = (flush(simd, m, TINY * TINY), flush(simd, v, TINY * TINY));
    let denominator = simd.mul_add_e_f32s(simd.sqrt_f32s(v), s(rates.root), s(rates.eps));
    let p = simd.add_f32s(p, simd.div_f32s(simd.mul_f32s(s(rates.step), m), denominator));
    (flush(simd, p, TINY), m, v)
}

/// Scales `grad` so that its Euclidean norm is at most `max_norm`. Returns the norm before scaling.
///
/// As in `torch.nn.utils.clip_grad_norm_`, the factor is `max_norm / (norm + 1e-6)`, applied if it is below 1. If the
/// norm is not finite, the gradient is left unchanged; the caller has to check the returned norm.
///
/// ```
/// let mut g = [3.0, 4.0];
/// assert_eq!(epo_nn::clip_grad_norm(&mut g, 10.0), 5.0);
/// assert_eq!(g, [3.0, 4.0]);
/// epo_nn::clip_grad_norm(&mut g, 1.0);
/// assert!((g[0] - 0.6).abs() < 1e-6 && (g[1] - 0.8).abs() < 1e-6);
/// ```
pub fn clip_grad_norm(grad: &mut [f32], max_norm: f64) -> f64 {
    let norm = Arch::new().dispatch(SumOfSquares(grad)).sqrt();
    scale_to(grad, norm, max_norm);
    norm
}

/// Adds the gradient of the penalty `c Σ w²` to `grad`, then clips it as [`clip_grad_norm`] does. Returns the norm
/// before clipping and the penalty.
///
/// ```
/// let mut g = [2.0, 2.0];
/// assert_eq!(epo_nn::add_l2_and_clip(&mut g, &[1.0, 2.0], 0.5, 10.0), (5.0, 2.5)); // g = [3, 4]
/// ```
///
/// # Panics
/// If the lengths differ.
pub fn add_l2_and_clip(grad: &mut [f32], params: &[f32], c: f64, max_norm: f64) -> (f64, f64) {
    add_l2_and_clip_with(Arch::new(), grad, params, c, max_norm)
}

/// Does the same as [`add_l2_and_clip`] with the given instruction set.
pub(crate) fn add_l2_and_clip_with(
    arch: Arch,
    grad: &mut [f32],
    params: &[f32],
    c: f64,
    max_norm: f64,
) -> (f64, f64) {
    assert_eq!(grad.len(), params.len(), "parameters");
    let (grad_squares, squares) = arch.dispatch(AddL2 { grad, params, slope: (2.0 * c) as f32 });
    let norm = grad_squares.sqrt();
    scale_to(grad, norm, max_norm);
    (norm, c * squares)
}

fn scale_to(grad: &mut [f32], norm: f64, max_norm: f64) {
    let scale = max_norm / (norm + 1e-6);
    if norm.is_finite() && scale < 1.0 {
        for g in grad {
            *g *= scale as f32;
        }
    }
}

/// Computes the sum of squares in `f64`.
struct SumOfSquares<'a>(&'a [f32]);

impl WithSimd for SumOfSquares<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let mut sums = PartialSums::default();
        sums.add::<S>(self.0);
        sums.total()
    }
}

/// A sum of squares in `f64`. It is made of sixteen partial sums on every instruction set, so that the bits are the same.
#[derive(Clone, Copy, Default)]
struct PartialSums {
    blocks: [f64; 16],
    rest: f64,
}

impl PartialSums {
    /// Adds the squares of `x`. Only the last call may have a number of entries that is not a multiple of 16.
    ///
    /// The square of an `f32` is exact in `f64`, so a fused multiply-add gives the same bits. Without the instruction it
    /// would be slow.
    #[inline(always)]
    fn add<S: Simd>(&mut self, x: &[f32]) {
        let (blocks, rest) = x.as_chunks::<16>();
        let mut sums = self.blocks; // a copy, which the compiler keeps in registers
        for block in blocks {
            for (sum, x) in sums.iter_mut().zip(block) {
                let x = f64::from(*x);
                *sum = if S::IS_SCALAR { x * x + *sum } else { x.mul_add(x, *sum) };
            }
        }
        self.blocks = sums;
        self.rest = rest.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    }

    #[inline(always)]
    fn total(self) -> f64 {
        self.blocks.iter().sum::<f64>() + self.rest
    }
}

/// Computes `grad += slope · params`, then the sums of squares of both.
struct AddL2<'a> {
    grad: &'a mut [f32],
    params: &'a [f32],
    slope: f32,
}

impl WithSimd for AddL2<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> (f64, f64) {
        /// Entries that three loops process one after another while they are in the first-level cache. In a single
        /// loop, the compiler would not keep both sets of partial sums in registers.
        const STRIP: usize = 512;
        let Self { grad, params, slope } = self;
        let [mut of_grad, mut of_params] = [PartialSums::default(); 2];
        for (grad, params) in grad.chunks_mut(STRIP).zip(params.chunks(STRIP)) {
            for (g, w) in grad.iter_mut().zip(params) {
                *g += slope * w;
            }
            of_grad.add::<S>(grad);
            of_params.add::<S>(params);
        }
        (of_grad.total(), of_params.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, β = (.9, .999), lr .1: after one step m̂ = g and √v̂ = |g|, so θ moves by lr·g/(|g| + ε); g = 0 does
    /// not move. Second step with g = −2 after g = 2: m = .9·.2 − .2 = −.02, m̂ = −.02/.19; v = .999·.004 + .004 =
    /// .007996, v̂ = .007996/.001999 = 4. Move: lr·(.02/.19)/2. This test fails if the bias correction is missing, if
    /// β₁ and β₂ are swapped, or if ε is inside the root. It also fails with the wrong sign.
    #[test]
    fn two_steps_by_hand() {
        let n = 19; // whole vectors and a partial one
        let (mut params, mut adam) = (vec![1.0_f32; n], Adam { eps: 0.5, ..Adam::new(n) });
        let mut grad = vec![2.0; n];
        grad[3] = 0.0;
        adam.step(&mut params, &grad, 0.1);
        let first = 1.0 - 0.1 * 2.0 / (2.0 + 0.5);
        for (i, p) in params.iter().enumerate() {
            let want = if i == 3 { 1.0 } else { first };
            assert!((f64::from(*p) - want).abs() < 1e-6, "{i}: {p} for {want}");
        }
        adam.step(&mut params, &vec![-2.0; n], 0.1);
        let second = first + 0.1 * (0.02 / 0.19) / (2.0 + 0.5);
        for i in [0, 7, 8, 17, 18] {
            assert!((f64::from(params[i]) - second).abs() < 1e-6, "{i}: {} for {second}", params[i]);
        }
    }

    /// This test fails if a moment or the number of steps is not restored.
    #[test]
    fn a_restored_optimiser_continues_with_the_same_bits() {
        let grad = |t: u32| -> Vec<f32> { (0..21).map(|i| ((i + 7 * t) as f32).sin()).collect() };
        let (mut params, mut adam) = (vec![0.5; 21], Adam::new(21));
        for t in 0..3 {
            adam.step(&mut params, &grad(t), 1e-2);
        }
        let (mut again, mut restored) = (params.clone(), Adam::new(21));
        restored.restore(adam.m(), adam.v(), adam.t());
        for t in 3..6 {
            adam.step(&mut params, &grad(t), 1e-2);
            restored.step(&mut again, &grad(t), 1e-2);
        }
        assert_eq!(params, again);
        assert_eq!(adam, restored);
    }

    /// This test fails if a tiny gradient, moment or parameter is not set to zero, or if a threshold is larger.
    #[test]
    fn tiny_gradients_moments_and_parameters_become_zero() {
        let n = 19; // whole vectors and a partial one
        let after = |p: f32, g: f32, m: f32, v: f32| {
            let (mut params, mut adam) = (vec![p; n], Adam::new(n));
            adam.restore(&vec![m; n], &vec![v; n], 1_000_000);
            adam.step(&mut params, &vec![g; n], 1e-3);
            let first = [params[0], adam.m[0], adam.v[0]];
            for i in 0..n {
                assert_eq!([params[i], adam.m[i], adam.v[i]], first, "{i}");
            }
            first
        };
        let square = TINY * TINY;
        assert_eq!(after(1.0, TINY / 2.0, 0.0, 0.0), [1.0, 0.0, 0.0], "gradient");
        assert_eq!(after(1.0, 0.0, square, square), [1.0, 0.0, 0.0], "moments");
        assert_eq!(after(TINY / 2.0, 0.0, 0.0, 0.0), [0.0; 3], "parameter");
        let [p, m, v] = after(2.0 * TINY, 2.0 * TINY, 2.0 * square, 2.0 * square);
        assert!(p != 0.0 && m > 0.1 * TINY && v > square, "larger ones stay: {p:e} {m:e} {v:e}");
    }

    /// This test fails if a factor of 2 or an entry after the last block of 16 is missing, or if clipping comes before
    /// the penalty.
    #[test]
    fn the_l2_penalty_is_added_before_clipping() {
        for n in [1, 16, 19, 40] {
            let w: Vec<f32> = (0..n).map(|i| i as f32 - 5.5).collect();
            let mut g: Vec<f32> = (0..n).map(|i| (i % 3) as f32).collect();
            let mut want: Vec<f32> = g.iter().zip(&w).map(|(g, w)| g + 0.5 * w).collect();
            let squares: f64 = w.iter().map(|w| f64::from(w * w)).sum();
            let norm = clip_grad_norm(&mut want, 2.0);
            assert_eq!(add_l2_and_clip(&mut g, &w, 0.25, 2.0), (norm, 0.25 * squares), "n = {n}");
            assert_eq!(g, want, "n = {n}");
        }
    }

    #[test]
    fn short_and_non_finite_gradients_are_not_clipped() {
        for n in [1, 5, 8, 40] {
            let mut g: Vec<f32> = (0..n).map(|i| i as f32 - 7.5).collect();
            let before = g.clone();
            let norm = g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            assert!((clip_grad_norm(&mut g, norm + 1.0) - norm).abs() < 1e-12);
            assert_eq!(g, before);
            assert!((clip_grad_norm(&mut g, 0.5) - norm).abs() < 1e-12);
            assert!((clip_grad_norm(&mut g, 9.0) - 0.5).abs() < 1e-6, "its norm is now ½");
            g[n - 1] = f32::NAN;
            assert!(clip_grad_norm(&mut g, 0.1).is_nan());
        }
    }
}
