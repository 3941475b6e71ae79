//! Invalid input and failures: each has a defined outcome.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::atomic::AtomicBool;

use common::{Walk, column, config, train, walk};
use epo_core::{ActionSpace, Env, EnvError, Purpose, episode_seed};
use epo_lab::LabError;
use epo_lab::train::{ResumeOptions, Trainer};

fn numbers(column: &[String]) -> Vec<f64> {
    column.iter().map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn without_a_finished_episode_the_cost_is_extrapolated_and_the_window_is_empty() {
    let make = || Ok(Box::new(Walk::new(ActionSpace::symmetric(1), 100_000)) as Box<dyn Env>);
    let dir = tempfile::tempdir().unwrap();
    train(dir.path(), config(&["run.steps=600"]), &make).unwrap();
    assert_eq!(column(dir.path(), "Metrics/EpCost"), ["", "", ""]);
    assert_eq!(column(dir.path(), "Metrics/Episodes"), ["0", "0", "0"]);
    let readings = numbers(&column(dir.path(), "Metrics/CostReading"));
    assert!(readings.iter().all(|r| r.is_finite() && *r > 0.0), "{readings:?}");
}

#[test]
fn a_cost_that_is_always_zero_trains_every_algorithm_within_any_limit() {
    let make = || {
        let mut env = Walk::new(ActionSpace::symmetric(1), 50);
        env.change = Some(Box::new(|_, _, step| step.cost = 0.0));
        Ok(Box::new(env) as Box<dyn Env>)
    };
    for algo in epo_lab::config::algorithms() {
        for limit in ["0", "25"] {
            let dir = tempfile::tempdir().unwrap();
            let set =
                [format!("run.algo={}", algo.name()), format!("run.limit={limit}"), "run.steps=600".into()];
            train(dir.path(), config(&set.each_ref().map(String::as_str)), &make).unwrap();
            assert_eq!(column(dir.path(), "Metrics/EpCost"), ["0", "0", "0"]);
            assert_eq!(column(dir.path(), "Metrics/FeasibleRate"), ["1", "1", "1"]);
            let kl = numbers(&column(dir.path(), "Train/KL"));
            assert!(kl.iter().all(|k| k.is_finite()), "{} {kl:?}", algo.name());
        }
    }
}

/// This test fails if a limit of 0 leads to a division by zero, means "no limit", or changes the sign of the penalty.
#[test]
fn a_limit_of_zero_makes_every_algorithm_that_reads_it_cheaper_and_keeps_every_number_finite() {
    for algo in epo_lab::config::algorithms() {
        let last_costs = |limit: &str| {
            let dir = tempfile::tempdir().unwrap();
            let set = [
                &format!("run.algo={}", algo.name()),
                &format!("run.limit={limit}"),
                "run.steps=8000",
                "train.steps_per_epoch=400",
                "train.lr=0.003",
                "train.passes=10",
                "train.target_kl=0.05",
            ];
            train(dir.path(), config(&set), &walk).unwrap();
            for row in &common::rows(dir.path())[1..] {
                let finite = |cell: &String| cell.is_empty() || cell.parse::<f64>().is_ok_and(f64::is_finite);
                assert!(row.iter().all(finite), "{}, limit {limit}: {row:?}", algo.name());
            }
            let readings = numbers(&column(dir.path(), "Metrics/CostReading"));
            readings[10..].iter().sum::<f64>() / 10.0
        };
        let (strict, free) = (last_costs("0"), last_costs("1e6"));
        println!("{}: cost {strict:.2} at a limit of 0, {free:.2} without one", algo.name());
        let name = algo.name();
        if !algo.info().reads_limit {
            assert_eq!(
                strict, free,
                "{name}: its description says that it does not read the limit, but it does"
            );
        } else {
            let cheaper = strict < 0.8 * free && free > 1.0;
            assert!(
                cheaper,
                "{name}: cost {strict} at a limit of 0, {free} without one. If it does not read the limit, set \
                 `reads_limit: false` in its description"
            );
        }
    }
}

#[test]
fn a_nan_from_an_environment_names_task_environment_seed_and_step() {
    for value in [f64::NAN, f64::INFINITY] {
        let made = std::cell::Cell::new(0);
        let make = || {
            let mut env = Walk::new(ActionSpace::symmetric(1), 70);
            made.set(made.get() + 1);
            if made.get() == 3 {
                env.change = Some(Box::new(move |t, _, step| {
                    if t == 60 {
                        step.reward = value;
                    }
                }));
            }
            Ok(Box::new(env) as Box<dyn Env>)
        };
        let dir = tempfile::tempdir().unwrap();
        let error = train(dir.path(), config(&[]), &make).unwrap_err();
        assert!(error.is_not_finite());
        let LabError::Env(failure) = error else { panic!("{error}") };
        assert_eq!((failure.task.as_str(), failure.env, failure.step), ("Walk", 2, 59));
        assert_eq!(failure.seed, episode_seed(0, Purpose::Episode, 2, 0));
        assert!(matches!(failure.cause, EnvError::NotFinite { .. }));
        // the checkpoint of the previous epoch is complete
        assert_eq!(Trainer::resume(dir.path(), ResumeOptions::default(), &walk).unwrap().epoch(), 1);
    }
}

#[test]
fn a_missing_foreign_or_mixed_up_folder_is_refused_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let options = ResumeOptions { accept_changes: true, ..ResumeOptions::default() };
    let refused = |path: &std::path::Path| match Trainer::resume(path, options, &walk) {
        Err(LabError::Run { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused(&dir.path().join("none")).contains("not a run folder"));
    assert!(refused(dir.path()).contains("not a run folder"));
    std::fs::write(dir.path().join("config.toml"), "[tool.poetry]\nname = \"x\"").unwrap();
    assert!(refused(dir.path()).contains("not readable"));

    // checkpoints of another network, algorithm, number of environments or epoch length
    let path = dir.path().join("run");
    train(&path, config(&["run.steps=200"]), &walk).unwrap();
    let text = std::fs::read_to_string(path.join("config.toml")).unwrap();
    let with = |text: String| std::fs::write(path.join("config.toml"), text).unwrap();
    with(config(&["run.steps=200", "train.hidden=[9, 9]"]).to_toml());
    assert!(refused(&path).contains("entries in the checkpoint"));
    with(config(&["run.steps=200", "run.algo=ppo"]).to_toml());
    let why = refused(&path);
    assert!(why.contains("epo on Walk, not of ppo on Walk") || why.contains("columns"), "{why}");
    with(config(&["run.steps=200", "train.envs=2"]).to_toml());
    assert!(refused(&path).contains("4 environments, but the configuration has 2"));
    with(config(&["run.steps=200", "train.steps_per_epoch=100"]).to_toml());
    assert!(refused(&path).contains("200 steps after epoch 1, but the configuration allows 100"));
    with(text);
    let end = Trainer::resume(&path, ResumeOptions::default(), &walk)
        .unwrap()
        .train(&AtomicBool::new(false), |_| ())
        .unwrap();
    assert!(end.finished, "untouched by the refusals");
}
