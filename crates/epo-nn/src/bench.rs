//! Measurement of the time of one update, compared with the multiply-add peak of the core.
//!
//! An update is forward, backward and Adam on a loaded minibatch, including the copies of the new weights that the
//! kernels need. Only the multiply-adds of the matrix products count as work:
//!
//! ```text
//! flops = 2 · rows · Σ_l (2 in_l out_l + [l > 0] in_l out_l)        forward, ∂W, and ∂h except for the first layer
//! ```
//!
//! The peak is measured in the same run, with independent `f32` multiply-adds in registers. Both are measured
//! in short blocks that alternate. The result is the fastest block of each, so blocks in which another process
//! used the core do not count.

use std::time::{Duration, Instant};

use epo_core::{Purpose, Stream};
use pulp::{Arch, Simd, WithSimd};

use crate::{Adam, Mlp, Workspace, add_l2_and_clip, narrow};

/// Time given to one measurement.
const BUDGET: Duration = Duration::from_millis(800);
/// Rows in a block, about 0.3 ms for two hidden layers of 64.
const BLOCK_ROWS: usize = 512;
/// Number of training steps of a critic with zero targets. Without [`TINY`](crate::TINY), its
/// values would become subnormal after about 3,000 steps.
const ZERO_TARGET_STEPS: usize = 12_000;
/// Steps in a block of such a training.
const BLOCK_STEPS: usize = 8;

/// Result of [`update`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateBench {
    /// Time of one update, µs.
    pub us_per_update: f64,
    /// Work of the matrix products per time, 10⁹ flops/s.
    pub gflops: f64,
    /// The same, as a fraction of the peak.
    pub peak_fraction: f64,
}

/// Measures the update of a network of these sizes on a minibatch of `rows` rows.
pub fn update(sizes: &[usize], rows: usize) -> UpdateBench {
    let mut stream = Stream::new(0, Purpose::Random, 0);
    let mut net = Mlp::new(sizes, &mut stream);
    let mut ws = net.workspace(rows);
    ws.load(&normals(&mut stream, rows * net.inputs()));
    let dout = normals(&mut stream, rows * net.outputs());
    let mut grad = vec![0.0; net.params().len()];
    let mut adam = Adam::new(grad.len());
    let (mut update, mut flop) = (f64::INFINITY, f64::INFINITY);
    let updates = BLOCK_ROWS.div_ceil(rows);
    let begin = Instant::now();
    while begin.elapsed() < BUDGET {
        let start = Instant::now();
        for _ in 0..updates {
            net.forward(&mut ws);
            net.backward(&mut ws, &dout, &mut grad);
            net.update(|p| adam.step(p, &grad, 1e-6));
        }
        update = update.min(start.elapsed().as_secs_f64() / updates as f64);
        let start = Instant::now();
        let flops = fma_block(10_000_000);
        flop = flop.min(start.elapsed().as_secs_f64() / flops as f64);
    }
    let products = sizes.windows(2).enumerate().map(|(l, w)| (if l == 0 { 2 } else { 3 }) * w[0] * w[1]);
    let work = (2 * rows * products.sum::<usize>()) as f64;
    UpdateBench {
        us_per_update: update * 1e6,
        gflops: work / update * 1e-9,
        peak_fraction: work * flop / update,
    }
}

/// Returns how much slower a step of a critic becomes while it learns that all its targets are zero.
///
/// Two critics are trained for 12,000 steps each, one with random targets and one with zero targets. For each thousand
/// steps, the time of the second is divided by the time of the first. The result is the largest of these ratios. It is
/// near 1 if the time of an update does not depend on the values in it.
pub fn zero_target_ratio(sizes: &[usize], rows: usize) -> f64 {
    let mut ordinary = Critic::new(sizes, rows, 1.0);
    let mut zero = Critic::new(sizes, rows, 0.0);
    let mut worst = 0.0_f64;
    for _ in 0..ZERO_TARGET_STEPS / 1000 {
        let (mut of_ordinary, mut of_zero) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..1000 / BLOCK_STEPS {
            of_ordinary = of_ordinary.min(ordinary.block());
            of_zero = of_zero.min(zero.block());
        }
        worst = worst.max(of_zero / of_ordinary);
    }
    worst
}

/// A critic that is trained as in the algorithms, always on the same minibatch.
pub(crate) struct Critic {
    pub(crate) net: Mlp,
    pub(crate) adam: Adam,
    pub(crate) grad: Vec<f32>,
    ws: Workspace,
    targets: Vec<f64>,
    dout: Vec<f32>,
}

impl Critic {
    /// A new critic. The targets of its minibatch are normal with deviation `target_std`.
    pub(crate) fn new(sizes: &[usize], rows: usize, target_std: f64) -> Self {
        let mut stream = Stream::new(0, Purpose::Random, 0);
        let net = Mlp::new(sizes, &mut stream);
        let mut ws = net.workspace(rows);
        ws.load(&normals(&mut stream, rows * net.inputs()));
        let targets = (0..rows * net.outputs()).map(|_| target_std * stream.normal()).collect();
        let grad = vec![0.0; net.params().len()];
        Self { adam: Adam::new(grad.len()), net, grad, ws, targets, dout: Vec::new() }
    }

    /// One step on the squared error with an L2 penalty.
    pub(crate) fn step(&mut self) {
        let scale = 2.0 / self.targets.len() as f64;
        let outputs = self.net.forward(&mut self.ws).iter().zip(&self.targets);
        self.dout.clear();
        self.dout.extend(outputs.map(|(y, target)| narrow(scale * (f64::from(*y) - target))));
        self.net.backward(&mut self.ws, &self.dout, &mut self.grad);
        add_l2_and_clip(&mut self.grad, self.net.params(), 1e-3, 40.0);
        self.net.update(|p| self.adam.step(p, &self.grad, 3e-4));
    }

    /// Seconds of [`BLOCK_STEPS`] steps.
    fn block(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..BLOCK_STEPS {
            self.step();
        }
        start.elapsed().as_secs_f64()
    }
}

fn normals(stream: &mut Stream, n: usize) -> Vec<f32> {
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// Makes at least `flops` floating-point operations as independent multiply-adds in registers. Returns their number.
fn fma_block(flops: u64) -> u64 {
    Arch::new().dispatch(Block(flops))
}

struct Block(u64);

impl WithSimd for Block {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        // two units with a latency of 4 or 5 cycles need at least ten independent chains
        const CHAINS: usize = 12;
        let per_round = (2 * CHAINS * S::F32_LANES) as u64;
        let rounds = self.0.div_ceil(per_round);
        let x = simd.splat_f32s(std::hint::black_box(0.999));
        let mut acc = [simd.splat_f32s(std::hint::black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for a in &mut acc {
                *a = simd.mul_add_e_f32s(*a, x, x);
            }
        }
        let mut sum = acc[0];
        for a in &acc[1..] {
            sum = simd.add_f32s(sum, *a);
        }
        std::hint::black_box(simd.reduce_sum_f32s(sum));
        rounds * per_round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test fails if work is counted twice (a fraction above 1), or if the compiler removes the loop that measures
    /// the peak.
    #[test]
    fn no_update_is_faster_than_the_peak() {
        let bench = update(&[8, 8, 2], 16);
        assert!(bench.peak_fraction > 0.0 && bench.peak_fraction < 1.0, "{bench:?}");
        // 2 · 16 · (2·64 + 3·16) = 5632 flops
        assert!((bench.gflops * bench.us_per_update * 1e3 / 5632.0 - 1.0).abs() < 1e-9, "{bench:?}");
    }
}
