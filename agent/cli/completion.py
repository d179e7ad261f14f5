"""Names of links for the shell's completion, from the agent that a command without options asks."""

from __future__ import annotations

import os
from typing import Final

from agent.cli.link_names import completions
from agent.cli.remote import reach
from agent.errors import AgentError

PATIENCE: Final = 2.0  # seconds; somebody waits for it at each press of a key


def complete_link(begun: str) -> list[tuple[str, str]]:
    """Nothing where the agent doesn't answer: a shell has no place for an error."""
    try:
        return completions(reach(os.environ.get("FEDERATION_AGENT_URL"), None, None, within=PATIENCE).links(), begun)
    except (AgentError, KeyError, TypeError):
        return []
