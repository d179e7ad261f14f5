"""Two looks at the source → whether a queue has moved, whether the cluster can be switched off, and why not.

A queue has moved if nothing is in it and nothing can come. What isn't known is never taken for nothing: doubt is
"not provable", with its reason.

Why: docs/decisions/0067-migrate-verdict.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from agent.core.migration.fences import IN_FORCE_AFTER, ClientFence, Permissions
from agent.core.migration.objects import ObjectKey, ObjectKind, is_brokers_own
from agent.core.rules.names import AGENT_PREFIX, LEASE_PREFIX
from agent.core.text import counted, listed

Doubts: TypeAlias = tuple[str, ...]
MOST_NAMED: Final = 3
MOST_REASONS: Final = 100
_MOST_DOUBTS: Final = 3
"""Of them that the reason of each queue repeats; the whole has the others, too."""
_LONGEST: Final = 1_000
"""Characters of a reason: bindings are named with their arguments."""
_LATE: Final = 5.0
"""A look's time is cut to whole seconds, and brokers that are busy tell one of seconds ago."""
PRODUCT: Final = "federation-agent"
"""Connections of agents call themselves so."""
_RUNNING: Final = "running"
_QUORUM, _STREAM = "quorum", "stream"


class MoveVerdict(StrEnum):
    """From the worst; `EMPTY` is like `MOVED`, but somebody who isn't fenced could publish again."""

    NOT_YET = "not yet"
    NOT_PROVABLE = "not provable"
    EMPTY = "empty"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class SeenQueue:
    """A queue as the source shows it; None is what it doesn't show. `messages` may be more than the other two."""

    kind: str
    state: str | None
    messages: int | None
    ready: int | None
    unacknowledged: int | None
    members: int | None = None
    """Replicas of a quorum queue, and how many of them are `online`."""
    online: int | None = None
    ends_with_connection: bool = False
    dead_letters: bool = False
    is_agents: bool = False
    """Of a link, or a quarantine."""
    consumers: Sequence[str] = ()
    """As they are named in a reason."""

    @property
    def doubt(self) -> str | None:
        """The reason why its figures say nothing; None if they do."""
        if self.kind == _STREAM:
            return "a stream keeps its messages, and nothing shows which of them were copied"
        if self.state != _RUNNING:
            return f"its state is {self.state!r}" if self.state else "its state isn't known"
        if self.messages is None or self.ready is None or self.unacknowledged is None:
            return "how many messages it has isn't known: is a node down, or are its statistics not there yet?"
        if self.kind == _QUORUM and not 2 * (self.online or 0) > (self.members or 0) > 0:
            return f"{self.online or 0} of its {self.members or 'unknown'} replicas are online, which is no majority"
        return None

    @property
    def is_empty(self) -> bool:
        """False also where that isn't known."""
        return self.doubt is None and self.messages == self.ready == self.unacknowledged == 0

    @property
    def contents(self) -> str:
        if self.doubt is not None:
            return self.doubt
        ready, held, all_of_them = self.ready or 0, self.unacknowledged or 0, self.messages or 0
        parts = [f"{ready:,} {'waits' if ready == 1 else 'wait'}"] if ready else []
        if held:
            by = f" by {listed(list(self.consumers), MOST_NAMED)}" if self.consumers else ""
            parts.append(f"{held:,} unacknowledged{by}")
        if all_of_them > ready + held or not parts:
            parts.append(
                f"{all_of_them - ready - held:,} on their way to a dead-letter exchange, or waiting to be tried again"
            )
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class SeenConnection:
    """Of any protocol. What isn't known is None, and never taken for harmless."""

    name: str
    vhost: str | None
    user: str | None
    protocol: str | None = None
    host: str | None = None
    product: str | None = None
    connected_at: float | None = None

    def is_of_agent(self, movers: Collection[str]) -> bool:
        """True if it may be the move's: any agent that has its user looks the same."""
        return self.product == PRODUCT and self.user in movers


@dataclass(frozen=True, slots=True)
class SeenVhost:
    """`doubts`: what puts messages into its queues without a connection, or why the vhost can't be read."""

    queues: Mapping[str, SeenQueue] = field(default_factory=dict)
    doubts: Doubts = ()


