//! A checker for environments. It finds common mistakes before a training run and describes each in one sentence.
//!
//! ```
//! # use epo_core::{ActionSpace, Env, EnvError, EnvSpec, Outcome, Step};
//! # struct Counter { spec: EnvSpec, t: usize, running: bool }
//! # impl Env for Counter {
//! #     fn spec(&self) -> &EnvSpec { &self.spec }
//! #     fn reset(&mut self, _: u64, obs: &mut [f64]) -> Result<(), EnvError> {
//! #         (self.t, self.running, obs[0]) = (0, true, 0.0);
//! #         Ok(())
//! #     }
//! #     fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
//! #         if !self.running { return Err(EnvError::NeedsReset); }
//! #         self.t += 1;
//! #         obs[0] = self.t as f64;
//! #         let outcome = if self.t == 5 { Outcome::Terminated } else { Outcome::Running };
//! #         self.running = !outcome.is_done();
//! #         Ok(Step { reward: action[0], cost: 0.0, outcome })
//! #     }
//! # }
//! # fn counter() -> Box<dyn Env> {
//! #     let spec = EnvSpec { id: "counter".into(), obs_len: 1, action: ActionSpace::symmetric(1), max_steps: 5, cost_terms: vec![] };
//! #     Box::new(Counter { spec, t: 0, running: false })
//! # }
//! // `counter()` reports `Terminated` at its time limit and accepts any action: two mistakes
//! let problems = epo_core::check_env(counter);
//! assert!(problems.iter().any(|p| p.to_string().contains("report Truncated")));
//! assert!(problems.iter().any(|p| p.to_string().contains("accepts an action with a NaN")));
//! ```

mod problem;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use problem::{Problem, Replay};

use crate::{ActionSpace, Env, Outcome, Purpose, Step, Stream};

/// Number of episodes that the checker plays.
const EPISODES: u64 = 3;
/// Maximum number of steps that the checker plays in one episode, even if the spec allows more.
const MAX_PLAYED: usize = 2_000;
/// Value that fills the observation buffer before a call. An entry that still has it afterwards was not written.
const UNWRITTEN: f64 = -7.123_456_789e123;

/// Returns the problems of an environment. The list is empty if the checker finds none.
///
/// The function calls `make` several times and plays a few episodes with random actions.
pub fn check_env(make: impl Fn() -> Box<dyn Env>) -> Vec<Problem> {
    let mut found = Vec::new();
    check_spec(&*make(), &mut found);
    if found.is_empty() {
        check_episodes(&make, &mut found);
        // consecutive problems of the same kind are reported once, such as a reward that is NaN in every step
        found.dedup_by(|a, b| std::mem::discriminant(a) == std::mem::discriminant(b));
        check_refusals(&make, &mut found);
    }
    found
}

fn check_spec(env: &dyn Env, found: &mut Vec<Problem>) {
    let spec = env.spec();
    let mut wrong = |what: &str| found.push(Problem::Spec(what.to_owned()));
    if spec.obs_len == 0 {
        wrong("an observation has no entries");
    }
    if spec.max_steps == 0 {
        wrong("an episode has no steps");
    }
    match &spec.action {
        ActionSpace::Discrete { n: 0 } => wrong("there is no action"),
        ActionSpace::Box { low, .. } if low.is_empty() => wrong("an action has no entries"),
        ActionSpace::Box { low, high } if low.len() != high.len() => {
            wrong("low and high of the actions differ in length");
        }
        ActionSpace::Box { low, high }
            if low.iter().zip(high).any(|(l, h)| l.is_nan() || h.is_nan() || l >= h) =>
        {
            wrong("low is not below high in the actions");
        }
        _ => {}
    }
}

/// The bits of everything that one call returned. For `reset`, reward and cost are 0.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    obs: Vec<u64>,
    reward: u64,
    cost: u64,
    outcome: Outcome,
}

