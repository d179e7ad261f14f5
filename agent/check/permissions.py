"""The permissions that users lack, as far as an HTTP API shows permissions.

For a topic exchange brokers also ask for topic permissions, where a user has any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Final

from agent.check.context import Attempt, BrokerApis, CheckContext, Endpoint, LinkEnds, address, downstream_in
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.core.addresses.rabbitmq_address import addressed
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import Outlook
from agent.core.links.upstream_steps import Verb
from agent.core.model import (
    DEFAULT_VHOST,
    AddressDestination,
    AddressSource,
    ExchangeLink,
    QueueDestination,
    QueueSource,
    ShovelLink,
    ShovelPlace,
)
from agent.core.permissions import (
    Grant,
    Need,
    Permission,
    TopicGrant,
    grant_command,
    needs_of,
    needs_of_agent,
    needs_of_events,
    patterns_to_add,
    wanted_patterns,
)
from agent.core.text import listed
from agent.errors import BrokerError, PermanentError

MOST_NAMED: Final = 10
_IMPLIED_TAGS: Final = {
    "administrator": {"management", "monitoring", "policymaker"},
    "monitoring": {"management"},
    "policymaker": {"management"},
}


@dataclass(slots=True)
class AccountNeeds:
    """A user in a vhost of a broker in one role, and what is needed there for which links. `in_all` is what the user
    needs there in all roles: a command replaces what another one granted."""

    endpoint: Endpoint
    user: str
    vhost: str
    needs: dict[Need, set[str]] = field(default_factory=dict)
    in_all: tuple[Need, ...] = ()
    perhaps: tuple[Need, ...] = ()  # where nobody could look what is missing there

    def command(self, present: Grant | None) -> str:
        """A line to run where it is known what the user has."""
        if present is None:
            return patterns_to_add(self.vhost, self.user, self.in_all)
        return grant_command(self.vhost, self.user, self.in_all, present)


async def command_to_grant(account: AccountNeeds | None, apis: BrokerApis) -> str:
    """Empty without an account."""
    if account is None:
        return ""
    api = apis.of(account.endpoint)
    grants = None if api is None else await api.grants(account.user)
    return account.command(None if grants is None else grants.get(account.vhost, Grant()))


def accounts_of(
    context: CheckContext, exchanges: dict[str, list[str]], more: Iterable[tuple[Endpoint, Iterable[Need]]] = ()
) -> list[AccountNeeds]:
    """`exchanges` are those that the configuration declares, by vhost; `more` is needed besides what links need."""
    found: dict[tuple[str, str, str, frozenset[str]], AccountNeeds] = {}

    def add(endpoint: Endpoint, needs: Iterable[Need], label: str = "", perhaps: tuple[Need, ...] = ()) -> None:
        needs = tuple(needs)
        for user, vhost in endpoint.accounts:
            key = endpoint.where, user, vhost, endpoint.addresses
            account = found.setdefault(key, AccountNeeds(endpoint, user, vhost))
            for need in needs:
                account.needs.setdefault(need, set()).update([label] if label else [])
            account.perhaps += perhaps

    for endpoint, needs_there in (*_needs_of_agent(context.apis.downstream, exchanges), *more):
        add(endpoint, needs_there)
    for each in context.links:
        for endpoint, needs, perhaps in _needs(each, context):
            add(endpoint, needs, each.label, perhaps)
    for same_user in _by_user(found.values(), context):
        in_all = tuple(dict.fromkeys(need for each in same_user for need in (*each.needs, *each.perhaps)))
        for account in same_user:
            account.in_all = in_all
    return list(found.values())


def _needs_of_agent(
    downstream: Sequence[AmqpUri], exchanges: dict[str, list[str]]
) -> Iterator[tuple[Endpoint, Iterable[Need]]]:
    for vhost in dict.fromkeys(uri.vhost(DEFAULT_VHOST) for uri in downstream):
        yield downstream_in(vhost, downstream), needs_of_agent((), with_events=False)
    yield downstream_in(DEFAULT_VHOST, downstream), needs_of_events()
    for vhost, names in exchanges.items():
        declared = (Need(Permission.CONFIGURE, name, "declaring it") for name in names)
        yield downstream_in(vhost, downstream), declared


def _by_user(accounts: Iterable[AccountNeeds], context: CheckContext) -> Iterator[list[AccountNeeds]]:
    """Accounts of one user in one vhost of one broker, which shared addresses or the cluster's name show."""
    groups: list[tuple[set[tuple[str, ...]], list[AccountNeeds]]] = []
    for account in accounts:
        who = (account.user, account.vhost)
        brokers = set(account.endpoint.addresses)
        brokers |= {f"cluster {each.cluster}" for each in context.brokers.get(account.endpoint, ()) if each.cluster}
        keys: set[tuple[str, ...]] = {(*who, broker) for broker in brokers}
        members = [account]
        for group in [group for group in groups if not group[0].isdisjoint(keys)]:
            groups.remove(group)
            keys, members = keys | group[0], group[1] + members
        groups.append((keys, members))
    yield from (members for _, members in groups)


