//! EPO: an exterior penalty whose shape depends on the distance from the limit.
//!
//! ```text
//! F̂ = (J_c − d) / s_k                        0 stays the limit; s_k = scale · max(d, 1)
//! α from F̂, Ψ = e^{min(k F̂, ψ_max)} / μ       both constant during the epoch
//! L̂(θ) = F̂ + (κ/s_k) E[max(ρ A_c, clip(ρ) A_c)],   κ = 1/(1−γ),   A_c = α A_N + (1−α) A_√F
//! L(θ) = (−E[min(ρ A_r, clip(ρ) A_r)] + Ψ Φ(sp_β(L̂))) / (1 + w),   Φ(x) = α x + (1−α) x²
//! μ ← clamp(μ e^{−η F̂}, μ_min, μ_max), |F̂| ≤ 1                        once per epoch
//! ```
//! Source: Gao, Ding, Fu, Wang & Zhou, IJCAI 2024, eq25, eq168, eq166, Algorithm 1. Deviations, each argued
//! in `docs/epo.md`: `max` in the cost clip (the printed `min` removes the corrective gradient; `cost_clip` selects
//! it), d outside the targets of the critics, a μ that recovers, a loss divided by 1 + w, and a coefficient
//! `w = Ψ Φ'(x) sp'(L̂) κ/s_k` of the cost gradient that is computed over the whole batch once per pass, because
//! `Φ(sp(E[·]))` of 64 samples is biased. With `joint_clip` one clip around A_r − w A_c replaces the two:
//! E[min(ρ A, clip(ρ) A)], as in PPO-Lagrangian. The released code of the authors is `epo_released.rs`.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, positive, require};
use crate::objective::{from_state, to_state};
use crate::pmn::{PenaltyFunction, Smooth, alpha_by_region, penalty_factor};
use crate::report::{ALPHA, COST_WEIGHT, F_HAT, KL, MU, PENALTY, PSI};
use crate::{
    AlgoInfo, AlgoSpec, CostClip, CostCritic, Discount, Method, Minibatch, Objective, RestoreError,
    UpdateConfig, UpdateError, add_cost_gradient, clipped_surrogate, cost_surrogate,
};

/// Which streams of the Penalty Metric Network take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pmn {
    /// Both streams, weighted by α of the region.
    Both,
    /// The linear stream alone: α = 1 everywhere, and V_F is not built.
    Linear,
    /// The quadratic stream alone: α = 0 everywhere, and V_N is not built.
    Quadratic,
}

/// The critic that the quadratic (far) stream takes its advantage from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuadStream {
    /// Its own critic V_F = u², trained by the root loss.
    Root,
    /// V_N. The root loss makes √V_F = V_N in the limit, so V_F can be left out.
    Shared,
}

/// The unit that the violation is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleBy {
    /// The standard deviation of the episode costs in the batch, at least 1 and at least a tenth of the limit.
    Spread,
    /// The limit, at least 1.
    Limit,
}

/// The rule that changes μ from one epoch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MuLaw {
    /// Multiplies μ by `e^{−η F̂}`: in proportion to the distance from the limit, in both directions. `mu_rate` is η.
    Proportional,
    /// Multiplies μ by `mu_decay` above the limit and by `mu_feasible` within it, whatever the distance.
    Step,
}

