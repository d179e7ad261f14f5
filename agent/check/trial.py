"""A trial: a message published upstream, as an ordinary client would, and received downstream by a queue of its own.

It uses aio-pika, so that it doesn't depend on the agent's own client, and only links where no user's queue can get the
message, as the HTTP APIs of both brokers show it. The queue is exclusive and is gone with its connection; the agent
removes the binding that it made upstream.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from agent.check.brokers import ALTERNATE, CONNECTION_NAME, PATIENCE, alarms_of
from agent.check.context import CheckContext, LinkEnds
from agent.check.findings import Finding, FindingLevel, Topic
from agent.check.http_api import BrokerApi
from agent.check.policies import PolicyTarget, effective_policy
from agent.core.addresses.secret import redacted
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.links.upstream_steps import upstream_queue_name
from agent.core.model import ExchangeLink
from agent.network import server_name, tls_context

MOST_TRIED: Final = 20
WITHIN: Final = 20.0  # seconds for the binding to get upstream, and for the message to arrive
IN_ALL: Final = 4 * WITHIN
ALL_TRIALS: Final = 180.0  # seconds after which no further trial begins
_POLL_EVERY: Final = 0.25
_SLOW: Final = f"a broker didn't answer within {PATIENCE:g} s, or all of it took longer than {IN_ALL:g} s"
_NO_BINDING: Final = (
    "`federation-agent links` shows whether the link is paused, and whether an agent runs with this configuration"
)
_LOOK_FOR_ALARMS: Final = "`rabbitmq-diagnostics alarms` there: a broker with an alarm confirms none"
_TYPES: Final = ("direct", "topic")
_DEAD_LETTERS: Final = "dead-letter-exchange"


@dataclass(frozen=True, slots=True)
class TrialExchange:
    """An exchange that a trial's message gets to, and the link's queue that it waits in, if there is one."""

    side: str  # upstream | downstream
    api: BrokerApi
    uri: AmqpUri
    vhost: str
    name: str
    type: str
    queue: PolicyTarget | None = None

    async def danger(self, key: str) -> str | None:
        """Bindings come last: they change the most."""
        api, vhost, named = self.api, self.vhost, f"exchange {self.name!r}"
        exchanges, policies = await api.exchanges(vhost), await api.policies(vhost)
        bindings = await api.bindings_from(vhost, self.name)
        if bindings is None or exchanges is None or policies is None:
            return f"the bindings of {named} can't be read"
        exchange = exchanges.get(self.name)
        if exchange is None:
            return f"{named} is missing"
        if exchange["type"] != self.type:
            return f"{named} is of type {exchange['type']}"
        by_policy = effective_policy(PolicyTarget(self.name, "exchange"), policies, ()).values
        if ALTERNATE in (exchange.get("arguments") or {}) or ALTERNATE in by_policy:
            return f"{named} has an alternate exchange, whose queues could get the message"
        for each in bindings:
            if each["routing_key"] != key and routes(each["routing_key"], key, type_=self.type):
                return f"{each['destination']!r} is bound to {named} for every routing key"
        return None if self.queue is None else await self._dead_letters(self.queue)

    async def _dead_letters(self, queue: PolicyTarget) -> str | None:
        """The message expires if the link doesn't take it in time, and would be dead-lettered then."""
        queues = await self.api.queues(self.vhost)
        policies, operators = await self.api.policies(self.vhost), await self.api.operator_policies(self.vhost)
        if queues is None or policies is None or operators is None:
            return f"whether the link's queue {queue.name!r} has a dead-letter exchange can't be read"
        found = effective_policy(queues.get(queue.name, queue), policies, operators)
        if _DEAD_LETTERS not in found.values:
            return None
        what = f"the link's queue {queue.name!r} has a dead-letter exchange by {found.sources[_DEAD_LETTERS]}"
        return f"{what}, whose queues could get the message"


def routes(binding: str, key: str, *, type_: str) -> bool:
    """True if a binding of a direct or topic exchange takes messages of `key`, which has one word."""
    if type_ == "direct":
        return binding == key
    words = [word for word in binding.split(".") if word != "#"]
    return binding != "" and (words in ([], ["*"], [key]))


