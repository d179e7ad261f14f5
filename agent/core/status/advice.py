"""Advice to operators about each kind of failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from agent.core.links.lag import NO_LAG, LagDescription
from agent.core.links.lifecycle import Status
from agent.core.permissions import Need, Permission, escaped, grant_command
from agent.core.status.failure_kinds import KINDS, SLOW_PATH
from agent.core.text import counted, listed
from agent.errors import Failure, FailureKind

_TOPIC: Final = "topic"
_VHOST: Final = "vhost"
_MOST_NAMED: Final = 10  # links or objects in a command
_MOST_NEEDS: Final = 3  # objects in a sentence


def advice(
    kind: FailureKind,
    broker: str,
    links: Sequence[str] = (),
    *,
    errors: Sequence[str] = (),
    failures: Sequence[Failure] = (),
    needs: Sequence[Need] = (),
    lag: LagDescription = NO_LAG,
    vhosts: Sequence[str] = (),
) -> str:
    """`errors` and `failures` are those of all links with that trouble, first those of the one that is shown. `needs`
    are what a user that lacks a permission needs in that vhost for all links, where it is known. `lag` is that of one
    that is behind, `vhosts` are those that messages don't get into."""
    error = errors[0] if errors else ""
    if kind is FailureKind.PERMISSION:
        missing = dict.fromkeys(replace(each, side=None, is_permanent=False) for each in failures)
        return _grant(tuple(missing), broker, needs)
    if kind is FailureKind.NO_VHOST:
        return _create_vhosts(broker, list(dict.fromkeys(each.vhost for each in failures)))
    facts = KINDS[kind]
    if failures and (own := KINDS[failures[0].kind]).cause is kind and own.advice:
        facts = own
    if facts.advice_on_links and 0 < len(links) <= _MOST_NAMED:
        return facts.advice_on_links.format(broker=broker, links=" ".join(links))
    if kind is FailureKind.BEHIND and (found := _behind(broker, error, lag)):
        return found
    if kind is FailureKind.NO_CONFIRMS and vhosts:
        return f"{facts.advice.format(broker=broker)} To see how full they are: {_list_queues(vhosts)}. {_EMPTY}"
    return facts.advice.format(broker=broker) + _rest(facts.differ_in, errors, failures)


def _behind(broker: str, error: str, lag: LagDescription) -> str:
    """Advice about links that are behind for a known reason; empty without one."""
    if error:
        return f"Look first at what holds the links up: {error}."
    if lag.is_catching_up:
        return f"Wait: the links forward more than is published on {broker}, so there is nothing else to do."
    if lag.is_limited:
        return _RAISE_LIMIT
    return _RAISE_PREFETCH if lag.is_at_prefetch else ""


_EMPTY: Final = (
    "To take what is in one elsewhere: `federation-agent move --from URI --queue QUEUE --to-queue OTHER`; with "
    "`--redrive` instead of `--to-queue` dead letters go back to where they died."
)


def _list_queues(vhosts: Sequence[str]) -> str:
    commands = [f"`rabbitmqctl list_queues -p {quote(each)} name messages policy arguments`" for each in vhosts]
    return listed(commands, _MOST_NAMED, "vhost")


def _create_vhosts(broker: str, vhosts: Sequence[str]) -> str:
    if len(vhosts) <= 1:
        what = f" {quote(vhosts[0])}" if vhosts else ""
        return f"Create the vhost on {broker} (`rabbitmqctl add_vhost{what}`), or correct the path of the URI."
    commands = listed([f"`rabbitmqctl add_vhost {quote(each)}`" for each in vhosts], _MOST_NAMED, "vhost")
    return f"Create the vhosts on {broker} ({commands}), or correct the paths of the URIs."


def _rest(differ_in: str, errors: Sequence[str], failures: Sequence[Failure]) -> str:
    """The errors and objects of further links; the advice itself is about one error."""
    if differ_in in _NAMES:
        named = list(dict.fromkeys(filter(None, map(_NAMES[differ_in], failures))))
        if len(named) > 1:
            return f" All that is named: {listed(named, _MOST_NAMED, differ_in)}."
    differing = sum(each != errors[0] for each in errors) if differ_in else 0
    if not differing:
        return ""
    have = "has another error" if differing == 1 else "have other errors"
    return f" {counted(differing, 'more link')} {have}: `federation-agent links {_WHERE_DOWN}` shows them."


def _object(failure: Failure) -> str:
    return f"{failure.object_type} '{failure.object}' in vhost '{failure.vhost}'" if failure.object else ""


def _user(failure: Failure) -> str:
    return f"'{failure.user}'" if failure.user else ""