epo_core::parameters! {
    /// Parameters of EPO.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct EpoParams {
        /// Streams of the penalty: `both`, `linear` or `quadratic`. The last two are the paper's ablations.
        pub pmn: Pmn = Pmn::Both,
        /// Critic of the quadratic stream: `root` (a critic of its own) or `shared` (that of the linear stream).
        pub quad_stream: QuadStream = QuadStream::Root,
        /// Filter of the violation: `softplus`, or `relu`, which gives no penalty within the limit.
        pub smooth: Smooth = Smooth::Softplus,
        /// Sharpness β of the softplus, in units of F̂. A larger value confines the penalty to costs above the limit.
        pub sharpness: f64 = 4.0,
        /// Unit of the violation F̂: `limit`, or `spread`, the standard deviation of the episode costs.
        pub scale_by: ScaleBy = ScaleBy::Limit,
        /// Factor on that unit. A smaller value moves the regions and the growth of Ψ closer to the limit. With 2 the
        /// far region begins at three times the limit.
        pub scale: f64 = 2.0,
        /// Values of F̂ where the near region ends and where the far region begins.
        pub alpha_thresholds: [f64; 2] = [0.5, 1.0],
        /// Slope k in Ψ = e^{k F̂}/μ. With 0, Ψ is 1/μ.
        pub psi_slope: f64 = 1.0,
        /// Upper bound on the exponent of Ψ.
        pub psi_max: f64 = 5.0,
        /// Penalty factor μ in the first epoch. A smaller μ is stricter.
        pub mu_init: f64 = 1.0,
        /// Upper bound on μ (raised to `mu_init` if that is larger). It prevents μ from drifting while the cost is far
        /// below the limit.
        pub mu_max: f64 = 5.0,
        /// Rule that changes μ after each epoch: `proportional` or `step`.
        pub mu_law: MuLaw = MuLaw::Proportional,
        /// Rate η of the rule `proportional`: an epoch changes ln μ by −η F̂, and by at most η.
        pub mu_rate: f64 = 0.07,
        /// Factor of the rule `step` on μ after an epoch above the limit.
        pub mu_decay: f64 = 0.95,
        /// Factor of the rule `step` on μ after an epoch within the limit. Below 1 it is the literal reading of the
        /// paper ("decrease"); above 1 it lets μ recover, up to `mu_max`.
        pub mu_feasible: f64 = 1.05,
        /// Lower bound on μ. A finite μ is exact where α = 1 (Corollary 1); a lower one takes longer to recover.
        pub mu_min: f64 = 0.1,
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
        /// Clip of the cost surrogate: `max`, `min` (as printed in the paper) or `none`.
        pub cost_clip: CostClip = CostClip::Max,
        /// Divide the loss by 1 + w, where w is the weight of the cost gradient, as PPO-Lagrangian does.
        pub normalize_loss: bool = true,
        /// Use one clip around A_r − w A_c instead of one around each advantage. `cost_clip` then only enters w.
        pub joint_clip: bool = false,
    }
}

impl AlgoSpec for EpoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "epo",
        label: "EPO",
        folder: "EPO",
        summary: "exterior penalty with a Penalty Metric Network (Gao et al. 2024)",
        headlines: &[("α", ALPHA), ("μ", MU), ("KL", KL)],
    };

    /// On velocity tasks the cost responds to the weight within a few epochs, so μ may change faster. With a clip for
    /// each advantage the KL stop was never reached there and the weight grew without bound (`docs/results.md`).
    fn preset(family: TaskFamily) -> Self {
        match family {
            TaskFamily::Navigation => Self::default(),
            TaskFamily::Velocity => Self { mu_rate: 0.3, joint_clip: true, ..Self::default() },
        }
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        match (self.pmn, self.quad_stream) {
            (Pmn::Linear, _) | (_, QuadStream::Shared) => &[CostCritic::Value],
            (Pmn::Quadratic, QuadStream::Root) => &[CostCritic::Root],
            (Pmn::Both, QuadStream::Root) => &[CostCritic::Value, CostCritic::Root],
        }
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        positive(&[
            ("algo.sharpness", self.sharpness),
            ("algo.scale", self.scale),
            ("algo.mu_init", self.mu_init),
            ("algo.mu_max", self.mu_max),
            ("algo.mu_min", self.mu_min),
            ("algo.mu_rate", self.mu_rate),
            ("algo.mu_decay", self.mu_decay),
            ("algo.mu_feasible", self.mu_feasible),
        ])?;
        require(&[("algo.mu_min", self.mu_min)], |v| v <= self.mu_init, "must not exceed mu_init")?;
        require(&[("algo.psi_slope", self.psi_slope)], |_| true, "must be a finite number")?;
        let [near, far] = self.alpha_thresholds;
        require(
            &[("algo.alpha_thresholds", near)],
            |v| v <= far,
            "must be two numbers, the smaller one first",
        )?;
        require(&[("algo.alpha_thresholds", far)], |_| true, "must be a finite number")?;
        check_psi_max(self.psi_max)
    }

    fn method(&self, _update: &UpdateConfig, discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(Epo::new(self.clone(), discount.gamma_c)))
    }
}

