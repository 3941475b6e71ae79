"""Makes the tasks available to OmniSafe's algorithms. Import this module before ``omnisafe.Agent`` is made.

>>> import omnisafe, epo.omnisafe
>>> agent = omnisafe.Agent("PPOLag", "epo:SafetyPointGoal1-v0")  # agent.learn() trains
Loading PPOLag.yaml from ...
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from omnisafe.envs.core import CMDP, env_register

from . import _epo
from .gym import VecEnv


@env_register
class EpoEnv(CMDP):
    """The tasks as OmniSafe environments. An id is the task id with the prefix ``epo:``.

    >>> import torch, epo.omnisafe
    >>> env = epo.omnisafe.EpoEnv("epo:SafetyPointGoal1-v0", num_envs=2)
    >>> env.set_seed(7)
    >>> obs, reward, cost, terminated, truncated, info = env.step(torch.zeros(2, 2))
    >>> obs.shape
    torch.Size([2, 60])
    >>> env.close()
    """

    _support_envs: ClassVar[list[str]] = [f"epo:{task['id']}" for task in _epo.tasks()]
    need_auto_reset_wrapper = False
    need_time_limit_wrapper = False

    def __init__(self, env_id: str, num_envs: int = 1, device: Any = "cpu", **kwargs: Any) -> None:
        super().__init__(env_id)
        kwargs = {key: value for key, value in kwargs.items() if key in ("physics", "threads")}
        self._env = VecEnv(env_id.removeprefix("epo:"), num_envs, autoreset_mode="same_step", **kwargs)
        self._num_envs, self._device = num_envs, torch.device(device)
        self._metadata: dict[str, Any] = {}
        self._observation_space = self._env.single_observation_space
        self._action_space = self._env.single_action_space

    def _tensor(self, array: Any) -> torch.Tensor:
        array = np.asarray(array, np.float32)
        return torch.as_tensor(array if self._num_envs > 1 else array[0], device=self._device)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[torch.Tensor, dict]:
        """Resets all environments."""
        obs, _ = self._env.reset(seed=seed)
        return self._tensor(obs), {}

    def step(self, action: torch.Tensor) -> tuple:
        """Steps all environments."""
        actions = np.atleast_2d(action.detach().cpu().numpy())
        obs, reward, terminated, truncated, more = self._env.step(actions)
        info: dict[str, Any] = {}
        if "final_obs" in more:
            final = obs.copy()
            for i in np.flatnonzero(more["_final_obs"]):
                final[i] = more["final_obs"][i]
            info["final_observation"] = self._tensor(final)
            info["_final_observation"] = more["_final_obs"]
        numbers = [self._tensor(x) for x in (obs, reward, more["cost"], terminated, truncated)]
        return (*numbers, info)

    def set_seed(self, seed: int) -> None:
        """Resets with a seed."""
        self.reset(seed=seed)

    def render(self) -> Any:
        """Raises an error: a vector environment cannot be rendered."""
        raise NotImplementedError("make one environment with epo.make(id, render_mode='rgb_array') to draw it")

    def close(self) -> None:
        """Frees the simulators and the threads."""
        self._env.close()
