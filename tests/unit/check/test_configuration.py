"""A deadline keeps what was found before it, and nothing is reported twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.check.configuration import in_time, stopped_links
from agent.check.context import Attempt, BrokerApis, BrokerFacts, CheckContext, Endpoint, LinkEnds
from agent.check.findings import Finding, FindingLevel, Topic
from agent.core.addresses.uri import parse
from agent.core.links.plan import Outlook, PlannedLink
from agent.errors import Failure, FailureKind, TransientError
from tests.unit.core.some_links import exchange_link

FIRST = Finding(FindingLevel.NOTE, Topic.CLOCK, "here", "the first")


async def endless() -> AsyncIterator[Finding]:
    yield FIRST
    await asyncio.Event().wait()


async def test_what_was_found_is_kept_and_the_rest_reported_as_missing() -> None:
    first, late = await in_time(endless(), 0.05)
    assert first == FIRST
    assert late.level is FindingLevel.WARNING
    assert "not everything was judged" in late.message


UNREACHABLE = Failure(FailureKind.UNREACHABLE)
REFUSED = Failure(FailureKind.LOGIN, user="u")
HERE, ORIGIN, OTHER = (Endpoint(where, "/", (parse("amqp://h"),)) for where in ("downstream", "origin", "other"))


def attempt(endpoint: Endpoint, facts: Failure | None) -> Attempt:
    if facts is None:
        return Attempt(endpoint, endpoint.uris[0], BrokerFacts("h", "/", "u", "4.1.0", "c", 131072, 2047))
    return Attempt(endpoint, endpoint.uris[0], error=TransientError("words that nobody compares", facts=facts))


@pytest.mark.parametrize(
    ("failure", "attempts", "is_shown"),
    [
        (UNREACHABLE, [(ORIGIN, UNREACHABLE)], False),
        (UNREACHABLE, [(HERE, UNREACHABLE)], False),
        (replace(REFUSED, is_permanent=True), [(ORIGIN, UNREACHABLE), (ORIGIN, REFUSED)], False),
        (UNREACHABLE, [(ORIGIN, REFUSED)], True),
        (UNREACHABLE, [(OTHER, UNREACHABLE)], True),
        (UNREACHABLE, [(ORIGIN, UNREACHABLE), (ORIGIN, None)], True),
        (REFUSED, [(ORIGIN, replace(REFUSED, user="another"))], True),
        (None, [(ORIGIN, UNREACHABLE)], True),
    ],
)
def test_a_link_that_fails_as_its_addresses_do_is_not_reported_again(
    failure: Failure | None, attempts: list[tuple[Endpoint, Failure | None]], *, is_shown: bool
) -> None:
    """An address that fails isn't the reason where another one of the same broker works."""
    planned = PlannedLink(exchange_link("x"), Outlook.BACKOFF, "other words", "", failure=failure)
    tried = [attempt(*each) for each in attempts]
    brokers = {each.endpoint: (each.broker,) for each in tried if each.broker is not None}
    context = CheckContext((LinkEnds(planned, ORIGIN, HERE),), brokers, "c", BrokerApis(()))
    assert bool(stopped_links(context, tried)) is is_shown
