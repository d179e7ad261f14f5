"""Links of a running agent: shown as a table or one by one, with what changed; restarted, paused and resumed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from agent.cli import output
from agent.cli.link_table import in_order, render
from agent.cli.options import Sort
from agent.cli.remote import Remote, RemoteError, find, full_name, myself
from agent.core.links.lifecycle import Status
from agent.core.links.read_limits import RateLimit
from agent.core.rules.quarantine import look_command, move_command
from agent.core.status.failure_kinds import DELETED
from agent.core.text import age, counted, did_you_mean, in_full, in_words, printable
from agent.errors import UnknownLinkError, UsageError

REFRESH: Final = 1.0  # seconds
WORDS: Final = {
    **{str(status): (str(status),) for status in Status},
    "up": ("running",),
    "down": ("backoff", "invalid"),
    "broken": ("backoff", "invalid", "blocked", "stalled"),
}
"""The words that `--status` takes: statuses, and words that people use for several."""
EVENTS: Final = 10  # that `describe` shows
_FIRST: Final = ("id", "kind", "vhost")
_NOT_A_FIELD: Final = ("history", "error", "since", "reason", "status", "advice", "backlog_last", "backlog_last_at")

Link = Mapping[str, Any]
Change = Mapping[str, Any]
Sleep = Callable[[float], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Selection:
    """The links that are shown; an empty one shows all."""

    vhost: str | None = None
    statuses: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    sort: Sort | None = None

    def of(self, remote: Remote) -> list[dict[str, Any]]:
        found = [link for link in remote.links(self.vhost) if self._takes(link)]
        return found if self.sort is None else [dict(link) for link in in_order(found, self.sort)]

    @property
    def text(self) -> str:
        """Names the place of its links; empty for all."""
        places = [f"in vhost {self.vhost!r}"] if self.vhost is not None else []
        places += [f"of upstream or cluster {' or '.join(map(repr, self.upstreams))}"] if self.upstreams else []
        return " ".join(places)

    def _takes(self, link: Mapping[str, Any]) -> bool:
        if self.statuses and link["status"] not in self.statuses:
            return False
        return not self.upstreams or bool({link["upstream"], link.get("upstream_cluster")} & set(self.upstreams))


def statuses_of(words: Sequence[str]) -> tuple[str, ...]:
    for word in words:
        if word.lower() not in WORDS:
            hint = did_you_mean(word.lower(), WORDS)
            raise UsageError(f"--status {word!r} is none of {', '.join(WORDS)}{hint}")
    return tuple(dict.fromkeys(status for word in words for status in WORDS[word.lower()]))


def show_links(remote: Remote, selection: Selection, form: str) -> bool:
    """Returns False where the agent can't read its broker, so that what is shown may be old."""
    _print(selection.of(remote), form, selection.sort)
    warning = _unread(remote)
    if warning:
        output.complain(warning)
    return not warning


def _unread(remote: Remote) -> str:
    why = remote.overview().get("unread")
    return f"{remote.where}: it can't read its broker, so this may be old: {why}" if why else ""


def _print(links: Sequence[dict[str, Any]], form: str, sort: Sort | None) -> bool:
    """Returns False where nobody reads the output any more."""
    return output.say(output.as_data(links, form) or output.Ready("\n".join(_lines(links, form, sort))))


def _lines(links: Sequence[dict[str, Any]], form: str, sort: Sort | None) -> list[str]:
    """As wide and as high as the terminal, or as much as there is if a program reads it."""
    if not sys.stdout.isatty():
        return render(links, now=time.time(), width=None, wide=form == "wide", sort=sort)
    size = shutil.get_terminal_size()
    height = None if form == "wide" else size.lines - 1
    return render(links, now=time.time(), width=size.columns, height=height, wide=form == "wide", sort=sort)


def watch_links(remote: Remote, selection: Selection, form: str, *, sleep: Sleep = time.sleep) -> None:
    """Runs until interrupted or until the output is closed; later errors are shown, and the request is repeated."""
    selection.of(remote)  # an error of the first request ends it
    with suppress(KeyboardInterrupt):
        if form in {"json", "yaml"} or not sys.stdout.isatty():
            _print_every_second(remote, selection, form, sleep)
        else:
            _refresh(remote, selection, form, sleep)


def _print_every_second(remote: Remote, selection: Selection, form: str, sleep: Sleep) -> None:
    shown = ""
    while _print(until_answered(lambda: selection.of(remote), output.complain, sleep), form, selection.sort):
        warning = until_answered(lambda: _unread(remote), output.complain, sleep)
        if warning and warning != shown:
            output.complain(warning)
        shown = warning
        sleep(REFRESH)


