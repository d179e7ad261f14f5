"""When definitions are read again; time stands still but for what a test lets pass."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agent.amqp.broker_events import BrokerEvent
from agent.downstream.watch import (
    MOST_EXCHANGES,
    EventSource,
    ReloadCause,
    Signatures,
    Watcher,
    WholeFiles,
    concerns,
    signature,
)
from agent.errors import TransientError
from agent.tasks import GuardedTasks, UnexpectedErrors
from tests.unit.definitions.virtual_time import VirtualTime

POLICY_SET = BrokerEvent("policy.set", {"vhost": "/", "name": "p"})


class Broker:
    """An event source that a test speaks through; `silent` is a broker without the event exchange."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.subscriptions = 0
        self._events: asyncio.Queue[BrokerEvent | Exception] = asyncio.Queue()

    def tell(self, event: BrokerEvent | Exception) -> None:
        self._events.put_nowait(event)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[AsyncIterator[BrokerEvent] | None]:
        self.subscriptions += 1
        yield None if self.silent else self._listen()

    async def _listen(self) -> AsyncIterator[BrokerEvent]:
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            yield event


class Watching:
    """A watcher that runs in virtual time, and what it did."""

    def __init__(
        self,
        time: VirtualTime,
        *,
        events: EventSource | None = None,
        poll: bool = True,
        files: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.time = time
        self.reloads: list[frozenset[ReloadCause]] = []
        self.errors: list[Exception] = []
        self.during: Callable[[], Awaitable[None]] | None = None
        self.watcher = Watcher(
            self._reload,
            on_error=self.errors.append,
            files=files,
            events=events,
            poll=poll,
            clock=time.clock,
            sleep=time.sleep,
        )

    async def _reload(self, causes: frozenset[ReloadCause]) -> None:
        self.reloads.append(causes)
        if self.during is not None:
            await self.during()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watching]:
        task = asyncio.create_task(self.watcher.run())
        await self.time.turn()
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


async def test_reads_at_once_when_it_starts(time: VirtualTime) -> None:
    async with Watching(time, poll=False).running() as watching:
        assert watching.reloads == [{ReloadCause.START}]
        await time.advance(3600)
        assert len(watching.reloads) == 1


@pytest.mark.parametrize("cause", [ReloadCause.HANGUP, ReloadCause.EVENT])
async def test_what_waits_for_a_reload_that_takes_long_is_unread(time: VirtualTime, cause: ReloadCause) -> None:
    """Nothing is removed meanwhile that it may define again."""
    async with Watching(time, poll=False).running() as watching:
        watching.during = lambda: time.sleep(3)
        watching.watcher.notify(ReloadCause.HANGUP)
        await time.advance(1)
        watching.watcher.notify(cause)
        unread = [watching.watcher.has_unread("/", "fed")]
        while time.clock() < 10:
            await time.advance(0.5)
            unread.append(watching.watcher.has_unread("/", "fed"))
        assert len(watching.reloads) == 3
        until = unread.index(False)
        assert until * 0.5 + 1 > 5.5  # after such a reload as much time is left for other work
        assert not any(unread[until:])


@pytest.mark.parametrize("kind", ["queue", "exchange"])
async def test_what_comes_and_goes_all_the_time_holds_up_no_removal(time: VirtualTime, kind: str) -> None:
    """Such as queues for replies: there is always one that wasn't read yet. None defines another exchange's link."""
    broker = Broker()
    async with Watching(time, events=broker, poll=False).running() as watching:
        watching.during = lambda: time.sleep(0.1)
        await time.advance(1)
        unread = []
        for number in range(100):
            did = "created" if number % 2 else "deleted"
            broker.tell(BrokerEvent(f"{kind}.{did}", {"vhost": "/", "name": "reply"}))
            await time.advance(0.02)
            unread.append(watching.watcher.has_unread("/", "fed"))
        assert unread.count(False) > len(unread) / 2
        for defining in (POLICY_SET, BrokerEvent("exchange.created", {"vhost": "/", "name": "fed"})):
            await time.advance(1)
            assert not watching.watcher.has_unread("/", "fed")
            broker.tell(defining)
            await time.turn()
            assert watching.watcher.has_unread("/", "fed")


