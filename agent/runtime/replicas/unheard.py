"""What operators asked for and this agent passed on, until the broker has confirmed that the others will hear it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agent.amqp.wire import methods
from agent.core.replicas.messages import Asked
from agent.runtime.replicas.requests import MOST


class Unheard:
    """Of one channel, whose broker confirms everything that is published there, by its number."""

    def __init__(self) -> None:
        self._published = 0
        self._waiting: deque[tuple[int, Asked]] = deque(maxlen=MOST)

    def count(self) -> None:
        """Something was published."""
        self._published += 1

    def expect(self, asked: Asked) -> None:
        """It was published last, or couldn't be."""
        self._waiting.append((self._published, asked))

    def confirmed(self, call: methods.Call) -> None:
        number, are_all = call["delivery_tag"], call["multiple"]
        if call.method is methods.BASIC_ACK and self._waiting:
            left = [each for each in self._waiting if each[0] > number or (each[0] < number and not are_all)]
            self._waiting = deque(left, MOST)

    def __iter__(self) -> Iterator[Asked]:
        return (asked for _, asked in self._waiting)
