"""Every type of exchange that the distribution ships, with its own way of binding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aio_pika.abc import FieldValue

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.sites import Site, federated
from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.user_program import numbered

TYPE_PLUGINS: Final = (
    *DEFAULT_PLUGINS,
    "rabbitmq_jms_topic_exchange",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
)


SELECTOR: Final = "{'=', {'ident', <<\"kind\">>}, <<\"report\">>}."


@dataclass(frozen=True)
class Case:
    """How exchanges of a type are bound, a message that this takes, and one that it doesn't."""

    type: str
    key: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    taken: tuple[str, dict[str, FieldValue]] = ("k", {})
    left: tuple[str, dict[str, FieldValue]] | None = None

    @property
    def name(self) -> str:
        return f"fed.{self.type}.{self.arguments.get('x-match', '')}"


CASES: Final = (
    Case("direct", "k", left=("other", {})),
    Case("topic", "a.*.#", taken=("a.b.c", {}), left=("b.a", {})),
    Case("fanout"),
    Case(
        "headers",
        arguments={"x-match": "all", "kind": "report", "format": "pdf"},
        taken=("", {"kind": "report", "format": "pdf"}),
        left=("", {"kind": "report"}),
    ),
    Case(
        "headers",
        arguments={"x-match": "any", "kind": "report", "format": "pdf"},
        taken=("", {"kind": "report"}),
        left=("", {"kind": "letter"}),
    ),
    Case(
        "x-jms-topic",
        "a.b",
        {"rjms_erlang_selector": SELECTOR},
        taken=("a.b", {"kind": "report"}),
        left=("a.b", {"kind": "letter"}),
    ),
    Case("x-consistent-hash", "1"),
    Case("x-random"),
    Case("x-recent-history"),
)


@pytest.fixture
def typed_broker(lab: Lab) -> Node:
    return lab.shared("types", plugins=TYPE_PLUGINS)


def check(agent_of: AgentOf, here: Site, there: Site) -> None:
    """Everything that is taken comes once and in order, and nothing else; missing exchanges are made of the type."""
    for case in CASES:
        here.exchange(case.name, case.type).queue(
            case.key, name=case.name, exchange=case.name, arguments=case.arguments
        )
    agent = agent_of(here.node).write({here.vhost: federated(there)}).start()
    agent.wait_running(len(CASES))
    standing = {each["name"]: each["type"] for each in there.node.admin.get("exchanges", there.vhost)}
    assert {case.name: standing[case.name] for case in CASES} == {case.name: case.type for case in CASES}
    for case in CASES:
        if case.left is not None:
            key, headers = case.left
            there.publish(["left"], key, exchange=case.name, headers=headers)
        key, headers = case.taken
        there.publish(numbered(50), key, exchange=case.name, headers=headers)
    for case in CASES:
        assert here.take(50, queue=case.name) == numbered(50), case
    agent.terminate()


def test_every_type(agent_of: AgentOf, site_on: SiteOn, typed_broker: Node) -> None:
    check(agent_of, site_on(typed_broker), site_on(typed_broker))
