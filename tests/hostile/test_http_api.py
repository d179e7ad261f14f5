"""Whatever the downstream's HTTP API answers, links flow, HTTP answers, memory is bounded, and the problem is shown."""

from __future__ import annotations

import json
import signal
import time
from typing import Final

import pytest

from tests.hostile.api import DRIP, MISBEHAVIOURS, HostileApi, Misbehaviour, hostile_api
from tests.hostile.peer import HostileBroker, Peer
from tests.hostile.scene import Scene, stopped_at_the_end
from tests.integration.status.asking import get, metric
from tests.lab.node import Node
from tests.lab.waiting import eventually

MANAGED: Final = {"definitions": {"management": True}}
FIRST: Final = (
    "endless list", "endless blanks", "nested", "10**400", "large argument", "many parameters", "gzip", "no name",
    "no JSON", "no cluster name", "bindings without a key", "vhost without a name", "parameter without a vhost",
    "policy without a pattern", "native link without a vhost", "global parameter of another type",
)  # fmt: skip
"""Each way to be too much, and each answer that is none of RabbitMQ's; others differ in where or how much."""
OTHERS: Final = tuple(name for name in MISBEHAVIOURS if name not in FIRST)


async def lets_in(peer: Peer) -> None:
    """A decent broker, so that the hostile neighbour's link runs."""
    await peer.log_in()
    await peer.serve()


@pytest.mark.parametrize("rows", [FIRST, pytest.param(OTHERS, marks=pytest.mark.thorough)], ids=["first", "others"])
def test_a_hostile_http_api_hurts_no_link(scene: Scene, broker: Node, rows: tuple[str, ...]) -> None:
    """One agent endures one row after the other, as starting one for each takes far longer."""
    with hostile_api(broker.management_url) as api, HostileBroker(lets_in) as upstream, stopped_at_the_end(scene):
        _start(scene, api, upstream)
        failures = []
        for name in rows:
            try:
                _endure(scene, api, MISBEHAVIOURS[name])
            except AssertionError as error:
                failures.append(f"{name}: {error}")
        assert not failures, "\n".join(failures)
        assert {"stopping", "removing"}.isdisjoint(scene.agent.history(*scene.hostile_link)), "its queue was removed"
        assert not scene.agent.logged("unexpected error")
        api.misbehaviour = DRIP
        asked = len(api.asked)
        scene.agent.signal(signal.SIGHUP)
        _wait_asked(api, DRIP, asked)
        scene.endure(0.3)  # and it is stopped while the answer drips


def _start(scene: Scene, api: HostileApi, upstream: HostileBroker) -> None:
    api.vhost = scene.victim.vhost
    scene.agent.management_uri = api.uri
    scene.start(upstream.uri, **MANAGED)
    scene.agent.wait_for("running", scene.hostile_link)


def _endure(scene: Scene, api: HostileApi, misbehaviour: Misbehaviour) -> None:
    refusals = metric(scene.agent, "federation_agent_config_refusals_total")
    api.misbehaviour = misbehaviour
    asked = len(api.asked)
    scene.agent.signal(signal.SIGHUP)
    try:
        scene.endure(0.2)
        if misbehaviour.shows:
            shows = misbehaviour.shows
            eventually(lambda: _is_shown(scene, shows), what=f"{shows!r} is shown")
            assert metric(scene.agent, "federation_agent_config_reload_success") == 0
            assert metric(scene.agent, "federation_agent_config_refusals_total") != refusals
        else:
            _wait_asked(api, misbehaviour, asked)
        scene.endure(0.1)
    finally:
        api.misbehaviour = None
        scene.agent.signal(signal.SIGHUP)
    eventually(lambda: not get(scene.agent, "/api/overview")["problems"], what="nothing of it is left")


def _wait_asked(api: HostileApi, misbehaviour: Misbehaviour, before: int) -> None:
    eventually(lambda: f"/api/{misbehaviour.path}" in api.asked[before:], what=f"{misbehaviour.path} is asked for")


def _is_shown(scene: Scene, text: str) -> bool:
    return any(text in problem for problem in get(scene.agent, "/api/overview")["problems"])


def test_changes_elsewhere_take_effect_meanwhile(scene: Scene, broker: Node) -> None:
    """Something of one vhost can't be read: an exchange that appears in another is federated all the same."""
    with hostile_api(broker.management_url) as api, HostileBroker(lets_in) as upstream, stopped_at_the_end(scene):
        _start(scene, api, upstream)
        for number, row in enumerate(("no name", "bindings without a key", "bindings that break off")):
            misbehaviour = api.misbehaviour = MISBEHAVIOURS[row]
            scene.agent.signal(signal.SIGHUP)
            eventually(lambda shows=misbehaviour.shows: _is_shown(scene, shows), what=f"the problem of {row}")  # type: ignore[misc]
            scene.there.exchange(new := f"fed.{number}")
            scene.here.exchange(new).queue("#", name=f"q{number}", exchange=new)
            scene.agent.wait_for("running", (scene.here.vhost, new, "origin"))


