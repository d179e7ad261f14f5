from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from itertools import product
from time import process_time
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from agent.amqp.data.splice import Counts
from agent.core.addresses.expiry import Credential, Expiry, Peer
from agent.core.links.lifecycle import Blocked, Failed, LinkState, Status
from agent.errors import Failure, FailureKind, Side
from agent.status import metrics, native
from agent.status.board import Board
from agent.status.entry import Gauges
from agent.status.metric_definitions import STUCK
from agent.status.metrics import USUAL, Form, expiries
from tests.unit.status.test_board import BROKEN, LINK, RUNNING, Clock

BEGAN = Clock.now
BLOCKED = replace(RUNNING, blocked=(Blocked(Side.DOWNSTREAM, "low on memory", FailureKind.MEMORY_ALARM),))
LOST = {
    side: replace(BROKEN, broken=Failed("connection lost", Failure(kind, side)))
    for side, kind in ((Side.UPSTREAM, FailureKind.LOST), (Side.DOWNSTREAM, FailureKind.CLOSED))
}
HISTORY = (
    (1, RUNNING), (3_600, LOST[Side.UPSTREAM]), (3_601, RUNNING), (7_200, LOST[Side.DOWNSTREAM]), (7_260, RUNNING),
    (9_000, BLOCKED), (9_243.182736, LOST[Side.DOWNSTREAM]), (9_243.5, RUNNING),
)  # fmt: skip
OF_LINK = {"kind": "exchange", "vhost": "/", "name": "orders", "upstream": "origin"}


def exposed(board: Board, form: Form = USUAL) -> str:
    return b"".join(asyncio.run(metrics.exposition(board, form))).decode()


def samples(board: Board) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = exposed(board)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({**OF_LINK, **labels}.items())


def filled(*states: LinkState, are_alike: bool = True) -> Board:
    board = Board(Clock(), "dc2-a", version="0.1.0", group="dc2")
    for number, state in enumerate(states):
        link = replace(LINK, id=f"{number:08x}", name=LINK.name if are_alike else f"x{number}")
        counts = Counts(forwarded=3, bytes=300, returned=1, dropped={"max_hops": 2})
        board.put(link, LinkState(), counts, lambda: Gauges(in_flight=7, bindings=2, prefetch=1000))
        board.changed(link.id, state)
    return board


def test_every_state_is_told_with_zeros() -> None:
    found = samples(filled(RUNNING))
    states = {status: found[key("federation_agent_link_state", state=status)] for status in Status}
    assert states == {status: float(status is Status.RUNNING) for status in Status}


def test_counters_and_gauges() -> None:
    found = samples(filled(RUNNING))
    assert found[key("federation_agent_forwarded_messages_total")] == 3
    assert found[key("federation_agent_forwarded_bytes_total")] == 300
    assert found[key("federation_agent_returned_messages_total")] == 1
    assert found[key("federation_agent_dropped_messages_total", reason="max_hops")] == 2
    assert found[key("federation_agent_dropped_messages_total", reason="visited")] == 0
    assert found[key("federation_agent_in_flight_messages")] == 7
    assert found[key("federation_agent_bindings")] == 2
    assert found[key("federation_agent_prefetch")] == 1000
    about = frozenset({"version": "0.1.0", "agent": "dc2-a", "group": "dc2"}.items())
    assert found["federation_agent_info", about] == 1


def test_histograms_and_what_is_not_known() -> None:
    board = filled(RUNNING)
    [entry] = board
    entry.meter.transfer.observe(0.02, 3)
    entry.meter.binding_sync.observe(99)
    found = samples(board)
    name = "federation_agent_transfer_seconds"
    assert [found[key(f"{name}_bucket", le=bound)] for bound in ("0.01", "0.025", "+Inf")] == [0, 3, 3]
    assert (found[key(f"{name}_count")], found[key(f"{name}_sum")]) == (3, 0.06)
    assert found[key("federation_agent_binding_sync_seconds_bucket", le="30.0")] == 0
    assert found[key("federation_agent_binding_sync_seconds_count")] == 1
    assert key("federation_agent_backlog_messages") not in found
    assert key("federation_agent_last_confirm_timestamp_seconds") not in found
    assert found[key("federation_agent_reconnects_total", side="upstream", reason="lost")] == 0


