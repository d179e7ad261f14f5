from __future__ import annotations

from dataclasses import replace

from agent.core.rules.unserved import unserved
from tests.unit.core.some_links import queue_link, shovel_link
from tests.unit.status.test_board import LINK

QUEUE = replace(queue_link(), name="orders")
SHOVEL = replace(shovel_link(), name="drain")


def test_what_nobody_runs_is_named_by_vhost_and_kind() -> None:
    links = (LINK, QUEUE, replace(QUEUE, upstream="other"), SHOVEL)
    [queues] = unserved(links, ())
    assert queues.startswith("links of kind queue are defined in vhost '/'")
    assert queues.endswith(": 'orders'")


def test_of_many_a_few_are_named() -> None:
    [note] = unserved([replace(QUEUE, name=f"q{number}") for number in range(8)], ())
    assert note.endswith(": 'q0', 'q1', 'q2', 'q3', 'q4' and 3 more")


def test_what_the_plugin_runs_is_nobody_s_concern() -> None:
    assert unserved([LINK, QUEUE], {("/", "orders", "origin")}) == ()