/// Checks the upper bound on the exponent of Ψ.
pub(crate) fn check_psi_max(psi_max: f64) -> Result<(), UpdateError> {
    require(&[("algo.psi_max", psi_max)], |v| v <= 700.0, "must be at most 700, so that e^ψ is finite")
}

impl EpoParams {
    /// The unit `s_k` that the violation is divided by. It is never 0.
    pub fn unit(&self, cost: CostReading) -> f64 {
        let raw = match self.scale_by {
            ScaleBy::Spread => cost.spread().max(0.1 * cost.limit()),
            ScaleBy::Limit => cost.limit(),
        };
        self.scale * raw.max(1.0) // one unit of cost if the limit or the spread is 0
    }
}

/// The objective of EPO with its penalty factor.
#[derive(Clone, Debug)]
pub struct Epo {
    /// Parameters of the algorithm.
    pub params: EpoParams,
    /// Factor κ = 1/(1−γ) from a mean advantage to a change of J_c.
    kappa: f64,
    /// μ of the next epoch. This is the training state.
    mu_next: f64,
    epoch: EpochConstants,
    /// Weight w of the cost gradient in this pass.
    weight: f64,
    /// Penalty ΨΦ before this pass.
    penalty: f64,
}

/// The quantities that stay constant during one epoch.
#[derive(Clone, Copy, Debug)]
struct EpochConstants {
    unit: f64,
    f_hat: f64,
    alpha: f64,
    mu: f64,
    psi: f64,
}

impl Epo {
    /// The objective at the start of training. `gamma` is the discount of the cost.
    pub fn new(params: EpoParams, gamma: f64) -> Self {
        let epoch = EpochConstants { unit: 1.0, f_hat: 0.0, alpha: 1.0, mu: params.mu_init, psi: 0.0 };
        Self { kappa: 1.0 / (1.0 - gamma), mu_next: params.mu_init, epoch, weight: 0.0, penalty: 0.0, params }
    }

    /// The cost advantage `A_c = α A_N + (1−α) A_√F` of sample `i`, or that of the only stream.
    fn adv_c(&self, mb: &Minibatch<'_>, i: usize) -> f64 {
        match mb.adv_c {
            [near, far] => self.epoch.alpha * near[i] + (1.0 - self.epoch.alpha) * far[i],
            streams => streams[0][i],
        }
    }

    /// The penalty `Ψ Φ(sp(L̂))` and its derivative with respect to the mean cost surrogate `E[…]`, which is `w`.
    pub fn penalty(&self, surr_c: f64) -> (f64, f64) {
        let EpochConstants { unit, f_hat, alpha, psi, .. } = self.epoch;
        let EpoParams { smooth, sharpness, .. } = self.params;
        let l_hat = f_hat + self.kappa / unit * surr_c;
        let (value, slope) = PenaltyFunction { smooth, sharpness, alpha, psi }.at(l_hat);
        (value, slope * self.kappa / unit)
    }
}

impl Objective for Epo {
    fn begin(&mut self, cost: CostReading) {
        let p = &self.params;
        let unit = p.unit(cost);
        let f_hat = cost.excess() / unit;
        let alpha = match p.pmn {
            Pmn::Both => alpha_by_region(f_hat, p.alpha_thresholds),
            Pmn::Linear => 1.0,
            Pmn::Quadratic => 0.0,
        };
        let mu = self.mu_next;
        let psi = penalty_factor(f_hat, mu, p.psi_slope, p.psi_max);
        self.epoch = EpochConstants { unit, f_hat, alpha, mu, psi };
        let factor = match p.mu_law {
            MuLaw::Proportional => (-p.mu_rate * f_hat.clamp(-1.0, 1.0)).exp(),
            MuLaw::Step if f_hat > 0.0 => p.mu_decay,
            MuLaw::Step => p.mu_feasible,
        };
        self.mu_next = (mu * factor).clamp(p.mu_min, p.mu_max.max(p.mu_init));
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        let surr_c = cost_surrogate(whole, self.params.cost_clip, self.params.clip, |i| self.adv_c(whole, i));
        (self.penalty, self.weight) = self.penalty(surr_c);
    }

