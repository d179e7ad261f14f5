"""One link of an agent between two brokers that faults may break, both behind proxies, with traffic through it."""

from __future__ import annotations

import os
import threading
import time
import urllib.error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.traffic import KEY, Traffic, until
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Q, Site, X, federated
from tests.integration.shovels.shoveling import ask
from tests.lab.certificates import Authority, Certificate
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.preloaded import COMMAND
from tests.lab.proxy import Proxy
from tests.lab.waiting import DEADLINE

ALL: Final = os.environ.get("FEDERATION_AGENT_FAULTS") == "all"
PREFETCH: Final = 500 if ALL else 100
LOOK_EVERY: Final = 0.2
UPSTREAM_NAME: Final = "upstream.test"


@dataclass(frozen=True, slots=True)
class Tls:
    """That of an upstream, with a certificate that faults may replace."""

    authority: Authority
    shown: Certificate
    port: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The brokers, which most faults break; the upstream may have several nodes."""

    up: tuple[Node, ...]
    down: Node
    upstream_tls: Tls | None = None

    @property
    def tls(self) -> Tls:
        assert self.upstream_tls is not None
        return self.upstream_tls


@dataclass(frozen=True, slots=True)
class Setting:
    """What is unusual about the agent: the program that becomes it, its upstream's URI, its own settings."""

    module: str = COMMAND
    uri: Callable[[Scene], str | list[str]] = lambda scene: scene.up.node.uri(scene.up.vhost, port=scene.to_up.port)
    agent: Mapping[str, Any] = field(default_factory=dict)
    upstream: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Scene:
    lab: Lab
    ends: Ends
    up: Site
    down: Site
    to_up: Proxy
    to_down: Proxy
    to_management: Proxy
    agent: Agent
    traffic: Traffic
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Every status of the link and its error, as the API showed it since the last fault."""
    _ends: threading.Event = field(default_factory=threading.Event)
    _watching: threading.Thread | None = None
    _module: str = COMMAND

    def begin(self, setting: Setting) -> Scene:
        self.down.exchange().queue(KEY)
        self.up.exchange()
        definition = federated(self.up, **{"prefetch-count": PREFETCH, "reconnect-delay": 1, **setting.upstream})
        definition["upstreams"]["origin"]["uri"] = setting.uri(self)
        self.file("export").mkdir(exist_ok=True)
        self.file("step").write_text("0")
        self.know_upstream(UPSTREAM_NAME)
        self.agent.write({self.down.vhost: definition}, agent=self.agent.settings(**setting.agent))
        self._module = setting.module
        self.start_agent()
        self.agent.wait_for("running", (self.down.vhost, X, "origin"))
        self.up.wait_bound(KEY)
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def start_agent(self) -> None:
        self.agent.start(self._module)

    def file(self, name: str) -> Path:
        """Beside the agent's configuration."""
        return self.agent.directory / name

    def know_upstream(self, *names: str) -> None:
        """These names lead to this machine, for an agent on a machine of its own; no other does."""
        self.file("hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *names)))

    def link(self) -> dict[str, Any]:
        """As the agent shows it now; empty where it doesn't answer."""
        try:
            found = [each for each in ask(self.agent, "/api/links") if each.get("exchange") == X]
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return {}
        return found[0] if found else {}

    def drain(self) -> None:
        """Holds the publisher until all that it has published was delivered."""
        self.traffic.hold()
        assert until(lambda: self.traffic.holds, DEADLINE), "what was published isn't confirmed"
        assert until(lambda: self.traffic.is_delivered, DEADLINE), f"{len(self.traffic.account.missing)} missing"

    @property
    def queue(self) -> str:
        """The link's queue upstream."""
        [name] = [
            each["name"]
            for each in self.up.node.admin.get("queues", self.up.vhost)
            if each["name"].startswith("federation: ")
        ]
        return str(name)

    @property
    def internal_exchange(self) -> str:
        [name] = [each for each in self.up.links_objects() if each.endswith((" A", " B"))]
        return name

    @property
    def is_running(self) -> bool:
        return self.link().get("status") == "running"

    @property
    def is_down(self) -> bool:
        """That it isn't known is something else."""
        return self.link().get("status") in {"backoff", "starting"}

    def forget_seen(self) -> None:
        """All but what the link is now."""
        del self.seen[:-1]

    def wait_shown(self, status: str, words: str = "") -> None:
        """Until the link has shown this, at some time."""
        shown = lambda: any(found == status and words in error for found, error in self.seen)  # noqa: E731
        assert until(shown, DEADLINE), self.seen

    def end(self) -> None:
        self.traffic.stop()
        self._ends.set()
        if self._watching is not None:
            self._watching.join(DEADLINE)
        if self.agent.alive:
            self.agent.kill()

    def _watch(self) -> None:
        while not self._ends.is_set():
            link = self.link()
            found = (str(link.get("status", "")), str(link.get("error") or ""))
            if found[0] and (not self.seen or self.seen[-1] != found):
                self.seen.append(found)
            time.sleep(LOOK_EVERY)


Q_OF_USER: Final = Q
EXCHANGE: Final = X
