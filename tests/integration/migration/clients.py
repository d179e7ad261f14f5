"""Users' programs at the source of a migration, and what `migrate status` says while they are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractConnection

from tests.integration.migration.scene import MigrationScene
from tests.lab.admin import AdminError
from tests.lab.waiting import eventually

PASSWORD: Final = "clients-password"
PARAMETER: Final = "federation-agent fence "
OLD: Final = 200
"""Seconds after which a fence counts, whatever a test has done since."""


@dataclass(frozen=True, slots=True)
class Clients:
    """A user of clients, who may do all in the vhost at first."""

    scene: MigrationScene
    user: str

    @property
    def uri(self) -> str:
        return self.scene.source.uri(self.scene.vhost, self.user, PASSWORD)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[AbstractConnection]:
        connection = await aio_pika.connect(self.uri)
        try:
            yield connection
        finally:
            await connection.close()

    async def status(self, *arguments: str, status: int = 4) -> dict[str, Any]:
        return await asyncio.to_thread(self.scene.status, *arguments, status=status)

    async def verdict(self, queue: str, *arguments: str, status: int = 4) -> tuple[str, str]:
        found = await self.status(*arguments, status=status)
        return verdicts(found)[queue]

    async def listed(self, number: int = 1) -> None:
        """Waits for as many connections: brokers list them about five seconds late."""
        admin, vhost = self.scene.source.admin, self.scene.vhost
        await asyncio.to_thread(
            eventually, lambda: len(admin.get("vhosts", vhost, "connections")) == number, what="connections are listed"
        )

    def permissions(self) -> tuple[str, str, str]:
        found = self.scene.source.admin.get("permissions", self.scene.vhost, self.user)
        return found["configure"], found["write"], found["read"]

    def parameters(self) -> dict[str, Any]:
        """What fences of this user remember, by name."""
        every = self.scene.source.admin.get("global-parameters")
        return {
            each["name"]: each["value"]
            for each in every
            if each["name"].startswith(PARAMETER) and each["value"]["user"] == self.user
        }

    def age_the_fence(self) -> None:
        ((name, value),) = self.parameters().items()
        self.scene.source.admin.global_parameter(name, {**value, "since": value["since"] - OLD})

    def remove(self) -> None:
        admin = self.scene.source.admin
        for name in self.parameters():
            admin.delete("global-parameters", name)
        with suppress(AdminError):  # a test may have deleted it
            admin.delete("users", self.user)


def verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["verdict"], each["reason"]) for each in found["queues"]}
