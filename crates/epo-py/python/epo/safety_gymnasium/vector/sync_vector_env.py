"""Vector environment of single environments, each of which is made by a function."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from epo._epo import EpoError


class SafetySyncVectorEnv(gymnasium.vector.VectorEnv):
    """Steps environments in turn, in this process. ``step`` returns six values.

    An episode that ends is reset in the same step.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> make = lambda: safety_gymnasium.make("SafetyPointGoal1-v0")
    >>> envs = safety_gymnasium.vector.SafetySyncVectorEnv([make, make])
    >>> obs, info = envs.reset(seed=7)
    >>> obs, reward, cost, terminated, truncated, info = envs.step(envs.action_space.sample())
    >>> envs.close()
    """

    is_vector_env = True

    def __init__(self, env_fns: Iterable[Callable[[], Any]], **ignored: Any) -> None:
        self.envs = [make() for make in env_fns]
        if not self.envs:
            raise ValueError("env_fns is a list of at least one function")
        first = self.envs[0]
        self.num_envs, self.metadata, self.spec = len(self.envs), first.metadata, first.spec
        self.render_mode = getattr(first, "render_mode", None)
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self.closed = False

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple:
        """Resets all environments. Environment ``i`` has the seed ``seed + i``, or entry ``i`` of a list of seeds."""
        if seed is None or not hasattr(seed, "__len__"):
            seed = [None if seed is None else seed + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"there are {self.num_envs} environments, but {len(seed)} seeds")
        results = [env.reset(seed=s, options=options) for env, s in zip(self.envs, seed)]
        return np.stack([obs for obs, _ in results]), self._joined([info for _, info in results])

    def step(self, actions: Any) -> tuple:
        """Steps all environments; returns observations, rewards, costs, terminations, truncations and infos."""
        if self.closed:
            raise EpoError("the environment is closed; make a new one")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions have the shape {self.action_space.shape}, not {actions.shape}")
        columns: list[list[Any]] = [[] for _ in range(6)]
        for env, action in zip(self.envs, actions):
            obs, reward, cost, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                last = {"final_observation": obs, "final_info": info}
                obs, first = env.reset()
                info = {**first, **last}
            for column, value in zip(columns, (obs, reward, cost, terminated, truncated, info)):
                column.append(value)
        obs, reward, cost, terminated, truncated = (np.stack(column) for column in columns[:5])
        return obs, reward, cost, terminated, truncated, self._joined(columns[5])

    def _joined(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns one array per name, each with the mask of the environments that have it."""
        joined: dict[str, Any] = {}
        for name in dict.fromkeys(name for info in infos for name in info):
            mask = np.array([name in info for info in infos])
            numbers = all(isinstance(info[name], (bool, int, float, np.generic)) for info in infos if name in info)
            values = np.zeros(self.num_envs) if numbers else np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(mask):
                values[i] = infos[i][name]
            joined[name], joined[f"_{name}"] = values, mask
        return joined

    def close(self, **kwargs: Any) -> None:
        """Closes all environments."""
        if not self.closed:
            for env in self.envs:
                env.close()
        self.closed = True
