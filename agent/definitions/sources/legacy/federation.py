"""Finds the federation plugin's settings in a 2.x configuration, reads them and checks what they refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agent.core.text.suggest import did_you_mean
from agent.definitions.document.findings import quoted
from agent.definitions.sources.legacy.erlang import Atom, Document, Term, Tuple
from agent.definitions.sources.legacy.exchanges import LegacyExchange, read_exchange
from agent.definitions.sources.legacy.properties import (
    LegacyProblems,
    PropertyList,
    is_unset,
    items_of,
    key_name,
    name,
    properties,
    proplists,
    text_of,
)
from agent.definitions.sources.legacy.upstreams import (
    EVERY_UPSTREAM,
    BrokerDefaults,
    LegacyConnection,
    LegacySet,
    Secrets,
    read_connection,
    read_set,
)
from agent.errors import Place

APPLICATION = "rabbitmq_federation"
DOWNSTREAM_VARIABLE = "DOWNSTREAM_PASSWORD"
DEFAULT_VHOST = "/"
_SETTINGS = ("exchanges", "upstream_sets", "connections", "local_username", "local_nodename")


@dataclass(slots=True)
class LegacyFederation:
    """The contents of `{rabbitmq_federation, […]}`; exchanges by vhost and name."""

    connections: dict[str, LegacyConnection] = field(default_factory=dict)
    upstream_sets: dict[str, LegacySet] = field(default_factory=dict)
    exchanges: dict[tuple[str, str], LegacyExchange] = field(default_factory=dict)
    username: str | None = None
    nodename: str | None = None
    has_secrets: bool = False
    notes: list[str] = field(default_factory=list)


def read_federation(document: Document, file: str) -> LegacyFederation:
    """Returns everything, or raises LegacyError with all problems."""
    problems = LegacyProblems()
    reader = _FederationReader(_settings(document, file, problems), _broker_defaults(document), problems)
    federation = reader.read()
    _check_references(federation, problems)
    problems.check()
    return federation


def _settings(document: Document, file: str, problems: LegacyProblems) -> PropertyList:
    found = list(_applications(document, APPLICATION))
    if not found:
        advice = "is this the rabbitmq.config of the broker that federates?"
        problems.add(
            Place(file, 1, 1), f"there is no {{{APPLICATION}, […]}} in this file, so nothing to import; {advice}"
        )
        problems.check()
    for again, _ in found[1:]:
        problems.add(again.at, f"{APPLICATION} is here for the second time; put both into one")
    at, settings = found[0]
    given = properties(settings, APPLICATION, problems)
    return PropertyList(at.at, given.found, given.notes)


def _applications(document: Document, wanted: str) -> Iterator[tuple[Tuple, Term]]:
    """Every `{wanted, Settings}`, alone or in the file's list."""
    for term in document.terms:
        for item in (term,) if isinstance(term, Tuple) else items_of(term) or ():
            match item:
                case Tuple((application, settings)) if text_of(application) == wanted:
                    yield item, settings


def _broker_defaults(document: Document) -> BrokerDefaults:
    """The broker's own settings that the plugin used; errors in other settings aren't reported."""
    for _, settings in _applications(document, "rabbit"):
        given = properties(settings, "rabbit", LegacyProblems()).found
        texts = {key: text_of(given[key].value) for key in ("default_vhost", "default_user") if key in given}
        return BrokerDefaults(
            texts.get("default_vhost") or DEFAULT_VHOST, texts.get("default_user"), "default_pass" in given
        )
    return BrokerDefaults()


@dataclass(slots=True)
class _FederationReader:
    given: PropertyList
    defaults: BrokerDefaults
    problems: LegacyProblems
    secrets: Secrets = field(default_factory=lambda: Secrets({DOWNSTREAM_VARIABLE}))
    result: LegacyFederation = field(default_factory=LegacyFederation)

    def read(self) -> LegacyFederation:
        for found, _, value in self._named("connections"):
            read = read_connection(found, value, self.defaults, secrets=self.secrets, problems=self.problems)
            self.result.connections[found] = read
        for found, at, value in self._named("upstream_sets"):
            self.result.upstream_sets[found] = read_set(found, at, value, problems=self.problems)
        self._exchanges()
        self.result.username = self._name("local_username")
        self.result.nodename = self._name("local_nodename")
        self.result.has_secrets = self.result.username is not None or self.secrets.taken != {DOWNSTREAM_VARIABLE}
        self.result.notes += (*self.given.notes, *self.given.without_counterpart(_SETTINGS))
        return self.result

    def _items(self, key: str) -> tuple[Term, ...]:
        """The elements of a setting that is a list."""
        if key not in self.given.found:
            return ()
        value = self.given.found[key].value
        items = proplists(value) if key == "exchanges" else items_of(value)
        if items is None:
            self.problems.add(value.at, f"{key}: write a list, as in {{{key}, […]}}")
        return items or ()

    def _named(self, key: str) -> Iterator[tuple[str, Place, Term]]:
        """Each `{"name", Value}` of a list; of two with one name 2.x took the first."""
        taken: set[str] = set()
        for item in self._items(key):
            match item:
                case Tuple((written, value)):
                    found = self.problems.attempt(key, key_name, written)
                case _:
                    self.problems.add(item.at, f'{key}: write this entry as {{"name", […]}}')
                    continue
            if found is not None and found in taken:
                self._again(f"{quoted(found)} of {key}", item.at)
            elif found is not None:
                taken.add(found)
                yield found, written.at, value

    def _exchanges(self) -> None:
        for item in self._items("exchanges"):
            exchange = read_exchange(item, self.defaults.vhost, self.problems)
            if exchange is None:
                continue
            key = (exchange.vhost, exchange.name)
            if key in self.result.exchanges:
                self._again(f"exchange {quoted(exchange.name)}", item.at)
            else:
                self.result.exchanges[key] = exchange

    def _again(self, what: str, at: Place) -> None:
        self.result.notes.append(f"{what} (line {at.line}): given before, and 2.x used the first; omitted")

    def _name(self, key: str) -> str | None:
        if key not in self.given.found:
            return None
        value = self.given.found[key].value
        return None if is_unset(value) or value == Atom("automatic") else self.problems.attempt(key, name, value)


def _check_references(federation: LegacyFederation, problems: LegacyProblems) -> None:
    for exchange in federation.exchanges.values():
        if exchange.upstream_set not in federation.upstream_sets:
            _missing(
                exchange.upstream_set,
                "upstream_sets",
                exchange.set_at,
                known=federation.upstream_sets,
                problems=problems,
            )
    for upstream_set in federation.upstream_sets.values():
        for member in upstream_set.members:
            if member.connection not in federation.connections:
                _missing(member.connection, "connections", member.at, known=federation.connections, problems=problems)
    every = federation.upstream_sets.get(EVERY_UPSTREAM)
    if every is not None and not every.is_every(federation.connections):
        advice = "give it another name, here and wherever exchanges and clients name it"
        problems.add(every.at, f"the set 'all' can't be imported: 'all' now means every upstream of a vhost; {advice}")


def _missing(wanted: str, where: str, at: Place, *, known: Iterable[str], problems: LegacyProblems) -> None:
    hint = did_you_mean(wanted, known) or "; add it there or name another"
    problems.add(at, f"{quoted(wanted)} is not in {where}{hint}")