def _needs(each: LinkEnds, context: CheckContext) -> Iterator[tuple[Endpoint, tuple[Need, ...], tuple[Need, ...]]]:
    """At each end, what is needed there, and what would be where nobody could look what is missing."""
    link, source, destination = each.link, context.broker(each.source), context.broker(each.destination)
    ends = needs_of(
        link,
        source_vhost=each.source.uris[0].vhost(each.source.default_vhost),
        cluster=context.cluster,
        source_asks=source is not None and source.asks_for_configure,
        destination_asks=destination is not None and destination.asks_for_configure,
    )
    there: str | None = link.remote_name
    here: str | None = None
    if isinstance(link, ShovelLink):
        there, here = _queue_at(link.shovel.source), _queue_at(link.shovel.destination)
    missing = {action.name for action in each.planned.actions if action.verb is Verb.CREATE}
    is_unseen = each.planned.outlook in {Outlook.BACKOFF, Outlook.INVALID}
    for endpoint, needs, name in ((each.source, ends.source, there), (each.destination, ends.destination, here)):
        if (broker := context.broker(endpoint)) is not None and not broker.is_rabbitmq:
            yield endpoint, (), ()
            continue
        declaring = (Need(Permission.CONFIGURE, name, "declaring it, as it is missing"),) if name else ()
        yield endpoint, (*needs, *(declaring if name in missing else ())), declaring if is_unseen else ()


def _queue_at(place: ShovelPlace) -> str | None:
    """The queue at one end of a shovel, which the shovel may declare."""
    match place:
        case QueueSource(queue) | QueueDestination(queue):
            return queue
        case AddressSource(address) | AddressDestination(address):
            found = addressed(address)
            return found.name if found is not None and found.kind == "queue" and not found.is_old else None
    return None


async def judge_permissions(
    accounts: list[AccountNeeds], context: CheckContext, attempts: Sequence[Attempt]
) -> AsyncIterator[Finding]:
    """Not of accounts that the broker refuses, which is reported, and comes first."""
    for account in accounts:
        errors = _errors(account, attempts)
        if not account.needs or any(isinstance(each, PermanentError) for each in errors):
            continue
        api = context.apis.of(account.endpoint)
        grants = None if api is None else await api.grants(account.user)
        if grants is None:
            if not errors:
                yield _unjudged(account, api)
        elif not grants and api is not None:
            yield _unknown(account, api, logs_in=not errors)
        else:
            for found in _judge(account, grants.get(account.vhost, Grant("", "", ""))):
                yield found


def _judge(account: AccountNeeds, grant: Grant) -> Iterator[Finding]:
    where, user = account.endpoint.first, f"user {account.user!r}"
    verdicts = {need: grant.allows(need) for need in account.needs}
    for is_required in (True, False):
        missing = [each for each, allowed in verdicts.items() if allowed is False and each.is_required is is_required]
        if missing:
            labels = tuple(sorted({label for need in missing for label in account.needs[need]}))
            judged, effect = (Finding.error, "") if is_required else (Finding.warning, " (links run without)")
            message = f"{user} lacks in vhost {account.vhost!r}: {_listed(missing)}{effect}"
            yield judged(Topic.PERMISSIONS, where, message, account.command(grant), labels)
    undecided = [need for need, allowed in verdicts.items() if allowed is None]
    if undecided:
        message = f"the patterns of {user} can't be evaluated for {_listed(undecided)}"
        yield Finding.note(Topic.PERMISSIONS, where, message)


def _listed(needs: list[Need]) -> str:
    words = [f"{each.permission} on {each.on!r}{'…' if each.is_prefix else ''} ({each.why})" for each in sorted(needs)]
    return listed(words, MOST_NAMED, separator="; ")


def _errors(account: AccountNeeds, attempts: Sequence[Attempt]) -> list[BrokerError]:
    """The errors of all addresses of the account; empty if one of them works, or if nothing was tried."""
    of_user = [each for each in attempts if _is_of_user(each, account)]
    in_vhost = [each for each in of_user if each.uri.vhost(each.endpoint.default_vhost) == account.vhost]
    if not in_vhost and any(each.error is None or each.error.failure.object_type == "vhost" for each in of_user):
        return []  # what is wrong is with other vhosts
    errors = [each.error for each in in_vhost or of_user]
    return [] if None in errors else [each for each in errors if each is not None]


