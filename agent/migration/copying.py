"""Makes at the target what it lacks, a few at a time. What is there already is found, so it can be repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from agent.core.migration.difference import MigrationAction, needs
from agent.core.migration.objects import ObjectKey, ObjectKind
from agent.errors import PermanentError, TransientError
from agent.management.declaring import DeclaringClient
from agent.management.transport import NotTakenError

AT_A_TIME: Final = 8
MOST_FAILURES: Final = 5
"""Requests that fail and may be taken later; after so many the target is left alone."""


@dataclass(slots=True)
class CopyAccount:
    """What became of the actions: done by kind, or left with a reason each."""

    done: Counter[ObjectKind] = field(default_factory=Counter)
    left: dict[ObjectKey, str] = field(default_factory=dict)
    failed: set[ObjectKey] = field(default_factory=set)
    """Of what is left, that which the target may take the next time: it didn't refuse it."""
    failures: int = 0


async def copy(target: DeclaringClient, actions: Sequence[MigrationAction]) -> CopyAccount:
    """The actions have to be in order. Raises TransientError once the target fails again and again."""
    account = CopyAccount()
    for _, phase in groupby(actions, key=lambda action: action.key.kind):
        waiting = list(reversed(list(phase)))

        async def work(left: list[MigrationAction] = waiting) -> None:
            while left:
                await _declare(target, left.pop(), account)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_A_TIME):
                    group.create_task(work())
        except* TransientError as failures:
            raise failures.exceptions[0] from None
    return account


async def _declare(target: DeclaringClient, action: MigrationAction, account: CopyAccount) -> None:
    key = action.key
    missing = next((each for each in needs(key) if each in account.left), None)
    if missing is not None:
        account.left[key] = f"it needs {missing}, which was refused"
        account.failed.add(key)
        return
    try:
        await target.declare(key, action.body)
    except NotTakenError as error:
        account.left[key] = error.reason
    except PermanentError as error:
        account.left[key] = str(error)
    except TransientError as error:
        account.left[key] = str(error)
        account.failed.add(key)
        account.failures += 1
        if account.failures >= MOST_FAILURES:
            raise
    else:
        account.done[key.kind] += 1
