//! The speed of one update against the most this core can do.
//!
//! An update is forward, backward and Adam (the packing of the new weights included) on a loaded minibatch. Only
//! the multiply-adds of the matrix products count as work:
//!
//! ```text
//! flops = 2 · batch · Σ_l (2 in_l out_l + [l > 0] in_l out_l)        forward, ∂W, and ∂h but for the first layer
//! ```
//!
//! The peak is measured in the same run: independent `f32` multiply-adds in registers. Both are minima over many
//! short blocks that take turns, so a block in which another process had the core does not count.

use std::time::{Duration, Instant};

use epo_core::{Purpose, Stream};
use pulp::{Arch, Simd, WithSimd};

use crate::{Adam, Mlp};

/// Time given to one measurement.
const BUDGET: Duration = Duration::from_millis(800);
/// Rows in a block: some 0.3 ms for the usual network.
const BLOCK_ROWS: usize = 512;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateBench {
    /// Time of one update, µs.
    pub us_per_update: f64,
    /// Work of the matrix products per time, 10⁹ flops/s.
    pub gflops: f64,
    /// The same, as a part of the peak.
    pub peak_fraction: f64,
}

/// Measures the update of a network of these sizes on a minibatch of `batch` rows.
pub fn update(sizes: &[usize], batch: usize) -> UpdateBench {
    let mut stream = Stream::new(0, Purpose::Random, 0);
    let mut net = Mlp::new(sizes, &mut stream);
    let mut ws = net.workspace(batch);
    let mut normals = |n: usize| -> Vec<f32> { (0..n).map(|_| stream.normal() as f32).collect() };
    ws.load(&normals(batch * net.inputs()));
    let dout = normals(batch * net.outputs());
    let mut grad = vec![0.0; net.params().len()];
    let mut adam = Adam::new(grad.len());
    let (mut update, mut flop) = (f64::INFINITY, f64::INFINITY);
    let updates = BLOCK_ROWS.div_ceil(batch);
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
    let work = (2 * batch * products.sum::<usize>()) as f64;
    UpdateBench {
        us_per_update: update * 1e6,
        gflops: work / update * 1e-9,
        peak_fraction: work * flop / update,
    }
}

/// Makes at least `flops` floating-point operations as independent multiply-adds in registers; how many it made.
fn fma_block(flops: u64) -> u64 {
    Arch::new().dispatch(Block(flops))
}

struct Block(u64);

impl WithSimd for Block {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        // twelve chains: the latency (4 or 5) times two units, with room
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

    /// Kills: work counted twice (a fraction above 1), a peak loop that the compiler removed.
    #[test]
    fn no_update_is_faster_than_the_peak() {
        let bench = update(&[8, 8, 2], 16);
        assert!(bench.peak_fraction > 0.0 && bench.peak_fraction < 1.0, "{bench:?}");
        // 2 · 16 · (2·64 + 3·16) = 5632 flops
        assert!((bench.gflops * bench.us_per_update * 1e3 / 5632.0 - 1.0).abs() < 1e-9, "{bench:?}");
    }
}
