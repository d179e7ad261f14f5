"""One seed's world: two brokers, the agents of a group between them, a publisher, and what goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from random import Random

from agent.core.links.lifecycle import LinkState, Status
from agent.status.entry import BoardEntry
from tests.simulation.agents import Agent
from tests.simulation.broker.broker import Broker
from tests.simulation.broker.exchanges import Binding, Exchange
from tests.simulation.broker.queues import Queue
from tests.simulation.faults import LONGEST_HALF_OPEN, ORDERLY, Fault, faults_of
from tests.simulation.invariants import (
    Findings,
    check_account,
    check_bound,
    check_order,
    check_taken_once,
    is_bound,
    leftovers,
    watch_owners,
    watch_settling,
)
from tests.simulation.loop import Deadlock, SimulatedLoop, run
from tests.simulation.network import Network
from tests.simulation.scenario import DOWN, JOBS, SOURCE, TARGET, UP, Definitions, Kind, Scenario, scenario_of
from tests.simulation.users import Jobs

PROPERTIES = b"\x10\x00\x02"  # persistent
STARTED_WITHIN = 60.0
DELIVERED_WITHIN = 45.0
WELL_WITHIN = LONGEST_HALF_OPEN + 1
WELL_FOR = 2.0  # as long as it takes to report, or to read the downstream again
REPLACED_WITHIN = 8.0  # more than what another agent may leave is left for
REMOVED_WITHIN = 90.0
LEFT_WITHIN = 10.0  # until brokers have noticed that connections are gone
LOOK = 0.25
BURST = 5
IDLE_WITHIN = 60.0  # a listener that hears nothing any more, unknown to it, and the HTTP API's list, which is late
IDLE = 2.0
CONSUMES_WITHIN = 30.0
TAIL = 8  # messages after all is well again


class World:
    on_note: Callable[[float, tuple[object, ...]], None] = staticmethod(lambda now, what: None)

    def __init__(self, loop: SimulatedLoop, scenario: Scenario, chance: Random) -> None:
        self.loop = loop
        self.scenario = scenario
        self.chance = chance
        self.findings = Findings()
        network = self.network = loop.network = Network(loop, chance)
        network.slowest, network.high_water = scenario.slowest, scenario.high_water
        release, has_events = scenario.release, scenario.kind is Kind.QUEUE and scenario.has_events
        self.up = Broker(network, chance, "up", version=release, has_plugin=scenario.has_plugin)
        self.down = Broker(network, chance, "down", version=release, has_events=has_events)
        self.up.slowest_disk = self.down.slowest_disk = scenario.slowest_disk
        self.up.listen(UP)
        self.down.listen(DOWN)
        self.down.api.lists_late = scenario.lists_late
        self.jobs = Jobs(self.up, self.down, scenario, chance)
        self._furnish()
        self.definitions = Definitions(scenario.kind)
        self.agents = [
            Agent(f"a{number}", self.definitions.text(f"a{number}"), loop, network, self._turned)
            for number in range(scenario.replicas)
        ]
        for agent in self.agents:
            agent.on_change = self._changed
        self.link_id: str | None = None
        self.went_wrong: set[Fault] = set()
        self.is_resting = False
        self._bursts = 0
        self.published: list[bytes] = []
        self.confirmed: list[bytes] = []
        self.trace = sha256()
        loop.set_exception_handler(lambda _, found: self.findings.violated(f"{self.now:.3f} {found}"))
        watch_owners(self)
        watch_settling(self)
        network.on_connect = lambda process, host: self.note("connect", process.name, host)

    @property
    def now(self) -> float:
        return self.loop.time()

    def note(self, *what: object) -> None:
        """The same seed gives the same trace."""
        self.trace.update(f"{self.now:.9f} {what}\n".encode())
        self.on_note(self.now, what)

    def _furnish(self) -> None:
        for broker in (self.up, self.down):
            broker.routing.exchanges["fed"] = Exchange("fed", "topic", durable=True)
        self.up.make_queue(Queue(SOURCE, durable=True))
        self.down.make_queue(Queue(TARGET, durable=True))
        if self.scenario.kind is Kind.QUEUE:
            if not self.scenario.lacks_queue:
                self.up.make_queue(Queue(JOBS, durable=True))
            self.jobs.declare()
            self.jobs.local.come()
        self.down.routing.bindings[Binding("fed", TARGET, True, "#")] = None

    def _turned(self, entry: BoardEntry, before: LinkState | None) -> None:
        self.link_id = entry.link.id
        self.note("status", entry.state.status, entry.state.error)

    def _changed(self, before: LinkState, after: LinkState) -> None:
        if before.phase is not after.phase:
            self.findings.reach_transition(before.phase, after.phase)
        if before.status is not after.status:
            self.findings.reach_transition(before.status, after.status)
        if after.standby is not None:
            self.findings.reach_standby(after.standby)

    # Definitions

    async def define(self, definitions: Definitions, chance: Random) -> None:
        """The files of the agents change one after another."""
        self.definitions = definitions
        for agent in self.agents:
            agent.define(self.definitions.text(agent.name))  # they may have changed again
            await asyncio.sleep(chance.choice((0.0, 0.5)) * chance.random())

    def define_at_once(self, definitions: Definitions) -> None:
        self.definitions = definitions
        for agent in self.agents:
            agent.define(definitions.text(agent.name))

    @contextmanager
    def resting(self) -> Iterator[None]:
        """An operator has paused the link."""
        self.is_resting = self.scenario.faults == 1  # others might resume it
        yield
        self.is_resting = False

    # Messages

    @property
    def owner(self) -> Agent | None:
        """Who consumes for the link."""
        queue = self.up.queues.get(self.scenario.upstream_queue)
        processes = [] if queue is None else [each.channel.process for each in queue.consumers]
        return next((agent for agent in self.agents if agent.process in processes), None)

    @property
    def is_consumed(self) -> bool:
        queue = self.up.queues.get(self.scenario.upstream_queue)
        return queue is not None and bool(queue.consumers)

    @property
    def is_bound(self) -> bool:
        return self.scenario.kind is not Kind.EXCHANGE or bool(self.up.routing.route("fed", "k"))

    def is_ready(self) -> bool:
        return self.is_consumed and self.is_bound

    def delivered(self) -> list[bytes]:
        """In the downstream's queue, in this order."""
        if self.scenario.kind is Kind.QUEUE:
            return self.jobs.arrived
        return [message.body for message in self.down.queues[TARGET].ready]

    def accounted(self) -> set[bytes]:
        return self.jobs.accounted() if self.scenario.kind is Kind.QUEUE else set(self.delivered())

    async def publish(self, body: bytes) -> None:
        """What is never confirmed isn't counted: a publisher would publish it again."""
        up = self.up
        while not up.is_up or up.alarm:  # noqa: ASYNC110 - as publishers do
            await asyncio.sleep(LOOK)
        exchange, key = ("fed", "k") if self.scenario.kind is Kind.EXCHANGE else ("", self.scenario.upstream_queue)
        found = up.publish(exchange, key, PROPERTIES, body)
        if not found:
            self.findings.violated(f"{self.now:.3f} gap: {body!r} reaches no queue of the link")
            return
        if self.jobs.rival.is_there and not self.jobs.rival.has(body):
            self.findings.violated(f"{self.now:.3f} {body!r} goes past the consumer upstream")
        self.published.append(body)
        up.when_safe(found, lambda: self.confirmed.append(body))

    def _note_idle(self) -> None:
        """Why a queue link takes nothing."""
        if self.scenario.kind is Kind.QUEUE:
            notes = (entry.gauges().note for agent in self.agents for entry in agent.board or ())
            self.findings.reached.update(note for note in notes if note.startswith("idle: "))

    async def burst(self) -> None:
        self._note_idle()
        for _ in range(BURST):
            self._bursts += 1
            await self.publish(b"burst %d" % self._bursts)

    async def _publish_all(self) -> None:
        for number in range(self.scenario.messages):
            await self.publish(b"%d" % number)
            await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.1, 0.6)) * self.chance.random())

    async def _go_wrong(self) -> None:
        async with asyncio.TaskGroup() as going:
            for _ in range(self.scenario.faults):
                await asyncio.sleep(4 * self.chance.random())
                fault = self.chance.choice(faults_of(self.scenario.kind))
                self.note("fault", fault.__name__)
                self.went_wrong.add(fault)
                self.findings.reached.add(f"fault: {fault.__name__}")
                going.create_task(fault(self, Random(self.chance.random())))

    # The run

    async def wait_for(self, what: Callable[[], bool], seconds: float, complaint: str) -> bool:
        until = self.now + seconds
        while not what():
            if self.now > until:
                self.findings.violated(f"{self.now:.3f} stuck: {complaint}{self._shown()}")
                return False
            await asyncio.sleep(LOOK)
        return True

    def _shown(self) -> str:
        found = [
            f"; {agent.name}: {entry.state.status} {entry.state.error} {agent.board.problems}"
            for agent in self.agents
            if agent.board is not None
            for entry in agent.board
        ]
        return "".join(found)

    async def live(self) -> None:
        for agent in self.agents:
            agent.start()
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 6.0)) * self.chance.random())
        if not await self.wait_for(self.is_ready, STARTED_WITHIN, "the link doesn't start"):
            return
        async with asyncio.TaskGroup() as together:
            together.create_task(self._publish_all())
            together.create_task(self._go_wrong())
        if not await self._settle():
            return
        await self._end_in_order()
        await self._remove()

    async def _settle(self) -> bool:
        for agent in self.agents:
            if not agent.runs():
                agent.start()
        await asyncio.sleep(self.scenario.slowest_disk * 2)
        is_done = await self.wait_for(
            lambda: set(self.confirmed) <= self.accounted(), DELIVERED_WITHIN, "messages don't arrive"
        )
        check_account(self.findings, self.confirmed, self.accounted())
        if self.went_wrong <= ORDERLY:
            passed = [body for body in self.published if body not in self.jobs.taken_upstream]
            check_order(self.findings, passed, self.delivered(), "without faults that cost anything")
            check_taken_once(self.findings, self.jobs)
        return is_done

    async def _end_in_order(self) -> None:
        """When all is well again, each message arrives once and in order."""
        if self.scenario.kind is Kind.QUEUE:
            self.jobs.other_link.come()
        if self.scenario.faults:
            await self._be_well()
        if not await self.wait_for(lambda: self.is_consumed, CONSUMES_WITHIN, "the link doesn't come back"):
            return
        tail = [b"tail %d" % number for number in range(TAIL)]
        if self.scenario.kind is Kind.QUEUE:
            await self._leave_alone()
        for body in tail:
            await self.publish(body)
        if self.scenario.kind is Kind.QUEUE:
            await self._come_back(tail)
        await self.wait_for(lambda: set(tail) <= set(self.delivered()), 60.0, "the last messages don't arrive")
        check_order(self.findings, tail, self.delivered(), "after all faults")
        await self._replace()
        check_bound(self.findings, self.up, self.definitions)

    async def _be_well(self) -> None:
        """Until nothing is left of the faults, as far as can be seen, and for a while then."""
        until, well_since = self.now + WELL_WITHIN, self.now
        while self.now < min(until, well_since + WELL_FOR):
            await asyncio.sleep(LOOK)
            if not self._is_well():
                well_since = self.now

    def _is_well(self) -> bool:
        states = [entry.state for agent in self.agents for entry in agent.board or ()]
        return (
            self.is_ready()
            and self.network.is_sound
            and sum(state.status is Status.RUNNING for state in states) == 1
            and all(state.status in {Status.RUNNING, Status.STANDBY} for state in states)
        )

    async def _leave_alone(self) -> None:
        """Nobody downstream wants messages, but for another link, which isn't counted."""
        if self.scenario.faults or len(self.agents) > 1:  # a session that begins anew by now reads the list
            await asyncio.sleep(self.scenario.lists_late)
        self.jobs.local.leave()
        await self.wait_for(lambda: not self.is_consumed, IDLE_WITHIN, "the link takes messages that nobody waits for")

    async def _come_back(self, tail: list[bytes]) -> None:
        await asyncio.sleep(IDLE)
        taken = [body for body in tail if body in self.delivered()]
        if taken:
            self.findings.violated(f"{self.now:.3f} {taken} went where nobody waits for them")
        self.jobs.local.come()

    async def _replace(self) -> None:
        """Messages flow before a link that came back has replaced what it had bound."""
        until = self.now + REPLACED_WITHIN
        while self.now < until and not is_bound(self.up, self.definitions):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(LOOK)

    async def _remove(self) -> None:
        await self.define(replace(self.definitions, is_defined=False), self.chance)
        gone = self.scenario.upstream_queue
        if self.scenario.kind is Kind.EXCHANGE:
            await self.wait_for(lambda: gone not in self.up.queues, REMOVED_WITHIN, "what the link built isn't removed")
        await self.wait_for(
            lambda: not any(tuple(agent.board or ()) for agent in self.agents), REMOVED_WITHIN, "links don't end"
        )
        async with asyncio.TaskGroup() as stopping:
            for agent in self.agents:
                stopping.create_task(agent.stopped())
        until = self.now + LEFT_WITHIN
        while any(leftovers(self)) and self.now < until:  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(LOOK)
        for each in leftovers(self):
            self.findings.violated(each)


def simulate(seed: int) -> tuple[Findings, str]:
    """What one seed brings to light, and the digest of its trace."""
    random.seed(seed)  # what the agent decides by chance
    chance = Random(f"world {seed}")
    scenario = scenario_of(seed, chance)
    worlds: list[World] = []

    async def live(loop: SimulatedLoop) -> None:
        world = World(loop, scenario, chance)
        worlds.append(world)
        await world.live()

    try:
        run(live, chance)
    except Deadlock as error:
        worlds[0].findings.violated(str(error))
    return worlds[0].findings, worlds[0].trace.hexdigest()[:16]
