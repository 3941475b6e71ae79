//! EPO: an exterior penalty whose shape depends on the distance from the limit.
//!
//! ```text
//! F̂ = (J_c + z e − d) / (2d),  at most 100                violation in units of twice the limit; e = standard error of J_c
//! α from F̂,   x = sp_b(F̂),   b = min(β, d/(2e))            Penalty Metric Network: region, filter
//! Φ(x) = α x + (1−α) x²                                   weighting
//! Ψ = e^{min(F̂, ψ_max)} / μ                               penalty factor
//! w = min(Ψ Φ'(x) sp'(F̂) / sp'(0), w_max)                 slope of the penalty; w = 1/μ at the limit
//! A = (A_r − w Â_c) / (1 + w),   Â_c = α Â_N + (1−α) Â_√F   each advantage divided by its root mean square
//! L(θ) = −E[min(ρ A, clip(ρ, 1±ε) A)]
//! once per epoch:
//!   if F̂ > 0 and w was cut to w_max:   w_max ← min(w_max + η_w, 19)
//!   otherwise:                         ln μ ← ln μ − η clamp(F̂, −1, 1),  μ ≤ max(19, μ_0)
//! ```
//! Parameters: z is `margin`, β `sharpness`, μ_0 `mu_init`, η `mu_rate` and η_w `share_rate`. The first
//! w_max is `share_max / (1 − share_max)`. With `smooth = "relu"`, sp is max(F̂, 0) and sp'(0) counts as 1.
//!
//! Source: Gao, Ding, Fu, Wang & Zhou, IJCAI 2024, eq25, eq168, eq166, Algorithm 1. `docs/epo.md`
//! explains each deviation:
//! - The penalty is linearised at the policy that acted, so one clip bounds the step.
//! - The violation is in units of twice the limit and the advantages are in units of their size. So no
//!   parameter depends on the unit of a cost or a reward.
//! - μ can rise again, and the penalty's share of the update is bounded.
//! - The targets of the critics do not contain d.
//!
//! The authors' released code is `epo_released.rs`.

use epo_core::{CostReading, Metric, TaskFamily};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{check_clip, not_negative, positive, require};
use crate::objective::{from_state, to_state};
use crate::pmn::{PenaltyFunction, Smooth, alpha_by_region, penalty_factor};
use crate::report::{ALPHA, COST_WEIGHT, F_HAT, KL, MU, PSI};
use crate::{
    AlgoInfo, AlgoSpec, CostCritic, Discount, Method, Minibatch, Objective, RestoreError, UpdateConfig,
    UpdateError, clipped_surrogate,
};

/// Which streams of the Penalty Metric Network are used.
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

epo_core::parameters! {
    /// Parameters of EPO. None of them depends on the unit of a reward or a cost.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct EpoParams {
        /// Streams of the penalty: `both`, `linear` or `quadratic`. The last two are the paper's ablations.
        pub pmn: Pmn = Pmn::Both,
        /// Critic of the quadratic stream: `root` (its own critic) or `shared` (the critic of the
        /// linear stream).
        pub quad_stream: QuadStream = QuadStream::Root,
        /// Function that filters the violation: `softplus`, or `relu`, which gives no penalty
        /// within the limit.
        pub smooth: Smooth = Smooth::Softplus,
        /// Largest sharpness β of the softplus, in units of F̂. A larger value confines the penalty to costs above the
        /// limit. If the measured cost is uncertain, the softplus is wider: as wide as four standard errors.
        pub sharpness: f64 = 4.0,
        /// Safety margin z, in standard errors of the measured cost. The penalty grows from this
        /// margin below the limit on; with 0 it grows from the limit on.
        pub margin: f64 = 1.0,
        /// Values of F̂ where the near region ends and where the far region begins.
        pub alpha_thresholds: [f64; 2] = [0.5, 1.0],
        /// Upper bound on the exponent of Ψ.
        pub psi_max: f64 = 5.0,
        /// Penalty factor μ in the first epoch. A smaller μ is stricter.
        pub mu_init: f64 = 3.0,
        /// Rate η of μ: an epoch changes ln μ by −η F̂, and by at most η.
        pub mu_rate: f64 = 0.16,
        /// Upper bound on the penalty's share w/(1 + w) of an update in the first epoch, from 0.5
        /// to 0.95.
        pub share_max: f64 = 0.5,
        /// Rate η_w of that bound: an epoch above the limit in which the bound is active raises
        /// w_max by η_w. The share never exceeds 0.95.
        pub share_rate: f64 = 0.15,
        /// Half-width ε of the clip of the probability ratio.
        pub clip: f64 = 0.2,
    }
}

