"""How people name links: by id, by the beginning of an id that no other link has, or as vhost/name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.errors import AgentError

MOST_NAMED: Final = 5


class UnknownLinkError(AgentError):
    """No link has the name, or several have."""


def name_of(link: Mapping[str, Any]) -> str:
    return str(link.get("exchange") or link.get("queue") or link.get("name") or "")


def full_name(link: Mapping[str, Any]) -> str:
    return f"{link['vhost']}/{name_of(link)}"


def find(links: Sequence[Mapping[str, Any]], named: str, *, where: str) -> Mapping[str, Any]:
    """Raises UnknownLinkError."""
    for found in (
        [link for link in links if link["id"] == named],
        [link for link in links if full_name(link) == named],
        [link for link in links if named and str(link["id"]).startswith(named)],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownLinkError(f"{where}: {named!r} names {len(found)} links: {_listed(found)}; give an id")
    raise UnknownLinkError(f"{where}: no link has the id or the vhost/name {named!r}; `links` lists them")


def _listed(links: Sequence[Mapping[str, Any]]) -> str:
    named = [f"{link['id']} ({link['kind']}, upstream {link['upstream'] or '-'})" for link in links[:MOST_NAMED]]
    more = len(links) - MOST_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def completions(links: Iterable[Mapping[str, Any]], begun: str) -> list[tuple[str, str]]:
    """What may follow in a shell: ids and names, each with what helps to choose."""
    found = []
    for link in links:
        named = full_name(link)
        if str(link["id"]).startswith(begun):
            found.append((str(link["id"]), f"{link['status']} {named}"))
        if begun and named.startswith(begun):
            found.append((named, f"{link['status']} {link['id']}"))
    return found
