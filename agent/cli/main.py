"""The command `federation-agent`: its options, and the exit status of each error."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent.cli import output, quarantine_commands
from agent.cli.options import WITHOUT_IT, ConfigOption, Format, FormatOption, Sort, examples, seconds, usual_config
from agent.core.links.lifecycle import Status
from agent.errors import AgentError, BrokerError, CannotStartError, ConfigurationError, UsageError

OK = 0
BAD_USE = 2
BAD_CONFIGURATION = 2
CANNOT_START = 3
TROUBLE_WITH_BROKERS = 4
CHANGES = 4
UNKNOWN_LINK = 5
DOWNSTREAM_UNREAD = 1
NOT_ALIVE = 1
INTERRUPTED = 130
ALIVE_WITHIN = 3.0  # seconds

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they print the values of variables, some of which are secrets
    context_settings={"help_option_names": ["-h", "--help"]},
    help="RabbitMQ federation and shovels from outside the broker.",
)


app.add_typer(quarantine_commands.app, name="quarantine")


class Output(StrEnum):
    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output | None, typer.Option("-o", "--output", help="Output format: wide has all columns; json and yaml all fields.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="FEDERATION_AGENT_URL", help="The agent's HTTP address (default: the configuration's)."
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the agent's token (default: FEDERATION_AGENT_TOKEN, or the configuration's token).",
    ),
]
AgentConfigOption = Annotated[
    Path | None,
    typer.Option(
        "-c", "--config", metavar="FILE", help=f"The agent's configuration, with its address and token. {WITHOUT_IT}"
    ),
]


def _complete(incomplete: str) -> list[tuple[str, str]]:
    from agent.cli.completion import complete_link

    return complete_link(incomplete)


IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LINK",
        help="Links by id, the beginning of one, or vhost/name.",
        show_default=False,
        autocompletion=_complete,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All links.")]
VhostOption = Annotated[str | None, typer.Option("--vhost", help="All links of this vhost.")]
UpstreamOption = Annotated[
    list[str] | None, typer.Option("--upstream", help="All links of this upstream or cluster; may be repeated.")
]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        output.say(f"federation-agent {installed('federation-agent')}")
        raise typer.Exit


@app.command(
    epilog=examples(
        "validate -c agent.yml",
        "validate /etc/federation-agent/*.yml --format json",
    )
)
def validate(
    config: Annotated[
        list[Path] | None, typer.Option("-c", "--config", metavar="FILE", help="A configuration; may be repeated.")
    ] = None,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Further configurations.")] = None,
    no_secrets: Annotated[
        bool, typer.Option("--no-secrets", help="On another machine than the agent's: files of secrets may be missing.")
    ] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Report all errors of configurations, offline."""
    from agent.cli.validate import validate_files

    usual = usual_config()
    paths = [*(config or []), *(files or [])] or [each for each in (usual,) if each]
    if not paths:
        raise UsageError("give a file: federation-agent validate -c FILE")
    is_valid = validate_files(paths, secrets=not no_secrets, as_json=format_ is Format.JSON)
    return OK if is_valid else BAD_CONFIGURATION


@app.command(
    epilog=examples(
        "plan -c agent.yml",
        "plan -c agent.yml --exit-code || echo 'something would change'",
    )
)
def plan(
    config: ConfigOption,
    *,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 4 if something would change, or can't be told.")
    ] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show what `run` would create, keep and delete, and why.

    Reads from the brokers at both ends and changes nothing.
    """
    from agent.cli.plan import show_plan

    has_changes = show_plan(config, as_json=format_ is Format.JSON)
    return CHANGES if exit_code and has_changes else OK


@app.command(
    epilog=examples(
        "check -c agent.yml",
        "check -c agent.yml --api 'dc1=${env:DC1_API}'",
        "check -c agent.yml --deliver",
    )
)
def check(
    config: ConfigOption,
    api: Annotated[
        list[str] | None,
        typer.Option(
            "--api",
            metavar="NAME=URL",
            help="HTTP API of an upstream, by NAME, VHOST/NAME or HOST:PORT; ${env:…} and ${file:…} are replaced.",
        ),
    ] = None,
    *,
    deliver: Annotated[
        bool, typer.Option("--deliver", help="Send a message through each link where no user's queue can get it.")
    ] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Check a configuration on the real brokers, and change nothing there.

    Looks at addresses, TLS, logins, permissions, limits, releases, clocks, native links and loops.
    """
    from agent.cli.check import check_brokers

    as_json = format_ is Format.JSON
    return OK if check_brokers(config, api or [], deliver=deliver, as_json=as_json) else TROUBLE_WITH_BROKERS


