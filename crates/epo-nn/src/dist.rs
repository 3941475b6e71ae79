//! Action distributions at a list of states. The formulas are in `policy.rs`.

use crate::policy::Head;

/// ½ ln 2π
pub(crate) const HALF_LN_TAU: f64 = 0.918_938_533_204_672_8;

/// The action distributions of a policy at a list of states, kept for comparison with a later policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Dist {
    pub(crate) head: Head,
    /// Means or logits, `[n][outputs]`.
    pub(crate) rows: Vec<f32>,
    pub(crate) outputs: usize,
    pub(crate) log_std: Vec<f64>,
    /// 1/σ.
    pub(crate) inv_std: Vec<f64>,
}

impl Default for Dist {
    /// Returns distributions for an empty list of states.
    fn default() -> Self {
        Self { head: Head::Gaussian, rows: Vec::new(), outputs: 1, log_std: Vec::new(), inv_std: Vec::new() }
    }
}

impl Dist {
    /// Number of states.
    pub fn rows(&self) -> usize {
        self.rows.len() / self.outputs
    }

    /// Mean over the states of `KL(self ‖ other)`, summed over action dimensions.
    ///
    /// # Panics
    /// If the two differ in family, number of outputs or number of states.
    pub fn kl(&self, other: &Self) -> f64 {
        assert_eq!((self.head, self.outputs, self.rows.len()), (other.head, other.outputs, other.rows.len()));
        let m = self.outputs;
        let rows = self.rows.chunks_exact(m).zip(other.rows.chunks_exact(m));
        let sum: f64 = match self.head {
            Head::Gaussian => return self.gaussian_kl(other),
            Head::Categorical => rows
                .map(|(p, q)| {
                    let (lse_p, lse_q) = (log_sum_exp(p), log_sum_exp(q));
                    let term = |(p, q): (&f32, &f32)| {
                        let ln_p = f64::from(*p) - lse_p;
                        ln_p.exp() * (ln_p - (f64::from(*q) - lse_q))
                    };
                    p.iter().zip(q).map(term).sum::<f64>()
                })
                .sum(),
        };
        sum / self.rows() as f64
    }

    /// Writes `ln π` of one action per state to `logp`. `actions` is `[n][action_len]`.
    ///
    /// # Panics
    /// If the length of `logp` is not the number of states.
    pub fn log_prob(&self, actions: &[f32], logp: &mut [f64]) {
        assert_eq!(logp.len(), self.rows(), "one number per state");
        let m = self.outputs;
        let rows = self.rows.chunks_exact(m).zip(logp);
        match self.head {
            Head::Gaussian => {
                let log_norm: f64 = self.log_std.iter().map(|s| s + HALF_LN_TAU).sum();
                for ((y, out), a) in rows.zip(actions.chunks_exact(m)) {
                    *out = gaussian_log_prob(y, a, &self.inv_std, log_norm);
                }
            }
            Head::Categorical => {
                for ((y, out), a) in rows.zip(actions) {
                    *out = f64::from(y[*a as usize]) - log_sum_exp(y);
                }
            }
        }
    }

    /// Mean entropy over the states.
    pub fn entropy(&self) -> f64 {
        match self.head {
            Head::Gaussian => self.log_std.iter().map(|s| s + HALF_LN_TAU + 0.5).sum(),
            Head::Categorical => {
                self.rows.chunks_exact(self.outputs).map(row_entropy).sum::<f64>() / self.rows() as f64
            }
        }
    }

    /// The σ term of the Gaussian KL does not depend on the state, so it is computed once.
    fn gaussian_kl(&self, other: &Self) -> f64 {
        let m = self.outputs;
        let mut squares = 0.0;
        for (p, q) in self.rows.chunks_exact(m).zip(other.rows.chunks_exact(m)) {
            for j in 0..m {
                let z = (f64::from(p[j]) - f64::from(q[j])) * other.inv_std[j];
                squares += z * z;
            }
        }
        let of_std =
            self.log_std.iter().zip(&other.log_std).map(|(p, q)| 0.5 * (2.0 * (p - q)).exp_m1() - (p - q));
        of_std.sum::<f64>() + 0.5 * squares / self.rows() as f64
    }
}

pub(crate) fn gaussian_log_prob(mean: &[f32], action: &[f32], inv_std: &[f64], log_norm: f64) -> f64 {
    let mut squares = 0.0;
    for j in 0..mean.len() {
        let z = (f64::from(action[j]) - f64::from(mean[j])) * inv_std[j];
        squares += z * z;
    }
    -0.5 * squares - log_norm
}

pub(crate) fn log_sum_exp(l: &[f32]) -> f64 {
    let max = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + l.iter().map(|&l| (f64::from(l) - f64::from(max)).exp()).sum::<f64>().ln()
}

pub(crate) fn row_entropy(l: &[f32]) -> f64 {
    let lse = log_sum_exp(l);
    l.iter().map(|&l| f64::from(l) - lse).map(|ln_p| -ln_p.exp() * ln_p).sum()
}
