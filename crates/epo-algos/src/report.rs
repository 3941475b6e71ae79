//! The metrics of this crate. Name, unit and meaning are declared once, here. Keys are those of OmniSafe where it has
//! the metric.

use epo_core::Metric;

/// KL divergence between the policy before and after the update.
pub const KL: Metric = Metric::new(
    "Train/KL",
    "nat",
    "KL divergence between the old and the new policy after the last pass, mean over states",
);
/// Number of passes.
pub const STOP_ITER: Metric = Metric::new(
    "Train/StopIter",
    "passes",
    "number of passes over the batch before the KL stop or the maximum",
);
/// Entropy of the policy.
pub const ENTROPY: Metric =
    Metric::new("Train/Entropy", "nat", "entropy of the new policy, mean over states");
/// Mean probability ratio.
pub const RATIO: Metric = Metric::new(
    "Train/PolicyRatio",
    "1",
    "mean of the probability ratio ρ = π/π_old over the batch after the last pass",
);
/// Standard deviation of a Gaussian policy.
pub const STD: Metric = Metric::new(
    "Train/PolicyStd",
    "1",
    "standard deviation of the actions, mean over their dimensions; 0 for discrete actions",
);
/// Learning rate of the policy.
pub const LR: Metric = Metric::new("Train/LR", "1", "learning rate of the policy in this epoch");
/// Policy loss.
pub const LOSS_PI: Metric =
    Metric::new("Loss/Loss_pi", "1", "loss of the policy, mean over the minibatches of the last pass");
/// Reward critic's loss.
pub const LOSS_R: Metric = Metric::new(
    "Loss/Loss_reward_critic",
    "1",
    "loss of the reward critic in its unit, mean over the last pass",
);
/// First cost critic's loss.
pub const LOSS_C: Metric = Metric::new(
    "Loss/Loss_cost_critic",
    "1",
    "loss of the first cost critic (V_N) in its unit, mean over the last pass",
);
/// Second cost critic's loss.
pub const LOSS_C_FAR: Metric = Metric::new(
    "Loss/Loss_cost_critic_far",
    "1",
    "loss of the second cost critic (V_F) in its unit, mean over the last pass",
);
/// Mean advantage.
pub const ADV: Metric = Metric::new("Value/Adv", "return", "mean reward advantage before it is standardised");
/// Mean reward value.
pub const VALUE_R: Metric =
    Metric::new("Value/reward", "return", "mean value of the reward critic over the batch");
/// Mean cost value.
pub const VALUE_C: Metric =
    Metric::new("Value/cost", "cost", "mean value of the first cost critic over the batch");
/// Explained variance of the reward critic.
pub const EXPLAINED_R: Metric = Metric::new(
    "Value/reward_explained",
    "1",
    "explained variance of the reward critic on the new batch, before it is trained on it; 1 is perfect, 0 is no better than a constant",
);
/// Explained variance of the first cost critic.
pub const EXPLAINED_C: Metric = Metric::new(
    "Value/cost_explained",
    "1",
    "explained variance of the first cost critic on the new batch, before it is trained on it",
);
/// Lagrange multiplier.
pub const LAMBDA: Metric =
    Metric::new("Metrics/LagrangeMultiplier", "1", "Lagrange multiplier λ after its update in this epoch");
/// Penalty factor of P3O.
pub const KAPPA: Metric = Metric::new("Penalty/Kappa", "1", "penalty factor κ of P3O in this epoch");
/// Normalised violation.
pub const F_HAT: Metric = Metric::new(
    "Penalty/F",
    "1",
    "violation F̂ = (J_c + z e − d)/d of EPO in units of the limit; positive above it",
);
/// Weight of EPO's linear stream.
pub const ALPHA: Metric = Metric::new(
    "Penalty/Alpha",
    "1",
    "weight α of EPO's linear stream: 1 near the limit, 0.5 in between, 0 far from it",
);
/// Penalty factor of EPO.
pub const MU: Metric = Metric::new("Penalty/Mu", "1", "penalty factor μ of EPO; a smaller μ is stricter");
/// Adaptive factor of EPO.
pub const PSI: Metric = Metric::new("Penalty/Psi", "1", "adaptive factor Ψ = e^F̂/μ of EPO");
/// Value of EPO's penalty.
pub const PENALTY: Metric =
    Metric::new("Penalty/Value", "1", "value of the penalty of released EPO before the last pass");
/// Weight of the cost gradient.
pub const COST_WEIGHT: Metric = Metric::new(
    "Penalty/CostWeight",
    "1",
    "weight of the gradient of the cost surrogate relative to that of the reward surrogate",
);
/// Norm of the parameter step.
pub const STEP_NORM: Metric =
    Metric::new("Misc/FinalStepNorm", "1", "Euclidean norm of the step of the policy parameters (CPO)");
/// Accepted trial of the line search.
pub const ACCEPTANCE: Metric = Metric::new(
    "Misc/AcceptanceStep",
    "trials",
    "number of the accepted trial of the line search, from 1; 0 if none was accepted (CPO)",
);
/// Residual of the conjugate-gradient solve.
pub const CG_RESIDUAL: Metric = Metric::new(
    "Misc/CgResidual",
    "1",
    "relative residual ‖g − Hx‖ / ‖g‖ of the conjugate-gradient solve (CPO)",
);
/// A of CPO's dual problem.
pub const CPO_A: Metric = Metric::new("Misc/A", "1", "A = q − r²/s of the dual problem (CPO)");
/// B of CPO's dual problem.
pub const CPO_B: Metric = Metric::new(
    "Misc/B",
    "1",
    "B = 2δ − c²/s of the dual problem; negative if the limit does not cut the trust region (CPO)",
);
/// q of CPO's dual problem.
pub const CPO_Q: Metric = Metric::new("Misc/q", "1", "q = gᵀH⁻¹g of the dual problem (CPO)");
/// r of CPO's dual problem.
pub const CPO_R: Metric = Metric::new("Misc/r", "1", "r = gᵀH⁻¹b of the dual problem (CPO)");
/// s of CPO's dual problem.
pub const CPO_S: Metric = Metric::new("Misc/s", "1", "s = bᵀH⁻¹b of the dual problem (CPO)");
/// λ* of CPO's dual problem.
pub const CPO_LAMBDA: Metric =
    Metric::new("Misc/Lambda_star", "1", "multiplier λ* of the trust region in the dual problem (CPO)");
/// ν* of CPO's dual problem.
pub const CPO_NU: Metric =
    Metric::new("Misc/Nu_star", "1", "multiplier ν* of the cost in the dual problem (CPO)");
/// Case of CPO's dual problem.
pub const CPO_CASE: Metric = Metric::new(
    "Misc/OptimCase",
    "1",
    "case of the dual problem: 4 no cost gradient; 3 feasible, the limit does not cut the trust region; 2 feasible, it does; 1 violated, it does; 0 violated, it does not: recovery (CPO)",
);

/// Every metric of this crate.
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
