"""A configuration file, with the exports that it names → settings and definitions; a migration file → its two
clusters and what it selects. Or all problems of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from agent.core.migration.selection import VhostSelection
from agent.core.model import Definitions, VhostState
from agent.core.settings import DownstreamSettings, HttpSettings, Settings
from agent.core.text import did_you_mean
from agent.definitions.document import yaml
from agent.definitions.document.findings import (
    DocumentFindings,
    Path,
    Spot,
    file_error,
    file_problem,
    in_order,
    quoted,
    raise_errors,
)
from agent.definitions.document.interpolate import Interpolator
from agent.definitions.models.clusters import DownstreamModel
from agent.definitions.models.migration import MigrationModel
from agent.definitions.models.settings import AgentModel, HttpModel, SourcesModel
from agent.definitions.models.standby import StandbyModel
from agent.definitions.models.validation import AnyModel, check
from agent.definitions.models.values import kind_of
from agent.definitions.sources.cross_checks import OtherSources, check_references, check_standby, check_unrouted
from agent.definitions.sources.decode import SECTIONS, VHOSTS, decode_vhosts, find_vhosts, mapping
from agent.definitions.sources.exports import Bindings, MergedExports, read_exports
from agent.definitions.sources.keeper import SourceReading, merge
from agent.definitions.sources.written_secrets import warn_of_written_secrets
from agent.errors import ConfigurationError, Place, Problem
from agent.read_file import read_file

if TYPE_CHECKING:
    from agent.core.standby.settings import StandbySettings


FREE = "x-"
"""The prefix of keys at the top level that hold YAML anchors and mean nothing themselves."""
ROOT_KEYS = ("agent", "downstream", "definitions", "standby", *SECTIONS, VHOSTS)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The contents of one file; its representation shows nothing, since it may contain resolved secrets."""

    source: str
    settings: Settings = field(repr=False)
    definitions: Definitions = field(repr=False)
    states: Mapping[str, VhostState] = field(repr=False, default_factory=dict)
    bindings: Bindings = field(repr=False, default_factory=dict)
    """The downstream's objects according to the exports, by vhost, for use if its HTTP API can't be read."""
    warnings: tuple[Problem, ...] = ()
    files: frozenset[str] = field(default=frozenset(), repr=False)
    """Every file that was read; a change of one of them may change the configuration."""

    @property
    def reading(self) -> SourceReading:
        return SourceReading(self.definitions, warnings=self.warnings)


def load_configuration(
    path: str, *, environment: Mapping[str, str], strict: bool = True, secrets: bool = False
) -> Configuration:
    """Raises ConfigurationError with all problems. Lenient, it checks the file and not the machine: an unset variable
    or an unreadable file is a warning, and a placeholder is used instead. With `secrets`, the files of `${file:…}` have
    to be readable even so."""
    return _Loading(path, environment, needs=_NEEDS, strict=strict, secrets=secrets).load()


def load_http(path: str, *, environment: Mapping[str, str]) -> tuple[HttpSettings, str]:
    """The address and access of an agent with this file, whatever is wrong with the rest of it; and why its token isn't
    known. Raises ConfigurationError."""
    return _Loading(path, environment, needs=_NEEDS, strict=False).load_http()


