"""The agent that runs with a configuration, which knows what its links have bound upstream.

Why: docs/decisions/0031-plan-and-run-agree.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.cli.remote import Remote, RemoteError, name_of, url_of
from agent.core.fields import from_tagged
from agent.core.links.lifecycle import Status
from agent.core.links.plan import RunningLink
from agent.core.links.upstream_steps import Known
from agent.core.model import LinkKind
from agent.core.rules.hops import GroupedBinding, Site
from agent.core.settings import HttpSettings

PATIENCE: Final = 10.0  # seconds for an answer: what listens there may be no agent
_CONSUMING: Final = frozenset({Status.RUNNING, Status.STARTING, Status.BLOCKED, Status.STALLED})


@dataclass(slots=True)
class RunningAgent:
    """`cluster` is the downstream that it runs beside. `has_answered` shows whether its links are known."""

    url: str
    cluster: str | None
    remote: Remote
    has_answered: bool = field(init=False, default=True)

    async def links(self) -> Sequence[RunningLink]:
        """All of them; none where it can't be asked any more, so that nothing is planned by half of the answers."""
        try:
            return await asyncio.to_thread(self._links)
        except (RemoteError, ValueError, KeyError, TypeError, AttributeError):
            self.has_answered = False
            return ()

    def _links(self) -> Sequence[RunningLink]:
        found = []
        for link in self.remote.links():
            if link["status"] == Status.REMOVING:
                continue
            is_exchange = link["kind"] == LinkKind.EXCHANGE
            bound = self.remote.bindings(_text(link["id"])) if is_exchange else link
            if bound is not None:
                found.append(_running_link(link, bound))
        return found


def find_running(settings: HttpSettings) -> RunningAgent | None:
    """None where none answers at the configured address."""
    url = url_of(settings)
    try:
        remote = Remote(url, None, token=settings.token, within=PATIENCE)
        cluster = remote.overview().get("cluster")
    except RemoteError:
        return None
    return RunningAgent(url, cluster, remote) if cluster is None or isinstance(cluster, str) else None


def _running_link(link: Mapping[str, Any], bound: Mapping[str, Any]) -> RunningLink:
    """`bound` is what an exchange link has bound."""
    known, backlog = bound.get("known"), link.get("backlog_last")
    return RunningLink(
        id=_text(link["id"]),
        kind=_text(link["kind"]),
        vhost=str(link.get("vhost")),
        name=name_of(link),
        upstream=str(link.get("upstream") or ""),
        backlog=None if backlog is None else int(backlog),
        is_consuming=bound["status"] in _CONSUMING,
        is_paused=link["status"] == Status.PAUSED,
        uris=frozenset(map(_text, bound.get("uris", ()))),
        known=None if known is None else _known(known),
    )


def _known(found: Mapping[str, Any]) -> Known:
    return Known(
        Site(found["cluster"], found["vhost"]),
        _text(found["queue"]),
        _text(found["letter"]),
        from_tagged(found["arguments"]),
        _groups(found["bindings"], are_bound=True),
        has_canary=found["notices_deletions"] is True,
        left_out=_groups(found["bindings"], are_bound=False),
        canary_is_refused=found["noticing_is_refused"] is True,
    )


def _groups(found: Any, *, are_bound: bool) -> frozenset[GroupedBinding]:
    return frozenset(
        GroupedBinding(_text(key), from_tagged(table)) for key, table, is_bound in found if is_bound is are_bound
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
