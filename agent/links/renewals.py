"""Other passwords and tokens of the same users: open connections go on, and count as opened with them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from agent.amqp.connection_pool import Pool
from agent.amqp.renewal import renew_connection
from agent.core.addresses.uri import AmqpUri
from agent.core.links.restarts import differ_in_passwords
from agent.links.ends import End, Ends, timed
from agent.tasks import GuardedTasks


def renewed_ends(changes: Iterable[tuple[Ends, Ends]]) -> dict[End, End]:
    """Which ends have other passwords and nothing else, given all links as they were and as they are now.

    Links of different definitions may share an end. If only some of them have another password, that end isn't
    renewed: its connections are those of the links that still have the former password.
    """
    successors: dict[End, set[End]] = {}
    for former, now in changes:
        successors.setdefault(former.source, set()).add(now.source)
        successors.setdefault(former.destination, set()).add(now.destination)
    only = {former: found.pop() for former, found in successors.items() if len(found) == 1}
    return {former: now for former, now in only.items() if differ_in_passwords(former.uris, now.uris)}


def renew(pools: Iterable[Pool], ends: Mapping[End, End], tasks: GuardedTasks) -> None:
    """Links that begin later share the open connections of those ends."""
    uris = {former: _successors(former, now) for former, now in ends.items()}
    apart = {old: new for each in uris.values() for old, new in each.items()}

    def successor(key: Hashable) -> Hashable:
        """Of the keys that `Brokers` uses: an end, or an end with what else keeps its connections apart."""
        if isinstance(key, tuple):
            end, uri, other, *more = key
            return ends.get(end, end), uris.get(end, {}).get(uri, uri), apart.get(other, other), *more
        return ends.get(key, key) if isinstance(key, End) else key

    for pool in pools:
        for key, connection in pool.rekey(successor):
            end = key[0] if isinstance(key, tuple) else key
            found = uris.get(end, {}).get(connection.uri) if isinstance(end, End) else None
            if found is not None:
                renew_connection(connection, found, tasks)


def _successors(former: End, now: End) -> dict[AmqpUri, AmqpUri]:
    """Also as they are where several agents share links."""
    pairs = list(zip(former.uris, now.uris, strict=True))
    return dict([*pairs, *((timed(old), timed(new)) for old, new in pairs)])
