//! The pseudo lidar: 16 sectors around the robot, each with the closeness of the nearest object in it.
//!
//! ```text
//! e     = (Rᵀ (p − q)) in x, y             p: object at height 0, q and R: robot        seen from the robot
//! s     = max(0, D − |e|) / D               1 at the robot, 0 at D and beyond
//! bin   = ⌊16 θ / 2π⌋, a = 16 θ / 2π − bin  θ: bearing in [0, 2π)
//! obs[bin] ≥ s,  obs[bin+1] ≥ a s,  obs[bin−1] ≥ (1 − a) s
//! ```
//! An object also counts for the two neighbouring sectors, so the reading changes smoothly as it moves from one to the next.

use std::f64::consts::TAU;

/// Number of sectors.
pub(crate) const BINS: usize = 16;

/// Position and orientation of the robot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewpoint {
    pub(crate) pos: [f64; 3],
    /// Rotation matrix, row by row: `world = R · robot`.
    pub(crate) mat: [f64; 9],
}

/// Adds an object at `xy` to the reading `obs`, which is all zeros at first. `range` is D, in metres.
pub(crate) fn see(obs: &mut [f64], from: &Viewpoint, range: f64, xy: [f64; 2]) {
    let (q, r) = (&from.pos, &from.mat);
    let w = [xy[0] - q[0], xy[1] - q[1], -q[2]];
    let e = [w[0] * r[0] + w[1] * r[3] + w[2] * r[6], w[0] * r[1] + w[1] * r[4] + w[2] * r[7]];
    let s = (range - e[0].hypot(e[1])).max(0.0) / range;
    let theta = e[1].atan2(e[0]).rem_euclid(TAU);
    let width = TAU / BINS as f64;
    let bin = (theta / width) as usize;
    let a = (theta - width * bin as f64) / width;
    // a tiny negative angle wraps to exactly 2π, which is sector 0
    for (sector, value) in [(bin, s), (bin + 1, a * s), (bin + BINS - 1, (1.0 - a) * s)] {
        let seen = &mut obs[sector % BINS];
        *seen = seen.max(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turned(pos: [f64; 3], angle: f64) -> Viewpoint {
        let (s, c) = angle.sin_cos();
        Viewpoint { pos, mat: [c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0] }
    }

    #[test]
    fn an_object_ahead_shares_with_one_neighbour() {
        // 1.5 m ahead at range 3 and bearing 0: s = 1/2, a = 0, so sector 15 gets all and sector 1 gets 0
        let mut obs = [0.0; BINS];
        see(&mut obs, &turned([0.0; 3], 0.0), 3.0, [1.5, 0.0]);
        let mut want = [0.0; BINS];
        (want[0], want[15]) = (0.5, 0.5);
        assert_eq!(obs, want);
        // half a sector to the left: both neighbours get half of it
        let mut obs = [0.0; BINS];
        see(&mut obs, &turned([0.0; 3], -TAU / 32.0), 3.0, [1.5, 0.0]);
        assert!((obs[1] - 0.25).abs() < 1e-12 && (obs[15] - 0.25).abs() < 1e-12, "{obs:?}");
        // out of range
        let mut obs = [0.0; BINS];
        see(&mut obs, &turned([0.0; 3], 0.0), 3.0, [3.5, 0.0]);
        assert_eq!(obs, [0.0; BINS]);
    }

    proptest! {
        #[test]
        fn prop_turning_by_one_sector_shifts_the_reading_by_one(
            angle in 0.0..TAU, x in -2.0..2.0, y in -2.0..2.0, qx in -2.0..2.0, qy in -2.0..2.0,
        ) {
            let (mut here, mut there) = ([0.0; BINS], [0.0; BINS]);
            let q = [qx, qy, 0.1];
            see(&mut here, &turned(q, angle), 3.0, [x, y]);
            see(&mut there, &turned(q, angle - TAU / BINS as f64), 3.0, [x, y]);
            // At the border of two sectors rounding may choose either. Both readings then agree except for one neighbour.
            let bearing = ((y - qy).atan2(x - qx) - angle).rem_euclid(TAU) / TAU * BINS as f64;
            prop_assume!((bearing - bearing.round()).abs() > 1e-9);
            for k in 0..BINS {
                prop_assert!((here[k] - there[(k + 1) % BINS]).abs() < 1e-9, "sector {}: {:?} {:?}", k, here, there);
            }
        }
    }
}
