"""A running agent, asked over HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agent.core.replicas.slots import lease_exchange, slot_of
from tests.integration.federation.running import Agent
from tests.lab import user_program
from tests.lab.waiting import DEADLINE, NeverHappenedError, eventually

MOST_SHOWN = 4_000


def url(agent: Agent) -> str:
    return f"http://127.0.0.1:{agent.port}"


def get(agent: Agent, path: str, method: str = "GET", token: str | None = None) -> Any:
    """The JSON, or the text of what is none."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url(agent) + path, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        text = answer.read().decode()
    return json.loads(text) if answer.headers.get_content_type() == "application/json" else text


def link_when(agent: Agent, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first link of which that holds."""

    def found() -> dict[str, Any] | None:
        return next((each for each in get(agent, "/api/links") if holds(each)), None)

    try:
        answer = eventually(found, what=f"a link {what}", ignoring=OSError)
    except NeverHappenedError as error:
        error.add_note(f"the links at last: {json.dumps(get(agent, '/api/links'))[:MOST_SHOWN]}")
        raise
    assert answer
    return answer


def metric(agent: Agent, name: str, /, **labels: str) -> float | None:
    """The value of the one series with that name and these labels among its own."""
    from prometheus_client.parser import text_string_to_metric_families

    found = [
        sample.value
        for family in text_string_to_metric_families(get(agent, "/metrics"))
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, (name, labels, found)
    return found[0] if found else None


@contextmanager
def events(agent: Agent) -> Iterator[Iterator[tuple[str, Any]]]:
    """What `/api/events` tells, name and data; a heartbeat is skipped."""
    with urllib.request.urlopen(f"{url(agent)}/api/events", timeout=DEADLINE) as answer:

        def told() -> Iterator[tuple[str, Any]]:
            name = ""
            for line in answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    yield name, json.loads(value)

        yield told()


@contextmanager
def remembered(agent: Agent, link_id: str, what: str, *, is_so: bool = True) -> Iterator[None]:
    """Ends once the broker has it in the link's lease: that the link is `what`, as `paused`, or that it no longer is.
    An agent that is killed then has told all that it knew."""
    admin, queue = agent.downstream.admin, f"copies of the lease of {link_id}"
    admin.queue("/", queue, durable=False)
    try:
        admin.bind("/", lease_exchange(agent.lab.group), queue, str(slot_of(link_id)))
        yield

        def is_written() -> bool:
            tokens = map(json.loads, user_program.take(agent.downstream.uri(), queue, 1, deadline=0.5))
            return any((link_id in token[what]) is is_so for token in tokens)

        eventually(is_written, what=f"the lease says whether it is {what}")
    finally:
        admin.delete("queues", "/", queue)
