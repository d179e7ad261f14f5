"""Brokers themselves: what each shows when a connection opens, its limits and clock, alarms of its nodes, and exchanges
there that links depend on.

While one node has an alarm, the whole cluster accepts no messages. Over AMQP only who publishes gets to know of it, so
that needs the HTTP API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from agent.amqp.connect import Connection, connect, connect_any
from agent.amqp.declares import ObjectFound, Presence, probe
from agent.amqp10.terminus import Terminus
from agent.check.context import SOURCE, Attempt, BrokerFacts, CheckContext, Endpoint, Expiring, is_by_certificate
from agent.check.findings import Finding, Topic
from agent.check.http_api import BrokerApi
from agent.check.policies import PolicyTarget, effective_policy
from agent.core import fields
from agent.core.addresses.expiry import certificate_expiry, token_expiry
from agent.core.addresses.rabbitmq_address import addressed, in_other_form
from agent.core.addresses.uri import AmqpUri
from agent.core.links.plan import Outlook
from agent.core.model import DEFAULT_VHOST, ExchangeLink, ShovelLink
from agent.core.permissions import EVENTS
from agent.core.status.advice import advice
from agent.core.status.failure_kinds import KINDS
from agent.core.text import listed
from agent.errors import BrokerError, FailureKind
from agent.links.ends import DOWNSTREAM, terminus_of, wired
from agent.management.answers import NodeAnswer
from agent.network import read_certificates

PATIENCE: Final = 10.0  # seconds for one address
AT_ONCE: Final = 50  # connections
CONNECTION_NAME: Final = "federation-agent: check"
DAY: Final = 86_400.0
SOON: Final = 30 * DAY
LARGEST_CLOCK_DIFFERENCE: Final = 5.0
FEW_CHANNELS: Final = 32
ALTERNATE: Final = "alternate-exchange"


async def try_all(endpoints: Iterable[Endpoint]) -> list[Attempt]:
    """Connect to every address of each endpoint, and close the connection."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(endpoint: Endpoint, uri: AmqpUri) -> Attempt:
        async with gate:
            return await _try(endpoint, uri)

    unique = dict.fromkeys(endpoints)
    return await asyncio.gather(*(one(endpoint, uri) for endpoint in unique for uri in endpoint.uris))


async def _try(endpoint: Endpoint, uri: AmqpUri) -> Attempt:
    where, vhost = endpoint.where, endpoint.default_vhost
    # Any address would do: nothing attaches to it here.
    terminus = Terminus("", is_source=where == SOURCE) if endpoint.is_amqp10 else None
    try:
        connection = await connect(
            uri,
            where=where,
            name=CONNECTION_NAME,
            default_vhost=vhost,
            within=PATIENCE,
            wired=wired(terminus, CONNECTION_NAME),
        )
    except BrokerError as error:
        return Attempt(endpoint, uri, error=error)
    async with connection:
        facts = await _facts(connection, uri)
        # A message's headers may take several frames of AMQP 1.0.
        is_any_frame = terminus is not None and not terminus.is_source
        return Attempt(endpoint, uri, replace(facts, frame_max=0) if is_any_frame else facts)


async def _facts(connection: Connection, uri: AmqpUri) -> BrokerFacts:
    server = connection.server
    return BrokerFacts(
        where=connection.where,
        vhost=connection.vhost,
        user="" if is_by_certificate(uri) else uri.login[0],
        version=server.version,
        cluster=server.cluster_name,
        product=server.product,
        frame_max=connection.wire.frame_max,
        channel_max=connection.wire.channel_max,
        limits_deliveries=server.limits_deliveries,
        asks_for_configure=server.forgives_nacks,  # both since 4.3
        is_encrypted=uri.tls is not None,
        is_verified=uri.tls is not None and uri.tls.verify,
        certificates=tuple([each async for each in _expiring(connection, uri)]),
        blocked=connection.blocked,
    )


