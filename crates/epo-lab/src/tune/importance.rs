//! Importance of parameters: how much of the differences between trials each parameter explains by itself.
//!
//! ```text
//! y_i     rank of trial i at the first rung, which all trials reached (1 is the worst)
//! groups  the trials by the value of the parameter: its choices, or up to 4 groups of equal size
//! ε² = (SS_between − (k − 1) MS_within) / SS_total
//! ```
//! ε² is the share of the variance of the ranks that the groups explain, corrected for the share that k groups
//! explain by chance. Its expected value is 0 for a parameter without influence; negative values are set to 0.
//! Influence that appears only in combination with another parameter is not detected.

use super::Trial;

/// Largest number of groups of a numeric parameter.
const GROUPS: usize = 4;

/// The importance of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// Index of the parameter in the file.
    pub parameter: usize,
    /// Share of the variance of the ranks that it explains by itself, from 0 to 1.
    pub share: f64,
}

/// Returns the importance of each parameter, the most important first. `choices` has the number of choices of each
/// parameter, or `None` for numbers. It is empty with fewer than 8 trials that have results.
pub fn importance(trials: &[Trial], choices: &[Option<usize>]) -> Vec<Importance> {
    let mut ranked: Vec<&Trial> = trials.iter().filter(|trial| !trial.results.is_empty()).collect();
    if ranked.len() < 8 {
        return Vec::new();
    }
    let compare = |a: &Trial, b: &Trial| a.results[0].mean.compare(&b.results[0].mean);
    ranked.sort_by(|a, b| compare(a, b).then(a.number.cmp(&b.number)));
    // equal trials share the mean of their ranks
    let mut ranks = Vec::with_capacity(ranked.len());
    for equal in ranked.chunk_by(|a, b| compare(a, b).is_eq()) {
        let mean = ranks.len() as f64 + (equal.len() as f64 + 1.0) / 2.0;
        ranks.extend(std::iter::repeat_n(mean, equal.len()));
    }
    let mut all: Vec<Importance> = choices
        .iter()
        .enumerate()
        .map(|(parameter, choices)| {
            let places: Vec<f64> = ranked.iter().map(|trial| trial.point[parameter]).collect();
            Importance { parameter, share: epsilon_squared(&ranks, &groups(&places, *choices)) }
        })
        .collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.parameter.cmp(&b.parameter)));
    all
}

/// Returns the group of each position of a parameter.
fn groups(places: &[f64], choices: Option<usize>) -> Vec<usize> {
    if let Some(n) = choices {
        return places.iter().map(|place| (place * n as f64) as usize).collect();
    }
    let k = GROUPS.min(places.len() / 4).max(2);
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    let mut group = vec![0; places.len()];
    order.iter().enumerate().for_each(|(position, &i)| group[i] = position * k / places.len());
    group
}

/// Returns ε² of ranks with these groups, at least 0. It is 0 if all ranks are equal.
fn epsilon_squared(ranks: &[f64], group: &[usize]) -> f64 {
    let n = group.len() as f64;
    let mean = (n + 1.0) / 2.0;
    let ranks = || ranks.iter().zip(group).map(|(rank, g)| (*rank, *g));
    let total: f64 = ranks().map(|(y, _)| (y - mean).powi(2)).sum();
    let (mut between, mut k) = (0.0, 0.0);
    for g in 0..=group.iter().copied().max().unwrap_or(0) {
        let members: Vec<f64> = ranks().filter(|(_, of)| *of == g).map(|(y, _)| y).collect();
        if !members.is_empty() {
            let size = members.len() as f64;
            k += 1.0;
            between += size * (members.iter().sum::<f64>() / size - mean).powi(2);
        }
    }
    if k < 2.0 || n <= k || total <= 0.0 {
        return 0.0;
    }
    let within = (total - between) / (n - k);
    ((between - (k - 1.0) * within) / total).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use epo_core::{Purpose, Stream};
    use epo_report::RunResults;

    use super::*;
    use crate::tune::TrialResult;

    /// Trials whose return is a function of their point.
    fn trials(n: usize, ret: impl Fn(&[f64]) -> f64) -> Vec<Trial> {
        let mut stream = Stream::new(5, Purpose::Problem, 0);
        (0..n)
            .map(|number| {
                let point: Vec<f64> = (0..3).map(|_| stream.uniform()).collect();
                let (cost, limit, above, excess) = (0.0, 25.0, 0.0, 0.0);
                let mean = RunResults { ret: ret(&point), cost, limit, above, excess, stays_from: None };
                let results = vec![TrialResult { steps: 1, mean }];
                Trial { number, point, values: vec![], runs: vec![], results, failure: None }
            })
            .collect()
    }

    /// This test fails if the parameters are mixed up, if a parameter without influence is credited with some, or if an
    /// influence that is not monotonic is not seen.
    #[test]
    fn the_parameter_that_matters_is_found() {
        let found = importance(&trials(60, |p| -(p[1] - 0.5).powi(2)), &[None, None, Some(3)]);
        assert_eq!(found[0].parameter, 1);
        assert!(found[0].share > 0.5 && found[1].share < 0.15, "{found:?}");
        let choice = |p: &[f64]| f64::from((p[2] * 3.0) as u8 == 1) + 0.1 * p[0];
        let found = importance(&trials(60, choice), &[None, None, Some(3)]);
        assert_eq!(found[0].parameter, 2);
        assert!(found[0].share > 0.5, "{found:?}");
        assert!(importance(&trials(7, |p| p[0]), &[None, None, None]).is_empty(), "too few trials");
    }

    #[test]
    fn the_share_is_that_of_a_hand_calculation() {
        // ranks 1‥8 in two groups of four: means 2.5 and 6.5, SS_total 42, SS_between 32, MS_within 10 / 6
        let ranks = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let share = epsilon_squared(&ranks, &[0, 0, 0, 0, 1, 1, 1, 1]);
        assert!((share - (32.0 - 10.0 / 6.0) / 42.0).abs() < 1e-12, "{share}");
        assert_eq!(epsilon_squared(&ranks, &[0, 1, 1, 0, 0, 1, 1, 0]), 0.0);
        assert_eq!(epsilon_squared(&ranks[..4], &[2, 2, 2, 2]), 0.0, "one group explains nothing");
        assert_eq!(
            epsilon_squared(&[4.5; 8], &[0, 0, 0, 0, 1, 1, 1, 1]),
            0.0,
            "equal results explain nothing"
        );
    }
}
