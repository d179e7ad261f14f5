"""Brokers that all workers share are left as they were; those that a test breaks are lent to it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.lab.lab import Lab
from tests.lab.leftovers import LeftBehindError
from tests.lab.node import Node, NodeError


def test_another_worker_is_given_the_same_broker(lab: Lab, broker: Node) -> None:
    other = Lab(lab.directory)
    try:
        assert other.shared("broker").erlang_name == broker.erlang_name
        assert other.mark == lab.mark
    finally:
        other.close()
    assert broker.alive


def test_what_a_test_leaves_behind_fails_it_and_is_removed(lab: Lab, broker: Node, name: Callable[[str], str]) -> None:
    vhost, user, policy = name("vhost"), name("user"), name("policy")
    broker.admin.vhost(vhost)
    broker.admin.policy(vhost, "goes with its vhost", "^x", definition={"max-length": 1})
    broker.admin.user(user, "secret")
    broker.admin.policy("/", policy, "^x", definition={"max-length": 1})
    with pytest.raises(LeftBehindError) as caught:
        lab.leftovers.check()
    for left in (f"vhosts/{vhost} on", f"policies///{policy} on"):
        assert left in str(caught.value)
    assert "goes with its vhost" not in str(caught.value)
    assert user not in [each["name"] for each in broker.admin.get("users")]
    lab.leftovers.check()
    assert vhost not in [each["name"] for each in broker.admin.get("vhosts")]


@pytest.mark.thorough
def test_an_alarm_that_a_test_leaves_behind_fails_it(lab: Lab) -> None:
    broker = lab.shared("alarmed")  # agents of other tests would be blocked by one of theirs
    alarm = "{resource_limit, memory, node()}"
    broker.eval(f"rabbit_alarm:set_alarm({{{alarm}, []}}).")
    with pytest.raises(LeftBehindError, match="resource_limit"):
        lab.leftovers.check()
    broker.eval(f"rabbit_alarm:clear_alarm({alarm}).")
    lab.leftovers.check()


def test_nobody_breaks_a_shared_broker(broker: Node) -> None:
    for broken in (broker.stop, broker.kill, broker.restart, lambda: broker.limit_memory("1")):
        with pytest.raises(NodeError, match="`borrowed`"):
            broken()
    assert broker.alive


def test_nobody_defines_links_for_all_agents(lab: Lab, broker: Node) -> None:
    with pytest.raises(LeftBehindError, match="`borrowed`"):
        broker.admin.global_parameter("federation-agent", {})
    with pytest.raises(LeftBehindError, match="global-parameters/federation-agent"):
        lab.leftovers.check()


@pytest.mark.thorough
def test_a_borrowed_broker_goes_to_the_next_if_it_is_as_before(lab: Lab) -> None:
    conf = [f"# of {os.getpid()}"]
    with lab.borrowed(conf=conf) as first:
        first.admin.vhost("other")
        first.limit_memory("1")
        first.restart()
        first.admin.delete_vhost("other")
    with lab.borrowed(conf=conf) as second, lab.borrowed(conf=conf) as third:
        assert second.name == first.name
        assert third.name != first.name, "it is lent to one at a time"
        second.admin.user("of a test", "harms nobody")
        second.admin.vhost("left behind")
    assert not second.alive
    with lab.borrowed(conf=conf) as again:
        assert again.name == third.name
        again.admin.user("of a test", "harms nobody")
    with lab.borrowed(conf=conf) as again:
        assert again.name == third.name
        assert [user["name"] for user in again.admin.get("users")] == ["guest"]
    again.kill()
