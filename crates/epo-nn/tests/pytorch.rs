//! Compares networks, distributions, gradients, gradient clipping and Adam with numbers that PyTorch computed in `f64`.
//!
//! The script `pytorch.py` in this folder computes them; its output is `golden/mod.rs`.

#[allow(missing_docs, unreachable_pub, clippy::unreadable_literal)]
mod golden;

use epo_core::{ActionSpace, Purpose, Stream};
use epo_nn::{Adam, Dist, Policy, clip_grad_norm};
use golden::*;

/// The numbers of the function of the same name in `pytorch.py`.
fn values(n: usize, a: f64, b: f64) -> Vec<f32> {
    (1..=n).map(|i| (b * (a * i as f64).sin()) as f32).collect()
}

fn gaussian() -> (Policy, Vec<f32>) {
    let space = ActionSpace::Box { low: vec![-1.0; 2], high: vec![1.0; 2] };
    let mut policy = Policy::new(3, &[5, 4], &space, &mut Stream::new(0, Purpose::Init, 0));
    let mut params = values(policy.params().len() - 2, 1.7, 0.6);
    params.extend([-0.5, 0.25]);
    policy.set_params(&params);
    (policy, values(8, 1.1, 1.5))
}

fn categorical() -> (Policy, Vec<f32>) {
    let space = ActionSpace::Discrete { n: 3 };
    let mut policy = Policy::new(3, &[5, 4], &space, &mut Stream::new(0, Purpose::Init, 0));
    policy.set_params(&values(policy.params().len(), 1.7, 0.6));
    (policy, vec![2.0, 0.0, 1.0, 2.0])
}

fn obs() -> Vec<f32> {
    values(12, 0.9, 2.0)
}

fn dlogp() -> Vec<f64> {
    values(4, 2.3, 1.0).into_iter().map(f64::from).collect()
}

#[track_caller]
fn close(what: &str, got: impl IntoIterator<Item = f64>, want: &[f64], tolerance: f64) {
    let got: Vec<f64> = got.into_iter().collect();
    assert_eq!(got.len(), want.len(), "{what}: length");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance, "{what}[{i}]: {g}, PyTorch has {w}");
    }
}

fn f64s(x: &[f32]) -> impl Iterator<Item = f64> {
    x.iter().map(|&x| f64::from(x))
}

struct Expected<'a> {
    out: &'a [f64],
    logp: &'a [f64],
    entropy: f64,
    grad: &'a [f64],
    norms: &'a [f64],
    after: &'a [f64],
}

/// Trains `policy` and compares each number with PyTorch. It fails if a weight is transposed, or if a bias, a layer or
/// −ln σ is missing. It also fails if the entropy has the wrong sign, or if Adam or the clip has another formula.
fn check(mut policy: Policy, actions: &[f32], want: &Expected<'_>) {
    let mut ws = policy.workspace(64);
    let mut grad = vec![0.0; policy.params().len()];
    let mut adam = Adam::new(grad.len());
    let (mut out, mut dist) = (vec![0.0; want.out.len()], Dist::default());
    policy.net().predict(&obs(), &mut policy.net().workspace(1), &mut out);
    close("out", f64s(&out), want.out, 1e-6);
    ws.load(&obs(), actions);
    for t in 0..3 {
        let logp = policy.log_prob(&mut ws).to_vec();
        policy.dist(&obs(), &mut ws, &mut dist);
        policy.backward(&mut ws, &dlogp(), 0.01, &mut grad);
        if t == 0 {
            close("logp", logp, want.logp, 2e-6);
            close("entropy", [dist.entropy()], &[want.entropy], 1e-7);
            close("grad", f64s(&grad), want.grad, 4e-6);
        }
        let norm = clip_grad_norm(&mut grad, 1.0);
        close("norm", [norm], &want.norms[t..=t], 1e-5);
        let lr = 0.02 * (1.0 - t as f64 / 3.0);
        policy.update(|p| adam.step(p, &grad, lr));
    }
    close("parameters after three steps", f64s(policy.params()), want.after, 2e-6);
    assert_eq!(adam.t(), 3);
}

#[test]
fn the_gaussian_policy_trains_as_in_pytorch() {
    let (policy, actions) = gaussian();
    let want = Expected {
        out: &GAUSS_OUT,
        logp: &GAUSS_LOGP,
        entropy: GAUSS_ENTROPY[0],
        grad: &GAUSS_GRAD,
        norms: &GAUSS_NORMS,
        after: &GAUSS_AFTER,
    };
    check(policy, &actions, &want);
}

#[test]
fn the_categorical_policy_trains_as_in_pytorch() {
    let (policy, actions) = categorical();
    let want = Expected {
        out: &CAT_OUT,
        logp: &CAT_LOGP,
        entropy: CAT_ENTROPY[0],
        grad: &CAT_GRAD,
        norms: &CAT_NORMS,
        after: &CAT_AFTER,
    };
    check(policy, &actions, &want);
}

#[test]
fn kl_is_that_of_pytorch_in_both_directions() {
    let (policy, _) = gaussian();
    let mut other = policy.clone();
    other.update(|p| {
        let n = p.len();
        for bias in &mut p[n - 4..n - 2] {
            *bias += 0.25; // moves every mean
        }
        p[n - 2..].copy_from_slice(&[0.5, -0.25]);
    });
    assert_kl(&policy, &other, &GAUSS_KL);

    let (policy, _) = categorical();
    let mut other = policy.clone();
    other.update(|p| {
        let n = p.len();
        for w in &mut p[n - 15..] {
            *w *= 2.0; // the output layer: doubles the logits
        }
    });
    assert_kl(&policy, &other, &CAT_KL);
}

#[track_caller]
fn assert_kl(p: &Policy, q: &Policy, want: &[f64]) {
    let mut ws = p.workspace(64);
    let (mut dp, mut dq) = (Dist::default(), Dist::default());
    p.dist(&obs(), &mut ws, &mut dp);
    q.dist(&obs(), &mut ws, &mut dq);
    close("KL", [dp.kl(&dq), dq.kl(&dp)], want, 2e-6);
    assert_eq!(dp.kl(&dp), 0.0, "KL to itself");
}
