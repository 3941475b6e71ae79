"""The module from which scripts import ``SafetyAsyncVectorEnv``."""

from __future__ import annotations

from epo.safety_gymnasium.vector.sync_vector_env import SafetySyncVectorEnv


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """The same as :class:`SafetySyncVectorEnv`: native environments are so fast that they need no processes."""
