"""How many messages a peer may have unacknowledged: as many as a shovel and the agent."""

from typing import Final

PREFETCH: Final = 1_000
