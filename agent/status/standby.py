"""`/api/standby`: how the standby stands, as far as this agent knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from agent.core.links.lifecycle import Status
from agent.core.rules.names import STANDBY
from agent.core.standby.status import StandbyLinks
from agent.core.text.quantities import counted, in_full, rfc3339
from agent.status.board import Board
from agent.status.entry import BoardEntry
from agent.status.json_schema import Count, Time

if TYPE_CHECKING:
    from agent.core.standby.status import StandbyStatus

_WORKING: Final = frozenset({Status.RUNNING, Status.STANDBY})


class StandbyQueueView(TypedDict):
    vhost: str
    queue: str
    source: Annotated[Count | None, "Messages there, ready and unacknowledged; null while unknown."]
    here: Annotated[Count | None, "Messages of its copy; null while unknown."]
    doubts: Annotated[list[str], "What may make the copy another one than its original."]


class StandbyView(TypedDict):
    of: str
    cluster: str | None
    in_step: bool
    why_not: list[str]
    promoted: Annotated[str | None, "When it was promoted; null while it is a standby."]
    followed: Annotated[Time | None, "When definitions were last followed."]
    links: Count
    waiting: Annotated[
        Count | None,
        "Messages that wait in the links, at the source and here; null while unknown, and where other agents of the "
        "group run some.",
    ]
    lag_seconds: Annotated[float | None, "The longest that a link's last probe took; null without `probe`."]
    held_back: Annotated[list[str], "Bindings that a promotion makes."]
    notes: Annotated[list[str], "What is here and not at the source, and what else would federate in its vhosts."]
    repeats_at_most: Annotated[Count | None, "Messages that a promotion now would repeat at most; null while unknown."]
    not_here: Annotated[Count, "Messages that the source holds and this cluster doesn't, at least."]
    queues: list[StandbyQueueView]


def standby_view(board: Board) -> StandbyView | None:
    status = board.standby
    if status is None:
        return None
    links, now = standby_links(board), board.clock()
    why_not = status.why_not_in_step(links, now)
    return {
        "of": status.settings.of,
        "cluster": board.cluster,
        "in_step": not why_not,
        "why_not": list(why_not),
        "promoted": status.promoted_at,
        "followed": None if status.followed_at is None else rfc3339(status.followed_at),
        "links": links.number,
        "waiting": None if links.elsewhere else links.waiting,
        "lag_seconds": links.lag,
        "held_back": [str(key) for key in status.held_back],
        "notes": [*status.notes, *_notes(board, status, links)],
        "repeats_at_most": status.repeats_at_most,
        "not_here": sum(status.not_here.values()),
        "queues": list(_queues(status)),
    }


def standby_links(board: Board) -> StandbyLinks:
    of_standby = (entry for entry in board if entry.link.policy.startswith(STANDBY))
    entries = [entry for entry in of_standby if entry.state.unwanted is None]
    now = board.clock()
    for entry in entries:
        entry.note_lag(now)
    here = [entry for entry in entries if entry.gauges().runs_here]
    waiting = [entry.backlog_last for entry in here]
    known = [each for each in waiting if each is not None]
    lags = [lag for entry in entries if (lag := entry.gauges().lag) is not None]
    return StandbyLinks(
        len(entries),
        tuple(_named(entry) for entry in entries if entry.state.status not in _WORKING or entry.lag_is_critical),
        sum(known) if len(known) == len(waiting) else None,
        max(lags, default=None),
        len(entries) - len(here),
    )


def _notes(board: Board, status: StandbyStatus, links: StandbyLinks) -> Iterator[str]:
    yield from (each for each in board.not_run if each.startswith(f"{status.settings.place}:"))
    if links.elsewhere:
        what = counted(links.elsewhere, "link runs", "links run")
        yield f"{what} in other agents of the group: ask these, too"


def _named(entry: BoardEntry) -> str:
    why = f": {entry.state.error}" if entry.state.error else ""
    if not why and entry.lag_is_critical:
        why = ": too much waits" if entry.behind is None else f": {in_full(entry.behind)} behind"
    return f"{entry.link.name!r} in vhost {entry.link.vhost!r} ({entry.state.status}{why})"


def _queues(status: StandbyStatus) -> Iterator[StandbyQueueView]:
    doubts: dict[object, list[str]] = {}
    lacking = {
        key: f"at least {number:,} of the source's messages aren't here" for key, number in status.not_here.items()
    }
    standing = ((each.queue, each.doubt) for each in status.doubts)
    for key, doubt in (*standing, *lacking.items(), *status.trim_doubts.items()):
        doubts.setdefault(key, []).append(doubt)
    for key, (source, here) in sorted(status.depths.items(), key=lambda item: str(item[0])):
        yield {"vhost": key.vhost, "queue": key.name, "source": source, "here": here, "doubts": doubts.get(key, [])}
