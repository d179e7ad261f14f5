"""Nodes start, answer, stop, come back, and share nothing."""

from collections.abc import Callable

import pytest

from tests.lab import user_program
from tests.lab.admin import AdminError
from tests.lab.lab import Lab
from tests.lab.node import NATIVE_PLUGINS, Node, NodeError, answers_amqp, overridden


def test_the_shared_broker_serves_both_protocols(broker: Node) -> None:
    assert broker.alive
    assert answers_amqp(broker.amqp_port)
    assert broker.admin.get("overview")["cluster_name"] == broker.cluster_name
    assert broker.admin.get("exchanges", "/", "amq.rabbitmq.event")["type"] == "topic"


def test_two_brokers_are_strangers(broker: Node, second_broker: Node) -> None:
    assert broker.amqp_port != second_broker.amqp_port
    assert broker.admin.get("overview")["cluster_name"] != second_broker.admin.get("overview")["cluster_name"]
    assert second_broker.erlang_name not in broker.ctl("cluster_status")


def test_a_vhost_of_its_own(broker: Node, vhost: str, name: Callable[[str], str]) -> None:
    queue = name("queue")
    broker.admin.exchange(vhost, "orders")
    broker.admin.queue(vhost, queue)
    broker.admin.bind(vhost, "orders", queue, "new.#")
    assert user_program.publish(broker.uri(vhost), "orders", "new.one", ["hello"]) == 1
    assert user_program.take(broker.uri(vhost), queue, 1) == ["hello"]


def test_refusals_of_the_api_are_told(broker: Node, vhost: str) -> None:
    with pytest.raises(AdminError, match="inequivalent arg 'type'"):
        broker.admin.exchange(vhost, "amq.direct", "fanout")


def test_the_default_vhost_stays(broker: Node) -> None:
    with pytest.raises(ValueError, match=r"amq\.rabbitmq\.event"):
        broker.admin.delete_vhost("/")


@pytest.mark.thorough
def test_durable_things_survive_restart_and_kill_and_a_plugin_disabled_by_command_stays_so(lab: Lab) -> None:
    node = lab.node("restarted", conf=["default_vhost = /"], plugins=NATIVE_PLUGINS).start()
    node.admin.queue("/", "kept")
    node.admin.parameter("federation-upstream", "/", "left-over", {"uri": "amqp://127.0.0.1"})
    node.run("rabbitmq-plugins", "disable", "rabbitmq_federation_management", "rabbitmq_federation")
    assert node.admin.get("parameters", "federation-upstream", "/")[0]["name"] == "left-over"
    node.restart()
    assert node.admin.get("queues", "/", "kept")["durable"]
    node.kill()
    assert not node.alive
    assert not answers_amqp(node.amqp_port)
    node.start()
    assert node.admin.get("queues", "/", "kept")["durable"]
    enabled = node.run("rabbitmq-plugins", "list", "--enabled", "--minimal", "--silent").split()
    assert "rabbitmq_shovel" in enabled
    assert "rabbitmq_federation" not in enabled
    node.stop()
    assert not node.alive


def test_a_broken_configuration_is_told_with_the_log(lab: Lab) -> None:
    with pytest.raises(NodeError, match="no_such_key"):
        lab.node("broken", conf=["no_such_key = 1"]).start()


def test_commands_that_fail_are_told(broker: Node) -> None:
    with pytest.raises(NodeError, match="no_such_command"):
        broker.ctl("no_such_command")


def test_code_is_evaluated_in_the_node(broker: Node) -> None:
    assert broker.eval("node().") in (broker.erlang_name, f"'{broker.erlang_name}'")  # quoted for its hyphen
    with pytest.raises(NodeError, match="badmatch"):
        broker.eval("1 = 2.")


def test_a_line_of_configuration_takes_the_place_of_the_labs_own() -> None:
    assert overridden(["a = 1", "b = 2"], ["b=3", "c = 4"]) == ["a = 1", "b=3", "c = 4"]
