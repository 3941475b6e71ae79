//! EPO in the ordinary training loop converges to the optimum of the linear program. EPO with a penalty that is far too
//! weak does not.

use std::sync::atomic::{AtomicBool, Ordering};

use epo_lab::ground_truth::{Job, JobResult, run_job, run_jobs};
use epo_theory::stories;

fn job(algo: &str, steps: u64, set: &[&str]) -> Job {
    let set = set.iter().map(|s| (*s).to_owned()).collect();
    Job { cmdp: stories::fast_or_slow(), algo: algo.into(), seed: 1, steps, set }
}

fn train(algo: &str, steps: u64, set: &[&str]) -> JobResult {
    let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    let row = run_job(&job(algo, steps, set), dir.path(), || true).unwrap_or_else(|e| panic!("{e}"));
    row.unwrap_or_else(|| panic!("nobody asked it to stop"))
}

/// This test fails if the default parameters of EPO miss the optimum of a problem that they were not made for.
#[test]
fn epo_with_its_defaults_is_within_two_per_cent_of_the_two_state_optimum() {
    let row = train("epo", 400_000, &[]);
    assert!((row.optimum - 12.2).abs() < 1e-6 && row.gap_percent.abs() <= 2.0, "{row:?}");
    assert!(row.violation <= 0.05 * row.limit && row.stays_near.is_some(), "{row:?}");
}

#[test]
fn without_a_penalty_the_limit_is_ignored() {
    let row = train("ppo", 100_000, &[]);
    assert!(row.cost > 4.0 && row.gap_percent < -10.0, "always fast costs 5.26: {row:?}");
    let weak = train("epo", 100_000, &["algo.psi_max=-20"]);
    assert!(weak.violation > 0.5, "a factor of e⁻²⁰ is none: {weak:?}");
}

#[test]
fn many_jobs_give_the_same_rows_on_any_number_of_threads_and_stop_when_asked() {
    let jobs: Vec<Job> = ["epo", "cpo", "ppo"].iter().map(|algo| job(algo, 8000, &[])).collect();
    let dir = tempfile::tempdir().unwrap();
    let go = AtomicBool::new(false);
    let rows = |threads: usize| {
        let dir = dir.path().join(threads.to_string());
        run_jobs(&jobs, threads, &dir, &go, || ()).unwrap().unwrap()
    };
    let one = rows(1);
    assert_eq!(one.iter().map(|r| r.algo.as_str()).collect::<Vec<_>>(), ["epo", "cpo", "ppo"]);
    assert!(one == rows(3) && one.iter().all(|r| r.steps == 8000));

    let stop = AtomicBool::new(false);
    let stopped = run_jobs(&jobs, 2, &dir.path().join("s"), &stop, || stop.store(true, Ordering::Relaxed));
    assert!(stopped.unwrap().is_none());
    let wrong = [jobs[0].clone(), job("ppo", 8000, &["algo.mu_init=1"])];
    assert!(run_jobs(&wrong, 2, &dir.path().join("w"), &go, || ()).is_err());
}
