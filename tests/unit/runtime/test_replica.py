"""One agent of a group, and until when it may run links."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from agent.amqp.wire.ends import Permit
from agent.core.addresses.uri import DEFAULT_HEARTBEAT, AmqpUri, parse
from agent.core.links.lifecycle import Pause
from agent.core.replicas.sharing import LEASE
from agent.core.replicas.slots import slot_of
from agent.core.status.acknowledgements import Acknowledgement
from agent.errors import BrokerError
from agent.runtime.replicas.lease_channel import SURELY_KEPT
from agent.runtime.replicas.replica import NO_ACCESS_FOR, GroupLinks, Replica
from agent.tasks import GuardedTasks, UnexpectedErrors
from tests.simulation.loop import SimulatedLoop, run
from tests.unit.core.some_links import shovel_link
from tests.unit.model_brokers import HERE, Models, among_models

SETTLED_WITHIN = 15.0


class Runner:
    """GroupLinks no links, and notes until when it might, for how many seconds from then on, as it is called."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self.had_company_with: list[float] = []
        self.severed_with: list[float] = []
        self.severed_by: list[str] = []

    @property
    def commands(self) -> Runner:
        return self

    def begin_sharing(self) -> None:
        self.had_company_with.append(self._permit.until - now())

    def sever(self, why: BrokerError) -> None:
        self.severed_with.append(self._permit.until - now())
        self.severed_by.append(str(why))

    def slots_at_work(self) -> frozenset[int]:
        return frozenset()

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Agent:
    """A replica and what it is given; `works` until it is cancelled."""

    def __init__(self, name: str, uris: tuple[AmqpUri, ...] = (parse(f"amqp://{HERE}"),)) -> None:
        self.permit = Permit()
        self.runner = Runner(self.permit)
        tasks = GuardedTasks(UnexpectedErrors())
        self.replica = Replica(lambda: uris, tasks, self.permit, cast("GroupLinks", self.runner))
        self.replica.join("group", name)
        self.replica.follow(())
        tasks.keep("share links", self.replica.run)
        tasks.keep("end links", self.replica.keep_deadline)

    @property
    def may_run_for(self) -> float:
        return self.permit.until - now()

    def stands_still(self) -> None:
        """For longer than it may; then a connection finds that its time is up."""
        self.permit.until = now() - 1
        self.permit.end()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_links_are_given_up_as_soon_as_another_agent_is_heard_of() -> None:
    """This one may be frozen at any moment, and others take its links over then."""

    async def live(models: Models) -> None:
        models.broker()
        first = Agent("first")
        await asyncio.sleep(SETTLED_WITHIN)
        assert first.may_run_for >= SURELY_KEPT - 1, "it is alone"
        Agent("second")
        await asyncio.sleep(SETTLED_WITHIN)
        assert first.runner.had_company_with == [pytest.approx(LEASE, abs=1)]
        assert first.may_run_for <= LEASE

    among_models(live)


def test_one_that_never_had_company_outlasts_what_brokers_outlast_with_or_without_a_lease() -> None:
    """No broker gives its messages to others sooner, and new connections would deliver what was in flight again."""

    async def live(models: Models) -> None:
        broker = models.broker()
        agent = Agent("alone")
        await asyncio.sleep(SETTLED_WITHIN)
        leased = agent.may_run_for
        broker.stop()
        await asyncio.sleep(SETTLED_WITHIN)
        for seconds in (leased, agent.may_run_for):
            assert SURELY_KEPT - 1 < seconds < 2 * DEFAULT_HEARTBEAT - 1
        assert not agent.runner.severed_with

    among_models(live)


def test_a_state_that_is_stored_already_is_not_written_again() -> None:
    """Each token is a message, and a link is recalled often."""

    async def live(models: Models) -> None:
        models.broker()
        replica = Agent("alone").replica
        await asyncio.sleep(SETTLED_WITHIN)
        link, slot, numbers = "0000002a", slot_of("0000002a"), []
        for _ in range(2):
            replica.remember_pause(link, Pause("somebody", 1.0))
            replica.remember_finished(link, "all messages moved")
            replica.remember_acknowledged({link: Acknowledgement("upstream", "unreachable")})
            numbers.append(replica.stored(slot).number)
        assert numbers[0] == numbers[1] > 0
        replica.remember_pause(link, None)
        assert replica.stored(slot).number == numbers[1] + 1

    among_models(live)


def test_one_that_had_company_and_lost_its_lease_runs_none_until_it_is_known_what_runs_here() -> None:
    async def live(models: Models) -> None:
        broker = models.broker()
        first, second = Agent("first"), Agent("second")
        await asyncio.sleep(SETTLED_WITHIN)
        broker.stop()
        await asyncio.sleep(SETTLED_WITHIN)
        for each in (first, second):
            assert each.runner.severed_with == [-math.inf]
            assert "downstream lost" in each.runner.severed_by[0]
            assert LEASE - 1 < each.may_run_for <= LEASE, "it goes on with connections that are new"

    among_models(live)


def test_one_that_stood_still_ends_its_links_and_goes_on_with_connections_that_are_new() -> None:
    async def live(models: Models) -> None:
        broker = models.broker()
        first, _ = Agent("first"), Agent("second")
        await asyncio.sleep(SETTLED_WITHIN)
        broker.stop()
        await asyncio.sleep(SETTLED_WITHIN)
        first.runner.severed_with.clear()
        first.stands_still()
        assert len(first.runner.severed_with) == 1
        assert first.may_run_for > 0
        await asyncio.sleep(SETTLED_WITHIN)
        assert len(first.runner.severed_with) == 1

    among_models(live)


class Silent:
    """A network that loses whatever is sent; how long was waited for an answer each time."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def reach(self, _: str, __: int) -> None:
        began = now()
        try:
            await asyncio.Event().wait()
        finally:
            self.waited.append(now() - began)

    def open(self, *_: Any) -> Any:
        raise AssertionError("nothing is reached")


def test_a_broker_whose_logins_are_always_slow_is_waited_for_ever_longer() -> None:
    async def live(loop: SimulatedLoop) -> list[float]:
        network = loop.network = Silent()
        Agent("first")
        await asyncio.sleep(60)
        return network.waited[:5]

    assert run(live, Random(1)) == pytest.approx([3.0, 6.0, 9.0, 10.0, 10.0])


def test_one_without_access_to_the_vhost_runs_all_links_only_after_a_while() -> None:
    """Others may be there, whose connections outlast what is taken from all for a moment."""

    async def live(models: Models) -> None:
        models.broker().has_access = False
        agent = Agent("first")
        await asyncio.sleep(NO_ACCESS_FOR - 10)
        assert agent.replica.verdict(shovel_link()) is not True
        assert agent.may_run_for < math.inf
        await asyncio.sleep(40)
        assert agent.replica.verdict(shovel_link()) is True
        assert agent.may_run_for == math.inf, "nobody else can ever run them"

    among_models(live)
