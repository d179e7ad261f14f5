"""The agent that runs with a configuration, which knows what its links have bound upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from agent.cli.remote import Remote, RemoteError
from agent.core.links.lifecycle import Status
from agent.core.links.reconcile import Known
from agent.core.rules.bindings import Group
from agent.core.rules.hops import Site
from agent.core.settings import HttpSettings
from agent.core.tagged import from_tagged
from agent.runtime.survey import RunningLink

_CONSUMING: Final = frozenset({Status.RUNNING, Status.STARTING, Status.BLOCKED, Status.STALLED})


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """`cluster` is the downstream that it runs beside."""

    url: str
    cluster: str | None
    remote: Remote

    async def link(self, link_id: str) -> RunningLink | None:
        """None where it has no such link, or can't be asked any more."""
        try:
            found = await asyncio.to_thread(self.remote.bindings, link_id)
            return None if found is None else _running_link(found)
        except (RemoteError, ValueError, KeyError, TypeError):
            return None  # the link is then planned as for an agent that starts


def find_running(settings: HttpSettings) -> RunningAgent | None:
    """None where none answers at the configured address."""
    url = url_of(settings)
    try:
        remote = Remote(url, None, token=settings.token)
        return RunningAgent(url, remote.overview().get("cluster"), remote)
    except RemoteError:
        return None


def url_of(settings: HttpSettings) -> str:
    """Where this machine reaches what listens there."""
    host = _reachable(settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _reachable(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host or "127.0.0.1"
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _running_link(found: Mapping[str, Any]) -> RunningLink:
    known = found["known"]
    return RunningLink(
        is_consuming=found["status"] in _CONSUMING,
        known=None if known is None else _known(known),
    )


def _known(found: Mapping[str, Any]) -> Known:
    return Known(
        Site(found["cluster"], found["vhost"]),
        found["queue"],
        found["letter"],
        from_tagged(found["arguments"]),
        frozenset(Group(key, from_tagged(arguments)) for key, arguments in found["bindings"]),
    )
