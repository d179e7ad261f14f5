"""The links of a move, counted."""

from __future__ import annotations

from dataclasses import replace

from agent.amqp.data.splice import Counts
from agent.core.links.lifecycle import LinkState, Unwanted
from agent.core.migration.links import consumer_tag
from agent.core.model import Link
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.moves import MoveView, move_view
from tests.unit.core.some_links import queue_link, shovel_link
from tests.unit.status.test_board import BROKEN, LINK, RUNNING, STANDBY, Clock

TAG = consumer_tag("new")


def moving(link_id: str) -> Link:
    link = queue_link()
    return replace(link, id=link_id, settings=replace(link.settings, consumer_tag=TAG))


def board(**states: LinkState) -> Board:
    made = Board(Clock(), "dc2-a", cluster="new")
    made.put(LINK, RUNNING, Counts(forwarded=5), lambda: Gauges(backlog=7))
    for link_id, state in states.items():
        gauges = Gauges(backlog=2, backlog_is_exact=True, upstream_cluster="old")
        made.put(moving(link_id), LinkState(), Counts(forwarded=10), lambda gauges=gauges: gauges)  # type: ignore[misc]
        made.changed(link_id, state)
    return made


def seen(made: Board) -> MoveView:
    found = move_view(made)
    assert found is not None
    return found


def test_an_agent_that_moves_nothing() -> None:
    assert move_view(board()) is None


def test_links_by_how_they_are() -> None:
    found = seen(board(a=RUNNING, b=BROKEN, c=STANDBY))
    assert found == {
        "source": "old",
        "queues": 3,
        "running": 1,
        "elsewhere": 1,
        "not_working": 1,
        "waiting": 6,
        "waiting_is_exact": True,
        "forwarded": 30,
    }


def test_what_waits_is_what_was_last_known() -> None:
    made = board(a=RUNNING, b=RUNNING)
    made["b"].gauges().backlog = None
    assert (seen(made)["waiting"], seen(made)["waiting_is_exact"]) == (4, False)
    made = board()
    made.put(moving("a"), RUNNING, Counts(), Gauges)
    assert (seen(made)["waiting"], seen(made)["waiting_is_exact"]) == (None, False)


def test_a_shovel_of_a_move_and_one_that_is_being_removed() -> None:
    shovel = shovel_link()
    tagged = replace(shovel, shovel=replace(shovel.shovel, settings=replace(shovel.settings, consumer_tag=TAG)))
    made = board(a=replace(RUNNING, unwanted=Unwanted(0.0)))
    made.put(tagged, RUNNING, Counts(), Gauges)
    assert seen(made)["queues"] == 1
