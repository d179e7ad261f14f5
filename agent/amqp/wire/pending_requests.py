"""The requests of a channel that have no response yet, and how long they have waited.

Why: docs/decisions/0019-request-deadlines.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.amqp.wire import methods
from agent.amqp.wire.ends import one_line
from agent.amqp.wire.methods import Call, Method
from agent.errors import BrokerError

_NAMES: Final = ("queue", "exchange", "source", "consumer_tag")


@dataclass(frozen=True, slots=True, eq=False)
class PendingRequest:
    method: Method
    answer: Method
    values: Mapping[str, Any]
    future: asyncio.Future[Call]
    asked_at: float

    def __str__(self) -> str:
        """The method, and the name of its object."""
        name = next((self.values[each] for each in _NAMES if self.values.get(each)), None)
        return self.method.name if name is None else f"{self.method.name} {one_line(name)!r}"


class PendingRequests:
    """The requests without a response, in the order in which they were sent; times are the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: list[PendingRequest] = []  # an empty deque takes 0.7 KB, twice a link
        self._answered_at = 0.0

    def add(self, method: Method, answer: Method, values: Mapping[str, Any]) -> asyncio.Future[Call]:
        future: asyncio.Future[Call] = self._loop.create_future()
        self._open.append(PendingRequest(method, answer, values, future, self._loop.time()))
        return future

    def answer(self, call: Call) -> bool:
        """Give a response to the oldest request for it; return False if there is none. Responses of one kind keep their
        order; a queue itself answers basic.consume, later than the channel."""
        wanted = methods.BASIC_GET_OK if call.method is methods.BASIC_GET_EMPTY else call.method
        for question in self._open:
            if question.answer is wanted:
                self._open.remove(question)
                self._answered_at = self._loop.time()
                if not question.future.done():
                    question.future.set_result(call)
                return True
        return False

    def awaits(self, answer: Method) -> bool:
        return any(question.answer is answer for question in self._open)

    def values_of(self, ids: tuple[int, int]) -> Mapping[str, Any]:
        """The arguments of the oldest request for this method; empty if there is none."""
        return next((each.values for each in self._open if each.method.ids == ids), {})

    def overdue(self, *, patience: float, since: float) -> PendingRequest | None:
        """The oldest request, if no request was answered for `patience` seconds in which the broker could have
        answered, counted from `since` at the earliest; otherwise None. Each response restarts the time: thousands may
        be in flight to a broker that handles them one by one."""
        if not self._open:
            return None
        oldest = self._open[0]
        waited = self._loop.time() - max(oldest.asked_at, self._answered_at, since)
        return oldest if waited >= patience else None

    def end(self, error: BrokerError) -> None:
        """Give `error` to all requests: there will be no more responses."""
        ended, self._open = self._open, []
        for future in (question.future for question in ended):
            if not future.done():
                future.set_exception(error)
                future.exception()  # of concurrent requests, some responses may never be awaited
