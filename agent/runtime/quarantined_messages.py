"""The quarantines beside the sources of a configuration's links: show, drop and replay their messages."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from agent.amqp.connect import Connection
from agent.amqp.data.quarantined import Restored, Why, restored
from agent.amqp.data.rewriting import Delivery, Rewriter, rewritten, with_rules
from agent.amqp.publisher import Publisher
from agent.amqp.queue_messages import QueueBrowser, browse
from agent.amqp.wire.properties import Properties
from agent.amqp.wire.tables import CodecError
from agent.core.addresses.uri import AmqpUri
from agent.core.model import DEFAULT_VHOST, Definitions, Link
from agent.core.rules import quarantine
from agent.core.rules.resolve import resolving
from agent.core.text import MOST_NAMED, named_so
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.read import read_downstream
from agent.downstream.reading import DefinitionSource
from agent.errors import BrokerError, ConfigurationError, PermanentError, UsageError
from agent.links.brokers import Brokers
from agent.links.ends import End, reachable, terminus_of
from agent.links.registry import Kinds
from agent.slices import steps_in_slices

GIVEN: Final = "broker of --uri"


@dataclass(frozen=True, slots=True)
class MessageChoice:
    """The choice of messages; None is all. `link` is an id, `older_than` are seconds."""

    link: str | None = None
    reason: str | None = None
    older_than: float | None = None

    def takes(self, why: Why, now: float) -> bool:
        return (
            self.link in {None, why.link}
            and self.reason in {None, why.reason}
            and (self.older_than is None or now - why.time >= self.older_than)
        )


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """A message in quarantine. `body` is None where only its size was asked for."""

    where: str
    vhost: str
    why: Why
    properties: bytes
    size: int
    body: bytes | None


class ForgedError(PermanentError):
    """A message in quarantine that no agent has put there."""


class Destinations:
    """The destinations of the messages of one quarantine, connected as they are needed."""

    def __init__(
        self, kinds: Kinds, links: Mapping[str, Link], source: Connection, opened: AsyncExitStack, failed: set[str]
    ) -> None:
        self.failed = failed  # links, by id; by whatever address of their source
        self._kinds = kinds
        self._links = links
        self._source = source
        self._opened = opened
        self._ready: dict[str, tuple[Publisher, Rewriter]] = {}

    async def publish(self, found: Restored, body: bytes) -> None:
        """Publish a message as its link would. One that the link would drop is not published."""
        why = found.why
        publisher, rewriter = self._ready.get(why.link) or await self._open(why.link)
        self._check(why)
        delivery = Delivery(why.source_exchange, why.source_routing_key, redelivered=True)
        properties = rewritten(rewriter, Properties.read(found.properties), delivery)
        if not isinstance(properties, str):
            await publisher.publish(_name(why.exchange), _name(why.routing_key), properties.write(), body)

    def _check(self, why: Why) -> None:
        """Raise ForgedError if the message names another destination than its link's own. Anybody who may publish
        beside the source could ask for any destination."""
        link = self._links[why.link]
        destination = self._kinds.of(link).destination(link)
        asked = ((destination.exchange, why.exchange), (destination.routing_key, why.routing_key))
        if any(fixed is not None and fixed != _name(found) for fixed, found in asked):
            raise ForgedError(f"a message says that it was going to {_name(why.exchange)!r}, where its link never goes")

    async def _open(self, link_id: str) -> tuple[Publisher, Rewriter]:
        link = self._links.get(link_id)
        if link is None:
            raise PermanentError("no definition has this link any more: define it again, or move its messages yourself")
        connection = await self._opened.enter_async_context(
            await self._kinds.brokers.looking(self._kinds.of(link).ends(link).destination)
        )
        publisher = Publisher(connection)
        await publisher.open()
        kind, settings = self._kinds.of(link), link.settings
        rewriter = kind.rewriter(link, self._source, connection)
        rewriter = with_rules(rewriter, settings.set_headers, settings.remove_headers)
        ready = self._ready[link_id] = publisher, rewriter
        return ready


def _defined(definitions: Definitions, downstream: Sequence[AmqpUri]) -> Iterator[End]:
    """The ends that messages of links may come from, or came from while there were links."""
    for vhost, defined in definitions.vhosts.items():
        for upstream in defined.upstreams.values():
            yield End(f"upstream {upstream.name}", reachable(upstream.uris, vhost, downstream), vhost)
        for shovel in defined.shovels.values():
            uris = reachable(shovel.source_uris, DEFAULT_VHOST, downstream)
            yield End("shovel source", uris, terminus=terminus_of(shovel, shovel.source))


def _id_of(named: str, links: tuple[Link, ...]) -> str:
    """The id of the chosen link. A link that nobody defines any more has only its whole id."""
    found = named_so(links, named, lambda link: (link.id, f"{link.vhost}/{link.name}"))
    if len(found) > 1:
        some = ", ".join(link.id for link in found[:MOST_NAMED])
        raise UsageError(f"{named!r} names {len(found):,} links: {some}; give an id")
    return found[0].id if found else named


def _name(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


@dataclass
class Outcome:
    """The number of messages that were handled; `problems` are the reasons why the rest stays."""

    done: int = 0
    problems: list[str] = field(default_factory=list)


class Quarantined:
    """The quarantines of a configuration. `read` it first. Messages that are not ours, or that nobody chose, stay as
    they are."""

    def __init__(self, kinds: Kinds, links: tuple[Link, ...], choice: MessageChoice, sources: Iterable[End]) -> None:
        """`sources` are the ends whose quarantines are read."""
        self._kinds = kinds
        beside = (end for end in sources if end.terminus is None)  # there is none beside a source of AMQP 1.0
        self._sources = tuple({(end.uris, end.default_vhost): end for end in beside}.values())
        self._links = {link.id: link for link in links}
        self._choice = choice if choice.link is None else replace(choice, link=_id_of(choice.link, links))
        self.problems: list[str] = []
        self.elsewhere: list[str] = []  # problems of brokers where no message of the one link that is chosen belongs
        chosen = self._links.get(self._choice.link or "")
        own = None if chosen is None else kinds.of(chosen).ends(chosen).source
        self._own = None if own is None else (own.uris, own.default_vhost)

    @classmethod
    async def read(
        cls, configuration: Configuration, choice: MessageChoice, only: Sequence[AmqpUri] = ()
    ) -> Quarantined:
        """The quarantines beside all sources that something defines, or beside `only` these."""
        keeper = Keeper()
        keeper.take(DefinitionSource.CONFIGURATION, lambda: configuration.reading)
        reading = await read_downstream(configuration, keeper)
        if keeper.refusals:
            raise ConfigurationError(keeper.refusals)
        found = await steps_in_slices(resolving(reading.definitions, reading.states, clock=time.thread_time))
        brokers = Brokers(configuration.settings.downstream.uris, reading.cluster, stall_after=0.0)
        kinds, own = Kinds(brokers), brokers.downstream
        if only:
            return cls(kinds, found.links, choice, (End(GIVEN, reachable([uri], DEFAULT_VHOST, own)) for uri in only))
        used = (kinds.of(link).ends(link).source for link in found.links)
        return cls(kinds, found.links, choice, (*used, *_defined(reading.definitions, own)))

    async def look(self, *, with_bodies: bool) -> AsyncGenerator[QuarantinedMessage, None]:
        """The chosen messages, each once, also where several addresses lead to one broker: messages that one of them
        holds aren't delivered to the others."""
        async with AsyncExitStack() as opened:
            looked: list[tuple[End, Connection, QueueBrowser]] = []
            async for end, connection in self._places(opened):
                with self._noting(end):
                    held = await opened.enter_async_context(self._held(connection, with_bodies=with_bodies))
                    looked.append((end, connection, held))
                    async for message in held:
                        if (found := self._chosen(message.properties)) is not None:
                            where, vhost, content = connection.where, connection.vhost, found.properties
                            yield QuarantinedMessage(where, vhost, found.why, content, message.size, message.body)
            for end, connection, held in looked:
                with self._noting(end):
                    await self._note_rest(connection, held)

    async def drop(self) -> Outcome:
        outcome = Outcome()
        async for end, connection in self._places():
            with self._noting(end):
                while await self._drop_some(connection, outcome):
                    pass
        return self._with_problems(outcome)

    async def _drop_some(self, connection: Connection, outcome: Outcome) -> bool:
        """Drop the chosen messages that fit into one round; True if another round has room for more."""
        before = outcome.done
        async with self._held(connection, with_bodies=False) as held:
            async for message in held:
                if self._chosen(message.properties) is not None:
                    held.acknowledge(message.tag)
                    outcome.done += 1
            if held.has_more and outcome.done > before:
                return True
            await self._note_rest(connection, held)
        return False

    async def replay(self) -> Outcome:
        """Publish each message where it was going, as its link would, and acknowledge it once it is confirmed."""
        outcome, failed = Outcome(), set[str]()
        async for end, connection in self._places():
            async with AsyncExitStack() as opened:
                destinations = Destinations(self._kinds, self._links, connection, opened, failed)
                with self._noting(end):
                    while await self._round(connection, destinations, outcome):
                        pass
        return self._with_problems(outcome)

    async def _round(self, connection: Connection, destinations: Destinations, outcome: Outcome) -> bool:
        """Replay the messages that fit into one round; True if another is needed: some of very many bytes had no room,
        and others were done."""
        before = outcome.done
        late: set[str] = set()  # links of which one had no room: the next ones would pass it
        async with self._held(connection, with_bodies=True) as held:
            async for message in held:
                found = self._chosen(message.properties)
                if found is None or found.why.link in destinations.failed | late:
                    continue
                if message.body is None:
                    late.add(found.why.link)
                    continue
                try:
                    await destinations.publish(found, message.body)
                except (ForgedError, CodecError) as error:
                    outcome.problems.append(f"link {found.why.link}: {error}: drop it")
                except BrokerError as error:
                    destinations.failed.add(found.why.link)  # its next ones would pass this one
                    outcome.problems.append(f"link {found.why.link}: {error}")
                else:
                    held.acknowledge(message.tag)
                    outcome.done += 1
            is_wanted = (bool(late) or held.has_more) and outcome.done > before
            if not is_wanted:
                await self._note_rest(connection, held)
        return is_wanted

    @contextmanager
    def _noting(self, source: End) -> Iterator[None]:
        """Note the errors of one broker, so that they don't stop the work on the others."""
        try:
            yield
        except BrokerError as error:
            is_other = self._own not in {None, (source.uris, source.default_vhost)}
            (self.elsewhere if is_other else self.problems).append(str(error))

    async def _note_rest(self, connection: Connection, held: QueueBrowser) -> None:
        if await held.has_rest():
            self.problems.append(
                f"{connection.where}, vhost {connection.vhost}: more messages than can be looked at together: drop or"
                " replay some of those that were, and run this again"
            )

    async def _places(self, opened: AsyncExitStack | None = None) -> AsyncIterator[tuple[End, Connection]]:
        """Each source with the connection to it, once, however many links come from there. Several may be one broker:
        names of clusters don't show it, as many are the same. With `opened` connections stay open; otherwise one is
        open at a time."""
        for end in self._sources:
            async with AsyncExitStack() as one:
                connection: Connection | None = None
                with self._noting(end):
                    connection = await (opened or one).enter_async_context(await self._kinds.brokers.looking(end))
                if connection is not None:
                    yield end, connection

    def _held(self, connection: Connection, *, with_bodies: bool) -> AbstractAsyncContextManager[QueueBrowser]:
        def wants(properties: bytes) -> bool:
            return with_bodies and self._chosen(properties) is not None

        return browse(connection, quarantine.QUEUE, wants=wants)

    def _chosen(self, properties: bytes) -> Restored | None:
        try:
            found = restored(properties)
        except CodecError:
            return None
        return found if found is not None and self._choice.takes(found.why, time.time()) else None

    def _with_problems(self, outcome: Outcome) -> Outcome:
        outcome.problems = list(dict.fromkeys((*outcome.problems, *self.problems)))
        return outcome
