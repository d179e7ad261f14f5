"""The commands `quarantine …`: their options, and their exit status."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli.options import ConfigOption, Format, FormatOption, examples
from agent.core.rules.quarantine import QuarantineReason

OK = 0
NOT_ALL = 4
NO_MESSAGE = 5

app = typer.Typer(help="Messages that a destination can't take, set aside beside their source.", no_args_is_help=True)
LinkOption = Annotated[
    str | None, typer.Option("--link", metavar="LINK", help="Of this link: an id, its beginning, or VHOST/NAME.")
]
ReasonOption = Annotated[
    QuarantineReason | None, typer.Option("--reason", help="Only those that are there for this reason.")
]
OlderOption = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Only those that are there for so long: 30m, 12h, 7d.")
]
UriOption = Annotated[
    list[str] | None,
    typer.Option(
        "--uri",
        metavar="URI",
        help="Look only beside this vhost of a broker, which needs no definition; ${env:…} and ${file:…} are replaced.",
    ),
]
EveryOption = Annotated[bool, typer.Option("--all", help="All of them, where nothing else chooses.")]


@app.command(
    name="list",
    epilog=examples("quarantine list -c agent.yml", "quarantine list -c agent.yml --link //orders --older-than 1h"),
)
def list_quarantined(
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """List the messages in quarantine."""
    from agent.cli.quarantine import chosen, list_messages

    choice, as_json = chosen(link, reason, older_than), format_ is Format.JSON
    return _status(list_messages(config, choice, uri or [], as_json=as_json))


@app.command(name="show", epilog=examples("quarantine show -c agent.yml --reason too_large --most 3"))
def show_quarantined(
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many are shown.")] = 1,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show messages in quarantine with their headers and the beginning of their bodies."""
    from agent.cli.quarantine import chosen, show_messages

    choice, as_json = chosen(link, reason, older_than), format_ is Format.JSON
    return _status(show_messages(config, choice, uri or [], most=most, as_json=as_json))


@app.command(name="replay", epilog=examples("quarantine replay -c agent.yml --link //orders"))
def replay_quarantined(
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    every: EveryOption = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Publish messages where they were going; each leaves the quarantine once that is confirmed."""
    from agent.cli.quarantine import chosen, replay_messages

    choice = chosen(link, reason, older_than, is_limited=not every)
    return _status(replay_messages(config, choice, uri or [], as_json=format_ is Format.JSON))


@app.command(name="drop", epilog=examples("quarantine drop -c agent.yml --link //orders --older-than 7d"))
def drop_quarantined(
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    every: EveryOption = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Delete messages from the quarantine, for good."""
    from agent.cli.quarantine import chosen, drop_messages

    choice = chosen(link, reason, older_than, is_limited=not every)
    return _status(drop_messages(config, choice, uri or [], as_json=format_ is Format.JSON))


def _status(found: tuple[int, bool]) -> int:
    """Of how many were handled, and whether all of them were."""
    count, are_all = found
    if not are_all:
        return NOT_ALL
    return OK if count else NO_MESSAGE
