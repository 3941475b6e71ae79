//! EPO as the paper prints it. Nine points can be read differently; a parameter switches each of them.
//!
//! ```text
//! F̂ = (J_c − d) / σ,   α from F̂,   Ψ = e^{min(F̂, ψ_max)} / μ                        σ = deviation of the episode costs
//! L(θ) = −E[min(ρ A_r, clip(ρ) A_r)] + Ψ Φ(sp_β(L_c)),   Φ(x) = α x + (1−α) x²       on each minibatch
//! sp_β(x) = ln(1 + e^{βx}) / β,   β = 1
//! L_c = (E[min(ρ A_c, clip(ρ) A_c)] / (1−γ) + J_c − d) / σ,   A_c = α A_N + (1−α) A_√F
//! T_N = max(c + γ V_N' − d, 0),   T_F = T_N²                                         targets of the critics
//! μ ← κ μ                                                                            once per epoch, κ < 1
//! stop if KL(new ‖ old) > δ
//! ```
//! γ is the discount of the cost, κ is `mu_decay` and β is `sharpness`.
//!
//! Source: Gao, Ding, Fu, Wang & Zhou, IJCAI 2024, eq25, eq166, eq168, eqCostCcritic, Algorithm 1.
//! The paper gives no value for μ; 10 is the value in its released code. Deviation: the bound ψ_max
//! on the exponent of Ψ prevents an overflow. Use `epo.rs` for training; `docs/epo-literal.md`
//! explains the effect of each difference.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, positive, require};
use crate::epo::check_thresholds;
use crate::objective::{from_state, to_state};
use crate::pmn::{PenaltyFunction, Smooth, alpha_by_region, penalty_factor};
use crate::report::{ALPHA, COST_WEIGHT, F_HAT, KL, MU, PENALTY, PSI};
use crate::{
    AlgoInfo, AlgoSpec, CostClip, CostCritic, Discount, KlDirection, Method, Minibatch, Objective,
    RestoreError, UpdateConfig, UpdateError, add_cost_gradient, clipped_surrogate, cost_surrogate,
};

/// The targets of the cost critics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostTargets {
    /// `max(c + γV' − d, 0)`, as printed. It is 0 in every state whose expected future cost is below d.
    AboveLimit,
    /// The discounted cost.
    Plain,
}

/// The unit of the violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViolationUnit {
    /// Standard deviation of the episode costs.
    Spread,
    /// The limit.
    Limit,
}

epo_core::parameters! {
    /// Parameters of the printed form of EPO. The defaults are the printed readings.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct EpoLiteralParams {
        /// Half-width ε of the clips of the probability ratio.
        pub clip: f64 = 0.2,
        /// Values of F̂ where the near region ends and where the far region begins.
        pub alpha_thresholds: [f64; 2] = [0.5, 1.0],
        /// Penalty factor μ in the first epoch. A smaller μ is stricter.
        pub mu_init: f64 = 10.0,
        /// Factor κ on μ from one epoch to the next.
        pub mu_decay: f64 = 0.99,
        /// Divide μ by κ after an epoch within the limit. In the printed form μ only decreases.
        pub mu_recovers: bool = false,
        /// Targets of the cost critics: `above-limit`, as printed, or `plain`, without the limit.
        pub targets: CostTargets = CostTargets::AboveLimit,
        /// Unit of the violation: `spread`, the standard deviation of the episode costs, or `limit`.
        pub unit: ViolationUnit = ViolationUnit::Spread,
        /// Sharpness β of the softplus, in units of F̂.
        pub sharpness: f64 = 1.0,
        /// Upper bound on the exponent of Ψ. At 50 it only prevents an overflow.
        pub psi_max: f64 = 50.0,
        /// Clip of the cost surrogate: `min`, as printed, `max` or `none`.
        pub cost_clip: CostClip = CostClip::Min,
        /// Divide the loss by one plus the weight of the cost.
        pub divide_loss: bool = false,
        /// Compute the penalty on each minibatch, as printed. Otherwise its slope is computed on the whole
        /// batch.
        pub per_minibatch: bool = true,
        /// Divergence of the KL stop: `new-old`, as printed, or `old-new`. It replaces `train.kl_direction`.
        pub kl_direction: KlDirection = KlDirection::NewOld,
    }
}

