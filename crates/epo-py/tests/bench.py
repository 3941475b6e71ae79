"""Measures the speed of the environments from Python against the native loop, in one run, alternately.

    python crates/epo-py/tests/bench.py [--task ID] [--seconds S] [--rounds N] [--json]

The native figures are those of ``epo bench env`` with the same number of threads, from the same installed package.
With ``safety_gymnasium`` installed, the package itself is measured too.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time

import numpy as np

import epo
import epo.gym


def rate(step, seconds, per_call=1):
    """Steps per second of processor time of a function that makes ``per_call`` steps on one thread."""
    calls, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        for _ in range(20):
            step()
        calls += 20
    return calls * per_call / spent


def single(make):
    """A function that makes one step, with resets."""
    env = make()
    env.reset(seed=0)
    actions = iter(np.random.default_rng(0).uniform(-1, 1, (1_000_000, *env.action_space.shape)))

    def step():
        *_, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    return step


def vector(task, threads):
    """A function that makes 32 steps."""
    env = epo.gym.VecEnv(task, 32, threads=threads)
    env.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, *env.action_space.shape))
    count = iter(range(10**9))
    return lambda: env.step(actions[next(count) % 1000])


def native(task, threads):
    """Steps per second of ``epo bench env``."""
    command = [sys.executable, "-m", "epo", "bench", "env", "--task", task]
    rows = json.loads(subprocess.check_output([*command, "--physics", "published", "--json"]))
    return next(row["steps_per_s"] for row in rows if row["threads"] == threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SafetyPointGoal1-v0")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    task = args.task
    measured = {
        "native, 1 thread": lambda: native(task, 1),
        "epo.make": lambda step=single(lambda: epo.make(task)): rate(step, args.seconds),
        "VecEnv of 32, 1 thread": lambda step=vector(task, 1): rate(step, args.seconds, 32),
    }
    if importlib.util.find_spec("safety_gymnasium"):
        import safety_gymnasium

        measured["safety_gymnasium"] = lambda step=single(lambda: safety_gymnasium.make(task)): rate(step, args.seconds)
    found = {name: [] for name in measured}
    for _ in range(args.rounds):
        for name, measure in measured.items():
            found[name].append(measure())
    base = statistics.median(found["native, 1 thread"])
    rows = [{"what": name, "steps_per_s": statistics.median(rates), "of_native": statistics.median(rates) / base}
            for name, rates in found.items()]
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['what']:28} {row['steps_per_s']:10,.0f} steps/s   {row['of_native']:.2f} of native")


if __name__ == "__main__":
    main()
