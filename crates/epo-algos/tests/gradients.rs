//! Claim: for every objective, `dlogp` is the derivative of the loss, and it reaches the parameters through the network.

use epo_algos::{
    AlgoConfig, CostClip, EpoLiteralParams, EpoParams, EpoReleasedParams, Minibatch, Objective, P3oParams,
    Pmn, QuadStream, Smooth, ViolationUnit,
};
use epo_core::{ActionSpace, CostReading, Purpose, Stream};
use epo_nn::Policy;

/// Every first-order method with its defaults, and EPO's and P3O's other forms.
fn configs() -> Vec<AlgoConfig> {
    let mut all = AlgoConfig::all_defaults();
    let epo = EpoParams::default;
    all.extend([
        AlgoConfig::EpoReleased(EpoReleasedParams { normalize_loss: false, mu: 1.0, ..Default::default() }),
        AlgoConfig::EpoLiteral(EpoLiteralParams { cost_clip: CostClip::Max, ..Default::default() }),
        AlgoConfig::EpoLiteral(EpoLiteralParams {
            per_minibatch: false,
            divide_loss: true,
            unit: ViolationUnit::Limit,
            ..Default::default()
        }),
        AlgoConfig::Epo(EpoParams { smooth: Smooth::Relu, pmn: Pmn::Quadratic, ..epo() }),
        AlgoConfig::Epo(EpoParams { quad_stream: QuadStream::Shared, ..epo() }),
        AlgoConfig::P3o(P3oParams {
            cost_clip: CostClip::None,
            violation_scale: Some(1.0),
            ..P3oParams::default()
        }),
    ]);
    all
}

/// Objectives after `begin` below and above the limit: both sides of every hinge, every region of EPO.
fn objectives() -> impl Iterator<Item = (String, Box<dyn Objective>)> {
    configs().into_iter().flat_map(|config| {
        [-12.0, -0.5, 3.0, 8.0, 30.0].into_iter().filter_map(move |excess| {
            let mut objective = config.objective(0.9)?;
            for _ in 0..3 {
                objective.begin(CostReading::with_spread(25.0 + excess, 25.0, 10.0).expect("finite"));
            }
            Some((format!("J_c − d = {excess}, {config:?}"), objective))
        })
    })
}

/// Samples with ratios well inside and outside the clip, away from its kinks at 0.8 and 1.2.
struct Samples {
    logp: Vec<f64>,
    logp_old: Vec<f64>,
    adv_r: Vec<f64>,
    adv_c: Vec<Vec<f64>>,
}

impl Samples {
    fn new(n: usize) -> Self {
        let mut stream = Stream::new(5, Purpose::Random, 0);
        let ratios = [0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 2.0];
        let mut normal = || (0..n).map(|_| stream.normal()).collect::<Vec<_>>();
        let (logp_old, adv_r, adv_c) = (normal(), normal(), vec![normal(), normal()]);
        let logp = logp_old.iter().enumerate().map(|(i, l)| l + f64::ln(ratios[i % ratios.len()])).collect();
        Self { logp, logp_old, adv_r, adv_c }
    }

    fn minibatch<'a>(&'a self, logp: &'a [f64]) -> Minibatch<'a> {
        Minibatch { logp, logp_old: &self.logp_old, adv_r: &self.adv_r, adv_c: &self.adv_c }
    }
}

#[test]
fn dlogp_is_the_derivative_of_the_loss() {
    let (samples, h) = (Samples::new(28), 1e-6);
    let mut scratch = vec![0.0; 28];
    for (name, mut objective) in objectives() {
        objective.begin_pass(&samples.minibatch(&samples.logp));
        let mut dlogp = vec![f64::NAN; 28];
        let loss = objective.loss(&samples.minibatch(&samples.logp), &mut dlogp);
        assert!(loss.is_finite() && dlogp.iter().any(|g| *g != 0.0), "{name}: trivial");
        for i in 0..28 {
            let mut at = |d: f64| {
                let mut logp = samples.logp.clone();
                logp[i] += d;
                objective.loss(&samples.minibatch(&logp), &mut scratch)
            };
            let fd = (at(h) - at(-h)) / (2.0 * h);
            assert!(
                (fd - dlogp[i]).abs() < 1e-6 * (1.0 + fd.abs()),
                "{name}: sample {i}: {} but {fd}",
                dlogp[i]
            );
        }
    }
}

#[test]
fn the_gradient_reaches_the_parameters() {
    // Along the gradient g the loss changes by ‖g‖ per unit length. Networks compute in f32, so the step is coarse.
    for space in [ActionSpace::symmetric(2), ActionSpace::Discrete { n: 3 }] {
        let mut stream = Stream::new(9, Purpose::Random, 1);
        let policy = Policy::new(4, &[16, 16], &space, &mut stream);
        let n = 64;
        let obs: Vec<f32> = (0..4 * n).map(|_| stream.normal() as f32).collect();
        let mut actions = vec![0.0; n * policy.action_len()];
        let mut ws = policy.workspace(n);
        for (x, a) in obs.chunks(4).zip(actions.chunks_mut(policy.action_len())) {
            policy.act(x, &mut ws, &mut stream, a);
        }
        ws.load(&obs, &actions);
        let mut samples = Samples::new(n);
        // Ratios are between 0.9 and 1.1, so no sample crosses the clip.
        samples.logp = policy.log_prob(&mut ws).to_vec();
        samples.logp_old = samples.logp.iter().enumerate().map(|(i, l)| l - 0.1 * (i as f64).sin()).collect();
        for (name, mut objective) in objectives() {
            objective.begin_pass(&samples.minibatch(&samples.logp));
            let (mut dlogp, mut grad) = (vec![0.0; n], vec![0.0; policy.params().len()]);
            policy.log_prob(&mut ws);
            objective.loss(&samples.minibatch(&samples.logp), &mut dlogp);
            policy.backward(&mut ws, &dlogp, 0.0, &mut grad);
            let norm = grad.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
            let mut at = |h: f64| {
                let mut moved = policy.clone();
                moved.update(|p| {
                    p.iter_mut().zip(&grad).for_each(|(p, g)| *p += (h * f64::from(*g) / norm) as f32)
                });
                objective.loss(&samples.minibatch(moved.log_prob(&mut ws)), &mut dlogp)
            };
            let h = 2e-3;
            let fd = (at(h) - at(-h)) / (2.0 * h);
            assert!(
                norm > 1e-3 && (fd - norm).abs() < 2e-3 * norm,
                "{space:?} {name}: {fd} but ‖g‖ = {norm}"
            );
        }
    }
}