def _is_of_user(attempt: Attempt, account: AccountNeeds) -> bool:
    is_user = (attempt.endpoint.where, attempt.uri.login[0]) == (account.endpoint.where, account.user)
    return is_user and address(attempt.uri) in account.endpoint.addresses


def _unjudged(account: AccountNeeds, api: BrokerApi | None) -> Finding:
    if api is None:
        return _note(account, "without the broker's HTTP API (--api NAME=URL)")
    reason = next((why.what for each, why in api.failures.items() if each.user == account.user), "it doesn't answer")
    return _note(account, f"by {api.where}: {reason}")


def _unknown(account: AccountNeeds, api: BrokerApi, *, logs_in: bool) -> Finding:
    """`set_permissions` fails for a user that the broker's database doesn't have."""
    if logs_in:
        why = f"the broker's own database has no such user ({api.where}), so another service authorises it"
        return replace(_note(account, why), fix=f"allow there {wanted_patterns(account.in_all)}")
    message = f"user {account.user!r} is unknown to the broker's own database, or has no permissions ({api.where})"
    line = f"rabbitmqctl add_user {quote(account.user)}"
    return replace(_note(account, ""), message=message, fix=f"{line}, if it is missing, and {account.command(Grant())}")


def _note(account: AccountNeeds, why: str) -> Finding:
    can = f"the permissions of user {account.user!r} in vhost {account.vhost!r} can't be judged"
    message = f"{can}: {why}; that the login works doesn't prove them"
    labels = tuple(sorted({label for labels in account.needs.values() for label in labels}))
    return Finding.note(Topic.PERMISSIONS, account.endpoint.first, message, account.command(None), labels)


async def judge_topic_permissions(context: CheckContext) -> AsyncIterator[Finding]:
    """Of exchange links: keys that would be bound upstream, and limits of the keys that may be published downstream."""
    for each in context.links:
        link = each.link
        if not isinstance(link, ExchangeLink) or link.exchange.type != "topic":
            continue
        for grant in await _topic_grants(context, each.source, link.remote_name):
            keys = sorted({action.name for action in each.planned.actions if action.verb is Verb.BIND})
            refused = [key for key in keys if grant.allows(Permission.READ, key) is False]
            if refused:
                message = (
                    f"the topic permissions of user {grant.user!r} in vhost {grant.vhost!r} don't allow to read from "
                    f"exchange {grant.exchange!r} with the keys of bindings: "
                    f"{listed(list(map(repr, refused)), MOST_NAMED)}"
                )
                fix = grant.command_to_read(refused)
                yield Finding.error(Topic.PERMISSIONS, each.source.first, message, fix, (each.label,))
        for grant in await _topic_grants(context, each.destination, link.name):
            if not grant.allows_all(Permission.WRITE):
                message = (
                    f"user {grant.user!r} may publish to exchange {grant.exchange!r} in vhost {grant.vhost!r} only "
                    f"with keys that match {grant.write!r}: what comes with others is refused, and goes to the "
                    "quarantine"
                )
                yield Finding.note(Topic.PERMISSIONS, each.destination.first, message, "", (each.label,))


async def _topic_grants(context: CheckContext, endpoint: Endpoint, exchange: str) -> list[TopicGrant]:
    found: list[TopicGrant] = []
    if (api := context.apis.of(endpoint)) is not None:
        for user, vhost in endpoint.accounts:
            grants = await api.topic_grants(user) or ()
            found += [each for each in grants if (each.vhost, each.exchange) == (vhost, exchange)]
    return found


def lacking(tags: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The wanted tags that a user with these hasn't got, and no other one stands for."""
    tags = set(tags)
    return sorted(set(wanted) - tags.union(*(_IMPLIED_TAGS.get(tag, set()) for tag in tags)))


async def judge_tags(api: BrokerApi, *, reads_definitions: bool) -> AsyncIterator[Finding]:
    """Judge the tags of the user of the downstream's HTTP API."""
    tags = await api.tags()
    if tags is None:
        return
    wanted = {"monitoring", *(["policymaker"] if reads_definitions else [])}
    if missing := lacking(tags, wanted):
        yield Finding.warning(
            Topic.PERMISSIONS,
            api.where,
            f"the user of downstream.management lacks the tags {', '.join(missing)}: vhosts that it has no permission "
            "in, links of the native plugins, or definitions stay unseen",
            f"rabbitmqctl set_user_tags USER {' '.join(sorted({*tags, *wanted}))}",
        )
