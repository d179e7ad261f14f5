from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.definitions.sources.legacy.erlang import (
    MAX_BYTES,
    MAX_DEPTH,
    Atom,
    Binary,
    Float,
    Integer,
    LegacyError,
    List,
    Map,
    String,
    Term,
    Tuple,
    parse,
)
from agent.errors import Place, Problem
from tests.unit.definitions.legacy.erlang import TERMS, write

FILE = "rabbitmq.config"
_FRAGMENTS = (
    *'{}[]<>|,.:/#=+-$_%"\\',
    *("'", "<<", ">>", "=>", "#{", "\n", " ", "a", "B", "1", "16#F", "\0", "\xa0", "“", "\\x", "\\^", "1.0e999", "..."),
)


def read(text: str) -> Term:
    (term,) = parse(text.encode(), file=FILE).terms
    return term


def problems(data: bytes) -> tuple[Problem, ...]:
    try:
        parse(data, file=FILE)
    except LegacyError as error:
        return error.problems
    return ()


def problem(data: bytes) -> str:
    (found,) = problems(data)
    return str(found)


@given(TERMS)
def test_a_term_written_in_erlang_is_read_back(term: Term) -> None:
    assert read(write(term)) == term
    assert read(write(term) + ".\n% the end") == term


@given(
    st.one_of(
        st.binary(), st.text().map(str.encode), st.lists(st.sampled_from(_FRAGMENTS)).map("".join).map(str.encode)
    )
)
def test_any_bytes_are_terms_or_one_error_with_a_line(data: bytes) -> None:
    for found in problems(data):
        assert found.place.line in range(1, data.count(b"\n") + 2)
        assert "\n" not in found.message


@given(TERMS, st.integers(0), st.sampled_from(_FRAGMENTS))
def test_a_spoilt_term_is_terms_or_one_error(term: Term, at: int, spoiler: str) -> None:
    text = write(term)
    at %= len(text) + 1
    assert len(problems((text[:at] + spoiler + text[at + 1 :]).encode())) <= 1


@pytest.mark.parametrize(
    ("text", "term"),
    [
        (r'"\b\d\e\f\n\r\s\t\v\"\\\q"', String('\b\x7f\x1b\f\n\r \t\v"\\q')),
        (r'"\x41\x{1F600}\101\7\^A\^z\^@\^?"', String("A\U0001f600A\7\x01\x1a\x00\x7f")),
        (r'"\^\\n"', String("\x1c\n")),
        ('"one" "two"\n% between\n"three"', String("onetwothree")),
        ('"two\nlines"', String("two\nlines")),
        ('"100% sure"', String("100% sure")),
        ("'EXTERNAL'", Atom("EXTERNAL")),
        (r"'it\'s\x{e9}'", Atom("it'sé")),
        ("rabbit@my_Host1", Atom("rabbit@my_Host1")),
        ("[]", List(())),
        ("{}", Tuple(())),
        ("<<>>", Binary(b"")),
        ('<<"text">>', Binary(b"text")),
        ('<<"é"/utf8, 1, 255, 256, 233/utf8, "a" "b", $c>>', Binary(b"\xc3\xa9\x01\xff\x00\xc3\xa9abc")),
        ("-5", Integer(-5)),
        ("- 5", Integer(-5)),
        ("+5", Integer(5)),
        ("16#FF", Integer(255)),
        ("-16#ff_ff", Integer(-65535)),
        ("36#Z", Integer(35)),
        ("1_000", Integer(1000)),
        ("1.5", Float(1.5)),
        ("-2.5e-3", Float(-0.0025)),
        ("$a", Integer(97)),
        ("$ ", Integer(32)),
        ('$"', Integer(34)),
        (r"$\n", Integer(10)),
        (r"$\x{e9}", Integer(233)),
        (r"$\101", Integer(65)),
        (
            '#{a => "b", <<"c">> => [1]}',
            Map((Tuple((Atom("a"), String("b"))), Tuple((Binary(b"c"), List((Integer(1),)))))),
        ),
        ("{a,%comment ]}\n b}", Tuple((Atom("a"), Atom("b")))),
        ("\ufeff{a}.", Tuple((Atom("a"),))),
    ],
)
def test_every_form_is_read(text: str, term: Term) -> None:
    assert read(text) == term


