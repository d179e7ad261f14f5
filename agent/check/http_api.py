"""The HTTP API of a broker, as checks ask it: each question once, and an answer that fails is None."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from agent.check.policies import PolicyTarget
from agent.core.addresses.uri import HttpUrl
from agent.core.permissions import Grant, TopicGrant
from agent.errors import BrokerError
from agent.management.answers import BindingAnswer, ExchangeAnswer, NodeAnswer, PolicyAnswer
from agent.management.client import ManagementClient

PATIENCE: Final = 10.0
P = ParamSpec("P")
T = TypeVar("T")
Ask = Callable[Concatenate["BrokerApi", P], Awaitable[T]]


@dataclass(frozen=True, slots=True, order=True)
class ApiQuestion:
    """`user` is set where it is about the permissions of one."""

    about: str
    user: str = ""


def _once(about: str, *, of_user: bool = False) -> Callable[[Ask[P, T]], Ask[P, T | None]]:
    """Asks once for the same arguments, which `about` shows; the first is a user if `of_user`. None where it fails."""

    def decorated(ask: Ask[P, T]) -> Ask[P, T | None]:
        async def answer(api: BrokerApi, /, *args: P.args, **more: P.kwargs) -> T | None:
            question = ApiQuestion(about.format(*args), str(args[0]) if of_user else "")
            return await api.once(question, lambda: ask(api, *args, **more))

        return answer

    return decorated


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
        self._unanswered: BrokerError | None = None
        self._clock = clock
        self._answers: dict[ApiQuestion, Any] = {}
        self._asking: dict[ApiQuestion, asyncio.Lock] = {}
        self.failures: dict[ApiQuestion, BrokerError] = {}

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

    @_once("permissions of user {!r}", of_user=True)
    async def grants(self, user: str) -> dict[str, Grant]:
        """The user's permissions by vhost."""
        answers = await self._client.permissions_of(user)
        return {each["vhost"]: Grant(each["configure"], each["write"], each["read"]) for each in answers}

    @_once("permissions of user {!r} for topics", of_user=True)
    async def topic_grants(self, user: str) -> list[TopicGrant]:
        answers = await self._client.topic_permissions_of(user)
        return [TopicGrant(user, each["vhost"], each["exchange"], each["write"], each["read"]) for each in answers]

    @_once("the tags of its user")
    async def tags(self) -> frozenset[str]:
        """The tags of the API's own user."""
        return (await self._client.whoami()).tags

    @_once("policies of vhost {!r}")
    async def policies(self, vhost: str) -> list[PolicyAnswer]:
        return await self._client.policies_of(vhost)

    @_once("operator policies of vhost {!r}")
    async def operator_policies(self, vhost: str) -> list[PolicyAnswer]:
        return await self._client.operator_policies_of(vhost)

    @_once("queues of vhost {!r}")
    async def queues(self, vhost: str) -> dict[str, PolicyTarget]:
        return {
            each["name"]: PolicyTarget(
                each["name"],
                str(each.get("type", "classic")),
                dict(each.get("arguments") or {}),
                each.get("policy") or None,
            )
            for each in await self._client.queues(vhost)
        }

    @_once("exchanges of vhost {!r}")
    async def exchanges(self, vhost: str) -> dict[str, ExchangeAnswer]:
        return {each["name"]: each for each in await self._client.exchanges(vhost)}

    @_once("bindings of exchange {1!r} in vhost {0!r}")
    async def bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        return await self.fresh_bindings_from(vhost, exchange)

    async def fresh_bindings_from(self, vhost: str, exchange: str) -> list[BindingAnswer]:
        """Asked again each time; raises BrokerError."""
        return await self._client.bindings_from(vhost, exchange)

    @_once("connections to vhost {!r}")
    async def protocols(self, vhost: str) -> Counter[str]:
        """The number of connections by protocol."""
        return Counter(str(each.get("protocol")) for each in await self._client.connections(vhost))

    @_once("alarms of its nodes")
    async def running_nodes(self) -> list[NodeAnswer]:
        """The cluster's running nodes with their alarms; some seconds old, as statistics are."""
        return [each for each in await self._client.nodes() if each.get("running") is not False]

    @_once("its clock")
    async def clock_difference(self) -> float | None:
        """The seconds by which the broker's clock is ahead, beyond the one second that times in HTTP are exact to."""
        began = self._clock()
        await self._client.overview()
        ended = self._clock()
        try:
            theirs = parsedate_to_datetime(self._client.date or "").timestamp()
        except (ValueError, OverflowError):
            return None
        return theirs - ended if theirs > ended else min(0.0, theirs + 1 - began)

    async def once(self, question: ApiQuestion, ask: Callable[[], Awaitable[T]]) -> T | None:
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
            self.failures[question] = error
            if time.monotonic() - began >= self._patience / 2:
                self._unanswered = error
            return None
