//! Every algorithm on a constrained bandit with a known optimum, and broken variants that miss it.
//!
//! The optimum is reached if the cost is within 10 % of the limit and the return is at least 95 % of the best. None of
//! these policies passes:
//!
//! - The uniform policy has 75 % of the return, at 87 % of the limit.
//! - The constant safe action has 84 % of the return, at 60 % of the limit.
//! - The unconstrained optimum costs twice the limit.

mod common;

use common::{BEST_RETURN, LIMIT, Learner};
use epo_algos::{
    AlgoConfig, AppoParams, CpoParams, EpoLiteralParams, EpoParams, EpoReleasedParams, IpoParams, P3oParams,
    Pmn, PpoLagParams, QuadStream, Smooth,
};

/// Epochs of EPO. Its μ changes in proportion to the violation: an epoch a tenth above the limit changes it by 0.8 %.
const EPO_EPOCHS: u32 = 300;

/// An algorithm that reaches the optimum within `epochs` with the parameters `working`, and does not with `broken`.
struct Case {
    epochs: u32,
    working: AlgoConfig,
    broken: AlgoConfig,
}

/// Returns the case of an algorithm, or `None` if it ignores the limit and maximises the return. There is no `_` arm, so
/// this file does not compile without a case for a new algorithm.
fn expected(algo: &AlgoConfig) -> Option<Case> {
    let case = |epochs, working, broken| Some(Case { epochs, working, broken });
    match algo.clone() {
        AlgoConfig::Epo(params) => {
            let slack = EpoParams { mu_init: 1e6, mu_rate: 1e-9, ..params.clone() };
            case(EPO_EPOCHS, AlgoConfig::Epo(params), AlgoConfig::Epo(slack))
        }
        AlgoConfig::P3o(params) => {
            // The exact penalty only needs a κ above the multiplier; the default of 20 is far stricter.
            let working = P3oParams { kappa: 1.5, ..params.clone() };
            let no_penalty = P3oParams { kappa: 0.0, ..params };
            case(100, AlgoConfig::P3o(working), AlgoConfig::P3o(no_penalty))
        }
        AlgoConfig::PpoLag(params) => {
            let frozen = PpoLagParams { lambda_lr: 0.0, ..params.clone() };
            case(100, AlgoConfig::PpoLag(params), AlgoConfig::PpoLag(frozen))
        }
        AlgoConfig::Cpo(params) => {
            // Without a trial of the line search no step is taken.
            let no_step = CpoParams { search_trials: 0, ..params.clone() };
            case(100, AlgoConfig::Cpo(params), AlgoConfig::Cpo(no_step))
        }
        AlgoConfig::Appo(params) => {
            let working = AppoParams { sigma: 0.5, ..params };
            let frozen = AppoParams { lambda_lr: 0.0, sigma: 0.0, ..working.clone() };
            case(100, AlgoConfig::Appo(working), AlgoConfig::Appo(frozen))
        }
        AlgoConfig::Ipo(params) => {
            let no_penalty = IpoParams { penalty_max: 0.0, ..params.clone() };
            case(100, AlgoConfig::Ipo(params), AlgoConfig::Ipo(no_penalty))
        }
        AlgoConfig::Ppo(_) => None,
        AlgoConfig::EpoLiteral(params) => {
            // A μ that only decreases ends far below the limit.
            let working = EpoLiteralParams { mu_decay: 1.0, ..params };
            let slack = EpoLiteralParams { mu_init: 1e6, ..working.clone() };
            case(EPO_EPOCHS, AlgoConfig::EpoLiteral(working), AlgoConfig::EpoLiteral(slack))
        }
        AlgoConfig::EpoReleased(params) => {
            let working = EpoReleasedParams { mu: 3.0, ..params.clone() };
            let slack = EpoReleasedParams { mu: 1e6, normalize_loss: false, ..params };
            case(EPO_EPOCHS, AlgoConfig::EpoReleased(working), AlgoConfig::EpoReleased(slack))
        }
    }
}

/// Trains on the bandit. Returns whether the optimum was reached, and a description for messages.
fn reached(config: &AlgoConfig, cost_sign: f64, epochs: u32) -> (bool, String) {
    let mut learner = Learner::new(config, 1, epochs);
    learner.cost_sign = cost_sign;
    let (ret, cost) = learner.train();
    let near = (0.9 * LIMIT..=1.1 * LIMIT).contains(&cost) && ret >= 0.95 * BEST_RETURN;
    (near, format!("return {ret:.2} of {BEST_RETURN:.2}, cost {cost:.2} of {LIMIT}: {config:?}"))
}

fn check(algo: &AlgoConfig) {
    match expected(algo) {
        Some(Case { epochs, working, broken }) => {
            assert!(working.name() == algo.name() && broken.name() == algo.name(), "a case of {algo:?}");
            let (near, text) = reached(&working, 1.0, epochs);
            assert!(near, "the optimum was not reached: {text}");
            let (near, text) = reached(&working, -1.0, epochs);
            assert!(!near, "reached with the sign of the cost gradient flipped: {text}");
            let (near, text) = reached(&broken, 1.0, epochs);
            assert!(!near, "reached by the broken variant: {text}");
        }
        None => {
            assert!(!algo.info().reads_limit, "{} reads the limit, so it needs a case", algo.name());
            let (ret, cost) = Learner::new(algo, 1, 50).train();
            assert!(
                ret > 9.5 && cost > 9.5,
                "{}: the unconstrained optimum is 10 at cost 10, not {ret:.2} at {cost:.2}",
                algo.name()
            );
        }
    }
}

/// This test fails if an algorithm misses the optimum, or if a broken variant reaches it.
#[test]
fn every_algorithm_does_what_is_expected() {
    let algos = AlgoConfig::all_defaults();
    std::thread::scope(|scope| {
        for algo in &algos {
            scope.spawn(|| check(algo)); // a failed assertion in a thread fails the test
        }
    });
}

#[test]
fn the_ablations_of_epo_reach_the_optimum() {
    let epo = EpoParams::default;
    for params in [
        EpoParams { pmn: Pmn::Linear, ..epo() },
        EpoParams { pmn: Pmn::Quadratic, ..epo() },
        EpoParams { quad_stream: QuadStream::Shared, ..epo() },
        EpoParams { smooth: Smooth::Relu, ..epo() },
    ] {
        let (near, text) = reached(&AlgoConfig::Epo(params), 1.0, EPO_EPOCHS);
        assert!(near, "{text}");
    }
}