async def _expiring(connection: Connection, uri: AmqpUri) -> AsyncIterator[Expiring]:
    shown = connection.wire.peer_certificate
    found = [("the server's certificate", shown)] if shown else []
    if uri.tls is not None:
        files = (("the client certificate", uri.tls.certfile), ("an authority in", uri.tls.cacertfile))
        for what, file in files:
            found += [(f"{what} {file}", each) for each in (await read_certificates(file) if file is not None else ())]
    for what, der in found:
        try:
            yield Expiring(what, certificate_expiry(der))
        except ValueError:
            continue
    end = None if uri.password is None else token_expiry(uri.password.reveal())
    if end is not None:
        yield Expiring("the token in the URI", end)


def judge_broker(broker: BrokerFacts, now: float) -> Iterator[Finding]:
    for each in broker.certificates:
        days = (each.at - now) / DAY
        if days < 0:
            yield Finding.error(Topic.TLS, broker.where, f"{each.what} expired {-days:.0f} days ago", "renew it")
        elif each.at - now < SOON:
            yield Finding.warning(Topic.TLS, broker.where, f"{each.what} expires in {days:.1f} days", "renew it")
    if broker.is_encrypted and not broker.is_verified:
        yield Finding.warning(
            Topic.TLS,
            broker.where,
            "the server's certificate is not verified, so anybody on the way can read and change messages",
            "write verify=verify_peer and cacertfile=… in its URI",
        )
    if broker.blocked is not None:
        message = f"the broker accepts no messages now: {broker.blocked}"
        yield Finding.warning(Topic.ALARM, broker.where, message, "see `rabbitmq-diagnostics alarms` there")
    if 0 < broker.channel_max < FEW_CHANNELS:
        message = f"only {broker.channel_max} channels a connection: links open one connection after the other"
        yield Finding.warning(Topic.LIMITS, broker.where, message, "raise channel_max there, or in the URI")
    if not broker.version:
        yield Finding.note(Topic.RELEASE, broker.where, "the broker doesn't show its release")


def judge_pair(source: BrokerFacts, destination: BrokerFacts, *, has_quarantine: bool = True) -> Iterator[Finding]:
    """Judge the limits of two brokers that a link connects. `has_quarantine`: beside the source."""
    where = f"{source.where} → {destination.where}"
    kept = "go to the quarantine" if has_quarantine else "stay at the source"
    if destination.frame_max and (not source.frame_max or destination.frame_max < source.frame_max):
        yield Finding.note(
            Topic.LIMITS,
            where,
            f"frames of {destination.frame_max} bytes at the destination, {source.frame_max or 'any number of'} at the "
            f"source: headers that fit no frame {kept}",
        )
    before, after = _max_message_mib(source), _max_message_mib(destination)
    if after < before and source.is_rabbitmq:
        yield Finding.note(
            Topic.LIMITS,
            where,
            f"by default the destination ({destination.version}) takes messages of up to {after} MiB, the "
            f"source ({source.version}) of up to {before} MiB: larger ones {kept}. Brokers don't "
            "show their max_message_size",
            "set max_message_size of the destination to that of the source",
        )


def _max_message_mib(broker: BrokerFacts) -> int:
    """The default of max_message_size: 128 MiB, and 16 MiB since 4.0."""
    return 16 if broker.limits_deliveries else 128


