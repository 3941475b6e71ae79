//! Small example CMDPs with an interpretation. Each has one constraint.

use crate::{Cmdp, CmdpError};

/// Returns all examples of this module.
pub fn all() -> Vec<Cmdp> {
    vec![fast_or_slow(), hazard_grid(), maintenance(), maintenance_shift()]
}

fn built(cmdp: Result<Cmdp, CmdpError>) -> Cmdp {
    cmdp.unwrap_or_else(|e| unreachable!("a table of this file is wrong: {e}"))
}

/// An example with two states. `docs/theory.md` solves it by hand.
///
/// ```text
/// ready    slow: reward 1, stays ready        fast: reward 3, cost 1, must cool for one step
/// cooling  reward 0, back to ready            γ = 0.9, J_C ≤ 2
/// ```
/// Let f be the discounted number of fast steps. Then J_C = f and J_R = 10 + 1.1 f. The optimum has f = 2, J_R = 12.2
/// and λ* = 1.1.
pub fn fast_or_slow() -> Cmdp {
    let kernel = vec![1.0, 0.0, 0.0, 1.0, /* cooling: */ 1.0, 0.0, 1.0, 0.0];
    let (reward, cost) = (vec![1.0, 3.0, 0.0, 0.0], vec![0.0, 1.0, 0.0, 0.0]);
    built(Cmdp::new("fast-or-slow", 0.9, vec![1.0, 0.0], kernel, reward, vec![cost], vec![2.0]))
}

/// A grid of 5 × 3 cells. The direct path to the goal is short but crosses three hazards; the detour is longer.
///
/// ```text
/// .  .  .  .  .      up, right, down, left; one move in ten slips sideways; at a wall the robot stays
/// S  H  H  H  G      cost 1 for every step that starts on H; reward 10 for reaching G, which ends the episode
/// .  .  .  .  .      γ = 0.95, J_C ≤ 0.5
/// ```
pub fn hazard_grid() -> Cmdp {
    const W: usize = 5;
    const H: usize = 3;
    let (goal, hazards) = (W + 4, [W + 1, W + 2, W + 3]);
    let moved = |s: usize, dir: usize| {
        let (x, y) = (s % W, s / W);
        match dir {
            0 => y.saturating_sub(1) * W + x,
            1 => y * W + (x + 1).min(W - 1),
            2 => (y + 1).min(H - 1) * W + x,
            _ => y * W + x.saturating_sub(1),
        }
    };
    let (mut kernel, mut reward, mut cost) = (vec![0.0; W * H * 4 * W * H], vec![], vec![]);
    for s in 0..W * H {
        for a in 0..4 {
            let row = &mut kernel[(s * 4 + a) * W * H..][..W * H];
            let mut reach = 0.0;
            for (dir, p) in [(a, 0.9), ((a + 1) % 4, 0.05), ((a + 3) % 4, 0.05)] {
                match moved(s, dir) {
                    to if to == goal => reach += p, // the goal ends the episode, so it gets no probability in the row
                    to => row[to] += p,
                }
            }
            if s == goal {
                row.fill(0.0);
                reach = 0.0;
            }
            reward.push(10.0 * reach);
            cost.push(f64::from(u8::from(hazards.contains(&s))));
        }
    }
    let mut initial = vec![0.0; W * H];
    initial[W] = 1.0;
    built(Cmdp::new("hazard-grid", 0.95, initial, kernel, reward, vec![cost], vec![0.5]))
}

/// A machine that wears out. In each step the operator runs it and risks failures, or repairs it.
///
/// ```text
/// wear w = 0..4   run: reward 1, cost (w/4)², wear + 1 with probability 0.4
///                 repair: reward −0.5, wear 0                       γ = 0.95, J_C ≤ 1.5
/// ```
pub fn maintenance() -> Cmdp {
    const N: usize = 5;
    let (mut kernel, mut reward, mut cost) = (vec![0.0; N * 2 * N], vec![], vec![]);
    for w in 0..N {
        let run = w * 2 * N;
        kernel[run + w] += 0.6;
        kernel[run + (w + 1).min(N - 1)] += 0.4;
        kernel[run + N] = 1.0; // repair leads to wear 0
        reward.extend([1.0, -0.5]);
        cost.extend([(w as f64 / 4.0).powi(2), 0.0]);
    }
    let mut initial = vec![0.0; N];
    initial[0] = 1.0;
    built(Cmdp::new("maintenance", 0.95, initial, kernel, reward, vec![cost], vec![1.5]))
}

/// The machine of [`maintenance`] over a shift of 20 undiscounted steps. The limit is J_C ≤ 1.5 per shift.
///
/// J_C is the mean episode cost, as in training.
pub fn maintenance_shift() -> Cmdp {
    built(maintenance().episodic(20))
}
