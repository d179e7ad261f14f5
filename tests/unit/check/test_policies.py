"""The policy that holds for a queue, and the values that follow."""

from __future__ import annotations

from agent.check.policies import PolicyTarget, effective_policy


def test_the_lowest_limit_of_all_sources_holds() -> None:
    listed = PolicyTarget("q", "quorum", {"x-delivery-limit": 50})
    policies = [
        {"name": "low", "pattern": ".*", "priority": 0, "definition": {"delivery-limit": 5}},
        {"name": "high", "pattern": "^q", "priority": 1, "definition": {"delivery-limit": 100}},
        {"name": "classic", "pattern": "^q", "apply-to": "classic_queues", "priority": 2, "definition": {"a": 1}},
    ]
    operators = [{"name": "operator", "pattern": "q$", "definition": {"delivery-limit": -1, "max-length": 9}}]
    found = effective_policy(listed, policies, operators)
    assert (found.number("delivery-limit"), found.sources["delivery-limit"]) == (50, "its arguments")
    assert (found.number("max-length"), found.sources["max-length"]) == (9, "operator policy 'operator'")


def test_a_limit_wins_over_none() -> None:
    policies = [{"name": "p", "pattern": ".*", "definition": {"delivery-limit": 7}}]
    assert (
        effective_policy(PolicyTarget("q", "quorum", {"x-delivery-limit": -1}), policies, ()).number("delivery-limit")
        == 7
    )


def test_a_policy_with_a_key_that_queues_of_a_type_do_not_know_holds_for_none_of_them() -> None:
    policies = [
        {"name": "mirrored", "pattern": ".*", "priority": 1, "definition": {"ha-mode": "all", "max-length": 1}},
        {"name": "limited", "pattern": ".*", "priority": 0, "definition": {"delivery-limit": 9, "max-length": 2}},
    ]
    for type_, length in (("classic", 1), ("quorum", 2)):
        assert effective_policy(PolicyTarget("q", type_), policies, ()).number("max-length") == length
    assert effective_policy(PolicyTarget("q"), policies[1:], ()).values == {}


def test_of_policies_with_one_priority_the_broker_says_which_holds() -> None:
    policies = [{"name": name, "pattern": ".*", "definition": {"max-length": 1}} for name in "abc"]
    found = effective_policy(PolicyTarget("q", policy="b"), policies, ())
    assert found.sources == {"max-length": "policy 'b'"}
