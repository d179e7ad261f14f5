"""Commands that ask a running agent: their options and exit status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from agent.cli import output
from agent.cli.options import (
    DEFAULT_CONFIG,
    OK,
    UNKNOWN_LINK,
    Format,
    FormatOption,
    Sort,
    examples,
    seconds,
    usual_config,
)
from agent.core.links.lifecycle import Status
from agent.errors import AgentError, UsageError

if TYPE_CHECKING:
    from agent.cli.remote import Remote

DOWNSTREAM_UNREAD: Final = 1
NOT_ALIVE: Final = 1
ALIVE_WITHIN: Final = 3.0  # seconds

URL_VARIABLE: Final = "FEDERATION_AGENT_URL"
COMPLETION_PATIENCE: Final = 2.0  # seconds; somebody waits for it at each press of a key

app = typer.Typer()


def _agent(url: str | None, token_file: Path | None, config: Path | None, within: float | None = None) -> Remote:
    from agent.cli.remote import reach

    return reach(url, token_file, config, within=within)


def complete_link(incomplete: str) -> list[tuple[str, str]]:
    """For the shell: links of the agent that a command without options asks. Empty where it doesn't answer: a shell has
    no place for an error."""
    from agent.cli.remote import completions

    try:
        agent = _agent(os.environ.get(URL_VARIABLE), None, None, within=COMPLETION_PATIENCE)
        return completions(agent.links(), incomplete)
    except (AgentError, KeyError, TypeError):
        return []


OutputOption = Annotated[
    Literal["text", "wide", "json", "yaml"] | None,
    typer.Option("-o", "--output", help="Output format: wide has all columns; json and yaml all fields."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar=URL_VARIABLE, help="The agent's HTTP address (default: the configuration's)."),
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
        "-c",
        "--config",
        metavar="FILE",
        help=f"The agent's configuration, with its address and token. {DEFAULT_CONFIG}",
    ),
]
LinksArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LINK",
        help="Links by id, the beginning of one, or vhost/name.",
        show_default=False,
        autocompletion=complete_link,
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All links.")]
VhostOption = Annotated[str | None, typer.Option("--vhost", help="All links of this vhost.")]
UpstreamOption = Annotated[
    list[str] | None, typer.Option("--upstream", help="All links of this upstream or cluster; may be repeated.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until interrupted.")]


@app.command(epilog=examples("links", "links --status down --sort backlog", "links --upstream dc1 --watch"))
def links(
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    vhost: Annotated[str | None, typer.Option("--vhost", help="Only the links of this vhost.")] = None,
    *,
    watch: WatchOption = False,
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
    format_: FormatOption = "text",
) -> int:
    """Show the links of a running agent, those in trouble first.

    On a terminal the table fits the screen; for a program each link is one line.
    """
    from agent.cli.links import Selection, show_links, statuses_of, watch_links

    selection = Selection(vhost, statuses_of(status or ()), tuple(upstream or ()), sort)
    remote, form = _agent(url, token_file, config), output_ or format_
    if watch:
        watch_links(remote, selection, form)
        return OK
    return OK if show_links(remote, selection, form) else DOWNSTREAM_UNREAD


@app.command(epilog=examples("describe //orders", "describe 1a2b3c4d -o yaml"))
def describe(
    link: Annotated[
        str,
        typer.Argument(metavar="LINK", help="Id, the beginning of one, or vhost/name.", autocompletion=complete_link),
    ],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    *,
    output_: OutputOption = None,
    format_: FormatOption = "text",
) -> int:
    """Show everything about one link of a running agent: fields, last events, what to do."""
    from agent.cli.links import describe_link

    describe_link(_agent(url, token_file, config), link, output_ or format_)
    return OK


@app.command(epilog=examples("status", "status --wait --timeout 120 && echo deployed", "status --watch"))
def status(
    *,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all is fine, as after a start or a change.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Wait no longer.", min=0)] = 60.0,
    watch: WatchOption = False,
    output_: OutputOption = None,
    format_: FormatOption = "text",
) -> int:
    """Show on one screen whether a running agent and its links are fine, and what is wrong.

    Exits with 0 if all is fine, 1 if some links start or are in trouble, 2 if none works or the agent doesn't answer.
    """
    from agent.cli.status import show_status, wait_until_fine, watch_status

    remote, form = _agent(url, token_file, config), output_ or format_
    if wait:
        wait_until_fine(remote, timeout=timeout)
    if watch:
        watch_status(remote, form)
        return OK
    return show_status(remote, form)


@app.command(epilog=examples("ack 5e6f7a8b --for 2h --reason 'disk is ordered'", "ack 5e6f7a8b --undo"))
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
    format_: FormatOption = "text",
) -> int:
    """Acknowledge a cause of trouble of a running agent: it comes behind those that nobody knows of yet.

    It comes back when it stops more links. The exit status of `status` and alerts stay as they are.
    """
    from agent.cli.status import acknowledge

    age, as_json = seconds("--for", for_), format_ == "json"
    remote = _agent(url, token_file, config)
    is_known = acknowledge(remote, cause, for_=age, reason=reason, undo=undo, as_json=as_json)
    return OK if is_known else UNKNOWN_LINK


@app.command(epilog=examples("alive", "alive --url http://127.0.0.1:9419"))
def alive(url: UrlOption = None, config: AgentConfigOption = None) -> int:
    """Exit with 0 if the process of an agent answers, else with 1: a health check for containers."""
    try:
        _agent(url, None, config, within=ALIVE_WITHIN).check_alive()
    except AgentError as error:
        output.complain(f"federation-agent: {error}")
        return NOT_ALIVE
    return OK


@app.command(epilog=examples("events --since 10m", "events --follow //orders"))
def events(
    link: Annotated[
        str | None,
        typer.Argument(metavar="LINK", help="Only of this one, which may be gone.", autocompletion=complete_link),
    ] = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    *,
    since: Annotated[str | None, typer.Option("--since", metavar="AGE", help="Only the last 90s, 10m, 2h, 7d.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until interrupted.")] = False,
    format_: FormatOption = "text",
) -> int:
    """Show what changed with the links of a running agent, when, and why: the last 2,000 changes of status.

    With --follow and --format json each is one line.
    """
    from agent.cli.links import show_events

    age, as_json = seconds("--since", since), format_ == "json"
    show_events(_agent(url, token_file, config), link, since=age, follow=follow, as_json=as_json)
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

    found = config or usual_config()
    output.say(str(write_bundle(_agent(url, token_file, config), output_, found)))
    return OK


@app.command(
    "resume", help="Resume paused links of a running agent.", epilog=examples("resume //orders", "resume --all")
)
@app.command(
    "restart",
    help="Restart links of a running agent: they reconnect; queues and bindings upstream stay.",
    epilog=examples("restart //orders", "restart --upstream dc1"),
)
def restart_or_resume(
    context: typer.Context,
    ids: LinksArgument = None,
    all_: AllOption = False,
    vhost: VhostOption = None,
    *,
    upstream: UpstreamOption = None,
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = "text",
) -> int:
    action, at = str(context.info_name), (url, token_file, config)
    return _act(action, ids, all_, vhost=vhost, upstream=upstream, at=at, format_=format_)


@app.command(epilog=examples("pause //orders --reason 'disk is replaced'", "pause --all --vhost shop"))
def pause(
    ids: LinksArgument = None,
    all_: AllOption = False,
    vhost: VhostOption = None,
    *,
    upstream: UpstreamOption = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; shown wherever the link is.")] = "",
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
    format_: FormatOption = "text",
) -> int:
    """Pause links of a running agent until they are resumed: they stop consuming; messages wait upstream."""
    return _act(
        "pause", ids, all_, vhost=vhost, upstream=upstream, at=(url, token_file, config), format_=format_, reason=reason
    )


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

    selection = Selection(vhost, (), tuple(upstream or ()))
    if bool(ids) == (everything or bool(selection.text)):
        raise UsageError(f"give either links, --vhost or --all, or --upstream: federation-agent {action} LINK...")
    remote, as_json = _agent(*at), format_ == "json"
    known = act(remote, action, ids or [], selection=selection, reason=reason, as_json=as_json)
    return OK if known else UNKNOWN_LINK


@app.command(epilog=examples("forget 1a2b3c4d"))
def forget(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `status` shows them.")],
    url: UrlOption = None,
    token_file: TokenOption = None,
    config: AgentConfigOption = None,
) -> int:
    """Forget links whose exchange or queue was deleted: `status` no longer names them as a cause of trouble."""
    remote = _agent(url, token_file, config)
    unknown = [each for each in ids if remote.act(each, "forget") is None]
    for each in unknown:
        output.complain(
            f"federation-agent: {remote.where}: no link {each!r} whose exchange or queue was deleted is remembered"
        )
    return UNKNOWN_LINK if unknown else OK
