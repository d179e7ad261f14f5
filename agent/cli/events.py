"""`events`: the last changes of status of a running agent's links, and those that follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from agent.cli import output
from agent.cli.link_names import find, full_name
from agent.cli.links import REFRESH, until_answered
from agent.cli.remote import Remote

Change = Mapping[str, Any]


def show_events(
    remote: Remote,
    named: str | None,
    *,
    since: float | None,
    follow: bool,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Oldest first, of one link or of all. Those that follow come until it is interrupted or the output is closed, in
    JSON an object a line. Raises UnknownLinkError."""
    known = remote.transitions(after=0)
    chosen = None if named is None else _id_of(remote, named, known)
    begin = 0.0 if since is None else time.time() - since
    if as_json and not follow:
        output.say_json(list(_taken(known, chosen, begin)))
        return
    with suppress(KeyboardInterrupt):
        last = 0
        while all(output.say(_line(each, as_json=as_json)) for each in _taken(known, chosen, begin)) and follow:
            last = known[-1]["seq"] if known else last
            sleep(REFRESH)
            known = until_answered(output.complain, sleep)(remote.transitions, after=last)


def _taken(changes: Sequence[Change], chosen: str | None, begin: float) -> Iterator[Change]:
    for each in changes:
        if chosen in {None, each["link"]} and datetime.fromisoformat(each["at"]).timestamp() >= begin:
            yield each


def _id_of(remote: Remote, named: str, changes: Sequence[Change]) -> str:
    """Of a link that is defined, or was."""
    links = {each["link"]: {**each, "id": each["link"]} for each in changes}
    links |= {link["id"]: link for link in remote.links()}
    return str(find(list(links.values()), named, where=remote.where)["id"])


def _line(change: Change, *, as_json: bool) -> str:
    """`2026-11-25 04:12:07Z  1a2b3c4d  //orders from dc1: running → backoff (upstream_lost): why`."""
    if as_json:
        return output.as_json(change, indent=None)
    at = f"{change['at'][:19].replace('T', ' ')}Z"
    source = f" from {change['upstream']}" if change["upstream"] else ""
    became = f"{change['previous'] or 'new'} → {change['status'] or 'gone'} ({change['reason']})"
    why = f": {change['error']}" if change["error"] else ""
    return output.line(f"{at}  {change['link']}  {full_name(change)}{source}: {became}{why}")
