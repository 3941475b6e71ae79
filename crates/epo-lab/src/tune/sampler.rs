//! The choice of the next point of the search space.
//!
//! A point depends on the seed of the search, the number of the trial, and for TPE on the results of earlier
//! generations. The order in which runs end does not matter.
//!
//! TPE (Bergstra et al., "Algorithms for hyper-parameter optimization", 2011) comes from the crate `tpe`. It only uses
//! the order of the results, so it gets ranks: feasible trials come before infeasible ones. The first generation is a
//! Sobol sequence.

use std::convert::Infallible;

use epo_core::{Purpose, Stream};
use rand::rand_core::TryRng;

use super::{SearchMethod, Trial, TuneFile};

/// Chooses points.
#[derive(Clone, Debug)]
pub struct Sampler {
    method: SearchMethod,
    seed: u64,
    trials: usize,
    batch: usize,
    /// Number of choices of each parameter; `None` for numbers.
    choices: Vec<Option<usize>>,
}

impl Sampler {
    /// Returns the sampler of a search.
    pub fn new(file: &TuneFile) -> Self {
        let choices = file.parameters.iter().map(|parameter| parameter.choices()).collect();
        Self { method: file.method, seed: file.seed, trials: file.trials, batch: file.batch, choices }
    }

    /// Number of trials of the generation that begins with trial `first`. They are chosen at the same time.
    pub fn generation(&self, first: usize) -> usize {
        match self.method {
            SearchMethod::Random | SearchMethod::Sobol => self.trials - first,
            SearchMethod::Tpe => self.batch,
        }
    }

    /// Returns the point of a trial: one number in [0, 1) per parameter. `before` are the trials of earlier generations.
    pub fn point(&self, number: usize, before: &[Trial]) -> Vec<f64> {
        let mut stream = Stream::new(self.seed, Purpose::Random, number as u32);
        let dimensions = 0..self.choices.len();
        match self.method {
            SearchMethod::Random => dimensions.map(|_| stream.uniform()).collect(),
            SearchMethod::Tpe if !before.is_empty() => {
                dimensions.map(|i| self.suggest(i, before, &mut stream)).collect()
            }
            SearchMethod::Sobol | SearchMethod::Tpe => {
                // the sequence has 2¹⁶ points and 256 dimensions; beyond that, another scrambling is used
                let seed = (self.seed as u32) ^ (number >> 16) as u32;
                let at = |i: usize| {
                    let seed = seed.wrapping_add((i / 256) as u32).wrapping_mul(0x9E37_79B9);
                    f64::from(sobol_burley::sample((number & 0xFFFF) as u32, (i % 256) as u32, seed))
                };
                dimensions.map(at).collect()
            }
        }
    }

    /// Returns the position of parameter `i` that TPE suggests.
    fn suggest(&self, i: usize, before: &[Trial], stream: &mut Stream) -> f64 {
        let n = self.choices[i].unwrap_or(1) as f64;
        let estimator = match self.choices[i] {
            Some(_) => tpe::histogram_estimator(),
            None => tpe::parzen_estimator(),
        };
        let Ok(range) = tpe::range(0.0, n) else { return stream.uniform() };
        let mut ranked: Vec<&Trial> = before.iter().collect();
        ranked.sort_by(|a, b| b.compare(a));
        let mut optimizer = tpe::TpeOptimizer::new(estimator, range);
        for (rank, trial) in ranked.iter().enumerate() {
            let place = trial.point[i] * n;
            let place = if self.choices[i].is_some() { place.floor() } else { place };
            let _ = optimizer.tell(place, rank as f64); // the point is in range, and no rank is NaN
        }
        let asked = optimizer.ask(&mut StreamRng(stream)).ok();
        let chosen = asked.map(|place| match self.choices[i] {
            Some(_) => (place.floor() + 0.5) / n,
            None => place,
        });
        chosen.unwrap_or_else(|| stream.uniform()).clamp(0.0, 1.0 - f64::EPSILON)
    }
}

/// A stream as a random number generator of the crate `rand`.
struct StreamRng<'a>(&'a mut Stream);

impl TryRng for StreamRng<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use epo_report::RunResults;

    use super::*;
    use crate::tune::TrialResult;

    fn file(method: &str) -> TuneFile {
        TuneFile::parse(&format!(
            "[base]\nrun.steps = 1e5\n[tune]\nmethod = \"{method}\"\ntrials = 128\nbatch = 16\n[space]\n\
             train.lr = {{ low = 1e-5, high = 1e-3, log = true }}\ntrain.gamma = {{ low = 0.9, high = 0.999 }}\n\
             train.minibatch = [32, 64, 128]"
        ))
        .unwrap()
    }

    /// Runs a search whose cost falls with the first parameter and whose return is highest at 0.7 of it and at the
    /// second choice of the third. Returns the points of the last four generations.
    fn search(method: &str) -> Vec<Vec<f64>> {
        let file = file(method);
        let sampler = Sampler::new(&file);
        let mut trials: Vec<Trial> = Vec::new();
        while trials.len() < file.trials {
            let first = trials.len();
            for number in first..first + sampler.generation(first) {
                let point = sampler.point(number, &trials[..first]);
                let mut trial = file.trial(number, point.clone()).unwrap();
                let choice = (point[2] * 3.0) as usize;
                let ret = 10.0 - 20.0 * (point[0] - 0.7).abs() + if choice == 1 { 3.0 } else { 0.0 };
                let cost = 20.0 - 20.0 * point[0];
                let (limit, above, excess) = (10.0, 0.0, 0.0);
                let mean = RunResults { ret, cost, limit, above, excess, stays_from: None };
                trial.results = vec![TrialResult { steps: 1, mean }];
                trials.push(trial);
            }
        }
        trials[64..].iter().map(|trial| trial.point.clone()).collect()
    }

    /// This test fails if TPE does not learn from the results, or learns in the wrong direction.
    #[test]
    fn tpe_prefers_points_that_were_good() {
        let near = |points: &[Vec<f64>]| points.iter().filter(|p| (p[0] - 0.7).abs() < 0.15).count();
        let second = |points: &[Vec<f64>]| points.iter().filter(|p| (p[2] * 3.0) as usize == 1).count();
        let (random, tpe) = (search("random"), search("tpe"));
        // of 64 points, 19 and 21 are expected by chance, with standard deviations of 3.7
        assert!(near(&tpe) >= 32 && near(&random) <= 31, "{} and {}", near(&tpe), near(&random));
        assert!(second(&tpe) >= 34 && second(&random) <= 33, "{} and {}", second(&tpe), second(&random));
        assert_eq!(search("tpe"), tpe, "the same search again");
    }

    /// This test fails if the points are not those of a Sobol sequence: each eighth of each axis
    /// must have the same number of points.
    #[test]
    fn sobol_points_cover_every_axis_evenly() {
        let sampler = Sampler::new(&file("sobol"));
        let points: Vec<Vec<f64>> = (0..64).map(|number| sampler.point(number, &[])).collect();
        for axis in 0..3 {
            let count = |part: usize| points.iter().filter(|p| (p[axis] * 8.0) as usize == part).count();
            assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(count), [8; 8], "axis {axis}");
        }
        let other = Sampler { seed: 1, ..sampler.clone() };
        assert_ne!(other.point(5, &[]), points[5], "another seed, other points");
        let random = Sampler::new(&file("random"));
        assert_ne!(random.point(0, &[]), random.point(1, &[]));
    }
}
