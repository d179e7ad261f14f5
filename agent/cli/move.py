"""The command `move`: a queue's messages once, to another queue, exchange or broker, with an account."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.cli import output
from agent.cli.options import OK, usual_config, with_secrets
from agent.cli.signals import on_first_signal
from agent.core.rules.moves import NOT_CHOSEN, REASONS, MoveAccount
from agent.core.text import counted, did_you_mean, in_full, in_words
from agent.errors import UriError, UsageError

if TYPE_CHECKING:
    from agent.links.ends import End
    from agent.runtime.move_chooser import MoveOptions
    from agent.runtime.moves import Move

SOME_LEFT: Final = 4
NONE_THERE: Final = 5
BETWEEN_LINES: Final = 10.0
BETWEEN_BARS: Final = 0.5
BAR: Final = 30


def matched(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise UsageError(f"--match {text!r}: write HEADER=VALUE")
    return name, value


def run(config: Path | None, named: tuple[str, str], options: MoveOptions, *, form: str) -> int:
    return asyncio.run(_run(config, named, options, form=form))


async def _run(config: Path | None, named: tuple[str, str], options: MoveOptions, *, form: str) -> int:
    from agent.runtime.moves import Move
    from agent.tasks import run_until_first

    source, destination = await _ends(config, named)
    wanted = options.destination
    is_one_place = (source.uris, source.default_vhost) == (destination.uris, destination.default_vhost)
    if is_one_place and wanted is not None and (wanted.exchange, wanted.routing_key) == ("", options.queue):
        raise UsageError("the source and the destination are the same queue")
    move = Move(source, destination, options)
    on_first_signal(lambda: move.stop("interrupted"))  # which settles what is in flight
    await run_until_first(move.run(), _show_progress(move))
    account = move.account
    if form == "json":
        output.say_json(_as_json(account, options))
    else:
        say_account(account, options)
    output.complain(*account.notes, *([] if account.error is None else [str(account.error)]))
    return status_of(account, options)


def status_of(account: MoveAccount, options: MoveOptions) -> int:
    if not account.is_complete:
        return SOME_LEFT
    done = account.taken - account.left[NOT_CHOSEN] if options.is_dry else account.moved
    return OK if done else NONE_THERE


async def _ends(config: Path | None, named: tuple[str, str]) -> tuple[End, End]:
    from agent.core.addresses.uri import parse
    from agent.links.ends import End

    found = []
    for option, where, text in (("--from", "source", named[0]), ("--to", "destination", named[1])):
        if "://" not in text:
            found.append(await named_end(config, option, where, text))
            continue
        try:
            found.append(End(where, (parse(with_secrets(option, text)),)))
        except UriError as error:  # its text never quotes it
            raise UsageError(f"{option}: {error}") from error
    return found[0], found[1]


async def named_end(config: Path | None, option: str, where: str, text: str) -> End:
    """The broker that a configuration gives a name, which may have its vhost before it."""
    from agent.definitions.sources.load import load_configuration
    from agent.links.ends import DOWNSTREAM, End, reachable

    if "@" in text:  # it may hold a password
        raise UsageError(f"{option}: neither an AMQP URI nor a name: a URI begins with amqp:// or amqps://")
    path = config or usual_config()
    if path is None:
        raise UsageError(f"{option}: no AMQP URI, and without -c there is no configuration that has it as a name")
    configuration = load_configuration(str(path), environment=os.environ)
    own = configuration.settings.downstream.uris
    vhosts = configuration.definitions.vhosts
    every = [(each, name, upstream) for each, there in vhosts.items() for name, upstream in there.upstreams.items()]
    found = [of for of in every if text == f"{of[0]}/{of[1]}"]  # either name may hold slashes
    vhost, _, name = text.rpartition("/")
    if name == DOWNSTREAM and not found:
        return End(where, tuple(uri.in_vhost(vhost) for uri in own) if vhost else own)
    found = found or [of for of in every if text == of[1]]
    if len(found) > 1:
        raise UsageError(f"{option} {text!r}: {len(found)} upstreams are called so: write VHOST/UPSTREAM")
    for each, _, upstream in found:
        return End(where, reachable(upstream.uris, each, own), each)
    names = {DOWNSTREAM}.union(*(there.upstreams for there in vhosts.values()))
    raise UsageError(f"{option} {text!r}: {path} has no such upstream{did_you_mean(name, sorted(names))}")


async def _show_progress(move: Move) -> None:
    """A bar on a terminal, a line every ten seconds elsewhere, both on standard error."""
    is_terminal, began = sys.stderr.isatty(), time.monotonic()
    try:
        while True:
            await asyncio.sleep(BETWEEN_BARS if is_terminal else BETWEEN_LINES)
            text = progress(move, time.monotonic() - began)
            if is_terminal:
                _draw(output.line(text))
            else:
                output.complain(text)
    finally:
        if is_terminal:
            _draw("")


def _draw(line: str) -> None:
    with suppress(OSError):  # the terminal is gone; the move goes on
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()


def progress(move: Move, seconds: float) -> str:
    moved, there = move.moved, move.wanted
    done, rate = moved + move.staying, moved / max(seconds, 0.001)
    share = min(1.0, done / there) if there else 0.0
    full = int(share * BAR)
    parts = [f"[{'#' * full}{'-' * (BAR - full)}] {moved:,} of {there:,} moved", f"{rate:,.0f}/s"]
    if rate >= 1 and done < there:
        parts.append(f"{in_words((there - done) / rate)} left")
    if move.staying:
        parts.append(f"{move.staying:,} stay")
    if move.blocked is not None:
        parts.append(f"blocked by the destination: {move.blocked}")
    return ", ".join(parts)


def _as_json(account: MoveAccount, options: MoveOptions) -> dict[str, Any]:
    found: dict[str, Any] = {
        "taken": account.taken,
        "moved": account.moved,
        "left": dict(account.left),
        "there": account.there,
        "waiting": account.waiting,
        "counts_deliveries": account.counts_deliveries,
        "seconds": round(account.seconds, 3),
        "notes": account.notes,
        "error": None if account.error is None else str(account.error),
    }
    if options.is_dry:
        found["destinations"] = [
            {"exchange": exchange, "routing_key": key, "messages": count}
            for (exchange, key), count in account.destinations.most_common()
        ]
        found["first"] = account.first
    return found


def say_account(account: MoveAccount, options: MoveOptions) -> None:
    if options.is_dry:
        for each in account.first:
            output.say(f"{_place(each['exchange'], each['routing_key'])}, {each['bytes']:,} bytes: {each['headers']}")
        for (exchange, key), count in account.destinations.most_common():
            output.say(f"{count:,} to {_place(exchange, key)}")
    for reason, count in account.left.most_common():
        if reason in REASONS:
            output.say(f"{reason} {count:,}: {REASONS[reason]}")
    if account.counts_deliveries:
        output.say("on this quorum queue, each message that stays counts as delivered once more")
    if account.waiting:
        output.say(f"{counted(account.waiting, 'message waits', 'messages wait')} in queue {options.queue!r}")
    if options.is_dry:
        output.say(f"looked at {account.taken:,} of {account.there:,}, moved none (--dry-run)")
        return
    left = ", ".join(f"{reason} {count:,}" for reason, count in account.left.most_common())
    total = sum(account.left.values())
    rate = account.moved / max(account.seconds, 0.001)
    output.say(
        f"taken {account.taken:,} = moved {account.moved:,} + left {total:,}{f' ({left})' if left else ''}, "
        f"in {in_full(account.seconds)} ({rate:,.0f}/s)"
    )


def _place(exchange: str, key: str) -> str:
    return f"exchange {exchange!r} with key {key!r}" if exchange else f"queue {key!r}"
