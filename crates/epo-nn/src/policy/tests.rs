use super::*;
use crate::reference::{self, f64s};
use epo_core::Purpose;

const SIZES: [usize; 3] = [5, 8, 7];

fn policies() -> [Policy; 2] {
    let mut stream = Stream::new(1, Purpose::Init, 0);
    let space = ActionSpace::Box { low: vec![-1.0; 3], high: vec![1.0; 3] };
    let mut gaussian = Policy::new(5, &SIZES[1..], &space, &mut stream);
    gaussian.update(|p| {
        let n = p.len();
        p[n - 3..].copy_from_slice(&[-0.5, 0.1, 0.3]);
    });
    let mut categorical = Policy::new(5, &SIZES[1..], &ActionSpace::Discrete { n: 4 }, &mut stream);
    categorical.update(|p| p.iter_mut().for_each(|p| *p *= 2.0)); // away from uniform
    [gaussian, categorical]
}

/// Observations, sampled actions and their log-probabilities.
fn samples(policy: &Policy, n: usize) -> (Vec<f32>, Vec<f32>, Vec<f64>) {
    let mut ws = policy.workspace(1);
    let mut stream = Stream::new(3, Purpose::Action, 0);
    let obs: Vec<f32> = (0..n * 5).map(|_| stream.normal() as f32).collect();
    let mut actions = vec![0.0; n * policy.action_len()];
    let rows = obs.chunks_exact(5).zip(actions.chunks_exact_mut(policy.action_len()));
    let logp = rows.map(|(x, a)| policy.act(x, &mut ws, &mut stream, a)).collect();
    (obs, actions, logp)
}

/// This test fails if `ln π` is that of the action before rounding to `f32`, or if `act` and a batch use different
/// formulas.
#[test]
fn the_log_probability_of_act_is_that_of_the_stored_action() {
    for policy in policies() {
        let (obs, actions, logp) = samples(&policy, 100);
        let mut ws = policy.workspace(64);
        ws.load(&obs, &actions);
        assert_eq!(policy.log_prob(&mut ws), logp, "{:?}", policy.head());
        ws.gather(&obs, &actions, &[7, 0, 99]);
        assert_eq!(policy.log_prob(&mut ws), [logp[7], logp[0], logp[99]], "{:?}", policy.head());
    }
}

/// This test fails if a replay would continue the random stream of an episode from another position than training did.
#[test]
fn an_action_takes_as_many_random_numbers_as_the_policy_says() {
    for policy in policies() {
        let mut stream = Stream::at(3, Purpose::Action, 0, 5);
        policy.act(&[0.5; 5], &mut policy.workspace(1), &mut stream, &mut vec![0.0; policy.action_len()]);
        assert_eq!(stream.position(), 5 + policy.draws(), "{:?}", policy.head());
    }
}

/// The mean of −ln π over samples is the entropy, and the samples of a categorical policy have its probabilities.
/// This test fails if the noise has the wrong scale, or if samples come from another distribution than that of `ln π`.
#[test]
fn samples_follow_the_distribution() {
    for policy in policies() {
        let n = 40_000;
        let mut ws = policy.workspace(1);
        let mut stream = Stream::new(4, Purpose::Action, 0);
        let (x, mut a) = ([0.3, -1.0, 0.5, 2.0, 0.1], vec![0.0; policy.action_len()]);
        let (mut sum, mut squares, mut counts) = (0.0, 0.0, [0.0; 4]);
        for _ in 0..n {
            let logp = policy.act(&x, &mut ws, &mut stream, &mut a);
            sum -= logp / f64::from(n);
            squares += logp * logp / f64::from(n);
            if policy.head() == Head::Categorical {
                counts[a[0] as usize] += 1.0 / f64::from(n);
            }
        }
        let mut dist = Dist::default();
        policy.dist(&x, &mut ws, &mut dist);
        let entropy = dist.entropy();
        let error = ((squares - sum * sum) / f64::from(n)).sqrt();
        assert!((sum - entropy).abs() < 5.0 * error, "{:?}: {sum} for {entropy}", policy.head());
        if policy.head() == Head::Categorical {
            let logits = reference::mlp(&policy.net.sizes(), &f64s(policy.params()), &x);
            let total: f64 = logits.iter().map(|l| l.exp()).sum();
            for (count, l) in counts.iter().zip(logits) {
                let p = l.exp() / total;
                assert!((count - p).abs() < 5.0 * (p * (1.0 - p) / f64::from(n)).sqrt(), "{count} for {p}");
            }
        }
    }
}