async def test_very_many_exchanges_may_be_any(time: VirtualTime) -> None:
    broker = Broker()
    async with Watching(time, events=broker, poll=False).running() as watching:
        await time.advance(1)
        for number in range(MOST_EXCHANGES + 1):
            broker.tell(BrokerEvent("exchange.created", {"vhost": "/", "name": f"e{number}"}))
        await time.turn()
        assert watching.watcher.has_unread("/", "fed")


async def test_a_storm_of_events_makes_few_reloads(time: VirtualTime) -> None:
    broker = Broker()
    async with Watching(time, events=broker, poll=False).running() as watching:
        await time.advance(1)
        before = len(watching.reloads)
        for _ in range(1000):
            broker.tell(POLICY_SET)
        await time.advance(1)
        assert 1 <= len(watching.reloads) - before <= 2


async def test_an_event_is_acted_on_within_a_second(time: VirtualTime) -> None:
    broker = Broker()
    async with Watching(time, events=broker).running() as watching:
        await time.advance(1)
        before = len(watching.reloads)
        broker.tell(POLICY_SET)
        await time.advance(0.5)
        assert watching.reloads[before:] == [{ReloadCause.EVENT}]


async def test_a_change_during_a_reload_makes_one_more(time: VirtualTime) -> None:
    watching = Watching(time, poll=False)

    async def slow() -> None:
        for _ in range(10):
            watching.watcher.notify(ReloadCause.EVENT)
            await time.sleep(1)
        watching.during = None

    watching.during = slow
    async with watching.running():
        await time.advance(60)
        assert watching.reloads == [{ReloadCause.START}, {ReloadCause.EVENT}]


async def test_never_reloads_twice_at_once(time: VirtualTime) -> None:
    watching = Watching(time)
    active, most = 0, 0

    async def slow() -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await time.sleep(7)
        active -= 1

    watching.during = slow
    async with watching.running():
        for _ in range(100):
            watching.watcher.notify(ReloadCause.HANGUP)
            await time.advance(0.7)
        assert most == 1
        assert len(watching.reloads) < 10


@pytest.mark.parametrize(("silent", "polls"), [(False, 3), (True, 30)])
async def test_polls_less_where_the_broker_tells(time: VirtualTime, silent: bool, polls: int) -> None:
    async with Watching(time, events=Broker(silent=silent)).running() as watching:
        await time.advance(100)
        found = sum(ReloadCause.POLL in causes for causes in watching.reloads)
        assert polls <= found <= polls * 1.7


async def test_no_broker_no_polling(time: VirtualTime) -> None:
    async with Watching(time, poll=False).running() as watching:
        await time.advance(100)
        assert watching.reloads == [{ReloadCause.START}]


async def test_lost_events_are_told_and_listened_to_again(time: VirtualTime) -> None:
    broker = Broker()
    async with Watching(time, events=broker).running() as watching:
        await time.advance(1)
        broker.tell(TransientError("downstream: connection lost"))
        await time.advance(4)
        assert ReloadCause.POLL in watching.reloads[-1]
        assert [str(error) for error in watching.errors] == ["downstream: connection lost"]
        await time.advance(10)
        assert broker.subscriptions == 2
        assert any(ReloadCause.EVENT in causes for causes in watching.reloads[-3:])


async def test_a_failing_reload_is_told_and_tried_again(time: VirtualTime) -> None:
    watching = Watching(time, events=Broker())

    async def fail() -> None:
        raise TransientError("no answer")

    async with watching.running():
        await time.advance(1)
        watching.during = fail
        watching.watcher.notify(ReloadCause.HANGUP)
        await time.advance(1)
        assert [str(error) for error in watching.errors] == ["no answer"]
        watching.during = None
        before = len(watching.reloads)
        await time.advance(4)
        assert len(watching.reloads) > before