impl AlgoSpec for EpoLiteralParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "epo-literal",
        label: "EPO-literal",
        folder: "EPOLiteral",
        summary: "EPO as its paper prints it, guarded against overflow only (Gao et al. 2024)",
        reads_limit: true,
        headlines: &[("α", ALPHA), ("μ", MU), ("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
    }

    fn cost_critics(&self) -> &'static [CostCritic] {
        match self.targets {
            CostTargets::AboveLimit => &[CostCritic::AboveLimit, CostCritic::RootAboveLimit],
            CostTargets::Plain => &[CostCritic::Value, CostCritic::Root],
        }
    }

    fn check(&self) -> Result<(), UpdateError> {
        check_clip(self.clip)?;
        positive(&[("algo.mu_init", self.mu_init), ("algo.sharpness", self.sharpness)])?;
        require(&[("algo.mu_decay", self.mu_decay)], |v| v > 0.0 && v <= 1.0, "must be above 0, at most 1")?;
        check_thresholds(self.alpha_thresholds)?;
        require(
            &[("algo.psi_max", self.psi_max)],
            |v| v <= 50.0,
            "must be at most 50: no gradient may overflow",
        )
    }

    fn method(&self, _update: &UpdateConfig, discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(EpoLiteral::new(self.clone(), discount.gamma_c)))
    }
}

/// The objective of the printed form.
#[derive(Clone, Debug)]
pub struct EpoLiteral {
    /// Parameters of the algorithm.
    pub params: EpoLiteralParams,
    /// μ of the next epoch.
    next_mu: f64,
    /// 1/(1 − γ) of the cost.
    horizon: f64,
    f_hat: f64,
    /// One over the unit of the violation.
    per_unit: f64,
    alpha: f64,
    mu: f64,
    psi: f64,
    /// Penalty and weight of the cost on the whole batch. They are taken before the last pass if the objective
    /// reads the whole batch before each pass, otherwise before the first pass.
    whole: (f64, f64),
}

impl EpoLiteral {
    /// The objective at the start of training. `gamma_c` is the discount of the cost.
    pub fn new(params: EpoLiteralParams, gamma_c: f64) -> Self {
        let mu = params.mu_init;
        Self {
            params,
            next_mu: mu,
            horizon: 1.0 / (1.0 - gamma_c),
            f_hat: 0.0,
            per_unit: 1.0,
            alpha: 1.0,
            mu,
            psi: 0.0,
            whole: (0.0, 0.0),
        }
    }

    /// The cost advantage `A_c` of sample `i`.
    fn adv_c(&self, mb: &Minibatch<'_>, i: usize) -> f64 {
        self.alpha * mb.adv_c[0][i] + (1.0 - self.alpha) * mb.adv_c[1][i]
    }

    /// The penalty on these samples, and its derivative with respect to `E[min(ρ A_c, clip(ρ) A_c)]`.
    fn penalty(&self, mb: &Minibatch<'_>) -> (f64, f64) {
        let EpoLiteralParams { cost_clip, clip, .. } = self.params;
        self.penalty_at(cost_surrogate(mb, cost_clip, clip, |i| self.adv_c(mb, i)))
    }

    /// Does the same for a given value of `E[min(ρ A_c, clip(ρ) A_c)]`. This value is 0 for the
    /// policy that acted.
    fn penalty_at(&self, surrogate: f64) -> (f64, f64) {
        let slope = self.horizon * self.per_unit;
        let (smooth, sharpness) = (Smooth::Softplus, self.params.sharpness);
        let penalty = PenaltyFunction { smooth, sharpness, alpha: self.alpha, psi: self.psi };
        let (value, dvalue) = penalty.at(slope * surrogate + self.f_hat);
        (value, slope * dvalue)
    }
}

