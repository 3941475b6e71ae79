"""Environments of the published tasks, with the interface of Safety-Gymnasium."""

from __future__ import annotations

import copy
import json
import math
import secrets
from typing import Any

import numpy as np

from . import _epo, _spaces
from ._epo import ConfigError, EpoError

#: Names of the cameras: from the robot, behind the robot, near the arena, above the arena.
CAMERAS = ("vision", "track", "fixednear", "fixedfar")
#: Largest width and height of a picture.
MAX_PICTURE = 4096

#: Observation, reward, cost, terminated, truncated, info.
SixValues = tuple[np.ndarray, float, float, bool, bool, dict[str, Any]]

_Base: Any = object if _spaces.gymnasium is None else _spaces.gymnasium.Env


def tasks() -> list[dict[str, Any]]:
    """Returns one dictionary per task: id, sizes, time limit, and descriptions of reward and cost.

    >>> import epo
    >>> len(epo.tasks()), epo.tasks()[0]["id"]
    (38, 'SafetyPointGoal0-v0')
    """
    return _epo.tasks()


def algos() -> list[dict[str, Any]]:
    """Returns one dictionary per algorithm: name, summary, and its parameters with their defaults.

    >>> import epo
    >>> "ppo-lag" in [algo["name"] for algo in epo.algos()]
    True
    """
    return [{**algo, "params": json.loads(algo["params"])} for algo in _epo.algos()]


def model(task: str, *, seed: int = 0) -> str:
    """Returns the model of a task as MJCF, with the bodies at the start of the episode with this seed.

    >>> import epo
    >>> epo.model("SafetyPointGoal1-v0").startswith("<mujoco>")
    True
    """
    env = _epo.Env(task, "published")
    env.reset(seed_of(seed))
    return env.mjcf()


def make(
    id: str,
    *,
    physics: str = "published",
    render_mode: str | None = None,
    width: int = 256,
    height: int = 256,
    camera_name: str | None = None,
    camera_id: int | None = None,
) -> SafetyEnv:
    """Returns an environment whose ``step`` returns six values, as in Safety-Gymnasium.

    ``id`` is a task id; :func:`tasks` lists all. ``physics`` is ``"published"`` (all bodies in every step) or ``"fast"``
    (bodies at rest sleep). Rendering needs the package ``mujoco``; see :meth:`SafetyEnv.render`. ``camera_name`` is one of
    ``"vision"``, ``"track"``, ``"fixednear"`` and ``"fixedfar"``; ``camera_id`` is its number in this order.

    >>> import epo
    >>> env = epo.make("SafetyCarButton1-v0", physics="fast")
    >>> obs, info = env.reset(seed=0)
    >>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
    """
    return SafetyEnv(
        id,
        physics=physics,
        render_mode=render_mode,
        width=width,
        height=height,
        camera_name=camera_name,
        camera_id=camera_id,
    )


