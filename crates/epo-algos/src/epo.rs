//! EPO: an exterior penalty whose shape follows the distance from the limit.
//!
//! ```text
//! F̂ = (J_c − d) / s_k                        0 stays the limit; s_k = scale · max(spread of episode costs, 1, d/10)
//! α from F̂, Ψ = e^{min(k F̂, ψ_max)} / μ       both frozen for the epoch
//! L̂(θ) = F̂ + (κ/s_k) E[max(ρ A_c, clip(ρ) A_c)],   κ = 1/(1−γ),   A_c = α A_N + (1−α) A_√F
//! L(θ) = −E[min(ρ A_r, clip(ρ) A_r)] + Ψ Φ(sp_β(L̂)),   Φ(x) = α x + (1−α) x²
//! μ ← max(μ_min, η μ) while violated          once per epoch
//! ```
//! Source: Gao, Ding, Fu, Wang & Zhou, IJCAI 2024, eq25, eq168, eq166, Algorithm 1. Deviations, each argued in `docs/epo.md`: `max` in the cost
//! clip (the printed `min` removes the corrective gradient; switch), d outside the critics' targets, a floor under μ, and
//! the gradient's coefficient `w = Ψ Φ'(x) sp'(L̂) κ/s_k` taken over the whole batch once per pass: `Φ(sp(E[·]))` of 64 samples is biased.

use epo_core::{CostReading, Metric};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::require;
use crate::objective::{from_state, to_state};
use crate::pmn::{Smooth, alpha_by_region, penalty_factor, penalty_metric};
use crate::report::{ALPHA, COST_WEIGHT, F_HAT, MU, PENALTY, PSI};
use crate::{
    CostClip, CostStream, Minibatch, Objective, RestoreError, UpdateError, add_cost_gradient,
    clipped_surrogate, cost_surrogate,
};

/// Which EPO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The paper's, as read in `docs/epo.md`.
    Paper,
    /// The released code's, with its defects repaired: [`crate::EpoReleased`]. Reads `clip`, `pmn`, `mu_init`, `psi_max` and
    /// `normalize_loss`; the other parameters have no meaning there.
    Released,
}

/// Which streams of the Penalty Metric Network take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pmn {
    /// Both, weighted by region.
    Both,
    /// α = 1 everywhere; V_F is not built.
    Linear,
    /// α = 0 everywhere; V_N is not built.
    Quadratic,
}

/// What the far stream estimates its advantage with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuadStream {
    /// Its own critic V_F = u², trained by the root loss.
    Root,
    /// V_N's: the root loss makes √V_F = V_N in the limit, so V_F can be left out.
    Shared,
}

/// What the violation is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleBy {
    /// Standard deviation of the episode costs in the batch, at least 1 and a tenth of the limit.
    Spread,
    /// The limit, at least 1.
    Limit,
}

/// Parameters of EPO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EpoParams {
    /// `paper` or `released`. Paper.
    pub variant: Variant,
    /// Streams: `both`, `linear`, `quadratic`. Both.
    pub pmn: Pmn,
    /// Critic of the far stream: `root` or `shared`. Root.
    pub quad_stream: QuadStream,
    /// Filter: `softplus` or `relu`. Softplus.
    pub smooth: Smooth,
    /// β, sharpness of the softplus in units of F̂; larger keeps the penalty closer to the limit. 1.
    pub sharpness: f64,
    /// Unit of the violation: `spread` or `limit`. Spread.
    pub scale_by: ScaleBy,
    /// Factor on that unit; smaller moves the regions and Ψ closer to the limit. 1.
    pub scale: f64,
    /// Where near ends and far begins, in units of F̂. [0.5, 1.0].
    pub alpha_thresholds: [f64; 2],
    /// k, how fast Ψ grows with F̂; 0 makes it 1/μ. 1.
    pub psi_slope: f64,
    /// ψ_max, cap on the exponent of Ψ. 5.
    pub psi_max: f64,
    /// μ at the start; small is strict. 10.
    pub mu_init: f64,
    /// η, factor on μ after an epoch above the limit. 0.99.
    pub mu_decay: f64,
    /// Factor on μ after an epoch within the limit: below 1 is the paper's "decrease" taken literally, above 1 lets μ recover
    /// (never above its start). 1.
    pub mu_feasible: f64,
    /// Floor under μ: at α = 1 a finite μ is exact (Corollary 1). 1.
    pub mu_min: f64,
    /// ε, half-width of the ratio clip. 0.2.
    pub clip: f64,
    /// Clip of the cost surrogate: `max`, `min` (as printed), `none`. Max.
    pub cost_clip: CostClip,
    /// Divide the loss by 1 + w, w the weight of the cost gradient, as PPO-Lagrangian does. False.
    pub normalize_loss: bool,
}

impl Default for EpoParams {
    fn default() -> Self {
        Self {
            variant: Variant::Paper,
            pmn: Pmn::Both,
            quad_stream: QuadStream::Root,
            smooth: Smooth::Softplus,
            sharpness: 1.0,
            scale_by: ScaleBy::Spread,
            scale: 1.0,
            alpha_thresholds: [0.5, 1.0],
            psi_slope: 1.0,
            psi_max: 5.0,
            mu_init: 10.0,
            mu_decay: 0.99,
            mu_feasible: 1.0,
            mu_min: 1.0,
            clip: 0.2,
            cost_clip: CostClip::Max,
            normalize_loss: false,
        }
    }
}

