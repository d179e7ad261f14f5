"""Whether a trial's message could get to anybody's queue, as the HTTP APIs of both brokers show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.check.core_delivery import catching
from agent.check.http_api import Api
from agent.check.policies import Listed, effective

_ALTERNATE: Final = "alternate-exchange"
_DEAD_LETTERS: Final = "dead-letter-exchange"


@dataclass(frozen=True, slots=True)
class Side:
    """An exchange that a trial's message gets to, and the link's queue that it waits in, if there is one."""

    name: str  # upstream | downstream
    api: Api
    vhost: str
    exchange: str
    type: str
    queue: Listed | None = None

    async def refusal(self, key: str) -> str | None:
        """Why the message could get to a queue of a user. Bindings come last: they change the most."""
        api, vhost = self.api, self.vhost
        exchanges, policies = await api.exchanges(vhost), await api.policies(vhost)
        bindings = await api.bindings_from(vhost, self.exchange)
        if bindings is None or exchanges is None or policies is None:
            return f"the bindings of exchange {self.exchange!r} can't be read"
        exchange = exchanges.get(self.exchange)
        if exchange is None:
            return f"exchange {self.exchange!r} is missing"
        if exchange["type"] != self.type:
            return f"exchange {self.exchange!r} is of type {exchange['type']}"
        arguments = exchange.get("arguments") or {}
        if _ALTERNATE in arguments or _ALTERNATE in effective(Listed(self.exchange, "exchange"), policies, ()).values:
            return f"exchange {self.exchange!r} has an alternate exchange, whose queues could get the message"
        found = ((each["routing_key"], each["destination"]) for each in bindings if each["routing_key"] != key)
        taker = catching(found, key, type_=self.type)
        if taker is not None:
            return f"{taker!r} is bound to exchange {self.exchange!r} for every routing key"
        return None if self.queue is None else await self._dead_letters(self.queue)

    async def _dead_letters(self, queue: Listed) -> str | None:
        """The message expires if the link doesn't take it in time, and would be dead-lettered then."""
        queues = await self.api.queues(self.vhost)
        policies, operators = await self.api.policies(self.vhost), await self.api.operator_policies(self.vhost)
        if queues is None or policies is None or operators is None:
            return f"whether the link's queue {queue.name!r} has a dead-letter exchange can't be read"
        found = effective(queues.get(queue.name, queue), policies, operators)
        if _DEAD_LETTERS not in found.values:
            return None
        source = found.sources[_DEAD_LETTERS]
        what = f"the link's queue {queue.name!r} has a dead-letter exchange by {source}"
        return f"{what}, whose queues could get the message"


@dataclass(frozen=True, slots=True)
class Sides:
    upstream: Side
    downstream: Side

    async def refusal(self, key: str) -> str | None:
        for side in (self.upstream, self.downstream):
            why = await side.refusal(key)
            if why is not None:
                return f"{side.name}, {why}"
        return None

    async def fresh_refusal(self, key: str) -> str | None:
        """By answers that are asked for now."""
        for side in (self.upstream, self.downstream):
            side.api.forget()
        return await self.refusal(key)
