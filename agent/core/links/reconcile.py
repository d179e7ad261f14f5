"""Reconciliation: from the links that are wanted and those that run to actions that start, restart, keep and end links.

The runtime executes the actions in their order. No I/O here, and each link has one action at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from agent.core import fields
from agent.core.links.changed_definition import needs_restart
from agent.core.model import ExchangeLink, Link, NativeLink, QueueLink, VhostState, native_link

Address: TypeAlias = tuple[str, int, str]
Key: TypeAlias = tuple[str, str, str]


class Running(Protocol):
    """A link that runs, or is being removed."""

    link: Link

    @property
    def is_unwanted(self) -> bool:
        """True if nothing has defined the link since an earlier reading."""

    @property
    def may_be_removed(self) -> bool:
        """True if nothing else serves the link now that would miss what it built upstream."""


@dataclass(frozen=True, slots=True)
class RunLink:
    """The link is wanted: it begins where it doesn't run, and otherwise goes on under this definition."""

    link: Link
    restarts: bool = False
    is_native: bool = False  # the native plugin of the downstream runs it


@dataclass(frozen=True, slots=True)
class EndLink:
    """Nothing defines the link any more."""

    link_id: str
    removes: bool  # what it built upstream, later; otherwise all of that stays
    object_is_deleted: bool = False  # its exchange or queue, by somebody, rather than its definition


@dataclass(frozen=True, slots=True)
class DownstreamSeen:
    """The state of the downstream as it was read."""

    states: Mapping[str, VhostState]
    native_links: Container[NativeLink]
    sees: Callable[[str], bool]  # whether what is missing from a vhost is known to be deleted
    lost: Container[tuple[str, str]] = frozenset()
    """Vhosts and upstreams of which what waits upstream is nowhere else, and stays for who looks at it."""


def reconcile(
    wanted: Mapping[str, Link], running: Mapping[str, Running], seen: DownstreamSeen
) -> Iterator[RunLink | EndLink]:
    """The actions, ends first: a link that begins may need what another leaves. `running` may change between two
    actions."""
    queues = SharedQueues(wanted.values())
    for link_id in [each for each in running if each not in wanted]:
        if (found := running.get(link_id)) is not None:
            yield _end(found, seen, queues)
    for link in wanted.values():
        found = running.get(link.id)
        restarts = found is not None and needs_restart(found.link, link)
        yield RunLink(link, restarts, native_link(link) in seen.native_links)


def _end(running: Running, seen: DownstreamSeen, wanted: SharedQueues) -> EndLink:
    """The end of a link, with the removal of what it built upstream. That stays where the vhost can't be seen, since
    the link may be wanted again, and where another program or another link over the same queue uses it, such as that of
    a renamed upstream; and after a failover from its upstream."""
    link = running.link
    is_lost = isinstance(link, ExchangeLink) and (link.vhost, link.upstream) in seen.lost
    is_needed = native_link(link) in seen.native_links or wanted.have_that_of(link) or not running.may_be_removed
    return EndLink(
        link.id,
        removes=link.cleans_up and not is_needed and not is_lost and seen.sees(link.vhost),
        object_is_deleted=not running.is_unwanted and _is_deleted(link, seen),
    )


def _is_deleted(link: Link, seen: DownstreamSeen) -> bool:
    """True if the link's exchange or queue was deleted by somebody, rather than by the broker."""
    state = seen.states.get(link.vhost)
    if state is None or not seen.sees(link.vhost):
        return False
    match link:
        case ExchangeLink(name=name, exchange=exchange):
            return name not in state.exchanges and exchange.durable and not exchange.auto_delete
        case QueueLink(name=name, queue=queue):
            may_go = queue.auto_delete or fields.get(queue.arguments, "x-expires") is not None
            return name not in state.queues and queue.durable and not may_go
        case _:
            return False


class SharedQueues:
    """The wanted links by their queue upstream: several may have their messages from one, as those of a renamed
    upstream have."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links: dict[Key, list[ExchangeLink]] = defaultdict(list)
        for link in links:
            if isinstance(link, ExchangeLink):
                self._links[_key(link)].append(link)

    def have_that_of(self, link: Link) -> bool:
        """True if one of these links has its messages from the queue of the given link."""
        if not isinstance(link, ExchangeLink):
            return False
        return any(_addresses(link) & _addresses(each) for each in self._links.get(_key(link), ()))


def _key(link: ExchangeLink) -> Key:
    return link.vhost, link.name, link.remote_name


def _addresses(link: ExchangeLink) -> set[Address]:
    """The host, port and vhost of each URI of the link, whatever its user and parameters."""
    return {(uri.connect_host.lower(), uri.connect_port, uri.vhost(link.vhost)) for uri in link.uris}
