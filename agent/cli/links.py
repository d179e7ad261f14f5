"""`links`, `restart`, `pause`, `resume`: shows and controls the links of a running agent."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from rich.live import Live
from rich.text import Text
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

from agent.cli import output
from agent.cli.link_names import UnknownLinkError, find
from agent.cli.link_table import in_order, render
from agent.cli.options import Sort
from agent.cli.remote import Remote, RemoteError, myself
from agent.core.links.lifecycle import Status
from agent.core.text.printable import printable
from agent.core.text.suggest import did_you_mean
from agent.errors import UsageError

REFRESH: Final = 1.0
WORDS: Final = {
    **{str(status): (str(status),) for status in Status},
    "up": ("running",),
    "down": ("backoff", "invalid"),
    "broken": ("backoff", "invalid", "blocked", "stalled"),
}
"""What `--status` takes: statuses, and words that people use for several."""

Sleep = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which links are shown; an empty one shows all."""

    vhost: str | None = None
    statuses: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    sort: Sort | None = None

    def of(self, remote: Remote) -> list[dict[str, Any]]:
        found = [link for link in remote.links(self.vhost) if self._takes(link)]
        return found if self.sort is None else [dict(link) for link in in_order(found, self.sort)]

    @property
    def text(self) -> str:
        """Where its links are; empty for all."""
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
    """Whether the agent can read its broker; where it can't, what is shown may be old."""
    _print(selection.of(remote), form, selection.sort)
    warning = _unread(remote)
    if warning:
        output.complain(warning)
    return not warning


def _unread(remote: Remote) -> str:
    why = remote.overview().get("unread")
    return f"{remote.where}: it can't read its broker, so this may be old: {why}" if why else ""


def _print(links: Sequence[dict[str, Any]], form: str, sort: Sort | None) -> bool:
    """Whether somebody reads them."""
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
            _print_again_and_again(remote, selection, form, sleep)
        else:
            _refresh(remote, selection, form, sleep)


def _print_again_and_again(remote: Remote, selection: Selection, form: str, sleep: Sleep) -> None:
    shown = ""
    while _print(until_answered(output.complain, sleep)(selection.of, remote), form, selection.sort):
        warning = until_answered(output.complain, sleep)(_unread, remote)
        if warning and warning != shown:
            output.complain(warning)
        shown = warning
        sleep(REFRESH)


def _refresh(remote: Remote, selection: Selection, form: str, sleep: Sleep) -> NoReturn:
    with Live(Text(""), screen=True, auto_refresh=False) as live:

        def show_error(error: str) -> None:
            live.update(Text(printable(error), style="red"), refresh=True)

        while True:
            links = until_answered(show_error, sleep)(selection.of, remote)
            warning = until_answered(show_error, sleep)(_unread, remote)
            table = Text.from_ansi("\n".join(_lines(links, form, selection.sort)), no_wrap=True)
            if warning:  # one line, so that the rest keeps its place
                table = Text.assemble((printable(warning), "red"), "\n", table, no_wrap=True, overflow="ellipsis")
            live.update(table, refresh=True)
            sleep(REFRESH)


def until_answered(show: Callable[[str], None], sleep: Sleep) -> Retrying:
    """Asks again every second while the agent doesn't answer, until interrupted; shows each reason once."""
    shown: set[str] = set()

    def show_new(state: RetryCallState) -> None:
        error = str(state.outcome.exception()) if state.outcome else ""
        if error not in shown:
            show(error)
        shown.add(error)

    again = retry_if_exception_type(RemoteError)
    return Retrying(retry=again, wait=wait_fixed(REFRESH), before_sleep=show_new, sleep=sleep)


def act(
    remote: Remote,
    action: str,
    named: Sequence[str],
    *,
    selection: Selection,
    as_json: bool,
    reason: str = "",
) -> bool:
    """Whether all that were named are there; those that are get what is asked. A vhost or upstream is named, too."""
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
    """Of what was named: the ids, and why there is none."""
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
