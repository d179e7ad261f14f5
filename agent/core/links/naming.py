"""The names that people use for links: the id, vhost/name, or the beginning of an id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

LinkT = TypeVar("LinkT")


def named_so(links: Sequence[LinkT], named: str, names: Callable[[LinkT], tuple[str, str]]) -> list[LinkT]:
    """The links with that id, else those with that vhost/name, else those whose id begins with it. `names` returns the
    id and the vhost/name of a link."""
    both = [(link, *names(link)) for link in links]
    return (
        [link for link, id_, _ in both if id_ == named]
        or [link for link, _, full in both if full == named]
        or [link for link, id_, _ in both if named and id_.startswith(named)]
    )
