"""How much a thing holds, and how much is done: numbers that are the same on every machine, however busy it is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any


def objects_of(thing: object) -> int:
    """How many objects it leads to. What a dict has allocated and doesn't use any more isn't counted."""
    found: set[int] = set()
    left: list[Any] = [thing]
    while left:
        each = left.pop()
        if id(each) not in found and not isinstance(each, type | ModuleType | FunctionType | MethodType):
            found.add(id(each))
            left.extend(gc.get_referents(each))
    return len(found)


def calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions it takes, and steps of generators."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
