"""Messages that the downstream refused by basic.nack: when each is tried again, and which one will never get through.

A delivery that isn't settled is in one of these states. `Confirms` has those in flight, `Unpublishable` those that
can't be published, `PublishTracker` those that enter the quarantine, and `Refusals` all others:

| state | next |
|---|---|
| in flight | confirmed: settled. Refused: kept if there is room for a copy, otherwise left unacknowledged |
| kept, waiting | published again, in rounds; entering the quarantine once it is given up |
| kept, published again | confirmed: settled. Refused: kept, waiting |
| unacknowledged, without a copy | returned, a few at a time |
| returned, expected again | comes again with another tag: in flight, and as old as before. Otherwise forgotten |
| unpublishable | returned later |
| entering the quarantine | there: settled. Otherwise kept and waiting, or unpublishable |

A full queue refuses whatever is for it, so a refusal alone shows nothing about the message. All that are kept are tried
again in rounds, in their order, with growing pauses. A message is given up once it was refused for long enough while
others got through; but not while refused ones with the same address do, since a queue that drains slowly takes them one
after another.

What goes back to a source comes again before all that follows. So were all that have no copy returned at once, they
would take every place of the prefetch each time, and nothing behind them would ever be tried. A few are tried after
each pause, which grows while none of them gets anywhere; while most of them do, they are more each time.

Why: docs/decisions/0012-keep-until-confirmed.md, docs/decisions/0013-refused-stay-at-source.md
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from typing import Final

from agent.core.links.confirms import Confirms

SHORTEST: Final = 0.1
LONGEST: Final = 15.0
SPARINGLY: Final = 600.0  # where each return is counted, and the broker drops what came back too often
AT_ONCE: Final = 4 * 1024 * 1024  # bytes that are tried again and not answered yet
_MOST_ADDRESSES: Final = 10_000
FEW: Final = 16
FEW_BYTES: Final = 4 * 1024 * 1024
MOST_BYTES: Final = 32 * 1024 * 1024
_LARGEST_SCALE: Final = 64
COMES_BACK_WITHIN: Final = 5.0  # what was returned is counted as waiting for so long
FORGOTTEN_AFTER: Final = 60.0  # after its return: somebody else has it by then, or it is no more


@dataclass(slots=True)
class Refusal:
    """A refused message: its address, its size (of one that isn't kept about), when it was first refused, when it was
    published last, and the time before that."""

    address: bytes
    size: int
    since: float
    tried: float
    before: float


class Refusals:
    """The refused messages of one link, by their delivery tags; one that comes again has another tag. Times are seconds
    of one clock."""

    __slots__ = (
        "_again", "_bytes", "_came_again", "_confirms", "_delay", "_expected", "_fared_badly", "_fared_well",
        "_forgot_at", "_give_up_after", "_is_fruitful", "_kept", "_next_return", "_next_round", "_passed_at",
        "_pause", "_recovered", "_returned", "_returned_at", "_round", "_scale", "_unacknowledged", "_unnoted",
        "_unnoted_due", "_unnoted_pause", "_unnoted_shortest", "_waiting", "confirmed_since", "returns_are_counted",
    )  # fmt: skip

    def __init__(self, confirms: Confirms, *, give_up_after: float | None, returns_are_counted: bool = False) -> None:
        """`give_up_after` is in seconds; with None no message is ever given up."""
        self._confirms = confirms
        self._give_up_after = give_up_after
        self.returns_are_counted = returns_are_counted
        self._kept: dict[int, Refusal] = {}
        self._waiting: set[int] = set()  # of these, those that aren't published again now, nor given up
        self._round: list[int] = []  # what is still to be tried in this round, the first at the end
        self._again: dict[int, int] = {}  # of those published again: publish number -> tag
        self._bytes = 0  # of those
        self._delay = SHORTEST
        self._is_fruitful = False
        self._next_round = 0.0
        self._passed_at = -inf  # when a message that was not refused before got through
        self._recovered: dict[bytes, float] = {}  # by address, when a refused message last got through
        self._unacknowledged: dict[int, Refusal] = {}  # those that wait longest come first
        self._unnoted: list[int] = []  # the same; all links have too many to know more of these than their tags
        self._unnoted_due = inf
        self._unnoted_pause = self._unnoted_shortest = SPARINGLY if returns_are_counted else SHORTEST
        self.confirmed_since = 0  # publishes of any messages, since these were returned last
        self._expected: dict[bytes, deque[tuple[float, Refusal]]] = {}  # by address, each with the time of its return
        self._came_again: dict[int, Refusal] = {}  # by publish number
        self._forgot_at = -inf
        self._returned_at = -inf
        self._pause = SHORTEST
        self._next_return = 0.0
        self._scale = 1
        self._returned = 0  # at the last time
        self._fared_well = 0  # since then: got through, or a copy is kept now
        self._fared_badly = 0

    def count(self, now: float) -> int:
        """The number of messages that wait, are published again, or were returned; of these only while they may be on
        their way."""
        is_late = now - self._returned_at > COMES_BACK_WITHIN
        expected = 0 if is_late else sum(map(len, self._expected.values()))
        return self.waiting + len(self._unnoted) + len(self._again) + len(self._came_again) + expected

    @property
    def waiting(self) -> int:
        """The number of messages that wait, but for those that are not noted."""
        return len(self._waiting) + len(self._unacknowledged)

    @property
    def noted(self) -> int:
        """The number of messages that are noted: unacknowledged ones without a copy."""
        return len(self._unacknowledged)

    @property
    def has_waiting(self) -> bool:
        """True if any message waits."""
        return bool(self._waiting or self._unacknowledged or self._unnoted)

    @property
    def expects(self) -> bool:
        """True if any returned message may come again."""
        return bool(self._expected)

    @property
    def is_busy(self) -> bool:
        """True if any message isn't dealt with yet."""
        return bool(self._kept or self._came_again or self._unacknowledged or self._unnoted or self._expected)

    @property
    def oldest(self) -> tuple[float, bytes] | None:
        """The time at which the message that has waited longest was first refused, and its address; None if there is
        none."""
        waiting = chain(self._kept.values(), self._unacknowledged.values())
        return min(((refusal.since, refusal.address) for refusal in waiting), default=None)

    @property
    def wakes_at(self) -> float:
        """The time at which `to_try` or `to_return` has messages; infinite if none wait, or if a response of the broker
        is needed first."""
        next_return = min(self._next_return if self._unacknowledged else inf, self._unnoted_due)
        if self._round:
            return 0.0 if self._bytes < AT_ONCE else next_return
        return min(next_return, self._next_round) if self._waiting and not self._again else next_return

    def keep(self, number: int, tag: int, address: bytes, size: int, *, now: float) -> bool:
        """Note a refused publish of which a copy is kept from now on; True if it is to be given up."""
        if not self._waiting and not self._again:
            self._delay = SHORTEST
            self._next_round = now + SHORTEST
        self._waiting.add(tag)
        earlier = self._came_again.pop(number, None)
        if earlier is None:
            self._kept[tag] = Refusal(address, size, now, now, now)
            return False
        self._fared(well=True, now=now)
        self._kept[tag] = kept = Refusal(address, size, earlier.since, now, earlier.tried)
        return self._is_hopeless(kept, now)

    def leave_unacknowledged(self, number: int, tag: int, known: tuple[bytes, int] | None, now: float) -> None:
        """Note a refused publish that stays unacknowledged: its address and about its size are `known`, or no more than
        its tag."""
        earlier = self._came_again.pop(number, None)
        if earlier is not None:
            self._fared(well=False, now=now)
        if known is None:  # it won't be recognized when it comes again
            if not self._unnoted:
                self._unnoted_due = now + self._unnoted_pause
            self._unnoted.append(tag)
            return
        if earlier is None and not self._unacknowledged and not self._expected:
            self._scale, self._returned = 1, 0
            self._pause = self._longest if self.returns_are_counted else SHORTEST
            self._next_return = now + self._pause
        self._unacknowledged[tag] = Refusal(*known, now if earlier is None else earlier.since, now, now)

    def refused_again(self, number: int, now: float) -> bool:
        """Note that a message that was published again was refused; True if it is to be given up. Until then it
        waits."""
        tag = self._answered(number)
        self._waiting.add(tag)
        is_hopeless = self._is_hopeless(self._kept[tag], now)
        self._end_round(now)
        return is_hopeless

    def confirmed(self, count: int, now: float) -> list[int]:
        """Note that so many publishes were confirmed since the last call, with those published again; return the tags
        of messages that were kept and got through."""
        is_in_flight = self._confirms.is_in_flight
        arrived = [number for number in self._again if not is_in_flight(number)]
        came = [number for number in self._came_again if not is_in_flight(number)]
        tags = [self._arrived(number, now) for number in arrived]
        for number in came:
            self._recover(self._came_again.pop(number).address, now)
            self._fared(well=True, now=now)
        if count > len(arrived) + len(came):
            self._passed_at = now
        self._forget(now)
        if not self.is_busy:
            self._recovered.clear()
        return tags

    def give_up(self, tag: int) -> None:
        """Stop trying a message: it is on its way to the quarantine."""
        self._waiting.discard(tag)

    def wait_on(self, tag: int, now: float) -> None:
        """Go on trying a message: it could not be put into the quarantine."""
        self._waiting.add(tag)
        if not self._round and not self._again:
            self._next_round = max(self._next_round, now + self._delay)

    def forget(self, tag: int) -> None:
        """Forget a message: it is in the quarantine."""
        self._kept.pop(tag, None)
        self._waiting.discard(tag)

    def release(self) -> None:
        """Forget what isn't kept: its source requeues it."""
        for each in (self._unacknowledged, self._unnoted, self._expected, self._came_again):
            each.clear()
        self._unnoted_due = inf

    # Those that are kept

    def to_try(self, now: float) -> dict[int, int]:
        """The messages to publish again now, in this order: their tags by publish number."""
        if not self._round and not self._again and self._waiting and now >= self._next_round:
            self._round = sorted(self._waiting, reverse=True)
            self._is_fruitful = False
        tags = []
        while self._round and self._bytes < AT_ONCE:
            tag = self._round.pop()
            if tag in self._waiting:
                tags.append(tag)
                kept = self._kept[tag]
                kept.before, kept.tried = kept.tried, now
                self._bytes += kept.size
        if not tags:
            return {}
        self._waiting.difference_update(tags)
        last = self._confirms.published_again(tags)
        again = dict(zip(range(last - len(tags) + 1, last + 1), tags, strict=True))
        self._again.update(again)
        return again

    def _answered(self, number: int) -> int:
        tag = self._again.pop(number)
        self._bytes -= self._kept[tag].size
        return tag

    def _arrived(self, number: int, now: float) -> int:
        tag = self._answered(number)
        self._recover(self._kept.pop(tag).address, now)
        self._is_fruitful = True
        self._end_round(now)
        return tag

    def _recover(self, address: bytes, now: float) -> None:
        if len(self._recovered) >= _MOST_ADDRESSES:
            self._recovered.clear()
        self._recovered[address] = now

    def _is_hopeless(self, message: Refusal, now: float) -> bool:
        return now >= self._due(message) and self._passed_at >= message.before

    def _due(self, message: Refusal) -> float:
        """The time from which on the message may be given up; infinite if never."""
        if self._give_up_after is None:
            return inf
        return max(message.since, self._recovered.get(message.address, 0.0)) + self._give_up_after

    def _end_round(self, now: float) -> None:
        """End the round if no message of it is left. The next round comes in time for a message that may be given up
        then."""
        if self._round or self._again:
            return
        self._delay = SHORTEST if self._is_fruitful else min(2 * self._delay, LONGEST)
        dues = (due for tag in self._waiting if (due := self._due(self._kept[tag])) > now)
        self._next_round = max(now + SHORTEST, min(now + self._delay, min(dues, default=inf)))

    # Those that stay unacknowledged

    def to_return(self, now: float, room: int) -> list[int]:
        """The tags of the messages to return now. If they are refused again, copies of up to `room` bytes could be
        kept."""
        unnoted = self._unnoted_to_return(now)
        if not self._unacknowledged or now < self._next_return:
            return unnoted
        is_unanswered = self._returned and not self._fared_well and not self._fared_badly
        if is_unanswered and now - self._returned_at < COMES_BACK_WITHIN:
            self._next_return = self._returned_at + COMES_BACK_WITHIN
            return unnoted
        self._learn()
        self._forget(now)
        self._next_return = now + self._pause
        return self._give_back(self._chosen(room), now) + unnoted

    def _unnoted_to_return(self, now: float) -> list[int]:
        """All that aren't noted, once they are due: later and later, but soon again if more was confirmed meanwhile."""
        if now < self._unnoted_due:
            return []
        tags, self._unnoted, self._unnoted_due = self._unnoted, [], inf
        longer = min(2 * self._unnoted_pause, max(COMES_BACK_WITHIN, self._unnoted_shortest))
        self._unnoted_pause = longer if len(tags) >= self.confirmed_since else self._unnoted_shortest
        self.confirmed_since = 0
        return tags

    def return_all(self, now: float) -> list[int]:
        """The tags of all that are noted, which are returned now: nobody waits for them here any more."""
        return self._give_back(list(self._unacknowledged), now)

    def came_again(self, number: int, address: bytes, now: float) -> None:
        """Note that a message with this address was published that had been delivered before: it may be one that was
        returned. Messages of one address keep their order."""
        found = self._expected.get(address)
        if found is None:
            return
        _drop_late(found, now)
        if found:
            self._came_again[number] = found.popleft()[1]
        if not found:
            del self._expected[address]

    def has_room(self, room: int, now: float) -> None:
        """Return the next messages soon if a copy of the first could be kept in so many bytes."""
        if self._fits(room):
            self._hurry(now)

    def _give_back(self, tags: list[int], now: float) -> list[int]:
        """Expect these again."""
        for tag in tags:
            refusal = self._unacknowledged.pop(tag)
            self._expected.setdefault(refusal.address, deque()).append((now, refusal))
        if tags:
            self._returned, self._returned_at = len(tags), now
        return tags

    def _forget(self, now: float) -> None:
        """Forget messages that were returned and didn't come again. Done at intervals only, as all of them are looked
        at."""
        if now - self._forgot_at < FORGOTTEN_AFTER:
            return
        self._forgot_at = now
        for address, found in tuple(self._expected.items()):
            _drop_late(found, now)
            if not found:
                del self._expected[address]

    def _fared(self, *, well: bool, now: float) -> None:
        """Note the result of a message that came again: `well` if it got through, or a copy is kept now; otherwise it
        stays unacknowledged once more."""
        if well:
            self._fared_well += 1
            is_time = 2 * self._fared_well >= self._returned
        else:
            self._fared_badly += 1
            is_time = now >= self._returned_at + self._pause
        if is_time:
            self._hurry(now)

    def _hurry(self, now: float) -> None:
        """Return the next messages soon: more may get through now."""
        self._next_return = min(self._next_return, now + SHORTEST)

    def _fits(self, room: int) -> bool:
        """True if a copy of the next message to return could be kept in so many bytes."""
        first = next(iter(self._unacknowledged.values()), None)
        return first is not None and first.size <= room

    @property
    def _longest(self) -> float:
        return SPARINGLY if self.returns_are_counted else LONGEST

    def _learn(self) -> None:
        """Adapt the pause and the number of messages to the results of those that were returned last."""
        well, badly = self._fared_well, self._fared_badly
        self._fared_well = self._fared_badly = 0
        if well and well >= badly:
            self._scale, self._pause = min(2 * self._scale, _LARGEST_SCALE), SHORTEST
        elif well and not self.returns_are_counted:
            self._scale, self._pause = 1, max(self._pause / 2, SHORTEST)
        elif self._returned:
            self._scale, self._pause = 1, self._longest if self.returns_are_counted else min(2 * self._pause, LONGEST)

    def _chosen(self, room: int) -> list[int]:
        most = min(FEW_BYTES * self._scale, MOST_BYTES)
        if self._fits(room):  # what is beyond that would come back for nothing
            most = min(most, room)
        chosen: list[int] = []
        size = 0
        for tag, refusal in islice(self._unacknowledged.items(), FEW * self._scale):
            size += refusal.size
            if chosen and size > most:
                break
            chosen.append(tag)
        return chosen


def _drop_late(returned: deque[tuple[float, Refusal]], now: float) -> None:
    while returned and now - returned[0][0] > FORGOTTEN_AFTER:
        returned.popleft()
