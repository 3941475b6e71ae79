//! Constrained Markov decision processes with finitely many states and actions, stored as tables.
//!
//! ```text
//! J_R(π) = E Σ_t γᵗ r(s_t, a_t),   J_Ci(π) = E Σ_t γᵗ c_i(s_t, a_t) ≤ d_i
//! ```
//! A row of the transition kernel may sum to less than 1. The missing probability ends the episode. Therefore γ = 1 is
//! allowed if every policy ends the episode; J is then the expected total of an episode. [`Cmdp::episodic`] converts
//! any CMDP to this form by adding the time to the state.

/// A finite CMDP. [`Cmdp::new`] creates it and checks its tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Cmdp {
    name: String,
    n_states: usize,
    n_actions: usize,
    gamma: f64,
    initial: Vec<f64>,
    kernel: Vec<f64>,
    reward: Vec<f64>,
    costs: Vec<Vec<f64>>,
    limits: Vec<f64>,
}

/// The reason why tables do not define a valid CMDP.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CmdpError {
    /// A table has the wrong size.
    #[error("{what} has {got} entries, {want} are needed")]
    Size {
        /// Name of the table.
        what: &'static str,
        /// Number of entries given.
        got: usize,
        /// Number of entries needed.
        want: usize,
    },
    /// A number is outside its range.
    #[error("{what} is {value}, which is not {range}")]
    Range {
        /// Name of the number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range, in words.
        range: &'static str,
    },
    /// γ is 1 and some policy never ends the episode.
    #[error("with γ = 1 every policy must end the episode, but from state {state} some policy never does")]
    NeverEnds {
        /// A state from which some policy never ends the episode.
        state: usize,
    },
}

/// Tolerance of sums of probabilities, because decimal fractions are rounded.
const ROUNDING: f64 = 1e-12;

impl Cmdp {
    /// Returns the CMDP of these tables, or an error that names the first invalid table or number.
    ///
    /// `kernel[(s·A + a)·S + s']` is P(s'|s,a). `reward[s·A + a]` and `costs[i][s·A + a]` are the reward and the costs
    /// of a step. The length of `initial` is S, and the length of `reward` is S·A.
    pub fn new(
        name: impl Into<String>,
        gamma: f64,
        initial: Vec<f64>,
        kernel: Vec<f64>,
        reward: Vec<f64>,
        costs: Vec<Vec<f64>>,
        limits: Vec<f64>,
    ) -> Result<Self, CmdpError> {
        let n = initial.len();
        let size =
            |what, got, want| if got == want { Ok(()) } else { Err(CmdpError::Size { what, got, want }) };
        let range = |what, value: f64, ok: bool, range| {
            if ok && value.is_finite() { Ok(()) } else { Err(CmdpError::Range { what, value, range }) }
        };
        range("the number of states", n as f64, n > 0, "positive")?;
        let n_actions = reward.len() / n;
        range("the number of actions", n_actions as f64, n_actions > 0, "positive")?;
        size("reward", reward.len(), n * n_actions)?;
        size("kernel", kernel.len(), n * n_actions * n)?;
        size("limits", limits.len(), costs.len())?;
        range("γ", gamma, (0.0..=1.0).contains(&gamma), "within 0..=1")?;
        for &p in initial.iter().chain(&kernel) {
            range("a probability", p, p >= 0.0, "≥ 0 and finite")?;
        }
        let total: f64 = initial.iter().sum();
        range("the sum of the initial distribution", total, (total - 1.0).abs() < ROUNDING, "1")?;
        for row in kernel.chunks(n) {
            let sum: f64 = row.iter().sum();
            range("the sum of a row of the kernel", sum, sum <= 1.0 + ROUNDING, "at most 1")?;
        }
        for &r in &reward {
            range("a reward", r, true, "finite")?;
        }
        for table in &costs {
            size("a cost table", table.len(), n * n_actions)?;
            for &c in table {
                range("a cost", c, c >= 0.0, "≥ 0 and finite")?;
            }
        }
        for &d in &limits {
            range("a limit", d, true, "finite")?;
        }
        let cmdp =
            Self { name: name.into(), n_states: n, n_actions, gamma, initial, kernel, reward, costs, limits };
        match cmdp.endless_state() {
            Some(state) => Err(CmdpError::NeverEnds { state }),
            None => Ok(cmdp),
        }
    }

    /// Returns a state from which some policy never ends the episode, if γ = 1 and there is such a state.
    fn endless_state(&self) -> Option<usize> {
        if self.gamma < 1.0 {
            return None;
        }
        // the largest set of states in which some policy can stay forever
        let mut inside = vec![true; self.n_states];
        loop {
            let stays = |s: usize| {
                (0..self.n_actions).any(|a| {
                    let mass: f64 =
                        self.next(s, a).iter().zip(&inside).filter(|(_, i)| **i).map(|(p, _)| p).sum();
                    mass >= 1.0 - ROUNDING
                })
            };
            let smaller: Vec<bool> = (0..self.n_states).map(|s| inside[s] && stays(s)).collect();
            if smaller == inside {
                return inside.iter().position(|i| *i);
            }
            inside = smaller;
        }
    }