def whole(name: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """Returns ``value`` as an int. Raises :class:`ConfigError` if it is not a whole number from ``least`` to ``most``."""
    ok = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    if not ok or not math.isfinite(value) or value != int(value) or not least <= value <= most:
        bound = f"of at least {least}" if most == 2**63 - 1 else f"from {least} to {most}"
        raise ConfigError(f"`{name}` takes a whole number {bound}, not {value!r}")
    return int(value)


def numbers(name: str, value: Any) -> np.ndarray:
    """Returns ``value`` as a contiguous array of float64. Raises ``ValueError`` if it does not consist of real numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} is an array of numbers, not {value!r}")
    return np.ascontiguousarray(array, dtype=np.float64)


def seed_of(seed: Any) -> int:
    """Returns a seed as an int, or raises ``ValueError``."""
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"a seed is a whole number, not {seed!r}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"a seed is from 0 to 2**64 - 1, not {seed}")
    return int(seed)


class Seeds:
    """The seeds of the episodes of one environment.

    The first episode after ``reset(seed=s)`` has the seed ``s`` itself. Episode ``k`` after it has a seed that depends
    only on ``s`` and ``k``.
    """

    def __init__(self) -> None:
        self.root: int | None = None
        self.episode = 0

    def next(self, seed: Any = None) -> int:
        """Returns the seed of the next episode."""
        if seed is not None:
            self.root, self.episode = seed_of(seed), 0
        elif self.root is None:
            self.root, self.episode = secrets.randbits(32), 0
        else:
            self.episode += 1
        return self.root if self.episode == 0 else _epo.episode_seed(self.root, 0, self.episode)


class SafetyEnv(_Base):
    """An environment of a published task. ``step`` returns observation, reward, cost, terminated, truncated, info.

    The same id, seed and actions give the observations, rewards and costs of Safety-Gymnasium 1.0.0 on MuJoCo 3.17.0.
    Environments can be pickled and copied; the copy continues the episode.

    >>> import copy, epo
    >>> with epo.make("SafetyPointGoal1-v0") as env:  # closed at the end of the block
    ...     obs, info = env.reset(seed=7)
    ...     twin = copy.deepcopy(env)
    ...     env.step([1.0, 0.5])[1] == twin.step([1.0, 0.5])[1]
    True
    >>> env.task_id, twin.max_steps, twin.unwrapped is twin
    ('SafetyPointGoal1-v0', 1000, True)
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 30}
    _action_dtype: Any = np.float64

    def __init__(
        self,
        task: str,
        *,
        physics: str = "published",
        render_mode: str | None = None,
        width: int = 256,
        height: int = 256,
        camera_name: str | None = None,
        camera_id: int | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is 'human', 'rgb_array', 'depth_array' or None, not {render_mode!r}")
        width, height = whole("width", width, 1, MAX_PICTURE), whole("height", height, 1, MAX_PICTURE)
        if camera_name == "human":
            camera_name = None
        if camera_id is not None and camera_id != -1:
            if camera_name is not None:
                raise ValueError("pass camera_id or camera_name, not both")
            camera_name = CAMERAS[whole("camera_id", camera_id, 0, len(CAMERAS) - 1)]
        if camera_name not in (None, *CAMERAS):
            raise ValueError(f"camera_name is one of {', '.join(map(repr, CAMERAS))}, not {camera_name!r}")
        self._kwargs: dict[str, Any] = {
            "task": task,
            "physics": physics,
            "render_mode": render_mode,
            "width": width,
            "height": height,
            "camera_name": camera_name,
        }
        self._native: Any = _epo.Env(task, physics)
        self._names: list[str] = self._native.cost_names
        low, high = self._native.bounds
        self._n_actions = len(low)
        self.render_mode = render_mode
        self.observation_space = _spaces.observation_box(self._native.obs_len)
        self.action_space = _spaces.box(low, high, self._action_dtype)
        self._seeds = Seeds()
        self._renderer: Any = None

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self._kwargs["task"]

    @property
    def max_steps(self) -> int:
        """Number of steps after which an episode is truncated."""
        return self._open().max_steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode and returns its first observation and an empty dictionary.

        Without a seed, the next episode of the most recent seed starts. If no seed was ever given, a random one is used.

        >>> import epo
        >>> env = epo.make("SafetyPointGoal1-v0")
        >>> obs, info = env.reset(seed=7)
        >>> obs, info = env.reset()  # the second episode of seed 7
        """
        native = self._open()
        if _spaces.gymnasium is not None:
            super().reset(seed=None if seed is None else seed_of(seed))
        obs = native.reset(self._seeds.next(seed))
        self._new_episode()
        return obs, {}

    def step(self, action: Any) -> SixValues:
        """Performs an action and returns observation, reward, cost, terminated, truncated and info.

        ``info`` has every part of the cost (such as ``cost_hazards``), ``cost_sum``, and ``goal_met`` in a step that
        meets the goal. Actions outside the bounds are clipped.

        >>> import epo
        >>> env = epo.make("SafetyPointGoal1-v0")
        >>> obs, info = env.reset(seed=7)
        >>> obs, reward, cost, terminated, truncated, info = env.step([1.0, 0.0])
        >>> cost, info
        (0.0, {'cost_hazards': 0.0, 'cost_sum': 0.0})
        """
        return self._step(action)

    def _step(self, action: Any) -> SixValues:
        native = self._open()
        action = numbers("an action", action)
        if action.shape != (self._n_actions,):
            raise ValueError(f"an action has the shape ({self._n_actions},), not {action.shape}")
        obs, reward, cost, terminated, truncated = native.step(action)
        info: dict[str, Any] = dict(zip(self._names, native.cost_terms()))
        if not info["cost_exception"]:
            del info["cost_exception"]  # only a diverged simulation has it
        info["cost_sum"] = cost
        if native.goal_met:
            info["goal_met"] = True
        if self.render_mode == "human":
            self.render()
        return obs, reward, cost, terminated, truncated, info

    def model(self) -> str:
        """Returns the model of the current episode as MJCF.

        >>> import epo
        >>> env = epo.make("SafetyPointGoal1-v0")
        >>> obs, info = env.reset(seed=7)
        >>> env.model().startswith("<mujoco>")
        True
        """
        return self._open().mjcf()

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the generalised positions and velocities of the simulator.

        >>> import epo
        >>> env = epo.make("SafetySwimmerVelocity-v1")
        >>> obs, info = env.reset(seed=7)
        >>> positions, velocities = env.state()
        >>> positions.shape, velocities.shape
        ((5,), (5,))
        """
        return self._open().state()

    def render(self) -> np.ndarray | None:
        """Returns a picture as an array ``(height, width, 3)`` of bytes, or shows it (``render_mode="human"``).

        ``render_mode="depth_array"`` returns the distances from the camera in metres, as an array ``(height, width)``.
        All pictures are drawn on one thread, so any thread may call this. A forked process cannot draw after its parent
        has drawn.

        >>> import epo
        >>> env = epo.make("SafetyPointGoal1-v0", render_mode="rgb_array", width=320, height=240)
        >>> obs, info = env.reset(seed=7)
        >>> env.render().shape  # needs the package mujoco and OpenGL
        (240, 320, 3)
        """
        if self.render_mode is None:
            raise EpoError("this environment has no render_mode; make it with render_mode='rgb_array'")
        if self._renderer is None:
            from ._render import Renderer

            self._renderer = Renderer(self._kwargs["width"], self._kwargs["height"], self._kwargs["camera_name"])
        return self._renderer.draw(self._open(), self.render_mode)

    def close(self) -> None:
        """Frees the simulator. Every later call except ``close`` raises :class:`EpoError`.

        >>> import epo
        >>> env = epo.make("SafetyPointGoal1-v0")
        >>> env.close()
        >>> env.reset()
        Traceback (most recent call last):
        epo.EpoError: the environment is closed; make a new one
        """
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = self._native = None

    @property
    def unwrapped(self) -> SafetyEnv:
        """The environment itself, as in Gymnasium."""
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def _open(self) -> Any:
        if self._native is None:
            raise EpoError("the environment is closed; make a new one")
        return self._native

    def _new_episode(self) -> None:
        if self._renderer is not None:
            self._renderer.new_episode()
        if self.render_mode == "human":
            self.render()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_renderer"] = None
        state["_native"] = None if self._native is None else (self._native.episode(),)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._seeds = copy.copy(self._seeds)  # a shallow copy has its own episodes
        if state["_native"] is None:
            return
        (episode,) = state["_native"]
        self._native = _epo.Env(self._kwargs["task"], self._kwargs["physics"])
        if episode is not None:
            seed, actions = episode
            self._native.reset(seed)
            for action in actions:
                self._native.step(action)

    def __str__(self) -> str:
        return f"<{type(self).__name__}<{self.task_id}>>"

    __repr__ = __str__
