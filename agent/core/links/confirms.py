"""Publish numbers downstream ↔ delivery tags upstream: what may be acknowledged, and when; of a stream, delivery tags ↔
offsets: how far it has been copied.

Delivery tags of a channel with one consumer are 1, 2, 3 …, so everything up to the lowest unsettled tag can be
acknowledged at once. A broker refuses `multiple` on a tag that is already settled; the tag returned here never is.
Deliveries that wait to be returned must not be acknowledged along with others: while any waits, or is published again,
those after it are acknowledged one by one. Offsets grow, and leave out what holds no message, so runs of both are kept,
not each message.

Why: docs/decisions/0015-tags-in-order.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

FEW: Final = 10_000


class NeverPublishedError(ValueError):
    """A confirm of a number that was never published: it is unknown which messages the broker accepted."""


class Confirms:
    """One link's deliveries from arrival to settlement; each is settled exactly once."""

    __slots__ = (
        "_acknowledgeable", "_again", "_few", "_held", "_lowest", "_many", "_next_number", "_oldest", "_ready",
        "_settled", "_singly", "_spans", "_tags",
    )  # fmt: skip

    def __init__(self, few: int = FEW) -> None:
        """More than `few` deliveries that are settled out of order are put together."""
        self._few = self._many = few
        self._next_number = 1
        self._oldest = 1  # no smaller publish number is outstanding
        self._tags: dict[int, int] = {}  # publish number -> delivery tag, outstanding only
        self._lowest = 1  # the lowest delivery tag that isn't settled
        self._settled: dict[int, bool] = {}  # tag above `_lowest` -> to be acknowledged (True) or settled (False)
        self._spans: dict[int, int] = {}  # of those that are settled, where there are many: the first -> the one after
        self._acknowledgeable = 0  # the highest tag below `_lowest` that is to be acknowledged, or was
        self._ready = 0  # how many tags up to that one are to be acknowledged with it
        self._held: set[int] = set()  # to be returned or published again, some time
        self._again: set[int] = set()  # were held, and are published again
        self._singly: list[int] = []  # settled behind one that is held

    @property
    def in_flight(self) -> int:
        """The number of deliveries that are published and neither confirmed nor refused."""
        return len(self._tags)

    @property
    def unconfirmed(self) -> Collection[int]:
        """The deliveries that are in flight."""
        return self._tags.values()

    @property
    def held(self) -> int:
        """The number of deliveries that are neither acknowledged nor returned yet, although no confirm will arrive for
        them."""
        return len(self._held)

    @property
    def settled(self) -> int:
        """The delivery up to which each is settled."""
        return self._lowest - 1

    @property
    def unacknowledged(self) -> int:
        """The number of deliveries that are confirmed and not yet returned by `acknowledge`: an earlier one isn't
        settled, or nobody has called it."""
        return sum(self._settled.values()) + len(self._singly) + self._ready

    @property
    def outstanding(self) -> int:
        """The number of deliveries that their source hears nothing of yet: they take places of its prefetch."""
        return self.in_flight + self.held + self.unacknowledged

    @property
    def oldest_number(self) -> int:
        """The number of the publish that has waited longest for its confirm; the next one if none waits."""
        while self._oldest < self._next_number and self._oldest not in self._tags:
            self._oldest += 1
        return self._oldest

    @property
    def next_number(self) -> int:
        """The number of the next publish."""
        return self._next_number

    def published(self, tags: Collection[int]) -> int:
        """Deliveries were published, in this order; returns the publish number of the last."""
        first = self._next_number
        self._next_number = first + len(tags)
        self._tags.update(zip(range(first, self._next_number), tags, strict=True))
        return self._next_number - 1

    def published_again(self, tags: Collection[int]) -> int:
        """Deliveries that were held were published once more; returns the publish number of the last."""
        self._held.difference_update(tags)
        self._again.update(tags)
        return self.published(tags)

    def is_in_flight(self, number: int) -> bool:
        """True if this publish is neither confirmed nor refused."""
        return number in self._tags

    def dropped(self, tag: int) -> None:
        """A delivery is settled without waiting for a confirm."""
        self._settle(tag, acknowledged=True)

    def hold(self, tag: int) -> None:
        """A delivery is to be returned, later."""
        if not self._waits:  # a tag that was to be acknowledged along with lower ones can't wait for this one
            waiting = [tag for tag, acknowledged in self._settled.items() if acknowledged]
            self._singly += waiting
            self._settled.update(dict.fromkeys(waiting, False))
        self._held.add(tag)

    def disposed(self, tag: int) -> None:
        """A delivery that was held needs to go nowhere any more: it is acknowledged."""
        self._held.discard(tag)
        self._settle(tag, acknowledged=True)

    def returned(self, tag: int) -> None:
        """A delivery goes back upstream now."""
        self._held.discard(tag)
        self._settle(tag, acknowledged=False)

    def confirmed(self, number: int, *, multiple: bool) -> int:
        """The downstream confirmed these; returns how many. Raises NeverPublishedError for an impossible number."""
        tags = tuple(self._take(number, multiple=multiple).values())
        if tags and not self._settle_in_order(tags):
            self._again.difference_update(tags)
            for tag in tags:
                self._settle(tag, acknowledged=True)
        return len(tags)

    def refused(self, number: int, *, multiple: bool) -> dict[int, int]:
        """The downstream refused these; returns the delivery tags by their publish numbers. They are held until they
        are returned, disposed of, or published again.
        """
        named = self._take(number, multiple=multiple)
        for tag in named.values():
            self.hold(tag)
            self._again.discard(tag)
        return named

    @property
    def _waits(self) -> bool:
        """True if any delivery may be settled much later than those after it."""
        return bool(self._held or self._again)

    def acknowledge(self) -> tuple[list[int], int | None]:
        """The tags to acknowledge now: first some one by one, then one with `multiple`, if any."""
        singly, self._singly = self._singly, []
        if not self._ready:
            return singly, None
        self._ready = 0
        return singly, self._acknowledgeable

    def _take(self, number: int, *, multiple: bool) -> dict[int, int]:
        """Removes the publishes that a confirm names; returns their tags by number. A settled number is ignored. 0
        doesn't mean all so far: that would be everything sent, not everything received.
        """
        if not 0 < number < self._next_number:
            raise NeverPublishedError(f"a confirm of publish {number}, of {self._next_number - 1} so far")
        pop = self._tags.pop
        if not multiple:
            tag = pop(number, None)
            return {} if tag is None else {number: tag}
        tags = {n: tag for n in range(self._oldest, number + 1) if (tag := pop(n, None)) is not None}
        self._oldest = max(self._oldest, number + 1)
        return tags

    def _settle_in_order(self, tags: Sequence[int]) -> bool:
        """Settle all of them at once if they are the next ones. False if they aren't, or if others wait."""
        if self._again or self._settled or self._spans:
            return False
        if tags[0] != self._lowest or tags[-1] - tags[0] != len(tags) - 1:
            return False
        self._acknowledgeable = tags[-1]
        self._ready += len(tags)
        self._lowest = tags[-1] + 1
        return True

    def _settle(self, tag: int, *, acknowledged: bool) -> None:
        if tag != self._lowest:
            if acknowledged and self._waits:
                self._singly.append(tag)
                acknowledged = False
            self._settled[tag] = acknowledged
            if len(self._settled) > self._many and not acknowledged:
                self._join()
            return
        settled: bool | None = acknowledged
        while settled is not None:
            if settled:
                self._acknowledgeable = self._lowest
                self._ready += 1
            self._lowest += 1
            while (after := self._spans.pop(self._lowest, None)) is not None:
                self._lowest = after
            settled = self._settled.pop(self._lowest, None)

    def _join(self) -> None:
        """Merge what is settled out of order into ranges: one delivery may be held for hours, while millions after it
        are settled."""
        acknowledgeable = {tag: True for tag, acknowledged in self._settled.items() if acknowledged}
        parts = [(tag, tag + 1) for tag, acknowledged in self._settled.items() if not acknowledged]
        joined: dict[int, int] = {}
        first = end = 0
        for start, after in sorted((*parts, *self._spans.items())):
            if start != end:
                first = start
            joined[first] = end = after
        self._spans, self._settled = joined, acknowledgeable
        self._many = self._few + len(joined) + len(acknowledgeable)


