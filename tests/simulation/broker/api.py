"""The HTTP API of a broker, as far as agents read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from agent.core.fields import Table, table_to_json
from tests.simulation.broker.queues import CREATED, Consumer
from tests.simulation.network import Stream

if TYPE_CHECKING:
    from tests.simulation.broker.broker import Broker

PORT: Final = 15672
LISTED_WITHIN: Final = 10.0  # seconds
_END: Final = b"\r\n\r\n"
_MISSING: Final = {"error": "Object Not Found", "reason": "Not Found"}
_OF_EXCHANGE: Final = "exchanges/%2F/"
_BINDINGS: Final = "/bindings/source"


class Api:
    """The server."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._visits: dict[_Visit, None] = {}
        self._changes: list[tuple[float, str, Consumer]] = []
        self.lists_late = 0.0
        """So many seconds old is what the list of consumers shows."""

    @property
    def is_up(self) -> bool:
        return self._broker.is_up

    def accept(self, stream: Stream) -> _Visit:
        visit = _Visit(stream, self._answer, self._left)
        self._visits[visit] = None
        return visit

    def _left(self, visit: _Visit) -> None:
        self._visits.pop(visit, None)

    def stop(self) -> None:
        self._changes.clear()
        for visit in tuple(self._visits):
            visit.drop()

    def note(self, what: str, consumer: Consumer) -> None:
        now = self._broker.now
        if self.lists_late:
            self._changes = [each for each in self._changes if now - each[0] < LISTED_WITHIN]
            self._changes.append((now, what, consumer))

    def _answer(self, path: str) -> Any:
        """None where there is no such route."""
        if path.startswith(_OF_EXCHANGE) and path.endswith(_BINDINGS):
            return self._bindings(path[len(_OF_EXCHANGE) : -len(_BINDINGS)])
        route = _ROUTES.get(path)
        return None if route is None else route(self)

    def _overview(self) -> Any:
        broker = self._broker
        return {
            "cluster_name": broker.cluster, "rabbitmq_version": broker.version, "product_name": "RabbitMQ",
            "product_version": broker.version, "disable_stats": False, "rates_mode": "basic",
        }  # fmt: skip

    def _vhosts(self) -> Any:
        return [{"name": "/"}]

    def _nothing(self) -> Any:
        return []

    def _nodes(self) -> Any:
        return [{"name": f"rabbit@{self._broker.cluster}", "running": True}]

    def _exchanges(self) -> Any:
        return [
            {
                "name": each.name, "type": each.type, "durable": each.durable, "auto_delete": each.auto_delete,
                "internal": each.internal, "arguments": _shown(each.arguments),
            }
            for each in self._broker.routing.exchanges.values()
        ]  # fmt: skip

    def _queues(self) -> Any:
        return [
            {
                "name": each.name, "type": "classic", "state": "running", "durable": each.durable,
                "auto_delete": each.auto_delete, "exclusive": each.owner is not None,
                "arguments": _shown(each.arguments), "messages": len(each.ready) + len(each.unacked),
            }
            for each in self._broker.queues.values()
        ]  # fmt: skip

    def _bindings(self, exchange: str) -> Any:
        return [
            {
                "source": each.source, "destination": each.destination, "routing_key": each.key,
                "destination_type": "queue" if each.to_queue else "exchange", "arguments": _shown(each.arguments),
            }
            for each in self._broker.routing.bound_from(exchange)
        ]  # fmt: skip

    def _consumers(self) -> Any:
        return [
            {
                "queue": {"name": each.queue.name}, "consumer_tag": each.tag, "arguments": _shown(each.arguments),
                "channel_details": {"node": f"rabbit@{self._broker.cluster}"},
            }
            for each in self._listed()
        ]  # fmt: skip

    def _listed(self) -> Iterator[Consumer]:
        """Those of a moment ago: what has changed since is undone."""
        then = self._broker.now - self.lists_late
        found = {each: None for queue in self._broker.queues.values() for each in queue.consumers}
        for at, what, consumer in reversed(self._changes):
            if at <= then:
                break
            if what == CREATED:
                found.pop(consumer, None)
            else:
                found[consumer] = None
        return iter(found)


_ROUTES: Final[dict[str, Callable[[Api], Any]]] = {
    "overview": Api._overview,
    "vhosts": Api._vhosts,
    "nodes": Api._nodes,
    "parameters": Api._nothing,
    "policies": Api._nothing,
    "exchanges/%2F": Api._exchanges,
    "queues/%2F": Api._queues,
    "consumers/%2F": Api._consumers,
}


def _shown(arguments: Table) -> Any:
    return table_to_json(arguments)


class _Visit:
    """One connection of a client."""

    def __init__(self, stream: Stream, answer: Callable[[str], Any], left: Callable[[_Visit], None]) -> None:
        self._stream = stream
        self._answer = answer
        self._left = left
        self._asked = bytearray()

    def received(self, data: bytes) -> None:
        self._asked += data
        while _END in self._asked:
            head, _, rest = bytes(self._asked).partition(_END)
            self._asked = bytearray(rest)
            self._reply(head.split(b" ", 2)[1].decode())

    def _reply(self, target: str) -> None:
        found = self._answer(target.removeprefix("/api/").partition("?")[0])
        status = "200 OK" if found is not None else "404 Not Found"
        body = json.dumps(_MISSING if found is None else found).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._stream.down.send(head.encode() + body)

    def lost(self) -> None:
        self._left(self)

    def drop(self) -> None:
        self._left(self)
        self._stream.close_from_server()
