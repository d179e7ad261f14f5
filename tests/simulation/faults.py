"""What goes wrong. Each fault begins, lasts, and ends; then it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from agent.core.links.lifecycle import Pause
from tests.simulation.scenario import DOWN, UP, Definitions, Kind

if TYPE_CHECKING:
    from tests.simulation.agents import Agent
    from tests.simulation.world import World

FLOWS_WITHIN = 20.0  # the list of consumers is late, too
FLOWS_BY_EVENTS = 6.0
PAUSED_WITHIN: Final = 3.0  # the request may go to another agent, and what is in flight is settled

SLOWEST: Final = 1.0
LONGEST_HALF_OPEN: Final = 15.0
"""Seconds in which a broker may still have a connection that is gone, and send what a shovel would take to it."""

Fault = Callable[["World", Random], Coroutine[Any, Any, None]]


def _agent(world: World, chance: Random) -> Agent:
    """Mostly the one that runs the link."""
    owner = world.owner
    return owner if owner is not None and chance.random() < 0.6 else chance.choice(world.agents)


def _host(chance: Random) -> str:
    return chance.choice((UP, DOWN))


async def _meet_messages(world: World, chance: Random) -> None:
    """Faults matter while something is on its way."""
    await world.burst()
    scenario = world.scenario
    await asyncio.sleep(chance.random() * (4 * scenario.slowest + scenario.slowest_disk))


async def cut(world: World, chance: Random) -> None:
    """One or all connections of an agent to a broker."""
    await _meet_messages(world, chance)
    streams = world.network.of(_agent(world, chance).process, _host(chance))
    for stream in streams if chance.random() < 0.5 else streams[:1]:
        stream.cut()


async def cut_half(world: World, chance: Random) -> None:
    """Only one side learns that the connection has ended; the other finds out by itself."""
    for stream in world.network.of(_agent(world, chance).process, _host(chance)):
        stream.silence(up=True, down=True)
        if chance.random() < 0.5:
            stream.lose_server()
        else:
            stream.lose_client(ConnectionResetError("cut"))
            world.network.after(chance.uniform(1, LONGEST_HALF_OPEN), stream.lose_server)


async def partition(world: World, chance: Random) -> None:
    agent, host = _agent(world, chance), _host(chance)
    up, down = chance.choice(((True, False), (False, True), (True, True)))
    process = agent.process
    world.network.partition(process, host, up=up, down=down)
    await _meet_messages(world, chance)
    await asyncio.sleep(chance.choice((0.5, 3.0, 12.0)) * chance.random())
    world.network.partition(process, host, up=False, down=False)


async def slow(world: World, chance: Random) -> None:
    world.network.slowest = chance.choice((0.3, SLOWEST))
    if world.network.slowest == SLOWEST:  # others may take an agent for dead
        world.went_wrong.add(partition)
    await asyncio.sleep(chance.uniform(0.5, 4))
    world.network.slowest = world.scenario.slowest  # not what it was, if another one had begun before


async def restart_broker(world: World, chance: Random) -> None:
    broker = chance.choice((world.up, world.down))
    if not broker.is_up:
        return
    await _meet_messages(world, chance)
    broker.stop()
    await asyncio.sleep(chance.choice((0.1, 2.0, 8.0)) * chance.random())
    broker.start()


async def kill(world: World, chance: Random) -> None:
    agent = _agent(world, chance)
    await _meet_messages(world, chance)
    if not agent.runs():
        return
    agent.kill()
    await asyncio.sleep(chance.choice((0.1, 5.0)) * chance.random())
    if not agent.runs():
        agent.start()


async def stop(world: World, chance: Random) -> None:
    agent = _agent(world, chance)
    await _meet_messages(world, chance)
    if not agent.runs():
        return
    await agent.stopped()
    await asyncio.sleep(3 * chance.random())
    if not agent.runs():
        agent.start()


async def freeze(world: World, chance: Random) -> None:
    agent = _agent(world, chance)
    process = agent.process
    if process.is_dead or process.is_frozen:
        return
    agent.freeze()
    await world.burst()
    await asyncio.sleep(chance.choice((0.5, 4.0, 12.0)) * chance.random())
    if agent.process is process:
        agent.thaw()


async def alarm(world: World, chance: Random) -> None:
    broker = chance.choice((world.up, world.down))
    broker.set_alarm("low on memory")
    await asyncio.sleep(chance.uniform(0.2, chance.choice((6, 15))))
    broker.set_alarm("")


async def redefine(world: World, chance: Random) -> None:
    now = replace(world.definitions, is_defined=True)
    await world.define(chance.choice(_changes(now, chance)), chance)


def _changes(now: Definitions, chance: Random) -> tuple[Definitions, ...]:
    prefetch = replace(now, prefetch=chance.choice((1, 10, 1000)))
    if now.kind is Kind.QUEUE:
        return prefetch, replace(now, tag="two" if now.tag == "one" else "one")
    return (
        prefetch,
        replace(now, hops=3 - now.hops),
        replace(now, keys=chance.choice((("#",), ("k",), ("k", "#"), ("*",)))),
    )


async def operate(world: World, chance: Random) -> None:
    """An operator asks any of the agents."""
    link = world.link_id
    if link is None:
        return
    if chance.random() < 0.5:
        _agent(world, chance).act(lambda supervisor: supervisor.act(link, "restart"))
        return
    _agent(world, chance).act(lambda supervisor: supervisor.pause(link, Pause(by="somebody")))
    await asyncio.sleep(PAUSED_WITHIN)
    with world.resting():
        await asyncio.sleep(chance.uniform(0.1, 4))
    for attempt in range(10):  # whoever it was asked of may be gone
        known = [entry for agent in world.agents for entry in agent.board or () if entry.link.id == link]
        if attempt >= 3 and known and not any(entry.state.paused for entry in known):
            return
        for agent in world.agents:  # while its queue is gone, no agent knows the link, and a pause is remembered
            agent.act(lambda supervisor: supervisor.act(link, "resume"))
        await asyncio.sleep(2)


async def forget(world: World, chance: Random) -> None:
    """The link isn't defined for a moment, shorter than what it takes to remove it."""
    world.define_at_once(replace(world.definitions, is_defined=False))
    await asyncio.sleep(0.4)
    world.define_at_once(replace(world.definitions, is_defined=True))