def _refresh(remote: Remote, selection: Selection, form: str, sleep: Sleep) -> NoReturn:
    from rich.live import Live
    from rich.text import Text

    with Live(Text(""), screen=True, auto_refresh=False) as live:

        def show_error(error: str) -> None:
            live.update(Text(printable(error), style="red"), refresh=True)

        while True:
            links = until_answered(lambda: selection.of(remote), show_error, sleep)
            warning = until_answered(lambda: _unread(remote), show_error, sleep)
            table = Text.from_ansi("\n".join(_lines(links, form, selection.sort)), no_wrap=True)
            if warning:  # one line, so that the rest keeps its place
                table = Text.assemble((printable(warning), "red"), "\n", table, no_wrap=True, overflow="ellipsis")
            live.update(table, refresh=True)
            sleep(REFRESH)


def until_answered(ask: Callable[[], T], show: Callable[[str], None], sleep: Sleep) -> T:
    """Asks again every second while the agent doesn't answer, until interrupted; shows each reason once."""
    from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

    shown: set[str] = set()

    def show_new(state: RetryCallState) -> None:
        error = str(state.outcome.exception()) if state.outcome else ""
        if error not in shown:
            show(error)
        shown.add(error)

    again = retry_if_exception_type(RemoteError)
    return Retrying(retry=again, wait=wait_fixed(REFRESH), before_sleep=show_new, sleep=sleep)(ask)


def describe_link(remote: Remote, named: str, form: str) -> None:
    """Raises UnknownLinkError."""
    try:
        found = find(remote.links(), named, where=remote.where)
    except UnknownLinkError as error:
        raise UnknownLinkError(f"{error}{_gone(remote.causes()['causes'], named, now=time.time())}") from error
    link = remote.link(str(found["id"])) or dict(found)
    output.say(
        output.as_data(link, form) or output.Ready("\n".join(map(output.line, described(link, now=time.time()))))
    )


def _gone(causes: Iterable[Link], named: str, *, now: float) -> str:
    """Explains that the exchange or queue of a link was deleted; empty where it wasn't. A cause has the
    error of one of its links, and an agent that is older than this command has no names."""
    for cause in causes:
        is_of_it = named in cause.get("names", ()) or any(each.startswith(named) for each in cause["links"])
        if cause["trouble"] in DELETED.values() and is_of_it:
            others = len(cause["links"]) - 1
            more = f" (and {counted(others, 'more link')} like it)" if others else ""
            return f". Gone for {_age(cause['since'], now)}: {cause['error']}{more}. {cause['advice']}"
    return ""


def described(link: Link, *, now: float) -> Iterator[str]:
    yield f"Link:    {full_name(link)}"
    yield f"Status:  {link['status']} for {_age(link['since'], now)} ({link.get('reason', '')})"
    if link["error"]:
        yield f"Error:   {link['error']}"
    if link.get("advice"):
        yield f"Do:      {link['advice']}"
    if link.get("quarantined"):
        moves = move_command(link["id"], vhost=link["vhost"], upstream=link["upstream"])
        yield f"Do:      to see what is in quarantine: `{look_command(link['id'])}`; to take it elsewhere: `{moves}`"
    fields = [key for key in (*_FIRST, *link) if key not in _NOT_A_FIELD]
    width = max(map(len, fields))
    for key in dict.fromkeys(fields):
        yield f"{key.ljust(width)}  {_value(link, key, now)}"
    events = link.get("history", {}).get("transitions", [])[-EVENTS:]
    yield "Events:" if events else "Events:  none"
    for event in events:
        error = f"  {event['error']}" if event["error"] else ""
        yield f"  {_age(event['at'], now).rjust(6)} ago  {event['status'].ljust(10)}  {event['reason']}{error}"


