//! Map of the places on the floor where costs were paid, over many episodes.

use std::sync::{Arc, Mutex, PoisonError};

use epo_core::{Env, EnvError, EnvSpec, Step};
use epo_tasks::TaskEnv;
use serde::Serialize;

/// Largest number of cells along the longer side.
const CELLS: usize = 64;

/// A grid of squares on the floor, each with the cost that was paid while the robot was in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostMap {
    /// Number of episodes.
    pub episodes: usize,
    /// Smallest x and y of the grid, in metres.
    pub origin: [f64; 2],
    /// Side of a cell, in metres.
    pub cell: f64,
    /// Number of cells along x and along y.
    pub size: [usize; 2],
    /// Cost per cell, row by row; rows have the same y.
    pub cost: Vec<f64>,
}

/// Places at which a cost was paid: x, y and the cost.
pub(crate) type Places = Arc<Mutex<Vec<[f64; 3]>>>;

/// An environment that notes where the robot is when a cost is paid.
pub(crate) struct CostRecorder {
    pub(crate) env: TaskEnv,
    pub(crate) places: Places,
}

impl Env for CostRecorder {
    fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }

    fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
        self.env.reset(seed, obs)
    }

    fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
        let step = self.env.step(action, obs)?;
        if step.cost > 0.0 {
            let pose = self.env.body_poses().nth(self.env.robot().0);
            let [x, y, _] = pose.map_or([0.0; 3], |(pos, _)| pos);
            self.places.lock().unwrap_or_else(PoisonError::into_inner).push([x, y, step.cost]);
        }
        Ok(step)
    }

    fn cost_terms(&self) -> &[f64] {
        self.env.cost_terms()
    }
}

impl CostMap {
    /// Returns the map of these places. Their order does not matter.
    pub(crate) fn of(places: &Places, episodes: usize) -> Self {
        let mut places = places.lock().unwrap_or_else(PoisonError::into_inner).clone();
        places.retain(|place| place.iter().all(|v| v.is_finite()));
        // threads add places in any order; sums of floating-point numbers depend on it
        places.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])).then(a[2].total_cmp(&b[2])));
        let least = |axis: usize| places.iter().map(|p| p[axis]).fold(f64::INFINITY, f64::min);
        let most = |axis: usize| places.iter().map(|p| p[axis]).fold(f64::NEG_INFINITY, f64::max);
        if places.is_empty() {
            return Self { episodes, origin: [0.0; 2], cell: 1.0, size: [1, 1], cost: vec![0.0] };
        }
        let (low, high) = ([least(0), least(1)], [most(0), most(1)]);
        let longer = (high[0] - low[0]).max(high[1] - low[1]);
        let cell = (longer / CELLS as f64).max(0.05);
        let count = |axis: usize| (((high[axis] - low[axis]) / cell) as usize + 1).min(CELLS + 1);
        let size = [count(0), count(1)];
        let mut cost = vec![0.0; size[0] * size[1]];
        for [x, y, paid] in places {
            let at = |v: f64, axis: usize| (((v - low[axis]) / cell) as usize).min(size[axis] - 1);
            cost[at(y, 1) * size[0] + at(x, 0)] += paid;
        }
        Self { episodes, origin: low, cell, size, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(places: &[[f64; 3]]) -> CostMap {
        CostMap::of(&Arc::new(Mutex::new(places.to_vec())), 3)
    }

    #[test]
    fn every_cost_is_in_the_cell_of_its_place_whatever_the_order() {
        let places = [[-1.0, 2.0, 1.0], [1.0, -2.0, 0.25], [1.0, -2.0, 0.5], [0.0, 0.0, 1.0]];
        let got = map(&places);
        let mut backwards = places;
        backwards.reverse();
        assert_eq!(got, map(&backwards));
        assert_eq!(got.origin, [-1.0, -2.0]);
        assert!((got.cost.iter().sum::<f64>() - 2.75).abs() < 1e-12);
        let at = |x: f64, y: f64| {
            let column = ((x - got.origin[0]) / got.cell) as usize;
            let row = ((y - got.origin[1]) / got.cell) as usize;
            got.cost[row.min(got.size[1] - 1) * got.size[0] + column.min(got.size[0] - 1)]
        };
        assert_eq!((at(1.0, -2.0), at(0.0, 0.0), at(-1.0, 2.0)), (0.75, 1.0, 1.0));
    }

    #[test]
    fn a_map_without_costs_is_empty_and_one_place_has_an_area() {
        assert_eq!(map(&[]).cost, [0.0]);
        let one = map(&[[3.0, 3.0, 1.0]]);
        assert_eq!((one.cost, one.size, one.cell), (vec![1.0], [1, 1], 0.05));
        assert_eq!(map(&[[f64::NAN, 0.0, 1.0]]).cost, [0.0]);
    }
}
