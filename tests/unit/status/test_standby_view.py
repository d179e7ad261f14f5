"""A standby as the API, the metrics and the command show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.amqp.data.splice import Counts
from agent.cli.standby import LEFT, NO_STANDBY, NOT_IN_STEP, show
from agent.core.links.lag import LagCritical
from agent.core.links.lifecycle import LinkState, Phase, Unwanted
from agent.core.migration.objects import queue_key
from agent.core.model import LinkSettings
from agent.core.rules.names import STANDBY
from agent.core.standby.copies import StandbyDoubt, StandbyGone
from agent.core.standby.settings import StandbySettings
from agent.core.standby.status import LOOKS, StandbyStatus
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.metrics import exposition
from agent.status.standby import LONGEST_SHOWN, MOST_SHOWN, StandbyView, standby_in_short, standby_view
from tests.unit.core.migration.clusters import ALL, HERE
from tests.unit.status.serving import Serve
from tests.unit.status.test_board import BROKEN, LINK, Clock

RUNNING = LinkState(phase=Phase.OPEN, started=True)
Q = queue_key("v", "q")


def board(state: LinkState = RUNNING) -> Board:
    made = Board(Clock(), "dc2-a", cluster="here")
    made.put(replace(LINK, policy=STANDBY), LinkState(), Counts(), lambda: Gauges(backlog=4, lag=0.5))
    made.changed(LINK.id, state)
    now = made.clock()
    made.standby = StandbyStatus(
        StandbySettings("origin", ALL, 3600.0, 1800.0, None, HERE),
        followed_at=now,
        depths={Q: (1, 3)},
        depths_at=now,
        doubts=(StandbyDoubt(Q, "first"),),
        trim_doubts={Q: "second"},
    )
    return made


def seen(made: Board) -> StandbyView:
    found = standby_view(made)
    assert found is not None
    return found


def test_a_standby_in_step() -> None:
    made = board()
    made[LINK.id].note_backlog(made.clock())
    found = seen(made)
    assert (found["in_step"], found["links"], found["waiting"], found["lag_seconds"]) == (True, 1, 4, 0.5)
    assert found["repeats_at_most"] == 3
    assert found["queues"] == [{"vhost": "v", "queue": "q", "source": 1, "here": 3, "doubts": ["first", "second"]}]


def test_what_the_source_has_and_is_not_here() -> None:
    made = board()
    assert made.standby is not None
    for _ in range(LOOKS):
        made.standby.note_depths({Q: (8, 1)}, made.clock())
    found = seen(made)
    assert found["not_here"] == 7
    assert found["queues"][0]["doubts"] == ["first", "at least 7 of the source's messages aren't here", "second"]


def test_links_of_other_agents_are_known_there() -> None:
    made = board()
    other = replace(LINK, id="another", policy=STANDBY)
    made.put(other, LinkState(), Counts(), lambda: Gauges(runs_here=False))
    made[LINK.id].note_backlog(made.clock())
    made.changed(other.id, LinkState(standby="agent b runs it"))
    found = seen(made)
    assert (found["why_not"], found["links"], found["waiting"]) == ([], 2, None)
    assert found["notes"] == ["1 link runs in other agents of the group: ask these, too"]


def test_a_link_that_does_not_work() -> None:
    found = seen(board(BROKEN))
    assert not found["in_step"]
    assert "'orders' in vhost '/' (backoff: connection refused)" in found["why_not"][0]


def test_in_short_it_is_as_large_with_any_number_of_queues_and_reasons() -> None:
    made = board()
    assert made.standby is not None
    queues = [queue_key("v", f"q{at:03}") for at in range(500)]
    made.standby.depths = dict.fromkeys(queues, (1, 1))
    made.standby.doubts = tuple(StandbyDoubt(each, "doubt") for each in reversed(queues))
    made.standby.trim_doubts = {}
    made.standby.follow_error = "e" * 5_000
    made.standby.gone = StandbyGone(vhosts=tuple(f"v{at}" for at in range(500)))
    found = standby_in_short(made)
    assert found is not None
    assert not found["in_step"]
    assert found["in_doubt"] == 500
    assert [each["queue"] for each in found["first_in_doubt"]] == ["q000", "q001", "q002", "q003", "q004"]
    assert len(found["why_not"]) == MOST_SHOWN + 1
    assert found["why_not"][-1] == "and 496 more reasons"
    assert max(map(len, found["why_not"])) == LONGEST_SHOWN
    assert len(seen(made)["why_not"]) > 500


@pytest.mark.parametrize("phase", [Phase.OPEN, Phase.CLEANING])
def test_links_that_end_are_none_any_more(phase: Phase) -> None:
    assert seen(board(LinkState(phase=phase, started=True, unwanted=Unwanted(0.0))))["links"] == 0


def test_a_link_that_is_behind() -> None:
    made = board()
    link = replace(LINK, policy=STANDBY, settings=LinkSettings(lag_critical=LagCritical(seconds=60.0)))
    made.put(link, LinkState(), Counts(), lambda: Gauges(backlog=4, lag=90.0))
    made.changed(LINK.id, RUNNING)
    assert "(running: 1 min 30 s behind)" in seen(made)["why_not"][0]


async def test_the_metrics() -> None:
    made = board()
    text = b"".join(await exposition(made)).decode()
    assert "\nfederation_agent_standby_in_step 1\n" in text
    assert "\nfederation_agent_standby_repeats_messages 3\n" in text
    assert made.standby is not None
    made.standby.promoted_at = "2026-01-01"
    assert "\nfederation_agent_standby_in_step " not in b"".join(await exposition(made)).decode()


async def test_an_agent_without_one(serve: Serve) -> None:
    served = await serve()
    assert (await served.ask("/api/standby"))[0] == 404
    served.board.standby = board().standby
    assert (await served.ask("/api/standby"))[1]["of"] == "origin"
    shown = (await served.ask("/api/overview"))[1]["standby"]
    assert (shown["of"], shown["in_doubt"], shown["first_in_doubt"][0]["queue"]) == ("origin", 1, "q")


class Answering:
    where = "agent"

    def __init__(self, found: Any) -> None:
        self._found = found

    def standby(self) -> Any:
        return self._found


@pytest.mark.parametrize(
    ("found", "status", "says"),
    [
        (seen(board()), 0, "cluster 'here' is in step with upstream 'origin'"),
        (seen(board(BROKEN)), NOT_IN_STEP, "is not in step"),
        (None, NO_STANDBY, ""),
    ],
)
def test_the_command(found: Any, status: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    remote: Any = Answering(found)
    assert show(remote, form="text") == status
    out = capsys.readouterr().out
    assert says in out
    assert ("! second" in out) is bool(found)
    assert LEFT == NOT_IN_STEP
