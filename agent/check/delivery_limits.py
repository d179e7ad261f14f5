"""Quorum queues that drop what a link returns too often, and the command that raises the limit and nothing else.

A queue has one policy. A new one must not take the place of the user's, whose other keys would be gone, so the limit
goes into the policy that holds. Where that one holds for other types of queues too, which it wouldn't with this key,
the queue gets a copy of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Final

from agent.check.findings import Finding, Level, Topic
from agent.check.policies import NO_LIMIT, Effective, Listed, definition_of, holds_for
from agent.core.permissions import escaped
from agent.core.rules.names import QUEUE_PREFIX

SAFE_RETURNS: Final = 1_000
DEFAULT_LIMIT: Final = 20
ADVISED: Final = 1_000_000
LIMIT: Final = "delivery-limit"
NAME: Final = "federation-returns"


@dataclass(frozen=True, slots=True)
class Vhost:
    """What a broker lists of one."""

    name: str
    queues: Collection[Listed]
    policies: Collection[Mapping[str, Any]]
    _examined: dict[str, Listed | None] = field(default_factory=dict, init=False)

    def outsider(self, policy: Mapping[str, Any]) -> Listed | None:
        """A queue of another type than quorum that the policy may hold for. Queues are many: each policy's are searched
        once."""
        name = policy["name"]
        if name not in self._examined:
            others = (each for each in self.queues if each.type != "quorum" and holds_for(policy, each))
            self._examined[name] = next(others, None)
        return self._examined[name]


def judge_returns(
    where: str, vhost: Vhost, queue: Listed, found: Effective, *, limits_deliveries: bool, is_own: bool
) -> Iterator[Finding]:
    """The queue that a link consumes from; its own one exists for nothing else."""
    limit = found.number(LIMIT)
    limit = DEFAULT_LIMIT if limit is None and limits_deliveries else limit
    if queue.type != "quorum" or limit is None or not _is_low(limit):
        return
    argument = f"x-{LIMIT}"
    steps, commands, sources = [], [], []
    if _is_low(queue.arguments.get(argument)):
        sources.append("its arguments")
        steps.append(
            f"no policy can raise an argument: delete queue {queue.name!r} once it is empty, and declare it with an "
            f"{argument} of {ADVISED}"
        )
    operators = found.operator_policy
    if operators is not None and _is_low(definition_of(operators).get(LIMIT)):
        sources.append(f"operator policy {operators['name']!r}")
        commands.append(_in_place("set_operator_policy", vhost, operators))
    if found.policy is not None and _is_low(definition_of(found.policy).get(LIMIT)):
        sources.append(f"policy {found.policy['name']!r}")
    remark = ""
    if not sources or (found.policy is not None and len(sources) > len(steps) + len(commands)):
        command, remark = _by_policy(vhost, queue, found.policy, is_own=is_own)
        commands.append(command)
    source = " and ".join(sources) or "the default of releases from 4.0 on"
    yield Finding(
        Level.WARNING,
        Topic.RELEASE,
        where,
        f"quorum queue {queue.name!r} in vhost {vhost.name!r} drops a message that was returned {limit} times "
        f"(delivery limit from {source}): a link that fails repeatedly loses messages{remark}",
        "; and run: ".join(filter(None, [*steps, " && ".join(commands)])),
    )


def _is_low(limit: object) -> bool:
    return isinstance(limit, int) and not isinstance(limit, bool) and NO_LIMIT < limit < SAFE_RETURNS


def _by_policy(vhost: Vhost, queue: Listed, policy: Mapping[str, Any] | None, *, is_own: bool) -> tuple[str, str]:
    """The command, and what to know of it."""
    if policy is None:
        # With the lowest priority it holds only where no policy of the user does.
        lowest = min([0, *(_priority(each) for each in vhost.policies)]) - 1
        name, pattern = (NAME, f"^{QUEUE_PREFIX}") if is_own else (f"{NAME} {queue.name}", _exactly(queue))
        return _command("set_policy", vhost, _free(name, vhost), pattern, {}, priority=lowest), ""
    other = vhost.outsider(policy)
    if other is None:
        return _in_place("set_policy", vhost, policy), ""
    name = _free(f"{NAME} {queue.name}", vhost)
    remark = (
        f". Policy {policy['name']!r} holds also for queues that aren't quorum queues, such as {other.name!r}, and "
        f"with a {LIMIT} it wouldn't: the command gives this queue a copy of it, so change both from then on"
    )
    copied = definition_of(policy)
    return _command("set_policy", vhost, name, _exactly(queue), copied, priority=_priority(policy) + 1), remark


def _exactly(queue: Listed) -> str:
    return f"^{escaped(queue.name)}$"


def _free(name: str, vhost: Vhost) -> str:
    """A policy that has the name already, and holds for other queues, would be overwritten."""
    taken = {each["name"] for each in vhost.policies}
    number = 1
    found = name
    while found in taken:
        number += 1
        found = f"{name} {number}"
    return found


def _priority(policy: Mapping[str, Any]) -> int:
    return int(policy.get("priority", 0))


def _in_place(verb: str, vhost: Vhost, policy: Mapping[str, Any]) -> str:
    return _command(
        verb,
        vhost,
        policy["name"],
        policy["pattern"],
        definition_of(policy),
        priority=_priority(policy),
        apply_to=policy.get("apply-to", "all"),
    )


def _command(
    verb: str,
    vhost: Vhost,
    name: str,
    pattern: str,
    definition: Mapping[str, Any],
    *,
    priority: int,
    apply_to: str = "queues",
) -> str:
    """The whole policy, since the command replaces all of it."""
    options = ["-p", vhost.name, "--priority", str(priority), "--apply-to", apply_to]
    if name.startswith("-") or pattern.startswith("-"):
        options.append("--")
    words = [*options, name, pattern, json.dumps({**definition, LIMIT: ADVISED})]
    return " ".join(["rabbitmqctl", verb, *map(quote, words)])
