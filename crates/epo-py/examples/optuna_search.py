"""Searches settings with Optuna, without Ray. It needs ``pip install epo optuna``.

    python optuna_search.py --trials 20 --steps 1000000

Each trial trains EPO on one seed. A trial that violates the limit on the cost is always worse than one that does not.
Optuna stops a trial whose score is below the median of the others after the same number of epochs.
"""

import argparse
import tempfile

import optuna

import epo


def score(ret, cost, limit):
    """Returns the return of a feasible policy, and minus the excess of an infeasible one below every return.

    Both parts are squashed to (-1, 0) and (0, 1), so that no return outweighs a violation.
    """
    if cost <= limit:
        return 0.5 + ret / (1 + abs(ret)) / 2
    excess = cost - limit
    return -excess / (1 + excess)


def main(trials=20, steps=1_000_000, task="SafetyPointGoal1-v0", limit=25.0, **fixed):
    """Searches and returns the study. `fixed` holds settings of every trial, such as ``envs=8``."""

    def objective(trial):
        settings = {
            "train.lr": trial.suggest_float("train.lr", 1e-4, 3e-3, log=True),
            "train.gamma": trial.suggest_categorical("train.gamma", [0.98, 0.99, 0.995]),
            "algo.mu_rate": trial.suggest_float("algo.mu_rate", 0.01, 1.0, log=True),
        }
        last = [-1.0]

        def report(row):
            if row["Metrics/EpRet"] is not None:
                last[0] = score(row["Metrics/EpRet"], row["Metrics/EpCost"], limit)
                trial.report(last[0], int(row["Train/Epoch"]))
            return not trial.should_prune()  # False stops the run; it is saved and could be resumed

        runs = tempfile.mkdtemp(prefix="epo-optuna-")
        epo.train(task, steps=steps, limit=limit, settings=settings, runs=runs, callback=report, progress=False, **fixed)
        if trial.should_prune():
            raise optuna.TrialPruned
        return last[0]

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0),
                                pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=3))
    study.optimize(objective, n_trials=trials)
    return study


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    found = main(args.trials, args.steps)
    print(found.best_params, found.best_value)
