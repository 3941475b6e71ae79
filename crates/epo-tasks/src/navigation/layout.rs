//! Draws the positions of the robot and the objects at the start of an episode, and the position of
//! a new goal.
//!
//! ```text
//! position     x = x0 + (x1 − x0) u,  then y likewise         within the object's area, shrunk by its keep-out
//! valid        |p − q| ≥ keepout_p + keepout_q                for every object q that is already placed
//! attempt      objects in order, up to 100 draws each; if one does not fit, a new attempt; up to 10 000 attempts
//! ```
//! As in Safety-Gymnasium, every draw takes two doubles from the generator, even if the area is a
//! single point. The later random numbers of the episode depend on this.

use crate::numpy_legacy::RandomState;

/// Largest number of draws for one object within one attempt.
const DRAWS: usize = 100;
/// Largest number of attempts at a whole layout, and of draws for a new goal.
pub(crate) const ATTEMPTS: usize = 10_000;

/// The positions that one object may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Rectangle of allowed centres: x0, y0, x1, y1, in metres.
    area: [f64; 4],
    keepout: f64,
}

impl Spot {
    /// Any position in the rectangle that is at least the keep-out away from its edges.
    pub(crate) fn within([x0, y0, x1, y1]: [f64; 4], keepout: f64) -> Self {
        Self { area: [x0 + keepout, y0 + keepout, x1 - keepout, y1 - keepout], keepout }
    }

    /// A single point, to a nanometre. This is the tolerance of Safety-Gymnasium.
    pub(crate) fn at([x, y]: [f64; 2], keepout: f64) -> Self {
        let k = keepout + 1e-9;
        Self::within([x - k, y - k, x + k, y + k], keepout)
    }

    fn draw(&self, rng: &mut RandomState) -> [f64; 2] {
        let [x0, y0, x1, y1] = self.area;
        [rng.uniform(x0, x1), rng.uniform(y0, y1)]
    }
}

/// The positions of the robot (first) and of all objects of a scene.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    spots: Vec<Spot>,
    /// The current positions, one per spot, in metres.
    pub(crate) xy: Vec<[f64; 2]>,
}

/// No layout was found. `placed` is the number of objects that fitted in the best attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutError {
    pub(crate) placed: usize,
}

impl Layout {
    pub(crate) fn new(spots: Vec<Spot>) -> Self {
        let xy = vec![[0.0; 2]; spots.len()];
        Self { spots, xy }
    }

    /// Draws a whole new layout.
    pub(crate) fn sample(&mut self, rng: &mut RandomState) -> Result<(), LayoutError> {
        let mut best = 0;
        for _ in 0..ATTEMPTS {
            let placed = self.attempt(rng);
            if placed == self.spots.len() {
                return Ok(());
            }
            best = best.max(placed);
        }
        Err(LayoutError { placed: best })
    }

    /// Places objects in order until one does not fit; returns the number of those that fitted.
    fn attempt(&mut self, rng: &mut RandomState) -> usize {
        for i in 0..self.spots.len() {
            let found = (0..DRAWS).map(|_| self.spots[i].draw(rng)).find(|&p| self.valid(i, p, 0..i));
            let Some(p) = found else { return i };
            self.xy[i] = p;
        }
        self.spots.len()
    }

    /// Draws a new position for object `i`, clear of all others. Returns `false` if none was found.
    pub(crate) fn resample(&mut self, i: usize, rng: &mut RandomState) -> bool {
        for _ in 0..ATTEMPTS {
            let p = self.spots[i].draw(rng);
            if self.valid(i, p, 0..i) && self.valid(i, p, i + 1..self.spots.len()) {
                self.xy[i] = p;
                return true;
            }
        }
        false
    }

    fn valid(&self, i: usize, p: [f64; 2], mut others: std::ops::Range<usize>) -> bool {
        others.all(|j| distance(p, self.xy[j]) >= self.spots[j].keepout + self.spots[i].keepout)
    }
}

/// Distance of two points in the plane, in metres.
pub(crate) fn distance(p: [f64; 2], q: [f64; 2]) -> f64 {
    let (dx, dy) = (p[0] - q[0], p[1] - q[1]);
    (dx * dx + dy * dy).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_keepouts_hold_and_areas_too(seed: u32, n in 1..12usize, keepout in 0.05..0.3) {
            let square = [-2.0, -2.0, 2.0, 2.0];
            let mut layout = Layout::new(vec![Spot::within(square, keepout); n]);
            let mut rng = RandomState::new(seed);
            layout.sample(&mut rng).unwrap();
            for round in 0..3 {
                for i in 0..n {
                    for j in 0..i {
                        prop_assert!(distance(layout.xy[i], layout.xy[j]) >= 2.0 * keepout, "{i} and {j}");
                    }
                    prop_assert!(layout.xy[i].iter().all(|c| c.abs() <= 2.0 - keepout), "{:?}", layout.xy[i]);
                }
                prop_assert!(layout.resample(round % n, &mut rng));
            }
        }
    }

    #[test]
    fn a_crowded_layout_says_how_many_fitted() {
        // Both objects fit only at the origin.
        let mut layout = Layout::new(vec![Spot { area: [0.0, 0.0, 0.0, 0.0], keepout: 0.5 }; 2]);
        assert_eq!(layout.sample(&mut RandomState::new(0)), Err(LayoutError { placed: 1 }));
        assert!(!layout.resample(1, &mut RandomState::new(0)));
    }

    #[test]
    fn a_fixed_place_still_takes_two_draws() {
        let mut rng = RandomState::new(3);
        let mut same = rng.clone();
        Layout::new(vec![Spot::at([1.0, 2.0], 0.4)]).sample(&mut rng).unwrap();
        let two_later = (0..3).map(|_| same.double()).last();
        assert_eq!(Some(rng.double()), two_later);
    }
}
