"""The runtime parameters that define shovels: deleted once a shovel has finished, or when an operator asks for it.

The plugin and its HTTP API do the same. What a file or the global parameter defines is the operator's, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from agent.core.addresses.uri import HttpUrl
from agent.core.model import Link, Shovel, ShovelLink
from agent.definitions.sources.keeper import Keeper
from agent.downstream.reading import DefinitionSource
from agent.errors import BrokerError, PermanentError
from agent.management.client import ManagementClient

PATIENCE: Final = 10.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Deleted:
    has_deleted: bool = False
    problems: tuple[str, ...] = ()


async def delete_finished(links: Iterable[Link], keeper: Keeper, management: Sequence[HttpUrl]) -> Deleted:
    """Delete the parameters of finished shovels that a parameter still defines as they were when they ran."""
    shovels = [link for link in links if isinstance(link, ShovelLink) and is_parameter(link, keeper)]
    if not shovels or not management:
        return Deleted()
    async with ManagementClient(management, timeout=PATIENCE) as client:
        problems = [problem for link in shovels if (problem := await _delete(client, link))]
    return Deleted(len(problems) < len(shovels), tuple(problems))


def is_parameter(link: Link, keeper: Keeper) -> bool:
    """True if a parameter defines the shovel as it was when it ran."""
    defined = keeper.in_force(DefinitionSource.PARAMETERS).definitions
    return isinstance(link, ShovelLink) and _is_same(link.shovel, defined.of(link.vhost).shovels.get(link.name))


async def _delete(client: ManagementClient, link: ShovelLink) -> str | None:
    """Delete the shovel's parameter; returns the reason if it stays, else None."""
    try:
        await client.delete_shovel(link.vhost, link.name)
    except BrokerError as error:
        return f"shovel {link.name!r} in vhost {link.vhost!r} has finished, and its parameter can't be deleted: {error}"
    log.info("parameter of a finished shovel deleted", vhost=link.vhost, name=link.name, link=link.id)
    return None


def _is_same(ran: Shovel, defined: Shovel | None) -> bool:
    return defined is not None and replace(defined, place=ran.place) == ran


async def delete_parameter(vhost: str, name: str, keeper: Keeper, management: Sequence[HttpUrl]) -> str | None:
    """Delete a shovel's parameter; returns the reason if the shovel can't be deleted this way, else None. Raises
    PermanentError without `downstream.management`, and BrokerError if the broker fails or refuses it."""
    if name not in keeper.in_force(DefinitionSource.PARAMETERS).definitions.of(vhost).shovels:
        return _elsewhere(keeper.current.definitions.of(vhost).shovels.get(name))
    if not management:
        raise PermanentError("downstream.management is not set, and without the HTTP API no parameter can be deleted")
    async with ManagementClient(management, timeout=PATIENCE) as client:
        await client.delete_shovel(vhost, name)
    log.info("parameter of a shovel deleted", vhost=vhost, name=name)
    return None


def _elsewhere(shovel: Shovel | None) -> str:
    if shovel is None:
        return "no definition in force has this shovel any more"
    return (
        f"no parameter of the broker defines this shovel, but {shovel.place} does: delete it there; "
        "POST /api/links/ID/pause stops it until then"
    )
