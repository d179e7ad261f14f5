"""The document and the server say the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from agent.amqp.data.splice import Counts
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.fleet import Peers
from agent.status.http.api import HttpApi
from agent.status.http.connections import ClientConnections
from agent.status.http.openapi import document
from tests.unit.core.some_links import queue_link, shovel_link
from tests.unit.status.serving import Serve, Served
from tests.unit.status.test_board import BROKEN, LINK, RUNNING, Clock
from tests.unit.status.test_moves import moving
from tests.unit.status.test_standby_view import board as standby_board

DOCUMENT = document("1")
SHOVEL = replace(shovel_link(), id="5407e100", name="drain")
QUEUE = replace(queue_link(), id="90e0e000")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, found in DOCUMENT["paths"].items():
        for method, operation in found.items():
            yield path, method, operation


def schema_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What the answer's JSON has to be, with everything it refers to."""
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
    schema = answer["content"]["application/json"]["schema"]
    return {**schema, "components": DOCUMENT["components"]}


def test_every_route_is_described_and_every_description_is_served() -> None:
    board = Board(Clock(), "a")
    routes = HttpApi(board, Served(1), ClientConnections(Clock(), 16), Peers(board, tuple)).routes()
    served = {(route.path.removesuffix("/"), route.method.lower()) for route in routes}
    assert served == {(path, method) for path, method, _ in operations()}


def test_names_of_operations_are_unique_and_every_reference_leads_somewhere() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    found = set(references(DOCUMENT))
    assert len(found) > 10
    for reference in found:
        _, components, kind, name = reference.split("/")
        assert name in DOCUMENT[components][kind]
    for schema in DOCUMENT["components"]["schemas"].values():
        validator_for({}, default=Draft202012Validator).check_schema(schema)


@pytest.mark.parametrize(("path", "method"), [(path, method) for path, method, _ in operations()])
async def test_answers_are_as_described(serve: Serve, path: str, method: str) -> None:
    served = await serve()
    for link, state in ((SHOVEL, BROKEN), (QUEUE, RUNNING)):
        served.board.put(link, state, Counts(forwarded=1), lambda: Gauges(backlog=3, upstream_cluster="far"))
        served.board.moved(link.id)
    served.board.put(moving("0b0e0000"), RUNNING, Counts(), Gauges)
    served.board.standby = standby_board().standby
    answers = DOCUMENT["paths"][path][method]["responses"]
    if path in {"/metrics", "/api/events"}:
        return  # not JSON; tests of their own read them
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    for link_id in (LINK.id, "ffffffff", cause["id"]):
        asked = path.format(id=link_id, vhost="%2F", node="n", name="drain" if link_id == LINK.id else "none")
        status, found = await served.ask(asked, method.upper())
        assert str(status) in answers
        if status != 204:
            Draft202012Validator(schema_of(answers[str(status)])).validate(found)


def test_a_link_has_every_field_that_was_promised() -> None:
    promised = (
        "id kind vhost upstream upstream_cluster destination_cluster uri policy status error failure since owner "
        "forwarded bytes redelivered dropped quarantined returned in_flight backlog oldest_unconfirmed_seconds "
        "prefetch bindings reconnects lag_seconds last_probe last_confirm reason rate backlog_is_exact backlog_last "
        "backlog_last_at paused lag_critical behind_seconds critical_since incident limited rate_limit "
        "converted_with_loss"
    )
    assert set(promised.split()) == set(DOCUMENT["components"]["schemas"]["Link"]["required"])
