"""What is known of files that were read: no Spark runs."""

from dataclasses import replace

from agent.core.export_event import SCHEMA
from agent.pipeline.reading.ledger import (
    COMPACT_FROM,
    COMPACT_TO,
    LAYOUT,
    Batch,
    Content,
    ExistingTables,
    InputFile,
    Ledger,
    parse_ledger,
)
from agent.pipeline.schema import CELL, DAY
from agent.pipeline.window import Bounds

A_DAY = DAY * CELL
HOUR = A_DAY // 24
REACH = A_DAY + 2 * CELL
START, END = 100 * A_DAY, 104 * A_DAY + HOUR
ONE, TWO, THREE, FOUR = (InputFile(f"file:/in/{name}.jsonl", 10, 1000) for name in "abcd")
FIRST = Batch(1, frozenset({ONE, TWO}), Content(5, 1, 0, 3, START, END - HOUR))
SECOND = Batch(2, frozenset({THREE}), Content(2, 0, 1, 1, END - HOUR, END))
STANDING = ExistingTables("of this", START, END)
LEDGER = Ledger(frozenset({"/in"}), (FIRST, SECOND), STANDING, settled=103, settled_lines=7)
WINDOW = Bounds(START, END)


def with_lines(first: int, last: int, interval: int | None = None) -> Ledger:
    return LEDGER.replaced([], Batch(3, frozenset({FOUR}), Content(1, 0, 0, 1, first, last, interval)))


def test_it_is_read_as_it_was_written() -> None:
    assert parse_ledger(LEDGER.text()) == LEDGER
    nothing_made = replace(LEDGER, tables=None)
    assert parse_ledger(nothing_made.text()) == nothing_made


def test_another_layout_is_made_anew() -> None:
    assert parse_ledger(LEDGER.text().replace(f'"layout": {LAYOUT}', '"layout": 0')) == Ledger()


def test_a_file_that_was_written_again_makes_its_batch_stale() -> None:
    again = TWO._replace(length=20)
    assert LEDGER.stale(frozenset({ONE, TWO, THREE})) == ()
    assert LEDGER.stale(frozenset({ONE, again, THREE})) == (FIRST,)


def test_lines_of_a_schema_that_was_not_known_make_their_batch_stale() -> None:
    present = frozenset({ONE, TWO, THREE})
    assert LEDGER.stale(present) == ()
    written_before = LEDGER.text().replace(f'"schema": {SCHEMA},', "")
    before = parse_ledger(written_before)
    assert [one.schema for one in before.batches] == [1, 1]
    assert before.stale(present) == (replace(SECOND, schema=1),)


def test_a_batch_takes_the_place_of_others() -> None:
    both = Batch(LEDGER.next_number, FIRST.files | SECOND.files, FIRST.content + SECOND.content)
    replaced = LEDGER.replaced([FIRST, SECOND], both)
    assert (replaced.batches, both.number) == ((both,), 3)
    assert replaced.content() == LEDGER.content() == Content(7, 1, 1, 4, START, END)


def test_batches_meet_in_the_same_five_minutes() -> None:
    def of(first: int | None, last: int | None) -> Batch:
        return Batch(9, frozenset(), Content(1, 0, 0, 1, first, last))

    assert FIRST.meets(SECOND)
    assert FIRST.meets(of(START - HOUR, START - 1))
    assert of(START - HOUR, START - 1).meets(FIRST)
    assert not FIRST.meets(of(START - HOUR, START - CELL))
    assert not SECOND.meets(of(END + CELL, END + HOUR))
    assert not FIRST.meets(of(None, None))


def test_a_tree_may_be_added_but_not_left_out() -> None:
    assert LEDGER.covers(["/in", "/more"])
    assert not LEDGER.covers(["/more"])


def test_tables_stand_until_there_is_something_new_or_else_is_asked_for() -> None:
    assert LEDGER.is_current("of this")
    assert not LEDGER.is_current("of that")
    assert not with_lines(END, END).is_current("of this")
    assert not replace(LEDGER, tables=replace(STANDING, whole=False)).is_current("of this")
    of_bad_lines_only = LEDGER.replaced([], Batch(3, frozenset({FOUR}), Content(1, 1)))
    assert not of_bad_lines_only.is_current("of this")


def test_new_lines_reach_back_a_day() -> None:
    assert with_lines(END + HOUR, END + 2 * HOUR).outdated_since("of this", WINDOW) == END - REACH
    assert with_lines(END - 2 * A_DAY, END + HOUR).outdated_since("of this", WINDOW) == END - 2 * A_DAY - REACH
    assert with_lines(START, START).outdated_since("of this", WINDOW) == START


