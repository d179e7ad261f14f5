"""A trial: a message published upstream, as an ordinary client would, and received downstream by a queue of its own.

It uses aio-pika, so that it doesn't depend on the agent's own client, and only links where no user's queue can get the
message. The queue is exclusive and is gone with its connection; the agent removes the binding that it made upstream.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from agent.check.alarms import alarm_of
from agent.check.connections import CONNECTION_NAME, PATIENCE
from agent.check.context import LinkEnds, Scene
from agent.check.core_delivery import TRIED_TYPES
from agent.check.findings import Finding, Level, Topic
from agent.check.policies import Listed
from agent.check.takers import Side, Sides
from agent.core.addresses.uri import AmqpUri, Mechanism
from agent.core.links.reconcile import upstream_queue_name
from agent.core.model import ExchangeLink
from agent.core.status.advice import CLEARING
from agent.core.text.redaction import redacted
from agent.network import server_name, tls_context

MOST_TRIED: Final = 20
WITHIN: Final = 20.0  # seconds for the binding to get upstream, and for the message to arrive
IN_ALL: Final = 4 * WITHIN
ALL_TRIALS: Final = 180.0  # seconds after which no further trial begins
_LOOK_EVERY: Final = 0.25
_SLOW: Final = f"a broker didn't answer within {PATIENCE:g} s, or all of it took longer than {IN_ALL:g} s"
_NO_BINDING: Final = (
    "`federation-agent links` shows whether the link is paused, and whether an agent runs with this configuration"
)
_LOOK_FOR_ALARMS: Final = "`rabbitmq-diagnostics alarms` there: a broker with an alarm confirms none"


@dataclass(frozen=True, slots=True)
class Trial:
    """A link that is tried, with a routing key that nobody else uses."""

    ends: LinkEnds
    link: ExchangeLink
    key: str
    source: AmqpUri
    destination: AmqpUri
    sides: Sides


async def try_links(scene: Scene) -> AsyncIterator[Finding]:
    tried = 0
    ends = time.monotonic() + ALL_TRIALS
    for each in scene.links:
        if time.monotonic() > ends:
            yield _finding(each, Level.NOTE, f"not tried, like all links that follow: {ALL_TRIALS:g} s are over")
            return
        if tried == MOST_TRIED:
            yield _finding(each, Level.NOTE, f"not tried, like all links after the first {MOST_TRIED}")
            return
        found = await _trial(each, scene)
        if isinstance(found, str):
            yield _finding(each, Level.NOTE, f"not tried: {found}")
            continue
        tried += 1
        yield await deliver_one(found)


def _finding(each: LinkEnds, level: Level, message: str, fix: str = "") -> Finding:
    return Finding(level, Topic.DELIVERY, f"{each.label} from {each.source.where}", message, fix, (each.label,))


async def _trial(each: LinkEnds, scene: Scene) -> Trial | str:
    """Or why the link isn't tried."""
    link = each.link
    source, destination = scene.shown(each.source), scene.shown(each.destination)
    if not isinstance(link, ExchangeLink):
        return "its messages go to queues of users"
    if link.id in scene.paused:
        return f"it is paused: run `federation-agent resume {link.id}` first"
    if source is None or destination is None:
        return "one of its brokers can't be reached"
    if link.exchange.type not in TRIED_TYPES:
        return f"of a {link.exchange.type} exchange every queue that is bound could get the message"
    there, here = scene.apis.of(each.source), scene.apis.of(each.destination)
    if there is None or here is None:
        return "which queues are bound can't be seen without the HTTP API of both brokers (--api NAME=URL)"
    uris = [scene.addresses[end] for end in (each.source, each.destination)]
    for uri in uris:
        if (why := inability(uri)) is not None:
            return why
    key = f"federation-agent-check-{secrets.token_hex(8)}"
    queue = Listed(upstream_queue_name(link, source.vhost, scene.cluster), link.settings.queue_type.value)
    sides = Sides(
        Side("upstream", there, source.vhost, link.remote_name, link.exchange.type, queue),
        Side("downstream", here, link.vhost, link.name, link.exchange.type),
    )
    why = await sides.refusal(key)
    if why is not None:
        return why
    return Trial(
        each,
        link,
        key,
        uris[0].in_vhost(source.vhost),
        uris[1].in_vhost(link.vhost),
        sides,
    )


def inability(uri: AmqpUri) -> str | None:
    """Why aio-pika can't log in as the agent does: it takes the name of the certificate from the address."""
    if Mechanism.PLAIN not in (uri.mechanisms or (Mechanism.PLAIN,)):
        return f"the trial's client logs in with a password only, and {uri.host} takes {uri.mechanisms[0].value}"
    if uri.tls is not None and server_name(uri.tls, uri.connect_host) != uri.connect_host:
        return f"the trial's client can't expect another name in the certificate of {uri.host}"
    return None


