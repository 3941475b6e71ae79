//! Claim: the statements of the paper hold on random CMDPs, and the counter-examples are confirmed.

use epo_theory::checks;

/// `epo theory` runs the same checks with 200 random CMDPs.
#[test]
fn every_statement_holds_on_random_cmdps() {
    let mut seen = 0.0;
    let report = checks::run(40, |done| {
        assert!(done >= seen && done <= 1.0 + 1e-9, "progress goes from 0 to 1, not {seen} → {done}");
        seen = done;
    })
    .unwrap();
    let failed: Vec<_> = report.checks.iter().filter(|c| !c.ok).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(report.checks.iter().all(|c| c.n >= 40));
    assert!(report.ok && (seen - 1.0).abs() < 1e-9);
}

#[test]
fn every_counter_example_is_confirmed() {
    for example in checks::counter::all().unwrap() {
        assert!(example.ok, "{example:?}");
    }
}