LARGEST_OFFSET: Final = 2**63 - 1


class StreamOffsets:
    """The offsets of one channel's deliveries."""

    __slots__ = ("_last_noted", "_reached", "_runs")

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int, int]] = deque()  # first tag, last tag, offset of the first
        self._last_noted = -1
        self._reached: int | None = None

    def note(self, tag: int, offset: int) -> None:
        """Note the offset of a delivery. One that isn't larger than those before makes no sense, and is ignored."""
        if not self._last_noted < offset <= LARGEST_OFFSET:
            return
        self._last_noted = offset
        if self._reached is None:  # the first one: a later session has to begin with it, whatever becomes of this one
            self._reached = offset - 1
        if self._runs:
            first, last, of_first = self._runs[-1]
            if tag == last + 1 and offset - of_first == tag - first:
                self._runs[-1] = first, tag, of_first
                return
        self._runs.append((tag, tag, offset))

    def up_to(self, tag: int) -> int | None:
        """The largest offset of the deliveries up to this tag, or the one before the first; None before any has come.
        The tag never falls."""
        while self._runs and (run := self._runs[0])[0] <= tag:
            first, last, of_first = run
            self._reached = of_first + min(tag, last) - first
            if tag < last:
                break
            self._runs.popleft()
        return self._reached