impl AlgoSpec for EpoParams {
    const INFO: AlgoInfo = AlgoInfo {
        name: "epo",
        label: "EPO",
        folder: "EPO",
        summary: "exterior penalty with a Penalty Metric Network (Gao et al. 2024)",
        reads_limit: true,
        headlines: &[("α", ALPHA), ("μ", MU), ("KL", KL)],
    };

    fn preset(_family: TaskFamily) -> Self {
        Self::default()
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
            ("algo.mu_init", self.mu_init),
            ("algo.mu_rate", self.mu_rate),
        ])?;
        not_negative(&[("algo.margin", self.margin), ("algo.share_rate", self.share_rate)])?;
        let share = [("algo.share_max", self.share_max)];
        require(&share, |v| (0.5..=0.95).contains(&v), "must be from 0.5 to 0.95")?;
        check_thresholds(self.alpha_thresholds)?;
        check_psi_max(self.psi_max)
    }

    fn method(&self, _update: &UpdateConfig, _discount: &Discount) -> Method {
        Method::FirstOrder(Box::new(Epo::new(self.clone())))
    }
}

/// Checks the thresholds of α.
pub(crate) fn check_thresholds([near, far]: [f64; 2]) -> Result<(), UpdateError> {
    let key = "algo.alpha_thresholds";
    require(&[(key, near)], |v| v <= far, "must be two numbers, the smaller one first")?;
    require(&[(key, far)], |_| true, "must be a finite number")
}

/// Checks the upper bound on the exponent of Ψ.
pub(crate) fn check_psi_max(psi_max: f64) -> Result<(), UpdateError> {
    require(&[("algo.psi_max", psi_max)], |v| v <= 700.0, "must be at most 700, so that e^ψ is finite")
}

/// Upper bound on the violation F̂. If the limit is 0, any positive cost has this violation.
const F_MAX: f64 = 100.0;

/// Smallest sharpness of the softplus. A limit of 0 is less than any error.
const SMALLEST_SHARPNESS: f64 = 0.5;

impl EpoParams {
    /// The violation F̂ in units of twice the limit, at most 100.
    pub fn violation(&self, cost: CostReading) -> f64 {
        let excess = cost.excess() + self.margin * cost.standard_error();
        match excess / (2.0 * cost.limit()) {
            f_hat if f_hat.is_finite() => f_hat.min(F_MAX),
            _ if excess > 0.0 => F_MAX,
            _ => 0.0,
        }
    }

    /// The sharpness b of the softplus: at most β, and so that the softplus is as wide as four standard errors.
    fn sharpness(&self, cost: CostReading) -> f64 {
        self.sharpness.min((cost.limit() / (2.0 * cost.standard_error())).max(SMALLEST_SHARPNESS))
    }
}

/// Upper bound on the weight w. The share `w/(1 + w)` of the update is then 0.95. μ has the same
/// upper bound, unless `mu_init` is larger. At the limit, the penalty's share of an update is
/// therefore at least 0.05.
const W_MAX: f64 = 19.0;

/// The training state that an epoch passes on to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct EpoState {
    mu: f64,
    /// Bound on the weight w of the cost.
    w_max: f64,
}