@dataclass(frozen=True, slots=True)
class Trial:
    """A link that is tried, with a routing key that nobody else uses."""

    ends: LinkEnds
    key: str
    upstream: TrialExchange
    downstream: TrialExchange

    async def danger(self) -> str | None:
        """The reason why the message could get to a queue of a user; None where it can't."""
        for each in (self.upstream, self.downstream):
            why = await each.danger(self.key)
            if why is not None:
                return f"{each.side}, {why}"
        return None

    async def danger_now(self) -> str | None:
        """Ask the brokers again."""
        for each in (self.upstream, self.downstream):
            each.api.forget()
        return await self.danger()


async def try_links(context: CheckContext) -> AsyncIterator[Finding]:
    tried = 0
    ends = time.monotonic() + ALL_TRIALS
    for each in context.links:
        if time.monotonic() > ends:
            yield _finding(each, FindingLevel.NOTE, f"not tried, like all links that follow: {ALL_TRIALS:g} s are over")
            return
        if tried == MOST_TRIED:
            yield _finding(each, FindingLevel.NOTE, f"not tried, like all links after the first {MOST_TRIED}")
            return
        found = await _trial(each, context)
        if isinstance(found, str):
            yield _finding(each, FindingLevel.NOTE, f"not tried: {found}")
            continue
        tried += 1
        yield await deliver_one(found)


def _finding(each: LinkEnds, level: FindingLevel, message: str, fix: str = "") -> Finding:
    return Finding(level, Topic.DELIVERY, f"{each.label} from {each.source.where}", message, fix, (each.label,))


async def _trial(each: LinkEnds, context: CheckContext) -> Trial | str:
    """Or why the link isn't tried."""
    link = each.link
    source, destination = context.broker(each.source), context.broker(each.destination)
    if not isinstance(link, ExchangeLink):
        return "its messages go to queues of users"
    if link.id in context.paused:
        return f"it is paused: run `federation-agent resume {link.id}` first"
    if source is None or destination is None:
        return "one of its brokers can't be reached"
    type_ = link.exchange.type
    if type_ not in _TYPES:
        return f"of a {type_} exchange every queue that is bound could get the message"
    there, here = context.apis.of(each.source), context.apis.of(each.destination)
    if there is None or here is None:
        return "which queues are bound can't be seen without the HTTP API of both brokers (--api NAME=URL)"
    from_, to = (context.addresses[end] for end in (each.source, each.destination))
    queue = PolicyTarget(upstream_queue_name(link, source.vhost, context.cluster), link.settings.queue_type.value)
    trial = Trial(
        each,
        f"federation-agent-check-{secrets.token_hex(8)}",
        TrialExchange("upstream", there, from_.in_vhost(source.vhost), source.vhost, link.remote_name, type_, queue),
        TrialExchange("downstream", here, to.in_vhost(link.vhost), link.vhost, link.name, type_),
    )
    return inability(from_) or inability(to) or await trial.danger() or trial


def inability(uri: AmqpUri) -> str | None:
    """The reason why aio-pika can't log in as the agent does: it takes the name of the certificate from the address."""
    if Mechanism.PLAIN not in (uri.mechanisms or (Mechanism.PLAIN,)):
        return f"the trial's client logs in with a password only, and {uri.host} takes {uri.mechanisms[0].value}"
    if uri.tls is not None and server_name(uri.tls, uri.connect_host) != uri.connect_host:
        return f"the trial's client can't expect another name in the certificate of {uri.host}"
    return None


async def deliver_one(trial: Trial) -> Finding:
    """Also where it fails: a broker with an alarm explains that better than what was waited for."""
    alarm = await _alarm(trial)
    if alarm is not None:
        return alarm
    found = await _tried(trial)
    return found if found.level is not FindingLevel.ERROR else await _alarm(trial) or found


async def _alarm(trial: Trial) -> Finding | None:
    for each in (trial.downstream, trial.upstream):
        each.api.forget()
        for alarm, fix in alarms_of(await each.api.running_nodes() or (), f"the {each.side}"):
            message = f"no message gets through: {each.side} has a {alarm}, so it accepts none"
            return _finding(trial.ends, FindingLevel.ERROR, message, fix)
    return None


