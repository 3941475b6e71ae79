//! Which algorithm, with which parameters.

use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, Appo, AppoParams, CostStream, Discount, Epo, EpoParams, EpoReleased, FirstOrder, Ipo,
    IpoParams, P3o, P3oParams, Ppo, PpoLag, PpoLagParams, PpoParams, UpdateConfig, UpdateError, Variant,
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
            Self::PpoLag(_) | Self::Appo(_) | Self::Ipo(_) | Self::P3o(_) => &[CostStream::Value],
        }
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
        let (config, gamma, streams) = (update.clone(), discount.gamma_c, self.streams().len());
        check_update(update)?;
        Ok(match self {
            Self::Epo(p) if p.variant == Variant::Released => {
                Box::new(FirstOrder::new(EpoReleased::new(p.check()?.clone()), config, streams))
            }
            Self::Epo(p) => Box::new(FirstOrder::new(Epo::new(p.check()?.clone(), gamma), config, streams)),
            Self::Ppo(p) => Box::new(FirstOrder::new(Ppo { params: p.clone() }, config, streams)),
            Self::PpoLag(p) => Box::new(FirstOrder::new(PpoLag::new(p.clone()), config, streams)),
            Self::Appo(p) => Box::new(FirstOrder::new(Appo::new(p.clone()), config, streams)),
            Self::Ipo(p) => Box::new(FirstOrder::new(Ipo::new(p.clone()), config, streams)),
            Self::P3o(p) => Box::new(FirstOrder::new(P3o::new(p.clone(), gamma), config, streams)),
        })
    }
}

/// Refuses what could only fail later.
fn check_update(c: &UpdateConfig) -> Result<(), UpdateError> {
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
    require(&not_negative, |v| v >= 0.0, "must not be negative")
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
