"""What is defined and not run: said, so that nobody waits for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from agent.core.model import Link, LinkKind

NAMED: Final = 5


def unserved(links: Iterable[Link], native: Collection[tuple[str, str, str]]) -> tuple[str, ...]:
    """`native` are the links that the plugin runs: vhost, name and upstream."""
    found: dict[tuple[str, LinkKind], dict[str, None]] = defaultdict(dict)
    for link in links:
        if link.kind is LinkKind.QUEUE and (link.vhost, link.name, link.upstream) not in native:
            found[link.vhost, link.kind][link.name] = None
    return tuple(
        f"links of kind {kind} are defined in vhost {vhost!r}, and this agent runs links of exchanges "
        f"and shovels only: {_listed(tuple(names))}"
        for (vhost, kind), names in found.items()
    )


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(repr(name) for name in names[:NAMED]) + more
