"""What a test has made on brokers that all tests share, and has yet to remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

OWNERS: Final = frozenset({"users", "vhosts"})
"""The first parts of paths in the HTTP API: of objects that take with them, when removed, what belongs to them."""
WATCHED: Final = OWNERS | {
    "global-parameters",
    "operator-policies",
    "parameters",
    "permissions",
    "policies",
    "topic-permissions",
    "user-limits",
    "vhost-limits",
}
"""And of those that outlive a connection and may change other tests."""

UNSHARED: Final = (("cluster-name",), ("global-parameters", "federation-agent"))
"""What other tests' agents would follow at once."""

Path = tuple[str, ...]


class LeftBehindError(AssertionError):
    """A test that leaves something on a shared broker fails, rather than the tests after it."""


class Leftovers:
    """Those of one worker, on all brokers; a broker goes by its address."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Path], Callable[[], bool]] = {}
        self._alarms: dict[str, Callable[[], str]] = {}
        self._of_tests = True

    def made(self, broker: str, path: Path, remove: Callable[[], bool]) -> None:
        """`remove` tells whether it was still there."""
        if path in UNSHARED:
            self._made[broker, path] = remove
            raise LeftBehindError(f"other tests follow {'/'.join(path)} of this broker: take one with `borrowed`")
        if self._of_tests and path[0] in WATCHED:
            self._made[broker, path] = remove

    def removed(self, broker: str, path: Path) -> None:
        self._made.pop((broker, path), None)
        if path[0] in OWNERS:
            gone = [each for each in self._made if each[0] == broker and path[1] in each[1][1:]]
            for each in gone:
                del self._made[each]

    def commanded(self, broker: str, alarms: Callable[[], str]) -> None:
        """A command may have done anything in a broker; `alarms` tells those in force, or nothing."""
        self._alarms[broker] = alarms

    @contextmanager
    def of_many_tests(self) -> Iterator[None]:
        """What is made meanwhile is no single test's."""
        before, self._of_tests = self._of_tests, False
        try:
            yield
        finally:
            self._of_tests = before

    def check(self) -> None:
        """Raises where something is left of what was made since the last check; and removes it, but for alarms.

        A user harms nobody, so users may be left to this.
        """
        left = []
        for broker, path in sorted(self._made, key=lambda each: each[1][0] not in OWNERS):
            remove = self._made.pop((broker, path), None)  # gone where its owner was removed just now
            if remove is not None and remove() and path[0] != "users":
                left.append(f"{'/'.join(path)} on {broker}")
        alarms, self._alarms = self._alarms, {}
        left += [f"{found} on {broker}" for broker, tell in alarms.items() if (found := tell())]
        if left:
            raise LeftBehindError(f"left on brokers that all tests share: {', '.join(left)}")
