"""JSON text → plain data at the speed of `json`; the location of a path is found only on request."""

from __future__ import annotations

import bisect
import json
import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any

from agent.definitions.document.findings import Path, file_error
from agent.definitions.document.yaml import position
from agent.errors import ConfigurationError, Place

MAX_CONTAINERS = 250_000  # together with MAX_ITEMS bounds the memory of the data
MAX_ITEMS = 1_500_000
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonText:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._line_starts: list[int] = []
        self._children: dict[int, dict[str | int, tuple[int, int]]] = {}

    def load(self) -> Any:
        """Raises ConfigurationError if it is not JSON."""
        containers, items = self._text.count("[") + self._text.count("{"), self._text.count(",")
        if containers > MAX_CONTAINERS or items > MAX_ITEMS:
            raise self._failure("the file holds more objects than can be read at once; split it by vhost", 0)
        message, offset = "", 0
        try:
            return json.loads(self._text, parse_constant=_refuse_constant)
        except JSONDecodeError as error:
            message, offset = f"not JSON: {error.msg}", error.pos
        except RecursionError:
            message = "nested too deeply"
        except ValueError:
            message = "a number can't be read (too long, NaN or Infinity)"
        raise self._failure(message, offset)

    def place(self, path: Path, key: bool) -> Place:
        """The location of the path's value, or of its key; of the longest part of the path that exists."""
        at_key = at_value = self._skip(0)
        for part in path:
            found = self._children_of(at_value).get(part)
            if found is None:
                break
            at_key, at_value = found
        return self._place(at_key if key else at_value)

    def _place(self, offset: int) -> Place:
        if not self._line_starts:
            self._line_starts = [0, *(newline.end() for newline in re.finditer("\n", self._text))]
        line = bisect.bisect_right(self._line_starts, offset)
        return Place(self._source, line, offset - self._line_starts[line - 1] + 1)

    def _failure(self, message: str, offset: int) -> ConfigurationError:
        return file_error(self._source, message, *position(self._text, offset))

    def _children_of(self, start: int) -> dict[str | int, tuple[int, int]]:
        """Offsets of the keys and values directly below; siblings are skipped by the decoder itself."""
        if start not in self._children:
            opening = self._text[start : start + 1]
            self._children[start] = dict(self._scan(start + 1, is_object=opening == "{")) if opening in "[{" else {}
        return self._children[start]

    def _scan(self, offset: int, *, is_object: bool) -> Any:
        number = 0
        offset = self._skip(offset)
        while self._text[offset] not in "]}":
            key: str | int = number
            at_key = offset
            if is_object:
                key, offset = scanstring(self._text, offset + 1)
                offset = self._skip(self._skip(offset) + 1)
            yield key, (at_key, offset)
            _, offset = _DECODER.raw_decode(self._text, offset)
            offset = self._skip(offset)
            if self._text[offset] == ",":
                offset = self._skip(offset + 1)
            number += 1

    def _skip(self, offset: int) -> int:
        blanks = _BLANKS.match(self._text, offset)
        return offset if blanks is None else blanks.end()


def _refuse_constant(_name: str) -> None:
    raise ValueError