@dataclass(frozen=True, slots=True)
class SourceLook:
    """The source at one time, by its own clock. `doubts` are about all of it."""

    at: float
    vhosts: Mapping[str, SeenVhost] = field(repr=False)
    connections: Sequence[SeenConnection] = field(repr=False, default=())
    permissions: Mapping[tuple[str, str], Permissions] = field(repr=False, default_factory=dict)
    """By vhost and user."""
    fences: Mapping[tuple[str, str], ClientFence] = field(repr=False, default_factory=dict)
    doubts: Doubts = ()


@dataclass(frozen=True, slots=True)
class SourceVerdict:
    """Of each chosen queue its verdict and the reason; of the whole why the source is still needed: `unfenced` are the
    reasons that an operator can take the responsibility for."""

    queues: Mapping[ObjectKey, tuple[MoveVerdict, str]] = field(repr=False)
    reasons: Doubts
    unfenced: Doubts

    def can_be_switched_off(self, *, is_unfenced_accepted: bool) -> bool:
        return not self.reasons and (is_unfenced_accepted or not self.unfenced)


def judge(
    looks: tuple[SourceLook, SourceLook],
    chosen: Iterable[ObjectKey],
    selected: Collection[str],
    movers: Collection[str],
) -> SourceVerdict:
    """`chosen` are the queues that move, `selected` their vhosts; `movers` are the users of the move itself."""
    first, last = looks
    vhosts = {*first.vhosts, *last.vhosts, *selected}
    doubts = {each: tuple(_doubts(last, each, movers)) or tuple(_doubts(first, each, movers)) for each in vhosts}
    open_to = {each: tuple(unfenced(last, each)) or tuple(unfenced(first, each)) for each in selected}
    everywhere = last.doubts or first.doubts
    whys = {each: _in_words((*everywhere, *doubts[each])) for each in selected}
    comers = {each: _in_words(open_to[each]) for each in selected}
    keys = [key for key in chosen if key.kind is ObjectKind.QUEUE]
    queues = {key: _of_queue(key, looks, whys[key.vhost], comers[key.vhost]) for key in keys}
    reasons = [*everywhere]
    for verdict in (MoveVerdict.NOT_YET, MoveVerdict.NOT_PROVABLE):
        names = [str(key) for key, (found, _) in queues.items() if found is verdict]
        reasons += [f"{verdict}: {listed(names, MOST_NAMED)}"] if names else []
    for vhost in sorted(vhosts):
        reasons += [f"vhost {vhost!r}: {each}" for each in doubts[vhost]]
        reasons += _left_in(vhost, looks, queues.keys(), is_selected=vhost in selected)
    unfenced_ones = [f"vhost {vhost!r}: {each}" for vhost in sorted(open_to) for each in open_to[vhost]]
    return SourceVerdict(queues, _bounded(reasons), _bounded(unfenced_ones))


def _in_words(doubts: Doubts) -> str:
    return listed([each[:_LONGEST] for each in doubts], _MOST_DOUBTS, separator="; ")


def _bounded(reasons: Sequence[str]) -> Doubts:
    more = len(reasons) - MOST_REASONS
    shown = (each[:_LONGEST] for each in reasons[:MOST_REASONS])
    return (*shown, *([f"and {counted(more, 'more reason')}"] if more > 0 else []))


def _of_queue(
    key: ObjectKey, looks: tuple[SourceLook, SourceLook], doubts: str, open_to: str
) -> tuple[MoveVerdict, str]:
    seen = [look.vhosts.get(key.vhost, SeenVhost()).queues.get(key.name) for look in looks]
    first, last = seen
    if first is None or last is None:
        return MoveVerdict.NOT_PROVABLE, "it wasn't there at both looks"
    for queue in (last, first):
        if queue.doubt is not None:
            return MoveVerdict.NOT_PROVABLE, queue.doubt
        if not queue.is_empty:
            return MoveVerdict.NOT_YET, queue.contents if queue is last else "it is empty since a moment: ask again"
    if doubts:
        return MoveVerdict.NOT_PROVABLE, doubts
    if open_to:
        return MoveVerdict.EMPTY, f"it is empty, and somebody may come back: {open_to}"
    return MoveVerdict.MOVED, "it is empty, and who could publish is fenced"


