"""Queues that links take messages from, and queues that they bring them to: what their policies do to these messages.

A quorum queue drops what a link returns too often. The command that raises this limit has to change nothing else. A
queue has one policy. A new one must not take the place of the user's, whose other keys would be gone, so the limit goes
into the policy that holds. Where that one holds for other types of queues too, which it wouldn't with this key, the
queue gets a copy of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from shlex import quote
from typing import Any, Final

from agent.check.context import CheckContext, Endpoint, LinkEnds
from agent.check.findings import Finding, Topic
from agent.check.policies import (
    ARGUMENTS,
    NO_LIMIT,
    EffectivePolicy,
    PolicyTarget,
    can_hold_for,
    definition_of,
    effective_policy,
)
from agent.core.links.upstream_steps import upstream_queue_name
from agent.core.model import ExchangeLink, Link, QueueLink, ShovelLink
from agent.core.permissions import escaped
from agent.core.rules.declarations import queue_arguments
from agent.core.rules.names import QUEUE_PREFIX
from agent.downstream.reading import Bindings

MOST_QUEUES: Final = 1_000  # whose policies are looked at
SAFE_RETURNS: Final = 1_000
DEFAULT_LIMIT: Final = 20
ADVISED: Final = 1_000_000
LIMIT: Final = "delivery-limit"
NAME: Final = "federation-returns"
_DROPPING: Final = ("max-length", "max-length-bytes", "message-ttl")  # what they drop is dead-lettered
_OTHER_PATTERN: Final = "change the policy's pattern so that it doesn't match names that begin with 'federation: '"


@dataclass(frozen=True, slots=True)
class ListedVhost:
    """The queues and policies of a vhost, as the HTTP API lists them."""

    name: str
    queues: Collection[PolicyTarget]
    policies: Collection[Mapping[str, Any]]
    _examined: dict[str, PolicyTarget | None] = field(default_factory=dict, init=False)

    def queue_of_another_type(self, policy: Mapping[str, Any]) -> PolicyTarget | None:
        """A queue that isn't a quorum queue, and that the policy may hold for. Queues are many: each policy's are
        searched once."""
        name = policy["name"]
        if name not in self._examined:
            others = (each for each in self.queues if each.type != "quorum" and can_hold_for(policy, each))
            self._examined[name] = next(others, None)
        return self._examined[name]


async def judge_queues(context: CheckContext, bindings: Bindings) -> AsyncIterator[Finding]:
    seen: set[tuple[Endpoint, str]] = set()
    vhosts: dict[Endpoint, ListedVhost] = {}
    for each in context.links:
        if len(seen) >= MOST_QUEUES:
            message = f"policies and arguments of queues after the first {MOST_QUEUES} weren't looked at"
            yield Finding.note(Topic.LIMITS, "queues", message)
            return
        sources, destinations = _source(each, context), _destinations(each, bindings)
        for endpoint, names, is_source in ((each.source, sources, True), (each.destination, destinations, False)):
            new = [name for name in names if (endpoint, name) not in seen][:MOST_QUEUES]
            seen.update((endpoint, name) for name in new)
            for found in await _judge(each.link, endpoint, new, vhosts, context=context, is_source=is_source):
                yield found


async def _judge(
    link: Link,
    endpoint: Endpoint,
    names: Sequence[str],
    vhosts: dict[Endpoint, ListedVhost],
    *,
    context: CheckContext,
    is_source: bool,
) -> list[Finding]:
    api, broker = context.apis.of(endpoint), context.broker(endpoint)
    if not names or broker is None:
        return []
    own = _own_queue(names[0], link) if is_source else None
    if api is None:
        if not is_source or not broker.limits_deliveries or (own is not None and own.type != "quorum"):
            return []
        message = (
            f"whether quorum queues in vhost {broker.vhost!r} have a delivery limit can't be judged without the "
            f"broker's HTTP API (--api NAME=URL); releases from 4.0 on drop a message that was returned 20 times"
        )
        fix = "see docs/operations.md, Upstream queues of type quorum"
        return [Finding.note(Topic.RELEASE, broker.where, message, fix)]
    queues = await api.queues(broker.vhost)
    policies, operators = await api.policies(broker.vhost), await api.operator_policies(broker.vhost)
    if queues is None:
        return []
    vhost = vhosts.setdefault(endpoint, ListedVhost(broker.vhost, queues.values(), policies or ()))
    found: list[Finding] = []
    for queue in (queues.get(name, own) for name in names):
        if queue is None:
            continue
        effective = effective_policy(queue, policies or (), operators or ())
        if not is_source:
            found += _judge_destination(broker.where, vhost.name, queue, effective)
            continue
        found += judge_stream(broker.where, vhost.name, queue, link)
        if isinstance(link, ExchangeLink):
            found += _judge_own(broker.where, vhost.name, queue, effective, is_probed=link.settings.probe is not None)
        if policies is not None and operators is not None:  # else that is reported, and none can be advised to change
            limits, is_own = broker.limits_deliveries, own is not None
            found += judge_delivery_limit(
                broker.where, vhost, queue, effective, limits_deliveries=limits, is_own=is_own
            )
    return found


def _own_queue(name: str, link: Link) -> PolicyTarget | None:
    """The queue that an exchange link declares for itself."""
    if not isinstance(link, ExchangeLink):
        return None
    arguments = {key: field.value for key, field in queue_arguments(link.settings)}
    return PolicyTarget(name, link.settings.queue_type.value, arguments)


def _source(each: LinkEnds, context: CheckContext) -> list[str]:
    link, broker = each.link, context.broker(each.source)
    match link:
        case ExchangeLink():
            return [] if broker is None else [upstream_queue_name(link, broker.vhost, context.cluster)]
        case QueueLink():
            return [link.remote_name]
        case ShovelLink():
            return [name for name in [link.shovel.source.keys.get("src-queue")] if name is not None]


def _destinations(each: LinkEnds, bindings: Bindings) -> list[str]:
    link = each.link
    match link:
        case ExchangeLink():
            found = bindings.get((link.vhost, link.name), ())
            return list(dict.fromkeys(one.destination for one in found if not one.destination_is_exchange))
        case QueueLink():
            return [link.name]
        case ShovelLink():
            return [name for name in [link.shovel.destination.keys.get("dest-queue")] if name is not None]


def _judge_own(
    where: str, vhost: str, queue: PolicyTarget, effective: EffectivePolicy, *, is_probed: bool
) -> Iterator[Finding]:
    """The queue that exists for a link only. Probes that go through it never expire, but what the queue drops it
    dead-letters."""
    about = f"the link's queue {queue.name!r} in vhost {vhost!r} has"
    dropping = [key for key in _DROPPING if effective.number(key) is not None]
    expiring = ["expires"] if effective.number("expires") is not None else []
    keys = [key for key in dropping + expiring if effective.sources[key] != ARGUMENTS]
    if keys:
        lost = f"{', '.join(keys)} by {effective.sources[keys[0]]}: messages that wait for the link may be dropped"
        yield Finding.warning(Topic.LIMITS, where, f"{about} {lost}", _OTHER_PATTERN)
    target = effective.values.get("dead-letter-exchange")
    if is_probed and isinstance(target, str) and dropping:
        source = effective.sources["dead-letter-exchange"]
        limits = ", ".join(f"{key} by {effective.sources[key]}" for key in dropping)
        yield Finding.warning(
            Topic.LIMITS,
            where,
            f"{about} dead-letter-exchange {target!r} by {source}, and {limits}: probes that it drops go there, and "
            "may reach queues of users",
            f"{_OTHER_PATTERN}, or remove `probe` from the upstream",
        )


def _judge_destination(where: str, vhost: str, queue: PolicyTarget, effective: EffectivePolicy) -> Iterator[Finding]:
    """A queue that a link's messages go to."""
    bounds = [key for key in ("max-length", "max-length-bytes") if effective.number(key) is not None]
    overflow = str(effective.values.get("overflow", ""))
    if bounds and overflow.startswith("reject-publish"):
        limits = ", ".join(f"{key} {effective.number(key)}" for key in bounds)
        yield Finding.warning(
            Topic.LIMITS,
            where,
            f"queue {queue.name!r} in vhost {vhost!r} refuses messages when it is full ({limits}, {overflow}, by "
            f"{effective.sources[bounds[0]]}): links that publish to it wait then, and messages collect upstream",
            "raise the limit, or watch the queue's length",
        )