def judge_addresses(context: CheckContext) -> Iterator[Finding]:
    """Find addresses in the form of RabbitMQ before 4.0 that a later one still takes, as it may be configured to."""
    for each in context.links:
        if each.planned.outlook is not Outlook.RUN or not isinstance(each.link, ShovelLink):
            continue  # where the address stops the link, that shows the other form
        shovel = each.link.shovel
        for place, endpoint in ((shovel.source, each.source), (shovel.destination, each.destination)):
            terminus, broker = terminus_of(shovel, place), context.broker(endpoint)
            found = None if terminus is None else addressed(terminus.address)
            if terminus is None or broker is None or found is None or not (found.is_old and broker.limits_deliveries):
                continue
            other = in_other_form(terminus.address, is_source=terminus.is_source, since_4_0=True)
            message = f"address {terminus.address!r} is in the form of releases before 4.0, which is deprecated"
            fix = f"write {other!r}" if other else "write '/queues/NAME' of a queue that is bound to the exchange"
            yield Finding.warning(Topic.RELEASE, broker.where, message, fix, (each.label,))


def judge_credit(context: CheckContext, without: Container[str]) -> Iterator[Finding]:
    """Find destinations of AMQP 1.0 that take no messages now; `without` has the ids of their links."""
    for each in context.links:
        broker = context.broker(each.destination)
        if each.link.id not in without or not isinstance(each.link, ShovelLink) or broker is None:
            continue
        terminus = terminus_of(each.link.shovel, each.link.shovel.destination)
        if terminus is not None:
            message = f"address {terminus.address!r} gives no credit within a second, so the shovel would be blocked"
            fix = "look there for an alarm or a full queue; some brokers give credit only while somebody reads"
            yield Finding.warning(Topic.ALARM, broker.where, message, fix, (each.label,))


def judge_clock(where: str, difference: float) -> Iterator[Finding]:
    """`difference` is how far the broker's clock is ahead, in seconds; HTTP shows it in whole ones."""
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE:
        direction = "ahead of" if difference > 0 else "behind"
        yield Finding.warning(
            Topic.CLOCK,
            where,
            f"its clock is {abs(difference):.0f} s {direction} this machine's: times in logs, reports and headers "
            "don't agree, and certificates and tokens may count as expired",
            "run NTP on both machines",
        )


def alarms_of(nodes: Sequence[NodeAnswer], broker: str) -> Iterator[tuple[str, str]]:
    """Each alarm in words that name its nodes, and how to end it on the `broker`."""
    for kind, key in ((FailureKind.MEMORY_ALARM, "mem_alarm"), (FailureKind.DISK_ALARM, "disk_free_alarm")):
        lacking = [each["name"] for each in nodes if each.get(key) is True]
        if lacking:
            yield f"{kind} on {listed(lacking)}", KINDS[kind].clearing.format(broker=broker)


async def judge_alarms(context: CheckContext) -> AsyncIterator[Finding]:
    """Judges brokers whose HTTP API may be asked, and names others. A downstream without one is reported already."""
    for api in context.apis.all:
        nodes = await api.running_nodes()
        if nodes is not None:
            to = [each.label for each in context.links if context.apis.of(each.destination) is api]
            from_ = [each.label for each in context.links if context.apis.of(each.source) is api]
            for found in judge_nodes(api.where, nodes, links_to=to, links_from=from_):
                yield found
    unseen = [each for each in context.brokers if each.where != DOWNSTREAM and context.apis.of(each) is None]
    for found in judge_unseen(list(dict.fromkeys(context.brokers[each][0].where for each in unseen))):
        yield found


def judge_nodes(
    where: str, nodes: Sequence[NodeAnswer], *, links_to: Sequence[str], links_from: Sequence[str]
) -> Iterator[Finding]:
    """`links_to` publish to this broker and stop, `links_from` take messages from it and find nothing new."""
    links = tuple(dict.fromkeys(links_to or links_from))
    judged = Finding.error if links_to else Finding.warning
    effect = "links to it deliver nothing" if links_to else "nothing new arrives there, and its backlog still flows"
    for alarm, fix in alarms_of(nodes, "that broker"):
        yield judged(Topic.ALARM, where, f"{alarm}: the broker accepts no messages, so {effect}", fix, links)
    if not all(isinstance(each.get(key), bool) for each in nodes for key in ("mem_alarm", "disk_free_alarm")):
        message = "whether a node has a memory or disk alarm can't be seen: the broker has no statistics, or none yet"
        yield Finding.note(Topic.ALARM, where, message, "see `rabbitmq-diagnostics alarms` there")


