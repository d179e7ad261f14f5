"""What a connection to the destination that is cut midway loses and doubles, and whether the rest comes by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil
from typing import Final

from tests.bench.scene import Pair, Scene
from tests.bench.sides import Side
from tests.bench.work import Shovel
from tests.lab import user_program
from tests.lab.waiting import eventually

COUNT: Final = 10_000
SIZE: Final = 1_024
MIDWAY: Final = 120.0
ENOUGH_STILL: Final = 3.0
STILL: Final = 20.0  # several times what programs wait before they connect again
BETWEEN_LOOKS: Final = 0.2
GONE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Cut:
    """Of numbered messages: how many are at neither end, how many came again, how many nobody moves any more."""

    lost: int
    twice: int
    left: int
    still: float  # the longest time without an arrival, in seconds

    @property
    def goes_on(self) -> str:
        return f"no, {self.left} stay" if self.left else f"within {ceil(self.still)} s"


def cut(pair: Pair, side: Side) -> Cut:
    """Once half of all messages has passed, by RST; new connections are served at once."""
    sent = [each.ljust(SIZE) for each in user_program.numbered(COUNT)]
    with pair.lab.proxy(pair.down) as proxy, pair.scene(work=Shovel(port=proxy.port)) as scene:
        user_program.publish(scene.up_uri, "", scene.queue, sent)
        with side.ready(scene) as ready:
            ready.start()
            eventually(lambda: proxy.bytes_up > COUNT * SIZE / 2, MIDWAY, what="half of the messages passes")
            proxy.cut()
            still = _wait_until_still(scene)
        came = user_program.times(_taken(scene.down_uri, scene.queue))
        left = _taken(scene.up_uri, scene.queue)
    seen = Cut(len({*sent} - came.keys() - {*left}), sum(came.values()) - len(came), len(left), still)
    print(f"  {side.name}, cut: {seen.lost} lost, {seen.twice} twice; goes on: {seen.goes_on}", flush=True)
    return seen


def _wait_until_still(scene: Scene) -> float:
    """Until nothing arrives any more; the longest time before without an arrival."""
    longest, arrived, count = 0.0, time.monotonic(), -1
    while (idle := time.monotonic() - arrived) < (STILL if count < COUNT else ENOUGH_STILL):
        if (now := user_program.depth(scene.down_uri, scene.queue)) != count:
            longest, arrived, count = max(longest, idle), time.monotonic(), now
        time.sleep(BETWEEN_LOOKS)
    return longest


def _taken(uri: str, queue: str) -> list[str]:
    """All that is there, once nobody else has any of it."""
    eventually(lambda: not user_program.consumers(uri, queue), GONE, what="the queue has no consumer")
    return user_program.take(uri, queue, user_program.depth(uri, queue))
