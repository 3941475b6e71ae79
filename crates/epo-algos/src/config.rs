//! Which algorithm, with which parameters.

use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, Appo, AppoParams, CostStream, Cpo, CpoParams, Discount, Epo, EpoParams, EpoReleased,
    FirstOrder, Ipo, IpoParams, Objective, P3o, P3oParams, Ppo, PpoLag, PpoLagParams, PpoParams,
    UpdateConfig, UpdateError, Variant,
};

/// An algorithm and its parameters, tagged by name: `{ name = "epo", mu_init = 10.0 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum AlgoConfig {
    /// Exterior Penalty Policy Optimization.
    Epo(EpoParams),
    /// Proximal policy optimisation; ignores the cost.
    Ppo(PpoParams),
    /// PPO with a Lagrange multiplier.
    PpoLag(PpoLagParams),
    /// Constrained policy optimisation.
    Cpo(CpoParams),
    /// Augmented Lagrangian PPO.
    Appo(AppoParams),
    /// Interior-point policy optimisation.
    Ipo(IpoParams),
    /// Penalised PPO.
    P3o(P3oParams),
}

impl AlgoConfig {
    /// Every algorithm with its defaults, in the order of the documentation.
    pub fn all_defaults() -> Vec<Self> {
        vec![
            Self::Epo(EpoParams::default()),
            Self::Ppo(PpoParams::default()),
            Self::PpoLag(PpoLagParams::default()),
            Self::Cpo(CpoParams::default()),
            Self::Appo(AppoParams::default()),
            Self::Ipo(IpoParams::default()),
            Self::P3o(P3oParams::default()),
        ]
    }

