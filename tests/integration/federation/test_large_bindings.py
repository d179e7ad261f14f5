"""A binding that can't be made upstream concerns nobody else: too large for its frames, or refused by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, X, federated
from tests.integration.status.asking import get
from tests.lab.node import Node
from tests.lab.waiting import eventually

LARGE = {"x": "y" * 200_000}


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


def test_a_binding_that_the_upstream_refuses_is_left_out_and_named(agent_of: AgentOf, here: Site, there: Site) -> None:
    """An exchange of headers understands arguments that one of topics takes as they are."""
    refused = [f"bad {number} of {here.vhost}" for number in range(60)]
    fits = [f"good.{number}" for number in range(60)]
    here.exchange().queue(name="q")
    for good, bad in zip(fits, refused, strict=True):
        here.bind(good, name="q").bind(bad, name="q", arguments={"x-match": bad})
    there.exchange(X, "headers")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", (here.vhost, X, "origin"))

    def note() -> str:
        [found] = get(agent, "/api/links")
        return str(found["error"] or "")

    there.wait_bound(*fits)
    eventually(lambda: "can't be made upstream, nor can 59 more: PRECONDITION_FAILED" in note(), what="it is named")
    here.bind("late", name="q")
    there.wait_bound(*fits, "late")
    assert there.node.log.read_text().count(f'<<"{refused[7]}">>') == 1, "it isn't asked for again"
    for key in refused:
        here.unbind(key, name="q")
    eventually(lambda: note() == "", what="nothing is left to note")
    assert agent.history(here.vhost, X, "origin") == ["running"]


def test_keys_that_topic_permissions_refuse_are_left_out_and_named(
    agent_of: AgentOf, here: Site, there: Site, name: Callable[[str], str]
) -> None:
    admin, user = there.node.admin, name("limited")
    admin.user(user, "p")
    agent = agent_of(here.node)

    def allow(read: str) -> None:
        grant = {"exchange": X, "write": "", "read": read}
        admin.put("topic-permissions", there.vhost, user, body=grant)

    def note() -> str:
        [found] = get(agent, "/api/links")
        return str(found["error"] or "")

    try:
        admin.permissions(there.vhost, user)
        allow("^none")
        there.exchange()
        here.exchange().queue("ok.1", "no.1", "ok.2", "no.2")
        uri = there.node.uri(there.vhost, user, "p")
        agent.write({here.vhost: federated(there, uri=uri)}).start()
        link = here.vhost, X, "origin"
        agent.wait_for("invalid", link)  # one that carries nothing must not look well
        assert f"topic permissions allow no routing key of '{X}'. Run `rabbitmqctl set_topic_permissions" in note()
        [failed] = [each["failure"] for each in get(agent, "/api/links")]
        facts = {"kind": "permission missing", "user": user, "object": X, "object_type": "topic", "permission": "read"}
        assert facts.items() <= failed.items(), failed
        agent.kill()
        allow("^ok")
        agent.start()
        agent.wait_for("running", link)
        there.wait_bound("ok.1", "ok.2")
        eventually(lambda: "can't be made upstream, nor can 1 more: ACCESS_REFUSED" in note(), what="it is named")
        assert f"read access to topic 'no.{1 if 'no.1' in note() else 2}' in exchange '{X}'" in note()
        assert f"rabbitmqctl set_topic_permissions -p {there.vhost} {user} {X} " in note()
        here.bind("no.3").bind("ok.3")  # while it runs
        there.wait_bound("ok.1", "ok.2", "ok.3")
        eventually(lambda: "nor can 2 more" in note(), what="all are counted")
        for key in ("ok.1", "ok.3"):
            there.publish([key], key)
        assert sorted(here.take(2)) == ["ok.1", "ok.3"]
        assert agent.history(*link)[-2:] == ["invalid", "running"]
        # What is bound already, and no longer allowed, can't be unbound either.
        allow("^ok.[12]")
        here.unbind("ok.3")
        here.bind("ok.22")
        there.wait_bound("ok.1", "ok.2", "ok.22", "ok.3")
        assert agent.history(*link)[-1] == "running"
        allow(".*")
        [found] = get(agent, "/api/links")
        get(agent, f"/api/links/{found['id']}/restart", "POST")
        there.wait_bound("no.1", "no.2", "no.3", "ok.1", "ok.2", "ok.22")
        eventually(lambda: note() == "", what="nothing is left to note")
    finally:
        if agent.alive:
            agent.kill()
        admin.delete("users", user)


@pytest.mark.versions
def test_a_key_with_more_wildcards_than_the_newest_release_takes_is_left_out(
    agent_of: AgentOf, here: Site, broker_on: Callable[..., Node], site_on: SiteOn
) -> None:
    there = site_on(broker_on("sid"))
    here.exchange().queue("good", "a.#.b.#.c.#")
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_for("running", (here.vhost, X, "origin"))
    there.wait_bound("good")
    [found] = get(agent, "/api/links")
    assert "the binding with key 'a.#.b.#.c.#' can't be made upstream: PRECONDITION_FAILED" in found["error"]
