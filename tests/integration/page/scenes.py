"""Boards that several tests look at, and what the page shows of them."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page, ViewportSize, expect

from agent.amqp.failures import alarm_of
from agent.core.links.lifecycle import Blocked, LinkState, Phase
from agent.errors import Failure, FailureKind, Side
from agent.status.entry import Gauges
from tests.integration.page.served import PAUSED, RUNNING, STALLED, STARTING, Served, Shown, failed, failed_for, link

REFUSED: Final = failed("upstream paris: connection refused by paris.example:5672; see that a broker listens there")
DENIED: Final = failed(
    "upstream oslo: login refused for user fed on oslo.example:5672", FailureKind.LOGIN, permanent=True
)
REFUSED_QUEUE: Final = "ACCESS_REFUSED - configure access to queue '{}' in vhost '/' refused for user 'fed'"
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