async def until(condition: Callable[[], bool], time: VirtualTime, step: float = 1.0) -> None:
    """Files are looked at in a thread: lets virtual time pass, and the thread work, until it has."""
    for _ in range(200):
        if condition():
            return
        await time.advance(step)
        await asyncio.to_thread(lambda: None)
    raise AssertionError("never happened")


async def test_a_written_file(time: VirtualTime, tmp_path: Path) -> None:
    document = tmp_path / "agent.yaml"
    document.write_text("a")
    async with Watching(time, poll=False, files=lambda: [str(document)]).running() as watching:
        await until(lambda: len(watching.reloads) == 1, time)
        await time.advance(5)
        document.write_text("bb")
        await until(lambda: len(watching.reloads) > 1, time)
        assert watching.reloads[:2] == [
            {ReloadCause.START},
            {ReloadCause.FILE},
        ]  # it may have been seen half written, and again


async def test_a_file_that_goes_and_comes(time: VirtualTime, tmp_path: Path) -> None:
    document = tmp_path / "agent.yaml"
    document.write_text("a")
    async with Watching(time, poll=False, files=lambda: [str(document)]).running() as watching:
        await until(lambda: len(watching.reloads) == 1, time)
        document.unlink()
        await until(lambda: len(watching.reloads) == 2, time)
        document.write_text("a")
        await until(lambda: len(watching.reloads) == 3, time)


async def test_a_file_changed_while_it_was_read(time: VirtualTime, tmp_path: Path) -> None:
    document = tmp_path / "agent.yaml"
    document.write_text("a")
    watching = Watching(time, poll=False, files=lambda: [str(document)])

    async def write() -> None:
        watching.during = None
        document.write_text("changed")

    watching.during = write
    async with watching.running():
        await until(lambda: len(watching.reloads) == 2, time)


async def test_files_that_a_document_names_are_watched_once_it_names_them(time: VirtualTime, tmp_path: Path) -> None:
    document, secret = tmp_path / "agent.yaml", tmp_path / "password"
    document.write_text("a")
    secret.write_text("one")
    files = [str(document)]
    watching = Watching(time, poll=False, files=lambda: tuple(files))

    async def name_it() -> None:
        watching.during = None
        files.append(str(secret))

    watching.during = name_it
    async with watching.running():
        await until(lambda: len(watching.reloads) == 1, time)
        for length in range(10, 20):  # it is looked at first some time after the reload
            secret.write_text("x" * length)
            with suppress(AssertionError):
                await until(lambda: len(watching.reloads) == 2, time)
                return
        raise AssertionError("no change of the secret is noticed")


class Growing:
    """A document that is watched, and how often it was read."""

    def __init__(self, time: VirtualTime, directory: Path) -> None:
        self.time = time
        self.document = directory / "agent.yaml"
        self.document.write_text("a")
        self.watching = Watching(time, poll=False, files=lambda: [str(self.document)])

    def append(self, text: str) -> None:
        with self.document.open("a") as file:
            file.write(text)

    async def look(self, count: int = 1) -> int:
        """Lets so many looks pass; answers how often the document was read by now."""
        for _ in range(count):
            await self.time.advance(0.5)
            await asyncio.to_thread(lambda: None)
            await self.time.turn()
        return len(self.watching.reloads)

    async def until_read(self, count: int, *, grows: bool = False) -> None:
        def is_read() -> bool:
            if grows:
                self.append("more")
            return len(self.watching.reloads) >= count

        await until(is_read, self.time, 0.5)


@pytest.fixture
def growing(time: VirtualTime, tmp_path: Path) -> Growing:
    return Growing(time, tmp_path)


