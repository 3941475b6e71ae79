//! The yardstick of `epo bench update`: the most multiply-adds that this core can make.

use pulp::{Arch, Simd, WithSimd};

/// Makes about `flops` floating-point operations as independent `f32` multiply-adds in registers, and returns how
/// many it really made. Time it and divide: no code on this core with this instruction set is faster.
///
/// ```
/// assert!(epo_nn::fma_block(1_000_000) >= 1_000_000);
/// ```
pub fn fma_block(flops: u64) -> u64 {
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