class OpenDocument:
    """A mapping in a file as plain values, with the problems found so far; `needs` says what an empty file lacks."""

    def __init__(
        self, path: str, environment: Mapping[str, str], *, needs: str, strict: bool = True, secrets: bool = False
    ) -> None:
        self._path = path
        self._directory = str(FilePath(path).parent)
        self._strict, self._secrets = strict, secrets
        self._tree = yaml.compose_file(path, is_followed=strict)
        self._problems: list[Problem] = list(self._tree.problems)
        self._interpolator = Interpolator(
            environment,
            self._directory,
            self._report_unresolved,
            lambda path, text: self._spot.error(text, *path),
            partial(read_file, is_followed=strict),
        )
        findings = DocumentFindings(self._place, self._interpolator.raw, self._interpolator.unresolved, self._problems)
        self._spot = Spot(findings)
        self._raw = self._plain(needs)

    def checked(self, model: type[AnyModel]) -> tuple[AnyModel, Spot, tuple[Problem, ...]]:
        """All of it as one model, where its values are, and warnings. Raises ConfigurationError with all problems."""
        self._refuse_marks_in_keys(self._tree.root)
        found = check(model, self._raw, self._spot)
        raise_errors(self._problems)
        if found is None:
            raise ConfigurationError(in_order(self._problems))
        return found, self._spot, tuple(in_order(self._problems))

    @property
    def files(self) -> frozenset[str]:
        """Every file that was read so far."""
        return frozenset({self._path, *self._interpolator.files})

    def as_written(self) -> Any:
        """All of it with its references, rather than what they stand for."""
        return self._tree.plain()

    def _place(self, path: Path, key: bool) -> Place:
        return Place(self._path, *self._tree.position(path, key=key))

    def _report_unresolved(self, path: Path, message: str) -> None:
        is_needed = self._strict or (self._secrets and message.startswith("${file:"))
        report = self._spot.error if is_needed else self._spot.warn
        report(message, *path)

    def _refuse_marks_in_keys(self, node: yaml.YamlNode | None, path: Path = ()) -> None:
        match node.content if node else None:
            case list(items):
                for number, item in enumerate(items):
                    self._refuse_marks_in_keys(item, (*path, number))
            case dict(entries):
                for key, entry in entries.items():
                    if "${env:" in key or "${file:" in key:
                        self._spot.error("${...} is allowed in values only, not in keys", *path, key, key=True)
                    self._refuse_marks_in_keys(entry.node, (*path, key))

    def _plain(self, needs: str) -> dict[str, Any]:
        root = self._tree.root
        if root is None or root.content is None:
            raise ConfigurationError(
                [*self._problems, file_problem(self._path, f"the file is empty; it needs {needs}")]
            )
        if not isinstance(root.content, dict):
            message = f"expected a mapping of sections, got {kind_of(root.content)}"
            raise ConfigurationError([*self._problems, file_problem(self._path, message, root.line, root.column)])
        plain: dict[str, Any] = self._tree.plain(self._interpolator.resolve)
        return plain


