"""Boards that several tests look at, and what the page shows of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from playwright.sync_api import Page, ViewportSize, expect

from agent.amqp.data.publish_tracker import Counts
from agent.amqp.failures import alarm_of
from agent.core.links.lifecycle import Blocked, LinkState, Phase
from agent.core.links.read_limits import RateLimit
from agent.core.migration.objects import queue_key
from agent.core.model import AddressSource, LinkSettings, ShovelSettings
from agent.core.rules.names import MOVE_TAG, STANDBY
from agent.core.standby.copies import StandbyDoubt
from agent.core.standby.settings import StandbySettings
from agent.core.standby.status import StandbyStatus
from agent.errors import Failure, FailureKind, Place, Side
from agent.status.entry import Gauges
from tests.integration.page.served import (
    PAUSED,
    RUNNING,
    STALLED,
    STARTING,
    Served,
    Shown,
    failed,
    failed_for,
    link,
    queue_link,
    shovel_link,
)

REFUSED: Final = failed("upstream paris: connection refused by paris.example:5672; see that a broker listens there")
DENIED: Final = failed(
    "upstream oslo: login refused for user fed on oslo.example:5672", FailureKind.LOGIN, permanent=True
)
REFUSED_QUEUE: Final = "ACCESS_REFUSED - configure access to queue '{}' in vhost '/' refused for user 'fed'"
NO_EXCHANGE: Final = "no chosen exchange is bound to it: what is published to it by its name can't be copied"
LONG: Final = "billing.invoices." + "created-and-paid." * 12 + "at-last"
MARKUP: Final = "<img src=x onerror=\"document.title='owned'\">"
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
WIDE: Final[ViewportSize] = {"width": 1440, "height": 900}


def few() -> list[Shown]:
    return [
        Shown(link(1, "orders.eu", remote="orders"), gauges=Gauges(in_flight=12, bindings=3, prefetch=500, backlog=41)),
        Shown(link(2, LONG, upstream="paris"), REFUSED, cluster=None),
        Shown(link(3, "orders.us", upstream="oslo", vhost="tenant"), DENIED, cluster="dc3"),
        Shown(link(4, "stock"), STALLED, gauges=Gauges(backlog=3_120, oldest_in_flight=41.2)),
        Shown(link(5, "prices"), PAUSED),
        Shown(link(6, "audit"), STARTING),
    ]


def converting(number: int) -> Shown:
    """A shovel from AMQP 1.0 to 0-9-1 whose messages lost something, and which its rate limit holds."""
    limit, found = RateLimit(messages=500), shovel_link(number, "move")
    source, settings = AddressSource("/queues/orders"), ShovelSettings(rate_limit=limit)
    shovel = replace(found.shovel, source=source, settings=settings)
    losses = {"footer": 3, "milliseconds of a time": 1_204}
    return Shown(
        replace(found, shovel=shovel), counts=Counts(converted_with_loss=losses), gauges=Gauges(limited_by=str(limit))
    )


def denied(queue: str) -> LinkState:
    about = {"user": "fed", "vhost": "/", "object": queue, "object_type": "queue", "permission": "configure"}
    failure = Failure(FailureKind.PERMISSION, Side.UPSTREAM, is_permanent=True, **about)
    return failed_for(REFUSED_QUEUE.format(queue), failure)


def blocked(why: str) -> LinkState:
    return LinkState(phase=Phase.OPEN, started=True, blocked=(Blocked(Side.DOWNSTREAM, why, alarm_of(why)),))


def sixty(served: Served) -> None:
    """Ten clusters down, five degraded, two paused, the others running; two links each."""
    states = [*[REFUSED] * 10, *[STALLED] * 5, *[PAUSED] * 2, *[RUNNING] * 43]
    served.put(
        [
            Shown(link(at * 10 + each, f"x{each}.{at}", upstream=f"dc{at}"), state, cluster=f"site-{at:02}")
            for at, state in enumerate(states)
            for each in range(2)
        ]
    )


def standby(served: Served, **about: Any) -> None:
    """Of `origin`, in step unless `about` says otherwise, with three queues in doubt."""
    queues = [queue_key("shop", name) for name in ("orders", "rpc", "invoices")]
    reasons = ("messages waited at the source at each look", NO_EXCHANGE, "it has a maximum length")

    def fill() -> None:
        now = served.board.clock()
        served.board.standby = StandbyStatus(
            StandbySettings("origin", {}, 3600.0, 1800.0, None, Place("agent.yaml")),
            **{
                "followed_at": now,
                "depths": dict.fromkeys(queues, (3, 1204)),
                "depths_at": now,
                "doubts": tuple(map(StandbyDoubt, queues, reasons)),
                **about,
            },
        )

    served.put([Shown(replace(link(at, name), policy=STANDBY)) for at, name in enumerate(("orders", "events"))])
    served.do(fill)
    for entry in served.board:
        entry.gauges().backlog, entry.gauges().lag = 2, 0.02
        entry.note_backlog(served.board.clock())


def move(served: Served) -> None:
    """Of three queues, of which one can't be reached."""
    tag = replace(LinkSettings(), consumer_tag=f"{MOVE_TAG}dc2")
    links = [replace(queue_link(0x100 + at, f"q{at}", remote=f"q{at}"), settings=tag) for at in range(3)]
    served.put(
        [
            Shown(each, state, "old", Counts(forwarded=1_000), Gauges(backlog=600))
            for each, state in zip(links, (RUNNING, RUNNING, REFUSED), strict=True)
        ]
    )


def outage(served: Served, number: int) -> list[Shown]:
    links = [Shown(link(at, f"x{at}", upstream="paris"), cluster="paris") for at in range(number)]
    served.put([*links, Shown(link(9_999, "elsewhere"))])
    for each in links:
        served.change(each, REFUSED)
    return links


def forwarding(served: Served, shown: Shown, hours: float) -> None:
    """A link's record of so many hours, as if it had forwarded a message a second."""

    def record() -> None:
        now = served.board.clock()
        for ago in range(int(hours * 3600), 0, -15):
            shown.counts.forwarded += 15
            shown.gauges.backlog = 5_000 if 7_200 <= ago < 7_300 else 10
            entry = served.board[shown.link.id]
            entry.history.add_sample(entry.sample_at(now - ago))

    served.do(record)


def pair_of_agents(here: Served, there: Served) -> None:
    """Beside dc2 and dc1, with links both ways; the one beside dc2 asks the other."""
    here.peers = [there.url.replace("://", "://agent:t0ken@")]
    here.put([Shown(link(at, f"x{at}"), RUNNING if at else REFUSED, cluster="dc1") for at in range(3)])
    here.put([Shown(link(9, "y"), cluster="dc9")])
    there.put([Shown(link(at, f"z{at}"), cluster="dc2") for at in range(2)])


def names(page: Page) -> list[str]:
    return page.locator("#rows .name").all_inner_texts()


def expect_names(page: Page, *wanted: str) -> None:
    expect(page.locator("#rows .name")).to_have_text(list(wanted))