async def deliver_one(trial: Trial) -> Finding:
    """What came of it, also where it fails: a broker with an alarm explains that better than what was waited for."""
    alarmed = await _alarmed(trial)
    if alarmed is not None:
        return alarmed
    found = await _tried(trial)
    if found.level is not Level.ERROR:
        return found
    return await _alarmed(trial) or found


async def _alarmed(trial: Trial) -> Finding | None:
    for side in (trial.sides.downstream, trial.sides.upstream):
        alarm = await alarm_of(side.api)
        if alarm is not None:
            message = f"no message gets through: {side.name} has a {alarm}, so it accepts none"
            fix = CLEARING[alarm.trouble].format(broker=f"the {side.name}")
            return _finding(trial.ends, Level.ERROR, message, fix)
    return None


async def _tried(trial: Trial) -> Finding:
    try:
        async with asyncio.timeout(IN_ALL), AsyncExitStack() as stack:
            here = await stack.enter_async_context(await _connect(trial.destination))
            there = await stack.enter_async_context(await _connect(trial.source))
            return await _deliver(trial, here, there)
    except Exception as error:  # noqa: BLE001 - a task's edge: aiormq raises RuntimeError too, and no findings may be lost
        text = str(error) or (_SLOW if isinstance(error, TimeoutError) else type(error).__name__)
        for uri in (trial.source, trial.destination):
            text = redacted(text, uri.login[1], user=uri.login[0])
        return _finding(trial.ends, Level.ERROR, f"the trial failed: {text}")


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
    await queue.bind(trial.link.name, trial.key)
    if not await _eventually(lambda: _is_bound(trial)):
        why = f"its binding isn't upstream after {WITHIN:g} s"
        return _finding(trial.ends, Level.ERROR, why, _NO_BINDING)
    arrived: asyncio.Future[AbstractIncomingMessage] = asyncio.get_running_loop().create_future()

    async def receive(message: AbstractIncomingMessage) -> None:
        if not arrived.done():
            arrived.set_result(message)

    consumer = await queue.consume(receive, no_ack=True)
    refusal = await trial.sides.fresh_refusal(
        trial.key
    )  # bindings and policies may have changed since the links were chosen
    if refusal is not None:
        return _finding(trial.ends, Level.NOTE, f"not tried: {refusal}")
    exchange = await publishing.get_exchange(trial.link.remote_name, ensure=False)
    began = time.monotonic()
    message = aio_pika.Message(b"federation-agent check", expiration=WITHIN)
    try:
        await exchange.publish(message, trial.key, timeout=WITHIN)
    except TimeoutError:
        why = f"the upstream didn't confirm the message within {WITHIN:g} s"
        return _finding(trial.ends, Level.ERROR, why, _LOOK_FOR_ALARMS)
    try:
        received = await asyncio.wait_for(arrived, WITHIN)
    except TimeoutError:
        why = f"a message published upstream didn't arrive within {WITHIN:g} s"
        return _finding(trial.ends, Level.ERROR, why, "`describe` shows what the link does")
    seconds = time.monotonic() - began
    await queue.cancel(consumer)  # or aio-pika complains that the broker does it
    await queue.delete(if_unused=False, if_empty=False)
    removed = await _eventually(lambda: _is_gone(trial))
    rest = "" if removed else f"; its binding is still upstream after {WITHIN:g} s"
    what = f"a message arrived after {seconds * 1000:.0f} ms by {_way(received)}{rest}"
    return _finding(trial.ends, Level.NOTE if removed else Level.WARNING, what)


async def _is_bound(trial: Trial) -> bool:
    upstream = trial.sides.upstream
    found = await upstream.api.fresh_bindings_from(upstream.vhost, upstream.exchange)
    return any(each["routing_key"] == trial.key for each in found)


async def _is_gone(trial: Trial) -> bool:
    return not await _is_bound(trial)


async def _eventually(holds: Callable[[], Awaitable[bool]]) -> bool:
    ends = time.monotonic() + WITHIN
    while not await holds():
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(_LOOK_EVERY)
    return True


def _way(message: AbstractIncomingMessage) -> str:
    """The hops that its header names, the first one first."""
    entries = message.headers.get("x-received-from")
    hops = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    return " → ".join(f"{each.get('cluster-name')!s} ({each.get('uri')!s})" for each in reversed(hops)) or "no link"
