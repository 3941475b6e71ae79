"""The name that scripts import for a vector of environments that functions make."""

from __future__ import annotations

from epo.safety_gymnasium.vector.sync_vector_env import SafetySyncVectorEnv


class SafetyAsyncVectorEnv(SafetySyncVectorEnv):
    """The same as :class:`SafetySyncVectorEnv`: native environments are fast enough to need no processes."""
