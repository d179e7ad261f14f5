"""Which permissions each user lacks, as far as an HTTP API shows permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Final

from agent.check.connections import DEFAULT_VHOST, Endpoint, Tried, beside
from agent.check.context import Apis, LinkEnds, Scene
from agent.check.findings import Finding, Level, Topic
from agent.check.http_api import Api
from agent.core.links.plan import Outlook
from agent.core.links.reconcile import Verb
from agent.core.model import ExchangeLink, QueueLink, ShovelLink
from agent.core.permissions import (
    Grant,
    Need,
    Permission,
    grant_command,
    needs_of,
    needs_of_agent,
    needs_of_events,
    patterns_to_add,
    wanted_patterns,
)
from agent.errors import BrokerError, PermanentError

MOST_NAMED: Final = 10
_TAGS: Final = {"administrator": {"management", "monitoring", "policymaker"}, "monitoring": {"management"}}


@dataclass(slots=True)
class Account:
    """A user in a vhost of a broker in one role, and what is needed there for which links. `in_all` is what the user
    needs there in all roles: a command replaces what another one granted."""

    endpoint: Endpoint
    user: str
    vhost: str
    needs: dict[Need, set[str]] = field(default_factory=dict)
    in_all: tuple[Need, ...] = ()
    perhaps: tuple[Need, ...] = ()  # where it couldn't be looked what is missing there

    @property
    def patterns(self) -> str:
        return wanted_patterns(self.in_all)

    def command(self, present: Grant | None) -> str:
        """A line to run where it is known what the user has."""
        if present is None:
            return patterns_to_add(self.vhost, self.user, self.in_all)
        return grant_command(self.vhost, self.user, self.in_all, present)


async def present_grant(account: Account, apis: Apis) -> Grant | None:
    """None where it can't be read."""
    api = apis.of(account.endpoint)
    grants = None if api is None else await api.grants(account.user)
    return None if grants is None else grants.get(account.vhost, Grant())


def accounts_of(scene: Scene, exchanges: dict[str, list[str]]) -> list[Account]:
    """`exchanges` are those that the configuration declares, by vhost."""
    found: dict[tuple[str, str, str, frozenset[str]], Account] = {}

    def add(endpoint: Endpoint, needs: tuple[Need, ...], label: str, perhaps: tuple[Need, ...] = ()) -> None:
        addresses = frozenset(f"{uri.connect_host}:{uri.connect_port}" for uri in endpoint.uris)
        for user, vhost in endpoint.accounts:
            account = found.setdefault((endpoint.where, user, vhost, addresses), Account(endpoint, user, vhost))
            for need in needs:
                account.needs.setdefault(need, set()).update([label] if label else [])
            account.perhaps += perhaps

    for vhost in dict.fromkeys(uri.vhost(DEFAULT_VHOST) for uri in scene.apis.downstream):
        add(beside(vhost, scene.apis.downstream), tuple(needs_of_agent((), with_events=False)), "")
    add(beside(DEFAULT_VHOST, scene.apis.downstream), tuple(needs_of_events()), "")
    for vhost, names in exchanges.items():
        declared = tuple(Need(Permission.CONFIGURE, name, "declaring it") for name in names)
        add(beside(vhost, scene.apis.downstream), declared, "")
    for each in scene.links:
        source, destination = _needs(each, scene)
        is_unseen = each.planned.outlook in {Outlook.BACKOFF, Outlook.INVALID}
        of_source, of_destination = (
            _declaring(name, {name} if is_unseen else set()) for name in (_source_name(each), _destination_name(each))
        )
        add(each.source, source, each.label, of_source)
        add(each.destination, destination, each.label, of_destination)
    accounts = list(found.values())
    for several in _same_users(accounts, scene):
        in_all = tuple(dict.fromkeys(need for each in several for need in (*each.needs, *each.perhaps)))
        for account in several:
            account.in_all = in_all
    return accounts


def _same_users(accounts: Iterable[Account], scene: Scene) -> Iterator[list[Account]]:
    """Accounts of one user in one vhost of one broker, which shared addresses or the cluster's name show."""
    groups: list[tuple[set[tuple[str, ...]], list[Account]]] = []
    for account in accounts:
        who = (account.user, account.vhost)
        brokers = {f"{uri.connect_host}:{uri.connect_port}" for uri in account.endpoint.uris}
        brokers |= {f"cluster {each.cluster}" for each in scene.opened.get(account.endpoint, ()) if each.cluster}
        keys: set[tuple[str, ...]] = {(*who, broker) for broker in brokers}
        members = [account]
        for group in [group for group in groups if not group[0].isdisjoint(keys)]:
            groups.remove(group)
            keys, members = keys | group[0], group[1] + members
        groups.append((keys, members))
    yield from (members for _, members in groups)


def _needs(each: LinkEnds, scene: Scene) -> tuple[tuple[Need, ...], tuple[Need, ...]]:
    source, destination = scene.shown(each.source), scene.shown(each.destination)
    ends = needs_of(
        each.link,
        source_vhost=each.source.uris[0].vhost(each.source.default_vhost),
        cluster=scene.cluster,
        source_asks=source is not None and source.asks_for_configure,
        destination_asks=destination is not None and destination.asks_for_configure,
    )
    missing = {action.name for action in each.planned.actions if action.verb is Verb.CREATE}
    return (
        (*ends.source, *_declaring(_source_name(each), missing)),
        (*ends.destination, *_declaring(_destination_name(each), missing)),
    )


def _declaring(name: str | None, missing: Collection[str | None]) -> tuple[Need, ...]:
    return (Need(Permission.CONFIGURE, name, "declaring it, as it is missing"),) if name in missing and name else ()