def test_names_are_anybody_s() -> None:
    board = Board(Clock(), "dc2-a")
    odd = 'a "b"\\ c\nd ü \ud800'
    board.put(replace(LINK, name=odd), RUNNING, Counts(), Gauges)
    told = {labels for name, labels in samples(board) if name == "federation_agent_prefetch"}
    assert told == {frozenset({**OF_LINK, "name": odd.replace("\ud800", "?")}.items())}


def test_where_browsers_reach_the_page_is_told_only_where_it_is_known() -> None:
    board = Board(Clock(), "dc2-a")
    assert "federation_agent_public_url_info" not in {name for name, _ in samples(board)}
    board.public_url = "https://ops.example/fed"
    assert samples(board)["federation_agent_public_url_info", frozenset({("url", board.public_url)})] == 1


def test_links_with_equal_labels_are_summed() -> None:
    found = samples(filled(RUNNING, BROKEN))
    assert found[key("federation_agent_forwarded_messages_total")] == 6
    assert found[key("federation_agent_dropped_messages_total", reason="max_hops")] == 4
    assert found[key("federation_agent_link_state", state="running")] == 1
    assert found[key("federation_agent_link_state", state="backoff")] == 1


def test_old_dashboards_find_their_numbers() -> None:
    found = samples(filled(RUNNING, BROKEN, RUNNING))
    told = {
        status: found["rabbitmq_federation_links", frozenset({("status", status)})] for status in native.LINK_STATES
    }
    assert told == {"starting": 0, "running": 2, "error": 1, "shutdown": 0}


def test_no_address_and_no_error_shows() -> None:
    text = exposed(filled(BROKEN))
    assert "s3ntinel" not in text
    assert "amqp://" not in text
    assert "connection refused" not in text


async def test_messages_have_their_turn_while_many_links_are_told() -> None:
    board = filled(*[RUNNING] * 200, are_alike=False)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    pieces = await metrics.exposition(board)
    counting.cancel()
    assert turns >= 3  # a slice takes 2 ms
    assert max(map(len, pieces)) < 1024**2


def test_links_that_stand_still_are_counted_by_the_side_that_is_the_cause() -> None:
    """An upstream has its name there, whatever its address is; links that run, or are paused, count nowhere."""
    paused = replace(RUNNING, paused=True)
    found = samples(filled(BLOCKED, BLOCKED, LOST[Side.UPSTREAM], LOST[Side.DOWNSTREAM], RUNNING, paused))
    told = {labels: value for (name, labels), value in found.items() if name == STUCK.name}
    of_link = {"vhost": "/", "upstream": "origin"}
    assert told == {
        frozenset({"side": side, "trouble": trouble, **of_link}.items()): number
        for side, trouble, number in (
            ("downstream", "memory alarm", 2),
            ("upstream", "connection lost", 1),
            ("downstream", "failing", 1),
        )
    }


def test_unexpected_errors_are_counted_by_task_from_zero_on() -> None:
    board = filled(RUNNING)
    board.errors.expect("follow bindings")
    task = "federation_agent_unexpected_errors_total", frozenset({("task", "follow bindings")})
    assert samples(board)[task] == 0
    board.errors.report("follow bindings", ValueError())
    assert samples(board)[task] == 1


