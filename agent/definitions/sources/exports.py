"""RabbitMQ definitions exports, whole or of one vhost, JSON or YAML → definitions, and the state they describe.

Users and their password hashes are never read; texts are taken literally, as by a broker. JSON is read at the speed of
`json`; the location of a path is found only on request.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

from agent.core.model import DEFAULT_VHOST, Binding, Definitions, Policy, VhostDefinitions, VhostState
from agent.definitions.document import yaml
from agent.definitions.document.findings import (
    DocumentFindings,
    Locate,
    Path,
    Spot,
    file_error,
    in_order,
    quoted,
    raise_errors,
)
from agent.definitions.document.yaml import decode, position
from agent.definitions.models.downstream_objects import NO_FEDERATION
from agent.definitions.models.values import kind_of
from agent.definitions.sources.downstream_state import bindings_by_source, vhost_state
from agent.definitions.sources.keeper import merge
from agent.definitions.sources.parameters import (
    GLOBAL_PARAMETER,
    decode_global,
    decode_native_policy,
    decode_other_policy,
    decode_parameters,
)
from agent.errors import ConfigurationError, Place, Problem
from agent.read_file import UnreadableError, read_file

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


MAX_BYTES: Final = 16 * 1024 * 1024
MOST_NOTED: Final = 10
MAX_PARAMETERS: Final = 20_000  # each is checked separately, which takes time
_OF_A_VHOST: Final = ("parameters", "policies", "exchanges", "queues", "bindings")
_LISTS: Final = (*_OF_A_VHOST, "global_parameters")
Lists: TypeAlias = Mapping[str, list[Mapping[str, Any]]]
Bindings: TypeAlias = Mapping[str, Mapping[str, tuple[Binding, ...]]]  # by vhost and exchange


@dataclass(frozen=True, slots=True)
class Export:
    """`states` and `bindings` describe the downstream if no HTTP API can be read."""

    definitions: Definitions = field(default_factory=Definitions, repr=False)
    states: Mapping[str, VhostState] = field(default_factory=dict, repr=False)
    bindings: Bindings = field(default_factory=dict, repr=False)
    warnings: tuple[Problem, ...] = ()


def read_export(data: bytes, source: str) -> Export:
    """Raises ConfigurationError with all problems."""
    raw, locate = parse_export(data, source)
    if not isinstance(raw, dict):
        raise file_error(source, f"expected a definitions export, got {kind_of(raw)}")
    problems: list[Problem] = []
    root = Spot(DocumentFindings(locate, problems=problems), native=True)
    lists = {name: _list(raw, name, root) for name in _LISTS}
    if not any(name in raw for name in _LISTS):
        root.warn("this doesn't look like a definitions export; it has none of its lists")
    vhost = _only_vhost(raw, lists, root)
    definitions = _definitions(lists, vhost, root)
    raise_errors(problems)
    exchanges, queues = _by_vhost(lists["exchanges"], vhost), _by_vhost(lists["queues"], vhost)
    return Export(
        definitions,
        {name: vhost_state(exchanges.get(name, ()), queues.get(name, ())) for name in {**exchanges, **queues}},
        {name: bindings_by_source(found) for name, found in _by_vhost(lists["bindings"], vhost).items()},
        tuple(in_order(problems)),
    )


def parse_export(data: bytes, source: str) -> tuple[Any, Locate]:
    """JSON, or YAML within the bounds of a configuration. Raises ConfigurationError."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        text = JsonText(decode(data, source), source)
        return text.load(), text.place
    if len(data) > yaml.MAX_BYTES:
        limit = yaml.MAX_BYTES // 1024
        raise file_error(source, f"larger than {limit} KiB, which only a JSON export may be")
    tree = yaml.compose(data, source)
    if tree.problems:
        raise ConfigurationError(tree.problems)
    return tree.plain(), lambda path, key: Place(source, *tree.position(path, key=key))


def _list(raw: Mapping[str, Any], name: str, root: Spot) -> list[Mapping[str, Any]]:
    found = raw.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        root.error(f"{name}: expected a list, got {kind_of(found)}", name)
        return []
    if name == "parameters" and len(found) > MAX_PARAMETERS:
        root.error(f"{name}: more than {MAX_PARAMETERS} of them", name, MAX_PARAMETERS)
        return []
    for number, item in enumerate(found):
        if not isinstance(item, dict):
            root.error(f"{name}: expected a mapping, got {kind_of(item)}", name, number)
    return [item if isinstance(item, dict) else {} for item in found]