impl EpoParams {
    /// The cost critics that these parameters ask for, in the order of [`Minibatch::adv_c`].
    pub fn streams(&self) -> &'static [CostStream] {
        match (self.variant, self.pmn, self.quad_stream) {
            (Variant::Released, ..) => &[CostStream::Value, CostStream::Variance],
            (_, Pmn::Linear, _) | (_, _, QuadStream::Shared) => &[CostStream::Value],
            (_, Pmn::Quadratic, QuadStream::Root) => &[CostStream::Root],
            (_, Pmn::Both, QuadStream::Root) => &[CostStream::Value, CostStream::Root],
        }
    }

    /// Refuses numbers that make no sense.
    pub fn check(&self) -> Result<&Self, UpdateError> {
        let positive = [
            ("algo.sharpness", self.sharpness),
            ("algo.scale", self.scale),
            ("algo.mu_init", self.mu_init),
            ("algo.mu_min", self.mu_min),
            ("algo.mu_decay", self.mu_decay),
            ("algo.mu_feasible", self.mu_feasible),
        ];
        require(&positive, |v| v > 0.0, "must be positive")?;
        require(&[("algo.mu_min", self.mu_min)], |v| v <= self.mu_init, "must not exceed mu_init")?;
        require(&[("algo.psi_max", self.psi_max)], |v| v <= 700.0, "e^ψ must be finite: at most 700")?;
        Ok(self)
    }

    /// `s_k`.
    pub fn unit(&self, cost: CostReading) -> f64 {
        let raw = match self.scale_by {
            ScaleBy::Spread => cost.spread().max(0.1 * cost.limit()),
            ScaleBy::Limit => cost.limit(),
        };
        self.scale * raw.max(1.0) // at limit 0 or without spread, one unit of cost
    }
}

/// EPO with its penalty factor.
#[derive(Clone, Debug)]
pub struct Epo {
    /// Its parameters.
    pub params: EpoParams,
    /// κ = 1/(1−γ), from a mean advantage to a change of J_c.
    kappa: f64,
    /// μ of the next epoch: training state.
    mu_next: f64,
    frozen: Frozen,
    /// w and ΨΦ of this pass.
    weight: f64,
    penalty: f64,
}

/// What one epoch keeps fixed.
#[derive(Clone, Copy, Debug)]
struct Frozen {
    unit: f64,
    f_hat: f64,
    alpha: f64,
    mu: f64,
    psi: f64,
}

impl Epo {
    /// At the start of training; γ is the discount of the cost.
    pub fn new(params: EpoParams, gamma: f64) -> Self {
        let frozen = Frozen { unit: 1.0, f_hat: 0.0, alpha: 1.0, mu: params.mu_init, psi: 0.0 };
        Self {
            kappa: 1.0 / (1.0 - gamma),
            mu_next: params.mu_init,
            frozen,
            weight: 0.0,
            penalty: 0.0,
            params,
        }
    }

    /// `A_c = α A_N + (1−α) A_√F`; with one stream, that one.
    fn adv_c(&self, mb: &Minibatch<'_>, i: usize) -> f64 {
        match mb.adv_c {
            [near, far] => self.frozen.alpha * near[i] + (1.0 - self.frozen.alpha) * far[i],
            streams => streams[0][i],
        }
    }

    /// `Ψ Φ(sp(L̂))` and its derivative with respect to the mean cost surrogate `E[…]`, which is `w`.
    pub fn penalty(&self, surr_c: f64) -> (f64, f64) {
        let Frozen { unit, f_hat, alpha, psi, .. } = self.frozen;
        let l_hat = f_hat + self.kappa / unit * surr_c;
        let (x, dx) = self.params.smooth.apply(l_hat, self.params.sharpness);
        let (phi, dphi) = penalty_metric(x, alpha);
        (psi * phi, psi * dphi * dx * self.kappa / unit)
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
        self.frozen =
            Frozen { unit, f_hat, alpha, mu, psi: penalty_factor(f_hat, mu, p.psi_slope, p.psi_max) };
        let factor = if f_hat > 0.0 { p.mu_decay } else { p.mu_feasible };
        self.mu_next = (mu * factor).clamp(p.mu_min, p.mu_init);
    }

    fn begin_pass(&mut self, whole: &Minibatch<'_>) {
        let surr_c = cost_surrogate(whole, self.params.cost_clip, self.params.clip, |i| self.adv_c(whole, i));
        (self.penalty, self.weight) = self.penalty(surr_c);
    }

    fn loss(&self, mb: &Minibatch<'_>, dlogp: &mut [f64]) -> f64 {
        let EpoParams { clip, cost_clip, .. } = self.params;
        let w = self.weight;
        let reward_loss = clipped_surrogate(mb, clip, |i| mb.adv_r[i], dlogp);
        let surr_c = add_cost_gradient(mb, cost_clip, clip, w, |i| self.adv_c(mb, i), dlogp);
        let scale = if self.params.normalize_loss { 1.0 / (1.0 + w) } else { 1.0 };
        dlogp.iter_mut().for_each(|g| *g *= scale);
        scale * (reward_loss + w * surr_c)
    }

    fn report(&self) -> Vec<(Metric, f64)> {
        let Frozen { f_hat, alpha, mu, psi, .. } = self.frozen;
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
        to_state(&self.mu_next) // the rest is computed anew by `begin`
    }

    fn restore(&mut self, state: &Value) -> Result<(), RestoreError> {
        self.mu_next = from_state(state)?;
        Ok(())
    }
}