#[test]
fn the_deterministic_action_is_the_likeliest() {
    for policy in policies() {
        let (obs, actions, logp) = samples(&policy, 50);
        let mut ws = policy.workspace(64);
        let mut best = actions.clone();
        for (x, a) in obs.chunks_exact(5).zip(best.chunks_exact_mut(policy.action_len())) {
            policy.act_deterministic(x, &mut ws, a);
        }
        assert_ne!(best, actions);
        ws.load(&obs, &best);
        let at_best = policy.log_prob(&mut ws);
        assert!(at_best.iter().zip(&logp).all(|(best, sampled)| best >= sampled), "{:?}", policy.head());
    }
}

/// `ln π` and entropy of one state in f64, from the definitions.
fn reference_logp(policy: &Policy, params: &[f64], x: &[f32], a: &[f32]) -> (f64, f64) {
    let y = reference::mlp(&policy.net.sizes(), params, x);
    match policy.head {
        Head::Gaussian => {
            let log_std = &params[params.len() - y.len()..];
            let tau = std::f64::consts::TAU;
            let logp = (0..y.len()).map(|j| {
                let var = (2.0 * log_std[j]).exp();
                -(f64::from(a[j]) - y[j]).powi(2) / (2.0 * var) - 0.5 * (tau * var).ln()
            });
            let entropy = log_std.iter().map(|s| 0.5 * (tau * std::f64::consts::E).ln() + s);
            (logp.sum(), entropy.sum())
        }
        Head::Categorical => {
            let total: f64 = y.iter().map(|l| l.exp()).sum();
            let p: Vec<f64> = y.iter().map(|l| l.exp() / total).collect();
            (p[a[0] as usize].ln(), p.iter().map(|p| -p * p.ln()).sum())
        }
    }
}

/// This test fails if a sign or a factor is wrong in ∂ln π/∂μ, ∂/∂ln σ, ∂/∂logits or the gradient of the entropy.
#[test]
fn gradients_agree_with_finite_differences() {
    for policy in policies() {
        let n = 70; // more than a chunk
        let (obs, actions, _) = samples(&policy, n);
        let mut stream = Stream::new(5, Purpose::Random, 0);
        let dlogp: Vec<f64> = (0..n).map(|_| stream.normal()).collect();
        for coef in [0.0, 3.0] {
            let mut ws = policy.workspace(n);
            ws.load(&obs, &actions);
            policy.log_prob(&mut ws);
            let mut grad = vec![f32::NAN; policy.params().len()];
            policy.backward(&mut ws, &dlogp, coef, &mut grad);
            let loss = |params: &[f64]| -> f64 {
                let rows = obs.chunks_exact(5).zip(actions.chunks_exact(policy.action_len()));
                let terms = rows.zip(&dlogp).map(|((x, a), d)| {
                    let (logp, entropy) = reference_logp(&policy, params, x, a);
                    d * logp - coef * entropy / n as f64
                });
                terms.sum()
            };
            let mut params = f64s(policy.params());
            assert!(grad.iter().map(|g| g.abs()).fold(0.0, f32::max) > 0.5, "the gradient is not trivial");
            for i in 0..params.len() {
                let old = params[i];
                params[i] = old + 1e-5;
                let up = loss(&params);
                params[i] = old - 1e-5;
                let down = loss(&params);
                params[i] = old;
                let want = (up - down) / 2e-5;
                let error = (f64::from(grad[i]) - want).abs();
                assert!(error < 1e-4, "{:?} ∂/∂θ_{i}: {} for {want}", policy.head(), grad[i]);
            }
        }
    }
}

/// Mean KL(θ₀ ‖ θ) in f64, from the definition `E_p[ln p − ln q]`.
fn reference_kl(policy: &Policy, from: &[f64], to: &[f64], obs: &[f32]) -> f64 {
    let sizes = policy.net.sizes();
    let mut sum = 0.0;
    for x in obs.chunks_exact(5) {
        let (p, q) = (reference::mlp(&sizes, from, x), reference::mlp(&sizes, to, x));
        let m = p.len();
        match policy.head {
            Head::Gaussian => {
                let (sp, sq) = (&from[from.len() - m..], &to[to.len() - m..]);
                for j in 0..m {
                    let (vp, vq) = ((2.0 * sp[j]).exp(), (2.0 * sq[j]).exp());
                    sum += sq[j] - sp[j] + (vp + (p[j] - q[j]).powi(2)) / (2.0 * vq) - 0.5;
                }
            }
            Head::Categorical => {
                let total = |l: &[f64]| l.iter().map(|l| l.exp()).sum::<f64>().ln();
                let (tp, tq) = (total(&p), total(&q));
                sum += (0..m).map(|j| (p[j] - tp).exp() * (p[j] - tp - q[j] + tq)).sum::<f64>();
            }
        }
    }
    sum / (obs.len() / 5) as f64
}