async def test_a_file_that_grows_is_read_once_it_grows_no_more(growing: Growing) -> None:
    async with growing.watching.running():
        await growing.until_read(1)
        for number in range(20):
            growing.append(f"{number}\n")
            assert await growing.look() == 1
        assert growing.watching.watcher.has_unread("/", "fed")
        await growing.until_read(2)
        assert growing.watching.reloads == [{ReloadCause.START}, {ReloadCause.FILE}]
        await growing.look(20)
        assert len(growing.watching.reloads) == 2
        assert not growing.watching.watcher.has_unread("/", "fed")


async def test_an_event_meanwhile_reads_no_file_that_still_grows(growing: Growing) -> None:
    async with growing.watching.running() as watching:
        await growing.until_read(1)
        growing.append("b")
        await growing.look(2)
        watching.watcher.notify(ReloadCause.EVENT)
        await growing.until_read(2, grows=True)
        assert watching.reloads[1:] == [{ReloadCause.EVENT}]
        await growing.until_read(3)
        assert watching.reloads[2:] == [{ReloadCause.FILE}]


async def test_a_hangup_reads_a_file_that_still_grows_and_then_the_rest_of_it(growing: Growing) -> None:
    async with growing.watching.running() as watching:
        await growing.until_read(1)
        growing.append("b")
        await growing.look()
        watching.watcher.notify(ReloadCause.HANGUP)
        await growing.until_read(2)
        assert watching.reloads[1:] == [{ReloadCause.HANGUP, ReloadCause.FILE}]
        growing.append("c")
        await growing.until_read(3)
        assert watching.reloads[2:] == [{ReloadCause.FILE}]


async def test_a_file_that_is_away_for_a_moment_and_comes_back_is_read_once(growing: Growing) -> None:
    async with growing.watching.running() as watching:
        await growing.until_read(1)
        growing.document.unlink()
        assert await growing.look(2) == 1
        growing.document.write_text("another")
        await growing.until_read(2)
        await growing.look(20)
        assert watching.reloads == [{ReloadCause.START}, {ReloadCause.FILE}]


async def test_a_file_that_never_stays_the_same_is_reported(growing: Growing) -> None:
    async with growing.watching.running() as watching:
        await growing.until_read(1)
        for _ in range(150):
            growing.append("x")
            await growing.look()
        assert len(watching.reloads) == 1
        assert "kept changing for 60 s" in str(watching.errors[0])
        assert len(watching.errors) <= 2


def test_three_looks_that_find_the_same_make_a_change_whole() -> None:
    files = WholeFiles()
    files.take({"a": None, "b": (1, 1, 1, 1, 1)})
    changed: Signatures = {"a": None, "b": (1, 1, 2, 2, 2)}
    assert not files.look({"a": None, "b": (1, 1, 1, 1, 1)})
    assert [files.look(changed) for _ in range(3)] == [False, False, True]
    grown: Signatures = {"a": None, "b": (1, 1, 3, 3, 3)}
    assert not files.look(grown)
    assert not files.is_whole(grown)
    replaced: Signatures = {"a": None, "b": (1, 2, 3, 3, 3)}
    assert [files.look(replaced) for _ in range(3)] == [False, False, True]
    assert files.is_whole(replaced)
    files.take(replaced)
    assert not files.has_unread
    assert not files.look({**replaced, "named just now": (1, 1, 1, 1, 1)})


def test_one_file_that_still_grows_holds_back_the_others() -> None:
    files = WholeFiles()
    files.take({"a": None, "b": None})
    looks: list[Signatures] = [{"a": (1, 1, 1, 1, 1), "b": (1, 2, size, 1, size)} for size in range(5)]
    assert not any(files.look(found) for found in looks)
    assert [files.look(looks[-1]) for _ in range(2)] == [False, True]


