"""The native module. It is private: use the functions of the package ``epo``."""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

__version__: str

class EpoError(RuntimeError):
    """A run, an environment or a run folder failed."""

class ConfigError(ValueError):
    """A setting, a task id or the name of an algorithm is wrong."""

@final
class Env:
    def __new__(cls, task: str, physics: str) -> Self: ...
    id: str
    physics: str
    obs_len: int
    bounds: tuple[list[float], list[float]]
    max_steps: int
    cost_names: list[str]
    goal_met: bool
    def reset(self, seed: int) -> NDArray[np.float64]: ...
    def step(self, action: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float, bool, bool]: ...
    def cost_terms(self) -> list[float]: ...
    def episode(self) -> tuple[int, NDArray[np.float64]] | None: ...
    def mjcf(self) -> str: ...
    def state(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def body_poses(self) -> tuple[list[list[float]], list[list[float]]]: ...

@final
class VecEnv:
    def __new__(cls, task: str, physics: str, num_envs: int, threads: int) -> Self: ...
    obs_len: int
    bounds: tuple[list[float], list[float]]
    cost_names: list[str]
    max_steps: int
    threads: int
    def reset(self, index: list[int], seeds: list[int], obs: NDArray[np.float64]) -> None: ...
    def step(
        self,
        actions: NDArray[np.float64],
        skip: NDArray[np.bool_],
        obs: NDArray[np.float64],
        reward: NDArray[np.float64],
        cost: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        goal_met: NDArray[np.bool_],
        terms: NDArray[np.float64],
    ) -> None: ...

@final
class Pool:
    def __new__(cls, task: str, physics: str, num_envs: int, threads: int) -> Self: ...
    def step(self, steps: int) -> None: ...

@final
class Policy:
    def __new__(cls, dir: str) -> Self: ...
    obs_len: int
    task: str
    hash: str
    notes: list[str]
    n_actions: int | None
    bounds: tuple[list[float], list[float]]
    algorithm_state: str
    def seed(self, seed: int) -> None: ...
    def predict(self, obs: NDArray[np.float64], deterministic: bool) -> NDArray[np.float64]: ...
    def values(self, obs: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]: ...
    def export_onnx(self, path: str, deterministic: bool) -> None: ...

def set_library_dir(dir: str) -> None: ...
def main(program: list[str], args: list[str]) -> int: ...
def end() -> None: ...
def tasks() -> list[dict[str, Any]]: ...
def algos() -> list[dict[str, Any]]: ...
def episode_seed(seed: int, env: int, episode: int) -> int: ...
def evaluation_seed(seed: int, env: int, episode: int) -> int: ...
def read_config(dir: str) -> str: ...
def panic(text: str) -> None: ...
def other_version(dir: str) -> str | None: ...
def check(make_env: Callable[[], Any], kill: Callable[[], Any] | None = None) -> list[str]: ...
def train(
    *,
    file: str | None,
    settings: list[tuple[str, str]],
    algo: str | None,
    runs: str,
    name: str | None,
    resume: str | None,
    steps: int | None,
    threads: int | None,
    accept_changes: bool,
    make_env: Callable[[], Any] | None,
    kill: Callable[[], Any] | None,
    on_start: Callable[..., Any],
    on_row: Callable[..., Any],
) -> str: ...
def evaluate(
    dir: str,
    *,
    episodes: int,
    seed: int,
    stochastic: bool,
    physics: str,
    threads: int,
    make_env: Callable[[], Any] | None,
    kill: Callable[[], Any] | None,
) -> str: ...
