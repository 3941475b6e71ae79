"""Spaces: those of Gymnasium if it is installed, otherwise a small box with the same attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

gymnasium: Any
try:
    import gymnasium
except ImportError:
    gymnasium = None


class _Box:
    """An n-dimensional box with the attributes of ``gymnasium.spaces.Box`` that scripts use."""

    def __init__(self, low: np.ndarray, high: np.ndarray, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.low, self.high = np.asarray(low, self.dtype), np.asarray(high, self.dtype)
        self.shape = self.low.shape
        self._random = np.random.default_rng()

    def seed(self, seed: int | None = None) -> None:
        """Sets the seed of the random numbers of :meth:`sample`."""
        self._random = np.random.default_rng(seed)

    def sample(self) -> np.ndarray:
        """Returns a uniformly random point of the box. The box must be bounded."""
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ValueError("only a bounded box can be sampled")
        return self._random.uniform(self.low, self.high).astype(self.dtype)

    def contains(self, x: Any) -> bool:
        """Returns true if ``x`` has the right shape and is within the bounds."""
        x = np.asarray(x)
        return x.shape == self.shape and bool(np.all(x >= self.low) and np.all(x <= self.high))

    __contains__ = contains

    def __repr__(self) -> str:
        return f"Box({self.low.min()}, {self.high.max()}, {self.shape}, {self.dtype})"


def box(low: Any, high: Any, dtype: Any) -> Any:
    """Returns a box space with these bounds."""
    low, high = np.asarray(low, dtype), np.asarray(high, dtype)
    if gymnasium is None:
        return _Box(low, high, dtype)
    return gymnasium.spaces.Box(low, high, dtype=dtype)


def observation_box(n: int) -> Any:
    """Returns the space of observations with ``n`` entries."""
    return box(np.full(n, -np.inf), np.full(n, np.inf), np.float64)


class _Discrete:
    """Integers with the attributes of ``gymnasium.spaces.Discrete`` that scripts use."""

    def __init__(self, n: int, start: int) -> None:
        self.n, self.start, self.shape, self.dtype = n, start, (), np.dtype(np.int64)
        self._random = np.random.default_rng()

    def seed(self, seed: int | None = None) -> None:
        """Sets the seed of the random numbers of :meth:`sample`."""
        self._random = np.random.default_rng(seed)

    def sample(self) -> np.int64:
        """Returns a uniformly random integer of the space."""
        return np.int64(self.start + self._random.integers(self.n))

    def contains(self, x: Any) -> bool:
        """Returns true if ``x`` is one of the integers."""
        return isinstance(x, (int, np.integer)) and self.start <= int(x) < self.start + self.n

    __contains__ = contains

    def __repr__(self) -> str:
        return f"Discrete({self.n}, start={self.start})"


def discrete(n: int, start: int) -> Any:
    """Returns the space of the integers from ``start`` to ``start + n - 1``."""
    return _Discrete(n, start) if gymnasium is None else gymnasium.spaces.Discrete(n, start=start)
