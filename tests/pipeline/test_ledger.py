"""What is known of files that were read: no Spark runs."""

from dataclasses import replace

from agent.pipeline.inputs import InputFile
from agent.pipeline.ledger import Batch, Content, Ledger, parse_ledger

ONE, TWO, THREE = (InputFile(f"file:/in/{name}.jsonl", 10, 1000) for name in "abc")
FIRST = Batch(1, frozenset({ONE, TWO}), Content(5, 1, 0, 3, 20, 70))
SECOND = Batch(2, frozenset({THREE}), Content(2, 0, 1))
LEDGER = Ledger(frozenset({"/in"}), (FIRST, SECOND), "made of this")


def test_it_is_read_as_it_was_written() -> None:
    assert parse_ledger(LEDGER.text()) == LEDGER


def test_another_layout_is_made_anew() -> None:
    assert parse_ledger(LEDGER.text().replace('"layout": 3', '"layout": 0')) == Ledger()


def test_a_file_that_was_written_again_makes_its_batch_stale() -> None:
    again = replace(TWO, length=20)
    assert LEDGER.stale(frozenset({ONE, TWO, THREE})) == ()
    assert LEDGER.stale(frozenset({ONE, again, THREE})) == (FIRST,)


def test_a_batch_takes_the_place_of_others_and_leaves_tables_to_be_made() -> None:
    both = Batch(LEDGER.next_number, FIRST.files | SECOND.files, Content(7, 1, 1, 3, 20, 70))
    replaced = LEDGER.replaced([FIRST, SECOND], both)
    assert (replaced.batches, replaced.tables, both.number) == ((both,), None, 3)
    assert replaced.content() == LEDGER.content() == Content(7, 1, 1, 3, 20, 70)


def test_a_tree_may_be_added_but_not_left_out() -> None:
    assert LEDGER.covers(["/in", "/more"])
    assert not LEDGER.covers(["/more"])
