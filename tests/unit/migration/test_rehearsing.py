"""Only scratch vhosts are ever deleted, and only those that no rehearsal can be using."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.core.addresses.http_url import parse
from agent.management.declaring import DeclaringClient
from agent.migration.rehearsing import old_ones

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_old_scratch_vhosts() -> None:
    old = "federation-agent: rehearsal 2026-01-02T10:59:59Z abcd"
    others = [
        "federation-agent: rehearsal 2026-01-02T11:30:00Z abcd",
        "federation-agent: rehearsal 2027-01-02T11:30:00Z abcd",
        "federation-agent: rehearsal yesterday",
        "2026-01-02T10:59:59Z abcd",
        "/",
    ]
    assert old_ones([*others, old], NOW) == [old]


async def test_no_other_vhost_is_deleted() -> None:
    async with DeclaringClient([parse("http://localhost:1")]) as client:
        with pytest.raises(ValueError, match="only scratch vhosts"):
            await client.delete_scratch("/")
