//! Checks of Equation 2, Proposition 1 and Theorem 2 for random pairs of policies.
//!
//! ```text
//! L_C(π) = J_C(π_k) + 1/(1−γ) E_{d^k, π}[A_C] − d,   e_C = √(2δ) γ ε_C / (1−γ)²
//! Prop. 1  L_C ≤ 0  ⇒  J_C(π) − d ≤ e_C
//! Thm. 2   L_C ≤ 0  ⇒  |P − P^k| ≤ (1−γ) e_R + (1/μ)(α e_C + (1−α) e_C²)
//! repaired, any L_C:   |P − P^k| ≤ (1−γ) e_R + (1/μ)(α e_C + (1−α)(e_C² + 2 L_C⁺ e_C))
//! ```
//! In this module P has the units of the paper: F_R = (1−γ)(J_R(π) − J_R(π_k)). δ is E_{s∼d^k} D_KL(π‖π_k)[s].

use epo_core::{Purpose, Stream};

use super::{Check, Tally};
use crate::linear::dot;
use crate::penalty::hinge;
use crate::{Cmdp, PolicyValues, RandomCmdp, SolveError, TabularPolicy};

/// The quantities in the bounds for a pair of policies: π_k and a policy π close to it. None depends on the limit.
pub(crate) struct Pair {
    /// Mean KL divergence E_{d^k} KL(π‖π_k).
    pub(crate) delta: f64,
    /// Reverse mean KL divergence E_{d^k} KL(π_k‖π).
    reverse: f64,
    /// J_C(π), the exact cost of the new policy.
    pub(crate) j_c: f64,
    /// Surrogate of J_C(π): J_C(π_k) + 1/(1−γ) E_{d^k, π}[A_C].
    pub(crate) surrogate_c: f64,
    /// F_R by eq 6, with the state distribution d^π of the new policy.
    pub(crate) f_r: f64,
    /// (1−γ)(J_R(π) − J_R(π_k)), the exact reward gain.
    pub(crate) gain_r: f64,
    /// L_R, the surrogate of F_R with the state distribution d^k.
    pub(crate) l_r: f64,
    eps_r: f64,
    eps_c: f64,
    gamma: f64,
}

impl Pair {
    /// Computes the quantities. `base` is π_k and `new` is π.
    pub(crate) fn new(cmdp: &Cmdp, base: &TabularPolicy, new: &TabularPolicy) -> Self {
        let (n, m, gamma) = (cmdp.n_states(), cmdp.n_actions(), cmdp.gamma());
        let (k, e) = (base.evaluate(cmdp), new.evaluate(cmdp));
        let mean =
            |adv: &[f64]| -> Vec<f64> { (0..n).map(|s| dot(new.at(s), &adv[s * m..(s + 1) * m])).collect() };
        let adv_r = mean(&PolicyValues::advantage(cmdp, cmdp.reward(), &k.v_r));
        let adv_c = mean(&PolicyValues::advantage(cmdp, &cmdp.costs()[0], &k.v_c[0]));
        let sup = |v: &[f64]| v.iter().fold(0.0_f64, |top, x| top.max(x.abs()));
        let mean_kl = |p: &TabularPolicy, q: &TabularPolicy| {
            (0..n).map(|s| (1.0 - gamma) * k.visits[s] * p.kl(q, s)).sum()
        };
        Self {
            delta: mean_kl(new, base),
            reverse: mean_kl(base, new),
            j_c: e.j_c[0],
            surrogate_c: k.j_c[0] + dot(&k.visits, &adv_c),
            f_r: (1.0 - gamma) * dot(&e.visits, &adv_r),
            gain_r: (1.0 - gamma) * (e.j_r - k.j_r),
            l_r: (1.0 - gamma) * dot(&k.visits, &adv_r),
            eps_r: sup(&adv_r),
            eps_c: sup(&adv_c),
            gamma,
        }
    }

    /// Returns e_C for a trust region of size `delta`.
    pub(crate) fn bound_c(&self, delta: f64) -> f64 {
        (2.0 * delta).sqrt() * self.gamma * self.eps_c / (1.0 - self.gamma).powi(2)
    }

    /// Returns |P − P^k|, the error of the surrogate objective.
    pub(crate) fn error(&self, d: f64, mu: f64, alpha: f64) -> f64 {
        let p = self.f_r - hinge(alpha, self.j_c - d) / mu;
        (p - (self.l_r - hinge(alpha, self.surrogate_c - d) / mu)).abs()
    }

    /// Returns the bound of Theorem 2 as printed, and the additional term that it needs if L_C > 0.
    pub(crate) fn theorem2(&self, delta: f64, d: f64, mu: f64, alpha: f64) -> (f64, f64) {
        let e_c = self.bound_c(delta);
        let e_r = (2.0 * delta).sqrt() * self.gamma * self.eps_r / (1.0 - self.gamma);
        let printed = e_r + (alpha * e_c + (1.0 - alpha) * e_c * e_c) / mu;
        (printed, (1.0 - alpha) * 2.0 * (self.surrogate_c - d).max(0.0) * e_c / mu)
    }
}

