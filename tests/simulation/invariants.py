"""What must hold in every run, and what a run has seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.broker.broker import Broker
from tests.simulation.loop import Process
from tests.simulation.network import Stream
from tests.simulation.scenario import JOBS, LINK_QUEUE, SOURCE, TARGET, Definitions, Kind

if TYPE_CHECKING:
    from tests.simulation.users import Jobs
    from tests.simulation.world import World

PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
FORWARDS = {
    Kind.EXCHANGE: PUBLISH + b"\x03fed",
    Kind.SHOVEL: PUBLISH + b"\x00\x06target",
    Kind.QUEUE: PUBLISH + b"\x00\x04jobs",
}
_NAME = re.compile(r"agent a\d")


@dataclass
class Findings:
    """`reached` is what this run did of all that a run may do."""

    violations: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)

    def violated(self, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(what)

    def reach_transition(self, before: str, after: str) -> None:
        self.reached.add(f"{before} -> {after}")

    def reach_standby(self, reason: str) -> None:
        self.reached.add("standby: " + _NAME.sub("agent", reason).partition(":")[0])


def watch_owners(world: World) -> None:
    """At most one agent forwards: nobody writes a message of the link while another one consumes its queue."""
    mark, queue_name = FORWARDS[world.scenario.kind], world.scenario.upstream_queue

    def written(stream: Stream, data: bytes) -> None:
        if stream.server is not world.down or mark not in data:
            return
        if world.is_resting:
            world.findings.violated(f"{world.now:.3f} a paused link forwards")
        queue = world.up.queues.get(queue_name)
        for consumer in () if queue is None else queue.consumers:
            other = consumer.channel.process
            if other is None or other is stream.process or other.is_dead:
                continue
            if not _is_known_limit(world, stream.process, other):
                writer = "nobody" if stream.process is None else stream.process.name
                world.findings.violated(
                    f"{world.now:.3f} two owners: {writer} forwards while {other.name} consumes from {queue_name!r}"
                )

    world.network.on_write = written


def _is_known_limit(world: World, writer: Process | None, other: Process) -> bool:
    """Consumers of exchanges' links are exclusive. So one that stood still alone goes on only with what it had read
    before upstream ended its connection, and that comes twice, as after each cut."""
    may_stand_alone = {writer, other}
    if world.scenario.kind is Kind.EXCHANGE:
        may_stand_alone = {None} if _is_connected(world, writer) else {writer}
    return any(agent.goes_on_alone for agent in world.agents if agent.process in may_stand_alone)


def _is_connected(world: World, process: Process | None) -> bool:
    """True if upstream has a connection of this process."""
    of_process = (stream for stream in world.network.streams if stream.process is process)
    return any(stream.server is world.up and not stream.server_is_gone for stream in of_process)


def watch_settling(world: World) -> None:
    for broker in (world.up, world.down):
        broker.on_unknown_tag = lambda session, tag: world.findings.violated(
            f"{world.now:.3f} settled twice: {session.name!r} settles delivery {tag}, which isn't open"
        )


def check_account(findings: Findings, confirmed: Iterable[bytes], accounted: set[bytes]) -> None:
    """Nothing that was confirmed is lost."""
    missing = [body for body in confirmed if body not in accounted]
    if missing:
        findings.violated(f"lost: {len(missing)} of the confirmed messages: {missing[:5]}")


def check_order(findings: Findings, published: list[bytes], delivered: list[bytes], where: str) -> None:
    """Where nothing disturbs: each message once, and in order."""
    wanted = set(published)
    found = [body for body in delivered if body in wanted]
    if found == published:
        return
    twice = [body for body, count in Counter(found).items() if count > 1]
    findings.violated(f"{where}: duplicated {twice[:5]}, or out of order: {found[:10]}...")


def check_taken_once(findings: Findings, jobs: Jobs) -> None:
    """Where nothing disturbs: what somebody took upstream isn't forwarded too."""
    both = jobs.taken_upstream.intersection(jobs.arrived)
    if both:
        findings.violated(f"taken upstream and forwarded: {sorted(both)[:5]}")


def check_bound(findings: Findings, up: Broker, definitions: Definitions) -> None:
    """An internal exchange, bound as it is defined. Another one that isn't bound may be left by an agent that was
    building when another took the link over; the next session deletes it."""
    if not is_bound(up, definitions):
        findings.violated(f"bound upstream: {_keys(up)} by {_internal(up)}, and not {definitions.keys}")


def is_bound(up: Broker, definitions: Definitions) -> bool:
    if definitions.kind is not Kind.EXCHANGE:
        return True
    return sorted(_keys(up)) == sorted(definitions.keys) and bool(_internal(up))


def _keys(up: Broker) -> list[str]:
    return [each.key for each in up.routing.bound_from("fed") if not each.to_queue]


def _internal(up: Broker) -> list[str]:
    return [name for name in up.routing.exchanges if name.startswith(LINK_QUEUE)]


def leftovers(world: World) -> Iterator[str]:
    """After the link was removed and the agents have stopped."""
    ours = [name for name in world.up.routing.exchanges if not name.startswith("amq.") and name != "fed"]
    queues = [name for name in world.up.queues if name not in {SOURCE, JOBS}]
    bindings = list(world.up.routing.bindings)
    if ours or queues or bindings:
        yield f"left over upstream: exchanges {ours}, queues {queues}, bindings {bindings}"
    mine = [name for name in world.down.queues if name not in {TARGET, JOBS} and " of simulated, slot " not in name]
    if mine:
        yield f"left over downstream: queues {mine}"
    for agent in world.agents:
        if agent.process.tasks:
            yield f"left over in {agent.name}: tasks {[task.get_name() for task in agent.process.tasks]}"
        if agent.board is not None and any(agent.board.errors.counts.values()):
            yield f"unexpected errors in {agent.name}: {agent.board.errors.counts}"
    streams = [each.process.name for each in world.network.streams if each.process is not None]
    if streams:
        yield f"left over: connections of {streams}"