impl Objective for EpoLiteral {
    fn begin(&mut self, cost: CostReading) {
        let p = &self.params;
        let unit = match p.unit {
            ViolationUnit::Spread => cost.spread(),
            ViolationUnit::Limit => cost.limit(),
        };
        // if all episodes have the same cost, the spread is 0, and the violation is in units of
        // cost
        self.per_unit = if unit > 0.0 { 1.0 / unit } else { 1.0 };
        self.f_hat = cost.excess() * self.per_unit;
        self.alpha = alpha_by_region(self.f_hat, p.alpha_thresholds);
        self.mu = self.next_mu;
        self.psi = penalty_factor(self.f_hat, self.mu, p.psi_max);
        let recovers = p.mu_recovers && self.f_hat < 0.0;
        let mu = if recovers { self.mu / p.mu_decay } else { self.mu * p.mu_decay };
        self.next_mu = mu.clamp(f64::MIN_POSITIVE, p.mu_init.max(1e3));
        self.whole = self.penalty_at(0.0);
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        if self.reads_current_logp() {
            self.whole = self.penalty(whole);
        }
    }

    fn reads_current_logp(&self) -> bool {
        self.params.divide_loss || !self.params.per_minibatch
    }

    fn kl_direction(&self) -> Option<KlDirection> {
        Some(self.params.kl_direction)
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let p = &self.params;
        let mut loss = clipped_surrogate(mb, p.clip, |i| mb.adv_r[i], dlogp);
        let (value, weight) = if p.per_minibatch { self.penalty(mb) } else { self.whole };
        let surrogate = add_cost_gradient(mb, p.cost_clip, p.clip, weight, |i| self.adv_c(mb, i), dlogp);
        loss += if p.per_minibatch { value } else { weight * surrogate };
        let scale = if p.divide_loss { 1.0 / (1.0 + self.whole.1) } else { 1.0 };
        dlogp.iter_mut().for_each(|g| *g *= scale);
        scale * loss
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let (penalty, weight) = self.whole;
        vec![
            (F_HAT, self.f_hat),
            (ALPHA, self.alpha),
            (MU, self.mu),
            (PSI, self.psi),
            (PENALTY, penalty),
            (COST_WEIGHT, weight),
        ]
    }

