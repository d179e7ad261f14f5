"""`${env:NAME}` and `${file:PATH}` in texts; `$${` is a literal `${`. What they resolve to is never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from agent.definitions.findings import Path
from agent.definitions.read_file import UnreadableError, read_file

MAX_VALUE_BYTES = 64 * 1024
STAND_IN = "1"  # may be a name, a password, a host and a port
_URI_STAND_IN = "amqp://unresolved"
_STAND_INS = {
    "uri": _URI_STAND_IN,
    "src-uri": _URI_STAND_IN,
    "dest-uri": _URI_STAND_IN,
    "management": "http://unresolved",
    "listen": "127.0.0.1:9419",
}
_MARK = re.compile(r"\$\$\{|\$\{(?P<inner>[^{}]*)(?P<closed>\})?")
_REFERENCE = re.compile(r"(?P<kind>env|file):(?P<name>.+)")

HOW_TO = "write ${env:NAME} or ${file:PATH}, or $${ for a literal ${"

ReadFile = Callable[[str, int], bytes]


@dataclass(slots=True)
class Interpolator:
    """Resolves the texts of one document and remembers by path which ones it touched."""

    environment: Mapping[str, str]
    directory: str
    strict: bool
    report: Callable[[Path, str, bool], None]  # path, message, whether it is an error
    read: ReadFile = read_file
    raw: dict[Path, str] = field(default_factory=dict)
    unresolved: set[Path] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    def resolve(self, text: str, path: Path) -> str:
        if "${" not in text:
            return text
        self.raw[path] = text
        whole = _STAND_INS.get(_last_key(path), STAND_IN) if _MARK.fullmatch(text) else STAND_IN
        return _MARK.sub(lambda found: self._value(found, path, whole), text)

    def _value(self, found: re.Match[str], path: Path, stand_in: str) -> str:
        if found[0] == "$${":
            return "${"
        reference = _REFERENCE.fullmatch(found["inner"])
        if reference is None or not found["closed"]:
            self.report(path, f"a ${{…}} that can't be understood; {HOW_TO}", True)
            self.unresolved.add(path)
            return stand_in
        try:
            return self._env(reference["name"]) if reference["kind"] == "env" else self._file(reference["name"])
        except UnreadableError as error:
            self.report(path, f"{found[0]}: {error}", self.strict)
            self.unresolved.add(path)
            return stand_in

    def _env(self, name: str) -> str:
        if name not in self.environment:
            raise UnreadableError("the environment variable isn't set")
        return self.environment[name]

    def _file(self, name: str) -> str:
        path = str(FilePath(self.directory, name))
        self.files.add(path)
        try:
            return self.read(path, MAX_VALUE_BYTES).decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise UnreadableError("the file is not UTF-8") from None


def _last_key(path: Path) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")
