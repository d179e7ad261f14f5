"""The federation plugin's settings in a 2.x configuration: finds and reads them, and checks what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from agent.core.fields import INT64
from agent.core.model import DEFAULT_VHOST
from agent.core.text import did_you_mean
from agent.definitions.document.findings import quoted
from agent.definitions.sources.legacy import proplists, upstreams
from agent.definitions.sources.legacy.erlang import Atom, Document, Float, Integer, Term, Tuple, fail
from agent.definitions.sources.legacy.proplists import Converter, LegacyProblems, PropertyList, Rule, property_list
from agent.definitions.sources.legacy.upstreams import LegacyConnection, LegacySet
from agent.definitions.sources.legacy.yaml_writer import Block, BlockEntry, Rows, Value
from agent.errors import Place

APPLICATION = "rabbitmq_federation"
DOWNSTREAM_VARIABLE = "DOWNSTREAM_PASSWORD"
_SETTINGS = ("exchanges", "upstream_sets", "connections", "local_username", "local_nodename")
_BUILT_IN = ("direct", "fanout", "topic", "headers")


@dataclass(frozen=True, slots=True)
class LegacyExchange:
    """`upstream_set` and `set_at` are the name of its set and the location."""

    name: str
    vhost: str
    upstream_set: str
    set_at: Place
    block: Block


def _type(term: Term) -> Value:
    if proplists.text_of(term) == "x-federation":
        fail(term.at, "x-federation can't be based on itself; write topic, or the type the exchange has")
    found = proplists.name(term)
    if found not in _BUILT_IN and not found.startswith("x-"):
        fail(term.at, f"write one of {', '.join(_BUILT_IN)}, or a plugin's type, which begins with x-")
    return proplists.literal(found)


def _declarable(term: Term) -> str:
    found = proplists.key_name(term)
    if found.startswith("amq."):
        fail(term.at, "names that begin with amq. are the broker's own; name another")
    return found


def _arguments(term: Term) -> Block:
    items = proplists.items_of(term)
    if items is None:
        fail(term.at, 'write a list, as in [{<<"key">>, longstr, <<"value">>}]')
    return Block(tuple({entry.key: entry for entry in map(_argument, items)}.values()))


def _argument(term: Term) -> BlockEntry:
    match term:
        case Tuple((key, kind, value)):
            return BlockEntry(proplists.key_name(key), _typed(kind, value))
        case Tuple((key, value)):
            return BlockEntry(proplists.key_name(key), _untyped(value))
    return fail(term.at, 'write {<<"key">>, longstr, <<"value">>}')


def _array(term: Term) -> Value:
    return Rows(tuple(_element(item) for item in proplists.items_of(term) or ()))


def _element(term: Term) -> Value:
    match term:
        case Tuple((kind, value)):
            return _typed(kind, value)
    return _untyped(term)


def _typed(kind: Term, value: Term) -> Value:
    read = _AMQP_TYPES.get(proplists.text_of(kind) or "")
    if read is None:
        fail(kind.at, f"this AMQP type has no counterpart; write one of {', '.join(_AMQP_TYPES)}")
    return read(value)


def _untyped(value: Term) -> Value:
    match value:
        case Atom("true") | Atom("false"):
            return proplists.flag(value)
        case Integer():
            return _int64(value)
        case Float(number):
            return number
    return proplists.written_text(value)


def _real(term: Term) -> Value:
    if not isinstance(term, Integer | Float):
        fail(term.at, "write a number")
    return float(term.value)


_int64: Converter = proplists.whole(INT64.start, INT64.stop - 1)
_INTEGERS = ("signedint", "unsignedint", "long", "short", "unsignedshort", "byte", "unsignedbyte", "timestamp")
_AMQP_TYPES: dict[str, Converter] = {
    "longstr": proplists.written_text,
    "binary": proplists.written_text,
    "bool": proplists.flag,
    **dict.fromkeys(_INTEGERS, _int64),
    "float": _real,
    "double": _real,
    "table": _arguments,
    "array": _array,
    "void": lambda _: None,
}
_EXCHANGE = {
    "type": Rule("type", _type),
    "durable": Rule("durable", proplists.flag),
    "auto_delete": Rule("auto-delete", proplists.flag),
    "internal": Rule("internal", lambda term: None if proplists.flag(term) else False),
    "upstream_set": Rule("upstream-set", proplists.written_name),
    "arguments": Rule("arguments", _arguments, "2.x declared the exchange without them"),
}
_MANDATORY = {
    "exchange": 'add {exchange, "…"}',
    "type": 'add {type, "topic"}, or the type the exchange has',
    "upstream_set": 'add {upstream_set, "…"}, a name from upstream_sets',
}
_NAMES: dict[str, Callable[[Term], str]] = {
    "exchange": _declarable,
    "virtual_host": proplists.key_name,
    "upstream_set": proplists.name,
}
_EXCHANGE_PROPERTIES = ("exchange", "virtual_host", *_EXCHANGE)


def read_exchange(term: Term, default_vhost: str, problems: LegacyProblems) -> LegacyExchange | None:
    given = property_list(term, "exchange", problems)
    for key, advice in _MANDATORY.items():
        if key not in given.found:
            problems.add(given.at, f"the exchange has no {key}; {advice}")
    entries = tuple(given.entries(_EXCHANGE, problems))
    names = {
        key: problems.attempt(key, read, given.found[key].value) for key, read in _NAMES.items() if key in given.found
    }
    exchange, upstream_set = names.get("exchange"), names.get("upstream_set")
    if exchange is None or upstream_set is None:
        return None
    notes = (*given.notes, *given.without_counterpart(_EXCHANGE_PROPERTIES))
    if "internal" in given.found and all(entry.key != "internal" for entry in entries):
        notes = (*notes, "internal: internal exchanges can't be federated, so clients may publish to this one")
    vhost = names.get("virtual_host") or default_vhost
    return LegacyExchange(exchange, vhost, upstream_set, given.found["upstream_set"].value.at, Block(entries, notes))


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
    given = property_list(settings, APPLICATION, problems)
    return PropertyList(at.at, given.found, given.notes)


def _applications(document: Document, wanted: str) -> Iterator[tuple[Tuple, Term]]:
    """Every `{wanted, Settings}`, alone or in the file's list."""
    for term in document.terms:
        for item in (term,) if isinstance(term, Tuple) else proplists.items_of(term) or ():
            match item:
                case Tuple((application, settings)) if proplists.text_of(application) == wanted:
                    yield item, settings


