"""Shovels that have finished: the parameter that defines one is deleted, as the plugin does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from agent.core.addresses.http_url import HttpUrl
from agent.core.model import Link, Shovel, ShovelLink
from agent.definitions.sources.keeper import Keeper
from agent.downstream.reading import Source
from agent.errors import BrokerError
from agent.management.client import ManagementClient

PATIENCE: Final = 10.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Deleted:
    has_deleted: bool = False
    problems: tuple[str, ...] = ()


async def delete_finished(links: Iterable[Link], keeper: Keeper, management: Sequence[HttpUrl]) -> Deleted:
    """Deletes the parameters of those that a parameter still defines as it was when they ran. Others stay: what is
    written in a file or in the global parameter is the operator's."""
    shovels = [link for link in links if isinstance(link, ShovelLink) and is_parameter(link, keeper)]
    if not shovels or not management:
        return Deleted()
    async with ManagementClient(management, timeout=PATIENCE) as client:
        problems = [problem for link in shovels if (problem := await _delete(client, link))]
    return Deleted(len(problems) < len(shovels), tuple(problems))


def is_parameter(link: Link, keeper: Keeper) -> bool:
    """Whether a parameter defines the shovel as it was when it ran."""
    defined = keeper.in_force(Source.PARAMETERS).definitions
    return isinstance(link, ShovelLink) and _is_same(link.shovel, defined.of(link.vhost).shovels.get(link.name))


async def _delete(client: ManagementClient, link: ShovelLink) -> str | None:
    """Why the parameter stays."""
    try:
        await client.delete_shovel(link.vhost, link.name)
    except BrokerError as error:
        return f"shovel {link.name!r} in vhost {link.vhost!r} has finished, and its parameter can't be deleted: {error}"
    log.info("parameter of a finished shovel deleted", vhost=link.vhost, name=link.name, link=link.id)
    return None


def _is_same(ran: Shovel, defined: Shovel | None) -> bool:
    return defined is not None and replace(defined, place=ran.place) == ran