    fn reads_whole_batch(&self) -> bool {
        true
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let EpoParams { clip, cost_clip, .. } = self.params;
        let w = self.weight;
        let scale = if self.params.normalize_loss { 1.0 / (1.0 + w) } else { 1.0 };
        let loss = if self.params.joint_clip {
            clipped_surrogate(mb, clip, |i| mb.adv_r[i] - w * self.adv_c(mb, i), dlogp)
        } else {
            let reward_loss = clipped_surrogate(mb, clip, |i| mb.adv_r[i], dlogp);
            reward_loss + w * add_cost_gradient(mb, cost_clip, clip, w, |i| self.adv_c(mb, i), dlogp)
        };
        dlogp.iter_mut().for_each(|g| *g *= scale);
        scale * loss
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let EpochConstants { f_hat, alpha, mu, psi, .. } = self.epoch;
        vec![
            (F_HAT, f_hat),
            (ALPHA, alpha),
            (MU, mu),
            (PSI, psi),
            (PENALTY, self.penalty),
            (COST_WEIGHT, self.weight),
        ]
    }

    fn state(&self) -> Value {
        to_state(&self.mu_next) // `begin` computes the rest again
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.mu_next = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are easy to compute with: one unit, μ = 10, a loss that is not divided.
    fn plain() -> EpoParams {
        let (scale_by, scale) = (ScaleBy::Spread, 1.0);
        let (mu_init, mu_decay, mu_feasible, mu_min) = (10.0, 0.99, 1.0, 1.0);
        let (sharpness, mu_law, normalize_loss) = (1.0, MuLaw::Step, false);
        EpoParams {
            sharpness,
            scale_by,
            scale,
            mu_init,
            mu_law,
            mu_decay,
            mu_feasible,
            mu_min,
            normalize_loss,
            ..EpoParams::default()
        }
    }

    /// EPO in an epoch with violation `f_hat` in units of s = 1, κ = 1 (γ = 0).
    fn at(f_hat: f64, params: EpoParams) -> Epo {
        let mut epo = Epo::new(params, 0.0);
        epo.begin(CostReading::with_spread(5.0 + f_hat, 5.0, 1.0).unwrap());
        epo
    }

    fn relu() -> EpoParams {
        EpoParams { smooth: Smooth::Relu, ..plain() }
    }

    #[test]
    fn the_effective_cost_weight_by_hand() {
        // μ = 10:  x = sp(F̂),  Ψ = e^F̂/10,  w = Ψ Φ'(x) σ(F̂);  ReLU: x = F̂⁺, w = Ψ Φ'(F̂) [F̂ > 0]
        //   F̂    α    Φ          Ψ          w smooth   w ReLU
        let table = [
            (-3.0, 1.0, 0.048_587, 0.004_979, 0.000_236, 0.0),
            (-1.0, 1.0, 0.313_262, 0.036_788, 0.009_894, 0.0),
            (0.0, 1.0, 2_f64.ln(), 0.1, 0.05, 0.0),
            (0.5, 1.0, 0.974_077, 0.164_872, 0.102_626, 0.164_872),
            (0.51, 0.5, 0.970_664, 0.166_529, 0.154_024, 0.168_194),
            (1.0, 0.5, 1.518_959, 0.271_828, 0.360_336, 0.407_742),
            (1.01, 0.0, 1.743_937, 0.274_560, 0.531_556, 0.554_611),
            (2.0, 0.0, 4.523_823, 0.738_906, 2.768_520, 2.955_622),
            (5.0, 0.0, 25.067_199, 14.841_316, 147.617_847, 148.413_159),
        ];
        for (f, alpha, phi, psi, smooth, hard) in table {
            let epo = at(f, plain());
            let (penalty, w) = epo.penalty(0.0);
            let close = |got: f64, want: f64| (got - want).abs() <= 1e-6 * want.abs() + 1e-6;
            assert_eq!(epo.epoch.alpha, alpha, "F̂ = {f}");
            assert!(close(epo.epoch.psi, psi), "F̂ = {f}: Ψ = {}", epo.epoch.psi);
            assert!(close(penalty, psi * phi), "F̂ = {f}: ΨΦ = {penalty}, want {}", psi * phi);
            assert!(close(w, smooth), "F̂ = {f}: w = {w}");
            assert!(
                close(at(f, relu()).penalty(0.0).1, hard),
                "F̂ = {f}: ReLU w = {}",
                at(f, relu()).penalty(0.0).1
            );
        }
    }

    #[test]
    fn a_mean_advantage_counts_kappa_over_the_unit() {
        // γ = 0.9: κ = 10; unit 4; on the limit, E[…] = 0.2:  L̂ = 0 + 10/4 · 0.2 = 0.5
        // Ψ = 1/10, x = sp(0.5) = 0.974077, w = σ(0.5)/10 · 10/4
        let mut epo = Epo::new(plain(), 0.9);
        epo.begin(CostReading::with_spread(5.0, 5.0, 4.0).unwrap());
        let (penalty, w) = epo.penalty(0.2);
        assert!((penalty - 0.097_407_7).abs() < 1e-7, "{penalty}");
        assert!((w - 0.155_614_8).abs() < 1e-7, "{w}");
    }

    #[test]
    fn without_the_factor_the_penalty_is_that_of_eq10() {
        // Ψ = 1/μ, ReLU:  w = Φ'(F̂)/μ = 1/10, (½ + F̂)/10, 2F̂/10
        for (f, want) in [(-0.1, 0.0), (0.4, 0.1), (1.0, 0.15), (2.0, 0.4)] {
            let w = at(f, EpoParams { psi_slope: 0.0, ..relu() }).penalty(0.0).1;
            assert!((w - want).abs() < 1e-12, "F̂ = {f}: {w}");
        }
    }

    #[test]
    fn the_weight_is_the_derivative_of_the_penalty_and_does_not_see_psi() {
        // Ψ stays what it was while the surrogate moves: it is detached
        for params in [plain(), relu(), EpoParams { sharpness: 5.0, ..plain() }] {
            for f in [-2.0, -0.1, 0.3, 0.7, 1.6] {
                let epo = at(f, params.clone());
                for surr in [-0.05, 0.02, 0.4] {
                    let h = 1e-6;
                    let fd = (epo.penalty(surr + h).0 - epo.penalty(surr - h).0) / (2.0 * h);
                    let w = epo.penalty(surr).1;
                    assert!((fd - w).abs() < 1e-6 * (1.0 + w), "F̂={f} surr={surr}: {fd} {w}");
                }
            }
        }
    }

    #[test]
    fn the_weight_is_continuous_at_fixed_alpha_and_finite_far_out() {
        let epo = at(0.0, EpoParams { pmn: Pmn::Linear, ..plain() });
        for surr in [-1.0, -1e-9, 0.0, 1e-9, 1.0] {
            assert!((epo.penalty(surr).1 - epo.penalty(surr + 1e-9).1).abs() < 1e-9);
        }
        for f in [-1e4, 1e4] {
            let (penalty, w) = at(f, plain()).penalty(0.0);
            assert!(penalty.is_finite() && w.is_finite(), "F̂ = {f}: {penalty} {w}");
        }
    }

    #[test]
    fn the_loss_by_hand() {
        // F̂ = 2 (α = 0), two samples at ρ = 1.1 and 1.5, A_r = 2 and 1, far-stream A = 1 and −1, near stream not used
        // reward: −(2.2 + 1.2)/2 = −1.7;  cost surrogate with max: (1.1 − 1.2)/2 = −0.05
        // L̂ = 1.95, x = sp(1.95) = 2.083021, w = e²/10 · 2x · σ(1.95) = 2.694898
        let logp = [1.1_f64.ln(), 1.5_f64.ln()];
        let adv_c = [vec![1e9, 1e9], vec![1.0, -1.0]];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0; 2], adv_r: &[2.0, 1.0], adv_c: &adv_c };
        let mut epo = at(2.0, plain());
        epo.begin_pass(&mb);
        assert!((epo.weight - 2.694_897_829).abs() < 1e-8, "{}", epo.weight);
        let mut g = [0.0; 2];
        let loss = epo.loss(&mb, &mut g);
        assert!((loss - (-1.7 - 0.05 * epo.weight)).abs() < 1e-12, "{loss}");
        assert!((g[0] - (-2.2 + epo.weight * 1.1) / 2.0).abs() < 1e-12, "{g:?}");
        assert_eq!(g[1], 0.0, "gain capped, and a safe action raised enough");

