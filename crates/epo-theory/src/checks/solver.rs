//! Checks of the exact solutions: KKT residuals, policy evaluation, and comparison with policy iteration.

use super::{Check, Tally};
use crate::{Cmdp, RandomCmdp, SolveError, front, optimum, penalised, stories};

/// Compares the programs with policy evaluation and with the front. Residuals of values are relative to 1 + |value|.
pub(super) fn agreement(n: usize, progress: &mut dyn FnMut(usize)) -> Result<Vec<Check>, SolveError> {
    let mut kkt = Tally::new("lp-kkt", 1e-10, "KKT residual of the occupancy program (1 to 3 constraints)");
    let mut eval =
        Tally::new("lp-policy", 1e-9, "|J_R(π̄) − value| and F_C(π̄), π̄ evaluated by linear systems");
    let mut value = Tally::new("lp-front", 1e-9, "|value − front(d)|, the front by policy iteration");
    let mut slope = Tally::new("lp-multiplier", 1e-6, "|λ* − slope of the front at d|, relative");
    let mut qp = Tally::new("qp-front", 1e-9, "|max P by QP − max P along the front|, α = 0, ½, 1");
    for i in 0..n {
        let seed = i as u64;
        for k in 1..=3 {
            let cmdp = RandomCmdp::draw(seed, k).build(seed);
            let best = optimum(&cmdp)?;
            let case = || format!("{} with {k} constraints", cmdp.name());
            kkt.see(best.residual, case);
            let scale = 1.0 + best.value.abs();
            eval.see((best.evaluation.j_r - best.value).abs() / scale, case);
            best.evaluation.excess(&cmdp).iter().for_each(|f| eval.see(f / scale, case));
        }
        one_constraint(&RandomCmdp::draw(seed, 1).build(seed), &mut value, &mut slope, &mut qp)?;
        progress(i);
    }
    for cmdp in stories::all() {
        one_constraint(&cmdp, &mut value, &mut slope, &mut qp)?;
    }
    Ok(vec![kkt.finish(""), eval.finish(""), value.finish(""), slope.finish(""), qp.finish("")])
}

fn one_constraint(
    cmdp: &Cmdp,
    value: &mut Tally,
    slope: &mut Tally,
    qp: &mut Tally,
) -> Result<(), SolveError> {
    let (best, front, d) = (optimum(cmdp)?, front(cmdp), cmdp.limits()[0]);
    let (lambda, _) = front.multipliers(d);
    let case = || cmdp.name().to_owned();
    value.see((best.value - front.at(d).unwrap_or(f64::NAN)).abs() / (1.0 + best.value.abs()), case);
    slope.see((best.multipliers[0] - lambda).abs() / lambda, case);
    for alpha in [0.0, 0.5, 1.0] {
        for m in [10.0, 1.3, 0.2] {
            let mu = m / lambda;
            let (_, _, p) = front.penalised(d, mu, alpha);
            let got = penalised(cmdp, mu, alpha)?.value;
            qp.see((got - p).abs() / (1.0 + p.abs()), || format!("{}, α {alpha}, μ {m}/λ*", cmdp.name()));
        }
    }
    Ok(())
}