/// Writes a uniformly random action. Bounds of a box beyond ±10⁶ are replaced by ±10⁶.
fn random_action(space: &ActionSpace, random: &mut Stream, action: &mut [f64]) {
    match space {
        ActionSpace::Discrete { n } => action[0] = random.below(*n) as f64,
        ActionSpace::Box { low, high } => {
            for ((a, &low), &high) in action.iter_mut().zip(low).zip(high) {
                let (low, high) = (low.max(-1e6), high.min(1e6));
                *a = low + (high - low) * random.uniform();
            }
        }
    }
}

/// Plays an environment with random actions that depend only on the seed of the episode, and records the results.
struct Player {
    env: Box<dyn Env>,
    random: Stream,
    obs: Vec<f64>,
    moments: Vec<Moment>,
}

impl Player {
    fn new(env: Box<dyn Env>) -> Self {
        let obs = vec![0.0; env.spec().obs_len];
        Self { env, random: Stream::new(0, Purpose::Problem, 0), obs, moments: Vec::new() }
    }

    /// Starts the episode with this seed. Returns false if the reset failed.
    fn begin(&mut self, seed: u64, found: &mut Vec<Problem>) -> bool {
        self.random = Stream::new(seed, Purpose::Problem, 0);
        self.moments.clear();
        self.obs.fill(UNWRITTEN);
        let (env, obs) = (&mut self.env, &mut self.obs);
        match catch_unwind(AssertUnwindSafe(|| env.reset(seed, obs))) {
            Err(_) => found.push(Problem::Panicked { call: format!("reset({seed})") }),
            Ok(Err(error)) => found.push(Problem::Failed { call: format!("reset({seed})"), error }),
            Ok(Ok(())) => {
                self.note("reset", Step { reward: 0.0, cost: 0.0, outcome: Outcome::Running }, found);
                return true;
            }
        }
        false
    }

    /// Takes one step. Returns false if the episode has ended or the step failed.
    fn step(&mut self, found: &mut Vec<Problem>) -> bool {
        let mut action = vec![0.0; self.env.spec().action.len()];
        random_action(&self.env.spec().action, &mut self.random, &mut action);
        self.obs.fill(UNWRITTEN);
        let (env, obs) = (&mut self.env, &mut self.obs);
        let call = || format!("step {} with action {action:?}", self.moments.len());
        match catch_unwind(AssertUnwindSafe(|| env.step(&action, obs))) {
            Err(_) => found.push(Problem::Panicked { call: call() }),
            Ok(Err(error)) => found.push(Problem::Failed { call: call(), error }),
            Ok(Ok(step)) => {
                self.note("step", step, found);
                return !step.outcome.is_done();
            }
        }
        false
    }

    /// Records the result of a call and adds its problems to `found`.
    fn note(&mut self, call: &'static str, step: Step, found: &mut Vec<Problem>) {
        let t = self.moments.len();
        let entry = |i: usize| format!("entry {i} of the observation");
        if let Some(entry) = self.obs.iter().position(|&x| x == UNWRITTEN) {
            found.push(Problem::ObservationNotWritten { call, entry });
        }
        if let Some(i) = self.obs.iter().position(|x| !x.is_finite()) {
            found.push(Problem::NotFinite { what: entry(i), step: t, value: self.obs[i] });
        }
        for (what, value) in [("the reward", step.reward), ("the cost", step.cost)] {
            if !value.is_finite() {
                found.push(Problem::NotFinite { what: what.to_owned(), step: t, value });
            }
        }
        if step.cost < 0.0 {
            found.push(Problem::NegativeCost { step: t, cost: step.cost });
        }
        let (got, want) = (self.env.cost_terms().len(), self.env.spec().cost_terms.len());
        if call == "step" && got != want {
            found.push(Problem::CostTerms { got, want });
        }
        let obs = self.obs.iter().map(|x| x.to_bits()).collect();
        let (reward, cost) = (step.reward.to_bits(), step.cost.to_bits());
        self.moments.push(Moment { obs, reward, cost, outcome: step.outcome });
    }

