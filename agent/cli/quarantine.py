"""`quarantine`: messages that a destination can't take, set aside beside their source."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from agent.amqp.wire.properties import FLAGS, HEADERS, Properties
from agent.amqp.wire.tables import CodecError
from agent.cli import output
from agent.cli.options import seconds
from agent.cli.references import resolved
from agent.core import fields
from agent.core.addresses.uri import AmqpUri, parse
from agent.core.links.removal import duration
from agent.definitions.sources.load import load_configuration
from agent.errors import UriError, UsageError
from agent.runtime.set_aside import MessageChoice, Outcome, Quarantined, QuarantinedMessage

_SHOWN: Final = 1_000  # bytes of a body
_COLUMNS: Final = ("AGE", "REASON", "LINK", "BYTES", "WAS GOING TO", "WHERE IT IS")

T = TypeVar("T")


def chosen(link: str | None, reason: str | None, older_than: str | None, *, is_limited: bool = False) -> MessageChoice:
    """`is_limited`: something has to choose."""
    if is_limited and (link, reason, older_than) == (None, None, None):
        raise UsageError("choose messages by --link, --reason or --older-than, or give --all")
    return MessageChoice(link, reason, seconds("--older-than", older_than))


def list_messages(path: Path, choice: MessageChoice, uris: Sequence[str], *, as_json: bool) -> tuple[int, bool]:
    """How many there are, and whether all could be looked at."""

    async def look(quarantined: Quarantined) -> list[QuarantinedMessage]:
        # Of very many, the properties would be most of the memory; a list doesn't show them.
        return [replace(each, properties=b"") async for each in quarantined.look(with_bodies=False)]

    found, problems = _run(path, choice, uris, look)
    if as_json:
        output.say_json([_summary(each) for each in found])
    else:
        rows = [_COLUMNS, *(_row(each) for each in found)]
        widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
        for row in rows if found else ():
            output.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        output.say(_counted(len(found), "in quarantine"))
        _say_where(len(found), uris)
    output.complain(*problems)
    return len(found), not problems


def show_messages(
    path: Path, choice: MessageChoice, uris: Sequence[str], *, most: int, as_json: bool
) -> tuple[int, bool]:
    """How many are shown, and whether all could be looked at."""

    async def look(quarantined: Quarantined) -> list[QuarantinedMessage]:
        found: list[QuarantinedMessage] = []
        async with aclosing(quarantined.look(with_bodies=True)) as looked:
            async for each in looked:
                found.append(replace(each, body=None if each.body is None else each.body[:_SHOWN]))
                if len(found) == most:
                    break
        return found

    found, problems = _run(path, choice, uris, look)
    if as_json:
        output.say_json([_whole(each) for each in found])
    else:
        for each in found:
            for name, value in _whole(each).items():
                output.say(f"{name}: {value}")
            output.say("")
        if not found:
            output.say(_counted(0, "in quarantine"))
            _say_where(0, uris)
    output.complain(*problems)
    return len(found), not problems


def replay_messages(path: Path, choice: MessageChoice, uris: Sequence[str], *, as_json: bool) -> tuple[int, bool]:
    outcome, _ = _run(path, choice, uris, Quarantined.replay)
    return _report(outcome, "replayed", uris, as_json=as_json)


def drop_messages(path: Path, choice: MessageChoice, uris: Sequence[str], *, as_json: bool) -> tuple[int, bool]:
    outcome, _ = _run(path, choice, uris, Quarantined.drop)
    return _report(outcome, "dropped", uris, as_json=as_json)


def _say_where(count: int, uris: Sequence[str]) -> None:
    """Nothing found may mean that it is elsewhere: definitions are removed, and messages stay."""
    if not count and not uris:
        output.say("only brokers of defined links, upstreams and shovels were looked at; --uri looks at another one")


def _report(outcome: Outcome, done: str, uris: Sequence[str], *, as_json: bool) -> tuple[int, bool]:
    if as_json:
        output.say_json({done: outcome.done, "problems": outcome.problems})
    else:
        output.complain(*outcome.problems)
        output.say(_counted(outcome.done, done))
        _say_where(outcome.done, uris)
    return outcome.done, not outcome.problems


def _run(
    path: Path, choice: MessageChoice, uris: Sequence[str], work: Callable[[Quarantined], Coroutine[Any, Any, T]]
) -> tuple[T, list[str]]:
    """What was found, and why there may be more."""
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
    try:
        return [parse(resolved(each, "--uri")) for each in uris]
    except UriError as error:
        raise UsageError(f"--uri: {error}") from error


def _row(each: QuarantinedMessage) -> tuple[str, ...]:
    why = each.why
    return (
        duration(max(0.0, time.time() - why.time)),
        why.reason,
        why.link,
        f"{each.size:,}",
        _place(each),
        f"{each.where}, vhost {each.vhost}",
    )


def _place(each: QuarantinedMessage) -> str:
    exchange, key = _text(each.why.exchange), _text(each.why.routing_key)
    return f"{exchange}, key {key}" if exchange else f"queue {key}"


def _summary(each: QuarantinedMessage) -> dict[str, Any]:
    why = each.why
    return {
        "link": why.link,
        "reason": why.reason,
        "since": datetime.fromtimestamp(why.time, UTC).isoformat().replace("+00:00", "Z"),
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


def _counted(count: int, what: str) -> str:
    return f"{count} message {what}" if count == 1 else f"{count} messages {what}"
