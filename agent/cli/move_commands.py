"""The commands `move` and `migrate …` as they are called: their options, and what they are for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agent.cli.options import CONFIG_VARIABLE, FormatOption, LogFormatOption, LogLevelOption, examples
from agent.errors import UsageError

LONGEST_NAME: Final = 255  # bytes, in AMQP
MOST_HELD: Final = 40_000
"""The most messages that may stay: a consumer has 65,535 places, and as many as usual flow beside them."""
Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]

app = typer.Typer()
migrate = typer.Typer(help="Definitions and messages of one cluster brought to another.", no_args_is_help=True)
app.add_typer(migrate, name="migrate")


@app.command(
    epilog=examples(
        "move --from amqp://old/shop --queue orders --to amqp://new/shop --to-queue orders",
        "move -c agent.yml --from origin --queue orders --to downstream --to-exchange orders --limit 1000",
        "move --from amqp://localhost --queue dead-letters --redrive --reason rejected --dry-run",
        "move --from amqp://localhost --queue dead-letters --redrive --died-in orders --strip-deaths",
        "move --from amqp://localhost --queue orders --to-queue orders.eu --match region=eu",
    )
)
def move(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            metavar="FILE",
            help=f"The agent's configuration, whose brokers can be named. {CONFIG_VARIABLE} names a default.",
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="END",
            help="The source: an AMQP URI, or with -c 'downstream' or an upstream's name, VHOST/ before it if needed. "
            "${env:…} and ${file:…} are replaced in a URI.",
        ),
    ],
    queue: Annotated[str, typer.Option("--queue", metavar="QUEUE", help="The queue to take messages from.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="END", help="The destination; without it the same broker.")
    ] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", metavar="QUEUE", help="To this queue.")] = None,
    to_exchange: Annotated[
        str | None, typer.Option("--to-exchange", metavar="EXCHANGE", help="To this exchange.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="With this routing key; without it each keeps its own.")
    ] = None,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Each to the exchange and key, or queue, of its first death (x-death).")
    ] = False,
    until_empty: Annotated[
        bool, typer.Option("--until-empty", help="Go on with what comes meanwhile, until nothing is there.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Take at most so many of those chosen.")] = None,
    reason: Annotated[
        Reason | None, typer.Option("--reason", help="Only those that were dead-lettered for this reason.")
    ] = None,
    died_in: Annotated[
        str | None, typer.Option("--died-in", metavar="QUEUE", help="Only those that were dead-lettered by this queue.")
    ] = None,
    strip_deaths: Annotated[
        bool, typer.Option("--strip-deaths", help="Remove x-death and the headers that go with it.")
    ] = False,
    match: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="HEADER=VALUE", help="Only those with this header; may be repeated."),
    ] = None,
    scan: Annotated[
        int | None,
        typer.Option(
            "--scan",
            min=1,
            max=MOST_HELD,
            help="Stop once so many are held because they stay, 10,000 by default; they go back at the end.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Move nothing: count by destination, and show the first ten.")
    ] = False,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="At most so many messages in a second.")] = None,
    format_: FormatOption = "text",
) -> int:
    """Move what is in a queue, once, with an account of what moved and what is left, and why.

    What the destination refuses, or has no queue for, stays at the source. Exit status: 0 if all that was chosen has
    moved, 4 if some is left, 5 if none was there.
    """
    from agent.amqp.data.rewriting import Destination
    from agent.cli import move as moves
    from agent.core.rules.moves import USUALLY_HELD, HeaderChoice
    from agent.runtime.move_chooser import MoveOptions

    if sum([to_queue is not None, to_exchange is not None, redrive]) != 1:
        raise UsageError("give one of --to-queue, --to-exchange and --redrive")
    if key is not None and to_exchange is None:
        raise UsageError("--key needs --to-exchange")
    for option, name in (("queue", queue), ("to-queue", to_queue), ("to-exchange", to_exchange), ("key", key)):
        if len(os.fsencode(name or "")) > LONGEST_NAME:
            raise UsageError(f"--{option}: longer than {LONGEST_NAME} bytes")
    destination = None if redrive else Destination(to_exchange, key)
    if to_queue is not None:
        destination = Destination("", to_queue)
    options = MoveOptions(
        queue,
        destination,
        HeaderChoice(reason, died_in, tuple(map(moves.matched, match or ()))),
        until_empty=until_empty,
        limit=limit,
        scan=scan or USUALLY_HELD,
        rate=rate,
        strips_deaths=strip_deaths,
        is_dry=dry_run,
    )
    return moves.run(config, (source, to or source), options, form=format_)


@migrate.command(
    epilog=examples(
        "migrate plan migration.yaml",
        "migrate plan migration.yaml --rehearse --format json",
        "migrate plan --source-definitions definitions.json --target-release 4.3",
    )
)
def plan(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The migration file; not needed with --source-definitions."),
    ] = None,
    *,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Try it in a scratch vhost of the target, which is removed again.")
    ] = False,
    source_definitions: Annotated[
        Path | None,
        typer.Option("--source-definitions", metavar="EXPORT", help="Judge a definitions export, without any broker."),
    ] = None,
    target_release: Annotated[
        str | None, typer.Option("--target-release", metavar="RELEASE", help="For this release, as 4.3 or 4.3.6.")
    ] = None,
    format_: FormatOption = "text",
) -> int:
    """Show what the target lacks, what it would refuse or ignore, and what else to know before; change nothing.

    Exit status: 0, or 5 if the target would refuse something as it is at the source, or has it differently.
    """
    from agent.cli import migrate as migration

    if (source_definitions is None) is not (target_release is None):
        raise UsageError("--source-definitions and --target-release need each other")
    if source_definitions is not None and target_release is not None:
        if rehearse:
            raise UsageError("--rehearse needs a target, and with --source-definitions there is none")
        return migration.plan_export(file, source_definitions, target_release, form=format_)
    if file is None:
        raise UsageError("give the migration file, or --source-definitions and --target-release")
    return migration.plan(file, is_rehearsed=rehearse, form=format_)


@migrate.command(epilog=examples("migrate copy migration.yaml", "migrate copy migration.yaml --follow"))
def copy(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The migration file: source, target, and what moves of which vhosts."),
    ],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until a signal: what changes at the source is copied within 30 s.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Make vhosts, policies, exchanges, queues and bindings at the target that it lacks. Deletes nothing, and copies no
    users or permissions.

    It can be repeated at any time. Exit status: 0, or 5 if something is left, or the target has it differently.
    """
    from agent.cli import migrate as migration

    return migration.copy(file, follow=follow, form=format_)


FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The migration file: source, target, and what moves of which vhosts.")
]
WriteOption = Annotated[
    Path | None,
    typer.Option(
        "--write",
        metavar="OUT",
        help="Write that agent's configuration instead, for `run -c OUT` or for an agent that runs already. Never over "
        "a file that it hasn't written.",
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where page, API and metrics are; 127.0.0.1:9419 by default."),
]
ExportOption = Annotated[
    Path | None,
    typer.Option(
        "--status-export", metavar="DIRECTORY", help="Export there how the move goes, for `report`; none by default."
    ),
]


@migrate.command(
    epilog=examples(
        "migrate run migration.yaml",
        "migrate run migration.yaml --listen 127.0.0.1:9420",
        "migrate run migration.yaml --status-export var/status",
        "migrate run migration.yaml --write moving.yaml",
    )
)
def run(
    file: FileArgument,
    *,
    write: WriteOption = None,
    listen: ListenOption = None,
    status_export: ExportOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> int:
    """Move the messages of the queues that are chosen, what waits and what comes, until SIGTERM or SIGINT.

    An ordinary agent does it, beside the target: each queue has a shovel or a queue link. Killed, it goes on once it is
    started again. What `copy` makes at the target meanwhile moves, too. Exit status: as of `run`, or 4 if it can't
    begin.
    """
    from agent.cli import migrate as moving

    return moving.move(
        file, back=False, out=write, listen=listen, export=status_export, log_format=log_format, log_level=log_level
    )


@migrate.command(
    epilog=examples("migrate rollback migration.yaml", "migrate rollback migration.yaml --write moving-back.yaml")
)
def rollback(
    file: FileArgument,
    *,
    write: WriteOption = None,
    listen: ListenOption = None,
    status_export: ExportOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> int:
    """Move them back: `run` the other way, from the target to the source, of the same queues.

    The agent of `run` has to be stopped before.
    """
    from agent.cli import migrate as moving

    return moving.move(
        file, back=True, out=write, listen=listen, export=status_export, log_format=log_format, log_level=log_level
    )


@migrate.command(
    epilog=examples(
        "migrate status migration.yaml",
        "migrate status migration.yaml --format json",
        "migrate status migration.yaml --unfenced",
    )
)
def status(
    file: FileArgument,
    *,
    unfenced: Annotated[
        bool,
        typer.Option("--unfenced", help="Accept 'empty', too: you know that nobody comes back who could publish."),
    ] = False,
    apart: Annotated[
        float,
        typer.Option(
            "--apart",
            min=10,
            max=600,
            help="Seconds between the two looks: more than twice the source's collect_statistics_interval.",
        ),
    ] = 12.0,
    format_: FormatOption = "text",
) -> int:
    """Say of each queue whether it has moved, and whether the old cluster can be switched off, or why not.

    Only the source is looked at, twice; nothing is changed. Exit status: 0 if it can be switched off, 4 if not.
    """
    from agent.cli import migration_status

    return migration_status.status(file, apart=apart, is_unfenced_accepted=unfenced, form=format_)


@migrate.command(
    epilog=examples(
        "migrate fence migration.yaml --user shop --user billing",
        "migrate fence migration.yaml --user shop --close-connections",
    )
)
def fence(
    file: FileArgument,
    *,
    user: Annotated[
        list[str], typer.Option("--user", metavar="USER", help="A user of clients at the source; may be repeated.")
    ],
    close_connections: Annotated[
        bool,
        typer.Option("--close-connections", help="After 11 s, close their connections that are older than the fence."),
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Take 'write' and 'configure' of clients' users in the file's vhosts at the source, so that they can't publish.

    What they had is kept at the source, in a global parameter for each, and 'migrate unfence' gives it back from any
    host. Nothing is taken if somebody else may publish there. It can be repeated. Exit status: 0, or 4.
    """
    from agent.cli import migration_status

    return migration_status.fence(file, user, closes=close_connections, form=format_)


@migrate.command(
    epilog=examples("migrate unfence migration.yaml", "migrate unfence migration.yaml --user shop --format json")
)
def unfence(
    file: FileArgument,
    *,
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="USER", help="Only this user; may be repeated.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where somebody changed the permissions since the fence.")
    ] = False,
    format_: FormatOption = "text",
) -> int:
    """Give clients' users at the source back what 'migrate fence' took.

    It can be repeated. Exit status: 0, or 4 if something is left as it is.
    """
    from agent.cli import migration_status

    return migration_status.unfence(file, user or [], is_forced=force, form=format_)
