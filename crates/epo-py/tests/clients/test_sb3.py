"""Claim: Stable-Baselines3 accepts all tasks, and its PPO learns on them with the cost in its logs."""

import warnings

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.logger import Logger, KVWriter

import epo
import epo.gym
import epo.sb3
from conftest import check_docstrings


def test_the_examples_run():
    check_docstrings("epo.sb3")


@pytest.mark.parametrize("task", [task["id"] for task in epo.tasks()])
def test_the_checker_passes(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*out of date.*")
        warnings.filterwarnings("ignore", message=".*recommend you to use a symmetric and normalized.*")  # Humanoid: ±0.4
        env = gymnasium.make(f"epo:{epo.gym.gymnasium_id(task)}")
        check_env(env.unwrapped, warn=True)


class Kept(KVWriter):
    """Keeps what is logged."""

    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append(dict(key_values))


def test_ppo_learns_on_the_native_vector_with_the_cost_in_its_logs():
    """This test fails if a reward is that of another environment, an episode end is lost, or the cost does not reach the log."""
    env = epo.sb3.VecEnv("SafetyPointCircle1-v0", 8)
    env.seed(0)
    model = PPO("MlpPolicy", env, n_steps=500, batch_size=500, seed=0, device="cpu", learning_rate=1e-3)
    kept = Kept()
    model.set_logger(Logger(None, [kept]))
    model.learn(60_000, callback=epo.sb3.LogCost())
    returns = [row["rollout/ep_rew_mean"] for row in kept.rows if "rollout/ep_rew_mean" in row]
    costs = [row["rollout/ep_cost_mean"] for row in kept.rows if "rollout/ep_cost_mean" in row]
    assert returns[-1] > returns[0] + 5, returns
    assert len(costs) == len(returns) and max(costs) > 0 and np.isfinite(costs).all()


def test_costs_are_logged_below_a_monitor_too():
    """A monitor of Stable-Baselines3 replaces the statistics of an episode, and has no cost."""
    from stable_baselines3.common.vec_env import VecMonitor

    env = VecMonitor(epo.sb3.VecEnv("SafetyPointCircle1-v0", 2))
    model = PPO("MlpPolicy", env, n_steps=500, batch_size=500, seed=0, device="cpu")
    kept, callback = Kept(), epo.sb3.LogCost()
    model.set_logger(Logger(None, [kept]))
    model.learn(2000, callback=callback)
    assert len(callback.costs) == 4 and any("rollout/ep_cost_mean" in row for row in kept.rows)


def test_the_vector_is_that_of_single_environments():
    env = epo.sb3.VecEnv("SafetyPointCircle1-v0", 2)
    env.seed(4)
    env.reset()
    one = epo.make("SafetyPointCircle1-v0")
    one.reset(seed=5)
    action, total = np.array([[0.3, 0.1], [1.0, 0.2]], np.float32), 0.0
    for t in range(500):
        obs, reward, done, infos = env.step(action)
        o, r, c, _, truncated, _ = one.step(action[1])
        total += c
        assert infos[1]["cost"] == c and reward[1] == np.float32(r)
    assert done.all() and truncated
    assert np.array_equal(infos[1]["terminal_observation"], o) and infos[1]["TimeLimit.truncated"]
    assert infos[1]["episode"]["c"] == total and infos[1]["episode"]["l"] == 500


def test_ppo_runs_on_the_registered_id():
    env = gymnasium.make("epo:SafetyPointGoal1Gymnasium-v0")
    PPO("MlpPolicy", env, n_steps=256, device="cpu").learn(512)


def test_unknown_attributes_are_refused():
    env = epo.sb3.VecEnv("SafetyPointGoal1-v0", 2)
    assert env.get_attr("num_envs") == [2, 2]
    with pytest.raises(AttributeError):
        env.get_attr("no_such_name")
