"""Vector environments whose ``step`` returns six values. An episode that ends is reset in the same step."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import numpy as np

from epo.safety_gymnasium import make as _make_one
from epo.safety_gymnasium import registry, spec_of
from epo.safety_gymnasium.vector.async_vector_env import SafetyAsyncVectorEnv
from epo.safety_gymnasium.vector.sync_vector_env import SafetySyncVectorEnv
from epo._env import SafetyEnv
from epo.gym import VecEnv

__all__ = ["SafetyAsyncVectorEnv", "SafetySyncVectorEnv", "SafetyVectorEnv", "VectorEnv", "make"]


class SafetyVectorEnv(VecEnv):
    """Vector environment of a published task, stepped by native threads.

    ``info["final_observation"]`` has the last observation of episodes that ended, as in Safety-Gymnasium.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> envs = safety_gymnasium.vector.SafetyVectorEnv("SafetyPointGoal1-v0", 2)
    >>> obs, info = envs.reset(seed=7)
    >>> obs, reward, cost, terminated, truncated, info = envs.step(envs.action_space.sample())
    >>> obs.shape, cost.shape
    ((2, 60), (2,))
    """

    is_vector_env = True
    _action_dtype = np.float64

    def __init__(self, task: str, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(task, num_envs, autoreset_mode="same_step", **kwargs)
        self.metadata = {**SafetyEnv.metadata, **self.metadata}
        self.spec = spec_of(task, self._native.max_steps, kwargs)

    def step(self, actions: Any) -> tuple:
        """Steps all environments; returns observations, rewards, costs, terminations, truncations and infos."""
        obs, reward, terminated, truncated, infos = super().step(actions)
        cost = infos.pop("cost")
        del infos["_cost"]
        if "final_obs" in infos:
            infos["final_observation"], infos["_final_observation"] = infos.pop("final_obs"), infos.pop("_final_obs")
        return obs, reward, cost, terminated, truncated, infos


VectorEnv = SafetyVectorEnv


def make(
    env_id: str,
    num_envs: int = 1,
    asynchronous: bool = True,
    wrappers: Callable[[Any], Any] | Iterable[Callable[[Any], Any]] | None = None,
    disable_env_checker: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Returns a vector environment. ``asynchronous=False`` uses one thread.

    With ``wrappers``, with ``max_episode_steps`` or with an id of :func:`epo.safety_gymnasium.register`, the
    environments are made one by one and stepped in turn.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> envs = safety_gymnasium.vector.make("SafetyPointGoal1-v0", num_envs=4)
    >>> envs.reset(seed=7)[0].shape
    (4, 60)
    """
    native = env_id not in registry or "entry_point" not in registry[env_id]
    if native and wrappers is None and set(kwargs) <= {"physics", "copy", "threads", "render_mode"}:
        kwargs.setdefault("threads", 0 if asynchronous else 1)
        return SafetyVectorEnv(env_id, num_envs, **kwargs)
    around = [wrappers] if callable(wrappers) else list(wrappers or ())

    def one() -> Any:
        env = _make_one(env_id, **kwargs)
        for wrapper in around:
            env = wrapper(env)
        return env

    return SafetyAsyncVectorEnv([one] * num_envs)
