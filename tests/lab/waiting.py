"""The one way in which tests wait: for a condition, with a deadline."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception_type, retry_if_not_result
from tenacity.stop import stop_after_delay

DEADLINE = 120.0  # long enough on any machine; what the product promises sooner has a deadline of its own
ATTEMPTS = 3
INTERVAL = 0.02  # between two questions at first
LONGEST_INTERVAL = 0.1  # a long wait asks brokers and logs no thousand times
GROWTH = 0.05  # of what was waited

T = TypeVar("T")


class NeverHappenedError(AssertionError):
    """What a test waited for did not come true before its deadline."""

    def __init__(self, what: str, deadline: float, last: object) -> None:
        super().__init__(f"{what}: not within {deadline:g} s; the last answer was {last!r}")


def eventually(
    condition: Callable[[], T],
    deadline: float = DEADLINE,
    *,
    what: str = "condition",
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Ask until the answer is truthy, then return it; exceptions in `ignoring` count as a no."""
    return Retrying(**_until_true(deadline, what, ignoring))(condition)


def holds_within(seconds: float, attempt: Callable[[], float]) -> None:
    """What is promised in seconds: one attempt of three takes fewer. A machine that stands still makes some slower."""
    took: list[float] = []
    while len(took) < ATTEMPTS and (not took or took[-1] >= seconds):
        took.append(attempt())
    assert took[-1] < seconds, took


async def eventually_async(
    condition: Callable[[], Awaitable[T]],
    deadline: float = DEADLINE,
    *,
    what: str = "condition",
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """`eventually` for a coroutine function."""
    return await AsyncRetrying(**_until_true(deadline, what, ignoring))(condition)


def _until_true(deadline: float, what: str, ignoring: type[Exception] | tuple[type[Exception], ...]) -> dict[str, Any]:
    def give_up(state: RetryCallState) -> NoReturn:
        assert state.outcome is not None
        raise NeverHappenedError(what, deadline, state.outcome.exception() or state.outcome.result())

    return {
        "retry": retry_if_not_result(bool) | retry_if_exception_type(ignoring),
        "stop": stop_after_delay(deadline),
        "wait": _interval,
        "retry_error_callback": give_up,
    }


def _interval(state: RetryCallState) -> float:
    waited = state.seconds_since_start or 0.0
    return min(max(INTERVAL, waited * GROWTH), LONGEST_INTERVAL)