/// The objective of EPO with its penalty factor.
#[derive(Clone, Debug)]
pub struct Epo {
    /// Parameters of the algorithm.
    pub params: EpoParams,
    /// μ and the bound on w for the next epoch.
    next: EpoState,
    f_hat: f64,
    alpha: f64,
    mu: f64,
    psi: f64,
    /// Weight w of the cost.
    weight: f64,
    /// Weights of the streams: α and 1 − α.
    stream_weights: [f64; 2],
    /// One over the root mean square of each stream's advantage.
    inverse_rms: [f64; 2],
}

impl Epo {
    /// The objective at the start of training.
    pub fn new(params: EpoParams) -> Self {
        let w_max = (params.share_max / (1.0 - params.share_max)).min(W_MAX);
        let next = EpoState { mu: params.mu_init, w_max };
        let (f_hat, alpha, mu, psi, weight) = (0.0, 1.0, next.mu, 0.0, 0.0);
        Self {
            params,
            next,
            f_hat,
            alpha,
            mu,
            psi,
            weight,
            stream_weights: [1.0, 0.0],
            inverse_rms: [0.0; 2],
        }
    }

    /// The cost advantage `Â_c` of sample `i`.
    fn adv_c(&self, mb: &Minibatch<'_>, i: usize) -> f64 {
        let near = mb.adv_c[0][i] * self.inverse_rms[0];
        let far = mb.adv_c.get(1).map_or(0.0, |adv| adv[i] * self.inverse_rms[1]);
        self.stream_weights[0] * near + self.stream_weights[1] * far
    }
}

impl Objective for Epo {
    fn begin(&mut self, cost: CostReading) {
        let p = &self.params;
        self.f_hat = p.violation(cost);
        self.alpha = match p.pmn {
            Pmn::Both => alpha_by_region(self.f_hat, p.alpha_thresholds),
            Pmn::Linear => 1.0,
            Pmn::Quadratic => 0.0,
        };
        let EpoState { mu, w_max } = self.next;
        self.mu = mu;
        self.psi = penalty_factor(self.f_hat, mu, p.psi_max);
        let sharpness = p.sharpness(cost);
        let penalty = PenaltyFunction { smooth: p.smooth, sharpness, alpha: self.alpha, psi: self.psi };
        let at_limit = match p.smooth {
            Smooth::Softplus => 0.5,
            Smooth::Relu => 1.0,
        };
        let weight = penalty.at(self.f_hat).1 / at_limit;
        self.weight = weight.min(w_max);
        let distance = self.f_hat.clamp(-1.0, 1.0);
        self.next = if distance > 0.0 && self.weight < weight {
            EpoState { mu, w_max: (w_max + p.share_rate).min(W_MAX) }
        } else {
            EpoState { mu: (mu.ln() - p.mu_rate * distance).exp().min(W_MAX.max(p.mu_init)), w_max }
        };
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        self.stream_weights =
            if whole.adv_c.len() == 2 { [self.alpha, 1.0 - self.alpha] } else { [1.0, 0.0] };
        for (factor, adv) in self.inverse_rms.iter_mut().zip(whole.adv_c) {
            let square = adv.iter().map(|a| a * a).sum::<f64>() / adv.len() as f64;
            *factor = if square > 0.0 { 1.0 / square.sqrt() } else { 0.0 };
        }
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let w = self.weight;
        let adv = |i: usize| (mb.adv_r[i] - w * self.adv_c(mb, i)) / (1.0 + w);
        clipped_surrogate(mb, self.params.clip, adv, dlogp)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let Self { f_hat, alpha, mu, psi, weight, .. } = *self;
        vec![(F_HAT, f_hat), (ALPHA, alpha), (MU, mu), (PSI, psi), (COST_WEIGHT, weight)]
    }

