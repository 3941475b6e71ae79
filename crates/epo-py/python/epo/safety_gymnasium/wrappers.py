"""Wrappers of environments whose ``step`` returns six values. Other attributes are those of the wrapped environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

__all__ = [
    "Gymnasium2SafetyGymnasium",
    "SafeAutoResetWrapper",
    "SafeRescaleAction",
    "SafeTimeLimit",
    "SafeUnsqueeze",
    "SafetyGymnasium2Gymnasium",
]


class SafeWrapper(gymnasium.Wrapper):
    """Base class of the wrappers.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafeWrapper(epo.make("SafetyPointGoal1-v0"))
    >>> env.task_id  # an attribute of the wrapped environment
    'SafetyPointGoal1-v0'
    """

    env: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


class SafetyGymnasium2Gymnasium(SafeWrapper):
    """Turns six values into five: the cost moves to ``info["cost"]``.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafetyGymnasium2Gymnasium(epo.make("SafetyPointGoal1-v0"))
    >>> obs, info = env.reset(seed=7)
    >>> obs, reward, terminated, truncated, info = env.step([1.0, 0.0])
    >>> info["cost"]
    0.0
    """

    def step(self, action: Any) -> tuple:
        """Steps the environment."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "cost": cost}


class Gymnasium2SafetyGymnasium(SafeWrapper):
    """Turns five values into six: the cost comes from ``info["cost"]``.

    >>> import gymnasium, epo.safety_gymnasium as safety_gymnasium
    >>> env = gymnasium.make("epo:SafetyPointGoal1Gymnasium-v0")
    >>> env = safety_gymnasium.wrappers.Gymnasium2SafetyGymnasium(env)
    >>> obs, info = env.reset(seed=7)
    >>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    """

    def step(self, action: Any) -> tuple:
        """Steps the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, info["cost"], terminated, truncated, info


class SafeTimeLimit(SafeWrapper):
    """Truncates an episode after ``max_episode_steps`` steps.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafeTimeLimit(epo.make("SafetyPointGoal1-v0"), 2)
    >>> obs, info = env.reset(seed=7)
    >>> [env.step([1.0, 0.0])[4] for _ in range(2)]
    [False, True]
    """

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        super().__init__(env)
        self._max_episode_steps, self._steps = max_episode_steps, 0

    def reset(self, **kwargs: Any) -> tuple:
        """Starts an episode."""
        self._steps = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple:
        """Steps the environment."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        return obs, reward, cost, terminated, truncated or self._steps >= self._max_episode_steps, info


class SafeAutoResetWrapper(SafeWrapper):
    """Resets an episode in the step in which it ends.

    The info of that step has the last observation as ``final_observation`` and the last info as ``final_info``.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafeTimeLimit(epo.make("SafetyPointGoal1-v0"), 1)
    >>> env = safety_gymnasium.wrappers.SafeAutoResetWrapper(env)
    >>> obs, info = env.reset(seed=7)
    >>> sorted(env.step([1.0, 0.0])[5])
    ['final_info', 'final_observation']
    """

    def step(self, action: Any) -> tuple:
        """Steps the environment."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            last = {"final_observation": obs, "final_info": info}
            obs, first = self.env.reset()
            info = {**first, **last}
        return obs, reward, cost, terminated, truncated, info


class SafeRescaleAction(SafeWrapper):
    """Maps actions from ``[min_action, max_action]`` to the bounds of the environment.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafeRescaleAction(epo.make("SafetyHumanoidVelocity-v1"), -1.0, 1.0)
    >>> float(env.action_space.high[0]), float(env.env.action_space.high[0])
    (1.0, 0.4)
    """

    def __init__(self, env: Any, min_action: Any, max_action: Any) -> None:
        super().__init__(env)
        space = env.action_space
        low, high = (np.broadcast_to(np.asarray(x, space.dtype), space.shape) for x in (min_action, max_action))
        if not (low < high).all():
            raise ValueError(f"min_action is below max_action, not {min_action!r} and {max_action!r}")
        self.min_action, self.max_action = low.copy(), high.copy()
        self.action_space = gymnasium.spaces.Box(self.min_action, self.max_action, dtype=space.dtype)

    def step(self, action: Any) -> tuple:
        """Steps the environment with the mapped action."""
        inner: Any = self.env.action_space
        share = (np.asarray(action, np.float64) - self.min_action) / (self.max_action - self.min_action)
        return self.env.step(np.clip(inner.low + share * (inner.high - inner.low), inner.low, inner.high))


class SafeUnsqueeze(SafeWrapper):
    """Makes one environment look like a vector of one: every result has a first axis of length 1.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.wrappers.SafeUnsqueeze(epo.make("SafetyPointGoal1-v0"))
    >>> obs, info = env.reset(seed=7)
    >>> obs, reward, cost, terminated, truncated, info = env.step([[1.0, 0.0]])
    >>> obs.shape, cost.shape
    ((1, 60), (1,))
    """

    num_envs = 1

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space

    @staticmethod
    def _with_axis(info: dict[str, Any]) -> dict[str, Any]:
        return {key: value[None] if isinstance(value, np.ndarray) else value for key, value in info.items()}

    def reset(self, **kwargs: Any) -> tuple:
        """Starts an episode."""
        obs, info = self.env.reset(**kwargs)
        return np.asarray(obs)[None], self._with_axis(info)

    def step(self, action: Any) -> tuple:
        """Steps the environment. An action may have a first axis of length 1."""
        shape = self.env.action_space.shape
        *values, info = self.env.step(np.reshape(np.asarray(action), shape))
        return (*(np.asarray(value)[None] for value in values), self._with_axis(info))
