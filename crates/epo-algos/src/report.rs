//! The metrics of this crate. Key, unit and meaning of a metric are declared once, here. Keys are those of OmniSafe where
//! it has the metric.

use epo_core::Metric;

/// Declares metrics, one per line as `NAME: key, unit, meaning;`, and the list of all of them.
macro_rules! metrics {
    ($($name:ident: $key:literal, $unit:literal, $meaning:literal;)*) => {
        $(
            #[doc = concat!("`", $key, "`: ", $meaning, ".")]
            pub const $name: Metric = Metric::new($key, $unit, $meaning);
        )*

        /// Every metric of this crate.
        pub const ALL: &[Metric] = &[$($name),*];
    };
}

metrics! {
    KL: "Train/KL", "nat", "KL divergence between the old and the new policy after the last pass, mean over states";
    STOP_ITER: "Train/StopIter", "passes", "number of passes over the batch before the KL stop or the maximum";
    ENTROPY: "Train/Entropy", "nat", "entropy of the new policy, mean over states";
    RATIO: "Train/PolicyRatio", "1", "mean of the probability ratio ρ = π/π_old over the batch after the last pass";
    STD: "Train/PolicyStd", "1", "standard deviation of the actions, mean over their dimensions; 0 for discrete actions";
    LR: "Train/LR", "1", "learning rate of the policy in this epoch";
    LOSS_PI: "Loss/Loss_pi", "1", "loss of the policy, mean over the minibatches of the last pass";
    LOSS_R: "Loss/Loss_reward_critic", "1", "loss of the reward critic in its unit, mean over the last pass";
    LOSS_C: "Loss/Loss_cost_critic", "1", "loss of the first cost critic in its unit, mean over the last pass";
    LOSS_C_FAR: "Loss/Loss_cost_critic_far", "1", "loss of the second cost critic in its unit, mean over the last pass";
    ADV: "Value/Adv", "return", "mean reward advantage before it is standardised";
    VALUE_R: "Value/reward", "return", "mean value of the reward critic over the batch";
    VALUE_C: "Value/cost", "cost", "mean value of the first cost critic over the batch";
    EXPLAINED_R: "Value/reward_explained", "1", "explained variance of the reward critic on the new batch, before it is trained on it; 1 is perfect, 0 is no better than a constant";
    EXPLAINED_C: "Value/cost_explained", "1", "explained variance of the first cost critic on the new batch, before it is trained on it";
    LAMBDA: "Metrics/LagrangeMultiplier", "1", "Lagrange multiplier λ after its update in this epoch";
    KAPPA: "Penalty/Kappa", "1", "penalty factor κ of P3O in this epoch";
    F_HAT: "Penalty/F", "1", "normalised violation F̂ of the limit; positive above the limit";
    ALPHA: "Penalty/Alpha", "1", "weight α of EPO's linear stream: 1 near the limit, 0.5 in between, 0 far from it";
    MU: "Penalty/Mu", "1", "penalty factor μ of EPO; a smaller μ is stricter";
    PSI: "Penalty/Psi", "1", "adaptive factor Ψ = e^F̂/μ of EPO";
    PENALTY: "Penalty/Value", "1", "value of the penalty before the last pass";
    COST_WEIGHT: "Penalty/CostWeight", "1", "weight of the gradient of the cost surrogate relative to that of the reward surrogate";
    STEP_NORM: "Misc/FinalStepNorm", "1", "Euclidean norm of the step of the policy parameters (CPO)";
    ACCEPTANCE: "Misc/AcceptanceStep", "trials", "number of the accepted trial of the line search, from 1; 0 if none was accepted (CPO)";
    CG_RESIDUAL: "Misc/CgResidual", "1", "relative residual ‖g − Hx‖ / ‖g‖ of the conjugate-gradient solve (CPO)";
    CPO_A: "Misc/A", "1", "A = q − r²/s of the dual problem (CPO)";
    CPO_B: "Misc/B", "1", "B = 2δ − c²/s of the dual problem; negative if the limit does not cut the trust region (CPO)";
    CPO_Q: "Misc/q", "1", "q = gᵀH⁻¹g of the dual problem (CPO)";
    CPO_R: "Misc/r", "1", "r = gᵀH⁻¹b of the dual problem (CPO)";
    CPO_S: "Misc/s", "1", "s = bᵀH⁻¹b of the dual problem (CPO)";
    CPO_LAMBDA: "Misc/Lambda_star", "1", "multiplier λ* of the trust region in the dual problem (CPO)";
    CPO_NU: "Misc/Nu_star", "1", "multiplier ν* of the cost in the dual problem (CPO)";
    CPO_CASE: "Misc/OptimCase", "1", "case of the dual problem: 4 no cost gradient; 3 feasible, the limit does not cut the trust region; 2 feasible, it does; 1 violated, it does; 0 violated, it does not: recovery (CPO)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_declared_twice_and_none_is_empty() {
        let mut keys: Vec<&str> = ALL.iter().map(|m| m.key).collect();
        keys.sort_unstable();
        let n = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), n, "a key is declared twice");
        for metric in ALL {
            let complete = !metric.unit.is_empty() && !metric.meaning.is_empty() && metric.key.contains('/');
            assert!(complete, "{metric:?}");
        }
    }
}
