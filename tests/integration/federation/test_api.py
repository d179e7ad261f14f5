"""What a running agent tells and takes over HTTP."""

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.waiting import eventually


def ask(agent: Agent, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{agent.port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    return json.loads(text) if answer.headers.get_content_type() == "application/json" else text


@pytest.fixture
def agent(agent_of: AgentOf, broker: Node, here: Site, there: Site) -> Agent:
    here.node.admin.exchange(here.vhost, "x")
    here.node.admin.queue(here.vhost, "q")
    here.node.admin.bind(here.vhost, "x", "q", "a.#")
    written = agent_of(broker).write(
        {
            here.vhost: {
                "upstreams": {"origin": {"uri": there.node.uri(there.vhost), "max-hops": 2}},
                "policies": {"p": {"pattern": "^x$", "definition": {"federation-upstream": "origin"}}},
            }
        }
    )
    return written.start()


def wait_noticing(agent: Agent) -> None:
    """Until all links notice when their upstream exchange is deleted: a little after what shows it exists."""

    def notices() -> bool:
        found = [ask(agent, f"/api/links/{each['id']}/bindings")["known"] for each in ask(agent, "/api/links")]
        return bool(found) and all(known and known["notices_deletions"] for known in found)

    eventually(notices, what="deletions are noticed")


def link(agent: Agent, status: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        links = ask(agent, "/api/links")
        return next((each for each in links if each["status"] == status), None)

    answer = eventually(found, what=f"a link is {status}", ignoring=OSError)
    assert answer
    return answer


def test_a_link_from_standing_to_forwarding(agent: Agent, here: Site, there: Site) -> None:
    running = link(agent, "running")
    assert (running["vhost"], running["exchange"], running["upstream"]) == (here.vhost, "x", "origin")
    assert (running["upstream_cluster"], running["bindings"], running["error"]) == (there.node.cluster_name, 1, None)
    assert ask(agent, "/readyz") == {"status": "ok"}
    assert there.publish(["hello"], "a.b", exchange="x") == 1
    eventually(lambda: link(agent, "running")["forwarded"] == 1, what="the message is counted")
    text = ask(agent, "/metrics")
    assert "federation_agent_forwarded_messages_total" in text
    assert [each["status"] for each in ask(agent, "/api/federation-links")] == ["running"]


def test_pause_resume_and_restart(agent: Agent, here: Site, there: Site) -> None:
    link_id = link(agent, "running")["id"]
    ask(agent, f"/api/links/{link_id}/pause", "POST")
    link(agent, "paused")
    assert there.publish(["kept meanwhile"], "a.b", exchange="x") == 1
    ask(agent, f"/api/links/{link_id}/resume", "POST")
    link(agent, "running")
    assert here.take(1) == ["kept meanwhile"]
    ask(agent, f"/api/links/{link_id}/restart", "POST")
    link(agent, "running")


def test_what_is_wanted_and_cannot_be_is_shown(
    agent_of: AgentOf, broker: Node, here: Site, there: Site, name: Callable[[str], str]
) -> None:
    here.exchange("y", "direct")
    nowhere = name("nowhere")
    upstream = {"uri": there.uri, "forward-unrouted": True}
    long = "fed." + "long" * 60  # with both vhosts it is part of the name of what stands upstream
    here.exchange(long)
    found = {"y": "origin", long: "plain"}
    policies = {
        name: {"pattern": f"^{exchange}$", "definition": {"federation-upstream": name}}
        for exchange, name in found.items()
    }
    declared = {"z": {"type": "topic", "upstream-set": "all"}}
    impossible = agent_of(broker).write(
        {
            here.vhost: {"upstreams": {"origin": upstream, "plain": {"uri": there.uri}}, "policies": policies},
            nowhere: {"upstreams": {"origin": {"uri": there.uri}}, "exchanges": declared},
        }
    )
    impossible.start()
    eventually(
        lambda: [each["status"] for each in ask(impossible, "/api/links")] == ["invalid"] * 3,
        what="all are invalid",
        ignoring=OSError,
    )
    errors = {each["exchange"]: each["error"] for each in ask(impossible, "/api/links")}
    assert "forward-unrouted can't be had for exchange 'y' of type direct" in errors["y"]
    assert "use shorter names" in errors[long]
    assert f"vhost {nowhere!r} does not exist" in errors["z"]
    told = ask(impossible, "/api/overview")
    assert (told["cluster"], told["links"]["invalid"], told["ready"]) == (broker.cluster_name, 3, True)
    assert any(nowhere in note for note in told["notes"])
    impossible.write({}).reload()
    eventually(lambda: ask(impossible, "/api/links") == [], what="links that never were go like others")
    assert impossible.logged("unexpected error") == []


def test_http_is_up_while_the_downstream_is_away(agent_of: AgentOf, broker: Node, lab: Lab) -> None:
    nowhere = lab.ports.take()
    waiting = agent_of(broker, uri=f"amqp://127.0.0.1:{nowhere}", management_uri=f"http://127.0.0.1:{nowhere}")
    http = {"listen": f"127.0.0.1:{waiting.port}", "public-url": "https://ops.example/fed"}
    waiting.write(agent=waiting.settings(http=http)).start()
    eventually(lambda: ask(waiting, "/livez"), what="the agent answers", ignoring=OSError)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(waiting, "/readyz")
    assert 'federation_agent_public_url_info{url="https://ops.example/fed"} 1' in ask(waiting, "/metrics")
    assert waiting.terminate() == 0


def test_a_port_that_is_taken_ends_the_second_agent(agent: Agent, agent_of: AgentOf, broker: Node) -> None:
    link(agent, "running")
    second = agent_of(broker)
    second.port = agent.port
    second.write().start()
    assert second.wait() == 3
    assert f"agent.http.listen http://127.0.0.1:{agent.port}" in second.log.read_text()