async def _tried(trial: Trial) -> Finding:
    try:
        async with asyncio.timeout(IN_ALL), AsyncExitStack() as stack:
            here = await stack.enter_async_context(await _connect(trial.downstream.uri))
            there = await stack.enter_async_context(await _connect(trial.upstream.uri))
            return await _deliver(trial, here, there)
    except Exception as error:  # noqa: BLE001 - a task's edge: aiormq raises RuntimeError too, and no findings may be lost
        text = str(error) or (_SLOW if isinstance(error, TimeoutError) else type(error).__name__)
        for uri in (trial.upstream.uri, trial.downstream.uri):
            text = redacted(text, uri.login[1], user=uri.login[0])
        return _finding(trial.ends, FindingLevel.ERROR, f"the trial failed: {text}")


async def _connect(uri: AmqpUri) -> AbstractConnection:
    user, password = uri.login
    more: dict[str, Any] = {}
    if uri.tls is not None:
        more["ssl_context"] = await tls_context(uri.tls, where=uri.host)
    opened: AbstractConnection = await aio_pika.connect(
        host=uri.connect_host,
        port=uri.connect_port,
        login=user,
        password=password.reveal(),
        virtualhost=uri.vhost("/"),
        ssl=uri.tls is not None,
        timeout=PATIENCE,
        client_properties={"connection_name": CONNECTION_NAME},
        **more,
    )
    return opened


async def _deliver(trial: Trial, here: AbstractConnection, there: AbstractConnection) -> Finding:
    receiving, publishing = await here.channel(), await there.channel()
    queue = await receiving.declare_queue(exclusive=True, auto_delete=True)
    await queue.bind(trial.downstream.name, trial.key)
    if not await _binding_is(trial, there=True):
        why = f"its binding isn't upstream after {WITHIN:g} s"
        return _finding(trial.ends, FindingLevel.ERROR, why, _NO_BINDING)
    arrived: asyncio.Future[AbstractIncomingMessage] = asyncio.get_running_loop().create_future()

    async def receive(message: AbstractIncomingMessage) -> None:
        if not arrived.done():
            arrived.set_result(message)

    consumer = await queue.consume(receive, no_ack=True)
    danger = await trial.danger_now()  # bindings and policies may have changed since links were chosen
    if danger is not None:
        return _finding(trial.ends, FindingLevel.NOTE, f"not tried: {danger}")
    exchange = await publishing.get_exchange(trial.upstream.name, ensure=False)
    began = time.monotonic()
    message = aio_pika.Message(b"federation-agent check", expiration=WITHIN)
    try:
        await exchange.publish(message, trial.key, timeout=WITHIN)
    except TimeoutError:
        why = f"the upstream didn't confirm the message within {WITHIN:g} s"
        return _finding(trial.ends, FindingLevel.ERROR, why, _LOOK_FOR_ALARMS)
    try:
        received = await asyncio.wait_for(arrived, WITHIN)
    except TimeoutError:
        why = f"a message published upstream didn't arrive within {WITHIN:g} s"
        return _finding(trial.ends, FindingLevel.ERROR, why, "`describe` shows what the link does")
    seconds = time.monotonic() - began
    await queue.cancel(consumer)  # or aio-pika complains that the broker does it
    await queue.delete(if_unused=False, if_empty=False)
    removed = await _binding_is(trial, there=False)
    rest = "" if removed else f"; its binding is still upstream after {WITHIN:g} s"
    what = f"a message arrived after {seconds * 1000:.0f} ms by {_hops(received)}{rest}"
    return _finding(trial.ends, FindingLevel.NOTE if removed else FindingLevel.WARNING, what)


async def _binding_is(trial: Trial, *, there: bool) -> bool:
    """Wait until the trial's binding is upstream, or is gone; False if that takes too long."""
    upstream = trial.upstream
    ends = time.monotonic() + WITHIN
    while True:
        found = await upstream.api.fresh_bindings_from(upstream.vhost, upstream.name)
        if any(each["routing_key"] == trial.key for each in found) is there:
            return True
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(_POLL_EVERY)


def _hops(message: AbstractIncomingMessage) -> str:
    """Those that its header names, the first one first."""
    entries = message.headers.get("x-received-from")
    hops = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    return " → ".join(f"{each.get('cluster-name')!s} ({each.get('uri')!s})" for each in reversed(hops)) or "no link"
