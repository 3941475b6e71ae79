//! Generalised advantage estimation (Schulman et al. 2016), in f64.

use epo_core::Outcome;

/// Writes the advantages of the rollout of one environment to `adv`.
///
/// ```text
/// δ_t = r_t + γ V(s_{t+1}) [not terminated] − V(s_t)
/// A_t = δ_t + γ λ A_{t+1}  [episode continues]
/// ```
///
/// `next_value[t]` is `V` of the state that step `t` led to. For the last step of an episode that is the final
/// state, not the first state of the next episode. A truncated episode bootstraps from the value of its final
/// state; a terminated one does not. The last step of the rollout may be `Running`: it bootstraps like a
/// truncation.
///
/// # Panics
/// If the slices differ in length, which is a bug in the caller.
///
/// # Example
/// ```
/// use epo_algos::gae;
/// use epo_core::Outcome::*;
/// // reward 1 each step, V = 10 everywhere, γ = 0.9: δ = 1 + 9 − 10 = 0 unless the episode terminates
/// let mut adv = [f64::NAN; 3];
/// gae(&[1.0; 3], &[10.0; 3], &[10.0; 3], &[Running, Truncated, Terminated], 0.9, 1.0, &mut adv);
/// assert_eq!(adv, [0.0, 0.0, -9.0]);
/// ```
pub fn gae(
    reward: &[f64],
    value: &[f64],
    next_value: &[f64],
    outcome: &[Outcome],
    gamma: f64,
    lambda: f64,
    adv: &mut [f64],
) {
    let n = reward.len();
    let lengths = [value.len(), next_value.len(), outcome.len(), adv.len()];
    assert!(
        lengths.iter().all(|&l| l == n),
        "gae: {n} rewards, but values, next values, outcomes, advantages {lengths:?}"
    );
    let mut next_adv = 0.0;
    for t in (0..n).rev() {
        let future = if outcome[t] == Outcome::Terminated { 0.0 } else { gamma * next_value[t] };
        let delta = reward[t] + future - value[t];
        let carried = if outcome[t].is_done() { 0.0 } else { gamma * lambda * next_adv };
        adv[t] = delta + carried;
        next_adv = adv[t];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Running, Terminated, Truncated};

    #[test]
    fn two_steps_by_hand() {
        // γ = ½, λ = ½:  δ_1 = 4 + ½·8 − 6 = 2,  δ_0 = 1 + ½·6 − 3 = 1,  A_0 = 1 + ¼·2 = 1.5
        let mut adv = [0.0; 2];
        gae(&[1.0, 4.0], &[3.0, 6.0], &[6.0, 8.0], &[Running, Running], 0.5, 0.5, &mut adv);
        assert_eq!(adv, [1.5, 2.0]);
    }

    #[test]
    fn every_end_cuts_the_trace_and_only_termination_cuts_the_value() {
        let run = |end| {
            let mut adv = [0.0; 2];
            gae(&[1.0, 100.0], &[0.0, 0.0], &[10.0, 0.0], &[end, Running], 0.5, 1.0, &mut adv);
            adv[0]
        };
        assert_eq!(run(Running), 1.0 + 5.0 + 50.0);
        assert_eq!(run(Truncated), 1.0 + 5.0);
        assert_eq!(run(Terminated), 1.0);
    }

    #[test]
    fn with_lambda_one_the_advantage_is_the_discounted_return_less_the_value() {
        let (r, v, gamma) = ([1.0, -2.0, 3.0, 0.5], [0.3, 0.7, -0.2, 0.9], 0.9);
        let next = [v[1], v[2], v[3], 5.0];
        let mut adv = [0.0; 4];
        gae(&r, &v, &next, &[Running, Running, Running, Truncated], gamma, 1.0, &mut adv);
        let mut g = 5.0;
        for t in (0..4).rev() {
            g = r[t] + gamma * g;
            assert!((adv[t] - (g - v[t])).abs() < 1e-12, "t={t}");
        }
    }
}