    /// Plays the episode with this seed until it ends, fails or exceeds a step limit. Returns the recorded results.
    fn play(&mut self, seed: u64, found: &mut Vec<Problem>) -> Vec<Moment> {
        let max_steps = self.env.spec().max_steps;
        if self.begin(seed, found) {
            while self.step(found) {
                if self.moments.len() > max_steps {
                    found.push(Problem::TooLong { max_steps });
                    break;
                }
                if self.moments.len() > MAX_PLAYED {
                    break;
                }
            }
        }
        std::mem::take(&mut self.moments)
    }
}

fn check_episodes(make: &impl Fn() -> Box<dyn Env>, found: &mut Vec<Problem>) {
    let mut used = Player::new(make());
    let episodes: Vec<_> = (0..EPISODES).map(|seed| used.play(seed, found)).collect();
    if !found.is_empty() {
        return; // the checks below would report the same problems again
    }

    // a time limit must be reported as `Truncated`, not as `Terminated`
    let max_steps = used.env.spec().max_steps;
    let full = |e: &Vec<Moment>| e.len() == max_steps + 1;
    let terminated = |e: &Vec<Moment>| e.last().is_some_and(|m| m.outcome == Outcome::Terminated);
    if episodes.iter().all(|e| full(e) && terminated(e)) {
        found.push(Problem::TimeLimitTerminates);
    }

    // an episode depends only on seed and actions: play it in a new environment, after another episode, and while a
    // second environment runs
    let mut part = |a: &[Moment], b: &[Moment], how| {
        let step = a.iter().zip(b).position(|(x, y)| x != y);
        let step = step.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())));
        found.extend(step.map(|step| Problem::NotDeterministic { step, how }));
    };
    let mut ignored = Vec::new();
    let fresh = Player::new(make()).play(0, &mut ignored);
    part(&episodes[0], &fresh, Replay::Fresh);
    part(&episodes[0], &used.play(0, &mut ignored), Replay::AfterAnother);
    let (mut one, mut two) = (Player::new(make()), Player::new(make()));
    if one.begin(0, &mut ignored) && two.begin(1, &mut ignored) {
        let mut running = [true, true];
        while running[0] && one.moments.len() <= max_steps.min(MAX_PLAYED) {
            running[0] = one.step(&mut ignored);
            running[1] = running[1] && two.step(&mut ignored);
        }
        part(&episodes[0], &one.moments, Replay::Interleaved);
    }
}

