"""How many messages pass a link a second, and what each costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from statistics import median
from typing import Any, Final

from tests.bench.bench import Bench
from tests.bench.load import WINDOW
from tests.bench.measures.far import FAR
from tests.bench.process import Meter
from tests.bench.scene import Scene
from tests.bench.sides import Agent, Native, Side, running
from tests.bench.table import Measure, Target
from tests.bench.work import AMQP10_SHOVELS, EXCHANGES, QUEUES, SHOVELS, Work

SIZE: Final = 1024
QUICK: Final = 30_000
FULL: Final = 100_000
MICRO: Final = 1_000_000
MILLI: Final = 1_000
# Where the publisher needs that much of the whole time, nothing could have been quicker than it.
KEEPS_UP: Final = 0.95


def live(bench: Bench) -> list[Measure]:
    """Publisher, upstream exchange, link, downstream queue, consumer: all at once."""
    found = _measures("live", rate=Target(at_least=1.0), cpu=Target(at_most=0.95))
    return _live(bench, found, sides=bench.turns())


def live_far(bench: Bench) -> list[Measure]:
    """The same with 100 ms between the link and the upstream."""
    found = _measures("live-100ms", rate=Target(at_least=2.0 if bench.is_recent else 1.5))
    return _live(bench, found, sides=bench.turns(), round_trip=FAR)


def live_tls(bench: Bench) -> list[Measure]:
    """The same with TLS between the link and the upstream; what that costs the agent."""
    found = _measures("live-tls", own=10.0)
    return _live(bench, found, sides=repeat(Agent(), bench.runs), tls=True)


def drain(bench: Bench) -> list[Measure]:
    """A backlog that was collected while there was no link."""
    arguments = _arguments_of_native(bench)
    return _drain(bench, _measures("drain"), lambda scene, count: _collect(scene, arguments, count))


def shovel_live(bench: Bench) -> list[Measure]:
    """Publisher, queue upstream, shovel, queue downstream, consumer: all at once."""
    found = _measures("shovel-live", rate=Target(at_least=1.0), cpu=Target(at_most=1.0), own=6.0)
    return _live(bench, found, sides=bench.turns(), work=SHOVELS)


def shovel_drain(bench: Bench) -> list[Measure]:
    """A shovel empties a queue that nothing is published to."""
    return _drain_queue(bench, "shovel-drain", SHOVELS)


def amqp10_drain(bench: Bench) -> list[Measure]:
    """A shovel with AMQP 1.0 at both ends empties a queue; brokers before 4.0 have other addresses."""
    if not bench.is_recent:
        return []
    found = _measures("amqp10-drain", rate=Target(at_least=1.0), cpu=Target(at_most=1.0), own=20.0)
    return _drain(bench, found, fill, work=AMQP10_SHOVELS)


def queue_drain(bench: Bench) -> list[Measure]:
    """A queue link empties a queue that nothing is published to."""
    return _drain_queue(bench, "queue-link-drain", QUEUES)


def _drain_queue(bench: Bench, name: str, work: Work) -> list[Measure]:
    found = _measures(name, rate=Target(at_least=1.2 if bench.is_recent else 1.05), cpu=Target(at_most=1.0), own=6.0)
    found["first"] = Measure(f"{name}-first", "ms from the definition to the first message", digits=0)
    return _drain(bench, found, fill, work=work)


def fill(scene: Scene, count: int) -> None:
    with scene.publisher() as publisher:
        publisher.ask("publish", count=count, size=SIZE, window=WINDOW).answer()


def _drain(
    bench: Bench, found: dict[str, Measure], fill: Callable[[Scene, int], None], *, work: Work = EXCHANGES
) -> list[Measure]:
    count = _count(bench)
    for side in bench.turns():
        with bench.pair.scene(work=work) as scene:
            fill(scene, count)
            with side.ready(scene) as ready, scene.consumer() as consumer:
                meter = Meter({**bench.pair.pids, **ready.processes})
                consumer.ask("count", count=count)
                began = ready.start()
                came = consumer.answer()
                _add(found, side, count=count, seconds=came["last"] - came["first"], meter=meter)
                if "first" in found:
                    found["first"].add(side.name, (came["first"] - began) * MILLI)
    return list(found.values())


def _measures(
    name: str, *, rate: Target | None = None, cpu: Target | None = None, own: float = 5.0
) -> dict[str, Measure]:
    return {
        "rate": Measure(f"{name}-rate", "messages/s, higher is better", (rate,) if rate else (), digits=0),
        "cpu": Measure(f"{name}-cpu", "µs a message, brokers and agent", (cpu,) if cpu else (), digits=1),
        "agent": Measure(
            f"{name}-agent-cpu", "µs a message, the agent alone", (Target(at_most=own, of_agent=True),), digits=1
        ),
    }


def _count(bench: Bench) -> int:
    return FULL if bench.full else QUICK


def _live(
    bench: Bench,
    found: dict[str, Measure],
    *,
    sides: Iterable[Side],
    round_trip: float = 0.0,
    tls: bool = False,
    work: Work = EXCHANGES,
) -> list[Measure]:
    count = _count(bench)
    limited: dict[str, list[float]] = {}
    for side in sides:
        with (
            bench.pair.scene(round_trip, tls=tls, work=work) as scene,
            running(scene, side) as processes,
            scene.publisher() as publisher,
        ):
            scene.check_sample(publisher, SIZE)
            with scene.consumer() as consumer:
                meter = Meter({**bench.pair.pids, **processes})
                consumer.ask("count", count=count)
                sent = publisher.ask("publish", count=count, size=SIZE, window=WINDOW).answer()
                came = consumer.answer()
                seconds = came["last"] - sent["began"]
                _add(found, side, count=count, seconds=seconds, meter=meter)
                limited.setdefault(side.name, []).append((sent["ended"] - sent["began"]) / seconds)
    shares = {name: median(values) for name, values in limited.items()}
    alone = _publisher_alone(bench, count)
    told = ", ".join(f"{share:.0%} of {name}'s time" for name, share in shares.items())
    limits = " and ".join(name for name, share in shares.items() if share > KEEPS_UP)
    found["rate"].note = f"the publisher alone, into an upstream queue, does {alone:.0f}/s; publishing took {told}" + (
        f": the publisher's end of it limits {limits}" if limits else ""
    )
    return list(found.values())


def _publisher_alone(bench: Bench, count: int) -> float:
    """Without any link: a durable queue upstream takes what comes."""
    with bench.pair.scene() as scene:
        scene.furnish_queue_upstream()
        with scene.publisher() as publisher:
            sent = publisher.ask("publish", count=count, size=SIZE, window=WINDOW).answer()
    return float(count / (sent["ended"] - sent["began"]))


def _add(found: dict[str, Measure], side: Side, *, count: int, seconds: float, meter: Meter) -> None:
    spent = meter.spent()
    found["rate"].add(side.name, count / seconds)
    found["cpu"].add(side.name, sum(spent.values()) * MICRO / count)
    if "agent" in spent:
        found["agent"].add(side.name, spent["agent"] * MICRO / count)
    each = ", ".join(f"{name} {seconds * MICRO / count:.1f} µs" for name, seconds in spent.items())
    print(f"  {side.name}: {count / seconds:.0f}/s, {each}", flush=True)


def _arguments_of_native(bench: Bench) -> dict[str, str]:
    """What the plugin declares its upstream queue with, which differs from release to release."""
    with bench.pair.scene() as scene, running(scene, Native()):
        told: dict[str, Any] = bench.pair.up.admin.get("queues", scene.vhost, scene.upstream_queue)["arguments"]
    unknown = {key: value for key, value in told.items() if not isinstance(value, str)}
    if unknown:
        raise ValueError(f"arguments of a type that the API doesn't tell: {json.dumps(unknown)}")
    return told


def _collect(scene: Scene, arguments: Mapping[str, str], count: int) -> None:
    """Fills the link's queue as the link would have, without one."""
    _bind_upstream_queue(scene, arguments)
    fill(scene, count)
    scene.pair.up.admin.delete("bindings", scene.vhost, "e", scene.exchange, "q", scene.upstream_queue, scene.key)


def _bind_upstream_queue(scene: Scene, arguments: Mapping[str, str]) -> None:
    """Over the HTTP API: pamqp refuses the queue's name."""
    admin = scene.pair.up.admin
    admin.queue(scene.vhost, scene.upstream_queue, arguments=arguments)
    admin.bind(scene.vhost, scene.exchange, scene.upstream_queue, scene.key)
