"""The module from which scripts import ``SafetyAsyncVectorEnv``."""

from __future__ import annotations

from epo.safety_gymnasium.vector.sync_vector_env import SafetySyncVectorEnv


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """The same as :class:`SafetySyncVectorEnv`: native environments are so fast that they need no processes.

    >>> import epo.safety_gymnasium as safety_gymnasium
    >>> envs = safety_gymnasium.vector.SafetyAsyncVectorEnv([lambda: safety_gymnasium.make("SafetyPointGoal1-v0")] * 2)
    >>> envs.reset(seed=7)[0].shape
    (2, 60)
    """
