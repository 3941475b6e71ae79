"""Writes run folders with made-up curves, for tests of the dashboard.

    python3 make_runs.py OUT --runs 200 --epochs 300

The files have the form of run folders of `epo train`. The same arguments give the same numbers.
"""

import argparse
import math
import random
from pathlib import Path

TASKS = ["SafetyPointGoal1-v0", "SafetyCarGoal1-v0", "SafetyPointButton2-v0", "SafetyHalfCheetahVelocity-v1"]
ALGOS = {
    # folder, final return, final cost, epochs until the cost has fallen, spread
    "epo": ("EPO", 15.5, 23.0, 60, 2.0),
    "ppo-lag": ("PPOLag", 14.0, 27.0, 90, 6.0),
    "cpo": ("CPO", 12.5, 30.0, 70, 4.0),
    "ppo": ("PPO", 26.0, 58.0, 40, 3.0),
    "p3o": ("P3O", 12.0, 24.0, 50, 3.0),
}
COLUMNS = (
    "Metrics/EpRet,Metrics/EpCost,Metrics/EpLen,Metrics/FeasibleRate,Metrics/Episodes,Metrics/CostReading,"
    "Metrics/CostSpread,Train/Epoch,TotalEnvSteps,Train/KL,Train/StopIter,Train/Entropy,Train/PolicyRatio,"
    "Train/PolicyStd,Train/LR,Loss/Loss_pi,Value/Adv,Loss/Loss_reward_critic,Value/reward,Value/reward_explained,"
    "Loss/Loss_cost_critic,Value/cost,Value/cost_explained,"
)
PENALTY = "Penalty/F,Penalty/Alpha,Penalty/Mu,Penalty/Psi,Penalty/Value,Penalty/CostWeight,"
MULTIPLIER = "Metrics/LagrangeMultiplier,"
TIMES = "Time/Total,Time/Rollout,Time/Update,Time/Epoch,Time/FPS"
STEPS = 32_000
LIMIT = 25.0


def header(algo):
    return COLUMNS + (PENALTY if algo == "epo" else MULTIPLIER if algo == "ppo-lag" else "") + TIMES


class Curve:
    """The rows of one run, one after the other."""

    def __init__(self, algo, seed):
        self.algo, self.seed, self.epoch = algo, seed, 0
        self.rng = random.Random(f"{algo} {seed}")
        self.offset = self.rng.gauss(0.0, 1.0)
        self.mu, self.lagrange, self.noise = 1.0, 0.0, 0.0

    def row(self):
        _, final, cost_end, fall, spread = ALGOS[self.algo]
        e, rng = self.epoch, self.rng
        self.noise = 0.8 * self.noise + rng.gauss(0.0, 0.35)
        ret = (final + self.offset) * (1.0 - math.exp(-e / 45.0)) - 0.6 + self.noise
        wave = spread * math.sin(e / 9.0 + self.seed) * math.exp(-e / 150.0)
        cost = max(0.0, cost_end + 1.5 * self.offset + 38.0 * math.exp(-e / fall) + wave + rng.gauss(0.0, 1.5))
        f = (cost - LIMIT) / (2.0 * LIMIT)
        alpha = 1 if f <= 0.5 else 0.5 if f <= 1.0 else 0
        self.mu = min(5.0, max(0.1, self.mu * math.exp(-0.07 * f)))
        self.lagrange = max(0.0, self.lagrange + 0.03 * (cost - LIMIT) / LIMIT)
        psi = math.exp(f) / self.mu
        cells = [ret, cost, 1000, max(0.0, min(1.0, 0.55 - f)), 32, cost, 12.0, e, (e + 1) * STEPS]
        cells += [0.006, 12, 2.8 - e / 400, 1.0, 0.9, 3e-4, -0.01, 0.0, 0.02, ret, 1 - math.exp(-e / 20)]
        cells += [3.0, cost / 10, 0.8 * (1 - math.exp(-e / 30))]
        if self.algo == "epo":
            cells += [f, alpha, self.mu, psi, psi * max(0.0, f), psi * 0.5]
        if self.algo == "ppo-lag":
            cells += [self.lagrange]
        cells += [2.4 * (e + 1), 1.9, 0.4, 2.4, STEPS / 2.4]
        self.epoch += 1
        return ",".join(repr(c) for c in cells)

    def episodes(self):
        """Episodes of the epoch whose row was made last."""
        begin = (self.epoch - 1) * STEPS
        rows = []
        for k in range(32):
            cost = max(0.0, self.rng.gauss(LIMIT + 5.0, 15.0))
            rows.append(f"{begin + STEPS},{k},{self.rng.gauss(12.0, 3.0):.4f},{cost:.0f},1000\n")
        return "".join(rows)


def config(task, algo, seed, epochs, gamma=0.99):
    lines = ['epo_version = "0.4.0"', "[run]", f'task = "{task}"', f'algo = "{algo}"', f"seed = {seed}"]
    lines += [f"limit = {LIMIT}", f"steps = {epochs * STEPS}", 'physics = "published"', "[train]", f"gamma = {gamma}"]
    lines += ["envs = 32", "passes = 40", "lr = 0.0003", "target_kl = 0.006", "[algo]", "clip = 0.2"]
    lines += ["alpha_thresholds = [0.5, 1.0]"] if algo == "epo" else []
    return "\n".join(lines) + "\n"


def write_run(out, task, algo, seed, epochs, planned=None, episodes=0):
    """Writes one run folder. Episodes are written for the first `episodes` epochs only."""
    folder = Path(out) / f"{ALGOS[algo][0]}-{{{task}}}" / f"seed-{seed:03d}-2026-11-17-05-00-00"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(config(task, algo, seed, planned or epochs))
    curve, rows, of_episodes = Curve(algo, seed), [header(algo)], ["step,env,return,cost,length\n"]
    for e in range(epochs):
        rows.append(curve.row())
        if e < episodes:
            of_episodes.append(curve.episodes())
    (folder / "progress.csv").write_text("\n".join(rows) + "\n")
    (folder / "episodes.csv").write_text("".join(of_episodes))
    checkpoint = folder / "checkpoint" / f"{epochs:06d}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "manifest.json").write_text('{"hash": "%064x"}' % (seed * 7919 + len(task)))
    return folder, curve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=300)
    args = parser.parse_args()
    pairs = [(task, algo) for task in TASKS for algo in ALGOS]
    for i in range(args.runs):
        task, algo = pairs[i % len(pairs)]
        write_run(args.out, task, algo, i // len(pairs), args.epochs, episodes=min(5, args.epochs))


if __name__ == "__main__":
    main()
