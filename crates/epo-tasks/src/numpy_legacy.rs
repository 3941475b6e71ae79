//! NumPy's legacy generator `numpy.random.RandomState`: the Mersenne Twister MT19937, and how NumPy
//! makes doubles and small integers from its output. Safety-Gymnasium draws every layout and every
//! goal from such a generator.
//!
//! Source: Matsumoto and Nishimura 1998. The seeding is that of `RandomState(seed)` with an integer.

const N: usize = 624;
const M: usize = 397;

/// A `numpy.random.RandomState`.
#[derive(Clone)]
pub(crate) struct RandomState {
    state: [u32; N],
    next: usize,
}

impl std::fmt::Debug for RandomState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RandomState").field("next", &self.next).finish_non_exhaustive()
    }
}

impl RandomState {
    /// `RandomState(seed)`.
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let last = state[i - 1];
            state[i] = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        let s = &mut self.state;
        for i in 0..N {
            let y = (s[i] & 0x8000_0000) | (s[(i + 1) % N] & 0x7fff_ffff);
            s[i] = s[(i + M) % N] ^ (y >> 1) ^ if y & 1 == 1 { 0x9908_b0df } else { 0 };
        }
        self.next = 0;
    }

    /// `random_sample()`: uniform in [0, 1), 53 bits.
    pub(crate) fn double(&mut self) -> f64 {
        let (a, b) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(a) * 67_108_864.0 + f64::from(b)) / 9_007_199_254_740_992.0
    }

    /// `uniform(low, high)`.
    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.double()
    }

    /// `choice(n)` for n ≥ 2: keeps the low bits that n − 1 needs, and draws again while the result is n or more.
    pub(crate) fn choice(&mut self, n: u32) -> u32 {
        let mask = u32::MAX >> (n - 1).leading_zeros();
        loop {
            let v = self.next_u32() & mask;
            if v < n {
                return v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // numpy 1.23.5: r = RandomState(seed); r.random_sample(); r.uniform(-2, 3); r.choice(4) × 3; r.choice(5) × 3;
    // then 700 × r.random_sample(), of which only the last is listed.
    #[test]
    fn draws_are_those_of_numpy() {
        for (seed, double, uniform, choices, last) in KNOWN {
            let mut r = RandomState::new(seed);
            assert_eq!(r.double(), double, "seed {seed}");
            assert_eq!(r.uniform(-2.0, 3.0), uniform, "seed {seed}");
            let n = [4, 4, 4, 5, 5, 5];
            assert_eq!(n.map(|n| r.choice(n)), choices, "seed {seed}");
            let far = (0..700).map(|_| r.double()).last().unwrap();
            assert_eq!(far, last, "seed {seed}: past the first refill");
        }
    }

    type Known = (u32, f64, f64, [u32; 6], f64);
    #[rustfmt::skip]
    const KNOWN: [Known; 3] = [
        (0, 0.5488135039273248, 1.5759468318620975, [3, 3, 3, 1, 3, 2], 0.10001406092155518),
        (7, 0.07630828937395717, 1.8995939612005732, [3, 3, 3, 4, 1, 0], 0.03554690173260466),
        (4294967295, 0.0976320289940138, 2.5619142265131094, [0, 0, 2, 2, 1, 0], 0.5747984669496056),
    ];
}
