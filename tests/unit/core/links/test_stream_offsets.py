"""How far a stream is copied: never past anything that isn't settled."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from agent.core.links.confirms import Confirms
from agent.core.links.stream_offsets import LARGEST, StreamOffsets

gaps = st.lists(st.integers(1, 3), min_size=1, max_size=60)
Choose = Callable[[st.SearchStrategy[int]], int]


@given(first=st.integers(0, 2**40), gaps=gaps, data=st.data())
def test_the_place_is_below_all_that_is_unsettled(first: int, gaps: list[int], data: st.DataObject) -> None:
    """Whatever is confirmed, refused, published again or put into the quarantine, and in whichever order."""
    confirms, offsets = Confirms(few=4), StreamOffsets()
    offset_of: dict[int, int] = {}
    settled: set[int] = set()
    tag_of: dict[int, int] = {}  # by publish number
    held: list[int] = []
    offset = first
    for tag, gap in enumerate(gaps, start=1):
        offset += gap
        offsets.note(tag, offset)
        offset_of[tag] = offset
        tag_of[confirms.published([tag])] = tag
        for _ in range(data.draw(st.integers(0, 2))):
            _happen(data.draw, confirms, tag_of, held, settled)
        _check(offsets.up_to(confirms.settled), offset_of, settled)
    while tag_of or held:
        _happen(data.draw, confirms, tag_of, held, settled)
        _check(offsets.up_to(confirms.settled), offset_of, settled)
    assert offsets.up_to(confirms.settled) == offset


def _happen(draw: Choose, confirms: Confirms, tag_of: dict[int, int], held: list[int], settled: set[int]) -> None:
    what = draw(st.integers(0, 3))
    if what < 3 and tag_of:
        number = draw(st.sampled_from(sorted(tag_of)))
        multiple = bool(draw(st.integers(0, 1)))
        named = [each for each in tag_of if each == number or (multiple and each < number)]
        if what == 2:
            confirms.refused(number, multiple=multiple)
            held += [tag_of.pop(each) for each in named]
        else:
            confirms.confirmed(number, multiple=multiple)
            settled.update(tag_of.pop(each) for each in named)
    elif held:
        tag = held.pop(draw(st.integers(0, len(held) - 1)))
        if draw(st.integers(0, 1)):
            tag_of[confirms.published_again([tag])] = tag
        else:
            confirms.disposed(tag)
            settled.add(tag)


def _check(place: int | None, offset_of: dict[int, int], settled: set[int]) -> None:
    unsettled = [offset for tag, offset in offset_of.items() if tag not in settled]
    assert place is not None
    assert place < min(unsettled, default=LARGEST)
    below = [offset for offset in offset_of.values() if offset < min(unsettled, default=LARGEST)]
    assert place == max(below, default=offset_of[1] - 1), "and no lower than it has to be"


def test_what_makes_no_sense_is_ignored() -> None:
    offsets = StreamOffsets()
    for tag, offset in enumerate((5, 5, 3, LARGEST + 1, 2**64 - 1, 9), start=1):
        offsets.note(tag, offset)
    assert [offsets.up_to(tag) for tag in range(8)] == [4, 5, 5, 5, 5, 5, 9, 9]


def test_before_anything_has_come_there_is_no_place() -> None:
    assert StreamOffsets().up_to(0) is None


def test_places_within_a_run_and_behind_it() -> None:
    offsets = StreamOffsets()
    for tag in range(1, 101):
        offsets.note(tag, tag + 7)
    assert [offsets.up_to(tag) for tag in (0, 50, 50, 99, 100, 200)] == [7, 57, 57, 106, 107, 107]
    offsets.note(101, 200)
    assert offsets.up_to(100) == 107
    assert offsets.up_to(101) == 200
