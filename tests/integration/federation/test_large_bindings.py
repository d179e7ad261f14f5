"""A binding larger than the upstream's frames concerns its own link alone."""

from __future__ import annotations

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import get
from tests.lab.waiting import eventually

LARGE = {"x": "y" * 200_000}

pytestmark = pytest.mark.timeout(120)


def test_a_binding_that_fits_into_no_frame_is_left_out_and_named(agent_of: AgentOf, here: Site, there: Site) -> None:
    here.exchange("fed.x", "headers").queue(name="x").bind("small", name="x", exchange="fed.x", arguments={"a": "b"})
    here.exchange("fed.y").queue("k", name="y", exchange="fed.y")
    here.bind("large", name="x", exchange="fed.x", arguments=LARGE)
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    x, y = ((here.vhost, name, "origin") for name in ("fed.x", "fed.y"))
    agent.wait_for("running", x, y)

    def note(name: str) -> str:
        return next(str(each["error"] or "") for each in get(agent, "/api/links") if each["exchange"] == name)

    assert "the binding with key 'large' can't be made upstream" in note("fed.x")
    assert "exchange.bind takes 200" in note("fed.x") and "frames of at most 131072" in note("fed.x")
    there.wait_bound("small", exchange="fed.x")
    # While it runs, too: one more of them, one that fits, and then none that is too large.
    here.bind("larger", name="x", exchange="fed.x", arguments={**LARGE, "z": 1})
    here.bind("late", name="x", exchange="fed.x", arguments={"c": "d"})
    there.wait_bound("small", "late", exchange="fed.x")
    eventually(lambda: "nor can 1 more" in note("fed.x"), what="both are counted")
    for key in ("large", "larger"):
        here.unbind(key, name="x", exchange="fed.x")
    eventually(lambda: note("fed.x") == "", what="nothing is left to note")
    there.publish(["m"], exchange="fed.y")
    assert here.take(1, queue="y") == ["m"]
    assert [agent.history(*link) for link in (x, y)] == [["running"], ["running"]]
    assert agent.terminate() == 0
