"""Publish numbers downstream ↔ delivery tags upstream: what may be acknowledged, and when.

Delivery tags of a channel with one consumer are 1, 2, 3 …, so everything up to the lowest unsettled tag
can be acknowledged at once. A broker refuses `multiple` on a tag that is already settled; the tag given
here never is.
"""

from __future__ import annotations


class Confirms:
    """One link's deliveries from arrival to settlement; each is settled exactly once."""

    __slots__ = ("_acknowledgeable", "_acknowledged", "_lowest", "_next_number", "_oldest", "_settled", "_tags")

    def __init__(self) -> None:
        self._next_number = 1
        self._oldest = 1  # no smaller publish number is outstanding
        self._tags: dict[int, int] = {}  # publish number -> delivery tag, outstanding only
        self._lowest = 1  # the lowest delivery tag that isn't settled
        self._settled: dict[int, bool] = {}  # tag above `_lowest` -> acknowledged (True) or returned (False)
        self._acknowledgeable = 0  # the highest tag below `_lowest` that is to be acknowledged
        self._acknowledged = 0

    @property
    def in_flight(self) -> int:
        """Published and neither confirmed nor refused."""
        return len(self._tags)

    @property
    def oldest_tag(self) -> int | None:
        """The delivery that has waited longest for its confirm."""
        return next(iter(self._tags.values()), None)

    def published(self, tag: int) -> int:
        """A delivery was published; answers its publish number."""
        number = self._next_number
        self._next_number = number + 1
        self._tags[number] = tag
        return number

    def dropped(self, tag: int) -> None:
        """A delivery is done with without being published."""
        self._settle(tag, acknowledged=True)

    def returned(self, tag: int) -> None:
        """A delivery that wasn't published goes back upstream by itself."""
        self._settle(tag, acknowledged=False)

    def confirmed(self, number: int, *, multiple: bool) -> int:
        """The downstream took these; answers how many."""
        tags = self._take(number, multiple=multiple)
        for tag in tags:
            self._settle(tag, acknowledged=True)
        return len(tags)

    def refused(self, number: int, *, multiple: bool) -> list[int]:
        """The downstream won't take these; answers the delivery tags to return upstream, one by one."""
        tags = self._take(number, multiple=multiple)
        for tag in tags:
            self._settle(tag, acknowledged=False)
        return tags

    def acknowledge(self) -> int | None:
        """The tag to acknowledge upstream with `multiple`, where there is news."""
        if self._acknowledgeable <= self._acknowledged:
            return None
        self._acknowledged = self._acknowledgeable
        return self._acknowledged

    def _take(self, number: int, *, multiple: bool) -> list[int]:
        """Removes what a confirm names; a number that is settled or was never given is no news."""
        if not multiple:
            tag = self._tags.pop(number, None)
            return [] if tag is None else [tag]
        last = min(number, self._next_number - 1) if number else self._next_number - 1
        pop = self._tags.pop
        tags = [tag for n in range(self._oldest, last + 1) if (tag := pop(n, None)) is not None]
        self._oldest = max(self._oldest, last + 1)
        return tags

    def _settle(self, tag: int, *, acknowledged: bool) -> None:
        if tag != self._lowest:
            self._settled[tag] = acknowledged
            return
        settled: bool | None = acknowledged
        while settled is not None:
            if settled:
                self._acknowledgeable = self._lowest
            self._lowest += 1
            settled = self._settled.pop(self._lowest, None)