class Drawing(StrEnum):
    TEXT = "text"
    JSON = "json"
    DOT = "dot"
    SVG = "svg"


@app.command(
    epilog=examples(
        "topology dc1.yml dc2.yml dc3.yml",
        "topology dc1.yml dc2.yml --format svg > federation.svg",
    )
)
def topology(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Configurations of the agents, one a cluster.")],
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", metavar="NAME", help="Look at exchanges of this name.")
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="CLUSTER=HOST[:PORT]", help="An address that other clusters know one by."),
    ] = None,
    format_: Annotated[Drawing, typer.Option("--format", help="Text, data, or a drawing.")] = Drawing.TEXT,
) -> int:
    """Show where messages go in a federation of several clusters, offline.

    Reports what arrives more than once or never, and the max-hops that would be right.
    """
    from agent.cli.topology import show_topology

    return OK if show_topology(files, exchange or [], address or [], format_=format_) else TROUBLE_WITH_BROKERS


@app.command(name="run", epilog=examples("run -c agent.yml", "run -c agent.yml --log-format json"))
def run_command(
    config: ConfigOption,
    log_format: Annotated[
        Literal["auto", "console", "json"] | None, typer.Option(help="Overrides the configuration.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(help="Overrides the configuration."),
    ] = None,
    wait_for_configuration: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="For sidecars: over a configuration that isn't valid, don't exit with 2, but answer probes here and "
            "wait for a valid one.",
        ),
    ] = None,
) -> int:
    """Run until SIGTERM or SIGINT."""
    # The first process of a container gets only the signals that it handles, and loading takes a while.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))
    from agent.cli.run import run_agent

    run_agent(config, log_format=log_format, log_level=log_level, waits_at=wait_for_configuration)
    return OK


@app.command(
    epilog=examples(
        "links",
        "links --status down --sort backlog",
        "links --upstream dc1 --watch",
    )
)
def links(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only the links of this vhost.")] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until interrupted.")] = False,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only links of this status, or: up, down, broken; may be repeated.",
            autocompletion=lambda: [*Status, "up", "down", "broken"],
        ),
    ] = None,
    upstream: Annotated[
        list[str] | None, typer.Option("--upstream", help="Only links of this upstream or cluster; may be repeated.")
    ] = None,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="The largest first, rather than those in trouble.")
    ] = None,
    output_: OutputOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show the links of a running agent, those in trouble first.

    On a terminal the table fits the screen; for a program each link is one line.
    """
    from agent.cli.links import Selection, show_links, statuses_of, watch_links
    from agent.cli.remote import reach

    selection = Selection(vhost, statuses_of(status or ()), tuple(upstream or ()), sort)
    remote, form = reach(url, token_file, config), _form(output_, format_)
    if watch:
        watch_links(remote, selection, form)
        return OK
    return OK if show_links(remote, selection, form) else DOWNSTREAM_UNREAD


@app.command(
    epilog=examples(
        "describe //orders",
        "describe 1a2b3c4d -o yaml",
    )
)
def describe(
    link: Annotated[
        str,
        typer.Argument(metavar="LINK", help="Id, the beginning of one, or vhost/name.", autocompletion=_complete),
    ],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    *,
    output_: OutputOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show everything about one link of a running agent: fields, last events, what to do."""
    from agent.cli.describe import describe_link
    from agent.cli.link_names import UnknownLinkError
    from agent.cli.remote import reach

    try:
        describe_link(reach(url, token_file, config), link, _form(output_, format_))
    except UnknownLinkError as error:
        output.complain(str(error))
        return UNKNOWN_LINK
    return OK


