"""Numbers of things as people read them: 1,000 links, 1 link."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def waiting_text(messages: int, where: str = "", *, is_exact: bool) -> str:
    """How many messages wait; not `is_exact` where that isn't known of some links, or not any more."""
    there = f" {where}" if where else ""
    if messages:
        return f"{'' if is_exact else 'at least '}{counted(messages, 'message waits', 'messages wait')}{there}"
    return f"no messages wait{there}" if is_exact else f"how many messages wait{there} is not known"
