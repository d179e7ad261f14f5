"""The link that somebody names, among those that the agent shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.core.model import named_so
from agent.core.text.suggest import did_you_mean
from agent.errors import UnknownLinkError

MOST_NAMED: Final = 5


def name_of(link: Mapping[str, Any]) -> str:
    return str(link.get("exchange") or link.get("queue") or link.get("name") or "")


def full_name(link: Mapping[str, Any]) -> str:
    return f"{link['vhost']}/{name_of(link)}"


def find(links: Sequence[Mapping[str, Any]], named: str, *, where: str) -> Mapping[str, Any]:
    """Raises UnknownLinkError."""
    found = named_so(links, named, lambda link: (str(link["id"]), full_name(link)))
    if not found:
        hint = _hint(links, named)
        raise UnknownLinkError(f"{where}: no link has the id or the vhost/name {named!r}; `links` lists them{hint}")
    if len(found) > 1:
        raise UnknownLinkError(f"{where}: {named!r} names {len(found):,} links: {_listed(found)}; give an id")
    return found[0]


def _hint(links: Sequence[Mapping[str, Any]], named: str) -> str:
    """A name without its vhost is what people type first."""
    same = dict.fromkeys(full_name(link) for link in links if name_of(link) == named)
    if not same:
        return did_you_mean(named, dict.fromkeys(map(full_name, links)))
    more = len(same) - MOST_NAMED
    shown = " or ".join(map(repr, list(same)[:MOST_NAMED]))
    return f"; did you mean {shown}{f' or {more} more' if more > 0 else ''}?"


def _listed(links: Sequence[Mapping[str, Any]]) -> str:
    named = [
        f"{link['id']} ({link['kind']} {full_name(link)}, upstream {link['upstream'] or '-'})"
        for link in links[:MOST_NAMED]
    ]
    more = len(links) - MOST_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def completions(links: Iterable[Mapping[str, Any]], incomplete: str) -> list[tuple[str, str]]:
    """Ids and names for a shell's completion, each with what helps to choose."""
    found = []
    for link in links:
        named = full_name(link)
        if str(link["id"]).startswith(incomplete):
            found.append((str(link["id"]), f"{link['status']} {named}"))
        if incomplete and named.startswith(incomplete):
            found.append((named, f"{link['status']} {link['id']}"))
    return found
