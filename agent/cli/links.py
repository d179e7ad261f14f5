"""`links`, `restart`, `pause`, `resume`: shows and controls the links of a running agent."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_fixed

from agent.cli import output
from agent.cli.remote import Remote, RemoteError
from agent.core.text.printable import printable

REFRESH: Final = 1.0
UNBOUNDED: Final = 10_000  # don't break lines if a program reads the output
_STYLES: Final = {
    "running": "green",
    "starting": "cyan",
    "blocked": "yellow",
    "stalled": "yellow",
    "standby": "blue",
    "paused": "blue",
    "terminated": "blue",
    "stopping": "blue",
    "removing": "magenta",
    "backoff": "red",
    "invalid": "red",
}


def show_links(remote: Remote, vhost: str | None, *, as_json: bool) -> bool:
    """Whether somebody reads them."""
    links = remote.links(vhost)
    return output.say_json(links) if as_json else output.say(output.Ready(_as_text(links)))


def watch_links(remote: Remote, vhost: str | None, *, as_json: bool) -> None:
    """Runs until interrupted or until the output is closed; later errors are shown, and the request is repeated."""
    remote.links(vhost)  # an error of the first request ends it
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _print_again_and_again(remote, vhost, as_json=as_json)
        else:
            _refresh(remote, vhost)


def _print_again_and_again(remote: Remote, vhost: str | None, *, as_json: bool) -> None:
    while _until_answered(output.complain)(show_links, remote, vhost, as_json=as_json):
        time.sleep(REFRESH)


def _refresh(remote: Remote, vhost: str | None) -> NoReturn:
    with Live(Text(""), screen=True, auto_refresh=False) as live:

        def show_error(error: str) -> None:
            live.update(Text(printable(error), style="red"), refresh=True)

        while True:
            live.update(_table(_until_answered(show_error)(remote.links, vhost)), refresh=True)
            time.sleep(REFRESH)


def _until_answered(show: Callable[[str], None]) -> Retrying:
    """Asks again every second while the agent doesn't answer, until interrupted; shows each reason once."""
    shown: set[str] = set()

    def show_new(state: RetryCallState) -> None:
        error = str(state.outcome.exception()) if state.outcome else ""
        if error not in shown:
            show(error)
        shown.add(error)

    return Retrying(retry=retry_if_exception_type(RemoteError), wait=wait_fixed(REFRESH), before_sleep=show_new)


def act(remote: Remote, action: str, ids: Sequence[str], *, everything: bool, vhost: str | None, as_json: bool) -> bool:
    """Whether all that were named are there; those that are get what is asked. A vhost is named, too."""
    links = remote.links(vhost) if everything or vhost is not None else []
    found = [str(link["id"]) for link in links if link["status"] != "removing"]  # the others accept no action
    is_empty = vhost is not None and not found
    asked = list(dict.fromkeys([*ids, *found]))
    done = []
    for link_id in asked:
        if remote.act(link_id, action):
            done.append(link_id)
            if not as_json:  # printed one by one, since a long list takes time
                output.say(f"{link_id} {action}")
    # Links that were selected by vhost or --all existed a moment ago, and have gone since.
    missing = [link_id for link_id in dict.fromkeys(ids) if link_id not in done]
    if as_json:
        output.say_json({"action": action, "links": done, "missing": missing})
    output.complain(*(f"{remote.where}: no link has the id {link_id!r}; `links` lists them" for link_id in missing))
    if is_empty:
        output.complain(f"{remote.where}: no link is in vhost {vhost!r}; `links` lists them")
    return not missing and not is_empty


def _as_text(links: Sequence[dict[str, Any]]) -> str:
    """A table as wide as the terminal, or as wide as needed if a program reads it."""
    is_terminal = sys.stdout.isatty()
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=None if is_terminal else UNBOUNDED)
    console.print(_table(links))
    return written.getvalue().rstrip("\n")


def _table(links: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("STATUS", "ID", "KIND", "VHOST", "NAME", "UPSTREAM"):
        table.add_column(name, no_wrap=True)
    for name in ("FORWARDED", "BACKLOG", "OLDEST"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ERROR", overflow="fold")
    for link in sorted(links, key=_order):
        name = link.get("exchange") or link.get("queue") or link.get("name") or ""
        backlog = link["backlog"]
        table.add_row(
            Text(printable(link["status"]), style=_STYLES.get(link["status"], "")),
            *(_plain(each) for each in (link["id"], link["kind"], link["vhost"], name, link["upstream"])),
            str(link["forwarded"]),
            "-" if backlog is None else str(backlog),
            f"{link['oldest_unconfirmed_seconds']:.1f} s",
            _plain(link["error"] or ""),
        )
    return table


def _order(link: dict[str, Any]) -> tuple[str, ...]:
    return link["vhost"], link["kind"], link.get("exchange") or link.get("queue") or "", link["upstream"]


def _plain(text: str) -> Text:
    """Control characters in names are shown as escapes, not sent to the terminal."""
    return Text(printable(text))
