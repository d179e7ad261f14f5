"""A deadline keeps what was found before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from agent.check.configuration import in_time
from agent.check.findings import Finding, FindingLevel, Topic

FIRST = Finding(FindingLevel.NOTE, Topic.CLOCK, "here", "the first")


async def endless() -> AsyncIterator[Finding]:
    yield FIRST
    await asyncio.Event().wait()


async def test_what_was_found_is_kept_and_the_rest_reported_as_missing() -> None:
    first, late = await in_time(endless(), 0.05)
    assert first == FIRST
    assert late.level is FindingLevel.WARNING
    assert "not everything was judged" in late.message
