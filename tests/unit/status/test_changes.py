from __future__ import annotations

import tracemalloc
from dataclasses import replace

from agent.amqp.data.splice import Counts
from agent.core.export_event import Reason
from agent.core.links.lifecycle import LinkState, Status
from agent.status.board import Board
from agent.status.changes import KEPT, RecentTransitions, Transition, transition_view
from agent.status.entry import Gauges
from tests.unit.status.serving import Serve
from tests.unit.status.test_board import BROKEN, LINK, RUNNING, Clock


def board() -> Board:
    made = Board(Clock(), "dc2-a")
    made.put(LINK, LinkState(), Counts(), lambda: Gauges(upstream_cluster="far"))
    return made


def told(made: Board, after: int = 0) -> list[tuple[str | None, str | None, str, str | None]]:
    views = [transition_view(each) for each in made.transitions.after(after)]
    return [(each["previous"], each["status"], each["reason"], each["error"]) for each in views]


def test_changes_of_all_links_are_kept_also_of_one_that_is_gone() -> None:
    made = board()
    made.changed(LINK.id, RUNNING)
    made.changed(LINK.id, BROKEN)
    made.changed(LINK.id, replace(BROKEN))
    made.gone(LINK.id)
    made.gone(LINK.id)
    assert told(made) == [
        (None, "starting", "appeared", None),
        ("starting", "running", "opened", None),
        ("running", "backoff", "upstream_other", "connection refused"),
        ("backoff", None, "removed", None),
    ]
    assert told(made, after=3) == told(made)[3:]
    assert told(made, after=4) == []
    assert transition_view(made.transitions.after(3)[0])["upstream_cluster"] == "far"


def test_a_number_of_another_process_brings_everything() -> None:
    assert len(told(board(), after=900)) == 1


def test_what_is_kept_is_bounded() -> None:
    recent = RecentTransitions()
    tracemalloc.start()
    for at in range(3 * KEPT):
        recent.add(Transition(float(at), LINK, None, Status.RUNNING, None, Reason.OPENED, ""))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = recent.after(0)
    assert (len(found), found[-1].seq, found[0].seq) == (KEPT, 3 * KEPT, 2 * KEPT + 1)
    assert size < 1024**2


async def test_they_are_asked_for_over_http(serve: Serve) -> None:
    served = await serve()
    served.board.changed(LINK.id, RUNNING)
    status, found = await served.ask("/api/transitions")
    assert (status, [each["status"] for each in found]) == (200, ["starting", "running"])
    _, later = await served.ask(f"/api/transitions?after={found[0]['seq']}")
    assert later == found[1:]
    for after in ("-1", "x", "9" * 40, "\N{SUPERSCRIPT TWO}"):
        assert (await served.ask(f"/api/transitions?after={after}"))[0] == 400