def many(count: int, *, upstreams: int = 10, vhosts: int = 1, lag: float | None = None, longer: int = 0) -> Board:
    """Links that have seen nights: lost connections, alarms, messages given back, dropped and returned."""
    clock = Clock()
    board = Board(clock, "dc2-a", monotonic=clock, version="0.1.0", group="dc2")
    for number in range(count):
        link = replace(
            LINK,
            id=f"{number:08x}",
            vhost=f"v{number // upstreams % vhosts}" if vhosts > 1 else "/",
            name=f"orders.region-{number:04d}{'.' * longer}",
            upstream=f"dc{number % upstreams}",
        )
        counts = Counts(
            forwarded=12_345_678 + number,
            bytes=123_456_789_012 + number,
            redelivered=1_234,
            returned=17,
            dropped={"max_hops": 321, "visited": 12},
        )
        gauges = Gauges(in_flight=700, bindings=2, prefetch=1000, backlog=44_123, oldest_in_flight=1.23456789, lag=lag)
        board.put(link, LinkState(), counts, lambda gauges=gauges: gauges)  # type: ignore[misc]
    for at, state in HISTORY:
        clock.now = BEGAN + at
        for entry in board:
            board.changed(entry.link.id, state)
    for entry in board:
        entry.last_confirm = clock.now - 0.123456
    return board


LAYOUTS = {
    "ten upstreams": {},
    "with probes": {"lag": 1.2345},
    "of many vhosts": {"upstreams": 20, "vhosts": 20},
    "as many as http.md allows": {"upstreams": 100, "vhosts": 3, "lag": 1.2345},
    "with names as long as http.md allows": {"upstreams": 60, "vhosts": 4, "lag": 1.2345, "longer": 16},
}


STATES = (BLOCKED, LOST[Side.UPSTREAM], RUNNING)
LAYOUTS_AND_STATES = [
    pytest.param(
        layout,
        state,
        id=f"{name}-{state.status}",
        marks=pytest.mark.thorough if (row + column) % len(STATES) else (),  # soon: each layout, and each state
    )
    for (row, (name, layout)), (column, state) in product(enumerate(LAYOUTS.items()), enumerate(STATES))
]


@pytest.mark.parametrize(("layout", "state"), LAYOUTS_AND_STATES)
def test_a_thousand_links_in_trouble_or_after_it_have_less_than_two_megabytes_of_metrics(
    layout: dict[str, Any], state: LinkState
) -> None:
    board = many(1_000, **layout)
    for entry in board:
        board.changed(entry.link.id, state)
    text = exposed(board, Form(is_brief=True))
    assert len(text.encode()) < 2_000_000
    assert names_in(text) - {STUCK.name} == names_in(exposed(many(20, lag=layout.get("lag"))))


