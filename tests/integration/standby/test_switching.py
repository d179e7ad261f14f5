"""The steps of a switchover by themselves, with what comes between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aio_pika
import pytest

from agent.amqp.queue_messages import QueueHead
from agent.core.addresses.uri import parse
from agent.core.rules.names import PROMOTED, SWITCHED
from agent.definitions.sources.load import load_configuration
from agent.errors import TransientError
from agent.migration.standby import open_standby
from agent.migration.switch_record import SwitchedQueue, Switchover
from agent.migration.switching import LOCKED_WITHIN, SwitchingOver
from agent.migration.trimming import lock_copies
from tests.integration.standby.scene import VHOST, StandbyScene

COPIES = [f"old {number}" for number in range(5)]
WAITING = ["m0", "m1", "m2"]


@pytest.fixture(autouse=True)
def _figures_are_of_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.migration.switching.FIGURES_LATE", 5.0)


@pytest.fixture
def waiting(standby: StandbyScene) -> StandbyScene:
    """A source's queue that holds three messages, and its copy, which holds five older ones, too; no links."""
    for node in (standby.source_node, standby.node):
        node.admin.vhost(VHOST)
    for site in (standby.source, standby.here):
        site.exchange("orders").queue("#", name="work", exchange="orders")
        site.publish(WAITING, exchange="orders")
    standby.here.take(3, queue="work")
    standby.here.publish([*COPIES, *WAITING], exchange="orders")
    standby.write()
    return standby


class InterruptedHereError(Exception):
    """Ends a switchover at once, as a kill does."""


class Watched(SwitchingOver):
    """Does something before a step of the only queue, or after its copies were acknowledged."""

    before_moving: Callable[[], object] = staticmethod(lambda: None)
    before_drop: Callable[[], object] = staticmethod(lambda: None)
    before_taking: Callable[[], object] = staticmethod(lambda: None)
    after_taking: Callable[[], object] = staticmethod(lambda: None)

    async def _move(self, queue: SwitchedQueue) -> None:
        self.before_moving()
        await super()._move(queue)

    async def _drop(self, queue: SwitchedQueue) -> None:
        self.before_drop()
        await super()._drop(queue)

    async def _take(self, queue: SwitchedQueue, head: QueueHead) -> None:
        self.before_taking()
        await super()._take(queue, head)
        self.after_taking()


def take_one(standby: StandbyScene) -> None:
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    [_] = standby.node.admin.post("queues", VHOST, "work", "get", body=body)


def note_promotion(standby: StandbyScene, how: str) -> None:
    standby.node.admin.global_parameter(PROMOTED, {"since": "2026-01-01T00:00:00Z", "how": how})


def interrupt() -> None:
    raise InterruptedHereError


@asynccontextmanager
async def switching_of(standby: StandbyScene, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Watched]:
    configuration = load_configuration(str(standby.agent.path), environment=os.environ)
    settings = configuration.settings.standby
    assert settings is not None
    async with open_standby(configuration, settings) as clusters:
        yield Watched(configuration, settings, clusters, print, clock=clock)


def run(standby: StandbyScene, *, begins: bool = True, **steps: Callable[[], object]) -> Switchover:
    async def work() -> Switchover:
        async with switching_of(standby) as switching:
            for name, step in steps.items():
                setattr(switching, name, step)
            if begins:
                await switching.begin()
                note_promotion(standby, "switchover")
            return await switching.run()

    return asyncio.run(work())


def run_interrupted(standby: StandbyScene, step: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        run(standby, **{step: interrupt})  # type: ignore[arg-type]  # none is `begins`
    assert caught.group_contains(InterruptedHereError)


@pytest.mark.thorough
def test_what_comes_meanwhile_costs_no_moved_message(waiting: StandbyScene) -> None:
    late = ["retried 0", "retried 1"]
    found = run(waiting, before_drop=lambda: waiting.here.publish(late, exchange="orders"))
    assert found.problems == []
    assert list(found.inexact.values()) == ["2 messages more than waited at the source"]
    assert waiting.here.take(5, queue="work") == [*WAITING, *late]


@pytest.mark.thorough
def test_nothing_is_taken_where_copies_went_by_themselves(waiting: StandbyScene) -> None:
    found = run(waiting, before_drop=lambda: take_one(waiting))
    [problem] = found.problems
    assert "1 of its messages went by themselves" in problem
    assert waiting.here.take(10, queue="work") == [*COPIES[1:], *WAITING, *WAITING]


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["before_drop", "before_taking", "after_taking"])
def test_it_goes_on_where_it_was_interrupted(waiting: StandbyScene, step: str) -> None:
    run_interrupted(waiting, step)
    found = run(waiting, begins=False)
    assert (found.problems, found.inexact) == ([], {})
    assert waiting.here.take(3, queue="work") == WAITING


