"""One agent with a good link and a hostile neighbour, and what the good one and the agent have to go on doing."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.process import memory_mib
from tests.hostile.peer import HostileBroker
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated, policies
from tests.integration.status.asking import get
from tests.lab.waiting import DEADLINE, eventually

ANSWERED_WITHIN: Final = 1.0  # seconds, for any HTTP request
MEMORY: Final = 150.0  # MiB more than before, at most
GOOD: Final = "good.q"


@dataclass
class Scene:
    """A downstream vhost with the good link, and another whose upstream is hostile."""

    agent: Agent
    here: Site  # the good link's downstream
    there: Site  # and its upstream
    victim: Site  # the vhost of the downstream whose upstream is hostile
    _published: int = 0
    _memory: float = field(default=0.0, init=False)

    def start(self, hostile_uri: str, *, neighbour: dict[str, Any] | None = None, **sections: Any) -> None:
        """An exchange link with the hostile broker as its upstream."""
        self.victim.exchange().queue("#")
        bad = {
            "upstreams": {"hostile": {"uri": hostile_uri, "reconnect-delay": 1} | (neighbour or {})},
            "policies": policies(),
        }
        self.start_beside(bad, **sections)

    def start_beside(self, bad: dict[str, Any], **sections: Any) -> None:
        """The good link runs first, then what the victim's vhost has is configured beside it."""
        self.begin(**sections).meet(bad, **sections)
        eventually(self.hostile_status, what="the hostile link is there", ignoring=OSError)

    def begin(self, **sections: Any) -> Scene:
        """The good link runs."""
        self.there.exchange()
        self.here.exchange().queue("#", name=GOOD)
        self.agent.write({self.here.vhost: federated(self.there)}, **sections).start()
        self.agent.wait_for("running", self.good_link)
        self._memory = memory_mib(self.agent.pid)
        return self

    def meet(self, bad: dict[str, Any], **sections: Any) -> None:
        """What the victim's vhost has from now on."""
        self.agent.write({self.here.vhost: federated(self.there), self.victim.vhost: bad}, **sections)
        self.agent.signal(signal.SIGHUP)

    def meet_upstreams(self, brokers: Mapping[str, HostileBroker]) -> None:
        """Nobody but these, until each misbehaves."""
        upstreams = {name: {"uri": broker.uri, "reconnect-delay": 1} for name, broker in brokers.items()}
        self.meet({"upstreams": upstreams, "policies": policies()})
        for broker in brokers.values():
            broker.wait()

    @property
    def good_link(self) -> tuple[str, str, str]:
        return self.here.vhost, X, "origin"

    @property
    def hostile_link(self) -> tuple[str, str, str]:
        return self.victim.vhost, X, "hostile"

    def hostile_status(self) -> dict[str, Any]:
        """The hostile link as the API shows it; empty before it is there."""
        return next((each for each in get(self.agent, "/api/links") if each["vhost"] == self.victim.vhost), {})

    def status_of(self, name: str) -> dict[str, Any]:
        """A link of the victim's vhost, by its name."""
        of_victim = (each for each in get(self.agent, "/api/links") if each["vhost"] == self.victim.vhost)
        return next(each for each in of_victim if each["name"] == name)

    def endure(self, seconds: float) -> float:
        """All that while good messages flow and HTTP answers in time; the most memory that was taken, in MiB."""
        before = len(self.agent.history(*self.good_link))
        end, most, quickest = time.monotonic() + seconds, 0.0, ANSWERED_WITHIN
        # One answer that is late says only that the machine is busy: then it is asked again until one is not.
        while time.monotonic() < end or (quickest >= ANSWERED_WITHIN and time.monotonic() < end + DEADLINE / 2):
            quickest = min(quickest, self.answered_after())
            self.flow()
            most = max(most, memory_mib(self.agent.pid) - self._memory)
        assert quickest < ANSWERED_WITHIN, f"HTTP took {quickest:.2f} s at best"
        assert most < MEMORY, f"{most:.0f} MiB more"
        assert self.agent.history(*self.good_link)[before:] == [], "the good link was disturbed"
        return most

    def flow(self, count: int = 20) -> None:
        """So many messages come through the good link, each once and in order."""
        bodies = [f"{number:06}" for number in range(self._published, self._published + count)]
        self._published += count
        self.there.publish(bodies)
        assert self.here.take(count, queue=GOOD) == bodies

    def answered_after(self) -> float:
        begun = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.agent.port}/livez", timeout=DEADLINE) as answer:
            answer.read()
        return time.monotonic() - begun

    def stop(self) -> None:
        assert self.agent.terminate() == 0, "within 25 seconds, or its exit status says that it gave up"


@contextmanager
def stopped_at_the_end(scene: Scene) -> Iterator[Scene]:
    """SIGTERM ends the agent in time while the neighbour still misbehaves."""
    yield scene
    scene.stop()
