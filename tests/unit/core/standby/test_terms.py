"""On which terms copies may be trimmed: what their definitions never allow, and what the source takes back when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from agent.core.migration.difference import plan_migration
from agent.core.migration.objects import ClusterObjects, queue_key
from agent.core.migration.selection import VhostSelection, choose
from agent.core.standby.copies import limits_of
from agent.core.standby.settings import StandbySettings
from agent.core.standby.terms import (
    AUTO_DELETE,
    QueueDefinition,
    StandingDoubt,
    TrimTerms,
    consumer_timeout,
    standing_doubt,
    trim_terms,
)
from tests.unit.core.migration.clusters import (
    ALL,
    HERE,
    NEW,
    OLD,
    binding,
    choice,
    cluster,
    empty,
    exchange,
    policy,
    queue,
    selecting,
)

Q = queue_key("v", "q")


def terms(
    source: ClusterObjects, consumer_timeout: float | None = None, chosen: Mapping[str, VhostSelection] = ALL
) -> TrimTerms:
    settings = StandbySettings("origin", chosen, 3600.0, 1800.0, consumer_timeout, HERE)
    wanted = plan_migration(source, empty(), choose(source, chosen), with_traps=False).wanted
    return trim_terms(settings, source, NEW, wanted, limits_of(source, source.objects))


def test_a_plain_queue_is_trimmed_by_what_is_seen_empty() -> None:
    found = terms(cluster(queues=[queue()]))
    assert (found.never, found.timeouts) == ({}, {Q: None})


@pytest.mark.parametrize(
    ("release", "arguments", "seconds"),
    [
        (OLD, {}, 3000.0),
        (OLD, {"x_consumer_timeout": 60_000}, 60.0),
        (NEW, {}, None),
        (NEW, {"x_queue_type": "quorum"}, 3000.0),
    ],
)
def test_a_timeout_that_the_source_has(release: Any, arguments: dict[str, Any], seconds: float | None) -> None:
    assert terms(cluster(release, queues=[queue(**arguments)]), 3000.0).timeouts == {Q: seconds}


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (queue(x_queue_type="stream"), StandingDoubt.STREAM),
        (queue(x_max_priority=3), StandingDoubt.PRIORITIES),
        (queue(x_max_length=3), StandingDoubt.LIMITED),
        (
            {**queue(), "auto_delete": True},
            AUTO_DELETE,
        ),
    ],
)
def test_what_is_never_trimmed(listed: dict[str, Any], why: str) -> None:
    assert terms(cluster(queues=[listed])).never == {Q: why}


def test_a_queue_that_another_dead_letters_into_by_its_name() -> None:
    other = queue("other", x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    assert terms(cluster(queues=[queue(), other])).by_age_only == {Q: StandingDoubt.DEAD_LETTERED}


@pytest.mark.parametrize("named", [{"x_dead_letter_routing_key": "q"}, {}])
def test_a_retry_queue_that_is_not_chosen_counts_too(named: dict[str, Any]) -> None:
    retry, chosen = queue("retry", x_message_ttl=9), selecting(choice("^q$"))
    dead_letters = queue("retry", x_message_ttl=9, x_dead_letter_exchange="", **named)
    found = terms(cluster(queues=[queue(), dead_letters]), chosen=chosen)
    assert (found.never, found.by_age_only) == ({}, {Q: StandingDoubt.DEAD_LETTERED})
    assert terms(cluster(queues=[queue(), retry]), chosen=chosen).by_age_only == {}


def test_where_it_is_not_known_whether_a_queue_dead_letters_that_is_said_of_all_of_its_vhost() -> None:
    source = replace(cluster(queues=[queue()]), unread={queue_key("v", "odd"): "its arguments can't be read"})
    why = terms(source).by_age_only[Q]
    assert "'odd' in vhost 'v' dead-letters into it isn't known: its arguments can't be read" in why


@pytest.mark.parametrize("side", ["source", "standby"])
def test_where_policies_of_a_queue_are_not_known_nothing_of_its_vhost_is_trimmed(side: str) -> None:
    """Its copy may dead-letter into any other, too."""
    source, other = cluster(queues=[queue(), queue("other")]), queue_key("v", "other")
    wanted = plan_migration(source, empty(), choose(source, ALL), with_traps=False).wanted
    known = limits_of(source, source.objects)
    settings = StandbySettings("origin", ALL, 3600.0, 1800.0, None, HERE)
    lacking = {**known, other: None}
    of, copies = (lacking, known) if side == "source" else (known, lacking)
    found = trim_terms(settings, source, NEW, wanted, of, copies=copies)
    assert (set(found.never), found.by_age_only) == ({Q, other}, {})


def test_a_queue_that_copies_are_dead_lettered_into() -> None:
    source = cluster(
        exchanges=[exchange("dead"), exchange("dead2")],
        queues=[queue(), queue("other"), queue("third", x_dead_letter_exchange="dead")],
        bindings=[binding("dead", "dead2", to_exchange=True), binding("dead2", "q")],
        policies=[policy(pattern="^third", message_ttl=1)],
    )
    assert terms(source).never == {Q: StandingDoubt.DEAD_LETTERED_HERE}


PLAIN: Final = QueueDefinition("classic", {}, (3, 10))
QUORUM: Final = QueueDefinition("quorum", {}, (4, 3))


@pytest.mark.parametrize(
    ("source", "copy", "doubt"),
    [
        (PLAIN, PLAIN, None),
        (replace(PLAIN, kind="stream"), replace(PLAIN, kind="stream"), StandingDoubt.STREAM),
        (PLAIN, replace(PLAIN, settings={"max-priority": 5}), StandingDoubt.PRIORITIES),
        (replace(PLAIN, settings={"max-priority": 5}), PLAIN, None),
        (QUORUM, QUORUM, StandingDoubt.QUORUM_PRIORITIES),
        (QUORUM, replace(QUORUM, release=(3, 13)), None),
        (PLAIN, replace(PLAIN, settings={"max-length": 5}), StandingDoubt.LIMITED),
        (PLAIN, replace(PLAIN, settings={"max-length-bytes": 5}), StandingDoubt.LIMITED),
        (PLAIN, replace(PLAIN, consumers=1), StandingDoubt.CONSUMED),
        (replace(PLAIN, consumers=1), PLAIN, None),
        (replace(QUORUM, settings={"delayed-retry-type": "all"}), PLAIN, StandingDoubt.RETURNED),
        (replace(PLAIN, dead_letters=True), PLAIN, StandingDoubt.DEAD_LETTERED),
        (PLAIN, replace(PLAIN, dead_letters=True), StandingDoubt.DEAD_LETTERED_HERE),
    ],
)
def test_doubts(source: QueueDefinition, copy: QueueDefinition, doubt: StandingDoubt | None) -> None:
    assert standing_doubt(source, copy) is doubt


def test_priorities_of_quorum_queues_are_no_doubt_where_they_are_seen() -> None:
    assert standing_doubt(QUORUM, QUORUM, sees_priorities=True) is None
    declared = replace(QUORUM, settings={"max-priority": 5})
    assert standing_doubt(declared, declared, sees_priorities=True) is StandingDoubt.PRIORITIES


@pytest.mark.parametrize(
    ("queue", "after", "timeout"),
    [
        (PLAIN, 300.0, 1800.0),
        (PLAIN, 7200.0, 7200.0),
        (QUORUM, 300.0, 1800.0),
        (replace(QUORUM, settings={"consumer-timeout": 60_000}), 300.0, 60.0),
        (replace(QUORUM, settings={"consumer-timeout": 0}), 300.0, None),
        (replace(QUORUM, kind="classic"), 7200.0, None),
    ],
)
def test_the_timeout_of_consumers(queue: QueueDefinition, after: float, timeout: float | None) -> None:
    """Classic queues have none since 4.3."""
    assert consumer_timeout(queue, after) == timeout
