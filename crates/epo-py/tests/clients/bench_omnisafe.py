"""Measures an unmodified OmniSafe 0.5.0 on its own tasks and on those of ``epo``, alternately, in one run.

    target/python/omnisafe/bin/python crates/epo-py/tests/clients/bench_omnisafe.py [--steps N] [--rounds N]

`long.sh` makes the environment. PPO-Lagrangian runs on SafetyPointGoal1-v0 with OmniSafe's defaults, on one thread. Times
are processor times, so other programs on the machine disturb them little.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings

warnings.simplefilter("ignore")

import omnisafe

import epo.omnisafe


def rate(task, steps):
    """Training steps per second of processor time."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        config = {
            "train_cfgs": {"total_steps": 2 * steps, "vector_env_nums": 1, "torch_threads": 1},
            "algo_cfgs": {"steps_per_epoch": steps},
            "logger_cfgs": {"use_wandb": False, "use_tensorboard": False, "log_dir": folder},
        }
        agent = omnisafe.Agent("PPOLag", task, custom_cfgs=config)
        begun = time.process_time()
        agent.learn()
        return 2 * steps / (time.process_time() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000, help="steps of an epoch; a training has two epochs")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    tasks = {"its own task": "SafetyPointGoal1-v0", "the task of epo": "epo:SafetyPointGoal1-v0"}
    rates = {name: [] for name in tasks}
    for _ in range(args.rounds):
        for name, task in tasks.items():
            rates[name].append(rate(task, args.steps))
    for name, values in rates.items():
        print(f"OmniSafe on {name}: {statistics.median(values):.0f} steps/s ({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    main()