def test_every_term_knows_its_place() -> None:
    term = read('% a comment\n[{host,\n\t"é", x}].')
    assert isinstance(term, List)
    (pair,) = term.items
    assert isinstance(pair, Tuple)
    places = [item.at for item in (term, pair, *pair.items)]
    assert places == [Place(FILE, line, column) for line, column in [(2, 1), (2, 2), (2, 3), (3, 2), (3, 7)]]


def test_a_file_of_several_terms() -> None:
    assert parse(b"a. b.\n{c}", file=FILE).terms == (Atom("a"), Atom("b"), Tuple((Atom("c"),)))
    assert parse(b" % nothing\n", file=FILE).terms == ()


def test_what_is_not_utf8_is_read_as_latin1() -> None:
    document = parse('"é"'.encode("latin-1"), file=FILE)
    assert document.is_latin1
    assert document.terms == (String("é"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a,\n {b, c", "2:2: this { is never closed; write } where it ends"),
        ("[a,\n [b}", "2:4: } doesn't close the [ of line 2; write ] first"),
        ('[a,\n "b, c', "2:2: the string that begins here never ends; close it with a double quote"),
        ("{a,\n 'b}", "2:2: the quoted atom that begins here never ends; close it with a single quote"),
        ("[a | b]", "1:4: a list with a tail ([… | Tail]) isn't supported; write its elements one by one"),
        ("[a,\n]", "1:3: nothing follows this comma before ]; take it out or write what is missing"),
        ("[a,,b]", "1:4: nothing comes before this comma; remove it or write what is missing"),
        ("{a, b} {", "1:8: a full stop or the end of the file belongs here, not {; look for a bracket"),
        ("{a b}", "1:4: a comma or } belongs before an atom, within the { of line 1"),
        ("{a, ...}", "1:5: '...' marks an omission"),
        ("{a, Host}", "1:5: variables aren't allowed in a configuration"),
        ("{a, “b”}", '1:5: a typographic quote; write " around strings'),
        ("{a, &}", "1:5: this character isn't allowed here"),
        ("{a,\0}", "1:4: a NUL byte: this is not text, or it is UTF-16; save it as UTF-8"),
        (r'{a, "b\x{110000}"}', "1:7: there is no character with this number"),
        (r'{a, "b\x{D800}"}', "1:7: there is no character with this number"),
        (r'"\xg"', "1:2: \\x needs two hexadecimal digits"),
        (r'"\^é"', "1:2: this is not a control character"),
        (r"$\xzz", "1:2: \\x needs two hexadecimal digits"),
        ("37#1", "1:1: the base of a number is from 2 to 36"),
        ("8#9", "1:1: a digit does not belong to the number's base"),
        ("9" * 5000, "1:1: the number is too long"),
        ("1.0e400", "1:1: the number is too large"),
        ("- a", "1:1: a sign belongs before a number only"),
        ("<<a>>", "1:3: a binary holds strings and numbers only"),
        ("<<1:16>>", "1:4: sizes in binaries aren't supported"),
        ("<<1/float>>", "1:5: only the type utf8 is supported"),
        ("<<16#D800/utf8>>", "1:3: there is no character with this number"),
        ("#record{a = b}", "1:2: only a map, #{key => value}, may begin with #"),
        ("#{a, b}", "1:4: a map's key and value are joined by =>"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, message: str) -> None:
    assert problem(text.encode()).startswith(f"{FILE}:{message}")


def test_nesting_and_size_have_limits() -> None:
    deep = read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert isinstance(deep, List)
    assert problem(b"{\n[" * MAX_DEPTH).startswith(f"{FILE}:101:2: nested deeper than {MAX_DEPTH} levels")
    assert problem(b" " * (MAX_BYTES + 1)).startswith(f"{FILE}:1:1: the file is larger than 4 MiB")


@pytest.mark.parametrize(
    "broken", [b'{password, "secret" "}', b"{password, secret secret}", b"[secret", b"{p, Secret}"]
)
def test_an_error_quotes_nothing(broken: bytes) -> None:
    assert "ecret" not in problem(broken)
