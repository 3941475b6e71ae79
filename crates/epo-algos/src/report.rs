//! The metrics of this crate: name, unit and meaning, declared once. OmniSafe's keys where it has one.

use epo_core::Metric;

/// KL divergence between the policy before and after the update.
pub const KL: Metric =
    Metric::new("Train/KL", "nat", "KL between old and new policy after the last pass, mean over states");
/// Passes made.
pub const STOP_ITER: Metric =
    Metric::new("Train/StopIter", "passes", "passes made before the KL stop or the end");
/// Entropy of the policy.
pub const ENTROPY: Metric =
    Metric::new("Train/Entropy", "nat", "entropy of the new policy, mean over states");
/// Mean ratio.
pub const RATIO: Metric = Metric::new("Train/PolicyRatio", "1", "mean of π_new/π_old over the batch");
/// Standard deviation of a Gaussian policy.
pub const STD: Metric =
    Metric::new("Train/PolicyStd", "1", "mean standard deviation of the actions; 0 if discrete");
/// Learning rate of the actor.
pub const LR: Metric = Metric::new("Train/LR", "1", "learning rate of the actor in this epoch");
/// Policy loss.
pub const LOSS_PI: Metric =
    Metric::new("Loss/Loss_pi", "1", "policy loss, mean over the minibatches of the last pass");
/// Reward critic's loss.
pub const LOSS_R: Metric =
    Metric::new("Loss/Loss_reward_critic", "return²", "loss of the reward critic, mean over the last pass");
/// First cost critic's loss.
pub const LOSS_C: Metric = Metric::new(
    "Loss/Loss_cost_critic",
    "cost²",
    "loss of the first cost critic (V_N), mean over the last pass",
);
/// Second cost critic's loss.
pub const LOSS_C_FAR: Metric = Metric::new(
    "Loss/Loss_cost_critic_far",
    "cost²",
    "loss of the second cost critic (V_F), mean over the last pass",
);
/// Mean advantage.
pub const ADV: Metric = Metric::new("Value/Adv", "return", "mean reward advantage before it is standardised");
/// Mean reward value.
pub const VALUE_R: Metric = Metric::new("Value/reward", "return", "mean of the reward critic over the batch");
/// Mean cost value.
pub const VALUE_C: Metric = Metric::new("Value/cost", "cost", "mean of the first cost critic over the batch");
/// Explained variance of the reward critic.
pub const EXPLAINED_R: Metric = Metric::new(
    "Value/reward_explained",
    "1",
    "share of the variance of its targets that the reward critic explains, on the new batch before it learns from it",
);
/// Explained variance of the first cost critic.
pub const EXPLAINED_C: Metric = Metric::new(
    "Value/cost_explained",
    "1",
    "share of the variance of its targets that the first cost critic explains, on the new batch before it learns from it",
);
/// Lagrange multiplier.
pub const LAMBDA: Metric = Metric::new("Metrics/LagrangeMultiplier", "1", "multiplier λ after the dual step");
/// Penalty factor of P3O.
pub const KAPPA: Metric = Metric::new("Penalty/Kappa", "1", "penalty factor κ");
/// Normalised violation.
pub const F_HAT: Metric =
    Metric::new("Penalty/F", "1", "normalised violation F̂ = (J_c − d)/s; 0 is the limit");
/// Weight of the linear stream.
pub const ALPHA: Metric =
    Metric::new("Penalty/Alpha", "1", "weight α of the linear stream: 1 near, 0.5 mid, 0 far");
/// Penalty factor of EPO.
pub const MU: Metric = Metric::new("Penalty/Mu", "1", "penalty factor μ; smaller is stricter");
/// Adaptive factor.
pub const PSI: Metric = Metric::new("Penalty/Psi", "1", "adaptive factor Ψ = e^F̂/μ");
/// Value of the penalty.
pub const PENALTY: Metric = Metric::new("Penalty/Value", "1", "penalty ΨΦ before the last pass");
/// Weight of the cost gradient.
pub const COST_WEIGHT: Metric = Metric::new(
    "Penalty/CostWeight",
    "1/cost",
    "weight of the cost surrogate's gradient against the reward's",
);
/// Norm of the step direction.
pub const STEP_NORM: Metric =
    Metric::new("Misc/FinalStepNorm", "1", "norm of the parameter step that was taken");
/// Accepted fraction.
pub const ACCEPTANCE: Metric =
    Metric::new("Misc/AcceptanceStep", "trials", "line-search trial that was accepted, from 1; 0: none was");
/// Residual of CG.
pub const CG_RESIDUAL: Metric =
    Metric::new("Misc/CgResidual", "1", "‖g − Hx‖ / ‖g‖ left by conjugate gradient");
/// CPO dual.
pub const CPO_A: Metric = Metric::new("Misc/A", "1", "CPO dual: A = q − r²/s");
/// CPO dual.
pub const CPO_B: Metric =
    Metric::new("Misc/B", "1", "CPO dual: B = 2δ − c²/s; negative: the limit misses the trust region");
/// CPO dual.
pub const CPO_Q: Metric = Metric::new("Misc/q", "1", "CPO dual: q = gᵀH⁻¹g");
/// CPO dual.
pub const CPO_R: Metric = Metric::new("Misc/r", "1", "CPO dual: r = gᵀH⁻¹b");
/// CPO dual.
pub const CPO_S: Metric = Metric::new("Misc/s", "1", "CPO dual: s = bᵀH⁻¹b");
/// CPO dual.
pub const CPO_LAMBDA: Metric =
    Metric::new("Misc/Lambda_star", "1", "CPO dual: multiplier of the trust region");
/// CPO dual.
pub const CPO_NU: Metric = Metric::new("Misc/Nu_star", "1", "CPO dual: multiplier of the cost");
/// CPO case.
pub const CPO_CASE: Metric = Metric::new(
    "Misc/OptimCase",
    "1",
    "4: no cost gradient; 3: limit out of reach; 2: feasible, limit in reach; 1: violated, in reach; 0: recovery",
);

/// Every metric of this crate: the glossary.
pub const ALL: &[Metric] = &[
    KL,
    STOP_ITER,
    ENTROPY,
    RATIO,
    STD,
    LR,
    LOSS_PI,
    LOSS_R,
    LOSS_C,
    LOSS_C_FAR,
    ADV,
    VALUE_R,
    VALUE_C,
    EXPLAINED_R,
    EXPLAINED_C,
    LAMBDA,
    KAPPA,
    F_HAT,
    ALPHA,
    MU,
    PSI,
    PENALTY,
    COST_WEIGHT,
    STEP_NORM,
    ACCEPTANCE,
    CG_RESIDUAL,
    CPO_A,
    CPO_B,
    CPO_Q,
    CPO_R,
    CPO_S,
    CPO_LAMBDA,
    CPO_NU,
    CPO_CASE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_declared_twice_and_every_constant_is_listed() {
        let mut keys: Vec<&str> = ALL.iter().map(|m| m.key).collect();
        keys.sort_unstable();
        let n = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), n, "a key is declared twice");
        let declared = include_str!("report.rs")
            .lines()
            .filter(|l| l.starts_with("pub const") && l.contains(": Metric"))
            .count();
        assert_eq!(declared, n, "a constant is missing from ALL");
        assert!(ALL.iter().all(|m| !m.unit.is_empty() && !m.meaning.is_empty() && m.key.contains('/')));
    }
}
