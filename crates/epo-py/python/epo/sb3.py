"""Stable-Baselines3: a ``VecEnv`` on native threads, and a callback that logs the cost.

>>> from stable_baselines3 import PPO
>>> import epo.sb3
>>> env = epo.sb3.VecEnv("SafetyPointGoal1-v0", 8)
>>> model = PPO("MlpPolicy", env, n_steps=128, batch_size=256).learn(1024, callback=epo.sb3.LogCost())
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv as _Base

from .gym import VecEnv as _Native


class VecEnv(_Base):
    """Environments of one task for Stable-Baselines3. The cost of a step is ``info["cost"]``.

    The info of the last step of an episode has ``episode`` with ``r``, ``l`` and ``c``: return, length and cost.

    >>> import numpy as np, epo.sb3
    >>> env = epo.sb3.VecEnv("SafetyPointGoal1-v0", 2)
    >>> env.seed(7), env.reset().shape
    ([7, 8], (2, 60))
    >>> obs, rewards, dones, infos = env.step(np.zeros((2, 2)))
    >>> infos[0]["cost"]
    0.0
    >>> env.close()
    """

    def __init__(self, task: str, num_envs: int = 1, **kwargs: Any) -> None:
        self._env = _Native(task, num_envs, autoreset_mode="same_step", **kwargs)
        self.render_mode = None
        super().__init__(num_envs, self._env.single_observation_space, self._env.single_action_space)
        self._actions: Any = None
        self._seed: int | None = None
        self._sums = np.zeros((3, num_envs))

    def reset(self) -> np.ndarray:
        """Resets all environments."""
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._sums[:] = 0.0
        return obs

    def seed(self, seed: int | None = None) -> list:
        """Sets the seed of the next reset."""
        self._seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        return [self._seed + i for i in range(self.num_envs)]

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple:
        """Steps all environments."""
        obs, reward, terminated, truncated, more = self._env.step(self._actions)
        done = terminated | truncated
        cost = more["cost"]
        self._sums += (reward, np.ones(self.num_envs), cost)
        infos: list[dict[str, Any]] = [{"cost": float(c)} for c in cost]
        for i in np.flatnonzero(done):
            r, length, c = self._sums[:, i].tolist()
            infos[i].update(
                {
                    "terminal_observation": more["final_obs"][i],
                    "TimeLimit.truncated": bool(truncated[i] and not terminated[i]),
                    "episode": {"r": r, "l": int(length), "c": c, "t": 0.0},
                }
            )
        self._sums[:, done] = 0.0
        return obs, reward.astype(np.float32), done, infos

    def close(self) -> None:
        """Frees the simulators and the threads."""
        self._env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list:
        """Returns an attribute once per environment. An unknown name raises ``AttributeError``."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises an error: the environments are native code."""
        raise NotImplementedError("the environments are native and have no attributes to set")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list:
        """Raises an error: the environments are native code."""
        raise NotImplementedError("the environments are native and have no methods to call")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Returns false for every environment."""
        return [False for _ in self._get_indices(indices)]


class LogCost(BaseCallback):
    """Logs the mean cost of the last 100 finished episodes as ``rollout/ep_cost_mean``.

    >>> from stable_baselines3 import PPO
    >>> import epo.sb3
    >>> model, log = PPO("MlpPolicy", epo.sb3.VecEnv("SafetyPointCircle1-v0", 2), n_steps=500, batch_size=500), epo.sb3.LogCost()
    >>> model = model.learn(1000, callback=log)
    >>> len(log.costs)  # one per finished episode
    2
    """

    def __init__(self) -> None:
        super().__init__()
        self.costs: list[float] = []
        self._running: list[float] = []  # cost so far of the episode of each environment

    def _on_step(self) -> bool:
        infos, dones = self.locals["infos"], self.locals["dones"]
        if len(self._running) != len(infos):
            self._running = [0.0] * len(infos)
        for i, (info, done) in enumerate(zip(infos, dones)):
            self._running[i] += float(info["cost"])
            if done:
                self.costs = [*self.costs, self._running[i]][-100:]
                self._running[i] = 0.0
        if any(dones):
            self.logger.record("rollout/ep_cost_mean", float(np.mean(self.costs)))
        return True