    /// Returns this CMDP with episodes of `steps` undiscounted steps. State `t·S + s` is state `s` at time `t`.
    ///
    /// J is then the expected total of an episode. The limits are not changed; set suitable ones with
    /// [`with_limits`](Self::with_limits). A policy can depend on the time, and optimal policies usually do.
    pub fn episodic(&self, steps: usize) -> Result<Self, CmdpError> {
        let (n, m) = (self.n_states, self.n_actions);
        let mut initial = vec![0.0; n * steps];
        initial[..n].copy_from_slice(&self.initial);
        let mut kernel = vec![0.0; n * steps * m * n * steps];
        for t in 0..steps.saturating_sub(1) {
            for (row, next) in self.kernel.chunks(n).enumerate() {
                let start = (t * n * m + row) * n * steps + (t + 1) * n;
                kernel[start..start + n].copy_from_slice(next);
            }
        }
        let costs = self.costs.iter().map(|c| c.repeat(steps)).collect();
        let name = format!("{}-{steps}", self.name);
        Self::new(name, 1.0, initial, kernel, self.reward.repeat(steps), costs, self.limits.clone())
    }

    /// Multiplies all costs and limits by `factor`: the same problem in another unit of cost.
    ///
    /// # Panics
    /// If `factor` is not positive and finite.
    pub fn in_cost_unit(mut self, factor: f64) -> Self {
        assert!(factor > 0.0 && factor.is_finite(), "a unit is positive: {factor}");
        self.costs.iter_mut().flatten().chain(&mut self.limits).for_each(|x| *x *= factor);
        self
    }

    /// Returns this CMDP with other limits.
    ///
    /// # Panics
    /// If the number of limits differs from the number of costs.
    pub fn with_limits(mut self, limits: &[f64]) -> Self {
        assert_eq!(limits.len(), self.costs.len(), "one limit per cost");
        self.limits.copy_from_slice(limits);
        self
    }

    /// Name of the CMDP.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// S, the number of states.
    pub const fn n_states(&self) -> usize {
        self.n_states
    }
    /// A, the number of actions in every state.
    pub const fn n_actions(&self) -> usize {
        self.n_actions
    }
    /// γ, the discount factor.
    pub const fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ρ, the distribution of the initial state.
    pub fn initial(&self) -> &[f64] {
        &self.initial
    }
    /// P(·|s,a). If it sums to less than 1, the missing probability ends the episode.
    pub fn next(&self, s: usize, a: usize) -> &[f64] {
        let row = s * self.n_actions + a;
        &self.kernel[row * self.n_states..(row + 1) * self.n_states]
    }
    /// The rewards; r(s,a) is at index `s·A + a`.
    pub fn reward(&self) -> &[f64] {
        &self.reward
    }
    /// The costs; c_i(s,a) is at `[i][s·A + a]`.
    pub fn costs(&self) -> &[Vec<f64>] {
        &self.costs
    }
    /// The limits d_i, one per cost.
    pub fn limits(&self) -> &[f64] {
        &self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_state(gamma: f64, stay: f64) -> Result<Cmdp, CmdpError> {
        Cmdp::new("one", gamma, vec![1.0], vec![stay], vec![1.0], vec![vec![1.0]], vec![1.0])
    }

    #[test]
    fn tables_are_refused_with_the_number_that_is_wrong() {
        assert!(one_state(0.0, 1.0).is_ok());
        assert_eq!(one_state(1.0, 1.0), Err(CmdpError::NeverEnds { state: 0 }));
        assert!(one_state(1.0, 0.5).is_ok(), "γ = 1 is fine where every policy ends");
        assert!(matches!(one_state(1.5, 0.5), Err(CmdpError::Range { what: "γ", .. })));
        assert!(matches!(one_state(0.5, 1.5), Err(CmdpError::Range { .. })));
        assert!(matches!(one_state(f64::NAN, 0.5), Err(CmdpError::Range { what: "γ", .. })));
        let empty = Cmdp::new("none", 0.5, vec![], vec![], vec![], vec![], vec![]);
        assert!(matches!(empty, Err(CmdpError::Range { what: "the number of states", .. })));
        let short = Cmdp::new("short", 0.5, vec![1.0], vec![1.0, 1.0], vec![1.0], vec![], vec![]);
        assert_eq!(short, Err(CmdpError::Size { what: "kernel", got: 2, want: 1 }));
    }

    #[test]
    fn an_endless_policy_is_found_behind_states_that_end() {
        // state 0 ends the episode or moves to state 1; action 1 stays in state 1 forever
        let kernel = vec![0.0, 0.5, 0.0, 0.0, /* s1: */ 0.5, 0.0, 0.0, 1.0];
        let got = Cmdp::new("trap", 1.0, vec![1.0, 0.0], kernel, vec![0.0; 4], vec![], vec![]);
        assert_eq!(got, Err(CmdpError::NeverEnds { state: 1 }));
    }
}