    /// The algorithm of this name with its defaults.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all_defaults().into_iter().find(|c| c.name() == name)
    }

    /// The name that users type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Epo(_) => "epo",
            Self::Ppo(_) => "ppo",
            Self::PpoLag(_) => "ppo-lag",
            Self::Cpo(_) => "cpo",
            Self::Appo(_) => "appo",
            Self::Ipo(_) => "ipo",
            Self::P3o(_) => "p3o",
        }
    }

    /// One line for lists.
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Epo(_) => "exterior penalty with a Penalty Metric Network (Gao et al. 2024)",
            Self::Ppo(_) => {
                "proximal policy optimisation; measures the cost and ignores it (Schulman et al. 2017)"
            }
            Self::PpoLag(_) => "PPO with a Lagrange multiplier on the cost (Ray et al. 2019)",
            Self::Cpo(_) => "trust-region step under a linearised constraint (Achiam et al. 2017)",
            Self::Appo(_) => "PPO with an augmented Lagrangian (Dai et al. 2023)",
            Self::Ipo(_) => "PPO with an interior-point barrier (Liu et al. 2020)",
            Self::P3o(_) => "PPO with an exact penalty on a clipped cost surrogate (Zhang et al. 2022)",
        }
    }

    /// The cost critics that it needs, for [`crate::Agent::new`].
    pub fn streams(&self) -> &'static [CostStream] {
        match self {
            Self::Epo(p) => p.streams(),
            Self::Ppo(_) => &[],
            Self::PpoLag(_) | Self::Cpo(_) | Self::Appo(_) | Self::Ipo(_) | Self::P3o(_) => {
                &[CostStream::Value]
            }
        }
    }

    /// The loss of a first-order method at the start of training; CPO has none. γ is the discount of the cost.
    pub fn objective(&self, gamma: f64) -> Option<Box<dyn Objective>> {
        Some(match self {
            Self::Epo(p) if p.variant == Variant::Released => Box::new(EpoReleased::new(p.clone())),
            Self::Epo(p) => Box::new(Epo::new(p.clone(), gamma)),
            Self::Ppo(p) => Box::new(Ppo { params: p.clone() }),
            Self::PpoLag(p) => Box::new(PpoLag::new(p.clone())),
            Self::Appo(p) => Box::new(Appo::new(p.clone())),
            Self::Ipo(p) => Box::new(Ipo::new(p.clone())),
            Self::P3o(p) => Box::new(P3o::new(p.clone(), gamma)),
            Self::Cpo(_) => return None,
        })
    }

    /// The algorithm at the start of training.
    ///
    /// # Errors
    /// If a parameter makes no sense; the error names it.
    pub fn build(
        &self,
        update: &UpdateConfig,
        discount: &Discount,
    ) -> Result<Box<dyn Algorithm>, UpdateError> {
        self.check(update, discount)?;
        let gamma = discount.gamma_c;
        if let Self::Cpo(p) = self {
            return Ok(Box::new(Cpo::new(p.clone(), update, gamma)));
        }
        let objective = self.objective(gamma).expect("every method but CPO has an objective");
        Ok(Box::new(FirstOrder::new(objective, update.clone(), self.streams().len())))
    }

    /// Refuses what could only fail later.
    fn check(&self, c: &UpdateConfig, d: &Discount) -> Result<(), UpdateError> {
        let positive = [
            ("train.passes", c.passes as f64),
            ("train.batch", c.batch as f64),
            ("train.max_grad_norm", c.max_grad_norm),
        ];
        let not_negative = [
            ("train.lr", c.lr),
            ("train.critic_lr", c.critic_lr),
            ("train.critic_l2", c.critic_l2),
            ("train.target_kl", c.target_kl),
        ];
        require(&positive, |v| v > 0.0, "must be positive")?;
        require(&not_negative, |v| v >= 0.0, "must be at least 0")?;
        let shares = [("train.gamma", d.gamma), ("train.gamma_c", d.gamma_c)];
        require(&shares, |v| (0.0..1.0).contains(&v), "must be in [0, 1)")?;
        let traces = [("train.lambda", d.lambda), ("train.lambda_c", d.lambda_c)];
        require(&traces, |v| (0.0..=1.0).contains(&v), "must be in [0, 1]")?;
        self.check_own()
    }

    /// The same for the algorithm's own parameters.
    fn check_own(&self) -> Result<(), UpdateError> {
        let clip = match self {
            Self::Epo(EpoParams { clip, .. })
            | Self::Ppo(PpoParams { clip })
            | Self::PpoLag(PpoLagParams { clip, .. })
            | Self::Appo(AppoParams { clip, .. })
            | Self::Ipo(IpoParams { clip, .. })
            | Self::P3o(P3oParams { clip, .. }) => *clip,
            Self::Cpo(_) => 0.2,
        };
        require(&[("algo.clip", clip)], |v| v > 0.0 && v < 1.0, "must be between 0 and 1")?;
        let not_negative: &[(&'static str, f64)] = match self {
            Self::Epo(p) => return p.check().map(|_| ()),
            Self::Ppo(_) => &[],
            Self::PpoLag(p) => &[("algo.lambda_init", p.lambda_init), ("algo.lambda_lr", p.lambda_lr)],
            Self::Appo(p) => &[
                ("algo.lambda_init", p.lambda_init),
                ("algo.lambda_lr", p.lambda_lr),
                ("algo.sigma", p.sigma),
            ],
            Self::Ipo(p) => &[("algo.kappa", p.kappa), ("algo.penalty_max", p.penalty_max)],
            Self::P3o(p) => {
                require(&[("algo.kappa_growth", p.kappa_growth)], |v| v > 0.0, "must be positive")?;
                let scale = [("algo.violation_scale", p.violation_scale)];
                require(&scale, |v| v >= 0.0, "must be at least 0")?;
                require(&[("algo.kappa", p.kappa)], |v| v <= p.kappa_max, "must not exceed kappa_max")?;
                &[("algo.kappa", p.kappa), ("algo.kappa_max", p.kappa_max)]
            }
            Self::Cpo(p) => {
                let shares = [("algo.search_decay", p.search_decay)];
                require(&shares, |v| v > 0.0 && v < 1.0, "must be between 0 and 1")?;
                let positive = [
                    ("algo.target_kl", p.target_kl),
                    ("algo.critic_passes", p.critic_passes as f64),
                    ("algo.critic_batch", p.critic_batch as f64),
                ];
                require(&positive, |v| v > 0.0, "must be positive")?;
                &[("algo.damping", p.damping), ("algo.critic_lr", p.critic_lr)]
            }
        };
        require(not_negative, |v| v >= 0.0, "must be at least 0")
    }
}

/// The first number that is not finite or fails `test`, as an error.
pub(crate) fn require(
    values: &[(&'static str, f64)],
    test: impl Fn(f64) -> bool,
    reason: &'static str,
) -> Result<(), UpdateError> {
    match values.iter().find(|(_, v)| !v.is_finite() || !test(*v)) {
        None => Ok(()),
        Some(&(key, value)) => Err(UpdateError::Config { key, value, reason }),
    }
}
