"""Lines of the export by hand: what isn't told is as quiet as can be."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.core.export_event import FIELDS

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
BOUNDS = [0.01, 0.1, 1.0]
_AGENTS_OWN = {"started", "heartbeat", "stopped"}
_OF_LINKS = ("link", "kind", "vhost", "name", "upstream_cluster", "forwarded", "bytes", "backlog")


def instant(seconds: float) -> datetime:
    return START + timedelta(microseconds=round(seconds * 1_000_000))


def moment(seconds: float) -> str:
    return instant(seconds).isoformat(timespec="microseconds").replace("+00:00", "Z")


def later(told: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same line, so much later."""
    since = datetime.fromisoformat(told["ts"]) - START
    return told | {"ts": moment(since.total_seconds() + seconds)}


def line(
    seconds: float, status: str, *, seq: int = 0, agent: str = "a", link: str = "l", **told: Any
) -> dict[str, Any]:
    """`seconds` after `START`; an agent's own statuses make it an agent's line."""
    own = status in _AGENTS_OWN
    values: dict[str, Any] = dict.fromkeys(FIELDS) | {
        "schema": 1,
        "type": "agent" if own else "transition",
        "ts": moment(seconds),
        "seq": seq or round(seconds * 1000) + 1,
        "agent": agent,
        "group": "g",
        "cluster": "here",
        "status": status,
    }
    if own:
        values["interval"] = 10
    else:
        values |= {"link": link, "kind": "exchange", "vhost": "/", "name": f"x.{link}", "upstream": "origin"}
        values |= {"upstream_cluster": "there", "forwarded": 0, "bytes": 0, "backlog": 0}
    return values | told


def of_standby(seconds: float, verdict: str, **values: Any) -> dict[str, Any]:
    return line(seconds, verdict, **values) | dict.fromkeys(_OF_LINKS) | {"type": "standby"}


def heartbeats(start: float, end: float, *, agent: str = "a", every: float = 10) -> Iterator[dict[str, Any]]:
    """From start to end, both included."""
    for number in range(int((end - start) / every) + 1):
        yield line(start + number * every, "heartbeat", agent=agent, interval=every)


def write(directory: Path, *lines: dict[str, Any] | str) -> Path:
    folder = directory / f"date={START.date()}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"a-1-{len(list(folder.iterdir())) + 1}.jsonl"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return file
