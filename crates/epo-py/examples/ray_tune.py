"""Searches settings with ray.tune and ASHA. It needs ``pip install epo "ray[tune]"``.

    python ray_tune.py sweep.toml --trials 20

The keys and values of ``[grid]`` in the sweep file are the space that is searched; ``[base]`` holds for every trial. ASHA
compares trials after equal numbers of steps and stops the worse ones. A trial that violates the limit on the cost is
always worse than one that does not, so trials are compared by return *at equal safety*. The last line is the best trial.
"""

import argparse
import json
import tempfile
import tomllib

from ray import tune
from ray.tune.schedulers import ASHAScheduler

import epo


def leaves(table, path=""):
    """Returns the entries of nested tables by their dotted keys."""
    found = {}
    for key, value in table.items():
        found |= leaves(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


def score(ret, cost, limit):
    """Returns the return of a feasible policy, and minus the excess of an infeasible one below every return.

    Both parts are squashed to (-1, 0) and (0, 1), so that no return outweighs a violation.
    """
    if cost <= limit:
        return 0.5 + ret / (1 + abs(ret)) / 2
    excess = cost - limit
    return -excess / (1 + excess)


def trial(settings):
    """Trains one configuration and reports a score after each epoch."""
    limit = float(settings.get("run.limit", 25))

    def report(row):
        if row["Metrics/EpRet"] is not None:
            value = score(row["Metrics/EpRet"], row["Metrics/EpCost"], limit)
            tune.report({"score": value, "steps": int(row["TotalEnvSteps"]), "return": row["Metrics/EpRet"],
                         "cost": row["Metrics/EpCost"]})

    epo.train(settings=settings, threads=1, runs=tempfile.mkdtemp(prefix="epo-tune-"), callback=report, progress=False)


def main(file, trials=20, first=4):
    """Searches and returns all trials and the best one of those that made all steps.

    A trial makes at least 1/`first` of its steps.
    """
    with open(file, "rb") as opened:
        sweep = tomllib.load(opened)
    base, grid = leaves(sweep.get("base", {})), leaves(sweep.get("grid", {}))
    steps = int(base.get("run.steps", 10_000_000))
    space = {**base, **{key: tune.choice(values) for key, values in grid.items()}}
    asha = ASHAScheduler(time_attr="steps", max_t=steps, grace_period=max(1, steps // first), reduction_factor=2)
    config = tune.TuneConfig(metric="score", mode="max", num_samples=trials, scheduler=asha)
    results = tune.Tuner(tune.with_resources(trial, {"cpu": 1}), param_space=space, tune_config=config).fit()
    keys = ("score", "steps", "return", "cost")
    found = [{"trial": number, **{key: result.config[key] for key in grid}, **{key: result.metrics[key] for key in keys}}
             for number, result in enumerate(results) if "score" in (result.metrics or {})]
    last = max(trial["steps"] for trial in found)
    return found, max((trial for trial in found if trial["steps"] == last), key=lambda trial: trial["score"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--trials", type=int, default=20)
    args = parser.parse_args()
    found, best = main(args.file, args.trials)
    for trial in found:
        print(json.dumps(trial))
    print("best:")
    print(json.dumps(best))