def test_agents_that_seldom_speak_reach_further() -> None:
    assert with_lines(END, END, 12 * HOUR).outdated_since("of this", WINDOW) == END - 96 * HOUR


def test_other_tables_and_windows_are_made_whole() -> None:
    assert LEDGER.outdated_since("of that", WINDOW) == START
    assert LEDGER.outdated_since("of this", Bounds(START - HOUR, END)) == START - HOUR
    assert replace(LEDGER, tables=None).outdated_since("of this", WINDOW) == START


def test_a_run_that_was_killed_is_taken_up_where_it_began() -> None:
    cut_off = replace(LEDGER, tables=replace(STANDING, touched=END - 2 * A_DAY, whole=False))
    assert cut_off.outdated_since("of this", WINDOW) == END - 2 * A_DAY - REACH


def test_lines_of_days_that_are_settled_are_not_needed() -> None:
    assert [batch.number for batch in LEDGER.batches_from(LEDGER.settled_before(END))] == [1, 2]
    assert LEDGER.settled_before(END) == 103
    assert LEDGER.settled_before(102 * A_DAY) == 102
    later = replace(LEDGER, settled=105)
    assert [batch.number for batch in later.batches_from(104)] == [2]
    assert later.lines_since(104 * A_DAY) == 1 + 7
    assert LEDGER.lines_since(0) == 4


def test_what_has_been_over_for_a_day_may_be_settled() -> None:
    assert replace(LEDGER, settled=0).to_settle() == 103
    assert LEDGER.to_settle() == 103
    assert Ledger().to_settle() == 0
    short = Ledger(batches=(replace(FIRST, content=Content(1, 0, 0, 1, END - HOUR, END)),))
    assert short.to_settle() == 0


def test_lines_that_are_gone_leave_the_end_that_they_had_made() -> None:
    """A file that was written again, with less in it."""
    far = Batch(3, frozenset({FOUR}), Content(1, 0, 0, 1, END + 9 * A_DAY, END + 9 * A_DAY))
    made = replace(LEDGER.replaced([], far), settled=112, tables=replace(STANDING, end=END + 9 * A_DAY))
    gone = made.replaced([far], replace(far, content=Content(1, 1)))
    assert gone.settled == 104
    assert gone.batches_from(gone.settled_before(END))
    assert gone.outdated_since("of this", WINDOW) == END - REACH


def test_late_lines_unsettle() -> None:
    assert with_lines(102 * A_DAY + HOUR, END).settled == 101
    assert with_lines(END, END).settled == 103


def hourly(count: int, *, kept: int = 1, later_schema: int = 0) -> tuple[Batch, ...]:
    """One batch an hour, from `START` on."""
    return tuple(
        Batch(
            10 + number,
            frozenset({InputFile(f"file:/in/{number}.jsonl", 1, 1)}),
            Content(kept, 0, later_schema, kept, START + number * HOUR + 1, START + (number + 1) * HOUR),
        )
        for number in range(count)
    )


def test_many_small_batches_of_settled_days_become_one() -> None:
    many = replace(LEDGER, batches=hourly(50), settled=102)
    [group] = many.to_compact()
    assert group == list(hourly(48)), "the third day is not settled yet"
    one = many.compacted(group, 99)
    assert (one.content(), one.files) == (many.content(), many.files)
    assert [batch.number for batch in one.batches] == [58, 59, 99]
    assert one.to_compact() == []
    assert (one.tables, one.settled) == (many.tables, many.settled)


def test_few_batches_large_ones_and_those_that_may_be_read_again_stay() -> None:
    for batches in (
        hourly(COMPACT_FROM - 1),
        hourly(COMPACT_FROM, kept=COMPACT_TO // COMPACT_FROM + 1),
        hourly(COMPACT_FROM, later_schema=1),
    ):
        assert replace(LEDGER, batches=batches, settled=102).to_compact() == []
    both = (*hourly(COMPACT_FROM - 1), *(replace(batch, schema=1) for batch in hourly(COMPACT_FROM - 1)))
    assert replace(LEDGER, batches=both, settled=102).to_compact() == []


def test_no_batch_becomes_too_large() -> None:
    large = hourly(3 * COMPACT_FROM, kept=COMPACT_TO // COMPACT_FROM)
    groups = replace(LEDGER, batches=large, settled=102).to_compact()
    assert [sum(batch.content.kept for batch in group) for group in groups] == [COMPACT_TO] * 3
