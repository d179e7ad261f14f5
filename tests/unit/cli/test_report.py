"""`report`: what it prints when it is done."""

from __future__ import annotations

from agent.cli.report import in_short


def test_one_of_a_kind_is_singular_and_many_have_commas() -> None:
    told = {"lines": {"read": 1, "bad": 0, "later_schema": 0}, "links": 1, "incidents": 1, "outages": 1}
    assert [*in_short(told)] == [
        "read 1 line: 0 bad, 0 of a later schema",
        "1 link, 1 incident in 1 outage of many links",
    ]
    told = {"lines": {"read": 4_812, "bad": 1_000, "later_schema": 2}, "links": 3_000, "incidents": 0, "outages": 0}
    assert [*in_short(told)] == [
        "read 4,812 lines: 1,000 bad, 2 of a later schema",
        "3,000 links, 0 incidents in 0 outages of many links",
    ]
