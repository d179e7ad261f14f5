"""What keeps definitions out of force, and what is in force and not run."""

from __future__ import annotations

from agent.definitions.sources.keeper import Keeper
from agent.errors import Place, Problem, Severity
from agent.runtime.problems import Problems
from agent.status.board import Board
from agent.status.metrics import exposition
from agent.status.views import overview

NOT_RUN = Problem(Place("agent.yaml", 3, 1), "the set is empty, so it defines no link", Severity.NOT_RUN)
WARNING = Problem(Place("agent.yaml", 4, 1), "odd", Severity.WARNING)


async def test_definitions_that_are_not_run_are_shown_apart_and_counted() -> None:
    board = Board(lambda: 0.0, "a")
    problems = Problems(board, Keeper())
    problems.note(["a remark"], [NOT_RUN, WARNING, NOT_RUN])
    assert overview(board)["not_run"] == ["agent.yaml:3:1: not run: the set is empty, so it defines no link"]
    details = {"place": "agent.yaml:3:1", "message": "the set is empty, so it defines no link"}
    assert overview(board)["not_run_details"] == [details]
    assert board.notes == ("a remark", "agent.yaml:4:1: warning: odd")
    assert overview(board)["reload_success"]
    assert b"federation_agent_definitions_not_run 1\n" in b"".join(await exposition(board)).replace(b"1.0", b"1")
    problems.note([], [])
    assert board.not_run == ()