fn check_refusals(make: &impl Fn() -> Box<dyn Env>, found: &mut Vec<Problem>) {
    let mut env = make();
    let space = env.spec().action.clone();
    let (n, mut obs) = (space.len(), vec![0.0; env.spec().obs_len]);
    let mut good = vec![0.0; n];
    random_action(&space, &mut Stream::new(0, Purpose::Problem, 1), &mut good);

    let nan = || [&good[1..], &[f64::NAN]].concat();
    let mut bad = vec![
        ("that is too short", good[1..].to_vec()),
        ("that is too long", [&good[..], &[0.0]].concat()),
        ("with a NaN", nan()),
        ("with an infinity", nan().iter().map(|a| if a.is_nan() { f64::INFINITY } else { *a }).collect()),
    ];
    if let ActionSpace::Discrete { n } = space {
        bad.push(("that does not exist", vec![n as f64]));
    }
    for (kind, action) in bad {
        let mut fresh = make();
        let answer = catch_unwind(AssertUnwindSafe(|| {
            fresh.reset(0, &mut obs)?;
            fresh.step(&action, &mut obs)
        }));
        match answer {
            Err(_) => found.push(Problem::Panicked { call: format!("step with an action {kind}") }),
            Ok(Ok(_)) => found.push(Problem::AcceptsBadAction { kind }),
            Ok(Err(_)) => {}
        }
    }

    let mut accepted =
        |env: &mut Box<dyn Env>, when| match catch_unwind(AssertUnwindSafe(|| env.step(&good, &mut obs))) {
            Err(_) => found.push(Problem::Panicked { call: format!("step {when}") }),
            Ok(Ok(_)) => found.push(Problem::StepsWithoutEpisode { when }),
            Ok(Err(_)) => {}
        };
    accepted(&mut env, "before the first reset");
    let mut player = Player::new(env);
    let ended = player.play(0, &mut Vec::new()).last().is_some_and(|m| m.outcome.is_done());
    if ended {
        accepted(&mut player.env, "after the end of an episode");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnvError;
    use crate::EnvSpec;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The mistake that [`Walk`] contains.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Bug {
        None,
        ObsNotWritten,
        ObsNaN,
        RewardInfinite,
        NegativeCost,
        CostTermsMissing,
        OwnRandomness,
        RemembersTheLastEpisode,
        SharedState,
        TimeLimitTerminates,
        NeverEnds,
        TakesAnyLength,
        TakesNaN,
        StepsAfterTheEnd,
        Panics,
        FailsAtStep4,
    }

    static SHARED: AtomicU64 = AtomicU64::new(0);

    /// A walk on a line with a constant wind that depends on the seed. The cost is 1 for positions beyond ±2. Episodes
    /// are truncated after 12 steps.
    struct Walk {
        spec: EnvSpec,
        bug: Bug,
        x: f64,
        wind: f64,
        t: usize,
        running: bool,
        terms: Vec<f64>,
    }

    fn walk(bug: Bug) -> Box<dyn Env> {
        let spec = EnvSpec {
            id: "Walk".into(),
            obs_len: 2,
            action: ActionSpace::symmetric(1),
            max_steps: 12,
            cost_terms: vec!["far".into()],
        };
        let terms = if bug == Bug::CostTermsMissing { vec![] } else { vec![0.0] };
        Box::new(Walk { spec, bug, x: 0.0, wind: 0.0, t: 0, running: false, terms })
    }

    impl Env for Walk {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }
        fn cost_terms(&self) -> &[f64] {
            &self.terms
        }
        fn reset(&mut self, seed: u64, obs: &mut [f64]) -> Result<(), EnvError> {
            let seed = match self.bug {
                Bug::OwnRandomness => SHARED.fetch_add(1, Ordering::Relaxed),
                _ => seed,
            };
            self.wind = Stream::new(seed, Purpose::Problem, 9).uniform() - 0.5;
            if self.bug != Bug::RemembersTheLastEpisode {
                self.x = 0.0;
            }
            if self.bug == Bug::SharedState {
                SHARED.store(0, Ordering::Relaxed);
            }
            (self.t, self.running) = (0, true);
            obs.copy_from_slice(&[self.x, self.wind]);
            Ok(())
        }
        fn step(&mut self, action: &[f64], obs: &mut [f64]) -> Result<Step, EnvError> {
            let bug = self.bug;
            if !self.running && bug != Bug::StepsAfterTheEnd {
                return Err(EnvError::NeedsReset);
            }
            match self.spec.action.check(action) {
                Err(EnvError::ActionLength { .. }) if bug == Bug::TakesAnyLength => {}
                Err(EnvError::ActionNotFinite { .. }) if bug == Bug::TakesNaN => {}
                checked => checked?,
            }
            self.t += 1;
            assert!(bug != Bug::Panics || self.t != 4, "on purpose");
            if bug == Bug::FailsAtStep4 && self.t == 4 {
                return Err(EnvError::Other("tired".into()));
            }
            self.x += action.first().unwrap_or(&0.0) + self.wind;
            if bug == Bug::SharedState {
                self.x += SHARED.fetch_add(1, Ordering::Relaxed) as f64;
            }
            obs[0] = if bug == Bug::ObsNaN && self.t == 5 { f64::NAN } else { self.x };
            if bug != Bug::ObsNotWritten {
                obs[1] = self.wind;
            }
            let at_limit = self.t == self.spec.max_steps && bug != Bug::NeverEnds;
            let outcome = match bug {
                Bug::TimeLimitTerminates if at_limit => Outcome::Terminated,
                _ if at_limit => Outcome::Truncated,
                _ => Outcome::Running,
            };
            self.running = !outcome.is_done();
            let cost = f64::from(self.x.abs() > 2.0) - if bug == Bug::NegativeCost { 0.25 } else { 0.0 };
            self.terms.fill(cost);
            let reward = if bug == Bug::RewardInfinite { f64::INFINITY } else { self.x };
            Ok(Step { reward, cost, outcome })
        }
    }

    #[test]
    fn a_sound_environment_has_no_problems() {
        assert_eq!(check_env(|| walk(Bug::None)), []);
    }

    #[test]
    fn every_bug_is_named() {
        // the checker may find several problems; the intended one must come first, with a helpful message
        let cases = [
            (Bug::ObsNotWritten, "step does not write entry 1 of the observation"),
            (Bug::ObsNaN, "entry 0 of the observation is NaN at step 5"),
            (Bug::RewardInfinite, "the reward is inf at step 1"),
            (Bug::NegativeCost, "the cost is -0.25 at step 1; costs are never negative"),
            (Bug::CostTermsMissing, "it returns 0 cost terms, but its spec names 1"),
            (Bug::OwnRandomness, "different results at step 0 in two fresh environments"),
            (Bug::RemembersTheLastEpisode, "different results at step 0 after another episode"),
            (Bug::SharedState, "when a second environment runs beside it"),
            (Bug::TimeLimitTerminates, "report Truncated at a time limit"),
            (Bug::NeverEnds, "an episode continues after its 12 steps"),
            (Bug::TakesAnyLength, "it accepts an action that is too short"),
            (Bug::TakesNaN, "it accepts an action with a NaN"),
            (Bug::StepsAfterTheEnd, "step is accepted before the first reset"),
            (Bug::Panics, "step 4 with action"),
            (Bug::FailsAtStep4, "fails on valid input: tired"),
        ];
        for (bug, says) in cases {
            let problems = check_env(|| walk(bug));
            let first = problems.first().unwrap_or_else(|| panic!("{bug:?} was not found")).to_string();
            assert!(first.contains(says), "{bug:?}: {first:?} does not say {says:?}");
        }
    }

    #[test]
    fn an_impossible_spec_is_named() {
        struct Odd(EnvSpec);
        impl Env for Odd {
            fn spec(&self) -> &EnvSpec {
                &self.0
            }
            fn reset(&mut self, _: u64, _: &mut [f64]) -> Result<(), EnvError> {
                unreachable!("the spec is looked at first")
            }
            fn step(&mut self, _: &[f64], _: &mut [f64]) -> Result<Step, EnvError> {
                unreachable!("the spec is looked at first")
            }
        }
        let check = |obs_len, max_steps, action: ActionSpace| {
            let problems = check_env(|| {
                let action = action.clone();
                let spec = EnvSpec { id: "Odd".into(), obs_len, action, max_steps, cost_terms: vec![] };
                Box::new(Odd(spec))
            });
            problems[0].to_string()
        };
        let ok = ActionSpace::symmetric(1);
        assert!(check(0, 1, ok.clone()).contains("an observation has no entries"));
        assert!(check(1, 0, ok).contains("an episode has no steps"));
        assert!(check(1, 1, ActionSpace::symmetric(0)).contains("an action has no entries"));
        assert!(check(1, 1, ActionSpace::Discrete { n: 0 }).contains("there is no action"));
        let crossed = ActionSpace::Box { low: vec![1.0], high: vec![-1.0] };
        assert!(check(1, 1, crossed).contains("low is not below high"));
        let uneven = ActionSpace::Box { low: vec![0.0], high: vec![1.0, 2.0] };
        assert!(check(1, 1, uneven).contains("differ in length"));
    }
}