@pytest.mark.thorough
def test_what_comes_twice_since_a_move_was_interrupted_is_said(waiting: StandbyScene) -> None:
    run_interrupted(waiting, "before_moving")
    waiting.here.publish(WAITING[:1], exchange="orders")  # as one that was confirmed, and not acknowledged
    found = run(waiting, begins=False)
    assert found.problems == []
    assert list(found.inexact.values()) == ["1 message more than waited at the source"]
    assert waiting.here.take(4, queue="work") == [WAITING[0], *WAITING]


@pytest.mark.thorough
def test_a_promotion_that_was_noted_meanwhile_keeps_its_counts(waiting: StandbyScene) -> None:
    run_interrupted(waiting, "before_drop")
    with pytest.raises(TransientError, match="promoted meanwhile"):
        run(waiting)
    assert run(waiting, begins=False).problems == []
    assert waiting.here.take(3, queue="work") == WAITING


@pytest.mark.thorough
def test_queues_that_keep_their_copies_are_moved_if_that_loses_nothing(standby: StandbyScene) -> None:
    kept = {"prio": {"x-max-priority": 5}, "capped": {"x-max-length": 3}}
    for name, arguments in (kept | {"refusing": {"x-max-length": 9, "x-overflow": "reject-publish"}}).items():
        for node in (standby.source_node, standby.node):
            node.admin.vhost(VHOST)
            node.admin.queue(VHOST, name, arguments=arguments)
        standby.source.publish(WAITING, exchange="", key=name)
        standby.here.publish(["old"], exchange="", key=name)
    standby.write()
    found = run(standby)
    [problem] = found.problems
    assert "'refusing'" in problem
    assert "3 messages of it still at the source" in problem
    assert {key.name for key in found.inexact} == {*kept, "refusing"}
    assert standby.here.take(1, queue="refusing") == ["old"]
    assert len(standby.source.take(3, queue="refusing")) == 3
    found = run(standby, begins=False)
    assert (found.problems, len(found.inexact)) == ([], 3)
    assert standby.here.take(4, queue="prio") == ["old", *WAITING]
    assert standby.here.take(3, queue="capped") == WAITING


@pytest.mark.thorough
async def test_no_copy_is_taken_while_the_source_holds_what_is_not_ready(waiting: StandbyScene) -> None:
    async with await aio_pika.connect(waiting.source.uri) as client, switching_of(waiting) as switching:
        queue = await (await client.channel()).get_queue("work")
        await queue.get()
        await switching.begin()
        note_promotion(waiting, "switchover")
        [problem] = (await switching.run()).problems
        assert "1 message of it still at the source" in problem
    async with switching_of(waiting) as switching:
        assert (await switching.run()).problems == []
    assert sorted(await asyncio.to_thread(waiting.here.take, 3, queue="work")) == WAITING


@pytest.mark.thorough
def test_nothing_is_taken_after_a_failover(waiting: StandbyScene) -> None:
    found = run(waiting, before_taking=lambda: note_promotion(waiting, "failover"))
    [problem] = found.problems
    assert "ended meanwhile, by a failover" in problem
    assert waiting.here.take(11, queue="work") == [*COPIES, *WAITING, *WAITING]


@pytest.mark.thorough
def test_nothing_is_taken_once_it_is_not_known_what_was_counted(waiting: StandbyScene) -> None:
    for queues in ("lost", [{"vhost": VHOST, "queue": "work"}]):
        waiting.node.admin.global_parameter(SWITCHED, {"queues": queues})
        [problem] = run(waiting, begins=False).problems
        assert "can't be read any more" in problem
    assert waiting.here.take(8, queue="work") == [*COPIES, *WAITING]


@pytest.mark.thorough
def test_it_waits_until_no_agent_takes_copies_out_but_not_for_ever(waiting: StandbyScene) -> None:
    async def work() -> None:
        now = 0.0
        other = await lock_copies([parse(waiting.node.uri())], VHOST)
        assert other is not None
        async with switching_of(waiting, lambda: now) as switching:
            await switching.begin()
            note_promotion(waiting, "switchover")
            trying = asyncio.create_task(switching.run())
            await asyncio.sleep(1)
            now = LOCKED_WITHIN + 1
            with pytest.raises(TransientError, match="another agent takes copies out"):
                await trying
            trying = asyncio.create_task(switching.run())
            await asyncio.sleep(1)
            assert not trying.done()
            await other.close()
            assert (await trying).problems == []

    asyncio.run(work())
    assert waiting.here.take(3, queue="work") == WAITING