def judge_stream(where: str, vhost: str, queue: PolicyTarget, link: Link) -> Iterator[Finding]:
    """The queue that a link consumes from, where it may be a stream."""
    if queue.type != "stream" or (isinstance(link, ShovelLink) and link.shovel.reads_stream):
        return
    about, labels = f"queue {queue.name!r} in vhost {vhost!r} is a stream", (f"{link.vhost}/{link.name}",)
    if isinstance(link, ShovelLink):
        message = f"{about}, and the shovel doesn't say so: after each lost connection it misses what came meanwhile"
        yield Finding.error(Topic.LINK, where, message, "add x-stream-offset to its src-consumer-args", labels)
    elif isinstance(link, QueueLink):
        message = f"{about}, and a queue link moves messages, which a stream never gives away"
        yield Finding.error(Topic.LINK, where, message, "copy it by a shovel with x-stream-offset", labels)


def judge_delivery_limit(
    where: str,
    vhost: ListedVhost,
    queue: PolicyTarget,
    effective: EffectivePolicy,
    *,
    limits_deliveries: bool,
    is_own: bool,
) -> Iterator[Finding]:
    """The queue that a link consumes from; its own one exists for nothing else."""
    limit = effective.number(LIMIT)
    limit = DEFAULT_LIMIT if limit is None and limits_deliveries else limit
    if queue.type != "quorum" or limit is None or not _is_low(limit):
        return
    argument = f"x-{LIMIT}"
    steps, commands, sources = [], [], []
    if _is_low(queue.arguments.get(argument)):
        sources.append(ARGUMENTS)
        steps.append(
            f"no policy can raise an argument: delete queue {queue.name!r} once it is empty, and declare it with an "
            f"{argument} of {ADVISED}"
        )
    operator = effective.operator_policy
    if operator is not None and _is_low(definition_of(operator).get(LIMIT)):
        sources.append(f"operator policy {operator['name']!r}")
        commands.append(_command("set_operator_policy", vhost, operator))
    if effective.policy is not None and _is_low(definition_of(effective.policy).get(LIMIT)):
        sources.append(f"policy {effective.policy['name']!r}")
    remark = ""
    if not sources or (effective.policy is not None and len(sources) > len(steps) + len(commands)):
        command, remark = _by_policy(vhost, queue, effective.policy, is_own=is_own)
        commands.append(command)
    source = " and ".join(sources) or "the default of releases from 4.0 on"
    yield Finding.warning(
        Topic.RELEASE,
        where,
        f"quorum queue {queue.name!r} in vhost {vhost.name!r} drops a message that was returned {limit} times "
        f"(delivery limit from {source}): a link that fails repeatedly loses messages{remark}",
        "; and run: ".join(filter(None, [*steps, " && ".join(commands)])),
    )