def judge_unseen(brokers: Sequence[str]) -> Iterator[Finding]:
    """`brokers` have no HTTP API that may be asked."""
    if brokers:
        named = listed(brokers)
        message = f"whether {named} has a memory or disk alarm can't be seen without the HTTP API"
        yield Finding.note(Topic.ALARM, "brokers", message, "give --api NAME=URL")


async def judge_event_exchange(context: CheckContext) -> AsyncIterator[Finding]:
    """Without events the agent notices changes when it polls. Of a downstream that lets nobody in, that is reported."""
    if not any(endpoint.where == DOWNSTREAM for endpoint in context.brokers):
        return
    effect = "the agent polls for changes: new bindings take effect after up to 30 s instead of at once"
    try:
        found = (await _look_for([EVENTS], DEFAULT_VHOST, context.apis.downstream))[EVENTS]
    except BrokerError as error:
        # Nobody knows yet whether the plugin is enabled.
        failure, fix = error.failure, ""
        if failure.kind is FailureKind.PERMISSION:
            fix = advice(failure.kind, f"the {DOWNSTREAM}", failures=[failure])
        message = f"{EVENTS!r} can't be looked for in vhost '/', so {effect}: {error.what}"
        yield Finding.warning(Topic.EVENTS, error.where or DOWNSTREAM, message, fix)
        return
    if found.presence is Presence.MISSING:
        message = f"exchange {EVENTS!r} is missing in vhost '/': {effect}"
        yield Finding.warning(Topic.EVENTS, DOWNSTREAM, message, "rabbitmq-plugins enable rabbitmq_event_exchange")


async def judge_alternate_exchanges(context: CheckContext) -> AsyncIterator[Finding]:
    """Find missing ones of federated exchanges: what no queue takes is dropped silently there."""
    wanted: dict[str, dict[str, list[str]]] = {}
    for each in context.links:
        if isinstance(each.link, ExchangeLink):
            name = await _alternate_exchange(each.link, context.apis.of(each.destination))
            if name is not None:
                wanted.setdefault(each.link.vhost, {}).setdefault(name, []).append(each.link.name)
    for vhost, users in wanted.items():
        try:
            found = await _look_for(users, vhost, context.apis.downstream)
        except BrokerError:
            continue  # reported with the address
        for name in (each for each, seen in found.items() if seen.presence is Presence.MISSING):
            exchanges = sorted(set(users[name]))
            yield Finding.warning(
                Topic.ALTERNATE,
                DOWNSTREAM,
                f"alternate exchange {name!r} of exchange {exchanges[0]!r} in vhost {vhost!r} doesn't exist: messages "
                "that no queue takes are dropped",
                f"declare exchange {name!r} in vhost {vhost!r}, or change the argument or policy that names it",
                tuple(f"{vhost}/{exchange}" for exchange in exchanges),
            )


async def _alternate_exchange(link: ExchangeLink, api: BrokerApi | None) -> str | None:
    """An argument wins over a policy."""
    argument = fields.get(link.exchange.arguments, ALTERNATE)
    if argument is not None:
        return str(argument.value)
    policies = None if api is None else await api.policies(link.vhost)
    found = effective_policy(PolicyTarget(link.name, "exchange"), policies or (), ()).values.get(ALTERNATE)
    return found if isinstance(found, str) else None


async def _look_for(names: Iterable[str], vhost: str, downstream: Sequence[AmqpUri]) -> Mapping[str, ObjectFound]:
    inside = [uri.in_vhost(vhost) for uri in downstream]
    async with await connect_any(inside, where=DOWNSTREAM, name=CONNECTION_NAME, within=PATIENCE) as connection:
        return (await probe(connection, exchanges=names)).exchanges
