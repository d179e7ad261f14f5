"""The state of the standby, as far as this agent knows: for `/api/standby`, and in short for `/api/overview`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypedDict

from agent.core.links.lifecycle import Status
from agent.core.rules.names import STANDBY
from agent.core.standby.status import StandbyLinks
from agent.core.text import counted, in_full, rfc3339
from agent.status.board import Board
from agent.status.entry import BoardEntry
from agent.status.json_schema import Count, Time

if TYPE_CHECKING:
    from agent.core.migration.objects import ObjectKey
    from agent.core.standby.status import StandbyStatus

WORKING: Final = frozenset({Status.RUNNING, Status.STANDBY})
MOST_SHOWN: Final = 5
LONGEST_SHOWN: Final = 1_000  # characters of a reason
_Doubts: TypeAlias = "Mapping[ObjectKey, Sequence[str]]"


class StandbyQueueView(TypedDict):
    vhost: str
    queue: str
    source: Annotated[Count | None, "Messages there, ready and unacknowledged; null while unknown."]
    here: Annotated[Count | None, "Messages of its copy; null while unknown."]
    doubts: Annotated[list[str], "What may make the copy another one than its original."]


class _Standing(TypedDict):
    of: str
    in_step: bool
    why_not: list[str]
    promoted: Annotated[str | None, "When it was promoted; null while it is a standby."]
    links: Count
    waiting: Annotated[
        Count | None,
        "Messages that wait in the links, at the source and here; null while unknown, and where other agents of the "
        "group run some.",
    ]
    lag_seconds: Annotated[float | None, "The longest that a link's last probe took; null without `probe`."]
    repeats_at_most: Annotated[Count | None, "Messages that a promotion now would repeat at most; null while unknown."]
    not_here: Annotated[Count, "Messages that the source holds and this cluster doesn't, at least."]
    in_doubt: Annotated[Count, "Queues whose copies may be other ones than their originals."]


class StandbyView(_Standing):
    cluster: str | None
    followed: Annotated[Time | None, "When definitions were last followed."]
    held_back: Annotated[list[str], "Bindings that a promotion makes."]
    notes: Annotated[list[str], "What is here and not at the source, and what else would federate in its vhosts."]
    queues: list[StandbyQueueView]


class StandbyInShort(_Standing):
    first_in_doubt: Annotated[list[StandbyQueueView], f"At most {MOST_SHOWN} of those in doubt."]


def standby_view(board: Board) -> StandbyView | None:
    status = board.standby
    if status is None:
        return None
    doubts, links = _doubts(status), standby_links(board)
    return {
        **_standing(board, status, doubts, links),
        "cluster": board.cluster,
        "followed": None if status.followed_at is None else rfc3339(status.followed_at),
        "held_back": [str(key) for key in status.held_back],
        "notes": [*status.notes, *_notes(board, status, links)],
        "queues": [_queue(status, key, doubts) for key in sorted(status.depths, key=str)],
    }


def standby_in_short(board: Board) -> StandbyInShort | None:
    """As large with any number of queues."""
    status = board.standby
    if status is None:
        return None
    doubts = _doubts(status)
    found, first = _standing(board, status, doubts, standby_links(board)), nsmallest(MOST_SHOWN, doubts, key=str)
    why_not = [each[:LONGEST_SHOWN] for each in found["why_not"]]
    more = [f"and {len(why_not) - MOST_SHOWN:,} more reasons"] if len(why_not) > MOST_SHOWN else []
    return {
        **found,
        "why_not": why_not[:MOST_SHOWN] + more,
        "first_in_doubt": [_queue(status, key, doubts) for key in first],
    }


def _standing(board: Board, status: StandbyStatus, doubts: _Doubts, links: StandbyLinks) -> _Standing:
    why_not = status.why_not_in_step(links, board.clock())
    return {
        "of": status.settings.of,
        "in_step": not why_not,
        "why_not": list(why_not),
        "promoted": status.promoted_at,
        "links": links.number,
        "waiting": None if links.elsewhere else links.waiting,
        "lag_seconds": links.lag,
        "repeats_at_most": status.repeats_at_most,
        "not_here": sum(status.not_here.values()),
        "in_doubt": len(doubts),
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
        tuple(_named(entry) for entry in entries if entry.state.status not in WORKING or entry.lag_is_critical),
        sum(known) if len(known) == len(waiting) else None,
        max(lags, default=None),
        len(entries) - len(here),
    )


def _notes(board: Board, status: StandbyStatus, links: StandbyLinks) -> Iterator[str]:
    yield from (str(each) for each in board.not_run if each.place == status.settings.place)
    if links.elsewhere:
        what = counted(links.elsewhere, "link runs", "links run")
        yield f"{what} in other agents of the group: ask these, too"


def _named(entry: BoardEntry) -> str:
    why = f": {entry.state.error}" if entry.state.error else ""
    if not why and entry.lag_is_critical:
        why = ": too much waits" if entry.behind is None else f": {in_full(entry.behind)} behind"
    return f"{entry.link.name!r} in vhost {entry.link.vhost!r} ({entry.state.status}{why})"


def _doubts(status: StandbyStatus) -> _Doubts:
    """Of the queues that were looked at."""
    found: dict[ObjectKey, list[str]] = {}
    standing = ((each.queue, each.doubt) for each in status.doubts)
    lacking = {
        key: f"at least {number:,} of the source's messages aren't here" for key, number in status.not_here.items()
    }
    for key, doubt in (*standing, *lacking.items(), *status.trim_doubts.items()):
        if key in status.depths:
            found.setdefault(key, []).append(doubt)
    return found


def _queue(status: StandbyStatus, key: ObjectKey, doubts: _Doubts) -> StandbyQueueView:
    source, here = status.depths[key]
    return {
        "vhost": key.vhost,
        "queue": key.name,
        "source": source,
        "here": here,
        "doubts": [*doubts.get(key, ())],
    }
