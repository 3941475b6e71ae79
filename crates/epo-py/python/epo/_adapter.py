"""Adapts a Gymnasium environment to the interface that the trainer uses."""

from __future__ import annotations

import copy
import threading
from typing import Any, Callable

import numpy as np

from ._epo import EpoError
from ._spaces import gymnasium

#: Time limit of an environment that does not state one.
DEFAULT_MAX_STEPS = 1000


def need_gymnasium() -> None:
    """Raises an exception that says what to install if Gymnasium is missing."""
    if gymnasium is None:
        raise EpoError("environments of your own need Gymnasium: pip install gymnasium")


def _kind(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a value of type {type(result).__name__}"


class Adapter:
    """One environment with ``describe``, ``reset``, ``step`` and ``close``.

    Observations are flat arrays of float64. The cost is ``cost_fn(obs, action, next_obs, info)`` if there is such a
    function, otherwise the third of six values of ``step``, otherwise ``info["cost"]``. An episode is truncated after
    ``max_steps`` steps.
    """

    def __init__(self, make: Callable[[], Any], cost_fn: Any = None, max_steps: int | None = None, id: str | None = None):
        need_gymnasium()
        env = make()
        if not (hasattr(env, "reset") and hasattr(env, "step") and hasattr(env, "action_space")):
            raise EpoError(f"the function returned {type(env).__name__}, which is not a Gymnasium environment")
        self.env, self.cost_fn = env, cost_fn
        spec = getattr(env, "spec", None)
        stated = getattr(spec, "max_episode_steps", None) or getattr(env, "max_steps", None)
        self.max_steps = int(max_steps or stated or DEFAULT_MAX_STEPS)
        self.id = id or getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__
        spaces = gymnasium.spaces
        self.obs_space, space = env.observation_space, env.action_space
        self.obs_len = spaces.flatdim(self.obs_space)
        self.is_box = isinstance(space, spaces.Box)
        if self.is_box:
            self.low = np.asarray(space.low, np.float64).ravel()
            self.high = np.asarray(space.high, np.float64).ravel()
            if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
                raise EpoError(
                    "the action space has infinite bounds; wrap the environment in gymnasium.wrappers.RescaleAction "
                    "or give it finite bounds"
                )
        elif isinstance(space, spaces.Discrete):
            self.start = int(getattr(space, "start", 0))
        else:
            raise EpoError(f"the action space is {space}; Box and Discrete can be trained on")
        self.obs: Any = None
        self.steps = 0
        self.thread: int | None = None  # the thread that is in reset or step
        self.killed = False  # if true, the next step raises KeyboardInterrupt
        #: Entries of ``env.json`` that a policy needs to return actions in the form that the environment expects.
        self.form: dict[str, Any] = (
            {"action_shape": [int(n) for n in space.shape]} if self.is_box else {"action_start": self.start}
        )

    def describe(self) -> tuple:
        """Returns id, length of an observation, bounds of a box, number of discrete actions, and time limit."""
        bounds = (self.low.tolist(), self.high.tolist()) if self.is_box else None
        n = None if self.is_box else int(self.env.action_space.n)
        return self.id, self.obs_len, bounds, n, self.max_steps

    def _flat(self, obs: Any) -> np.ndarray:
        flat = np.ascontiguousarray(gymnasium.spaces.flatten(self.obs_space, obs), dtype=np.float64).ravel()
        if flat.shape != (self.obs_len,):
            raise EpoError(f"the observation has {flat.size} entries, but the space has {self.obs_len}")
        return flat

    def reset(self, seed: int) -> np.ndarray:
        """Starts the episode with this seed."""
        self.steps = 0
        self.thread = threading.get_ident()
        try:
            result = self.env.reset(seed=seed)
            if not isinstance(result, tuple) or len(result) != 2:
                raise EpoError(f"reset returns observation and info, not {_kind(result)}")
            self.obs, _ = result
            return self._flat(self.obs)
        finally:
            self.thread = None

    def step(self, action: np.ndarray) -> tuple:
        """Performs an action. Actions outside the bounds are clipped."""
        self.thread = threading.get_ident()
        try:
            if self.killed:
                raise KeyboardInterrupt
            return self._step(action)
        finally:
            self.thread = None

    def _step(self, action: np.ndarray) -> tuple:
        space = self.env.action_space
        if self.is_box:
            own = np.clip(action, self.low, self.high).astype(space.dtype).reshape(space.shape)
        else:
            own = int(action[0]) + self.start
        before = None if self.cost_fn is None else copy.deepcopy(self.obs)  # the environment may write into its array
        result = self.env.step(own)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            raise EpoError(
                "step returns observation, reward, terminated, truncated and info (or, with the cost after the reward, "
                f"six values), not {_kind(result)}"
            )
        if len(result) == 6:
            obs, reward, cost, terminated, truncated, info = result
        else:
            obs, reward, terminated, truncated, info = result
            cost = None
        if self.cost_fn is not None:
            cost = self.cost_fn(before, own, obs, info)
        elif cost is None:
            if "cost" not in info:
                raise EpoError("info has no 'cost': return it from step, or pass cost_fn to epo.train")
            cost = info["cost"]
        self.obs = obs
        self.steps += 1
        truncated = bool(truncated) or (self.steps >= self.max_steps and not terminated)
        return self._flat(obs), float(reward), float(cost), bool(terminated), truncated

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()