class _Loading(OpenDocument):
    def load(self) -> Configuration:
        self._refuse_unknown_sections()
        self._refuse_marks_in_keys(self._tree.root)
        settings, sources = self._settings()
        paths = () if sources is None else sources.to_core(self._directory).files
        exports = read_exports(paths, self._spot.at("definitions", "files"), strict=self._strict)
        is_broker_read = settings is None or settings.sources.management
        definitions = self._definitions(exports, is_open=sources is None, is_broker_read=is_broker_read)
        if settings is not None and settings.standby is not None:
            check_standby(settings.standby, settings.downstream, definitions, self._spot.at("standby"))
        raise_errors(self._problems)
        warn_of_written_secrets(self._tree, self._spot)
        if settings is None:
            raise file_error(self._path, "the settings are invalid")
        return Configuration(
            source=self._path,
            settings=settings,
            definitions=definitions,
            states=exports.states,
            bindings=exports.bindings,
            warnings=tuple(in_order(self._problems)),
            files=self.files.union(paths),
        )

    def load_http(self) -> tuple[HttpSettings, str]:
        raw = mapping(self._raw.get("agent")).get("http")
        found = check(HttpModel, {} if raw is None else raw, self._spot.at("agent", "http"))
        if found is None:
            raise ConfigurationError(in_order(self._problems))
        if ("agent", "http", "token") not in self._interpolator.unresolved:
            return found.to_core(), ""
        place = self._place(("agent", "http", "token"), False)
        unread = (f"{place}: {each.message}" for each in self._problems if each.place == place)
        return replace(found.to_core(), token=None), next(unread, "")

    def _definitions(self, exports: MergedExports, *, is_open: bool, is_broker_read: bool) -> Definitions:
        vhosts = find_vhosts(self._raw, self._spot)
        own = decode_vhosts(vhosts)
        exported = self._merged(exports.definitions)
        is_open = is_open or not exports.is_complete or self._brokers_may_define()
        others = OtherSources(exported, is_open, is_broker_read)
        check_references(vhosts, others)
        check_unrouted(vhosts, others)
        return self._merged([(self._path, own), *exports.definitions])

    def _merged(self, sources: Sequence[tuple[str, Definitions]]) -> Definitions:
        try:
            return merge(sources)
        except ConfigurationError as error:
            self._problems.extend(problem for problem in error.problems if problem not in self._problems)
        return Definitions()

    def _settings(self) -> tuple[Settings | None, SourcesModel | None]:
        agent = self._section("agent", AgentModel, {})
        downstream = self._section("downstream", DownstreamModel, {"uri": "amqp://unresolved"})
        sources = self._section("definitions", SourcesModel, {})
        if agent is None or downstream is None or sources is None:
            return None, sources
        settings = sources.to_core(self._directory)
        if sources.management and not downstream.management:
            if "management" in sources.model_fields_set:
                self._spot.warn(_NO_API, "definitions", "management")
            settings = replace(settings, management=False)
        standby = self._standby()
        return Settings(downstream.to_core(), agent.to_core(self._directory), settings, standby), sources

    def _standby(self) -> StandbySettings | None:
        if self._raw.get("standby") is None:
            return None
        spot = self._spot.at("standby")
        found = check(StandbyModel, self._raw["standby"], spot)
        if found is None:
            return None
        found.check(spot)
        return found.to_core(spot)

    def _section(self, key: str, model: type[AnyModel], least: Mapping[str, Any]) -> AnyModel | None:
        """`least` is a valid section, used if the only problem is a value that is unknown on this machine."""
        raw = self._raw.get(key)
        if raw is None and least:
            self._spot.error(f"the file needs the key '{key}'", key, key=True)
            return None
        before = self._spot.findings.errors
        found = check(model, {} if raw is None else raw, self._spot.at(key))
        if found is None and self._spot.findings.errors == before:
            return model.model_validate(least)
        return found

    def _brokers_may_define(self) -> bool:
        """True if the broker is explicitly named as a source, so that it may define names that this file doesn't."""
        sources, downstream = mapping(self._raw.get("definitions")), mapping(self._raw.get("downstream"))
        return sources.get("management") is True and "management" in downstream

    def _refuse_unknown_sections(self) -> None:
        if "downstream" not in self._raw and any(key in self._raw for key in _OF_EXPORTS):
            raise file_error(self._path, _AN_EXPORT)
        for key in self._raw:
            if key not in ROOT_KEYS and not key.startswith(FREE):
                hint = did_you_mean(key, ROOT_KEYS)
                self._spot.error(f"unknown key {quoted(key)}{hint}", key, key=True)


_OF_EXPORTS = (
    "rabbit_version",
    "rabbitmq_version",
    "parameters",
    "global_parameters",
    "topic_permissions",
    "permissions",
)
_AN_EXPORT = (
    "this is a RabbitMQ definitions export and no configuration: write a configuration with the key 'downstream', and "
    "list this file there under definitions.files"
)
_NEEDS = "at least the key 'downstream'"
_NO_API = "definitions.management does nothing without downstream.management, the address of the HTTP API"


@dataclass(frozen=True, slots=True)
class Migration:
    """The contents of a migration file; its representation shows no address."""

    source: DownstreamSettings = field(repr=False)
    target: DownstreamSettings = field(repr=False)
    vhosts: Mapping[str, VhostSelection] = field(repr=False)
    warnings: tuple[Problem, ...] = ()
    files: frozenset[str] = field(default=frozenset(), repr=False)
    written: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The file with its references, rather than what they stand for."""


def load_migration(path: str, *, environment: Mapping[str, str]) -> Migration:
    """Raises ConfigurationError with all problems."""
    document = OpenDocument(path, environment, needs="the keys 'source', 'target' and 'vhosts'")
    model, spot, warnings = document.checked(MigrationModel)
    vhosts = {name: each.to_core(spot.at("vhosts", name)) for name, each in model.vhosts.items()}
    ends = model.source.to_core(), model.target.to_core()
    return Migration(*ends, vhosts, warnings, document.files, document.as_written())
