"""The HTTP API of a broker, as checks ask it: each question once, and an answer that fails is None."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agent.check.policies import PolicyTarget
from agent.core.addresses.http_url import HttpUrl
from agent.core.permissions import Grant, TopicGrant
from agent.errors import BrokerError
from agent.management.answers import BindingAnswer, ExchangeAnswer, NodeAnswer, PolicyAnswer, QueueAnswer
from agent.management.client import ManagementClient

PATIENCE: Final = 10.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeAlarms:
    """The alarms of a running node; None where the broker has no statistics of it."""

    node: str
    memory: bool | None
    disk: bool | None


@dataclass(frozen=True, slots=True, order=True)
class ApiQuestion:
    """`user` is set where it is about the permissions of one."""

    about: str
    user: str = ""


class BrokerApi:
    """Use it with `async with`. `failures` are the questions that could not be answered, and why."""

    def __init__(
        self,
        urls: Sequence[HttpUrl],
        *,
        where: str,
        setting: str,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
    ) -> None:
        self.where = f"{where} {urls[0]}"
        self._client = ManagementClient(urls, where=where, setting=setting, timeout=patience)
        self._patience = patience
        self._unanswered: str | None = None
        self._clock = clock
        self._answers: dict[ApiQuestion, Any] = {}
        self._asking: dict[ApiQuestion, asyncio.Lock] = {}
        self.failures: dict[ApiQuestion, str] = {}

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    def forget(self) -> None:
        """From now on the broker is asked again."""
        self._answers.clear()

    async def grants(self, user: str) -> dict[str, Grant] | None:
        """The user's permissions by vhost."""

        async def ask() -> dict[str, Grant]:
            answers = await self._client.permissions_of(user)
            return {each["vhost"]: Grant(each["configure"], each["write"], each["read"]) for each in answers}

        return await self._once(ApiQuestion(f"permissions of user {user!r}", user), ask)

    async def topic_grants(self, user: str) -> list[TopicGrant] | None:
        async def ask() -> list[TopicGrant]:
            answers = await self._client.topic_permissions_of(user)
            return [TopicGrant(user, each["vhost"], each["exchange"], each["write"], each["read"]) for each in answers]

        return await self._once(ApiQuestion(f"permissions of user {user!r} for topics", user), ask)

    async def tags(self) -> frozenset[str] | None:
        """The tags of the API's own user."""

        async def ask() -> frozenset[str]:
            found = (await self._client.whoami()).get("tags")
            words = found.split(",") if isinstance(found, str) else found if isinstance(found, list) else []
            return frozenset(str(each).strip() for each in words)

        return await self._once(ApiQuestion("the tags of its user"), ask)

    async def policies(self, vhost: str) -> list[PolicyAnswer] | None:
        return await self._once(ApiQuestion(f"policies of vhost {vhost!r}"), partial(self._client.policies_of, vhost))

    async def operator_policies(self, vhost: str) -> list[PolicyAnswer] | None:
        question = ApiQuestion(f"operator policies of vhost {vhost!r}")
        return await self._once(question, partial(self._client.operator_policies_of, vhost))

    async def queues(self, vhost: str) -> dict[str, PolicyTarget] | None:
        async def ask() -> dict[str, PolicyTarget]:
            return {each["name"]: _target(each) for each in await self._client.queues(vhost)}

        return await self._once(ApiQuestion(f"queues of vhost {vhost!r}"), ask)

    async def exchanges(self, vhost: str) -> dict[str, ExchangeAnswer] | None:
        async def ask() -> dict[str, ExchangeAnswer]:
            return {each["name"]: each for each in await self._client.exchanges(vhost)}

        return await self._once(ApiQuestion(f"exchanges of vhost {vhost!r}"), ask)

    async def bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer] | None:
        question = ApiQuestion(f"bindings of exchange {exchange!r} in vhost {vhost!r}")
        return await self._once(question, partial(self.fresh_bindings_from, vhost, exchange))

    async def fresh_bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        """Asked again each time; raises BrokerError."""
        return await self._client.bindings_from(vhost, exchange)

    async def alarms(self) -> list[NodeAlarms] | None:
        """Those of the cluster's running nodes; some seconds old, as statistics are."""

        async def ask() -> list[NodeAlarms]:
            nodes = await self._client.nodes()
            return [_alarms(each) for each in nodes if each.get("running") is not False]

        return await self._once(ApiQuestion("alarms of its nodes"), ask)

    async def clock_difference(self) -> float | None:
        """The seconds by which the broker's clock is ahead, beyond the one second that times in HTTP are exact to."""

        async def ask() -> float | None:
            began = self._clock()
            await self._client.overview()
            ended = self._clock()
            try:
                theirs = parsedate_to_datetime(self._client.date or "").timestamp()
            except (ValueError, OverflowError):
                return None
            return theirs - ended if theirs > ended else min(0.0, theirs + 1 - began)

        return await self._once(ApiQuestion("its clock"), ask)

    async def _once(self, question: ApiQuestion, ask: Callable[[], Awaitable[T]]) -> T | None:
        async with self._asking.setdefault(question, asyncio.Lock()):
            if question not in self._answers:
                self._answers[question] = await self._asked(question, ask)
            found: T | None = self._answers[question]
            return found

    async def _asked(self, question: ApiQuestion, ask: Callable[[], Awaitable[T]]) -> T | None:
        if self._unanswered is not None:  # each further question would take as long
            self.failures[question] = self._unanswered
            return None
        began = time.monotonic()
        try:
            return await ask()
        except BrokerError as error:
            self.failures[question] = str(error)
            if time.monotonic() - began >= self._patience / 2:
                self._unanswered = str(error)
            return None


def _target(queue: QueueAnswer) -> PolicyTarget:
    arguments = dict(queue.get("arguments") or {})
    return PolicyTarget(queue["name"], str(queue.get("type", "classic")), arguments, queue.get("policy") or None)


def _alarms(node: NodeAnswer) -> NodeAlarms:
    memory, disk = node.get("mem_alarm"), node.get("disk_free_alarm")
    return NodeAlarms(
        node["name"], memory if isinstance(memory, bool) else None, disk if isinstance(disk, bool) else None
    )