def test_the_signature_sees_an_atomic_replacement(tmp_path: Path) -> None:
    document, fresh = tmp_path / "agent.yaml", tmp_path / "fresh"
    document.write_text("same size")
    before = signature(str(document))
    fresh.write_text("same SIZE")
    fresh.replace(document)
    assert signature(str(document)) != before


def test_the_signature_sees_a_config_map_turn_its_link(tmp_path: Path) -> None:
    """Kubernetes swaps the directory behind `..data`; neither the file's path nor its own link changes."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "agent.yaml").write_text("same")
    (tmp_path / "..data").symlink_to("v1")
    document = tmp_path / "agent.yaml"
    document.symlink_to("..data/agent.yaml")
    before = signature(str(document))
    (tmp_path / "..data_tmp").symlink_to("v2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert signature(str(document)) != before


def test_the_signature_sees_the_same_size_and_time(tmp_path: Path) -> None:
    document = tmp_path / "agent.yaml"
    document.write_text("one")
    before = signature(str(document))
    times = document.stat()
    document.write_text("two")
    os.utime(document, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert signature(str(document)) != before


def test_no_file_has_no_signature(tmp_path: Path) -> None:
    assert signature(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("event", "concerned"),
    [
        (POLICY_SET, True),
        (BrokerEvent("binding.created", {"vhost": "/"}), False),
        (BrokerEvent("vhost.created", {"name": "v"}), True),
        (BrokerEvent("parameter.set", {"component": "federation-upstream"}), True),
        (BrokerEvent("parameter.set", {"component": "global", "name": "federation-agent"}), True),
        (BrokerEvent("parameter.set", {"component": "global", "name": "cluster_name"}), True),
        (BrokerEvent("parameter.set", {"component": "global", "name": "other"}), False),
        (BrokerEvent("parameter.set", {"component": "exchange-delete-in-progress"}), False),
        (BrokerEvent("consumer.created", {}), False),
        (BrokerEvent("", {}), False),
    ],
)
def test_which_events_concern_the_definitions(event: BrokerEvent, concerned: bool) -> None:
    assert concerns(event) is concerned


async def test_what_nobody_foresaw_ends_no_watching(time: VirtualTime, tmp_path: Path) -> None:
    """Files can't be named for once, in the middle of a reload: it is watched again, and polled for."""
    broken = False

    def files() -> Iterable[str]:
        if broken:
            raise ValueError
        return ()

    watching, errors = Watching(time, files=files), UnexpectedErrors(time.clock)
    tasks = GuardedTasks(errors, sleep=time.sleep)
    tasks.keep("watch definitions", watching.watcher.run)
    await time.advance(1)
    broken = True
    watching.watcher.notify(ReloadCause.HANGUP)
    await time.advance(0.1)
    assert errors.counts == {"watch definitions": 1}
    broken = False
    before = len(watching.reloads)
    await time.advance(10)
    assert watching.reloads[before] == {ReloadCause.START}
    assert {ReloadCause.POLL} in watching.reloads[before:]
    await tasks.end(1)


async def test_what_is_added_counts_at_once_and_what_is_replaced_is_read_when_it_is_complete(
    time: VirtualTime,
) -> None:
    broker = Broker()
    async with Watching(time, events=broker, poll=False).running() as watching:
        await time.advance(5)
        before = len(watching.reloads)
        broker.tell(POLICY_SET)
        await time.advance(0.02)
        assert len(watching.reloads) - before == 1
        broker.tell(POLICY_SET)
        await time.advance(0.1)
        assert len(watching.reloads) - before == 1  # one of many, perhaps
        await time.advance(5)
        before = len(watching.reloads)
        broker.tell(BrokerEvent("policy.cleared", {"vhost": "/", "name": "p"}))
        broker.tell(POLICY_SET)
        await time.advance(0.1)
        assert len(watching.reloads) == before
        await time.advance(0.2)
        assert len(watching.reloads) - before == 1
