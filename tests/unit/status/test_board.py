from __future__ import annotations

from agent.amqp.wire.splice import Counts
from agent.core.lifecycle import Failed, LinkState, Phase
from agent.core.model import Exchange, Link, LinkKind, LinkSettings
from agent.core.uri import parse
from agent.status.board import Board, Gauges
from agent.status.native import link_view

LINK = Link(
    "1a2b3c4d", LinkKind.EXCHANGE, "/", "orders", "origin", (parse("amqp://u:s3ntinel@h:5672/%2f"),), "there",
    LinkSettings(), "p", exchange=Exchange("orders", "topic"),
)  # fmt: skip
RUNNING = LinkState(phase=Phase.OPEN, started=True)
BROKEN = LinkState(phase=Phase.WAITING, started=True, failure=Failed("connection refused"))


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def board() -> tuple[Board, Clock]:
    clock = Clock()
    made = Board(clock, "dc2-a")
    made.put(LINK, LinkState(), Counts(forwarded=3, dropped={"max_hops": 2}), lambda: Gauges(in_flight=7, bindings=2))
    return made, clock


def test_a_link_as_the_api_tells_it() -> None:
    made, _ = board()
    made.changed(LINK.id, RUNNING)
    view = made.view(made[LINK.id])
    assert (view["id"], view["kind"], view["exchange"], view["upstream_exchange"]) == (
        "1a2b3c4d", "exchange", "orders", "there",
    )  # fmt: skip
    assert (view["status"], view["error"], view["owner"]) == ("running", None, "dc2-a")
    assert (view["forwarded"], view["dropped"], view["in_flight"], view["bindings"]) == (3, 2, 7, 2)
    assert view["uri"] == "amqp://h:5672/%2f"
    assert view["since"] == "2027-01-15T08:00:00.000Z"


def test_since_tells_when_the_status_changed_and_nothing_else() -> None:
    made, clock = board()
    made.changed(LINK.id, RUNNING)
    begun = made[LINK.id].since
    clock.now += 10
    made.changed(LINK.id, LinkState(phase=Phase.OPEN, started=True, attempt=3))
    assert made[LINK.id].since == begun
    made.changed(LINK.id, BROKEN)
    assert made[LINK.id].since == begun + 10
    assert made[LINK.id].reconnects == 1


def test_the_native_route_gives_the_native_names() -> None:
    made, _ = board()
    made.changed(LINK.id, BROKEN)
    view = link_view(made, made[LINK.id])
    assert view["status"] == "error"
    assert view["error"] == "connection refused"
    assert (view["type"], view["exchange"], view["upstream_exchange"]) == ("exchange", "orders", "there")
    assert view["timestamp"] == "2027-01-15 08:00:00"


def test_what_is_gone_is_told_no_more() -> None:
    made, _ = board()
    made.gone(LINK.id)
    made.changed(LINK.id, RUNNING)
    assert list(made) == []
    assert LINK.id not in made


def test_a_link_that_is_wanted_again_while_it_goes_is_counted_anew() -> None:
    made, _ = board()
    made.put(LINK, LinkState(), Counts(forwarded=1), lambda: Gauges(in_flight=5))
    assert [(entry.meter.forwarded, entry.gauges().in_flight) for entry in made] == [(1, 5)]
