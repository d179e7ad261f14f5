"""The table of links: what fits, what comes first, what is never shortened; long names in little room."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.link_table import SEVERITY, differences, in_order, render, shortened
from agent.cli.options import Sort
from agent.cli.remote import completions, find
from agent.core.links.lifecycle import Status
from agent.errors import UnknownLinkError

COLOUR = re.compile(r"\x1b\[\d+m")
NOW = 1_800_000_000.0
SINCE = "2027-01-15T07:00:00.000Z"  # an hour ago


def link(number: int, status: str = "running", **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:08x}",
        "kind": "exchange",
        "vhost": "/",
        "exchange": f"orders.{number}",
        "upstream": "dc1",
        "upstream_cluster": "rabbit@dc1",
        "uri": "amqp://dc1.example",
        "policy": "federate",
        "status": status,
        "error": None,
        "since": SINCE,
        "forwarded": 12_345_678,
        "backlog": 849,
        "oldest_unconfirmed_seconds": 1.5,
        "reconnects": 2,
        "prefetch": 1000,
        "bindings": 3,
        "rate": 12.3,
        **more,
    }


def shown(links: list[dict[str, Any]], **how: Any) -> list[str]:
    defaults: dict[str, Any] = {"now": NOW, "width": 80, "wide": False}
    return [COLOUR.sub("", line) for line in render(links, **{**defaults, **how})]


def test_a_pause_is_as_old_as_it_is_though_the_agent_was_started_since() -> None:
    by_ann = {"by": "ann@ops", "at": "2027-01-13T08:00:00.000Z", "reason": None}
    assert " 2d" in shown([link(1, "paused", paused=by_ann)])[-1]


def test_a_name_without_its_vhost_is_meant_to_be_one_of_those_with_it() -> None:
    links = [link(1, exchange="orders"), link(2, vhost="a-vhost-with-a-long-name", exchange="carts"), link(3)]
    for typed, meant in (
        ("orders", "'//orders'"),
        ("carts", "'a-vhost-with-a-long-name/carts'"),
        ("//ordres", "'//orders'"),
    ):
        with pytest.raises(UnknownLinkError, match=rf"lists them; did you mean {meant}\?$"):
            find(links, typed, where="agent")


@pytest.mark.parametrize(
    ("sort", "first"), [("backlog", 2), ("age", 3), ("name", 1), ("rate", 2), ("oldest", 3), (None, 4)]
)
def test_links_are_sorted_by_what_is_asked_for(sort: Sort | None, first: int) -> None:
    links = [
        link(4, "backoff", backlog=None, rate=None),
        link(3, since="2027-01-14T07:00:00.000Z", oldest_unconfirmed_seconds=9.5),
        link(2, backlog=None, backlog_last=99_999, rate=100.0),
        link(1),
    ]
    assert in_order(links, sort)[0]["id"] == f"{first:08x}"
    assert f"{first:08x}" in shown(links, sort=sort)[2]


def test_a_link_that_is_behind_is_as_old_as_it_is_behind() -> None:
    links = [link(1, oldest_unconfirmed_seconds=9.5, behind_seconds=0.0), link(2, behind_seconds=196.8), link(3)]
    heads, *rows = (line.split() for line in shown(links, width=None, sort="oldest")[1:])
    at = heads.index("OLDEST")
    assert [(row[1], row[at]) for row in rows] == [("00000002", "196.8s"), ("00000001", "9.5s"), ("00000003", "1.5s")]


def test_every_status_has_a_severity() -> None:
    assert set(SEVERITY) == set(Status)


def test_eighty_columns_are_enough_and_ids_and_statuses_are_whole() -> None:
    links = [
        link(1, "terminated", vhost="tenant-with-a-long-name", exchange="an.exchange.with.a.really.long.name" * 2),
        link(2, "backoff", error="upstream dc1: connection refused " * 20, upstream="europe-west-production-cluster"),
    ]
    lines = shown(links)
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["STATUS", "ID", "VHOST", "NAME", "UPSTREAM", "BACKLOG", "RATE", "AGE"]
    assert lines[2].startswith("backoff     00000002")
    assert lines[3].startswith("  └ upstream dc1: connection refused")
    assert lines[4].startswith("terminated  00000001")
    assert lines[4].endswith("849  12/s   1h")


def test_a_wider_terminal_shows_more_and_a_narrower_one_less() -> None:
    assert "KIND" in shown([link(1)], width=100)[1]
    narrow = shown([link(1, "terminated")], width=40)
    assert max(map(len, narrow)) <= 40
    assert "terminated  00000001" in narrow[-1]
    assert "UPSTREAM" not in narrow[-2]


def test_the_most_severe_come_first_and_the_summary_counts() -> None:
    links = [link(1), link(2, "paused", backlog=None), link(3, "blocked"), link(4, "invalid"), link(5, "backoff")]
    lines = shown(links, width=100)
    assert lines[0].startswith("5 links: 1 invalid, 1 backoff, 1 blocked, 1 paused, 1 running; at least 3,396 messages")
    assert [line.split()[0] for line in lines[2:]] == ["blocked", "invalid", "backoff", "paused", "running"]


def test_what_flowed_and_does_not_is_on_the_first_screen_of_a_thousand_links() -> None:
    """Before old mistakes, however many there are, and though they are more severe."""
    old = [link(number, "invalid", error="upstream dc1: refused", incident=False) for number in range(200)]
    now = [
        link(number, status, incident=True) for number, status in ((300, "blocked"), (301, "stalled"), (302, "backoff"))
    ]
    unknown = link(303, "stalled", incident=False)  # it has stood still since the agent started
    lines = shown([*old, *(link(number) for number in range(400, 1_100)), unknown, *now], height=24)
    assert len(lines) <= 24
    head = next(at for at, line in enumerate(lines) if line.startswith("STATUS"))
    ids = [line.split()[1] for line in lines[head + 1 : head + 6]]
    assert ids == ["0000012e", "0000012d", "0000012c", "0000012f", "00000000"]


def test_long_names_do_not_look_alike() -> None:
    lines = shown(
        [link(number, exchange=f"production.europe.west.orders.of.region-{number:04d}.v1") for number in range(50)]
    )
    names = [line.split()[3] for line in lines[2:]]
    assert max(map(len, lines)) <= 80
    assert len(set(names)) == 50


def test_numbers_have_commas_for_people_and_none_for_programs() -> None:
    busy = link(1, backlog=42_013, forwarded=12_345_678)
    assert "42,013" in shown([busy], width=140)[2]
    assert "12,345,678" in shown([busy], width=140)[2]
    assert {"42013", "12345678"} <= set(shown([busy], width=None)[2].split())


def test_of_links_of_which_nothing_is_known_the_summary_gives_no_number() -> None:
    assert "; how many messages wait is not known; " in shown([link(1, backlog=None)], width=None)[0]


def test_at_a_thousand_links_the_first_screen_is_what_matters() -> None:
    links = [link(number) for number in range(1000)] + [link(2000, "blocked", error="downstream blocked")]
    lines = shown(links, height=24)
    assert len(lines) <= 24
    assert lines[2].startswith("blocked")
    assert lines[-1] == "… 981 more: 981 running"


def test_a_long_summary_is_wrapped_and_counts_as_lines_of_the_screen() -> None:
    links = [link(number, status) for number, status in enumerate(SEVERITY * 3)]
    lines = shown(links, height=12)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 12
    assert lines[0].startswith("33 links: 3 invalid, 3 backoff")
    assert " ".join(lines[:3]).endswith("28,017 messages wait; 406/s")
    assert lines[3].startswith("STATUS")
    assert lines[-1].startswith("… 26 more: 2 invalid, ")


def test_a_program_gets_one_line_for_each_link_with_all_columns() -> None:
    lines = shown([link(1, "backoff", error="x" * 300)], width=None)
    assert len(lines) == 3
    assert lines[2].endswith("x" * 300)


def test_wide_has_every_column() -> None:
    assert {"POLICY", "URI", "PREFETCH", "ERROR"} <= set(shown([link(1)], wide=True)[1].split())


def test_control_characters_of_names_are_shown() -> None:
    assert "\\x1b" in shown([link(1, exchange="\x1b[2J")])[2]


LINKS = [link(0xAB000001), link(0xAB000002, vhost="v"), link(0xC0000003, exchange="same"), link(0xC1, exchange="same")]


@pytest.mark.parametrize(
    ("named", "found"),
    [("ab000001", "ab000001"), ("ab000002", "ab000002"), ("c", "c0000003"), ("v/orders.2868903938", "ab000002")],
)
def test_links_are_named_by_id_prefix_or_vhost_and_name(named: str, found: str) -> None:
    assert find(LINKS, named, where="agent")["id"] == found


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("ab", "names 2 links: ab000001 .exchange //"),
        ("//same", "names 2 links"),
        ("zz", "no link has"),
        ("", "no link has"),
    ],
)
def test_what_names_none_or_several(named: str, why: str) -> None:
    with pytest.raises(UnknownLinkError, match=why):
        find(LINKS, named, where="agent")


def test_completions_are_ids_and_names() -> None:
    assert [each for each, _ in completions(LINKS, "ab")] == ["ab000001", "ab000002"]
    assert [each for each, _ in completions(LINKS, "v/")] == ["v/orders.2868903938"]


def all_shortened(names: list[str], width: int) -> list[str]:
    differs = differences(names)
    return [shortened(name, width, differs[name]) for name in names]


def test_names_that_differ_at_the_end_keep_their_end() -> None:
    names = [f"production.europe.orders.region-{number:04d}" for number in range(1_000)]
    short = all_shortened(names, 16)
    assert short[7] == "produ…egion-0007"
    assert len(set(short)) == len(names)


def test_names_that_differ_at_the_beginning_keep_it() -> None:
    names = [f"{where}.orders.of.all.customers.events" for where in ("paris", "rome")]
    assert all_shortened(names, 16) == ["paris…ers.events", "rome.…ers.events"]


def test_names_that_differ_in_the_middle_keep_it() -> None:
    names = [f"production.europe.orders.{number}.customers.events.v1" for number in (17, 18)]
    short = all_shortened(names, 16)
    assert len(set(short)) == 2
    assert all(f".{number}." in name for number, name in zip((17, 18), short, strict=True))


def test_numbers_are_whole() -> None:
    names = [f"a-rather-long-name-of-a-broker-{number:02}.frankfurt.example.com" for number in range(20)]
    short = all_shortened(names, 30)
    assert len(set(short)) == 20
    assert all(f"{number:02}" in name for number, name in enumerate(short))


def test_a_single_name_keeps_both_ends() -> None:
    assert all_shortened(["an.exchange.with.a.really.long.name"], 12) == ["an.…ong.name"]


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8), st.integers(1, 20))
def test_none_is_wider_than_there_is_room_and_short_ones_are_whole(names: list[str], width: int) -> None:
    for name, short in zip(names, all_shortened(names, width), strict=True):
        assert len(short) <= max(width, 2)
        assert len(name) > width or short == name