def names_in(text: str) -> set[str]:
    """Of all samples: a parser takes longer for a thousand links than they do."""
    return {re.split("[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}


def test_of_states_brief_metrics_have_those_that_rules_need() -> None:
    board = many(1)
    of_state = "federation_agent_link_state"

    def states() -> dict[str, float]:
        text = exposed(board, Form(is_brief=True))
        [family] = [each for each in text_string_to_metric_families(text) if each.name == of_state]
        return {sample.labels["state"]: sample.value for sample in family.samples}

    assert states() == {"running": 1, "starting": 0}
    board.changed("00000000", BROKEN)
    assert states() == {"running": 0, "backoff": 1}
    board.changed("00000000", LinkState(started=True, paused=True))
    assert states() == {"running": 0, "starting": 0, "paused": 1}
    assert len([line for line in exposed(board).splitlines() if line.startswith(of_state)]) == len(Status)


def test_a_thousand_links_are_brief_where_histograms_are_of_upstreams() -> None:
    board = many(1_000)
    began = process_time()
    text = exposed(board, Form(is_brief=True))
    spent = process_time() - began
    assert len(text.encode()) < 2_000_000 < len(exposed(board).encode())
    assert spent < 1.0  # it takes 0.15 s where nothing else runs


def test_brief_metrics_leave_out_counters_of_links_that_are_zero() -> None:
    usual, brief = filled(RUNNING), filled(RUNNING)
    found, rest = (
        {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
        for text in (exposed(usual), exposed(brief, Form(is_brief=True)))
    )
    assert found - rest == {
        "federation_agent_reconnects_total",
        "federation_agent_blocked_seconds_total",
        "federation_agent_oldest_unconfirmed_seconds",
    }


def test_what_is_of_upstreams_is_the_sum_of_their_links() -> None:
    board = many(20)
    board["00000000"].meter.transfer.observe(0.02, 3)
    board["0000000a"].meter.transfer.observe(0.02, 4)
    text = exposed(board, Form(is_brief=True))
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    name = {"upstream": "dc0"}
    assert found["federation_agent_transfer_seconds_count", frozenset(name.items())] == 7
    assert found["federation_agent_transfer_seconds_bucket", frozenset({**name, "le": "+Inf"}.items())] == 7
    labels = {"kind": "exchange", "vhost": "/", "upstream": "dc0"}
    assert found["federation_agent_in_flight_messages", frozenset(labels.items())] == 1_400
    assert found["federation_agent_returned_messages_total", frozenset(labels.items())] == 34
    assert (
        found["federation_agent_quarantined_messages_total", frozenset({**labels, "reason": "too_large"}.items())] == 0
    )


def test_sums_of_upstreams_keep_what_links_counted_that_are_gone_or_were_made_anew() -> None:
    """A counter that falls looks as if it had begun again: the sum of all others would be an increase."""
    board = filled(RUNNING, RUNNING, RUNNING)
    for entry in board:
        entry.meter.transfer.observe(0.02, 3)
    before = exposed(board, Form(is_brief=True))
    board.gone("00000000")
    standing = board["00000001"]
    board.put(standing.link, RUNNING, Counts(), Gauges)

    def counters(text: str) -> dict[tuple[str, str], float]:
        return {
            (sample.name, sample.labels.get("reason", sample.labels.get("le", ""))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.name.removeprefix("federation_agent_")
            in {"dropped_messages", "returned_messages", "transfer_seconds"}
            and not sample.name.endswith("_created")
        }

    assert counters(before)["federation_agent_returned_messages_total", ""] == 3
    assert counters(before)["federation_agent_transfer_seconds_count", ""] == 9
    assert counters(exposed(board, Form(is_brief=True))) == counters(before)


@pytest.mark.parametrize("is_brief", [False, True])
def test_openmetrics_holds_the_same(is_brief: bool) -> None:
    board = filled(RUNNING, BROKEN)
    plain = {
        sample.name
        for f in text_string_to_metric_families(exposed(board, Form(is_brief=is_brief)))
        for sample in f.samples
    }
    text = exposed(board, Form(is_open=True, is_brief=is_brief))
    assert text.endswith("# EOF\n")
    families = open_families(text)  # type: ignore[no-untyped-call]
    assert {sample.name for family in families for sample in family.samples} == plain


def test_the_first_of_several_alike_is_told() -> None:
    told = expiries(
        (
            Expiry(Peer.UPSTREAM, Credential.SERVER, 300.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.UPSTREAM, Credential.SERVER, 200.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.UPSTREAM, Credential.CLIENT, 100.0, vhost='a"b', upstream="origin"),
            Expiry(Peer.DOWNSTREAM, Credential.JWT, 50.5),
        )
    ).decode()
    found = {
        (sample.name, sample.labels["peer"], sample.labels["vhost"], sample.labels.get("certificate")): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }
    certificate, token = (
        "federation_agent_certificate_expiry_timestamp_seconds",
        "federation_agent_token_expiry_timestamp_seconds",
    )
    assert found == {
        (certificate, "upstream", 'a"b', "server"): 200.0,
        (certificate, "upstream", 'a"b', "client"): 100.0,
        (token, "downstream", "", None): 50.5,
    }
