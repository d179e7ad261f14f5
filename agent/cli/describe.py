"""`describe`: one link of a running agent, with what happened to it and what to do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from agent.cli import output
from agent.cli.link_names import UnknownLinkError, find, full_name
from agent.cli.remote import Remote
from agent.core.status.advice import DELETED
from agent.core.text.quantities import age, counted, in_full, in_words

EVENTS: Final = 10
_FIRST: Final = ("id", "kind", "vhost")
_APART: Final = ("history", "error", "since", "reason", "status", "advice", "backlog_last", "backlog_last_at")


def describe_link(remote: Remote, named: str, form: str) -> None:
    """Raises UnknownLinkError."""
    try:
        found = find(remote.links(), named, where=remote.where)
    except UnknownLinkError as error:
        raise UnknownLinkError(f"{error}{_gone(remote.causes()['causes'], named, now=time.time())}") from error
    link = remote.link(str(found["id"])) or dict(found)
    output.say(output.as_data(link, form) or output.Ready("\n".join(map(output.line, lines(link, now=time.time())))))


def _gone(causes: Iterable[Mapping[str, Any]], named: str, *, now: float) -> str:
    """Why a link isn't there any more whose exchange or queue was deleted; empty where that isn't so. A cause has the
    error of one of its links, and an agent that is older than this command has no names."""
    for cause in causes:
        is_of_it = named in cause.get("names", ()) or any(each.startswith(named) for each in cause["links"])
        if cause["trouble"] in DELETED.values() and is_of_it:
            others = len(cause["links"]) - 1
            more = f" (and {counted(others, 'more link')} like it)" if others else ""
            return f". Gone for {_age(cause['since'], now)}: {cause['error']}{more}. {cause['advice']}"
    return ""


def lines(link: Mapping[str, Any], *, now: float) -> Iterator[str]:
    yield f"Link:    {full_name(link)}"
    yield f"Status:  {link['status']} for {_age(link['since'], now)} ({link.get('reason', '')})"
    if link["error"]:
        yield f"Error:   {link['error']}"
    if link.get("advice"):
        yield f"Do:      {link['advice']}"
    fields = [key for key in (*_FIRST, *link) if key not in _APART]
    width = max(map(len, fields))
    for key in dict.fromkeys(fields):
        yield f"{key.ljust(width)}  {_value(link, key, now)}"
    events = link.get("history", {}).get("transitions", [])[-EVENTS:]
    yield "Events:" if events else "Events:  none"
    for event in events:
        error = f"  {event['error']}" if event["error"] else ""
        yield f"  {_age(event['at'], now).rjust(6)} ago  {event['status'].ljust(10)}  {event['reason']}{error}"


def _value(link: Mapping[str, Any], key: str, now: float) -> str:
    value = link[key]
    if key == "backlog" and value is None and link.get("backlog_last") is not None:
        return f"not known now; last known {link['backlog_last']:,}, {_age(link['backlog_last_at'], now)} ago"
    if key == "lag_critical" and value is not None:
        return counted(value["messages"], "message") if value["seconds"] is None else in_words(value["seconds"])
    if key.endswith("_seconds") and value is not None:
        return in_full(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


def _age(moment: str, now: float) -> str:
    return age(now - datetime.fromisoformat(moment).timestamp())
