"""Bytes → text that may be YAML, and the scanner's errors in an operator's words."""

from __future__ import annotations

import re

import yaml

from agent.definitions.document.findings import file_problem
from agent.errors import ConfigurationError

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_BOM = b"\xef\xbb\xbf"


def decode(data: bytes, source: str) -> str:
    if data.startswith(_WIDE) or (b"\x00" in data[:4]):
        raise ConfigurationError(
            [file_problem(source, "the file is not UTF-8 (UTF-16, or not text); save it as UTF-8")]
        )
    data = data.removeprefix(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line_start = before.rfind(b"\n") + 1
        column = len(before[line_start:].decode("utf-8")) + 1
        problem = file_problem(
            source,
            f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",
            before.count(b"\n") + 1,
            column,
        )
        raise ConfigurationError([problem]) from None
    if found := _UNPRINTABLE.search(text):
        line, column = position(text, found.start())
        code = f"U+{ord(found[0]):04X}"
        raise ConfigurationError(
            [file_problem(source, f"the control character {code} isn't allowed here", line, column)]
        )
    return text


def position(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of an offset."""
    line_start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - line_start + 1


# Start of the scanner's message → our message. Other messages may quote the document, so they aren't shown.
_WORDS = (
    ("mapping values are not allowed", "a ':' where no key is possible; quote text that contains ': '"),
    ("found character that cannot start any token", "a character that can't begin a value; quote the text"),
    ("found duplicate anchor", "the anchor is defined twice"),
    ("found unexpected end of stream", "the file ends inside a quoted text"),
    ("found unexpected document", "a document marker inside a quoted text"),
    ("did not find expected key", "a key was expected here; check the indentation and quotes above"),
    ("did not find expected '-' indicator", "a '-' was expected here; check the indentation"),
    ("did not find expected ',' or ']'", "a ',' or ']' is missing"),
    ("did not find expected ',' or '}'", "a ',' or '}' is missing"),
    ("did not find expected node content", "a value was expected here"),
    ("did not find expected <document start>", "the document should have ended here; check the indentation"),
    ("did not find expected comment or line break", "only a comment may follow here"),
    ("did not find expected alphabetic or numeric character", "the '&' or '*' needs a name; quote the text"),
    ("could not find expected ':'", "a ':' is missing after the key"),
    ("block sequence entries are not allowed", "a list can't begin here; check the indentation"),
    ("block mapping", "check the indentation"),
    ("found unknown escape character", "unknown escape after '\\'; use single quotes or double the '\\'"),
    ("found a tab character", "a tab; YAML indents with spaces"),
    ("found undefined tag handle", "tags ('!') aren't supported; quote the text"),
    ("while scanning a tag", "tags ('!') aren't supported; quote the text"),
    ("expected <block end>", "check the indentation"),
    ("expected ',' or ']'", "a ',' or ']' is missing"),
    ("expected ',' or '}'", "a ',' or '}' is missing"),
)


# The scanner notices these after the missing character; we report the start of the key or quote.
_FROM_THE_BEGINNING = ("could not find expected ':'", "found unexpected end of stream", "found unexpected document")
_LONGEST_KEY = 1024  # how far YAML scanners look ahead for the ':'


def scanner_error(error: yaml.YAMLError, text: str, source: str) -> ConfigurationError:
    said = f"{getattr(error, 'problem', '') or ''}"
    noticed, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line, column = _numbers(noticed or begun)
    around = _line(text, line)
    if "\t" in around[max(column - 2, 0) : column + 1]:
        message = "a tab; YAML indents with spaces"
    elif long_key := _long_key(around, column):
        message, column = f"a key can't be longer than {_LONGEST_KEY} characters", long_key
    else:
        message = next((words for begin, words in _WORDS if said.startswith(begin)), "this is not YAML")
        if message.startswith("a ','") and "${" in around:
            message += ': quote ${…} inside braces and brackets, as in {uri: "${env:NAME}"}'
        line, column = _numbers(begun or noticed) if said.startswith(_FROM_THE_BEGINNING) else (line, column)
    return ConfigurationError([file_problem(source, message, line, column)])


def _numbers(mark: yaml.Mark | None) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _line(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if line <= len(lines) else ""


def _long_key(around: str, column: int) -> int | None:
    """The column of the key before the ':' in this column, if it is too long for a key."""
    before = around[: column - 1]
    written = before[max(before.rfind(mark) for mark in "{,") + 1 :].lstrip()
    is_one = around[column - 1 : column] == ":" and len(written) > _LONGEST_KEY and ": " not in written
    return len(before) - len(written) + 1 if is_one else None
