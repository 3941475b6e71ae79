"""Gymnasium environments: ``gymnasium.make("epo:SafetyPointGoal1Gymnasium-v0")`` and ``gymnasium.make_vec``.

``import epo`` registers one id per task. It is the id of the task with ``Gymnasium`` before the version, as in
Safety-Gymnasium. ``step`` returns five values, and the cost is ``info["cost"]``.
"""

from __future__ import annotations

import copy as _copying
import inspect
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from . import _epo, _spaces
from ._env import SafetyEnv, Seeds, numbers, seed_of, whole
from ._epo import EpoError

ENTRY_POINT = "epo.gym:Env"

AutoresetMode: Any = getattr(gymnasium.vector, "AutoresetMode", None)


def gymnasium_id(task: str) -> str:
    """Returns the id of a task's environment whose ``step`` returns five values.

    >>> import epo.gym
    >>> epo.gym.gymnasium_id("SafetyPointGoal1-v0")
    'SafetyPointGoal1Gymnasium-v0'
    """
    name, _, version = task.rpartition("-v")
    return f"{name}Gymnasium-v{version}"


def register() -> None:
    """Registers all ids with Gymnasium. ``import epo`` calls it.

    An id that another package has registered, such as Safety-Gymnasium itself, is replaced with a warning.

    >>> import gymnasium, epo.gym
    >>> epo.gym.register()
    >>> "SafetyPointGoal1Gymnasium-v0" in gymnasium.registry
    True
    """
    more: dict[str, Any] = {}
    if "vector_entry_point" in inspect.signature(gymnasium.register).parameters:  # Gymnasium 1.0 or newer
        more["vector_entry_point"] = "epo.gym:VecEnv"
    replaced: list[str] = []
    for task in _epo.tasks():
        id = gymnasium_id(task["id"])
        known = gymnasium.registry.get(id)
        if known is not None:
            if known.entry_point == ENTRY_POINT:
                continue
            replaced.append(id)
            del gymnasium.registry[id]
        gymnasium.register(
            id, entry_point=ENTRY_POINT, max_episode_steps=task["max_steps"], kwargs={"task": task["id"]}, **more
        )
    if replaced:
        warnings.warn(f"epo replaces {len(replaced)} ids that another package has registered, such as {replaced[0]}")


