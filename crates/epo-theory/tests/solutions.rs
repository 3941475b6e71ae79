//! Tests of the exact solutions: known answers and edge cases.

use epo_theory::{
    Cmdp, RandomCmdp, SolveError, TabularPolicy, front, least_excess, optimum, penalised, stories,
};

/// Returns a bandit (one state, three actions, γ = 0) that can be solved by hand.
fn bandit(limit: f64) -> Cmdp {
    let (reward, cost) = (vec![0.0, 1.0, 3.0], vec![0.0, 1.0, 5.0]);
    Cmdp::new("bandit", 0.0, vec![1.0], vec![1.0; 3], reward, vec![cost], vec![limit])
        .expect("tables of a bandit")
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-7 * (1.0 + b.abs())
}

#[test]
fn gamma_zero_and_one_state_are_a_bandit() {
    // the corners are (0,0), (1,1), (5,3); limit 2 is a quarter of the way from (1,1) to (5,3): reward 1.5, slope ½
    let best = optimum(&bandit(2.0)).unwrap();
    assert!(close(best.value, 1.5) && close(best.multipliers[0], 0.5), "{best:?}");
    assert!(close(best.policy.at(0)[2], 0.25), "{:?}", best.policy);
    assert_eq!(front(&bandit(2.0)).corners.len(), 3);
}

#[test]
fn a_limit_that_never_binds_has_multiplier_zero_and_any_penalty_is_exact() {
    let best = optimum(&bandit(7.0)).unwrap();
    assert!(close(best.value, 3.0) && best.multipliers[0].abs() < 1e-7, "{best:?}");
    for alpha in [0.0, 0.5, 1.0] {
        assert!(close(penalised(&bandit(7.0), 1e3, alpha).unwrap().value, 3.0));
    }
}

#[test]
fn an_infeasible_limit_is_refused_with_how_far_it_is() {
    // all costs are raised by 1, so J_C ≥ 10 for every policy
    let two = stories::fast_or_slow();
    let cost: Vec<f64> = two.costs()[0].iter().map(|c| c + 1.0).collect();
    let kernel: Vec<f64> = (0..4).flat_map(|i| two.next(i / 2, i % 2).to_vec()).collect();
    let shifted =
        Cmdp::new("shifted", 0.9, vec![1.0, 0.0], kernel, two.reward().to_vec(), vec![cost], vec![4.0])
            .unwrap();
    match optimum(&shifted) {
        Err(SolveError::Infeasible { excess }) => assert!(close(excess[0], 6.0), "{excess:?}"),
        other => panic!("{other:?}"),
    }
    assert!(close(least_excess(&shifted).unwrap().value, -6.0));
    // the penalised problem still has a solution: the policy with the least excess
    assert!(close(penalised(&shifted, 1e-3, 0.0).unwrap().evaluation.j_c[0], 10.0));
}

#[test]
fn a_limit_at_the_least_cost_leaves_the_frugal_policy() {
    let best = optimum(&stories::fast_or_slow().with_limits(&[0.0])).unwrap();
    assert!((best.value - 10.0).abs() < 1e-5 && best.evaluation.j_c[0] < 1e-5, "{best:?}");
}

#[test]
fn absorbing_states_are_states_like_others() {
    // γ = ½; state 0 has reward 1 and can stay or move to the absorbing state 1, which has reward 2 and cost 1
    let kernel = vec![1.0, 0.0, 0.0, 1.0, /* absorbing: */ 0.0, 1.0, 0.0, 1.0];
    let cmdp = Cmdp::new(
        "absorbing",
        0.5,
        vec![1.0, 0.0],
        kernel,
        vec![1.0, 1.0, 2.0, 2.0],
        vec![vec![0.0, 0.0, 1.0, 1.0]],
        vec![0.5],
    )
    .unwrap();
    // moving at once has J = 1 + ½·4 = 3 and cost ½·2 = 1; staying has J = 2 and cost 0; half of each has J = 2.5
    let best = optimum(&cmdp).unwrap();
    assert!(close(best.value, 2.5) && close(best.multipliers[0], 1.0), "{best:?}");
}

#[test]
fn several_constraints_have_a_multiplier_each() {
    // a bandit with three actions and rewards 0, 1, 2; actions 1 and 2 each have their own cost
    let costs = vec![vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0]];
    let cmdp =
        Cmdp::new("two", 0.0, vec![1.0], vec![1.0; 3], vec![0.0, 1.0, 2.0], costs, vec![0.25, 0.5]).unwrap();
    let best = optimum(&cmdp).unwrap();
    assert!(
        close(best.value, 1.25) && close(best.multipliers[0], 1.0) && close(best.multipliers[1], 2.0),
        "{best:?}"
    );
}

#[test]
fn no_constraint_is_an_mdp() {
    let cmdp = Cmdp::new("free", 0.9, vec![1.0], vec![1.0; 2], vec![1.0, 2.0], vec![], vec![]).unwrap();
    assert!(close(optimum(&cmdp).unwrap().value, 20.0));
}

#[test]
fn the_episodic_form_is_the_expected_total_of_an_episode() {
    // Three steps of fast-or-slow. Fast, cool, fast has reward 6 and cost 2, which exceeds the limit 1. Fast, cool,
    // slow has reward 4. Slow, slow, fast has reward 5, because no cooling step follows the last step.
    let three = stories::fast_or_slow().episodic(3).unwrap().with_limits(&[1.0]);
    let best = optimum(&three).unwrap();
    assert!(close(best.value, 5.0), "{best:?}");
    assert!(close(best.evaluation.visits.iter().sum(), 3.0));
}

#[test]
fn programs_agree_with_policy_iteration_on_the_stories() {
    for cmdp in stories::all() {
        let (best, corners) = (optimum(&cmdp).unwrap(), front(&cmdp));
        let d = cmdp.limits()[0];
        let (low, high) = corners.multipliers(d);
        assert!(low > 0.0 && low == high, "{}: limits of stories bind and are not corners", cmdp.name());
        assert!(
            close(best.value, corners.at(d).unwrap()),
            "{}: {} {:?}",
            cmdp.name(),
            best.value,
            corners.at(d)
        );
        assert!(close(best.multipliers[0], low), "{}: {} {low}", cmdp.name(), best.multipliers[0]);
        assert!(
            close(best.evaluation.j_r, best.value) && best.evaluation.j_c[0] < d + 1e-7,
            "{}",
            cmdp.name()
        );
    }
}

#[test]
fn the_best_of_all_deterministic_policies_is_the_best_response() {
    // brute force over all Aˢ deterministic policies of small cases
    for seed in 0..10 {
        let kind =
            RandomCmdp { states: 3, actions: 3, branching: 2, constraints: 1, tightness: 0.5, gamma: 0.9 };
        let cmdp = kind.build(seed);
        let all = (0..27).map(|i| [i % 3, i / 3 % 3, i / 9]);
        let best =
            all.map(|a| TabularPolicy::deterministic(3, &a).evaluate(&cmdp).j_r).fold(f64::MIN, f64::max);
        assert!(close(front(&cmdp).corners.last().unwrap().j_r, best));
        assert!(close(optimum(&cmdp.with_limits(&[1e3])).unwrap().value, best));
    }
}