    fn state(&self) -> Value {
        to_state(&self.next) // `begin` computes the rest again
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        // version 0.3 saved only μ; its runs can be read but not continued
        let mu_alone = |_| from_state(state).map(|mu| EpoState { mu, ..self.next });
        self.next = from_state(state).or_else(mu_alone)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are easy to compute with: μ = 10, sharpness 1, no margin.
    fn plain() -> EpoParams {
        EpoParams { mu_init: 10.0, sharpness: 1.0, margin: 0.0, share_max: 0.95, ..EpoParams::default() }
    }

    fn relu() -> EpoParams {
        EpoParams { smooth: Smooth::Relu, ..plain() }
    }

    /// EPO in an epoch with the violation `f_hat`, in units of 8, twice the limit.
    fn at(f_hat: f64, params: EpoParams) -> Epo {
        let mut epo = Epo::new(params);
        epo.begin(CostReading::new(4.0 + 8.0 * f_hat, 4.0).unwrap());
        epo
    }

    #[test]
    fn the_weight_of_the_cost_by_hand() {
        // μ = 10:  x = sp(F̂),  Ψ = e^F̂/10,  w = Ψ Φ'(x) σ(F̂)/½;  ReLU: x = F̂⁺,  w = Ψ Φ'(F̂) [F̂ > 0]
        //   F̂    α    Ψ          w smooth   w ReLU
        let table = [
            (-0.5, 1.0, 0.060_653, 0.045_797, 0.0),
            (0.0, 1.0, 0.1, 0.1, 0.0),
            (0.5, 1.0, 0.164_872, 0.205_252, 0.164_872),
            (0.51, 0.5, 0.166_529, 0.308_048, 0.168_194),
            (1.0, 0.5, 0.271_828, 0.720_672, 0.407_742),
            (1.01, 0.0, 0.274_560, 1.063_112, 0.554_611),
            (2.0, 0.0, 0.738_906, 5.537_040, 2.955_622),
        ];
        for (f, alpha, psi, smooth, hard) in table {
            let (epo, hard_epo) = (at(f, plain()), at(f, relu()));
            let close = |got: f64, want: f64| (got - want).abs() <= 2e-6 * want.abs() + 1e-6;
            assert_eq!(epo.alpha, alpha, "F̂ = {f}");
            assert!(close(epo.psi, psi), "F̂ = {f}: Ψ = {}", epo.psi);
            assert!(close(epo.weight, smooth), "F̂ = {f}: w = {}", epo.weight);
            assert!(close(hard_epo.weight, hard), "F̂ = {f}: ReLU w = {}", hard_epo.weight);
        }
    }

    /// This test fails if F̂, and with it the weight, depends on the unit of the cost.
    #[test]
    fn the_weight_does_not_depend_on_the_unit_of_the_cost() {
        let weights = |unit: f64| {
            let mut epo = Epo::new(EpoParams::default());
            [40.0, 31.0, 24.0, 11.0, 80.0].map(|cost| {
                let reading = CostReading::with_spread(cost * unit, 25.0 * unit, 12.0 * unit).unwrap();
                epo.begin(reading.of_episodes(36, 100.0));
                (epo.f_hat, epo.mu, epo.weight)
            })
        };
        let one = weights(1.0);
        for unit in [0.25, 2.0, 1024.0] {
            assert_eq!(weights(unit), one, "bit-equal for powers of two");
        }
        for unit in [0.01, 10.0, 100.0] {
            for (a, b) in weights(unit).into_iter().zip(one) {
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-13 * b.abs();
                assert!(close(a.0, b.0) && close(a.1, b.1) && close(a.2, b.2), "unit {unit}: {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_margin_is_a_number_of_standard_errors() {
        // spread 12 of 36 episodes: e = 2;  z = 1.5:  F̂ = (24 + 3 − 25) / 50
        let reading = CostReading::with_spread(24.0, 25.0, 12.0).unwrap();
        let params = EpoParams { margin: 1.5, ..EpoParams::default() };
        assert_eq!(params.violation(reading.of_episodes(36, 100.0)), 2.0 / 50.0);
        assert_eq!(params.violation(reading), -1.0 / 50.0, "an unknown number of episodes gives no margin");
    }

    /// This test fails if an uncertain reading makes the weight jump at the limit.
    #[test]
    fn the_softplus_is_as_wide_as_four_standard_errors() {
        // d = 25, 100 episodes: spread 50 gives e = 5 and b = 25/10 = 2.5; spread 10 gives e = 1 and b = β = 4
        let weight = |spread: f64| {
            let reading = CostReading::with_spread(35.0, 25.0, spread).unwrap();
            let params = EpoParams { margin: 0.0, share_max: 0.95, mu_init: 10.0, ..EpoParams::default() };
            let mut epo = Epo::new(params);
            epo.begin(reading.of_episodes(100, 100.0));
            epo.weight
        };
        // F̂ = 0.2:  w = e^{0.2}/10 · 2 σ(b F̂)
        let want = |b: f64| 0.2_f64.exp() / 10.0 * 2.0 / (1.0 + (-0.2 * b).exp());
        for (spread, b) in [(50.0, 2.5), (10.0, 4.0), (0.0, 4.0)] {
            assert!((weight(spread) - want(b)).abs() < 1e-12, "spread {spread}: {}", weight(spread));
        }
    }

    #[test]
    fn without_a_limit_any_cost_is_far_and_no_cost_is_on_the_limit() {
        let params = EpoParams::default();
        let read = |cost| params.violation(CostReading::new(cost, 0.0).unwrap());
        assert_eq!((read(1e-9), read(0.0)), (F_MAX, 0.0));
        assert_eq!(params.violation(CostReading::new(1e300, 1e-300).unwrap()), F_MAX);
        let mut epo = Epo::new(params);
        epo.begin(CostReading::new(0.0, 0.0).unwrap());
        assert!(epo.weight.is_finite());
    }

    /// This test fails if the penalty can take the whole update, or if μ keeps changing while the bound acts.
    #[test]
    fn the_share_is_bounded_and_mu_waits_for_it() {
        let params = EpoParams { share_max: 0.75, share_rate: 0.01, ..EpoParams::default() };
        let mut epo = Epo::new(params);
        for k in 0..100 {
            epo.begin(CostReading::new(1000.0, 25.0).unwrap());
            let want = 3.0 + 0.01 * f64::from(k);
            assert!((epo.weight - want).abs() < 1e-9, "w/(1 + w) = 0.75 at first: {}", epo.weight);
        }
        assert_eq!(epo.next.mu, EpoParams::default().mu_init);
        epo.begin(CostReading::new(25.0, 25.0).unwrap());
        assert!(epo.weight <= 1.0, "no weight is left over from the way down: {}", epo.weight);
        for _ in 0..2000 {
            epo.begin(CostReading::new(1000.0, 25.0).unwrap());
        }
        assert_eq!(epo.weight, W_MAX);
    }

    #[test]
    fn mu_rises_as_readily_as_it_falls_and_stays_in_its_bounds() {
        let params =
            EpoParams { mu_init: 1.0, mu_rate: 0.1, margin: 0.0, share_max: 0.95, ..EpoParams::default() };
        let step = |f_hat: f64| at(f_hat, params.clone()).next.mu.ln();
        for f in [0.05, 0.2] {
            assert!((step(f) + 0.1 * f).abs() < 1e-12 && (step(-f) - 0.1 * f).abs() < 1e-12, "F̂ = {f}");
        }
        let mut epo = Epo::new(params);
        for _ in 0..1000 {
            epo.begin(CostReading::new(0.0, 4.0).unwrap());
        }
        assert_eq!(epo.next.mu, W_MAX);
    }

    #[test]
    fn the_loss_by_hand() {
        // F̂ = 0.51 (α = ½), ReLU, μ = 10: w = 0.168194.  Root mean squares of the streams: 2 and 10
        // Â_c = ½ (2/2) + ½ (−10/10) = 0 and ½ (−2/2) + ½ (−10/10) = −1
        // A = A_r/(1 + w) = 2/1.168194 = 1.712044 and (1 + 0.168194)/1.168194 = 1;  ρ = 1.1, and 1.5 cut to 1.2
        // loss = −(1.1 · 1.712044 + 1.2)/2 = −1.541624;  dlogp = −1.1 · 1.712044/2 = −0.941624 and 0
        let mut epo = at(0.51, relu());
        let logp = [1.1_f64.ln(), 1.5_f64.ln()];
        let adv_c = [vec![2.0, -2.0], vec![-10.0, -10.0]];
        let mb = Minibatch { logp: &logp, logp_old: &[0.0; 2], adv_r: &[2.0, 1.0], adv_c: &adv_c };
        epo.begin_pass(&mb);
        let mut dlogp = [0.0; 2];
        let loss = epo.loss(&mb, &mut dlogp);
        assert!((loss + 1.541_624).abs() < 1e-6, "{loss}");
        assert!((dlogp[0] + 0.941_624).abs() < 1e-6 && dlogp[1] == 0.0, "{dlogp:?}");
    }

    #[test]
    fn a_stream_without_any_advantage_is_left_out() {
        let mut epo = at(0.51, relu());
        let adv_c = [vec![0.0], vec![0.0]];
        let mb = Minibatch { logp: &[0.0], logp_old: &[0.0], adv_r: &[1.0], adv_c: &adv_c };
        epo.begin_pass(&mb);
        assert!(epo.loss(&mb, &mut [0.0]).is_finite());
    }

    #[test]
    fn each_ablation_has_one_stream_and_the_other_critic_is_not_built() {
        let with = |pmn, quad_stream| EpoParams { pmn, quad_stream, ..plain() };
        assert_eq!(with(Pmn::Linear, QuadStream::Root).cost_critics(), [CostCritic::Value]);
        assert_eq!(with(Pmn::Quadratic, QuadStream::Root).cost_critics(), [CostCritic::Root]);
        assert_eq!(with(Pmn::Both, QuadStream::Root).cost_critics(), [CostCritic::Value, CostCritic::Root]);
        assert_eq!(with(Pmn::Both, QuadStream::Shared).cost_critics(), [CostCritic::Value]);
        for f in [0.1, 0.7, 3.0] {
            assert_eq!(at(f, with(Pmn::Linear, QuadStream::Root)).alpha, 1.0);
            assert_eq!(at(f, with(Pmn::Quadratic, QuadStream::Root)).alpha, 0.0);
        }
        // the only stream has the whole weight, whatever α is
        let mut epo = at(3.0, with(Pmn::Both, QuadStream::Shared));
        let adv_c = [vec![3.0, -3.0]];
        let mb = Minibatch { logp: &[0.0; 2], logp_old: &[0.0; 2], adv_r: &[0.0; 2], adv_c: &adv_c };
        epo.begin_pass(&mb);
        assert_eq!(epo.adv_c(&mb, 0), 1.0);
    }

    #[test]
    fn the_state_carries_mu_and_the_bound_to_the_next_epoch() {
        let epo = at(3.0, EpoParams::default());
        let mut other = Epo::new(EpoParams::default());
        other.restore(&epo.state()).unwrap();
        assert_eq!(other.next, epo.next);
        assert!(other.restore(&Value::String("μ".into())).is_err());
        other.restore(&Value::from(0.25)).unwrap();
        assert_eq!(other.next.mu, 0.25, "version 0.3");
    }

    #[test]
    fn wrong_parameters_are_named() {
        let default = EpoParams::default;
        for (key, params) in [
            ("algo.margin", EpoParams { margin: -1.0, ..default() }),
            ("algo.share_max", EpoParams { share_max: 1.0, ..default() }),
            ("algo.mu_rate", EpoParams { mu_rate: 0.0, ..default() }),
            ("algo.alpha_thresholds", EpoParams { alpha_thresholds: [1.0, 0.5], ..default() }),
            ("algo.psi_max", EpoParams { psi_max: 701.0, ..default() }),
        ] {
            let error = params.check().unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
        assert!(default().check().is_ok());
    }
}
