"""The links of moves, as `migrate run` and `migrate rollback` make them: in how many queues, and what waits.

That a queue has moved says `migrate status`, which sees more of the source than an agent may.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from agent.core.links.lifecycle import Status
from agent.core.model import Link
from agent.core.rules.names import MOVE_TAG
from agent.status.board import Board
from agent.status.entry import BoardEntry
from agent.status.json_schema import Count
from agent.status.standby import WORKING


class MoveView(TypedDict):
    source: Annotated[str | None, "Where messages come from; null where that is several clusters."]
    queues: Annotated[Count, "Queues that move, each by one link."]
    running: Annotated[Count, "Links that run here."]
    elsewhere: Annotated[Count, "Links that another agent runs."]
    not_working: Annotated[Count, "Links that do neither, or are behind."]
    waiting: Annotated[Count | None, "Messages at the source and on their way, as last known; null while unknown."]
    waiting_is_exact: Annotated[bool, "Whether no more than `waiting` do."]
    forwarded: Annotated[Count, "Messages that arrived since the agent started."]


def is_of_move(link: Link) -> bool:
    return (link.settings.consumer_tag or "").startswith(MOVE_TAG)


def move_view(board: Board) -> MoveView | None:
    """None where nothing moves."""
    found = [each for each in board if is_of_move(each.link) and each.state.status is not Status.REMOVING]
    if not found:
        return None
    now = board.clock()
    for each in found:
        each.note_lag(now)
    gauges = [each.gauges() for each in found]
    sources = {board.source_of(each.link, of).name for each, of in zip(found, gauges, strict=True)}
    waiting = [each.backlog_last if of.backlog is None else of.backlog for each, of in zip(found, gauges, strict=True)]
    known = [each for each in waiting if each is not None]
    return {
        "source": min(sources) if len(sources) == 1 else None,
        "queues": len(found),
        "running": sum(each.state.status is Status.RUNNING for each in found),
        "elsewhere": sum(each.state.status is Status.STANDBY for each in found),
        "not_working": sum(_does_not_work(each) for each in found),
        "waiting": sum(known) if known else None,
        "waiting_is_exact": all(each.backlog is not None and each.backlog_is_exact for each in gauges),
        "forwarded": sum(each.meter.forwarded for each in found),
    }


def _does_not_work(entry: BoardEntry) -> bool:
    return entry.state.status not in WORKING or bool(entry.lag_is_critical)