def _value(link: Link, key: str, now: float) -> str:
    value = link[key]
    if key == "backlog" and value is None and link.get("backlog_last") is not None:
        return f"not known now; last known {link['backlog_last']:,}, {_age(link['backlog_last_at'], now)} ago"
    if key == "lag_critical" and value is not None:
        return counted(value["messages"], "message") if value["seconds"] is None else in_words(value["seconds"])
    if key == "rate_limit" and value is not None:
        return str(RateLimit(value["messages"], value["bytes"]))
    if key == "converted_with_loss":
        return ", ".join(f"{reason} ({count:,})" for reason, count in value.items()) or "-"
    if key.endswith("_seconds") and value is not None:
        return in_full(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


def _age(time_: str, now: float) -> str:
    return age(now - datetime.fromisoformat(time_).timestamp())


def show_events(
    remote: Remote, named: str | None, *, since: float | None, follow: bool, as_json: bool, sleep: Sleep = time.sleep
) -> None:
    """Oldest first, of one link or of all. Those that follow come until it is interrupted or the output is closed, in
    JSON an object a line. Raises UnknownLinkError."""
    known = remote.transitions(after=0)
    chosen = None if named is None else _id_of(remote, named, known)
    begin = 0.0 if since is None else time.time() - since
    if as_json and not follow:
        output.say_json(list(_chosen(known, chosen, begin)))
        return
    with suppress(KeyboardInterrupt):
        last = 0
        while all(output.say(_event_line(each, as_json=as_json)) for each in _chosen(known, chosen, begin)) and follow:
            last = known[-1]["seq"] if known else last
            sleep(REFRESH)
            known = until_answered(partial(remote.transitions, after=last), output.complain, sleep)


def _chosen(changes: Sequence[Change], chosen: str | None, begin: float) -> Iterator[Change]:
    for each in changes:
        if chosen in {None, each["link"]} and datetime.fromisoformat(each["at"]).timestamp() >= begin:
            yield each


def _id_of(remote: Remote, named: str, changes: Sequence[Change]) -> str:
    """The id of a link that is defined, or was."""
    links = {each["link"]: {**each, "id": each["link"]} for each in changes}
    links |= {link["id"]: link for link in remote.links()}
    return str(find(list(links.values()), named, where=remote.where)["id"])


def _event_line(change: Change, *, as_json: bool) -> str:
    """`2026-11-25 04:12:07Z  1a2b3c4d  //orders from dc1: running → backoff (upstream_lost): why`."""
    if as_json:
        return output.as_json(change, indent=None)
    at = f"{change['at'][:19].replace('T', ' ')}Z"
    source = f" from {change['upstream']}" if change["upstream"] else ""
    became = f"{change['previous'] or 'new'} → {change['status'] or 'gone'} ({change['reason']})"
    why = f": {change['error']}" if change["error"] else ""
    return output.line(f"{at}  {change['link']}  {full_name(change)}{source}: {became}{why}")


def act(
    remote: Remote, action: str, named: Sequence[str], *, selection: Selection, as_json: bool, reason: str = ""
) -> bool:
    """Returns False where not all links that were named are there, also by vhost or upstream; acts on the others."""
    links = selection.of(remote)
    selected = [str(link["id"]) for link in links if link["status"] != "removing"] if not named else []
    is_empty = bool(selection.text) and not selected  # those that are being removed accept no action
    ids, missing = _found(links, named, where=remote.where)
    about = {"by": myself(), "reason": reason} if action == "pause" else None
    paused = {str(link["id"]): str(link["error"]) for link in links if link["status"] == "paused"}
    done = []
    for link_id in dict.fromkeys([*ids.values(), *selected]):
        view = remote.act(link_id, action, about)
        if view is not None:
            done.append(link_id)
            if not as_json:  # printed one by one, since a long list takes time
                output.say(f"{link_id} {action}{_remark(action, view, paused.get(link_id), reason)}")
    # Links that were selected by vhost or --all existed a moment ago, and have gone since.
    gone = [given for given, link_id in ids.items() if link_id not in done]
    if as_json:
        output.say_json({"action": action, "links": done, "missing": [*missing, *gone]})
    output.complain(*missing.values(), *(f"{remote.where}: the link {given!r} has gone" for given in gone))
    if is_empty:
        output.complain(f"{remote.where}: no link is {selection.text}; `links` lists them")
    return not missing and not gone and not is_empty


def _found(
    links: Sequence[Mapping[str, Any]], named: Sequence[str], *, where: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The ids of those that were named, and of the others the errors."""
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    for each in dict.fromkeys(named):
        try:
            found[each] = str(find(links, each, where=where)["id"])
        except UnknownLinkError as error:
            missing[each] = str(error)
    return found, missing


def _remark(action: str, view: Mapping[str, Any], was_paused: str | None, reason: str) -> str:
    if action == "restart" and view.get("status") == "paused":
        return f": it stays paused; `resume {view.get('id')}` lets it run"
    if action == "pause" and was_paused is not None:
        return f": it was {was_paused or 'paused'}" + ("; the reason is replaced" if reason else ", and stays so")
    return ""
