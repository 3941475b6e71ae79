"""Constrained (safe) reinforcement learning at native speed.

``epo`` provides the published Safety-Gymnasium tasks and trains EPO and its baselines, on these tasks or on any
Gymnasium environment.

>>> import epo
>>> env = epo.make("SafetyPointGoal1-v0")
>>> obs, info = env.reset(seed=7)
>>> obs, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
>>> obs.shape, terminated, truncated
((60,), False, False)

The manual is ``docs/python.md``.
"""

from __future__ import annotations

import atexit as _atexit
import os as _os

from . import _epo

_atexit.register(_epo.end)  # a daemon thread may be in this package when the program ends
_epo.set_library_dir(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "mujoco"))

from ._epo import ConfigError, EpoError, __version__
from ._env import SafetyEnv, algos, make, model, tasks
from ._policy import Policy, load
from ._train import Run, WorkerDied, check_env, evaluate, resume, sweep, train

__all__ = [
    "ConfigError",
    "EpoError",
    "Policy",
    "Run",
    "SafetyEnv",
    "WorkerDied",
    "__version__",
    "algos",
    "check_env",
    "evaluate",
    "load",
    "make",
    "model",
    "resume",
    "sweep",
    "tasks",
    "train",
]

from . import _spaces

if _spaces.gymnasium is not None:
    from . import gym

    gym.register()
    __all__.append("gym")
