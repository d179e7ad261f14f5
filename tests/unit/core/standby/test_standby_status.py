"""In step or not, and why; and the links of a standby."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from agent.core.addresses.uri import parse
from agent.core.fields import text
from agent.core.migration.objects import ObjectKey, queue_key
from agent.core.model import (
    ApplyTo,
    Choice,
    Definitions,
    Exchange,
    ExchangeLink,
    Federation,
    FederationLink,
    LinkKind,
    LinkSettings,
    Policy,
    Queue,
    Upstream,
    VhostDefinitions,
    VhostState,
)
from agent.core.rules.names import STANDBY
from agent.core.rules.resolve import resolve
from agent.core.standby.copies import StandbyGone
from agent.core.standby.settings import MOST_HOPS, StandbySettings
from agent.core.standby.status import LATE, LOOKS, StandbyLinks, StandbyStatus
from agent.definitions.sources.keeper import merge
from tests.unit.core.migration.clusters import ALL, HERE

SETTINGS = StandbySettings("origin", ALL, 3600.0, 1800.0, None, HERE)
WORKING = StandbyLinks(2, waiting=0)
NOW = 1_000.0
Q = queue_key("v", "q")


def in_step() -> StandbyStatus:
    return StandbyStatus(SETTINGS, followed_at=NOW, depths_at=NOW, depths={Q: (1, 3), queue_key("v", "p"): (0, 4)})


def test_in_step() -> None:
    assert in_step().why_not_in_step(WORKING, NOW + LATE) == ()
    assert in_step().repeats_at_most == 7


def looked(*looks: tuple[int | None, int | None]) -> dict[ObjectKey, int]:
    status = in_step()
    for look in looks:
        status.note_depths({Q: look}, NOW)
    return status.not_here


def test_what_the_source_held_at_each_look_and_was_never_here() -> None:
    assert looked(*[(7, 0)] * LOOKS) == {Q: 7}
    assert looked((9, 9), (7, 0), (7, 2), (5, 1), (6, 0)) == {Q: 3}
    assert looked(*[(7, 0)] * (LOOKS - 1)) == {}
    assert looked(*[(7, 0)] * (LOOKS - 1), (7, None)) == {}
    assert looked((0, 0), (9, 4), (14, 9), (19, 14)) == {}  # grows, and comes


def test_what_is_unknown_makes_the_number_of_repeats_unknown() -> None:
    status = in_step()
    status.depths = {Q: (1, None)}
    assert status.repeats_at_most is None


@pytest.mark.parametrize(
    ("change", "links", "says"),
    [
        ({"followed_at": None}, WORKING, "definitions were followed not yet"),
        ({"followed_at": NOW - LATE - 1}, WORKING, "definitions were followed 1 min"),
        ({"follow_error": "no answer"}, WORKING, "ago: no answer"),
        ({"depths_error": "no answer"}, WORKING, "queues were looked at 0 s ago: no answer"),
        ({"left": {Q: "refused"}}, WORKING, "1 object is not as at the source: queue 'q' in vhost 'v': refused"),
        ({}, StandbyLinks(), "no link brings messages"),
        ({}, StandbyLinks(2, ("'x' (backoff)",)), "1 link doesn't work: 'x' (backoff)"),
        ({}, StandbyLinks(2), "how much waits in the links isn't known"),
        ({"gone": StandbyGone((Q,), ("v",))}, WORKING, "nothing any more of what is here in vhost 'v'"),
        ({"promoted_at": "2026-01-01"}, WORKING, "it was promoted at 2026-01-01"),
    ],
)
def test_not_in_step(change: dict[str, object], links: StandbyLinks, says: str) -> None:
    status = in_step()
    for name, value in change.items():
        setattr(status, name, value)
    [why] = status.why_not_in_step(links, NOW)
    assert says in why


def test_links_come_from_namesakes_and_win_over_other_policies() -> None:
    settings = LinkSettings(exchange="elsewhere", forward_unrouted=True, probe=10.0)
    upstream = Upstream("origin", (parse("amqp://source"),), HERE, settings)
    definitions = SETTINGS.links(Definitions({"/": VhostDefinitions(upstreams={"origin": upstream})}))
    exchanges = {"x": Exchange("x", "topic"), "inner": Exchange("inner", "topic", internal=True)}
    found = resolve(definitions, {"v": VhostState(exchanges)})
    [link] = found.links
    assert isinstance(link, ExchangeLink)
    assert (link.name, link.remote_name, link.policy, link.upstream) == ("x", "x", STANDBY, "origin")
    assert (link.settings.max_hops, link.settings.forward_unrouted, link.settings.probe) == (MOST_HOPS, False, 10.0)
    assert definitions.of("v").policies[STANDBY].priority == inf
    assert link.settings.lag_critical is not None
    assert found.problems == ()


def test_nothing_else_federates_in_a_vhost_of_a_standby() -> None:
    """A link of a queue would take messages from the source."""
    upstream = Upstream("origin", (parse("amqp://source"),), HERE)
    all_ = Policy("p", ".*", ApplyTo.ALL, 0, Federation(Choice.SET, "all"), HERE)
    merged = merge(
        [
            ("standby", SETTINGS.links(Definitions({"/": VhostDefinitions(upstreams={"origin": upstream})}))),
            ("broker", Definitions({"v": VhostDefinitions(policies={"p": all_})})),
        ]
    )
    argument = (("x-upstream-set", text("all")),)
    exchanges = {"x": Exchange("x", "topic", arguments=argument), "amq.topic": Exchange("amq.topic", "topic")}
    exchanges["sharing"] = Exchange("sharing", "x-consistent-hash")
    queue = Queue("q", policy=replace(all_, name="of the broker"))
    found = resolve(merged, {"v": VhostState(exchanges, {"q": queue})})
    assert {(link.kind, link.name, link.policy) for link in found.links if isinstance(link, FederationLink)} == {
        (LinkKind.EXCHANGE, "x", STANDBY),
        (LinkKind.EXCHANGE, "amq.topic", STANDBY),
    }
    [problem] = [each for each in found.problems if "alone" in each.message]
    assert "policy 'p', policy 'of the broker', exchange 'x'" in problem.message
