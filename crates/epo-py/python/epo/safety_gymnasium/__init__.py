"""The interface of the package Safety-Gymnasium, for scripts that were written for it.

Replace ``import safety_gymnasium`` by ``import epo.safety_gymnasium as safety_gymnasium``. A script that also has lines
such as ``from safety_gymnasium.wrappers import SafeRescaleAction`` runs unchanged after :func:`install`.

>>> import epo.safety_gymnasium as safety_gymnasium
>>> env = safety_gymnasium.make("SafetyPointGoal1-v0")
>>> obs, info = env.reset(seed=0)
>>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
>>> env.spec.max_episode_steps
1000
"""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any, Callable

from epo import _epo
from epo._adapter import need_gymnasium
from epo._env import SafetyEnv, whole
from epo._epo import ConfigError
from epo._spaces import gymnasium

__all__ = ["SafetyEnv", "__version__", "install", "make", "register", "registry", "vector", "wrappers"]

#: Version of Safety-Gymnasium whose names and numbers this package reproduces.
__version__ = "1.0.0"

#: One entry per id: the description of a task, or the arguments of :func:`register`.
registry: dict[str, dict[str, Any]] = {task["id"]: task for task in _epo.tasks()}


def register(
    id: str, entry_point: Any, *, max_episode_steps: int | None = None, kwargs: dict[str, Any] | None = None, **ignored: Any
) -> None:
    """Registers an environment of your own, whose ``step`` returns six values.

    ``entry_point`` is a class, a function, or a text such as ``"module:Class"``. Other arguments are ignored.

    >>> import epo, epo.safety_gymnasium as safety_gymnasium
    >>> safety_gymnasium.register("Short-v0", lambda: epo.make("SafetyPointGoal1-v0"), max_episode_steps=10)
    >>> safety_gymnasium.make("Short-v0").spec.max_episode_steps
    10
    """
    if any(task["id"] == id for task in _epo.tasks()):
        raise ConfigError(f"the id {id!r} belongs to a published task: choose another one")
    registry[id] = {"id": id, "entry_point": entry_point, "max_steps": max_episode_steps, "kwargs": kwargs or {}}


def _made(id: str, kwargs: dict[str, Any]) -> Any:
    own = registry.get(id, {}).get("entry_point")
    if own is None:
        return SafetyEnv(id, **kwargs)
    if isinstance(own, str):
        module, _, name = own.partition(":")
        own = getattr(importlib.import_module(module), name)
    return own(**{**registry[id]["kwargs"], **kwargs})


def make(
    id: str,
    *,
    max_episode_steps: int | None = None,
    autoreset: bool = False,
    disable_env_checker: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Returns an environment whose ``step`` returns six values.

    ``max_episode_steps`` shortens the episodes. ``autoreset=True`` resets an episode in the step in which it ends.
    ``disable_env_checker`` has no effect. Other arguments are those of :func:`epo.make`.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> env = safety_gymnasium.make("SafetyPointGoal1-v0", max_episode_steps=100)
    >>> env.spec.max_episode_steps
    100
    """
    limit, is_own = registry.get(id, {}).get("max_steps"), "entry_point" in registry.get(id, {})
    env = _made(id, kwargs)
    if max_episode_steps is not None:
        steps = whole("max_episode_steps", max_episode_steps, 1)
        if not is_own and steps > env.max_steps:
            raise ConfigError(f"the time limit of {id} is {limit} steps; `max_episode_steps` can only shorten it")
        limit = steps
    env.spec = spec_of(id, limit, kwargs)
    if limit is not None and (max_episode_steps is not None or is_own):
        need_gymnasium()
        env = wrappers.SafeTimeLimit(env, limit)
    if autoreset:
        need_gymnasium()
        env = wrappers.SafeAutoResetWrapper(env)
    return env


def spec_of(id: str, max_episode_steps: int | None, kwargs: dict[str, Any]) -> Any:
    """Returns the description of an environment: ``id``, ``max_episode_steps`` and ``kwargs``.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> safety_gymnasium.spec_of("SafetyPointGoal1-v0", 1000, {}).id
    'SafetyPointGoal1-v0'
    """
    entry: dict[str, Any] = {"id": id, "max_episode_steps": max_episode_steps, "kwargs": dict(kwargs)}
    if gymnasium is None:
        return SimpleNamespace(**entry)
    return gymnasium.envs.registration.EnvSpec(entry_point="epo.safety_gymnasium:make", **entry)


def install() -> None:
    """Makes ``import safety_gymnasium`` import this package in the running process.

    >>> import sys, epo.safety_gymnasium
    >>> before = set(sys.modules)
    >>> epo.safety_gymnasium.install()
    >>> from safety_gymnasium.wrappers import SafeRescaleAction
    >>> SafeRescaleAction.__module__
    'epo.safety_gymnasium.wrappers'
    >>> for name in set(sys.modules) - before:  # undone, because this is an example
    ...     del sys.modules[name]
    """
    prefix = "epo.safety_gymnasium"
    for name, module in list(sys.modules.items()):
        if name == prefix or name.startswith(prefix + "."):
            sys.modules[name.removeprefix("epo.")] = module


wrappers: Any = None
vector: Any = None
if gymnasium is not None:
    wrappers = importlib.import_module("epo.safety_gymnasium.wrappers")
    vector = importlib.import_module("epo.safety_gymnasium.vector")
    SafetyVectorEnv: Callable[..., Any] = vector.SafetyVectorEnv