/// Returns the policy π ∝ π_k exp(t·direction) with the largest t ≤ 20 for which E KL(π‖π_k) ≤ δ.
fn step(cmdp: &Cmdp, logits: &[f64], direction: &[f64], delta: f64) -> TabularPolicy {
    let m = cmdp.n_actions();
    let base = TabularPolicy::softmax(m, logits);
    let visits = base.evaluate(cmdp).visits;
    let at = |t: f64| {
        let moved: Vec<f64> = logits.iter().zip(direction).map(|(l, g)| l + t * g).collect();
        TabularPolicy::softmax(m, &moved)
    };
    let kl = |p: &TabularPolicy| {
        (0..visits.len()).map(|s| (1.0 - cmdp.gamma()) * visits[s] * p.kl(&base, s)).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..50 {
        let mid = 0.5 * (low + high);
        if kl(&at(mid)) <= delta {
            low = mid;
        } else {
            high = mid;
        }
    }
    at(low)
}

/// Returns four directions: noise, the cost advantage, its negative, and noise in a single state.
///
/// The directions along the cost advantage are the worst cases for the bounds.
fn directions(cmdp: &Cmdp, base: &TabularPolicy, rng: &mut Stream) -> [Vec<f64>; 4] {
    let k = base.evaluate(cmdp);
    let adv = PolicyValues::advantage(cmdp, &cmdp.costs()[0], &k.v_c[0]);
    let top = adv.iter().fold(1e-9_f64, |t, a| t.max(a.abs()));
    let up: Vec<f64> = adv.iter().map(|a| a / top).collect();
    let down = up.iter().map(|a| -a).collect();
    let noise: Vec<f64> = up.iter().map(|_| rng.normal()).collect();
    let (one, m) = (rng.below(cmdp.n_states()), cmdp.n_actions());
    let alone = (0..up.len()).map(|i| if i / m == one { noise[i] } else { 0.0 }).collect();
    [noise, up, down, alone]
}

/// Checks Equation 2, Proposition 1, Theorem 2 and its repaired version.
pub(super) fn bounds(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    let mut eq2 = Tally::new("equation-2", 1e-9, "|F_R of eq 6 − (1−γ)(J_R(π) − J_R(π_k))|");
    let mut prop = Tally::new("proposition-1", 1e-9, "J_C(π) − d − √(2δ)γε_C/(1−γ)² ≤ 0 where L_C(π) ≤ 0");
    let mut other = Tally::new("proposition-1-reverse", 1e-9, "the same with δ = E D_KL(π_k‖π) of the pair");
    let mut thm = Tally::new("theorem-2", 1e-9, "|P − P^k| − bound ≤ 0 where L_C(π) ≤ 0");
    let mut repaired =
        Tally::new("theorem-2-repaired", 1e-9, "|P − P^k| − bound − (1−α)2L_C⁺e_C/μ ≤ 0, any L_C");
    let (mut tight1, mut tight2, mut tight3, mut broken, mut violated) = (0.0_f64, 0.0_f64, 0.0_f64, 0, 0);
    for i in 0..n {
        let cmdp = RandomCmdp::draw(i as u64, 1).build(i as u64);
        let mut rng = Stream::new(i as u64, Purpose::Random, 2);
        let logits: Vec<f64> = cmdp.reward().iter().map(|_| rng.normal()).collect();
        let base = TabularPolicy::softmax(cmdp.n_actions(), &logits);
        for direction in directions(&cmdp, &base, &mut rng) {
            for delta in [1e-3, 1e-2, 1e-1] {
                let pair = Pair::new(&cmdp, &base, &step(&cmdp, &logits, &direction, delta));
                let case = || format!("{}, δ {delta}", cmdp.name());
                eq2.see((pair.f_r - pair.gain_r).abs(), case);
                // with this limit the surrogate constraint holds with equality, which is the worst allowed case
                let (d, e_c) = (pair.surrogate_c, pair.bound_c(delta));
                prop.see(pair.j_c - d - e_c, case);
                other.see(pair.j_c - d - pair.bound_c(pair.reverse), case);
                // if the bound is as small as rounding errors, the ratio is meaningless
                if e_c > 1e-9 {
                    tight1 = tight1.max((pair.j_c - d) / e_c);
                }
                for (alpha, mu) in [(0.0, 1.0), (0.5, 0.1), (1.0, 0.1), (0.0, 0.01)] {
                    let (error, (bound, _)) = (pair.error(d, mu, alpha), pair.theorem2(delta, d, mu, alpha));
                    thm.see((error - bound) / bound.max(1.0), case);
                    tight2 = tight2.max(error / bound.max(1e-9));
                    // with this limit the surrogate constraint is violated, by a random amount
                    let d = pair.surrogate_c - rng.uniform() / (1.0 - cmdp.gamma());
                    let (error, (bound, lacking)) =
                        (pair.error(d, mu, alpha), pair.theorem2(delta, d, mu, alpha));
                    repaired.see((error - bound - lacking) / bound.max(1.0), case);
                    tight3 = tight3.max(error / (bound + lacking).max(1e-9));
                    violated += 1;
                    broken += usize::from(error > bound * (1.0 + 1e-9));
                }
            }
        }
        progress(i);
    }
    let tight = |t: f64| format!("the cases reach at most {:.1} % of the bound", 100.0 * t);
    let note =
        format!("{}; with L_C > 0 the printed bound fails in {broken} of {violated} cases", tight(tight3));
    Ok(vec![
        eq2.finish(""),
        prop.finish(tight(tight1)),
        other.finish(""),
        thm.finish(tight(tight2)),
        repaired.finish(note),
    ])
}
