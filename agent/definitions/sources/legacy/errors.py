"""The one error of this package."""

from __future__ import annotations

from agent.errors import ConfigurationError


class LegacyError(ConfigurationError):
    """A 2.x configuration that can't be imported; problems never quote possible secrets."""
