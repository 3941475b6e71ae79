//! NumPy's `Generator(PCG64(SeedSequence(seed)))`, bit for bit. Gymnasium draws the initial states of the velocity tasks
//! from it.
//!
//! ```text
//! seed      words of the seed ──hash──▶ pool of 4 × 32 bits ──hash──▶ 4 × 64 bits: state and increment
//! PCG64     s ← a s + c (mod 2¹²⁸),   output = rotr(s_hi ⊕ s_lo, s >> 122)
//! uniform   low + (high − low) · (u >> 11) 2⁻⁵³
//! normal    ziggurat with 256 layers
//! ```
//! Sources: O'Neill, "PCG: a family of simple fast space-efficient statistically good algorithms", 2014;
//! Marsaglia & Tsang, "The ziggurat method for generating random variables", 2000; NumPy 1.17 and later.

mod ziggurat;

use ziggurat::{ACCEPT, HEIGHT, WIDTH};

/// Start of the tail of the normal distribution: the edge of the lowest layer of the ziggurat.
const TAIL: f64 = 3.654_152_885_361_009;
/// Its inverse, as NumPy rounds it.
const TAIL_INVERSE: f64 = 0.273_661_237_329_758_3;

const PCG_MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// A generator seeded by one whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumpyGenerator {
    state: u128,
    increment: u128,
}

impl NumpyGenerator {
    /// `numpy.random.Generator(PCG64(SeedSequence(seed)))`.
    pub fn new(seed: u64) -> Self {
        let [state_hi, state_lo, stream_hi, stream_lo] = seed_sequence(seed);
        let wide = |hi: u64, lo: u64| u128::from(hi) << 64 | u128::from(lo);
        let mut generator = Self { state: 0, increment: wide(stream_hi, stream_lo) << 1 | 1 };
        generator.advance();
        generator.state = generator.state.wrapping_add(wide(state_hi, state_lo));
        generator.advance();
        generator
    }

    fn advance(&mut self) {
        self.state = self.state.wrapping_mul(PCG_MULTIPLIER).wrapping_add(self.increment);
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.advance();
        ((self.state >> 64) as u64 ^ self.state as u64).rotate_right((self.state >> 122) as u32)
    }