_NAMES: Final = {"object": _object, "user": _user}


def _grant(missing: Sequence[Failure], broker: str, needs: Sequence[Need]) -> str:
    """Text on how to grant what one user lacks in one vhost."""
    if not missing or not (missing[0].user and missing[0].vhost):  # an HTTP API asks for tags
        return f"Give the user that the error names the missing permission on {broker}."
    user, vhost = missing[0].user, missing[0].vhost
    topics = dict.fromkeys(each.object for each in missing if each.object_type == _TOPIC)
    others = [each for each in missing if each.object_type != _TOPIC]
    lacking = listed([_need(each) for each in missing], _MOST_NEEDS, "object")  # the command is for all of them
    advised = [f"On {broker}, user {user!r} needs {lacking} in vhost {vhost!r}."]
    if others:
        advised.append(_set_permissions(others, user, vhost, needs))
    if topics:
        advised.append(_set_topic_permissions(tuple(topics), user, vhost))
    return " ".join(advised)


ALLOW_KEY: Final = "Allow that key there by `rabbitmqctl set_topic_permissions`."


def topic_advice(exchange: str, user: str, vhost: str) -> str:
    """Text on how to allow a routing key that a broker refused."""
    return _set_topic_permissions((exchange,), user, vhost)


def _need(each: Failure) -> str:
    """RabbitMQ asks for topic permissions besides those on the exchange, where there are any for user and exchange."""
    if each.object_type == _VHOST or not each.object:  # a long name leaves no room for the rest
        return "permissions"
    on = f"topics of exchange '{each.object}'" if each.object_type == _TOPIC else f"{each.object_type} '{each.object}'"
    return f"{each.permission or 'permission'} on {on}"


def _set_permissions(missing: Sequence[Failure], user: str, vhost: str, needs: Sequence[Need]) -> str:
    """The patterns that `check` advises, too; where it isn't known what links need, some that allow more."""
    if needs:
        refused = (Need(Permission(each.permission or "configure"), _name(each), "") for each in missing)
        command, narrower = grant_command(vhost, user, (*needs, *(each for each in refused if each.on))), ""
    else:
        command = f"rabbitmqctl set_permissions -p {quote(vhost)} {quote(user)} {_configures(missing)} '.*' '.*'"
        narrower = ", or with narrower expressions for configure, write and read"
    return (
        f"Run `{command}`{narrower}. This replaces what `rabbitmqctl list_user_permissions {quote(user)}` shows, so "
        "repeat what is to stay."
    )


def _name(missing: Failure) -> str:
    """Name of the object that permissions are given on: they are in a vhost, and not on it."""
    return "" if missing.object_type == _VHOST else missing.object


def _set_topic_permissions(exchanges: Sequence[str], user: str, vhost: str) -> str:
    commands = [
        f"`rabbitmqctl set_topic_permissions -p {quote(vhost)} {quote(user)} {quote(each)} '.*' '.*'`"
        for each in exchanges[:_MOST_NEEDS]
    ]
    more = len(exchanges) - _MOST_NEEDS
    rest = f", the same for {counted(more, 'more exchange')}" if more > 0 else ""
    return (
        f"Run {', '.join(commands)}{rest}, or with narrower expressions for write and read. This replaces what "
        f"`rabbitmqctl list_user_topic_permissions {quote(user)}` shows for that exchange, so repeat what is to stay."
    )


def _configures(missing: Sequence[Failure]) -> str:
    """An expression for what links declare and what was refused; the shared beginning of many names."""
    configured = (_name(each) for each in missing if each.permission == "configure" and each.object)
    names = sorted({each for each in configured if not each.startswith("federation")})
    if not names:
        return "'^federation'"
    if len(names) <= _MOST_NAMED:
        return quote(f"^(federation|{'|'.join(f'{escaped(each)}$' for each in names)})")
    shared = _shared_beginning(names[0], names[-1])
    return quote(f"^(federation|{escaped(shared)})") if shared else "'.*'"


def _shared_beginning(first: str, last: str) -> str:
    at = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:at]


_RAISE_PREFETCH: Final = (
    "Raise `prefetch-count`, of a shovel `src-prefetch-count`, or remove it, and the agent adapts it to the path. If "
    f"the links still forward less than is published, {SLOW_PATH}."
)
_RAISE_LIMIT: Final = (
    "Raise `rate-limit`, which holds the links, or remove it, if more may go through; neither restarts a link. "
    "Otherwise allow more in `lag-critical`."
)
_WHERE_DOWN: Final = f"--status {Status.INVALID} --status {Status.BACKOFF}"
