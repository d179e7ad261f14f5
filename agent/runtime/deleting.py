"""Deletes a shovel as the plugin's HTTP API does: the runtime parameter that defines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from agent.core.addresses.http_url import HttpUrl
from agent.core.model import Shovel
from agent.definitions.sources.keeper import Keeper
from agent.downstream.reading import Source
from agent.errors import PermanentError
from agent.management.client import ManagementClient

PATIENCE: Final = 10.0

log = structlog.get_logger()


async def delete_parameter(vhost: str, name: str, keeper: Keeper, management: Sequence[HttpUrl]) -> str | None:
    """Why the shovel can't be deleted this way; None once its parameter is gone. BrokerError where the broker fails or
    refuses it."""
    if name not in keeper.in_force(Source.PARAMETERS).definitions.of(vhost).shovels:
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
