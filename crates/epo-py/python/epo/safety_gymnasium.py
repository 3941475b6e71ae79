"""The names of the package Safety-Gymnasium, for scripts that were written for it.

Replace ``import safety_gymnasium`` by ``import epo.safety_gymnasium as safety_gymnasium``. It has :func:`make`,
``vector.make`` and the wrappers that change the number of values of ``step``. :class:`SafetyEnv` is the environment.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from . import _epo
from ._env import SafetyEnv, make
from ._spaces import gymnasium

__all__ = ["SafetyEnv", "SafetyVectorEnv", "make", "registry", "vector", "wrappers"]

registry = {task["id"]: task for task in _epo.tasks()}


class SafetyVectorEnv:
    """Vector environment with six values. An episode that ends is reset in the same step.

    ``info["final_observation"]`` has the last observation of episodes that ended, as in Safety-Gymnasium.
    """

    def __init__(self, task: str, num_envs: int = 1, **kwargs: Any) -> None:
        from .gym import VecEnv

        self._env = VecEnv(task, num_envs, autoreset_mode="same_step", **kwargs)
        for name in ("num_envs", "single_observation_space", "single_action_space", "observation_space", "action_space"):
            setattr(self, name, getattr(self._env, name))

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Resets all environments."""
        return self._env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple:
        """Steps all environments; returns observations, rewards, costs, terminations, truncations and infos."""
        obs, reward, terminated, truncated, infos = self._env.step(actions)
        cost = infos.pop("cost")
        del infos["_cost"]
        if "final_obs" in infos:
            infos["final_observation"], infos["_final_observation"] = infos.pop("final_obs"), infos.pop("_final_obs")
        return obs, reward, cost, terminated, truncated, infos

    def close(self) -> None:
        """Frees the simulators and the threads."""
        self._env.close()


def _make_vector(env_id: str, num_envs: int = 1, asynchronous: bool = True, **kwargs: Any) -> SafetyVectorEnv:
    """Returns a vector environment. ``asynchronous=False`` means one thread."""
    return SafetyVectorEnv(env_id, num_envs, threads=0 if asynchronous else 1, **kwargs)


vector = SimpleNamespace(make=_make_vector, VectorEnv=SafetyVectorEnv)

if gymnasium is None:
    wrappers = SimpleNamespace()
else:

    class SafetyGymnasium2Gymnasium(gymnasium.Wrapper):
        """Turns six values into five: the cost moves to ``info["cost"]``."""

        def step(self, action: Any) -> tuple:
            """Steps the environment."""
            obs, reward, cost, terminated, truncated, info = self.env.step(action)
            return obs, reward, terminated, truncated, {**info, "cost": cost}

    class Gymnasium2SafetyGymnasium(gymnasium.Wrapper):
        """Turns five values into six: the cost comes from ``info["cost"]``."""

        def step(self, action: Any) -> tuple:
            """Steps the environment."""
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, reward, info["cost"], terminated, truncated, info

    wrappers = SimpleNamespace(
        SafetyGymnasium2Gymnasium=SafetyGymnasium2Gymnasium, Gymnasium2SafetyGymnasium=Gymnasium2SafetyGymnasium
    )