        epo.params.normalize_loss = true;
        let mut h = [0.0; 2];
        let scaled = epo.loss(&mb, &mut h);
        assert!(
            (scaled * (1.0 + epo.weight) - loss).abs() < 1e-12
                && (h[0] * (1.0 + epo.weight) - g[0]).abs() < 1e-12
        );
    }

    #[test]
    fn a_joint_clip_looks_at_the_weighted_difference() {
        // F̂ = 2, ρ = 1.1 and 1.5 as above; A = A_r − w A_c, n = 2
        let logp = [1.1_f64.ln(), 1.5_f64.ln()];
        for a_c in [[1.0, -1.0], [-1.0, 1.0]] {
            let adv_c = [vec![1e9, 1e9], a_c.to_vec()];
            let mb = Minibatch { logp: &logp, logp_old: &[0.0; 2], adv_r: &[2.0, 1.0], adv_c: &adv_c };
            let mut epo = at(2.0, EpoParams { joint_clip: true, normalize_loss: true, ..plain() });
            epo.begin_pass(&mb);
            let w = epo.weight;
            let a = [2.0 - w * a_c[0], 1.0 - w * a_c[1]];
            // ρ = 1.5 with A > 0 has had its gain: 1.2 A and no gradient; with A < 0 it is called back
            let (rho, slope) = if a[1] > 0.0 { (1.2, 0.0) } else { (1.5, 1.5) };
            let mut g = [0.0; 2];
            let loss = epo.loss(&mb, &mut g);
            assert!((loss * (1.0 + w) + (1.1 * a[0] + rho * a[1]) / 2.0).abs() < 1e-12, "{a_c:?}: {loss}");
            assert!((g[0] * (1.0 + w) + 1.1 * a[0] / 2.0).abs() < 1e-12, "{a_c:?}: {g:?}");
            assert!((g[1] * (1.0 + w) + slope * a[1] / 2.0).abs() < 1e-12, "{a_c:?}: {g:?}");
        }
    }

    #[test]
    fn streams_are_mixed_by_alpha() {
        let adv_c = [vec![4.0], vec![8.0]];
        let mb = Minibatch { logp: &[0.0], logp_old: &[0.0], adv_r: &[0.0], adv_c: &adv_c };
        for (f, want) in [(0.2, 4.0), (0.8, 6.0), (3.0, 8.0)] {
            assert_eq!(at(f, plain()).adv_c(&mb, 0), want, "F̂ = {f}");
        }
        let one = [vec![4.0]];
        let mb = Minibatch { adv_c: &one, ..mb };
        assert_eq!(at(3.0, plain()).adv_c(&mb, 0), 4.0, "a single stream counts whole");
    }

    #[test]
    fn the_ablations_fix_alpha_and_drop_a_critic() {
        let with = |pmn, quad_stream| EpoParams { pmn, quad_stream, ..plain() };
        use CostCritic::{Root, Value};
        assert_eq!(with(Pmn::Both, QuadStream::Root).cost_critics(), [Value, Root]);
        assert_eq!(with(Pmn::Both, QuadStream::Shared).cost_critics(), [Value]);
        assert_eq!(with(Pmn::Linear, QuadStream::Root).cost_critics(), [Value]);
        assert_eq!(with(Pmn::Quadratic, QuadStream::Root).cost_critics(), [Root]);
        for f in [-1.0, 0.7, 4.0] {
            assert_eq!(at(f, with(Pmn::Linear, QuadStream::Root)).epoch.alpha, 1.0);
            assert_eq!(at(f, with(Pmn::Quadratic, QuadStream::Root)).epoch.alpha, 0.0);
        }
    }

    #[test]
    fn mu_starts_at_its_start_falls_while_violated_and_stops_at_its_floor() {
        let params = EpoParams { mu_init: 4.0, mu_decay: 0.5, mu_min: 1.5, mu_feasible: 1.5, ..plain() };
        let mut epo = Epo::new(params, 0.99);
        let mus: Vec<f64> = [30.0, 30.0, 30.0, 30.0, 20.0, 20.0, 20.0, 20.0, 20.0]
            .map(|j| {
                epo.begin(CostReading::new(j, 25.0).unwrap());
                epo.epoch.mu
            })
            .into();
        assert_eq!(
            mus,
            [4.0, 2.0, 1.5, 1.5, 1.5, 2.25, 3.375, 5.0, 5.0],
            "decay, floor, recovery up to the ceiling"
        );
        let mut held = Epo::new(plain(), 0.99);
        for j in [30.0, 20.0, 25.0, 10.0] {
            held.begin(CostReading::new(j, 25.0).unwrap());
        }
        assert_eq!(held.mu_next, 9.9, "with a factor of 1 μ holds within the limit, and on it");
    }

    #[test]
    fn the_proportional_law_moves_ln_mu_by_the_violation_both_ways() {
        // unit 10, η = ln 2: F̂ = 0.5, 0, −1, 0.5, then 9, of which 1 counts, and the floor
        let params = EpoParams {
            mu_law: MuLaw::Proportional,
            mu_rate: 2_f64.ln(),
            scale_by: ScaleBy::Limit,
            mu_init: 8.0,
            ..plain()
        };
        let mut epo = Epo::new(params, 0.99);
        let mus = [15.0, 10.0, 0.0, 15.0, 100.0, 100.0, 100.0, 100.0].map(|j| {
            epo.begin(CostReading::new(j, 10.0).unwrap());
            epo.epoch.mu
        });
        let r = 8.0 / 2_f64.sqrt();
        let want = [8.0, r, r, 8.0, r, r / 2.0, r / 4.0, 1.0]; // its start is above mu_max, so it is the ceiling; never below the floor
        assert!(mus.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{mus:?}, want {want:?}");
    }

    #[test]
    fn the_unit_keeps_zero_at_the_limit_and_is_never_zero() {
        let p = plain();
        let unit = |d, spread| p.unit(CostReading::with_spread(0.0, d, spread).unwrap());
        assert_eq!(
            [unit(25.0, 30.0), unit(25.0, 0.0), unit(0.0, 0.0), unit(100.0, 3.0)],
            [30.0, 2.5, 1.0, 10.0]
        );
        let relative = EpoParams { scale_by: ScaleBy::Limit, scale: 0.5, ..p.clone() };
        assert_eq!(relative.unit(CostReading::with_spread(0.0, 25.0, 99.0).unwrap()), 12.5);
        for spread in [0.0, 7.0, 300.0] {
            let mut epo = Epo::new(p.clone(), 0.99);
            epo.begin(CostReading::with_spread(25.0, 25.0, spread).unwrap());
            assert_eq!(epo.epoch.f_hat, 0.0);
        }
    }

    #[test]
    fn senseless_parameters_are_refused_by_name() {
        let key = |p: EpoParams| match p.check() {
            Err(UpdateError::Config { key, .. }) => key,
            other => panic!("{other:?}"),
        };
        assert_eq!(key(EpoParams { mu_init: 0.0, ..plain() }), "algo.mu_init");
        assert_eq!(key(EpoParams { mu_max: 0.0, ..plain() }), "algo.mu_max");
        assert_eq!(key(EpoParams { mu_min: 11.0, ..plain() }), "algo.mu_min");
        assert_eq!(key(EpoParams { psi_max: 1e3, ..plain() }), "algo.psi_max");
        assert_eq!(key(EpoParams { scale: f64::NAN, ..plain() }), "algo.scale");
        assert_eq!(key(EpoParams { psi_slope: f64::NAN, ..plain() }), "algo.psi_slope");
        for thresholds in [[1.0, 0.5], [f64::NAN, 1.0], [0.5, f64::NAN], [0.5, f64::INFINITY]] {
            assert_eq!(key(EpoParams { alpha_thresholds: thresholds, ..plain() }), "algo.alpha_thresholds");
        }
    }
}
