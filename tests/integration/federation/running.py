"""The agent as its users run it, and what its log tells of links."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.preloaded import COMMAND, Started
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

HURRIED: Final = "tests.integration.federation.hurried"
BY_EVENTS: Final = "tests.integration.federation.by_events"
CHANGED: Final = "link changed"

Sections = Mapping[str, Any]
Named = tuple[str, str, str]
"""A link as tests name it: its vhost, its exchange, its upstream."""


@dataclass(eq=False)
class Agent:
    """One agent process after another, with one configuration file."""

    lab: Lab
    directory: Path
    downstream: Node
    port: int
    management: bool = True
    uri: str = ""
    management_uri: str = ""
    cleanup_after: float | Mapping[str, float] | None = 0
    """Most tests expect that what a link built is removed at once; None is the agent's own default."""
    _process: Started | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        return self.directory / "agent.yaml"

    @property
    def log(self) -> Path:
        return self.directory / "agent.log"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def write(self, vhosts: Mapping[str, Sections] | None = None, **sections: Any) -> Agent:
        """The configuration: what each vhost has, and whole sections besides.

        Of agents beside a broker that tests share, those of one worker are a group, as they run one test at a time.
        """
        downstream = {"uri": self.uri or self.downstream.uri()}
        if self.management:
            downstream["management"] = self.management_uri or self.downstream.management_uri()
        document = {
            "agent": self.settings(),
            "downstream": downstream,
            "definitions": {"management": False},
            "vhosts": {vhost: dict(found) for vhost, found in (vhosts or {}).items()},
        }
        written = document | sections
        written["agent"] = {"group": self.lab.group} | dict(written["agent"])
        return self.write_text(yaml.safe_dump(written))

    def settings(self, **more: Any) -> dict[str, Any]:
        """The configuration's section of the agent itself."""
        cleanup = {} if self.cleanup_after is None else {"cleanup-after": self.cleanup_after}
        return {"http": {"listen": f"127.0.0.1:{self.port}"}} | cleanup | more

    def write_text(self, text: str) -> Agent:
        written = self.path.with_suffix(".new")
        written.write_text(text)
        written.replace(self.path)
        return self

    def start(self, module: str = COMMAND) -> Agent:
        self._process = self.lab.agents.start(["run", "-c", self.path], output=self.log, module=module)
        return self

    def signal(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)

    def reload(self) -> Agent:
        """Has it read its files at once; it looks at them only every other second."""
        self.signal(signal.SIGHUP)
        return self

    def terminate(self) -> int:
        """As an operator stops it; its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        assert self._process
        return self._process.wait(DEADLINE)

    def lines(self) -> list[dict[str, Any]]:
        """Everything that was logged, over all processes."""
        text = self.log.read_text() if self.log.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line may be on its way
        return [json.loads(line) for line in whole.splitlines()]

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.lines() if entry["event"] == event]

    def history(self, vhost: str, name: str, upstream: str = "origin") -> list[str]:
        """Every status that the link has had."""
        return [str(entry["status"]) for entry in self.logged(CHANGED) if _named(entry) == (vhost, name, upstream)]

    def links(self) -> dict[Named, dict[str, Any]]:
        """The last word on each link, of those that are not gone."""
        last = {_named(entry): entry for entry in self.logged(CHANGED)}
        return {link: entry for link, entry in last.items() if entry["status"] != "stopping"}

    def wait_for(self, status: str, *links: Named, deadline: float = DEADLINE) -> None:
        def reached() -> bool:
            assert self.alive, self.log.read_text()
            found = self.links()
            return all(link in found and found[link]["status"] == status for link in links)

        try:
            eventually(reached, deadline, what=f"{links} {status}")
        except NeverHappenedError as error:
            error.add_note(f"the log:\n{self.log.read_text()[-3000:]}")
            raise

    def wait_running(self, count: int, deadline: float = DEADLINE) -> None:
        """Until so many links run, and no other is on its way."""

        def statuses() -> list[str]:
            assert self.alive, self.log.read_text()
            return [str(entry["status"]) for entry in self.links().values()]

        eventually(lambda: statuses() == ["running"] * count, deadline, what=f"{count} links run")

    def wait_logged(self, event: str, count: int = 1, deadline: float = DEADLINE) -> list[dict[str, Any]]:
        def enough() -> bool:
            return len(self.logged(event)) >= count

        eventually(enough, deadline, what=f"{event!r} in the log {count} times")
        return self.logged(event)


def _named(entry: Mapping[str, Any]) -> Named:
    return str(entry["vhost"]), str(entry["name"]), str(entry["upstream"])
