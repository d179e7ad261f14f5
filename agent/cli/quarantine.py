"""The commands `quarantine …`: messages that a destination can't take, which wait beside their source."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from agent.cli import output
from agent.cli.options import OK, ConfigOption, FormatOption, examples, seconds, with_secrets
from agent.core.rules.quarantine import QuarantineReason
from agent.errors import UriError, UsageError

if TYPE_CHECKING:
    from agent.core.addresses.uri import AmqpUri
    from agent.runtime.quarantined_messages import MessageChoice, Outcome, Quarantined, QuarantinedMessage

NOT_ALL: Final = 4
NO_MESSAGE: Final = 5
_SHOWN: Final = 1_000  # bytes of a body
_COLUMNS: Final = ("AGE", "REASON", "LINK", "BYTES", "WAS GOING TO", "WHERE IT IS")

T = TypeVar("T")

app = typer.Typer(help="Messages that a destination can't take, quarantined beside their source.", no_args_is_help=True)
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
    format_: FormatOption = "text",
) -> int:
    """List the messages in quarantine."""
    choice, uris = _choice(link, reason, older_than), uri or []

    async def look(quarantined: Quarantined) -> list[QuarantinedMessage]:
        # Of very many, the properties would be most of the memory; a list doesn't show them.
        return [replace(each, properties=b"") async for each in quarantined.look(with_bodies=False)]

    found, problems = _run(config, choice, uris, look)
    if format_ == "json":
        output.say_json([_summary(each) for each in found])
    else:
        rows = [_COLUMNS, *(_row(each) for each in found)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
        for row in rows if found else ():
            output.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        _say_count(len(found), "in quarantine", uris)
    output.complain(*problems)
    return _status(len(found), problems)


@app.command(name="show", epilog=examples("quarantine show -c agent.yml --reason too_large --most 3"))
def show_quarantined(
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many are shown.")] = 1,
    format_: FormatOption = "text",
) -> int:
    """Show messages in quarantine with their headers and the beginning of their bodies."""
    choice, uris = _choice(link, reason, older_than), uri or []

    async def look(quarantined: Quarantined) -> list[QuarantinedMessage]:
        found: list[QuarantinedMessage] = []
        async with aclosing(quarantined.look(with_bodies=True)) as looked:
            async for each in looked:
                found.append(replace(each, body=None if each.body is None else each.body[:_SHOWN]))
                if len(found) == most:
                    break
        return found

    found, problems = _run(config, choice, uris, look)
    if format_ == "json":
        output.say_json([_whole(each) for each in found])
    else:
        for each in found:
            for name, value in _whole(each).items():
                output.say(f"{name}: {value}")
            output.say("")
        if not found:
            _say_count(0, "in quarantine", uris)
    output.complain(*problems)
    return _status(len(found), problems)


@app.command(
    "drop",
    help="Delete messages from the quarantine, for good.",
    epilog=examples("quarantine drop -c agent.yml --link //orders --older-than 7d"),
)
@app.command(
    "replay",
    help="Publish messages where they were going; each leaves the quarantine once that is confirmed.",
    epilog=examples("quarantine replay -c agent.yml --link //orders"),
)
def replay_or_drop(
    context: typer.Context,
    config: ConfigOption,
    *,
    link: LinkOption = None,
    reason: ReasonOption = None,
    older_than: OlderOption = None,
    uri: UriOption = None,
    every: EveryOption = False,
    format_: FormatOption = "text",
) -> int:
    choice, uris, replays = (
        _choice(link, reason, older_than, needs_one=not every),
        uri or [],
        context.info_name == "replay",
    )

    async def handle(quarantined: Quarantined) -> Outcome:
        return await (quarantined.replay() if replays else quarantined.drop())

    outcome, _ = _run(config, choice, uris, handle)
    done = "replayed" if replays else "dropped"
    if format_ == "json":
        output.say_json({done: outcome.done, "problems": outcome.problems})
    else:
        output.complain(*outcome.problems)
        _say_count(outcome.done, done, uris)
    return _status(outcome.done, outcome.problems)


def _choice(link: str | None, reason: str | None, older_than: str | None, *, needs_one: bool = False) -> MessageChoice:
    """`needs_one`: at least one option has to choose."""
    if needs_one and (link, reason, older_than) == (None, None, None):
        raise UsageError("choose messages by --link, --reason or --older-than, or give --all")
    from agent.runtime.quarantined_messages import MessageChoice

    return MessageChoice(link, reason, seconds("--older-than", older_than))


def _status(count: int, problems: Sequence[str]) -> int:
    if problems:
        return NOT_ALL
    return OK if count else NO_MESSAGE


def _say_count(count: int, done: str, uris: Sequence[str]) -> None:
    """Nothing found may mean that it is elsewhere: definitions are removed, and messages stay."""
    output.say(f"{count} message {done}" if count == 1 else f"{count} messages {done}")
    if not count and not uris:
        output.say("only brokers of defined links, upstreams and shovels were looked at; --uri looks at another one")


def _run(
    path: Path, choice: MessageChoice, uris: Sequence[str], work: Callable[[Quarantined], Coroutine[Any, Any, T]]
) -> tuple[T, list[str]]:
    """The result, and why there may be more."""
    import asyncio

    from agent.definitions.sources.load import load_configuration
    from agent.runtime.quarantined_messages import Quarantined

    only = _parsed(uris)
    configuration = load_configuration(str(path), environment=os.environ)

    async def run() -> tuple[T, list[str]]:
        quarantined = await Quarantined.read(configuration, choice, only)
        found = await work(quarantined)
        output.complain(*(f"not looked at: {each}" for each in dict.fromkeys(quarantined.elsewhere)))
        return found, quarantined.problems

    return asyncio.run(run())


def _parsed(uris: Sequence[str]) -> list[AmqpUri]:
    """An error never quotes them."""
    from agent.core.addresses.uri import parse

    try:
        return [parse(with_secrets("--uri", each)) for each in uris]
    except UriError as error:
        raise UsageError(f"--uri: {error}") from error


def _row(each: QuarantinedMessage) -> tuple[str, ...]:
    from agent.core.links.waits import duration

    why = each.why
    exchange, key = _text(why.exchange), _text(why.routing_key)
    return (
        duration(max(0.0, time.time() - why.time)),
        why.reason,
        why.link,
        f"{each.size:,}",
        f"{exchange}, key {key}" if exchange else f"queue {key}",
        f"{each.where}, vhost {each.vhost}",
    )


def _summary(each: QuarantinedMessage) -> dict[str, Any]:
    from agent.core.text import rfc3339

    why = each.why
    return {
        "link": why.link,
        "reason": why.reason,
        "since": rfc3339(why.time, digits="auto"),
        "exchange": _text(why.exchange),
        "routing_key": _text(why.routing_key),
        "bytes": each.size,
        "where": each.where,
        "vhost": each.vhost,
    }


def _whole(each: QuarantinedMessage) -> dict[str, Any]:
    body = each.body or b""
    try:
        text: dict[str, Any] = {"body": body.decode()}
    except UnicodeDecodeError:
        text = {"body_base64": base64.b64encode(body).decode()}
    return {**_summary(each), **_properties(each.properties), **text}


def _properties(written: bytes) -> dict[str, Any]:
    """As far as they can be read."""
    from agent.amqp.wire.properties import FLAGS, HEADERS, Properties
    from agent.amqp.wire.tables import CodecError
    from agent.core import fields

    try:
        found = Properties.read(written)
        headers = fields.table_to_json(found.headers) if found.flags & HEADERS else {}
    except CodecError:
        return {"properties_base64": base64.b64encode(written).decode()}
    plain = {name: found.get(flag) for name, flag in FLAGS.items() if flag != HEADERS}
    numbers = {"delivery_mode", "priority", "timestamp"}
    shown = {
        name: int.from_bytes(value, "big") if name in numbers else _text(value[1:])
        for name, value in plain.items()
        if value is not None
    }
    return {"properties": shown, "headers": headers}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