def _source_name(each: LinkEnds) -> str | None:
    link = each.link
    if isinstance(link, ExchangeLink | QueueLink):
        return link.remote_name
    return link.shovel.source.keys.get("src-queue")


def _destination_name(each: LinkEnds) -> str | None:
    link = each.link
    return link.shovel.destination.keys.get("dest-queue") if isinstance(link, ShovelLink) else None


async def judge(accounts: list[Account], scene: Scene, tried: Sequence[Tried]) -> AsyncIterator[Finding]:
    """Not of accounts that the broker refuses, which is reported, and comes first."""
    for account in accounts:
        errors = _errors(account, tried)
        if any(isinstance(each, PermanentError) for each in errors):
            continue
        api = scene.apis.of(account.endpoint)
        grants = None if api is None else await api.grants(account.user)
        if grants is None:
            if not errors:
                yield _unjudged(account, api)
        elif not grants and api is not None:
            yield _unknown(account, api, logs_in=not errors)
        else:
            for found in _judged(account, grants.get(account.vhost, Grant("", "", ""))):
                yield found


def _judged(account: Account, grant: Grant) -> list[Finding]:
    verdicts = {need: grant.allows(need) for need in account.needs}
    found = []
    for is_required in (True, False):
        missing = [each for each, allowed in verdicts.items() if allowed is False and each.is_required is is_required]
        if missing:
            labels = sorted({label for need in missing for label in account.needs[need]})
            found.append(
                Finding(
                    Level.ERROR if is_required else Level.WARNING,
                    Topic.PERMISSIONS,
                    _where(account),
                    f"user {account.user!r} lacks in vhost {account.vhost!r}: {_listed(missing)}"
                    + ("" if is_required else " (links run without)"),
                    account.command(grant),
                    tuple(labels),
                )
            )
    undecided = [need for need, allowed in verdicts.items() if allowed is None]
    if undecided:
        message = f"the patterns of user {account.user!r} can't be evaluated for {_listed(undecided)}"
        found.append(Finding(Level.NOTE, Topic.PERMISSIONS, _where(account), message))
    return found


def _listed(needs: list[Need]) -> str:
    words = [f"{each.permission} on {each.on!r}{'…' if each.is_prefix else ''} ({each.why})" for each in sorted(needs)]
    more = len(words) - MOST_NAMED
    return "; ".join(words[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _errors(account: Account, tried: Sequence[Tried]) -> list[BrokerError]:
    """Why the account reached the broker by none of its addresses; empty if it did by one, or if nothing was tried."""
    of_user = [each for each in tried if _is_of_user(each, account)]
    in_vhost = [each for each in of_user if each.uri.vhost(each.endpoint.default_vhost) == account.vhost]
    if not in_vhost and any(each.error is None or each.error.failure.object_type == "vhost" for each in of_user):
        return []  # what is wrong is with other vhosts
    errors = [each.error for each in in_vhost or of_user]
    return [] if None in errors else [each for each in errors if each is not None]


def _is_of_user(tried: Tried, account: Account) -> bool:
    endpoint = account.endpoint
    addresses = {(uri.connect_host, uri.connect_port) for uri in endpoint.uris}
    return (tried.endpoint.where, tried.uri.login[0]) == (endpoint.where, account.user) and (
        tried.uri.connect_host,
        tried.uri.connect_port,
    ) in addresses


def _unjudged(account: Account, api: Api | None) -> Finding:
    if api is None:
        return _note(account, "without the broker's HTTP API (--api NAME=URL)")
    reason = next((why for what, why in api.failures.items() if repr(account.user) in what), "it doesn't answer")
    return _note(account, f"by {api.where}: {reason.removeprefix(f'{api.where}: ')}")


def _unknown(account: Account, api: Api, *, logs_in: bool) -> Finding:
    """`set_permissions` fails for a user that the broker's database doesn't have."""
    if logs_in:
        why = f"the broker's own database has no such user ({api.where}), so another service authorises it"
        fix = f"allow there {account.patterns}"
        return replace(_note(account, why), fix=fix)
    found = _note(account, "")
    message = f"user {account.user!r} is unknown to the broker's own database, or has no permissions ({api.where})"
    line = f"rabbitmqctl add_user {quote(account.user)}"
    return replace(found, message=message, fix=f"{line}, if it is missing, and {account.command(Grant())}")


def _note(account: Account, why: str) -> Finding:
    can = f"the permissions of user {account.user!r} in vhost {account.vhost!r} can't be judged"
    return Finding(
        Level.NOTE,
        Topic.PERMISSIONS,
        _where(account),
        f"{can}: {why}; that the login works doesn't prove them",
        account.command(None),
        tuple(sorted({label for labels in account.needs.values() for label in labels})),
    )


def _where(account: Account) -> str:
    uri = account.endpoint.uris[0]
    return f"{account.endpoint.where} {uri.host}:{uri.connect_port}"


async def judge_tags(api: Api, *, reads_definitions: bool) -> AsyncIterator[Finding]:
    """Of the user of the downstream's HTTP API."""
    tags = await api.tags()
    if tags is None:
        return
    able = set(tags).union(*(_TAGS.get(tag, set()) for tag in tags))
    if "policymaker" in able:
        able.add("management")
    wanted = {"monitoring", *(["policymaker"] if reads_definitions else [])}
    if missing := sorted(wanted - able):
        yield Finding(
            Level.WARNING,
            Topic.PERMISSIONS,
            api.where,
            f"the user of downstream.management lacks the tags {', '.join(missing)}: vhosts that it has no permission "
            "in, links of the native plugins, or definitions stay unseen",
            f"rabbitmqctl set_user_tags USER {' '.join(sorted({*tags, *wanted}))}",
        )
