"""What is printed moves no terminal, whatever names and brokers' texts hold."""

from __future__ import annotations

import json

import pytest

from agent.cli import output

HOSTILE = "\x1b[2Jevil\x9b31m\u202egpj\u2066\nnext"
SHOWN = "\\x1b[2Jevil\\x9b31m\\u202egpj\\u2066\\nnext"


def test_a_line_stays_one_and_shows_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain(HOSTILE, "second")
    assert capsys.readouterr().err == f"{SHOWN}\nsecond\n"
    output.say(HOSTILE)
    assert capsys.readouterr().out == f"{SHOWN}\n"


def test_colours_are_ours_alone() -> None:
    assert output.paint(HOSTILE, "red") == f"\x1b[31m{SHOWN}\x1b[0m"
    assert output.line(HOSTILE, output.paint("x", "red")) == f"{SHOWN}\x1b[31mx\x1b[0m"


def test_what_is_put_together_without_care_is_shown_with_its_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"{output.paint('x', 'red')}")
    assert capsys.readouterr().out == "\\x1b[31mx\\x1b[0m\n"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.say_json({"name": HOSTILE + "\x7f"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": HOSTILE + "\x7f"}
    assert all(letter.isprintable() for letter in printed.replace("\n", "")), printed
