"""Trained policies."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np

from . import _epo, _spaces
from ._env import seed_of
from ._epo import EpoError


def load(run: Any) -> Policy:
    """Returns the policy of a run, which is a :class:`Run` or the path of a run folder.

    The newest intact checkpoint is used. Loading never executes code from the run folder.

    >>> import epo, tempfile
    >>> small = dict(steps=200, envs=2, steps_per_epoch=100, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointGoal1-v0", runs=tempfile.mkdtemp(), progress=False, **small)
    >>> epo.load(run).task
    'SafetyPointGoal1-v0'
    """
    return Policy(run)


class Policy:
    """A trained policy with its critics and its observation normaliser. It needs no environment.

    >>> import epo, tempfile
    >>> small = dict(steps=200, envs=2, steps_per_epoch=100, passes=1, minibatch=50, hidden=[8], final_eval_episodes=0)
    >>> run = epo.train("SafetyPointGoal1-v0", runs=tempfile.mkdtemp(), progress=False, **small)
    >>> policy = epo.load(run)
    >>> obs, info = epo.make("SafetyPointGoal1-v0").reset(seed=0)
    >>> policy.predict(obs).shape  # the mean action
    (2,)
    >>> policy.seed(3)
    >>> policy.predict([obs, obs], deterministic=False).shape  # a sample for each of two observations
    (2, 2)
    >>> sorted(policy.values(obs))
    ['cost', 'cost_far', 'reward']
    >>> policy.export_onnx(run.dir / "policy.onnx")
    >>> policy.task, policy.hash == run.hash, policy.notes
    ('SafetyPointGoal1-v0', True, [])
    >>> "mu" in policy.algorithm_state
    True
    """

    def __init__(self, run: Any) -> None:
        self.dir = os.fspath(getattr(run, "dir", run))
        self._native = _epo.Policy(self.dir)
        low, high = self._native.bounds
        form = self._form()
        self._is_task = not form
        self._discrete = self._native.n_actions
        self._start = int(form.get("action_start", 0))
        self._shape = tuple(int(n) for n in form.get("action_shape", (len(low),)))
        self.observation_space = _spaces.observation_box(self._native.obs_len)
        if self._discrete is None:
            if math.prod(self._shape) != len(low):
                raise EpoError(f"{self.dir}/env.json: actions of the shape {self._shape} do not have {len(low)} entries")
            self.action_space = _spaces.box(np.reshape(low, self._shape), np.reshape(high, self._shape), np.float64)
        else:
            self.action_space = _spaces.discrete(self._discrete, self._start)

    def _form(self) -> dict[str, Any]:
        """Returns the content of ``env.json``, or ``{}`` for a published task. Folders of version 0.3 lack some keys."""
        try:
            with open(os.path.join(self.dir, "env.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    @property
    def task(self) -> str:
        """Id of the task."""
        return self._native.task

    @property
    def hash(self) -> str:
        """Hash of the checkpoint."""
        return self._native.hash

    @property
    def notes(self) -> list[str]:
        """One line about each damaged checkpoint that was skipped."""
        return self._native.notes

    @property
    def algorithm_state(self) -> Any:
        """State of the algorithm besides its networks: for EPO, its penalty parameter μ."""
        return json.loads(self._native.algorithm_state)

    def _rows(self, obs: Any) -> tuple[np.ndarray, bool]:
        n = self._native.obs_len
        hint = "flatten them as in training: gymnasium.spaces.flatten(env.observation_space, obs)"
        try:
            rows = np.ascontiguousarray(obs, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"observations are arrays of numbers, not {type(obs).__name__}; {hint}") from None
        if rows.ndim not in (1, 2) or rows.shape[-1] != n:
            more = "" if self._is_task else f"; {hint}"
            raise ValueError(f"observations have the shape ({n},) or (rows, {n}), not {rows.shape}{more}")
        return np.atleast_2d(rows), rows.ndim == 1

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Returns the action for one observation, or one action per row for many. Actions are within their bounds.

        ``deterministic=True`` returns the mean action (for discrete actions the most probable one), ``False`` a sample.
        Actions have the shape of the environment's action space; discrete actions are integers from its ``start``.
        Observations of a space that is not a vector, such as ``Dict``, must be flattened first with
        ``gymnasium.spaces.flatten``.
        """
        rows, single = self._rows(obs)
        actions: np.ndarray = self._native.predict(rows, deterministic)
        if self._discrete is not None:
            actions = actions[:, 0].astype(np.int64) + self._start
        else:
            actions = actions.reshape(-1, *self._shape)
        return actions[0] if single else actions

    __call__ = predict

    def values(self, obs: Any) -> dict[str, Any]:
        """Returns the estimates of the critics for one or many observations, by name.

        ``reward`` is the discounted return, ``cost`` the discounted cost. EPO's Penalty Metric Network adds
        ``cost_far``, its second cost critic; the algorithm ``epo-released`` adds ``cost_variance``.
        """
        rows, single = self._rows(obs)
        values = self._native.values(rows)
        return {name: float(v[0]) for name, v in values.items()} if single else values

    def seed(self, seed: int) -> None:
        """Sets the seed of the random numbers of sampled actions."""
        self._native.seed(seed_of(seed))

    def export_onnx(self, path: Any, *, deterministic: bool = True) -> None:
        """Writes one ONNX graph with normaliser, network, action and bounds, like the command ``epo export``."""
        self._native.export_onnx(os.fspath(path), deterministic)

    def __reduce__(self) -> Any:
        return Policy, (self.dir,)  # a copy loads the run folder again

    def __repr__(self) -> str:
        return f"<Policy on {self.task}, checkpoint {self.hash[:12]}>"
