"""`${env:NAME}` and `${file:PATH}` in texts; `$${` is a literal `${`. Their values are never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from agent.definitions.document.findings import Path
from agent.read_file import UnreadableError, read_file

MAX_VALUE_BYTES = 64 * 1024
MAX_LENGTH = 4 * 1024 * 1024
PLACEHOLDER = "1"  # may be a name, a password, a host and a port
_URI_PLACEHOLDER = "amqp://unresolved"
_PLACEHOLDERS = {
    "uri": _URI_PLACEHOLDER,
    "src-uri": _URI_PLACEHOLDER,
    "dest-uri": _URI_PLACEHOLDER,
    "management": "http://unresolved",
    "peers": "http://unresolved",
    "listen": "127.0.0.1:9419",
}
_MARK = re.compile(r"\$\$\{|\$\{(?P<inner>[^{}]*)(?P<closed>\})?")
_REFERENCE = re.compile(r"(?P<kind>env|file):(?P<name>.+)")

HOW_TO = "write ${env:NAME} or ${file:PATH}, or $${ for a literal ${"


@dataclass(slots=True)
class Interpolator:
    """Resolves the texts of one document and remembers by path which ones it touched."""

    environment: Mapping[str, str]
    directory: str
    report: Callable[[Path, str], None]  # what has no value on this machine
    refuse: Callable[[Path, str], None]  # what can't be meant
    read: Callable[[str, int], bytes] = read_file
    raw: dict[Path, str] = field(default_factory=dict)
    unresolved: set[Path] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    _known: dict[str, str | UnreadableError] = field(default_factory=dict)
    _length: int = 0

    def resolve(self, text: str, path: Path) -> str:
        if "${" not in text:
            return text
        self.raw[path] = text
        found = {mark[0]: mark for mark in _MARK.finditer(text)}
        values = {mark: self._value(reference, path) for mark, reference in found.items()}
        if None in values.values():
            self.unresolved.add(path)
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        placeholder = _PLACEHOLDERS.get(key, PLACEHOLDER) if text in found else PLACEHOLDER
        whole = _MARK.sub(lambda mark: placeholder if (value := values[mark[0]]) is None else value, text)
        self._length += len(whole)
        if self._length > MAX_LENGTH:
            self.refuse(path, f"the values of ${{…}} are longer than {MAX_LENGTH} characters in total")
            return PLACEHOLDER
        return whole

    def _value(self, found: re.Match[str], path: Path) -> str | None:
        """The value of a reference; None after an error was reported."""
        mark = found[0]
        if mark == "$${":
            return "${"
        reference = _REFERENCE.fullmatch(found["inner"])
        if reference is None or not found["closed"]:
            self.refuse(path, f"an invalid ${{…}}; {HOW_TO}")
            return None
        if mark not in self._known:
            self._known[mark] = self._look_up(reference["kind"], reference["name"])
        value = self._known[mark]
        if isinstance(value, UnreadableError):
            self.report(path, f"{mark}: {value}")
            return None
        return value

    def _look_up(self, kind: str, name: str) -> str | UnreadableError:
        if kind == "env":
            return self.environment.get(name, UnreadableError("the environment variable isn't set"))
        path = str(FilePath(self.directory, name))
        self.files.add(path)
        try:
            return self.read(path, MAX_VALUE_BYTES).decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            return UnreadableError("the file is not UTF-8")
        except UnreadableError as error:
            return UnreadableError(str(error))