def _doubts(look: SourceLook, vhost: str, movers: Collection[str]) -> Iterator[str]:
    """The ways by which a message could get into any queue of a vhost, fences or not."""
    seen = look.vhosts.get(vhost)
    if seen is None:
        yield "the source has no such vhost, or the user may not see it"
        return
    yield from seen.doubts
    dying = [repr(name) for name, queue in seen.queues.items() if queue.dead_letters and not queue.is_empty]
    if dying:
        yield f"dead letters may come from {listed(sorted(dying), MOST_NAMED)}"
    yield from strangers(look, vhost, movers)


def strangers(look: SourceLook, vhost: str, movers: Collection[str], fenced: Collection[str] = ()) -> Iterator[str]:
    """Connections that may publish, hold an open transaction, or have a permission of before; by user. Those of users
    in `fenced` don't count."""
    hosts: dict[tuple[str | None, str], list[str]] = {}
    for each in look.connections:
        if each.vhost not in {vhost, None} or each.user in fenced:
            continue
        why = _why_doubted(each, look, vhost, movers)
        if why is not None:
            hosts.setdefault((each.user, why), []).append(
                f"{each.protocol or 'unknown protocol'} from {each.host or '?'}"
            )
    for (user, why), found in hosts.items():
        number = counted(len(found), "connection")
        yield f"{number} of user {user or 'unknown'!r} ({listed(list(dict.fromkeys(found)), MOST_NAMED)}), {why}"


def _why_doubted(each: SeenConnection, look: SourceLook, vhost: str, movers: Collection[str]) -> str | None:
    """None if it can't publish into the vhost, nor ever could."""
    pair = (vhost, each.user or "")
    fence, permissions = look.fences.get(pair), look.permissions.get(pair)
    is_taken = permissions is not None and not permissions.may_publish
    if each.is_of_agent(movers):
        if is_taken:
            return None
        return "who is the move's and may publish, so that an agent may be writing here: take 'write' from that user"
    if fence is None or not is_taken:
        return "a publisher, for all we know"
    if each.connected_at is not None and each.connected_at > look.at + _LATE:
        return "which is younger than this look: the clocks of the source's nodes are apart"
    return None if fence.covers(each.connected_at) else "connected before the fence: close it, or let it connect again"


def unfenced(look: SourceLook, vhost: str) -> Iterator[str]:
    """The users who could connect and publish, those of the move included."""
    users = []
    for (of, user), permissions in look.permissions.items():
        if of != vhost:
            continue
        fence = look.fences.get((of, user))
        if permissions.may_publish:
            users.append(repr(user))
        elif fence is not None and not fence.is_in_force(look.at, permissions):
            left = None if fence.since is None else fence.since + IN_FORCE_AFTER - look.at
            yield f"the fence of user {user!r} " + ("isn't done" if left is None else f"counts in {left:.0f} s")
    if users:
        yield f"users who may publish aren't fenced: {listed(sorted(users), MOST_NAMED)}"


def _left_in(
    vhost: str, looks: tuple[SourceLook, SourceLook], chosen: Collection[ObjectKey], *, is_selected: bool
) -> Iterator[str]:
    """Other queues that keep messages there, or all queues of a vhost that isn't selected. Leases, which an agent that
    moves messages back leaves for 30 days, hold none and don't count."""
    both = [look.vhosts.get(vhost, SeenVhost()).queues for look in looks]
    names = sorted(name for name in {*both[0], *both[1]} if not name.startswith(LEASE_PREFIX))
    if names and not is_selected:
        yield f"vhost {vhost!r} isn't in the file, and has {counted(len(names), 'queue')}: add it, or delete it"
        return
    for name in names:
        key = ObjectKey(ObjectKind.QUEUE, vhost, name)
        for queue in (both[1].get(name), both[0].get(name)):
            if queue is not None and key not in chosen and not queue.is_empty:
                yield f"{key}, {_whose(key, queue)}: {queue.contents}"
                break


def _whose(key: ObjectKey, queue: SeenQueue) -> str:
    if queue.is_agents or key.name.startswith(AGENT_PREFIX):
        return "which an agent or the federation plugin keeps"
    if queue.ends_with_connection or is_brokers_own(key):
        return "which ends with its connection"
    return "which isn't selected"
