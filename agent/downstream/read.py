"""Reads everything that the agent needs to know about the downstream cluster once, from all available sources."""

from __future__ import annotations

from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.read_by_amqp import read_by_amqp
from agent.downstream.read_by_api import read_by_api
from agent.downstream.reading import Reading
from agent.management.client import ManagementClient


async def read_downstream(configuration: Configuration, keeper: Keeper) -> Reading:
    """Passes the broker's definitions to `keeper`; raises BrokerError if the downstream can't be read."""
    addresses = configuration.settings.downstream.management
    if not addresses:
        return await read_by_amqp(configuration, keeper)
    async with ManagementClient(addresses) as client:
        return await read_by_api(configuration, client, keeper)