@app.command(
    epilog=examples(
        "status",
        "status --wait --timeout 120 && echo deployed",
        "status --watch",
    )
)
def status(
    *,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all is fine, as after a start or a change.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Wait no longer.", min=0)] = 60.0,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until interrupted.")] = False,
    output_: OutputOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show on one screen whether a running agent and its links are fine, and what is wrong.

    Exits with 0 if all is fine, 1 if some links start or are in trouble, 2 if none works or the agent doesn't answer.
    """
    from agent.cli.remote import reach
    from agent.cli.status import show_status, wait_until_fine, watch_status

    remote, form = reach(url, token_file, config), _form(output_, format_)
    if wait:
        wait_until_fine(remote, timeout=timeout)
    if watch:
        watch_status(remote, form)
        return OK
    return show_status(remote, form)


@app.command(
    epilog=examples(
        "ack 5e6f7a8b --for 2h --reason 'disk is ordered'",
        "ack 5e6f7a8b --undo",
    )
)
def ack(
    cause: Annotated[str, typer.Argument(metavar="CAUSE", help="Id, or the beginning of one, as `status` shows it.")],
    *,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="AGE", help="For 90s, 10m, 2h, 7d (default: until it ends or stops more links)."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; shown wherever the cause is.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Acknowledge a cause of trouble of a running agent: it comes behind those that nobody knows of yet.

    It comes back when it stops more links. The exit status of `status` and alerts stay as they are.
    """
    from agent.cli.remote import reach
    from agent.cli.status import acknowledge

    age, as_json = seconds("--for", for_), format_ is Format.JSON
    remote = reach(url, token_file, config)
    is_known = acknowledge(remote, cause, for_=age, reason=reason, undo=undo, as_json=as_json)
    return OK if is_known else UNKNOWN_LINK


@app.command(epilog=examples("alive", "alive --url http://127.0.0.1:9419"))
def alive(url: UrlOption = None, config: AgentConfigOption = None) -> int:
    """Exit with 0 if the process of an agent answers, else with 1: a health check for containers."""
    from agent.cli.remote import reach

    try:
        reach(url, None, config, within=ALIVE_WITHIN).check_alive()
    except AgentError as error:
        output.complain(f"federation-agent: {error}")
        return NOT_ALIVE
    return OK