    /// Uniform in [0, 1), 53 bits.
    fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform between `low` and `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_f64()
    }

    /// Standard normal.
    pub fn standard_normal(&mut self) -> f64 {
        loop {
            let bits = self.next_u64();
            let layer = (bits & 0xff) as usize;
            let magnitude = (bits >> 9) & 0x000f_ffff_ffff_ffff;
            let x = magnitude as f64 * WIDTH[layer];
            let x = if bits >> 8 & 1 == 1 { -x } else { x };
            if magnitude < ACCEPT[layer] {
                return x; // 99 of 100 draws end here
            }
            if layer == 0 {
                let beyond = TAIL + self.excess_over_tail();
                // NumPy takes the sign from a bit of the magnitude here, not from the sign bit
                return if magnitude >> 8 & 1 == 1 { -beyond } else { beyond };
            }
            let height = (HEIGHT[layer - 1] - HEIGHT[layer]) * self.next_f64() + HEIGHT[layer];
            if height < (-0.5 * x * x).exp() {
                return x;
            }
        }
    }

    /// Distance of a draw of the tail from [`TAIL`], by Marsaglia's method.
    fn excess_over_tail(&mut self) -> f64 {
        loop {
            let x = -TAIL_INVERSE * (-self.next_f64()).ln_1p();
            let y = -(-self.next_f64()).ln_1p();
            if y + y > x * x {
                return x;
            }
        }
    }
}

/// `SeedSequence(seed).generate_state(4, uint64)`.
fn seed_sequence(seed: u64) -> [u64; 4] {
    // hash the words of the seed into the pool, then mix every word of the pool into every other
    let mut hash_const = 0x43b0_d7e5_u32;
    let mut hash = |value: u32| {
        let value = value ^ hash_const;
        hash_const = hash_const.wrapping_mul(0x931e_8875);
        xor_shift(value.wrapping_mul(hash_const))
    };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut hash);
    for source in 0..4 {
        for target in 0..4 {
            if source != target {
                let left = pool[target].wrapping_mul(0xca01_f9dd);
                pool[target] = xor_shift(left.wrapping_sub(hash(pool[source]).wrapping_mul(0x4973_f715)));
            }
        }
    }

    // draw eight words from it
    let mut hash_const = 0x8b51_f9dd_u32;
    let mut word = |i: usize| {
        let value = pool[i % 4] ^ hash_const;
        hash_const = hash_const.wrapping_mul(0x58f3_8ded);
        u64::from(xor_shift(value.wrapping_mul(hash_const)))
    };
    std::array::from_fn(|i| word(2 * i) | word(2 * i + 1) << 32)
}

const fn xor_shift(value: u32) -> u32 {
    value ^ value >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    // the expected numbers are printed by NumPy 1.23.5:
    //   SeedSequence(s).generate_state(4, uint64), PCG64(SeedSequence(s)).random_raw(3), and
    //   g = Generator(PCG64(SeedSequence(s))); g.uniform(-.1, .1, 5)[3:]; g.standard_normal(3)

    #[test]
    fn seeds_are_spread_as_numpy_does() {
        let state =
            [0xdb2c_d7e7_b0f4_78be, 0xabf4_641a_2c71_ba49, 0x20c6_ed6d_9d7b_8d41, 0x2c40_99de_223c_39d4];
        assert_eq!(seed_sequence(0), state);
        // a seed of two words
        let state =
            [0xf9c1_5bd6_e249_d9ac, 0xb202_1b40_3632_0ed7, 0x9388_b47f_e6dc_f739, 0x5eeb_a8d9_ad64_39e1];
        assert_eq!(seed_sequence((1 << 32) + 5), state);
    }

    #[test]
    fn raw_bits_are_numpys() {
        let raw = |seed| {
            let mut g = NumpyGenerator::new(seed);
            [g.next_u64(), g.next_u64(), g.next_u64()]
        };
        assert_eq!(raw(0), [0xa30f_ebcf_d9c2_825f, 0x4510_bdf8_82d9_d721, 0x0a7d_3da9_4ecd_e8b8]);
        assert_eq!(raw(7), [0xa006_41a9_f1e5_4a8b, 0xe5af_cdbc_af26_6a95, 0xc693_565f_940a_f962]);
        assert_eq!(raw(1 << 63), [0xcfb4_43e3_8916_7cfd, 0x98b1_1eb7_647f_71b8, 0xde46_3a14_3621_2dfd]);
    }

    #[test]
    fn uniform_then_normal_are_numpys() {
        let mut g = NumpyGenerator::new(7);
        let uniform: [f64; 5] = std::array::from_fn(|_| g.uniform(-0.1, 0.1));
        assert_eq!(uniform[3..], [-0.05495856200188163, -0.039966743017754915]);
        let normal: [f64; 3] = std::array::from_fn(|_| g.standard_normal());
        assert_eq!(normal, [-0.9916465549964624, 0.060143602597438485, 1.3402152455545335]);
    }

    #[test]
    fn a_million_normals_are_numpys_bit_for_bit() {
        // FNV-1a over the 64-bit patterns of Generator(PCG64(SeedSequence(1))).standard_normal(1000000)
        let mut g = NumpyGenerator::new(1);
        let (mut fnv, mut tail, mut last) = (0xcbf2_9ce4_8422_2325_u64, 0, 0.0_f64);
        for _ in 0..1_000_000 {
            last = g.standard_normal();
            fnv = (fnv ^ last.to_bits()).wrapping_mul(0x0100_0000_01b3);
            tail += u32::from(last.abs() > TAIL);
        }
        assert_eq!(tail, 279, "draws beyond the last layer");
        assert_eq!(last, -1.2954535350286405);
        assert_eq!(fnv, 0xd162_458c_9a73_046b);
        assert_eq!(g.uniform(0.0, 1.0), 0.5441631475731341, "another number of raw draws was used");
    }
}
