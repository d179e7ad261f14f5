"""`status`: what fits a terminal, and what comes first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import pytest

from agent.cli.remote import Remote, RemoteError
from agent.cli.status import acknowledge, screen, show_status, wait_until_fine, watch_status

VERDICT: Final = "DOWN: dc2 (downstream): memory alarm for 4 min, 6 of 13 links blocked, 849 messages wait upstream"
SIZE: Final = os.terminal_size((80, 24))


def overview(**more: Any) -> dict[str, Any]:
    about = {"agent": "dc2-a", "group": "dc2", "version": "1", "cluster": "dc2", "problems": [], "not_run": []}
    return {**about, "links": {"running": 2_000, "blocked": 6, "paused": 0}, **more}


def causes(count: int, *, messages: int = 849, is_exact: bool = True, length: int = 1) -> dict[str, Any]:
    of_each = [
        {
            "broker": f"dc{number}",
            "side": "upstream",
            "headline": "permission missing for 2 d, 200 of 1,000 links down",
            "error": f"upstream dc{number}: access to exchange 'orders' in vhost '/' refused for user 'u'" * length,
            "advice": f"On dc{number}, run `rabbitmqctl set_permissions -p / u '^federation' '.*' '.*'`, or with "
            "narrower expressions for configure, write and read. This replaces what there is, so repeat what stays.",
        }
        for number in range(count)
    ]
    return {"causes": of_each, "waiting": {"messages": messages, "is_exact": is_exact}}


def test_watching_shows_each_second_whether_the_agent_answers(capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []

    def sleep(pause: float) -> None:
        slept.append(pause)
        if len(slept) == 2:
            raise KeyboardInterrupt

    for form in ("text", "yaml"):
        slept.clear()
        watch_status(Remote("http://127.0.0.1:1", None), form, sleep=sleep)
    told = "agent http://127.0.0.1:1: connection refused: check the address and that the agent runs"
    first, second, *data = capsys.readouterr().out.splitlines()
    assert (first, second) == (f"DOWN: {told}",) * 2
    assert data.count("level: down") == 2


def rows(lines: list[str], width: int = 80) -> int:
    return sum(-(-len(line) // width) for line in lines)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 40])
def test_a_terminal_shows_the_verdict_and_the_most_important_causes(count: int) -> None:
    lines = screen(VERDICT, overview(), causes(count), SIZE)
    assert rows(lines) < SIZE.lines
    assert lines[0] == VERDICT
    assert any(line.startswith("  dc0 (upstream)") for line in lines)
    assert any(line.startswith("    do: On dc0, run `rabbitmqctl set_permissions") for line in lines)
    named = sum(line.startswith("  dc") for line in lines)
    if named < count:
        assert lines[-1].startswith(f"  and {count - named} more cause")


def test_five_causes_are_all_named_on_one_screen_and_the_first_with_what_to_do() -> None:
    lines = screen(VERDICT, overview(), causes(5), SIZE)
    assert [line[2:5] for line in lines if line.startswith("  dc")] == [f"dc{number}" for number in range(5)]
    assert lines[-1] == "  what to do about all: see the page or `status --format json`"


def test_an_error_of_any_length_leaves_room_for_what_to_do() -> None:
    lines = screen(VERDICT, overview(), causes(5, length=100), SIZE)
    assert rows(lines) < SIZE.lines
    assert any(line.startswith("    do: On dc0") for line in lines)


def test_problems_leave_room_for_causes() -> None:
    about = overview(problems=[f"a file is wrong {number} " * 20 for number in range(9)], not_run=["x" * 300] * 9)
    lines = screen(VERDICT, about, causes(5), SIZE)
    assert rows(lines) < SIZE.lines
    assert any(line.startswith("    do: On dc0") for line in lines)
    assert sum("more: --format json has all" in line for line in lines) == 2


def test_what_is_not_run_comes_before_its_place_which_may_be_cut_off() -> None:
    place, message = "/etc/federation-agent/agent.yaml:25:3", "upstream 'dc: not run: 9' is not defined"
    older = overview(not_run=[f"{place}: not run: {message}"])
    about = {**older, "not_run_details": [{"place": place, "message": message}]}
    assert f"not run     {message} ({place})" in screen(VERDICT, about, causes(1), None)
    assert f"not run     {place}: not run: {message}" in screen(VERDICT, older, causes(1), None)


def test_a_program_gets_all_of_it() -> None:
    lines = screen(VERDICT, overview(), causes(5), None)
    assert sum(line.startswith("    do: ") for line in lines) == 5
    assert "links       2,000 running, 6 blocked" in lines


@pytest.mark.parametrize(
    ("messages", "is_exact", "text"),
    [
        (0, True, "no messages"),
        (0, False, "not known"),
        (42_013, False, "at least 42,013 messages"),
        (1, True, "1 message"),
    ],
)
def test_what_waits_is_a_number_only_where_one_is_known(messages: int, is_exact: bool, text: str) -> None:
    lines = screen(VERDICT, overview(), causes(0, messages=messages, is_exact=is_exact), SIZE)
    assert f"waiting     {text}" in lines


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ({"messages": 0, "is_exact": True, "unseen": 0}, []),
        ({"messages": None, "is_exact": False, "unseen": 0}, []),
        ({"messages": 1, "is_exact": True, "unseen": 0}, ["1 message"]),
        ({"messages": 1_200, "is_exact": False, "unseen": 9}, ["at least 1,200 messages"]),
        (
            {"messages": 0, "is_exact": False, "unseen": 2},
            ["not known; 2 messages put there since the agent started"],
        ),
    ],
)
def test_messages_in_quarantine_have_a_line_of_their_own(found: dict[str, Any], shown: list[str]) -> None:
    lines = screen(VERDICT, overview(quarantine=found), causes(0), None)
    expected = [f"quarantine  {text}: federation-agent quarantine list -c FILE" for text in shown]
    assert [line for line in lines if line.startswith("quarantine")] == expected


def test_a_standby_and_a_move_have_a_line_each() -> None:
    standby = {"of": "origin", "in_step": False, "why_not": ["a link doesn't work", "another reason"]}
    move = {"queues": 12, "not_working": 1, "waiting": 1_204, "waiting_is_exact": False}
    lines = screen(VERDICT, overview() | {"standby": standby, "move": move}, causes(0), None)
    assert "standby     not in step with upstream 'origin': a link doesn't work" in lines
    assert "move        of 12 queues, 1 link not working; at least 1,204 messages at the source" in lines
    lines = screen(VERDICT, overview() | {"standby": standby | {"in_step": True, "why_not": []}}, causes(0), None)
    assert "standby     in step with upstream 'origin'" in lines
    assert not any(line.startswith("move") for line in screen(VERDICT, overview(), causes(0), None))


def test_a_cause_names_some_of_its_links() -> None:
    found = causes(1)
    found["causes"][0] |= {"links": ["a", "b", "c", "d"], "names": ["//orders", "//cart", "shop/x"]}
    told = "\n".join(screen(VERDICT, overview(), found, None))
    assert f"{found['causes'][0]['headline']}: //orders, //cart, shop/x, …\n" in told


class Answering(Remote):
    """An agent that answers with one level after another, the last one for ever; None is no answer."""

    def __init__(self, *levels: str | None, quarantine: Mapping[str, Any] | None = None) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self.levels, self.quarantine = [*levels], quarantine

    def overview(self) -> dict[str, Any]:
        if self.levels[0] is None:
            self.levels.pop(0)
            raise RemoteError("nothing answers")
        return overview(ready=True, quarantine=self.quarantine)

    def causes(self) -> dict[str, Any]:
        level = self.levels.pop(0) if len(self.levels) > 1 else self.levels[0]
        return {**causes(0), "verdict": "1 link", "level": level}


@pytest.mark.parametrize(
    ("levels", "waited"),
    [(["fine"], 0), ([None, "starting", "down", "fine"], 3), (["starting"], 5)],
)
def test_it_waits_until_all_is_fine_and_no_longer_than_it_was_told(levels: list[str | None], waited: float) -> None:
    slept: list[float] = []
    wait_until_fine(Answering(*levels), timeout=5.5, now=lambda: sum(slept), sleep=slept.append)
    assert sum(slept) == waited


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"messages": 0, "is_exact": True, "unseen": 0}, "FINE: 1 link"),
        ({"messages": 2, "is_exact": True, "unseen": 0}, "DEGRADED: 2 messages in quarantine; 1 link"),
        ({"messages": None, "is_exact": False, "unseen": 1}, "DEGRADED: 1 message put in quarantine; 1 link"),
        ({"messages": 0, "is_exact": False, "unseen": 2}, "DEGRADED: 2 messages put in quarantine; 1 link"),
        ({"messages": None, "is_exact": False, "unseen": 0}, "FINE: 1 link"),
        (None, "FINE: 1 link"),
    ],
)
def test_nothing_is_fine_with_messages_in_quarantine_also_where_nobody_may_look(
    found: dict[str, Any] | None, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = show_status(Answering("fine", quarantine=found), "text")
    assert (capsys.readouterr().out.splitlines()[0], status) == (verdict, int(verdict.startswith("DEGRADED")))


def test_a_cause_has_its_id_and_who_knows_of_it() -> None:
    found = causes(2)
    text = "acknowledged by ann@ops at 2026-11-25 08:12 UTC: disk is ordered"
    found["causes"][1] |= {"id": "5e6f7a8b", "acknowledged": {"by": "ann@ops", "text": text}}
    lines = screen(VERDICT, overview(), found, None)
    at = next(at for at, line in enumerate(lines) if line.startswith("  5e6f7a8b  dc1 (upstream): permission missing"))
    assert lines[at + 1] == f"    {text}"
    assert any(line.startswith("  dc0 (upstream)") for line in lines), "of an older agent"


class Known(Remote):
    """An agent with these causes, and what it is asked for."""

    def __init__(self, *ids: str) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self.ids, self.asked = ids, list[tuple[str, Any]]()

    def causes(self) -> dict[str, Any]:
        return {"causes": [{"id": each} for each in self.ids]}

    def acknowledge(self, cause_id: str, about: Mapping[str, Any] | None) -> dict[str, Any] | None:
        self.asked.append((cause_id, about))
        known = None if about is None else {"text": f"acknowledged by {about['by']}"}
        return {"broker": "dc1", "side": "upstream", "headline": "unreachable", "acknowledged": known}


def ack(remote: Known, named: str, **more: Any) -> bool:
    return acknowledge(remote, named, **({"for_": None, "reason": "", "undo": False, "as_json": False} | more))


def test_a_cause_is_acknowledged_by_the_beginning_of_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    remote = Known("5e6f7a8b", "5e000000", "1a2b3c4d")
    assert ack(remote, "1a", for_=7_200.0, reason="known")
    assert ack(remote, "5e6f7a8b", undo=True)
    [(first, about), second] = remote.asked
    assert (first, about["reason"], about["for"], "@" in about["by"]) == ("1a2b3c4d", "known", 7_200.0, True)
    assert second == ("5e6f7a8b", None)
    assert capsys.readouterr().out.splitlines() == [
        f"1a2b3c4d acknowledged by {about['by']}: dc1 (upstream): unreachable",
        "5e6f7a8b acknowledged by nobody: dc1 (upstream): unreachable",
    ]
    assert not ack(remote, "5e")
    assert not ack(remote, "ffffffff")
    told = capsys.readouterr().err
    assert "2 causes begin with '5e'; `status` lists them" in told
    assert "no cause has the id 'ffffffff'; `status` lists them" in told
    assert len(remote.asked) == 2