    fn state(&self) -> Value {
        to_state(&self.next_mu) // `begin` computes the rest again
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.next_mu = from_state(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cost: f64, params: EpoLiteralParams) -> EpoLiteral {
        let mut epo = EpoLiteral::new(params, 0.9);
        epo.begin(CostReading::with_spread(cost, 25.0, 10.0).unwrap());
        epo
    }

    #[test]
    fn the_loss_by_hand() {
        // J_c − d = 7, σ = 10: F̂ = 0.7, α = ½, Ψ = e^0.7/10 = 0.2013753.  One sample, ρ = 1.5, A_N = 2, A_√F = 4: A_c = 3
        // min(4.5, 3.6) = 3.6, clipped: no gradient.  L_c = 36/10 + 0.7 = 4.3
        // x = ln(1 + e^4.3) = 4.313477,  Φ = ½ x + ½ x² = 11.459782,  ΨΦ = 2.307717
        // L = −min(1.5, 1.2) + 2.307717 = 1.107717;  both terms are clipped, so the gradient is 0
        let mut epo = at(32.0, EpoLiteralParams::default());
        let logp = [1.5_f64.ln()];
        let adv_c = [vec![2.0], vec![4.0]];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0], adv_r: &[1.0], adv_c: &adv_c };
        epo.begin_pass(&mb);
        let mut g = [f64::NAN];
        let loss = epo.loss(&mb, &mut g);
        assert_eq!(epo.alpha, 0.5);
        assert!((loss - 1.107_717).abs() < 1e-6, "{loss}");
        assert_eq!(g, [0.0], "`min` removes the gradient where a step has increased the cost");
        // with `max` the cost pulls: x from L_c = 45/10 + 0.7 = 5.2:  x = 5.205501,  Φ'(x) σ(5.2) = 5.705501 · 0.994514
        // weight = 0.2013753 · 5.674199 · 10/10 = 1.142643;  gradient = 1.142643 · 4.5
        let mut epo = at(32.0, EpoLiteralParams { cost_clip: CostClip::Max, ..EpoLiteralParams::default() });
        epo.begin_pass(&mb);
        epo.loss(&mb, &mut g);
        assert!((g[0] - 1.142_643 * 4.5).abs() < 1e-5, "{}", g[0]);
    }

    #[test]
    fn each_reading_has_its_switch() {
        let default = EpoLiteralParams::default;
        let f_hat = |params| at(30.0, params).f_hat;
        assert_eq!(f_hat(default()), 0.5);
        assert_eq!(f_hat(EpoLiteralParams { unit: ViolationUnit::Limit, ..default() }), 0.2);
        let plain = EpoLiteralParams { targets: CostTargets::Plain, ..default() };
        assert_eq!(plain.cost_critics(), [CostCritic::Value, CostCritic::Root]);
        assert_eq!(default().cost_critics(), [CostCritic::AboveLimit, CostCritic::RootAboveLimit]);
        let mu = |cost, params| at(cost, params).next_mu;
        assert_eq!([mu(20.0, default()), mu(30.0, default())], [9.9, 9.9], "μ only decreases");
        let recovers = EpoLiteralParams { mu_recovers: true, ..default() };
        assert_eq!([mu(20.0, recovers.clone()), mu(30.0, recovers)], [10.0 / 0.99, 9.9]);
        let far = |psi_max| at(1000.0, EpoLiteralParams { psi_max, ..default() }).psi;
        assert!(far(5.0) < 15.0 && far(50.0) > 1e20);
        let old_new = EpoLiteralParams { kl_direction: KlDirection::OldNew, ..default() };
        let kl = |params| at(30.0, params).kl_direction();
        assert_eq!((kl(default()), kl(old_new)), (Some(KlDirection::NewOld), Some(KlDirection::OldNew)));
    }

    /// This test fails if the penalty of a minibatch is taken from the whole batch, or the other way round.
    #[test]
    fn the_penalty_is_that_of_the_minibatch_or_of_the_whole_batch() {
        let adv_c = [vec![2.0, -2.0], vec![2.0, -2.0]];
        let whole = Minibatch { logp: &[0.0; 2], logp_old: &[0.0; 2], adv_r: &[0.0; 2], adv_c: &adv_c };
        let first = [vec![2.0], vec![2.0]];
        let part = Minibatch { logp: &[0.0], logp_old: &[0.0], adv_r: &[0.0], adv_c: &first };
        let gradient = |per_minibatch| {
            let mut epo = at(30.0, EpoLiteralParams { per_minibatch, ..EpoLiteralParams::default() });
            epo.begin_pass(&whole);
            let mut g = [0.0];
            epo.loss(&part, &mut g);
            (g[0], epo.whole.1)
        };
        let (of_part, _) = gradient(true);
        let (of_whole, weight) = gradient(false);
        assert_eq!(of_whole, 2.0 * weight);
        assert!(of_part > 1.2 * of_whole, "{of_part} {of_whole}");
    }

    #[test]
    fn without_a_spread_the_unit_is_one_and_the_state_is_mu() {
        let mut epo = EpoLiteral::new(EpoLiteralParams::default(), 0.99);
        epo.begin(CostReading::new(28.0, 25.0).unwrap());
        assert_eq!((epo.f_hat, epo.alpha), (3.0, 0.0));
        let mut other = EpoLiteral::new(EpoLiteralParams::default(), 0.99);
        other.restore(&epo.state()).unwrap();
        assert_eq!(other.next_mu, 9.9);
        assert!(other.restore(&Value::Null).is_err());
    }
}