def _only_vhost(raw: Mapping[str, Any], lists: Lists, root: Spot) -> str:
    """The vhost of items without one, as in the export of a single vhost."""
    given = raw.get("original_vhost_name")
    if isinstance(given, str):
        return given
    if any(item and "vhost" not in item for name in _OF_A_VHOST for item in lists[name]):
        root.warn(f"an export of one vhost without its name; read as vhost '{DEFAULT_VHOST}'")
    return DEFAULT_VHOST


def _definitions(lists: Lists, vhost: str, root: Spot) -> Definitions:
    parameters = decode_parameters(
        lists["parameters"], lambda number, _: root.at("parameters", number, "value"), default_vhost=vhost
    )
    policies = _policies(lists["policies"], vhost, root)
    own = [
        decode_global(raw.get("value"), replace(root.at("global_parameters", number, "value"), native=False))
        for number, raw in enumerate(lists["global_parameters"])
        if raw.get("name") == GLOBAL_PARAMETER
    ]
    by_policies = Definitions({name: VhostDefinitions(policies=found) for name, found in policies.items()})
    return merge([("parameters", parameters), ("policies", by_policies), *((GLOBAL_PARAMETER, one) for one in own)])


def _policies(raws: list[Mapping[str, Any]], vhost: str, root: Spot) -> dict[str, dict[str, Policy]]:
    """The policies that federate, and in vhosts that have such the others that may win against them."""
    found: dict[str, dict[str, Policy]] = {}
    others = 0
    for decoding in (decode_native_policy, decode_other_policy):
        federated = set(found)
        for number, raw in enumerate(raws):
            name, its_vhost = raw.get("name"), _vhost(raw, vhost)
            if not isinstance(name, str) or (decoding is decode_other_policy and its_vhost not in federated):
                continue
            policy = decoding(name, raw, root.at("policies", number))
            if policy is None:
                continue
            found.setdefault(its_vhost, {})[policy.name] = policy
            if policy.federation is None:
                others += 1
                _note_other(others, policy, root.at("policies", number))
    return found


def _note_other(number: int, policy: Policy, spot: Spot) -> None:
    """Warns of a few such policies: a broker may have very many."""
    if number <= MOST_NOTED:
        spot.warn(f"policy {quoted(policy.name)}: {NO_FEDERATION}")
    elif number == MOST_NOTED + 1:
        spot.warn(f"this and further policies: {NO_FEDERATION}")


def _by_vhost(items: Iterable[Mapping[str, Any]], vhost: str) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        found.setdefault(_vhost(item, vhost), []).append(item)
    return found


def _vhost(item: Mapping[str, Any], default: str) -> str:
    given = item.get("vhost", default)
    return given if isinstance(given, str) else default


@dataclass(frozen=True, slots=True)
class MergedExports:
    """The merged contents of the files."""

    definitions: tuple[tuple[str, Definitions], ...]
    states: Mapping[str, VhostState]
    bindings: Bindings
    is_complete: bool  # whether all could be read


def read_exports(paths: Iterable[str], spot: Spot, *, strict: bool) -> MergedExports:
    """Reports unreadable files at `spot`, the list of files, and other errors in their own file."""
    definitions: list[tuple[str, Definitions]] = []
    states: dict[str, VhostState] = {}
    bindings: dict[str, dict[str, tuple[Binding, ...]]] = {}
    is_complete = True
    for number, path in enumerate(paths):
        export = _read_file(path, spot.at(number), strict=strict)
        if export is None:
            is_complete = False
            continue
        spot.findings.problems.extend(export.warnings)
        definitions.append((path, export.definitions))
        for vhost, state in export.states.items():
            before = states.get(vhost, VhostState())
            states[vhost] = VhostState({**before.exchanges, **state.exchanges}, {**before.queues, **state.queues})
        for vhost, by_source in export.bindings.items():
            into = bindings.setdefault(vhost, {})
            for source, more in by_source.items():
                into[source] = (*into.get(source, ()), *more)
    return MergedExports(tuple(definitions), states, bindings, is_complete)


def _read_file(path: str, spot: Spot, *, strict: bool) -> Export | None:
    written = spot.findings.raw.get(spot.path, path)  # locations never show the value of a ${…}
    try:
        return read_export(read_file(path, MAX_BYTES, is_followed=strict), written)
    except UnreadableError as error:
        report = spot.error if strict else spot.warn
        report(f"definitions.files: {error}")
    except ConfigurationError as error:
        spot.findings.problems.extend(error.problems)
    return None