@app.command(
    epilog=examples(
        "events --since 10m",
        "events --follow //orders",
    )
)
def events(
    link: Annotated[
        str | None,
        typer.Argument(metavar="LINK", help="Only of this one, which may be gone.", autocompletion=_complete),
    ] = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    *,
    since: Annotated[str | None, typer.Option("--since", metavar="AGE", help="Only the last 90s, 10m, 2h, 7d.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until interrupted.")] = False,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show what changed with the links of a running agent, when, and why: the last 2,000 changes of status.

    With --follow and --format json each is one line.
    """
    from agent.cli.events import show_events
    from agent.cli.link_names import UnknownLinkError
    from agent.cli.remote import reach

    age, as_json = seconds("--since", since), format_ is Format.JSON
    try:
        show_events(reach(url, token_file, config), link, since=age, follow=follow, as_json=as_json)
    except UnknownLinkError as error:
        output.complain(str(error))
        return UNKNOWN_LINK
    return OK


@app.command(epilog=examples("bundle", "bundle -c agent.yml -o fault.tar.gz"))
def bundle(
    output_: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where it is written; never over a file.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", metavar="FILE", help="With this configuration, without its secrets."),
    ] = None,
    *,
    url: UrlOption = None,
    token_file: TokenOption = None,
) -> int:
    """Write an archive for a report of a fault: overview, causes, links, changes and metrics of a running agent.

    It holds no secret; it names brokers, vhosts, users, exchanges and queues.
    """
    from agent.cli.bundle import write_bundle
    from agent.cli.remote import reach

    found = config or usual_config()
    output.say(str(write_bundle(reach(url, token_file, config), output_, found)))
    return OK


@app.command(
    epilog=examples(
        "restart //orders",
        "restart --upstream dc1",
    )
)
def restart(
    ids: IdsArgument = None,
    all_: AllOption = False,
    vhost: VhostOption = None,
    *,
    upstream: UpstreamOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Restart links of a running agent: they reconnect; queues and bindings upstream stay."""
    at = url, token_file, config
    return _act("restart", ids, all_, vhost=vhost, upstream=upstream, at=at, format_=format_)


@app.command(
    epilog=examples(
        "pause //orders --reason 'disk is replaced'",
        "pause --all --vhost shop",
    )
)
def pause(
    ids: IdsArgument = None,
    all_: AllOption = False,
    vhost: VhostOption = None,
    *,
    upstream: UpstreamOption = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; shown wherever the link is.")] = "",
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Pause links of a running agent until they are resumed: they stop consuming; messages wait upstream."""
    at = url, token_file, config
    return _act("pause", ids, all_, vhost=vhost, upstream=upstream, at=at, format_=format_, reason=reason)


@app.command(
    epilog=examples(
        "resume //orders",
        "resume --all",
    )
)
def resume(
    ids: IdsArgument = None,
    all_: AllOption = False,
    vhost: VhostOption = None,
    *,
    upstream: UpstreamOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Resume paused links of a running agent."""
    at = url, token_file, config
    return _act("resume", ids, all_, vhost=vhost, upstream=upstream, at=at, format_=format_)


@app.command(epilog=examples("forget 1a2b3c4d"))
def forget(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `status` shows them.")],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
) -> int:
    """Forget links whose exchange or queue was deleted: `status` no longer names them as a cause of trouble."""
    from agent.cli.remote import reach

    remote = reach(url, token_file, config)
    unknown = [each for each in ids if remote.act(each, "forget") is None]
    for each in unknown:
        output.complain(
            f"federation-agent: {remote.where}: no link {each!r} whose exchange or queue was deleted is remembered"
        )
    return UNKNOWN_LINK if unknown else OK


def _form(output_: Output | None, format_: Format) -> str:
    return (format_ if output_ is None else output_).value


def _act(
    action: str,
    ids: list[str] | None,
    everything: bool,
    *,
    vhost: str | None,
    upstream: list[str] | None,
    at: tuple[str | None, Path | None, Path | None],
    format_: Format,
    reason: str = "",
) -> int:
    from agent.cli.links import Selection, act
    from agent.cli.remote import reach

    selection = Selection(vhost, (), tuple(upstream or ()))
    if bool(ids) == (everything or bool(selection.text)):
        raise UsageError(f"give either links, --vhost or --all, or --upstream: federation-agent {action} LINK...")
    remote, as_json = reach(*at), format_ is Format.JSON
    known = act(remote, action, ids or [], selection=selection, reason=reason, as_json=as_json)
    return OK if known else UNKNOWN_LINK


@app.command(name="import-legacy", epilog=examples("import-legacy rabbitmq.config > agent.yml"))
def import_legacy(
    file: Annotated[Path, typer.Argument(metavar="rabbitmq.config", help="Erlang configuration of the 2.x plugin.")],
    format_: FormatOption = Format.TEXT,
) -> int:
    """Print a 2.x federation configuration as this agent's YAML."""
    from agent.cli.import_legacy import print_imported

    print_imported(file, as_json=format_ is Format.JSON)
    return OK


class Rules(StrEnum):
    PROMETHEUS = "prometheus"


@app.command(epilog=examples("objectives objectives.yml --format prometheus > rules.yml"))
def objectives(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file that `report --objectives` reads.")],
    format_: Annotated[Rules, typer.Option("--format", help="Recording and alert rules for Prometheus.")],
) -> int:
    """Print rules that watch objectives as they happen."""
    from agent.cli.objectives import print_rules

    del format_  # there is one
    print_rules(file)
    return OK


@app.command(
    name="report",
    add_help_option=False,  # the options are those of the Spark job, which describes them itself
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def report_command(context: typer.Context) -> int:
    """Turn status exports into tables of availability, traffic and incidents, with Spark."""
    from agent.cli.report import make_report

    make_report(context.args)
    return OK


def run(arguments: Sequence[str]) -> int:
    """Runs one command; each error of the agent is one line on standard error."""
    try:
        status = app(list(arguments) or ["--help"], prog_name="federation-agent", standalone_mode=False)
    except ConfigurationError as error:
        output.complain(*(str(problem) for problem in error.problems))
        return BAD_CONFIGURATION
    except BrokerError as error:
        output.complain(str(error))
        return TROUBLE_WITH_BROKERS
    except CannotStartError as error:
        output.complain(str(error))
        return CANNOT_START
    except UsageError as error:
        output.complain(f"federation-agent: {error}")
        return BAD_USE
    except AgentError as error:
        output.complain(f"federation-agent: {error}")
        return TROUBLE_WITH_BROKERS
    except typer.TyperException as error:
        output.complain(f"federation-agent: {error.format_message()} (see --help)")
        return BAD_USE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        # Brokers and files have their own errors above; what remains is our own output.
        output.forget()
        output.complain(f"federation-agent: the output can't be written: {error.strerror or error}")
        return CANNOT_START
    return status if isinstance(status, int) else OK


def main() -> None:
    sys.exit(run(sys.argv[1:]))