def test_a_tenant_who_takes_a_name_of_the_configuration_holds_up_nobody_else(scene: Scene, broker: Node) -> None:
    """One name from two sources is a problem of that vhost; the parameters of others go on being followed."""
    with hostile_api(broker.management_url) as api, HostileBroker(lets_in) as upstream, stopped_at_the_end(scene):
        _start(scene, api, upstream)
        parameter = {"component": "federation-upstream", "value": {"uri": scene.there.uri}}
        taken = {"vhost": scene.victim.vhost, "name": "hostile"}
        other = {"vhost": scene.here.vhost, "name": "two", "value": {"uri": broker.uri(scene.victim.vhost)}}
        answer = json.dumps([parameter | taken, parameter | other])
        api.misbehaviour = Misbehaviour("parameters", lambda: iter([answer.encode()]))
        scene.agent.signal(signal.SIGHUP)
        eventually(lambda: _is_shown(scene, "is also defined at"), what="the conflict is shown")
        scene.agent.wait_for("running", (scene.here.vhost, "fed.x", "two"))


def test_a_restart_with_bindings_that_can_not_be_read_loses_nothing(scene: Scene, broker: Node) -> None:
    """What stands upstream goes on collecting: a link that knew of no bindings would take them away."""
    with hostile_api(broker.management_url) as api, stopped_at_the_end(scene):
        api.vhost = scene.victim.vhost
        scene.agent.management_uri = api.uri
        scene.start(scene.there.uri, **MANAGED)
        scene.agent.wait_for("running", scene.hostile_link)
        scene.agent.terminate()
        api.misbehaviour = MISBEHAVIOURS["bindings without a key"]
        scene.agent.start()
        scene.agent.wait_for("running", scene.good_link)
        eventually(lambda: _is_shown(scene, "has no 'destination'"), what="the problem is shown")
        scene.flow()
        time.sleep(0.5)
        link = scene.hostile_status()
        scene.there.publish(["kept"])
        api.misbehaviour = None
        scene.agent.signal(signal.SIGHUP)
        assert scene.victim.take(21) == [*(f"{number:06}" for number in range(20)), "kept"]
        scene.agent.wait_for("running", scene.hostile_link)
        assert (link["status"], scene.hostile_status()["status"]) == ("starting", "running")
        assert "bindings of its exchange can be read" in link["error"]
        assert scene.hostile_status()["error"] is None


def test_a_pattern_that_takes_too_long_holds_nobody_up(scene: Scene, broker: Node) -> None:
    """Names of one vhost that a pattern can't be held against: links that stand stay, others come, HTTP answers."""
    with HostileBroker(lets_in) as upstream, stopped_at_the_end(scene):
        scene.start(upstream.uri)
        scene.agent.wait_for("running", scene.hostile_link)
        good = {scene.here.vhost: _federated(scene.there.uri, r"^fed\.")}
        names = [f"{'a' * 200}{number}!" for number in range(100)]
        hostile = {
            "upstreams": {name: {"uri": upstream.uri, "reconnect-delay": 1} for name in ["hostile", *names]},
            "policies": {
                "federate": {"pattern": "(e|ee|fe|d|.)+#$|^fed", "definition": {"federation-upstream": "hostile"}},
                "upstreams": {
                    "pattern": "^fed[.]x$",
                    "priority": 1,
                    "definition": {"federation-upstream-pattern": "(a|aa)+$|hostile"},
                },
            },
        }
        before = len(scene.agent.history(*scene.hostile_link))
        scene.agent.write(good | {scene.victim.vhost: hostile})
        eventually(lambda: _is_shown(scene, "federation-upstream-pattern can't be used: it takes too long"), what="it")
        scene.endure(0.5)
        assert scene.agent.history(*scene.hostile_link)[before:] == []
        scene.there.exchange("fed.new")
        scene.here.exchange("fed.new").queue("#", name="new.q", exchange="fed.new")
        scene.agent.wait_for("running", (scene.here.vhost, "fed.new", "origin"))


def _federated(uri: str, pattern: str) -> dict[str, object]:
    policy = {"pattern": pattern, "apply-to": "exchanges", "definition": {"federation-upstream-set": "all"}}
    return {"upstreams": {"origin": {"uri": uri}}, "policies": {"federate": policy}}
