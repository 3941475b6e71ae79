//! The network in `f64`, written from its definition. Tests compare with it and with its finite differences.

/// The output for one row. `params` are laid out as in [`Mlp`](crate::Mlp).
pub(crate) fn mlp(sizes: &[usize], params: &[f64], x: &[f32]) -> Vec<f64> {
    let mut h: Vec<f64> = f64s(x);
    let mut at = 0;
    for (l, w) in sizes.windows(2).enumerate() {
        let (n, m) = (w[0], w[1]);
        let next = (0..m).map(|j| {
            let sum: f64 = (0..n).map(|k| h[k] * params[at + k * m + j]).sum();
            let sum = sum + params[at + n * m + j];
            if l + 2 < sizes.len() { sum.tanh() } else { sum }
        });
        h = next.collect();
        at += (n + 1) * m;
    }
    h
}

pub(crate) fn f64s(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}
