//! EPO through the ordinary training loop ends at the optimum of the linear program, and a broken one does not.

use epo_lab::ground_truth::{Row, measure};
use epo_theory::stories;

fn train(algo: &str, steps: u64, set: &[&str]) -> Row {
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    measure(&stories::fast_or_slow(), algo, 1, steps, &set, dir.path()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn epo_is_within_two_per_cent_of_the_two_state_optimum() {
    let row = train("epo", 400_000, &[]);
    assert!((row.best_return - 12.2).abs() < 1e-6 && row.gap_percent.abs() <= 2.0, "{row:?}");
    assert!(row.violation <= 0.05 * row.limit && row.steps_to_feasible.is_some(), "{row:?}");
}

#[test]
fn without_a_penalty_the_limit_is_ignored() {
    let row = train("ppo", 100_000, &[]);
    assert!(row.cost > 4.0 && row.gap_percent < -10.0, "always fast costs 5.26: {row:?}");
    let weak = train("epo", 100_000, &["algo.mu_init=1e6", "algo.mu_min=1e6"]);
    assert!(weak.violation > 0.5, "a penalty of 1e-6 is none: {weak:?}");
}