async def leave(world: World, chance: Random) -> None:
    """Nobody consumes downstream for a while, except perhaps for another link."""
    local = world.jobs.local
    await _meet_messages(world, chance)
    local.leave()
    await asyncio.sleep(chance.choice((0.1, 1.0, 6.0)) * chance.random())
    await world.burst()
    local.come()


async def compete(world: World, chance: Random) -> None:
    """Somebody consumes upstream for a while."""
    rival = world.jobs.rival
    rival.come()
    await world.burst()
    await asyncio.sleep(chance.choice((0.1, 1.0, 4.0)) * chance.random())
    await world.burst()
    rival.leave(finishes=True)


async def link_on(world: World, chance: Random) -> None:
    """A link of another cluster consumes downstream for a while, for consumers of its own."""
    other = world.jobs.other_link
    other.come()
    await _meet_messages(world, chance)
    await asyncio.sleep(chance.choice((0.1, 4.0)) * chance.random())
    other.leave(is_cut=True)


async def link_on_again(world: World, chance: Random) -> None:
    """One that is there all along is cut off, and comes back."""
    other = world.jobs.other_link
    other.come()
    for _ in range(2):
        await asyncio.sleep(chance.choice((0.1, 4.0, 20.0)) * chance.random())
        other.leave(is_cut=True)
        await asyncio.sleep(chance.choice((0.01, 1.0)) * chance.random())
        other.come()
        await world.burst()
    sent = set(world.confirmed)
    await world.wait_for(
        lambda: sent <= world.accounted() or not world.went_wrong <= {link_on, link_on_again},
        FLOWS_BY_EVENTS if world.scenario.has_events else FLOWS_WITHIN,
        "who consumes downstream isn't seen",
    )
    other.leave()


async def delete(world: World, chance: Random) -> None:
    """Somebody deletes the downstream's queue while messages are on their way to it, and declares it again."""
    await _meet_messages(world, chance)
    world.jobs.delete()
    await asyncio.sleep(chance.choice((0.1, 1.0, 6.0)) * chance.random())
    world.jobs.declare()


FAULTS: Final[tuple[Fault, ...]] = (
    cut, cut, cut_half, partition, partition, slow, restart_broker, restart_broker, kill, kill, stop, freeze, freeze,
    alarm, redefine, redefine, operate, forget,
)  # fmt: skip

OF_QUEUES: Final[tuple[Fault, ...]] = (
    leave, leave, leave, compete, compete, link_on, link_on_again, delete, delete,
)  # fmt: skip

ORDERLY: Final[frozenset[Fault]] = frozenset(
    {stop, redefine, operate, forget, slow, leave, compete, link_on, link_on_again}
)
"""Nothing is delivered twice or out of order for these."""


def faults_of(kind: Kind) -> tuple[Fault, ...]:
    return FAULTS + OF_QUEUES if kind is Kind.QUEUE else FAULTS
