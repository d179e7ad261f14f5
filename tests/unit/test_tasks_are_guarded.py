"""Every task of the agent is made where its errors are seen; this reads the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

AGENT: Final = Path(__file__).parents[2] / "agent"
MAKES_TASKS: Final = frozenset({"create_task", "ensure_future", "TaskGroup", "run_coroutine_threadsafe"})
ALLOWED: Final = {
    ("tasks.py", "GuardedTasks._start"): "the helper",
    ("tasks.py", "run_until_first"): "the helper",
    ("tasks.py", "gather_both"): "awaits both",
    ("amqp/wire/connection.py", "WireConnection._expect"): "awaits a method of the peer, or the end",
    ("amqp/connect.py", "first_to_answer"): "awaits them all",
    ("amqp/connection_pool.py", "Pool.acquire"): "awaited by everybody who wants the connection",
    ("links/exchange/link.py", "ExchangeSession.open"): "awaits the connections and the flow",
    ("migration/copying.py", "copy"): "awaits all, and raises the first error",
    ("migration/switching.py", "SwitchingOver._each"): "awaits all, and raises the first error",
    ("migration/copying.py", "_in_any_case"): "awaits it, also once it is cancelled",
}


def makers(source: str) -> Iterator[str]:
    """The functions that make tasks, by their full names."""

    def look(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*inside, node.name)
        called = node.func if isinstance(node, ast.Call) else None
        is_class = isinstance(called, ast.Attribute) and called.attr == "Task"
        if is_class or (isinstance(node, ast.Attribute) and node.attr in MAKES_TASKS):
            yield ".".join(inside)
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            assert not MAKES_TASKS & {each.name for each in node.names}, "call it by the name of its module"
        for child in ast.iter_child_nodes(node):
            yield from look(child, inside)

    return look(ast.parse(source), ())


def test_no_task_is_made_elsewhere_and_what_is_allowed_exists() -> None:
    sources = {str(path.relative_to(AGENT)): path.read_text() for path in AGENT.rglob("*.py")}
    named = re.compile("|".join((*MAKES_TASKS, "Task")))  # most files name none, and needn't be parsed
    found = {(path, maker) for path, source in sources.items() if named.search(source) for maker in makers(source)}
    assert found - ALLOWED.keys() == set(), "use agent.tasks.GuardedTasks, or `run_until_first` for parts of one task"
    assert ALLOWED.keys() - found == set()


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())",
        "asyncio.get_running_loop().create_task(work())",
        "self._loop.create_task(work())",
        "start = loop.create_task",
        "async with asyncio.TaskGroup() as group: pass",
        "asyncio.ensure_future(work())",
        "asyncio.Task(work())",
    ],
)
def test_every_way_to_make_one_is_found(line: str) -> None:
    source = f"class Link:\n    async def open(self):\n        {line}\n"
    assert set(makers(source)) == {"Link.open"}
