//! Every algorithm on a constrained bandit with a known optimum, and broken variants that miss it.

mod common;

use common::{BEST_RETURN, LIMIT, Learner};
use epo_algos::{
    AlgoConfig, AppoParams, EpoParams, IpoParams, P3oParams, Pmn, PpoLagParams, Smooth, Variant,
};

#[test]
fn explore() {
    let mut configs = AlgoConfig::all_defaults();
    configs.push(AlgoConfig::Epo(EpoParams { variant: Variant::Released, ..EpoParams::default() }));
    configs.push(AlgoConfig::Epo(EpoParams { pmn: Pmn::Linear, ..EpoParams::default() }));
    configs.push(AlgoConfig::Epo(EpoParams { pmn: Pmn::Quadratic, ..EpoParams::default() }));
    configs.push(AlgoConfig::Epo(EpoParams { smooth: Smooth::Relu, ..EpoParams::default() }));
    configs.push(AlgoConfig::Epo(EpoParams { mu_init: 1.0, mu_min: 0.1, ..EpoParams::default() }));
    configs.push(AlgoConfig::Ipo(IpoParams { kappa: 1.0, penalty_max: 5.0, ..IpoParams::default() }));
    for c in configs {
        let t = std::time::Instant::now();
        let (r, j) = Learner::new(&c, 1, 100).train();
        let mut broken = Learner::new(&c, 1, 100);
        broken.cost_sign = -1.0;
        let (rb, jb) = broken.train();
        println!(
            "{c:?}\n   return {r:.3} of {BEST_RETURN:.3}, cost {j:.3} of {LIMIT}; flipped {rb:.3} {jb:.3}   {:?}",
            t.elapsed()
        );
    }
}