def _is_low(limit: object) -> bool:
    return isinstance(limit, int) and not isinstance(limit, bool) and NO_LIMIT < limit < SAFE_RETURNS


def _by_policy(
    vhost: ListedVhost, queue: PolicyTarget, policy: Mapping[str, Any] | None, *, is_own: bool
) -> tuple[str, str]:
    """The command, and a remark on its effect."""
    pattern = f"^{escaped(queue.name)}$"
    if policy is None:
        # With the lowest priority it holds only where no policy of the user does.
        lowest = min([0, *(_priority(each) for each in vhost.policies)]) - 1
        name, pattern = (NAME, f"^{QUEUE_PREFIX}") if is_own else (f"{NAME} {queue.name}", pattern)
        return _command("set_policy", vhost, _new(name, vhost, pattern, {}, priority=lowest)), ""
    other = vhost.queue_of_another_type(policy)
    if other is None:
        return _command("set_policy", vhost, policy), ""
    remark = (
        f". Policy {policy['name']!r} holds also for queues that aren't quorum queues, such as {other.name!r}, and "
        f"with a {LIMIT} it wouldn't: the command gives this queue a copy of it, so change both from then on"
    )
    name, copied, priority = f"{NAME} {queue.name}", definition_of(policy), _priority(policy) + 1
    return _command("set_policy", vhost, _new(name, vhost, pattern, copied, priority=priority)), remark


def _new(
    name: str, vhost: ListedVhost, pattern: str, definition: Mapping[str, Any], *, priority: int
) -> Mapping[str, Any]:
    """A policy that has the name already, and holds for other queues, would be overwritten."""
    taken = {each["name"] for each in vhost.policies}
    free = next(each for number in count(1) if (each := name if number == 1 else f"{name} {number}") not in taken)
    return {"name": free, "pattern": pattern, "definition": definition, "priority": priority, "apply-to": "queues"}


def _priority(policy: Mapping[str, Any]) -> int:
    return int(policy.get("priority", 0))


def _command(verb: str, vhost: ListedVhost, policy: Mapping[str, Any]) -> str:
    """Sets the whole policy, since the command replaces all of it."""
    name, pattern = policy["name"], policy["pattern"]
    options = ["-p", vhost.name, "--priority", str(_priority(policy)), "--apply-to", policy.get("apply-to", "all")]
    if name.startswith("-") or pattern.startswith("-"):
        options.append("--")
    words = [*options, name, pattern, json.dumps({**definition_of(policy), LIMIT: ADVISED})]
    return " ".join(["rabbitmqctl", verb, *map(quote, words)])