/// The product is compared with mixed second differences of the KL. This test fails if the Fisher matrix `M` is the
/// identity or lacks −p pᵀ. It also fails if ln σ has 1 instead of 2, or if a mean is a sum.
#[test]
fn fisher_vector_product_is_the_curvature_of_the_kl() {
    for policy in policies() {
        let n = 66; // more than a chunk
        let (obs, actions, _) = samples(&policy, n);
        let mut ws = policy.workspace(n);
        ws.load(&obs, &actions);
        policy.log_prob(&mut ws);
        let theta = f64s(policy.params());
        let mut stream = Stream::new(6, Purpose::Random, 0);
        let v: Vec<f64> = theta.iter().map(|_| stream.normal()).collect();
        let (mut fv, mut damped) = (vec![0.0; v.len()], vec![0.0; v.len()]);
        policy.fisher_vector_product(&mut ws, &v, 0.0, &mut fv);
        policy.fisher_vector_product(&mut ws, &v, 0.1, &mut damped);
        let size = fv.iter().map(|f| f.abs()).fold(0.0, f64::max);
        let eps = 1e-3;
        for i in 0..v.len() {
            let kl = |a: f64, b: f64| {
                let mut to: Vec<f64> = theta.iter().zip(&v).map(|(t, v)| t + a * eps * v).collect();
                to[i] += b * eps;
                reference_kl(&policy, &theta, &to, &obs)
            };
            let want = (kl(1.0, 1.0) - kl(1.0, -1.0) - kl(-1.0, 1.0) + kl(-1.0, -1.0)) / (4.0 * eps * eps);
            let error = (fv[i] - want).abs();
            assert!(error < 1e-4 * size, "{:?} (Fv)_{i}: {} for {want}", policy.head(), fv[i]);
            assert!((damped[i] - fv[i] - 0.1 * v[i]).abs() < 1e-12, "damping");
        }
    }
}

/// The KL of stored distributions agrees with its definition in `f64`, in both directions.
#[test]
fn kl_is_the_definition() {
    for policy in policies() {
        let (obs, _, _) = samples(&policy, 100);
        let mut other = policy.clone();
        other.update(|p| p.iter_mut().for_each(|p| *p += 0.05));
        let mut ws = policy.workspace(1);
        let (mut p, mut q) = (Dist::default(), Dist::default());
        policy.dist(&obs, &mut ws, &mut p);
        other.dist(&obs, &mut ws, &mut q);
        let (from, to) = (f64s(policy.params()), f64s(other.params()));
        for (got, want) in [
            (p.kl(&q), reference_kl(&policy, &from, &to, &obs)),
            (q.kl(&p), reference_kl(&policy, &to, &from, &obs)),
        ] {
            assert!((got - want).abs() < 1e-6 && want > 1e-4, "{:?}: {got} for {want}", policy.head());
        }
    }
}

/// This test fails if the softmax does not subtract the maximum.
#[test]
fn large_logits_stay_finite() {
    let mut policy = policies()[1].clone();
    policy.update(|p| {
        let n = p.len();
        p[n - 4..].copy_from_slice(&[2000.0, -2000.0, 0.0, 1999.0]);
    });
    let mut ws = policy.workspace(1);
    ws.load(&[0.0; 10], &[1.0, 0.0]);
    let logp = policy.log_prob(&mut ws).to_vec();
    assert!((logp[0] + 4000.0).abs() < 10.0 && logp[1] > -2.0, "{logp:?}");
    let mut grad = vec![0.0; policy.params().len()];
    policy.backward(&mut ws, &[1.0, 1.0], 0.01, &mut grad);
    let mut dist = Dist::default();
    policy.dist(&[0.0; 10], &mut ws, &mut dist);
    assert!(grad.iter().all(|g| g.is_finite()) && dist.entropy().is_finite());
}

#[test]
fn tensors_cover_all_parameters() {
    for policy in policies() {
        let tensors = policy.tensors();
        let mut end = 0;
        for t in &tensors {
            assert_eq!(t.range.start, end, "{}", t.name);
            end = t.range.end;
        }
        assert_eq!(end, policy.params().len());
    }
}