class Env(SafetyEnv):
    """An environment of a published task with Gymnasium's five values; the cost is ``info["cost"]``.

    >>> import gymnasium, epo
    >>> env = gymnasium.make("epo:SafetyPointGoal1Gymnasium-v0")
    >>> obs, info = env.reset(seed=7)
    >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> info["cost"]
    0.0
    """

    _action_dtype = np.float32

    def step(  # type: ignore[override]  # five values instead of six
        self, action: Any
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Performs an action and returns observation, reward, terminated, truncated and info."""
        obs, reward, cost, terminated, truncated, info = self._step(action)
        info["cost"] = cost
        return obs, reward, terminated, truncated, info


def _mode(mode: Any) -> str:
    name = getattr(mode, "name", mode)
    name = str(name).lower()
    if name not in ("next_step", "same_step"):
        raise ValueError(f"autoreset_mode is 'next_step' or 'same_step', not {mode!r}")
    return name


class VecEnv(gymnasium.vector.VectorEnv):
    """Environments of one task that are stepped by native threads, with the interpreter lock released.

    ``threads`` is the number of threads; 0 means one per core. It does not change the results. With
    ``autoreset_mode="next_step"`` (default) the step after the end of an episode resets it and ignores the action; with
    ``"same_step"`` the last step itself resets it, and ``info["final_obs"]`` has the last observation. With
    ``copy=False`` all steps return the same array, which the next step overwrites.

    >>> import numpy as np, epo.gym
    >>> envs = epo.gym.VecEnv("SafetyPointGoal1-v0", 4, threads=2, autoreset_mode="same_step")
    >>> obs, infos = envs.reset(seed=7)  # the seeds 7, 8, 9 and 10
    >>> obs, rewards, terminations, truncations, infos = envs.step(np.zeros((4, 2)))
    >>> obs.shape, infos["cost"].shape, envs.threads
    ((4, 60), (4,), 2)
    >>> envs.close()
    """

    metadata = {"render_modes": [], "render_fps": 30}
    _action_dtype: Any = np.float32

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        *,
        physics: str = "published",
        threads: int = 0,
        autoreset_mode: Any = "next_step",
        copy: bool = True,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        num_envs, threads = whole("num_envs", num_envs, 1, 10_000), whole("threads", threads)
        if render_mode is not None:
            raise ValueError("a vector environment cannot be rendered; make one environment with render_mode")
        self.task_id = task
        self._same_step = _mode(autoreset_mode) == "same_step"
        self._native: Any = _epo.VecEnv(task, physics, num_envs, threads)
        # make_vec passes the time limit of the registration
        if max_episode_steps not in (None, self._native.max_steps):
            raise ValueError(f"the time limit of {task} is {self._native.max_steps} steps and cannot be changed")
        low, high = self._native.bounds
        self.num_envs, self.render_mode, self.spec = num_envs, None, None
        self.single_observation_space = _spaces.observation_box(self._native.obs_len)
        self.single_action_space = _spaces.box(low, high, self._action_dtype)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        if AutoresetMode is not None:
            mode = AutoresetMode.SAME_STEP if self._same_step else AutoresetMode.NEXT_STEP
            self.metadata = {**self.metadata, "autoreset_mode": mode}
        self._copy = copy
        self._names: list[str] = self._native.cost_names
        self._seeds = [Seeds() for _ in range(num_envs)]
        self._obs = np.zeros((num_envs, self._native.obs_len))
        self._reward, self._cost = np.zeros(num_envs), np.zeros(num_envs)
        self._terminated, self._truncated, self._goal, self._done = (np.zeros(num_envs, bool) for _ in range(4))
        self._terms = np.zeros((num_envs, len(self._names)))
        self._started = False
        self._lock = threading.Lock()
        self.closed = False

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self._open().threads

    def _open(self) -> Any:
        if self._native is None:
            raise EpoError("the environment is closed; make a new one")
        return self._native

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise EpoError("another thread is stepping this vector environment; use one thread, or one vector per thread")
        try:
            yield
        finally:
            self._lock.release()

    def _observations(self) -> np.ndarray:
        return self._obs.copy() if self._copy else self._obs

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Resets all environments. Environment ``i`` has the seed ``seed + i``, or entry ``i`` of a list of seeds.

        ``options={"reset_mask": mask}`` resets only the environments in the mask.
        """
        with self._alone():
            return self._reset(seed, options)

    def _reset(self, seed: Any, options: dict[str, Any] | None) -> tuple[np.ndarray, dict]:
        native = self._open()
        if seed is None or not hasattr(seed, "__len__"):
            seeds = [None if seed is None else seed_of(seed) + i for i in range(self.num_envs)]
        elif len(seed) == self.num_envs:
            seeds = list(seed)
        else:
            raise ValueError(f"there are {self.num_envs} environments, but {len(seed)} seeds")
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise ValueError(f"reset_mask is an array of {self.num_envs} booleans")
        index = np.flatnonzero(mask).tolist()
        # the seeds are kept only if all of them are accepted
        new = {i: _copying.copy(self._seeds[i]) for i in index}
        native.reset(index, [new[i].next(seeds[i]) for i in index], self._obs)
        self._seeds = [new.get(i, old) for i, old in enumerate(self._seeds)]
        self._done[mask] = False
        self._started = True
        return self._observations(), {}

    def _autoreset(self, mask: np.ndarray) -> None:
        index = np.flatnonzero(mask).tolist()
        if index:
            self._open().reset(index, [self._seeds[i].next() for i in index], self._obs)

    def step(self, actions: Any) -> tuple:
        """Steps all environments and returns observations, rewards, terminations, truncations and infos."""
        with self._alone():
            return self._step(actions)

    def _step(self, actions: Any) -> tuple:
        native = self._open()
        if not self._started:
            raise EpoError("the episodes have not started; call reset first")
        actions = numbers("the actions", actions)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions have the shape {self.action_space.shape}, not {actions.shape}")
        skip = self._done.copy()
        for array in (self._reward, self._cost, self._terminated, self._truncated, self._goal, self._terms):
            array[skip] = 0
        native.step(
            actions,
            skip,
            self._obs,
            self._reward,
            self._cost,
            self._terminated,
            self._truncated,
            self._goal,
            self._terms,
        )
        done = self._terminated | self._truncated
        infos = self._infos(~skip)
        if self._same_step:
            if done.any():
                final = np.full(self.num_envs, None, dtype=object)
                for i in np.flatnonzero(done):
                    final[i] = self._obs[i].copy()
                infos = {
                    **infos,
                    "final_obs": final,
                    "_final_obs": done.copy(),
                    "final_info": self._infos(done),
                    "_final_info": done.copy(),
                }
                self._autoreset(done)
        else:
            self._autoreset(skip)
            self._done = done
        return (
            self._observations(),
            self._reward.copy(),
            self._terminated.copy(),
            self._truncated.copy(),
            infos,
        )

    def _infos(self, mask: np.ndarray) -> dict[str, Any]:
        """Returns the parts of the cost of the environments in ``mask``, each with its mask."""
        infos: dict[str, Any] = {}
        for name, values in zip(self._names, self._terms.T):
            if name != "cost_exception" or values.any():
                infos[name] = values.copy()
        infos["cost"], infos["cost_sum"] = self._cost.copy(), self._cost.copy()
        if self._goal.any():
            infos["goal_met"] = self._goal.copy()
        for name in list(infos):
            infos[name][~mask] = 0
            infos[f"_{name}"] = mask & self._goal if name == "goal_met" else mask.copy()
        return infos

    def close(self, **kwargs: Any) -> None:
        """Frees the simulators and the threads."""
        self._native = None
        self.closed = True

    def __reduce__(self) -> Any:
        raise EpoError("a vector environment cannot be pickled; make a new one, or pickle single environments")


class RecordEpisodeCost(gymnasium.Wrapper):
    """Adds the cost of a finished episode to its statistics, as ``info["episode"]["c"]``.

    Wrap it around ``gymnasium.wrappers.RecordEpisodeStatistics``, which adds ``r``, ``l`` and ``t``.

    >>> import gymnasium, epo.gym
    >>> env = gymnasium.make("epo:SafetyPointCircle1Gymnasium-v0")
    >>> env = epo.gym.RecordEpisodeCost(gymnasium.wrappers.RecordEpisodeStatistics(env))
    >>> obs, info = env.reset(seed=7)
    >>> while "episode" not in info:
    ...     obs, reward, terminated, truncated, info = env.step([0.0, 1.0])
    >>> info["episode"]["c"]
    0.0
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._cost = 0.0

    def reset(self, **kwargs: Any) -> tuple:
        """Resets the environment and the sum."""
        self._cost = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple:
        """Steps the environment and adds up the cost."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._cost += float(info["cost"])
        if terminated or truncated:
            info = {**info, "episode": {**info.get("episode", {}), "c": self._cost}}
        return obs, reward, terminated, truncated, info


if hasattr(gymnasium.vector, "VectorWrapper"):

    class RecordEpisodeCostVector(gymnasium.vector.VectorWrapper):
        """Adds the cost of finished episodes to the statistics of a vector environment, as ``info["episode"]["c"]``.

        Wrap it around ``gymnasium.wrappers.vector.RecordEpisodeStatistics``. It works with both autoreset modes.

        >>> import gymnasium, numpy as np, epo.gym
        >>> envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(epo.gym.VecEnv("SafetyPointCircle1-v0", 2))
        >>> envs = epo.gym.RecordEpisodeCostVector(envs)
        >>> obs, infos = envs.reset(seed=7)
        >>> while "episode" not in infos:
        ...     obs, rewards, terminations, truncations, infos = envs.step(np.tile([0.0, 1.0], (2, 1)))
        >>> infos["episode"]["c"]
        array([0., 0.])
        """

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self._costs = np.zeros(env.num_envs)
            self._done = np.zeros(env.num_envs, bool)

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple:
            """Resets the environments and the sums."""
            mask = (options or {}).get("reset_mask")
            self._costs[slice(None) if mask is None else mask] = 0.0
            self._done[slice(None) if mask is None else mask] = False
            return self.env.reset(seed=seed, options=options)

        def step(self, actions: Any) -> tuple:
            """Steps the environments and adds up the costs."""
            obs, reward, terminated, truncated, infos = self.env.step(actions)
            self._costs[self._done] = 0.0
            done = terminated | truncated
            # in SAME_STEP mode, Gymnasium's own vectors have the info of a last step in `final_info` only
            costs = np.broadcast_to(np.asarray(infos.get("cost", 0.0), float), done.shape).copy()
            final = infos.get("final_info")
            if isinstance(final, dict) and "cost" in final:
                ended = np.asarray(infos.get("_final_info", done), bool)
                costs[ended] = np.asarray(final["cost"], float)[ended]
            self._costs += costs
            if done.any():
                episode = dict(infos.get("episode", {}))
                episode["c"], episode["_c"] = np.where(done, self._costs, 0.0), done.copy()
                infos = {**infos, "episode": episode, "_episode": done.copy()}
            self._done = done
            return obs, reward, terminated, truncated, infos
