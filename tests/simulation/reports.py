"""What a broker reports of its objects, by events and by its HTTP API, as far as agents read that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agent.amqp.broker_events import BrokerEvent, EventReader, subscribe
from agent.amqp.connect import Connection
from agent.core.addresses.uri import HttpUrl
from agent.management.answers import ConsumerAnswer
from agent.management.client import ManagementClient

KEYS: Final = ("consumer.*", "queue.*", "exchange.*", "binding.*")
FIELDS: Final = (
    "vhost", "name", "type", "queue", "consumer_tag", "durable", "auto_delete", "exclusive", "source_name",
    "destination_name", "destination_kind", "routing_key",
)  # fmt: skip
LISTED_WITHIN: Final = 20  # seconds
NAMES: Final = ("name", "queue", "source_name", "destination_name")


class Reports:
    """`prefix` begins the names of what is looked at."""

    def __init__(self, opener: Callable[[], Awaitable[Connection]], url: HttpUrl, prefix: str) -> None:
        self._opener = opener
        self._url = url
        self._prefix = prefix
        self._heard: list[str] = []
        self._connection: Connection | None = None
        self._listening: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._connection = await self._opener()
        events = await subscribe(self._connection, KEYS)
        assert isinstance(events, EventReader), events
        self._listening = asyncio.create_task(self._listen(events))

    async def _listen(self, events: EventReader) -> None:
        async for event in events:
            if any(str(event.fields.get(name, "")).startswith(self._prefix) for name in NAMES):
                self._heard.append(self._event(event))

    def _event(self, event: BrokerEvent) -> str:
        found = {name: event.fields[name] for name in self._fields(event) if name in event.fields}
        return self._plain(f"{event.name} {found}")

    @staticmethod
    def _fields(event: BrokerEvent) -> tuple[str, ...]:
        """What exchanges and queues are is read by the HTTP API; events only name them."""
        if event.name == "consumer.created":
            return (*FIELDS[:5], "arguments")
        return FIELDS[:2] if event.name.startswith(("exchange.", "queue.")) else FIELDS

    def _plain(self, text: str) -> str:
        return text.replace(self._prefix, "")

    def heard(self) -> list[str]:
        """Since it was asked last; parts of a broker report side by side, and some of what goes with a queue twice."""
        found, self._heard = self._heard, []
        return sorted(set(found))

    async def listed(self, consumers: int) -> list[str]:
        """What the HTTP API shows, once it lists so many consumers: those it lists late."""
        async with ManagementClient([self._url]) as client:
            found = await self._consumers(client)
            for _ in range(LISTED_WITHIN):
                if len(found) == consumers:
                    break
                await asyncio.sleep(1)
                found = await self._consumers(client)
            queues = [
                {key: value for key, value in each.items() if key in {"name", "durable", "auto_delete", "exclusive"}}
                for each in await client.queues("/")
            ]
            exchanges = await client.exchanges("/")
            names = [each["name"] for each in exchanges if self._is_ours(each["name"])]
            bindings = [each for name in names for each in await client.bindings_from("/", name)]
        ours = [each for each in (*queues, *exchanges) if self._is_ours(str(each["name"]))]
        return sorted(self._plain(str(sorted(each.items()))) for each in (*ours, *bindings, *found))

    async def _consumers(self, client: ManagementClient) -> list[ConsumerAnswer]:
        """Each broker's node has another name."""
        found = [each for each in await client.consumers("/") if self._is_ours(each["queue"]["name"])]
        for each in found:
            each["channel_details"] = {"node": bool(dict(each.get("channel_details") or ()).get("node"))}
        return found

    def _is_ours(self, name: Any) -> bool:
        return str(name).startswith(self._prefix)

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self._connection is not None:
            await self._connection.close()
