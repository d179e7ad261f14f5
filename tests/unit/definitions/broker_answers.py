"""A broker's parameters and policies read in one go, where the agent reads them in slices of a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.core.rules.resolve import finish
from agent.definitions.sources.keeper import SourceReading
from agent.definitions.sources.parameters import Steps, reading_parameters, reading_policies
from agent.errors import ConfigurationError


def read_parameters(broker: str, parameters: Iterable[Mapping[str, Any]]) -> SourceReading:
    """`broker` is the HTTP API's address; raises ConfigurationError with everything that is wrong."""
    return _all_or_nothing(reading_parameters(broker, parameters, SourceReading()))


def read_policies(broker: str, policies: Iterable[Mapping[str, Any]]) -> SourceReading:
    return _all_or_nothing(reading_policies(broker, policies, SourceReading()))


def _all_or_nothing(steps: Steps) -> SourceReading:
    read = finish(steps)
    if read.refused:
        raise ConfigurationError((*read.refused, *read.warnings))
    return read
