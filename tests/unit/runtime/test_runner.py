"""What runs a link, where something happens that nobody foresaw."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.amqp.connection_pool import Shared
from agent.core.addresses import uri
from agent.core.links import lifecycle
from agent.core.links.lifecycle import Phase, Status
from agent.core.links.served_by import Other
from agent.core.links.upstream_account import Compared, QueueCounts
from agent.core.links.waits import CleanupAfter
from agent.core.model import Link, LinkSettings
from agent.errors import Failure, Side, TransientError
from agent.links.brokers import Brokers
from agent.links.consumer import ServedElsewhereError
from agent.links.ends import End
from agent.links.registry import Kinds
from agent.runtime.runner import LinkRunner
from agent.runtime.session_runner import IdleBacklog
from agent.runtime.upstream_counters import CountedVhost
from tests.unit.amqp.wire.virtual_loop import in_virtual_time
from tests.unit.status.test_board import LINK


class Broken(Brokers):
    """Where upstream is asked nothing."""

    async def control(self, end: End) -> Shared:
        raise ValueError(end.where)


def test_a_link_ends_whatever_becomes_of_its_removal() -> None:
    async def live() -> None:
        runner = LinkRunner(LINK, Kinds(Broken((), "here", stall_after=30)), on_change=lambda *_: None)
        runner.start()
        await asyncio.sleep(1)
        assert shown(runner) is Status.BACKOFF
        assert runner.state.error == "unexpected error: ValueError"
        runner.unwant()
        async with asyncio.timeout(700):
            await runner.finished

    in_virtual_time(live())


class Served(Brokers):
    """Whose queue has a consumer, and where something unforeseen happens when that is looked at again."""

    asked = 0

    async def control(self, end: End) -> Shared:
        self.asked += 1
        if self.asked == 1:
            raise ServedElsewhereError("consumed by another", "queue")
        if self.asked == 2:
            raise ValueError(end.where)
        raise TransientError(f"{end.where}: connection refused")


def test_a_link_that_waits_for_its_turn_goes_on_waiting_after_an_unexpected_error() -> None:
    async def live() -> None:
        brokers = Served((), "here", stall_after=30)
        runner = LinkRunner(LINK, Kinds(brokers), on_change=lambda *_: None)
        runner.start()
        await asyncio.sleep(0.01)
        assert shown(runner) is Status.STANDBY
        await asyncio.sleep(60)
        assert brokers.errors.counts["link: await turn"] == 1
        assert shown(runner) is Status.BACKOFF  # it has tried to open again

    in_virtual_time(live())


def test_a_link_that_waits_for_its_removal_goes_on_waiting_after_an_unexpected_error() -> None:
    async def live() -> None:
        errors: list[Exception] = [ValueError("unexpected")]

        def holds_removals(_: Link) -> bool:
            if errors:
                raise errors.pop()
            return False

        brokers = Away((), "here", stall_after=30, cleanup_after=CleanupAfter(5, 5), holds_removals=holds_removals)
        runner = unwanted(brokers)
        assert await ended_after(runner) <= 60
        assert brokers.errors.counts["link: wait for the removal"] == 1

    in_virtual_time(live())


class Away(Brokers):
    """Whose upstream answers nobody."""

    async def control(self, end: End) -> Shared:
        raise TransientError(f"{end.where}: connection refused")


def shown(runner: LinkRunner) -> Status:
    return runner.state.status


def unwanted(brokers: Brokers) -> LinkRunner:
    runner = LinkRunner(LINK, Kinds(brokers), on_change=lambda *_: None)
    runner.start()
    runner.unwant()
    return runner


async def ended_after(runner: LinkRunner) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await runner.finished
    return loop.time() - begun


class WithoutDownstream(Brokers):
    """Whose downstream answers nobody."""

    async def control(self, end: End) -> Shared:
        raise TransientError(f"{end.where}: connection refused", facts=Failure(side=Side.DOWNSTREAM))


def test_while_the_downstream_is_away_the_backlog_is_known_from_one_try_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def waiting(_: IdleBacklog) -> int:
        return 25

    async def live() -> None:
        seen: list[tuple[Phase, int | None]] = []
        runner = LinkRunner(
            LINK,
            Kinds(WithoutDownstream((), "here", stall_after=30)),
            on_change=lambda runner, _: seen.append((runner.state.phase, runner.gauges().backlog)),
        )
        runner.start()
        await asyncio.sleep(100)
        first = seen.index((Phase.OPENING, 25))
        assert set(seen[first:]) == {(Phase.OPENING, 25), (Phase.CLOSING, 25), (Phase.WAITING, 25)}
        runner.send(lifecycle.Signal.STOP)

    monkeypatch.setattr(IdleBacklog, "_count", waiting)
    in_virtual_time(live())


def test_a_link_whose_upstream_is_away_is_tried_when_its_time_is_over_and_left() -> None:
    async def live() -> None:
        brokers = Away((), "here", stall_after=30, cleanup_after=CleanupAfter(10, 100))
        runner = unwanted(brokers)
        await asyncio.sleep(50)
        assert shown(runner) is Status.REMOVING
        assert "in 50 s (the upstream can't be reached" in runner.gauges().removal
        assert 100 <= await ended_after(runner) + 50 <= 135
        assert runner.note == "what exists upstream could not be removed: upstream origin: connection refused"

    in_virtual_time(live())


def test_another_time_in_the_configuration_holds_for_links_that_wait_already() -> None:
    async def live() -> None:
        brokers = Away((), "here", stall_after=30)
        runner = unwanted(brokers)
        await asyncio.sleep(20)
        brokers.cleanup_after = CleanupAfter(10, 30)
        assert await ended_after(runner) <= 45

    in_virtual_time(live())


def test_nothing_is_asked_of_the_upstream_where_links_are_removed_at_once() -> None:
    async def live() -> None:
        runner = unwanted(Away((), "here", stall_after=30, cleanup_after=CleanupAfter(0, 0)))
        await asyncio.sleep(0.1)
        assert shown(runner) is Status.STOPPING
        await ended_after(runner)

    in_virtual_time(live())


def test_removal_waits_while_it_is_not_sure_what_is_defined() -> None:
    async def live() -> None:
        unsure = [True]
        brokers = Away(
            (), "here", stall_after=30, cleanup_after=CleanupAfter(5, 5), holds_removals=lambda _: bool(unsure)
        )
        runner = unwanted(brokers)
        await asyncio.sleep(1000)
        assert shown(runner) is Status.REMOVING
        assert "once definitions can be read again" in runner.gauges().removal
        unsure.clear()
        assert await ended_after(runner) <= 40

    in_virtual_time(live())


def test_a_link_that_is_wanted_again_asks_no_more_for_its_removal() -> None:
    async def live() -> None:
        runner = unwanted(Away((), "here", stall_after=30))
        await asyncio.sleep(20)
        runner.want()
        await asyncio.sleep(1000)
        assert shown(runner) is Status.BACKOFF
        assert runner.gauges().removal == ""
        runner.unwant()
        await asyncio.sleep(590)
        assert runner.state.status is Status.REMOVING  # the time counts anew
        runner.send(lifecycle.Signal.STOP)
        assert await ended_after(runner) == 0

    in_virtual_time(live())


def test_a_removal_that_is_under_way_ends_when_the_link_is_wanted_again() -> None:
    async def live() -> None:
        brokers = Away((), "here", stall_after=30, cleanup_after=CleanupAfter(0, 0))
        runner = unwanted(brokers)
        await asyncio.sleep(1)
        runner.want()
        assert shown(runner) is Status.STARTING
        await asyncio.sleep(10)
        assert shown(runner) is Status.BACKOFF

    in_virtual_time(live())


def test_what_entered_upstream_is_looked_at_where_the_upstream_names_its_http_api() -> None:
    api = (uri.parse_http("http://dc1"),)

    async def live() -> None:
        runner = LinkRunner(LINK, Kinds(Broken((), "here", stall_after=30)), on_change=lambda *_: None)
        runner.start()
        found = [runner.upstream_queue]
        runner.link = replace(LINK, management=api)
        found.append(runner.upstream_queue)
        assert found == [None, (CountedVhost(api, "/", "origin"), "federation: there -> here:orders")]
        runner.link = replace(runner.link, settings=LinkSettings(probe=10.0))
        assert runner.upstream_queue is None, "the broker counts probes, too"
        runner.link = replace(LINK, management=api)
        runner.served_by(Other.REPLICA, "runs elsewhere")
        assert runner.upstream_queue is None

    in_virtual_time(live())


def test_what_another_agent_settled_is_compared_nowhere() -> None:
    async def live() -> None:
        runner = LinkRunner(LINK, Kinds(Broken((), "here", stall_after=30)), on_change=lambda *_: None)

        def look(entered: int, *times: float) -> None:
            for now in times:
                runner.look_upstream(QueueCounts(entered, entered, 0), now)

        look(5, 0.0, 20.0)
        runner.counts.forwarded, runner.counts.dropped, runner.counts.quarantined = 1, {"max_hops": 1}, {"size": 2}
        look(9, 30.0, 50.0)
        assert runner.gauges().upstream == Compared(2, entered=4, acknowledged=4, settled=4, waiting=0)
        runner.served_by(Other.REPLICA, "runs elsewhere")
        runner.served_by(Other.REPLICA, None)
        look(100, 60.0, 80.0)
        assert runner.gauges().upstream == Compared(3, entered=4, acknowledged=4, settled=4, waiting=0)

    in_virtual_time(live())


def test_what_another_api_or_queue_shows_is_not_compared_with_what_came_before() -> None:
    async def live() -> None:
        brokers = Broken((), "here", stall_after=30)
        runner = LinkRunner(LINK, Kinds(brokers), on_change=lambda *_: None)
        runner.start()

        def look(entered: int, *times: float) -> None:
            for now in times:
                runner.look_upstream(QueueCounts(entered, entered, 0), now)

        def asked(url: str) -> None:
            runner.link = replace(LINK, management=(uri.parse_http(url),))

        asked("http://me:old@dc1")
        look(5, 0.0, 20.0)
        asked("http://me:new@dc1")
        look(5, 40.0)
        assert runner.gauges().upstream == Compared(2, waiting=0), "another password shows the same queue"
        asked("http://me:new@dc2")
        look(100, 60.0, 80.0)
        brokers.cluster = "elsewhere"
        look(200, 100.0, 120.0)
        assert runner.gauges().upstream == Compared(4, waiting=0)

    in_virtual_time(live())
