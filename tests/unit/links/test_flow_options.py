from __future__ import annotations

from agent.links.flow_options import PathMemory


def test_the_largest_body_is_known_for_a_while_and_for_one_address() -> None:
    path = PathMemory()
    assert path.largest_at("amqp://a", 0.0) is None
    path.learn_largest(1000, "amqp://a", until=600.0)
    assert path.largest_at("amqp://a", 599.0) == 1000
    assert path.largest_at("amqp://a", 600.0) is None
    assert path.largest_at("amqp://b", 1.0) is None, "another broker may take more"
