//! Counter-based random numbers (Philox 4×32-10).
//!
//! Each random number is a pure function of run seed, purpose, index and position. A checkpoint therefore stores only
//! a few integers per stream. Results do not depend on the order in which threads draw numbers.
//!
//! Source: Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.

/// The use of a stream. Streams of different purposes never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// Seeds of training episodes.
    Episode = 1,
    /// Action noise during training rollouts.
    Action = 2,
    /// Initial weights of the networks.
    Init = 3,
    /// Order of the minibatches.
    Shuffle = 4,
    /// Seeds of evaluation episodes.
    Evaluation = 5,
    /// Bootstrap resampling.
    Bootstrap = 6,
    /// Random test problems (random CMDPs, property tests).
    Problem = 7,
    /// Random policies in rollouts and benchmarks.
    Random = 8,
}

/// A stream of random numbers, identified by seed, purpose and index.
///
/// ```
/// use epo_core::{Purpose, Stream};
/// let mut a = Stream::new(7, Purpose::Action, 3);
/// let first = a.next_u64();
/// let mut b = Stream::at(7, Purpose::Action, 3, a.position()); // re-created from integers
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert_ne!(first, Stream::new(7, Purpose::Action, 4).next_u64());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    purpose: u32,
    index: u32,
    position: u64,
}

impl Stream {
    /// Returns the stream at position 0.
    pub const fn new(seed: u64, purpose: Purpose, index: u32) -> Self {
        Self::at(seed, purpose, index, 0)
    }

    /// Returns the stream after `position` draws of 64 bits.
    pub const fn at(seed: u64, purpose: Purpose, index: u32, position: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], purpose: purpose as u32, index, position }
    }

    /// Returns the same stream after `position` draws of 64 bits.
    pub const fn moved_to(self, position: u64) -> Self {
        Self { position, ..self }
    }

    /// Number of 64-bit numbers drawn. Seed, purpose, index and position are the whole state of a stream.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Draws 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [lo, hi] = [self.position as u32, (self.position >> 32) as u32];
        self.position += 1;
        let out = philox([lo, hi, self.purpose, self.index], self.key);
        u64::from(out[0]) | u64::from(out[1]) << 32
    }

    /// Draws from the uniform distribution on [0, 1), with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws a uniform integer from `0..n`. The bias is negligible: below n/2⁶⁴.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "below(n) needs n > 0");
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Draws from the standard normal distribution (Box–Muller).
    ///
    /// Each call uses two uniform draws and returns one number. The second Box–Muller number is not used, so the
    /// stream needs no cache.
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform(); // in (0, 1]: the logarithm is finite
        let v = self.uniform();
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Permutes `items` uniformly at random (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Returns one block of Philox 4×32 with ten rounds.
fn philox(mut ctr: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(ctr[0]) * 0xD251_1F53;
        let b = u64::from(ctr[2]) * 0xCD9E_8D57;
        ctr = [(b >> 32) as u32 ^ ctr[1] ^ key[0], b as u32, (a >> 32) as u32 ^ ctr[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    ctr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_agrees_with_the_published_vectors() {
        // known answers of the reference implementation (Random123)
        let zero = philox([0; 4], [0; 2]);
        assert_eq!(zero, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn normal_has_the_moments_of_a_standard_normal() {
        let mut stream = Stream::new(1, Purpose::Random, 0);
        let n = 200_000;
        let (mut m1, mut m2, mut m4) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = stream.normal();
            m1 += x / f64::from(n);
            m2 += x * x / f64::from(n);
            m4 += x.powi(4) / f64::from(n);
        }
        // five standard errors: 1/√n, √(2/n), √(96/n)
        assert!(m1.abs() < 0.0112 && (m2 - 1.0).abs() < 0.0159 && (m4 - 3.0).abs() < 0.11, "{m1} {m2} {m4}");
    }

    #[test]
    fn below_reaches_every_value_equally() {
        let mut stream = Stream::new(2, Purpose::Random, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[stream.below(7)] += 1;
        }
        assert!(counts.iter().all(|&c| (9_500..10_500).contains(&c)), "{counts:?}");
    }

    #[test]
    fn shuffle_is_a_permutation_that_the_seed_names() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Stream::new(seed, Purpose::Shuffle, 0).shuffle(&mut items);
            items
        };
        let (a, b) = (shuffled(1), shuffled(2));
        assert_eq!(a, shuffled(1));
        assert_ne!(a, b);
        let mut sorted = a;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