def _broker_defaults(document: Document) -> upstreams.BrokerDefaults:
    """The broker's own settings that the plugin used; errors in other settings aren't reported."""
    for _, settings in _applications(document, "rabbit"):
        given = property_list(settings, "rabbit", LegacyProblems()).found
        texts = {key: proplists.text_of(given[key].value) for key in ("default_vhost", "default_user") if key in given}
        return upstreams.BrokerDefaults(
            texts.get("default_vhost") or DEFAULT_VHOST, texts.get("default_user"), "default_pass" in given
        )
    return upstreams.BrokerDefaults()


@dataclass(slots=True)
class _FederationReader:
    given: PropertyList
    defaults: upstreams.BrokerDefaults
    problems: LegacyProblems
    secrets: upstreams.Secrets = field(default_factory=lambda: upstreams.Secrets({DOWNSTREAM_VARIABLE}))
    result: LegacyFederation = field(default_factory=LegacyFederation)

    def read(self) -> LegacyFederation:
        for found, _, value in self._named("connections"):
            read = upstreams.read_connection(found, value, self.defaults, secrets=self.secrets, problems=self.problems)
            self.result.connections[found] = read
        for found, at, value in self._named("upstream_sets"):
            self.result.upstream_sets[found] = upstreams.read_set(found, at, value, problems=self.problems)
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
        items = proplists.property_lists(value) if key == "exchanges" else proplists.items_of(value)
        if items is None:
            self.problems.add(value.at, f"{key}: write a list, as in {{{key}, […]}}")
        return items or ()

    def _named(self, key: str) -> Iterator[tuple[str, Place, Term]]:
        """Each `{"name", Value}` of a list; of two with one name 2.x took the first."""
        taken: set[str] = set()
        for item in self._items(key):
            match item:
                case Tuple((written, value)):
                    found = self.problems.attempt(key, proplists.key_name, written)
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
        return (
            None
            if proplists.is_unset(value) or value == Atom("automatic")
            else self.problems.attempt(key, proplists.name, value)
        )


def _check_references(federation: LegacyFederation, problems: LegacyProblems) -> None:
    sets, connections = federation.upstream_sets, federation.connections
    references: list[tuple[str, Place, str, Collection[str]]] = [
        *((each.upstream_set, each.set_at, "upstream_sets", sets) for each in federation.exchanges.values()),
        *((each.connection, each.at, "connections", connections) for found in sets.values() for each in found.members),
    ]
    for name, at, where, known in references:
        if name not in known:
            hint = did_you_mean(name, known) or "; add it there or name another"
            problems.add(at, f"{quoted(name)} is not in {where}{hint}")
    every = sets.get(upstreams.EVERY_UPSTREAM)
    if every is not None and not every.is_every(connections):
        advice = "give it another name, here and wherever exchanges and clients name it"
        problems.add(every.at, f"the set 'all' can't be imported: 'all' now means every upstream of a vhost; {advice}")
