"""The command that raises a delivery limit: it displaces no policy, overwrites none, and is one for the shell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from shlex import split
from typing import Any

from agent.check.findings import Finding, FindingLevel
from agent.check.policies import PolicyTarget, effective_policy
from agent.check.queues import ListedVhost, judge_delivery_limit, judge_stream
from agent.core.fields import text
from agent.core.model import QueueSource
from tests.unit.core.some_links import queue_link, shovel_link

LIMIT = {"delivery-limit": 1_000_000}


def policy(name: str, pattern: str, definition: Mapping[str, Any], **more: object) -> dict[str, Any]:
    return {"name": name, "pattern": pattern, "apply-to": "queues", "priority": 0, "definition": definition} | more


def judged(
    queue: PolicyTarget,
    *policies: dict[str, Any],
    operators: Sequence[dict[str, Any]] = (),
    others: Sequence[PolicyTarget] = (),
    vhost: str = "v",
    limits_deliveries: bool = True,
    is_own: bool = False,
) -> list[Finding]:
    listed = ListedVhost(vhost, [queue, *others], policies)
    found = effective_policy(queue, policies, operators)
    return [*judge_delivery_limit("there", listed, queue, found, limits_deliveries=limits_deliveries, is_own=is_own)]


def line(*words: str, verb: str = "set_policy", vhost: str = "v") -> list[str]:
    """The words after the options, which begin with the priority."""
    priority, apply_to, *rest, definition = words
    options = ["-p", vhost, "--priority", priority, "--apply-to", apply_to]
    return ["rabbitmqctl", verb, *options, *rest, definition]


def quorum(name: str = "q", **more: Any) -> PolicyTarget:
    return PolicyTarget(name, "quorum", **more)


def test_without_a_policy_each_queue_gets_one_of_its_own_that_displaces_none() -> None:
    commands = [split(judged(quorum(name), policy("user", "^z", {}, priority=-3))[0].fix) for name in ("q1", "q2")]
    assert commands == [
        line("-4", "queues", f"federation-returns {name}", f"^{name}$", json.dumps(LIMIT)) for name in ("q1", "q2")
    ]


def test_one_policy_is_for_all_queues_of_links() -> None:
    [found] = judged(quorum("federation: x -> here"), is_own=True)
    assert split(found.fix) == line("-1", "queues", "federation-returns", "^federation: ", json.dumps(LIMIT))


def test_a_policy_of_that_name_for_other_queues_is_not_overwritten() -> None:
    earlier = policy("federation-returns", "^q1$", LIMIT)
    [found] = judged(quorum("federation: x -> here"), earlier, is_own=True)
    assert split(found.fix)[8:10] == ["federation-returns 2", "^federation: "]


def test_the_policy_that_holds_keeps_all_that_it_has() -> None:
    mine = policy("mine", "^q", {"dead-letter-exchange": "my.dlx"}, priority=4) | {"apply-to": "all"}
    [found] = judged(quorum(), mine)
    whole = json.dumps({"dead-letter-exchange": "my.dlx"} | LIMIT)
    assert split(found.fix) == line("4", "all", "mine", "^q", whole)


def test_a_policy_that_holds_for_classic_queues_too_stays_and_the_queue_gets_a_copy() -> None:
    """With this key it would no longer hold for them."""
    mine = policy("mine", ".*", {"dead-letter-exchange": "my.dlx"}, priority=4)
    [found] = judged(quorum(), mine, others=[PolicyTarget("c")])
    whole = json.dumps({"dead-letter-exchange": "my.dlx"} | LIMIT)
    assert split(found.fix) == line("5", "queues", "federation-returns q", "^q$", whole)
    assert "Policy 'mine' holds also for queues that aren't quorum queues, such as 'c'" in found.message
    assert (
        judged(quorum(), mine, policy("copy", "^q$", json.loads(whole), priority=5), others=[PolicyTarget("c")]) == []
    )


def test_a_limit_of_the_arguments_can_not_be_raised_by_a_policy() -> None:
    [found] = judged(quorum(arguments={"x-delivery-limit": 5}), limits_deliveries=False)
    assert "returned 5 times (delivery limit from its arguments)" in found.message
    assert "set_policy" not in found.fix
    assert "delete queue 'q' once it is empty, and declare it with an x-delivery-limit of 1000000" in found.fix


def test_a_limit_of_an_operator_policy_is_raised_there() -> None:
    operator = policy("op", "^q", {"delivery-limit": 7, "max-length": 9}, priority=2)
    [found] = judged(quorum(), policy("mine", ".*", LIMIT), operators=[operator])
    whole = json.dumps({"delivery-limit": 1_000_000, "max-length": 9})
    assert split(found.fix) == line("2", "queues", "op", "^q", whole, verb="set_operator_policy")


def test_all_places_of_a_low_limit_are_changed() -> None:
    operator = policy("op", "^q", {"delivery-limit": 7})
    [found] = judged(quorum(), policy("mine", ".*", {"delivery-limit": 8}), operators=[operator])
    assert "(delivery limit from operator policy 'op' and policy 'mine')" in found.message
    first, second = found.fix.split(" && ")
    assert (split(first)[1], split(second)[1]) == ("set_operator_policy", "set_policy")
    both = judged(quorum(arguments={"x-delivery-limit": 5}), operators=[operator])
    assert "an x-delivery-limit of 1000000; and run: rabbitmqctl set_operator_policy " in both[0].fix


def test_a_high_limit_and_none_are_fine() -> None:
    assert judged(quorum(), policy("mine", ".*", LIMIT)) == []
    assert judged(quorum(arguments={"x-delivery-limit": -1})) == []
    assert judged(quorum(), limits_deliveries=False) == []
    assert judged(PolicyTarget("c")) == []


def test_names_in_a_command_are_quoted_for_the_shell_and_as_patterns() -> None:
    name = "a.b'; touch /tmp/x; echo '"
    [found] = judged(quorum(name), vhost="my vhost")
    pattern = r"^a\.b'; touch /tmp/x; echo '$"
    assert split(found.fix) == line(
        "-1", "queues", f"federation-returns {name}", pattern, json.dumps(LIMIT), vhost="my vhost"
    )


def test_a_name_that_begins_like_an_option_is_not_taken_for_one() -> None:
    [found] = judged(quorum(), policy("-mine", "q$", {}))
    assert split(found.fix)[-4:] == ["--", "-mine", "q$", json.dumps(LIMIT)]


def test_a_stream_is_the_source_of_a_shovel_that_says_so_and_of_nothing_else() -> None:
    stream = PolicyTarget("q", "stream")
    aware = shovel_link(QueueSource("q", (("x-queue-type", text("stream")),)))
    assert [*judge_stream("there", "v", stream, aware)] == []
    assert [*judge_stream("there", "v", quorum(), queue_link())] == []
    [unaware], [federated] = ([*judge_stream("there", "v", stream, link)] for link in (shovel_link(), queue_link()))
    assert "add x-stream-offset" in unaware.fix
    assert "by a shovel" in federated.fix
    assert {each.level for each in (unaware, federated)} == {FindingLevel.ERROR}
