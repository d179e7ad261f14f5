"""Keeps the links that should exist running, and ends those that should not; only what changed is touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import structlog

from agent.core.addresses.uri import AmqpUri
from agent.core.links import lifecycle
from agent.core.links.lifecycle import LinkState, Phase
from agent.core.model import Binding, CleanupMode, Link
from agent.core.rules.resolve import resolving
from agent.core.rules.unserved import unserved
from agent.definitions.sources.keeper import Keeper
from agent.definitions.sources.load import Configuration
from agent.downstream.declaring import declare_missing
from agent.downstream.follow import BindingFollower
from agent.downstream.known_bindings import Federated, KnownBindings
from agent.downstream.listen import Listener, SaidAlreadyError
from agent.downstream.reading import Reading, Source, read_bindings, read_downstream
from agent.downstream.slices import in_slices
from agent.downstream.watch import Cause
from agent.errors import AgentError, ConfigurationError, Problem, Side
from agent.links.brokers import Brokers
from agent.links.registry import KINDS, Kinds, SharedQueues, sweep
from agent.runtime.link_log import LinkLog
from agent.runtime.runner import LinkRunner, Other
from agent.runtime.ticker import beat
from agent.status.board import Board

STOP_PATIENCE: Final = 15.0
END_PATIENCE: Final = 2.0  # for tasks that only have to notice their end
LOOK_FOR_PLUGIN: Final = 3.0
REFUSED: Final = "definitions refused, the last good ones stay in force"
NO_BINDINGS: Final = "waits until the bindings of its exchange can be read: the agent's problems tell what is wrong"
PLUGIN_SERVES: Final = "the federation plugin of the downstream runs this link"

_ASKED: Final[Mapping[str, lifecycle.Event]] = {
    "restart": lifecycle.Restart(),
    "pause": lifecycle.Pause(),
    "resume": lifecycle.Resume(),
}

log = structlog.get_logger()


class Supervisor:
    """One step at a time: read, resolve, compare with what runs, act."""

    def __init__(self, load: Callable[[], Configuration], board: Board) -> None:
        self._load = load
        self._board = board
        self._runners: dict[str, LinkRunner] = {}
        self._leaving: set[LinkRunner] = set()
        self._kinds: Kinds | None = None
        self._reading: Reading | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._pulse: asyncio.Task[None] | None = None
        self._reconciling = asyncio.Lock()
        self._bindings = KnownBindings()
        self._stopping = False
        self.has_unread: Callable[[], bool] = lambda: False
        self._failure = ""
        self._refused: tuple[str, ...] = ()
        self._left_out: tuple[str, ...] = ()  # what single vhosts define or hold, and can't be used
        self._resolved: tuple[Link, ...] = ()
        self._said: frozenset[str] = frozenset()
        self._keeper = Keeper()
        self._log = LinkLog(board.clock)
        self.configuration = self._loaded = load()
        self.listener = Listener(lambda: self.configuration.settings.downstream.uris)

    @property
    def cluster(self) -> str | None:
        """The downstream's name, once it was read."""
        return self._kinds.brokers.cluster if self._kinds else None

    def shown_certificates(self, link: Link) -> Iterable[tuple[Side, bytes]]:
        return () if self._kinds is None else self._kinds.brokers.shown_certificates(link)

    @property
    def runners(self) -> Mapping[str, LinkRunner]:
        return self._runners

    async def reload(self, causes: frozenset[Cause]) -> None:
        """What the watcher calls; an error leaves everything as it is."""
        try:
            if causes & {Cause.START, Cause.FILE, Cause.HANGUP}:  # at the start too: it was read before anybody watched
                await self._read_configuration()
                self._adopt()
            async with self._reconciling:
                await self._reconcile()
        except Exception as error:  # whatever it is, it keeps definitions from taking effect: it has to be seen
            said, self._failure = self._failure, _in_words(error)
            self._tell_problems()
            if said != self._failure:
                self._board.refusals += 1
            else:
                raise SaidAlreadyError(said) from error
            raise
        if self._failure:
            log.info("definitions read again")
        self._failure = ""
        self._tell_problems()
        self._adopt()  # another source may have made room for it
        if not self._board.problems:
            self._board.reloaded_at = self._board.clock()

    async def _read_configuration(self) -> None:
        """In a thread, as exports may be large."""
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigurationError as error:
            self._keeper.refuse(Source.CONFIGURATION, error)
        else:
            self._loaded = loaded
            self._keeper.take(Source.CONFIGURATION, lambda: loaded.told)

    def _adopt(self) -> None:
        """All of a configuration is in force or nothing of it: not its settings where its definitions are refused."""
        if self._loaded is not self.configuration and not self._keeper.refuses(Source.CONFIGURATION):
            self.configuration = self._loaded
            log.info("configuration read")

    def _tell_problems(self) -> None:
        """A bad document changes nothing, but it is logged once, counted and shown; so is a downstream that can't be
        read, and what is wrong in single vhosts."""
        refused = tuple(dict.fromkeys((*_texts(self._keeper.problems), *self._left_out)))
        if refused and refused != self._refused:
            self._board.refusals += 1
            log.error(REFUSED, error="; ".join(refused))
        elif self._refused and not refused:
            log.info("all definitions are in force again")
        self._refused = refused
        is_new = bool(self._failure) and self._failure not in refused
        self._board.problems = (*refused, self._failure) if is_new else refused

    async def _reconcile(self) -> None:
        reading = await read_downstream(self.configuration, self._keeper)
        kinds = self._kinds_for(reading)
        notes = await declare_missing(self.configuration.settings.downstream.uris, reading)
        found = await in_slices(
            resolving(reading.definitions, reading.states, standing=self._resolved, clock=time.thread_time)
        )
        self._resolved = found.links
        self._left_out = _texts((*reading.problems, *found.unjudged))
        unrun = unserved(found.links, reading.native_links)
        self._say_once((*notes, *_texts(reading.warnings), *_texts(found.problems), *unrun))
        wanted = {link.id: self._in_sight(link, reading) for link in found.links if link.kind in KINDS}
        self._reading = reading
        bindings = await self._read_bindings(wanted.values())
        queues = SharedQueues(wanted.values())
        for link_id in self._runners.keys() - wanted.keys():
            self._remove(self._runners[link_id], reading, queues)
        for link in wanted.values():
            self._keep(link, kinds, reading)
        bindings()
        self._start_ready()
        if self._pulse is None:
            work = beat(self._runners.items, self._board)
            self._pulse = asyncio.get_running_loop().create_task(work, name="pulse")
        self._begin_following()
        self._board.vhosts = reading.visible
        self._board.ready = True

    def _in_sight(self, link: Link, reading: Reading) -> Link:
        """A link of a vhost that can't be seen, and so of bindings that nobody knows, can't run before it is seen."""
        is_hidden = reading.visible is not None and link.vhost not in reading.visible
        has_bindings = link.name in reading.definitions.of(link.vhost).bindings
        if not is_hidden or has_bindings or self._bindings.of((link.vhost, link.name)) is not None:
            return link
        problem = f"vhost {link.vhost!r} does not exist on the downstream, or the agent's user may not see it"
        return replace(link, problem=link.problem or problem)

    def _kinds_for(self, reading: Reading) -> Kinds:
        uris = self.configuration.settings.downstream.uris
        if self._kinds is None:
            brokers = Brokers(uris, reading.cluster, self.configuration.settings.agent.stall_after)
            brokers.holds_removals = self._is_unsure
            self._kinds = Kinds(brokers)
        brokers = self._kinds.brokers
        if (brokers.downstream, brokers.cluster) != (uris, reading.cluster):
            self._move(brokers, uris, reading)
        agent = self.configuration.settings.agent
        brokers.stall_after, brokers.cleanup_after = agent.stall_after, agent.cleanup_after
        self._board.cluster, self._board.group = reading.cluster, agent.group or reading.cluster
        return self._kinds

    def _move(self, brokers: Brokers, uris: tuple[AmqpUri, ...], reading: Reading) -> None:
        """The downstream has other addresses or another name: links start again, under names that follow from it."""
        former, before = brokers.cluster, self._reading
        if brokers.downstream != uris:
            self._begin(self.listener.leave(), "listen elsewhere")
        brokers.downstream, brokers.cluster = uris, reading.cluster
        for runner in self._runners.values():
            runner.redefine(runner.link)
        if former == reading.cluster:
            return
        log.warning("the downstream's cluster name is another", cluster=reading.cluster, former=former)
        if before is not None and reading.identity is not None and reading.identity == before.identity:
            self._begin(sweep(tuple(self._runners.values()), brokers, former), "sweep")
            return
        for runner in tuple(self._runners.values()):  # the first cluster may want what they have built for it
            if runner.state.unwanted is not None:
                self._let_go(runner)

    def _begin(self, work: Coroutine[Any, Any, None], doing: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=doing)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _keep(self, link: Link, kinds: Kinds, reading: Reading) -> None:
        runner = self._runners.get(link.id)
        if runner is None:
            runner = self._runners[link.id] = LinkRunner(link, kinds, on_change=self._changed)
            runner.rebind(self._bindings.of((link.vhost, link.name)) or frozenset())
        elif _differs(runner.link, link):
            runner.redefine(link)
        runner.link = link
        runner.want()
        self._board.put(link, runner.state, runner.counts, runner.gauges)
        native = (link.vhost, link.name, link.upstream) in reading.native_links
        runner.served_by(Other.PLUGIN, PLUGIN_SERVES if native else None)

    def _is_unsure(self) -> bool:
        """A link that nobody seems to want may be defined by what couldn't be read, or wasn't read yet."""
        is_reading = self._reconciling.locked()
        return self.has_unread() or is_reading or bool(self._failure) or bool(self._keeper.refusals)

    def _remove(self, runner: LinkRunner, reading: Reading, wanted: SharedQueues) -> None:
        """Asked at each reconcile while nobody wants the link. What it built upstream is removed later; but not where
        its vhost is out of sight, since it may be wanted again, nor what somebody else serves, or another link over
        the same queue, such as that of a renamed upstream."""
        link = runner.link
        is_native = (link.vhost, link.name, link.upstream) in reading.native_links
        is_ours = runner.state.standby is None and not is_native and not wanted.have_that_of(link)
        is_removed = link.settings.resource_cleanup_mode is not CleanupMode.NEVER
        if is_ours and is_removed and reading.sees(link.vhost):
            runner.unwant()
        else:
            self._let_go(runner)

    def _let_go(self, runner: LinkRunner) -> None:
        """Ends the link and leaves what it built upstream."""
        del self._runners[runner.link.id]
        self._leaving.add(runner)
        runner.send(lifecycle.Stop())
        task = asyncio.get_running_loop().create_task(runner.finished.wait())
        task.add_done_callback(lambda _: self._left(runner))

    def _left(self, runner: LinkRunner) -> None:
        self._leaving.discard(runner)
        if runner.link.id not in self._runners:
            self._forget(runner.link.id)
        self._start_ready()

    def _forget(self, link_id: str) -> None:
        self._board.gone(link_id)
        self._log.gone(link_id)

    def _start_ready(self) -> None:
        """Starts new links; none over a queue that is being removed, nor one whose predecessor hasn't ended yet, nor
        one whose bindings could not be read so far: it would take those that stand upstream for superfluous."""
        if self._stopping:
            return
        leaving = {runner.link.id for runner in self._leaving}
        known = (*self._runners.values(), *self._leaving)
        removed = SharedQueues(runner.link for runner in known if runner.state.phase is Phase.CLEANING)
        for link_id, runner in self._runners.items():
            if runner.state.started or link_id in leaving or removed.have_that_of(runner.link):
                continue
            if runner.link.problem is None and self._bindings.of((runner.link.vhost, runner.link.name)) is None:
                runner.note = NO_BINDINGS
            else:
                runner.note = ""
                runner.start()

    def _changed(self, runner: LinkRunner, before: LinkState) -> None:
        self._board.changed(runner.link.id, runner.state)
        self._log.changed(runner.link, before, runner.state)
        if before.phase is Phase.CLEANING and runner.state.phase is not Phase.CLEANING and not self._stopping:
            self._removed(runner)

    def _removed(self, runner: LinkRunner) -> None:
        """The removal is over; unless it was called off, so is the link."""
        link_id = runner.link.id
        if runner.finished.is_set() and self._runners.get(link_id) is runner:
            del self._runners[link_id]
            self._forget(link_id)
        self._start_ready()

    def act(self, link_id: str, action: str) -> None:
        """What an operator asks of a link."""
        runner = self._runners.get(link_id)
        if runner is not None:
            runner.send(_ASKED[action])

    async def _read_bindings(self, links: Iterable[Link]) -> Callable[[], None]:
        """Answers what puts them in force."""
        reading, links = self._reading, tuple(links)
        number = self._bindings.ask((link.vhost, link.name) for link in links)
        try:
            read = None if reading is None else await read_bindings(self.configuration, reading, links)
        except BaseException:
            self._bindings.forget(number)
            raise

        if read is None:
            return lambda: self._bindings.forget(number)
        self._left_out = tuple(dict.fromkeys((*self._left_out, *_texts(read.problems))))
        return lambda: self._rebind(self._bindings.learn(number, read.bindings))

    def _rebind(self, in_force: Mapping[Federated, frozenset[Binding]]) -> None:
        for runner in self._runners.values():
            source = runner.link.vhost, runner.link.name
            if source in in_force:
                runner.rebind(in_force[source])

    def _begin_following(self) -> None:
        """What is followed besides what the watcher calls for; all of it needs the HTTP API."""
        if self._tasks or not self.configuration.settings.downstream.management:
            return
        follower = BindingFollower(
            listener=self.listener,
            sources=self._followed,
            change=lambda changes: self._rebind(self._bindings.change(changes)),
            read=self._read_bindings_of,
        )
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(follower.run(), name="follow bindings"),
            loop.create_task(self._look_for_plugin(), name="look for the federation plugin"),
        ]

    def _followed(self) -> frozenset[Federated]:
        """The exchanges of wanted links, and those that are read for links to come."""
        return self._bindings.asked | {(each.link.vhost, each.link.name) for each in self._wanted_runners()}

    def _wanted_runners(self) -> Iterable[LinkRunner]:
        return (runner for runner in self._runners.values() if runner.state.unwanted is None)

    async def _look_for_plugin(self) -> None:
        """No event tells that the plugin is disabled, and the links that waited for that shouldn't wait long."""
        while True:
            await asyncio.sleep(LOOK_FOR_PLUGIN)
            if any(runner.waits_for(Other.PLUGIN) for runner in self._runners.values()):
                with suppress(AgentError):  # the watcher comes to the same, and has it said
                    async with self._reconciling:
                        await self._reconcile()

    async def _read_bindings_of(self, sources: frozenset[Federated]) -> None:
        if not sources <= {(each.link.vhost, each.link.name) for each in self._wanted_runners()}:
            async with self._reconciling:  # their links come with the reading that is under way
                pass
        links = [each.link for each in self._wanted_runners() if (each.link.vhost, each.link.name) in sources]
        (await self._read_bindings(links))()

    def _say_once(self, notes: tuple[str, ...]) -> None:
        """What is noted anew; what was said and still holds isn't said again."""
        for note in dict.fromkeys(notes):
            if note not in self._said:
                log.warning("definitions noted", note=note)
        self._said = frozenset(notes)
        self._board.notes = tuple(dict.fromkeys(notes))

    async def stop(self) -> None:
        """Settles what is in flight and leaves everything standing."""
        self._stopping = True
        tasks = [*self._tasks, *self._errands]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_PATIENCE)
        if self._pulse is not None:
            self._pulse.cancel()
        runners = [*self._runners.values(), *self._leaving]
        for runner in runners:
            runner.send(lifecycle.Stop())
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await asyncio.gather(*(runner.finished.wait() for runner in runners))


def _texts(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(str(problem) for problem in problems)


def _differs(running: Link, wanted: Link) -> bool:
    """What a link has to be restarted for; which policy asks for the same link is no reason."""
    return _essence(running) != _essence(wanted)


def _essence(link: Link) -> Link:
    exchange = None if link.exchange is None else replace(link.exchange, policy=None)
    return replace(link, exchange=exchange, policy="")


def _in_words(error: Exception) -> str:
    """What is no AgentError is a mistake of the agent's own; its text may hold anything, so only its kind is shown."""
    if isinstance(error, AgentError):
        return str(error)
    return (
        f"unexpected error while definitions were read ({type(error).__name__}): the log holds the details; report it"
    )


def report_failure(error: Exception) -> None:
    """What the watcher does with an error of `reload`: it is said once, and everything stays as it is."""
    if isinstance(error, SaidAlreadyError):
        return
    if isinstance(error, AgentError):
        log.error("definitions not read", error=str(error))
    else:
        log.error("unexpected error", error=type(error).__name__, exc_info=error)
