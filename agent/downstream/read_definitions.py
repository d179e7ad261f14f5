"""Reads the definitions that the broker keeps: parameters, policies and the agent's global parameter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.definitions.sources.keeper import Keeper, SourceReading
from agent.definitions.sources.parameters import (
    GLOBAL_PARAMETER,
    Steps,
    read_global,
    reading_parameters,
    reading_policies,
)
from agent.downstream.reading import DefinitionSource, Parameters
from agent.errors import ConfigurationError, Place, Problem
from agent.management.client import ManagementClient
from agent.management.transport import TooLargeError
from agent.slices import steps_in_slices


@dataclass(frozen=True, slots=True)
class ListedDefinitions:
    """The definitions of one kind of all vhosts, except vhosts with too many."""

    items: Parameters
    unread: Mapping[str, Problem] = field(default_factory=dict)


async def take_broker(
    keeper: Keeper, client: ManagementClient, broker: str, *, names: Collection[str]
) -> ListedDefinitions:
    """Read each kind of document separately: an error in one doesn't stop the others. Returns the policies."""
    parameters, policies, value = await asyncio.gather(
        _parameters(client, broker, names), read_policies(client, broker, names), _global_parameter(client, broker)
    )
    before = keeper.in_force(DefinitionSource.PARAMETERS)
    await _take(
        keeper,
        DefinitionSource.PARAMETERS,
        reading_parameters(broker, parameters.items, before, unread=parameters.unread),
    )
    before = keeper.in_force(DefinitionSource.POLICIES)
    await _take(
        keeper, DefinitionSource.POLICIES, reading_policies(broker, policies.items, before, unread=policies.unread)
    )
    keeper.take(DefinitionSource.GLOBAL, value)
    return policies


async def _take(keeper: Keeper, source: DefinitionSource, steps: Steps) -> None:
    defined = await steps_in_slices(steps)
    keeper.take(source, lambda: defined)


async def _global_parameter(client: ManagementClient, broker: str) -> Callable[[], SourceReading]:
    try:
        value = await client.global_parameter(GLOBAL_PARAMETER)
    except TooLargeError as error:
        return partial(_refused, Problem(Place(broker), str(error)))
    return lambda: read_global(broker, value)


def _refused(problem: Problem) -> SourceReading:
    raise ConfigurationError([problem])


async def _parameters(client: ManagementClient, broker: str, names: Collection[str]) -> ListedDefinitions:
    try:
        return ListedDefinitions(await client.parameters())
    except TooLargeError:
        return await _one_by_one(client.parameters_of, broker, names)


async def read_policies(client: ManagementClient, broker: str, names: Collection[str]) -> ListedDefinitions:
    try:
        return ListedDefinitions(await client.policies())
    except TooLargeError:
        return await _one_by_one(client.policies_of, broker, names)


async def _one_by_one(
    ask: Callable[[str], Awaitable[Parameters]], broker: str, names: Collection[str]
) -> ListedDefinitions:
    """Read vhost by vhost: one that defines too much stays unchanged, and the others are followed."""
    items: list[Mapping[str, Any]] = []
    unread: dict[str, Problem] = {}
    for vhost in sorted(names):
        try:
            items += await ask(vhost)
        except TooLargeError as error:
            unread[vhost] = left_as_it_was(broker, vhost, error)
    return ListedDefinitions(items, unread)


def left_as_it_was(broker: str, vhost: str, error: Exception) -> Problem:
    return Problem(Place(f"{broker} vhost {vhost!r}"), f"can't be read, so it stays as it was: {error}")


def forget_broker(keeper: Keeper) -> None:
    for source in (DefinitionSource.PARAMETERS, DefinitionSource.POLICIES, DefinitionSource.GLOBAL):
        keeper.forget(source)
