"""Measures the speed of the environments from Python against the native loop, in one run, alternately.

    python crates/epo-py/tests/bench.py [--task ID] [--seconds S] [--rounds N] [--json]

Everything runs on one thread, with random actions and with the resets at the ends of the episodes. The native loops are
the pool that training uses. Times are processor times, so other programs on the machine disturb them little.
With ``safety_gymnasium`` installed, the package itself is measured too.
"""

import argparse
import importlib.util
import json
import statistics
import time

import numpy as np

import epo
import epo.gym
from epo import _epo


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


def native(task, num_envs):
    """A function that makes 32 steps without Python."""
    pool = _epo.Pool(task, "published", num_envs, 1)
    return lambda: pool.step(32 // num_envs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SafetyPointGoal1-v0")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    task = args.task
    # what is measured: a function, the number of steps that it makes, and the native loop to compare with
    one, many = "native, 1 environment", "native, 32 environments"
    loops = {
        one: (native(task, 1), 32, one),
        "epo.make": (single(lambda: epo.make(task)), 1, one),
        many: (native(task, 32), 32, many),
        "VecEnv of 32": (vector(task, 1), 32, many),
    }
    if importlib.util.find_spec("safety_gymnasium"):
        import safety_gymnasium

        loops["safety_gymnasium"] = (single(lambda: safety_gymnasium.make(task)), 1, one)
    found = {name: [] for name in loops}
    for _ in range(args.rounds):
        for name, (step, per_call, _) in loops.items():
            found[name].append(rate(step, args.seconds, per_call))
    median = {name: statistics.median(rates) for name, rates in found.items()}
    rows = [{"what": name, "steps_per_s": median[name], "of_native": median[name] / median[loops[name][2]]}
            for name in loops]
    if args.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['what']:28} {row['steps_per_s']:10,.0f} steps/s   {row['of_native']:.2f} of native")


if __name__ == "__main__":
    main()
