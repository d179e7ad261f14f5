"""2.x connections as upstreams, and 2.x upstream sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from agent.core.addresses import uri
from agent.core.addresses.url_text import FILE_KEYS, check_file, check_server_name, refuse_nul
from agent.definitions.document.findings import quoted
from agent.definitions.sources.legacy import proplists
from agent.definitions.sources.legacy.erlang import Integer, LegacyError, Term, Tuple, fail
from agent.definitions.sources.legacy.proplists import Converter, LegacyProblems, PropertyList, Rule, property_list
from agent.definitions.sources.legacy.yaml_writer import Block, BlockEntry, Rows, Value
from agent.errors import Place, Problem, UriError

EVERY_UPSTREAM = "all"
MAX_HOPS = 2**15 - 1
_MAX_MILLISECONDS = 2**32 - 1
_VERIFY = {0: "verify_none", 1: "verify_peer", 2: "verify_peer"}
_SECRETS = ("password",)
_NOT_IN_VARIABLES = re.compile(r"[^A-Z0-9]+")
_MEMBER = {
    "connection": Rule("upstream", proplists.written_name),
    "exchange": Rule("exchange", proplists.written_name),
    "max_hops": Rule("max-hops", proplists.whole(1, MAX_HOPS)),
}


@dataclass(frozen=True, slots=True)
class LegacyMember:
    connection: str
    at: Place
    block: Block


@dataclass(frozen=True, slots=True)
class LegacySet:
    at: Place
    members: tuple[LegacyMember, ...] = ()

    @property
    def rows(self) -> Rows:
        return Rows(tuple(member.block for member in self.members))

    def is_every(self, connections: Iterable[str]) -> bool:
        """True if the set is equivalent to the predefined set `all`."""
        names = [member.connection for member in self.members]
        return sorted(names) == sorted(connections) and all(len(member.block.entries) == 1 for member in self.members)


def read_set(set_name: str, at: Place, term: Term, *, problems: LegacyProblems) -> LegacySet:
    what = f"upstream set {quoted(set_name)}"
    listed = proplists.property_lists(term)
    if listed is None:
        problems.add(term.at, f'{what}: write a list of upstreams, as in [[{{connection, "…"}}], …]')
        return LegacySet(at)
    members = (_read_member(each, what, problems) for each in listed)
    return LegacySet(at, tuple(member for member in members if member is not None))


def _read_member(term: Term, what: str, problems: LegacyProblems) -> LegacyMember | None:
    given = property_list(term, what, problems)
    entries = tuple(given.entries(_MEMBER, problems))
    if "connection" not in given.found:
        problems.add(given.at, f'{what}: an upstream names no connection; add {{connection, "…"}}')
        return None
    connection = given.found["connection"].value
    if not any(entry.key == "upstream" for entry in entries):
        return None
    notes = (*given.notes, *given.without_counterpart(_MEMBER))
    return LegacyMember(proplists.name(connection), connection.at, Block(entries, notes))


@dataclass(slots=True)
class Secrets:
    """Generates unique names of the environment variables that secrets are read from."""

    taken: set[str] = field(default_factory=set)

    def variable(self, owner: str, kind: str) -> str:
        stem = _NOT_IN_VARIABLES.sub("_", owner.upper()).strip("_") or "UPSTREAM"
        wanted = f"{stem if stem[0].isalpha() else 'UPSTREAM_' + stem}_{kind}"
        variable, number = wanted, 1
        while variable in self.taken:
            number += 1
            variable = f"{wanted}_{number}"
        self.taken.add(variable)
        return variable

    def entry(self, owner: str, kind: str) -> BlockEntry:
        variable = self.variable(owner, kind)
        return BlockEntry("password", f"${{env:{variable}}}", f"set {variable} in the agent's environment")


@dataclass(frozen=True, slots=True)
class BrokerDefaults:
    """The defaults in `{rabbit, […]}` of the same file, which the 2.x plugin used."""

    vhost: str = "/"
    user: str | None = None
    has_password: bool = False


@dataclass(frozen=True, slots=True)
class LegacyConnection:
    """A connection as an upstream, and which of the current defaults apply because it sets no value."""

    block: Block
    sizes_prefetch: bool
    keeps_heartbeat: bool
    gains_verification: bool


def _ha_policy(term: Term) -> Value:
    """`all`, `nodes`, or a tuple that begins so."""
    kind = term.items[0] if isinstance(term, Tuple) and term.items else term
    return proplists.written_text(kind)


def _verify(term: Term) -> Value:
    if isinstance(term, Integer) and term.value in _VERIFY:
        return _VERIFY[term.value]
    return proplists.one_of("verify_peer", "verify_none")(term)


def _server_name(term: Term) -> Value:
    if proplists.text_of(term) == "disable":
        fail(term.at, "disable has no counterpart; remove it, or write the name in the certificate")
    return _held_to(check_server_name, proplists.written_text)(term)


def _held_to(check: Callable[[str], None], read: Converter) -> Converter:
    """Checks a value by the current rules of an upstream's key, so that the import is valid."""

    def checked(term: Term) -> Value:
        try:
            check(proplists.text(term))
        except UriError as error:
            fail(term.at, str(error))
        return read(term)

    return checked


def _host(term: Term) -> Value:
    host = proplists.name(term)
    try:
        uri.parse(uri.from_parts(host=host).safe)
    except UriError as error:
        advice = "write the name of a host or an IP address, and the port in {port, …}"
        raise LegacyError([Problem(term.at, advice)]) from error
    return proplists.literal(host)


_MECHANISM = proplists.one_of("default", "EXTERNAL", "plain", "amqplain")
_ENDPOINT = {
    "host": Rule("host", _host),
    "protocol": Rule("protocol", proplists.one_of("amqp", "amqps")),
    "port": Rule("port", proplists.or_none(proplists.whole(1, 65535))),
    "virtual_host": Rule("virtual-host", _held_to(partial(refuse_nul, key="virtual_host"), proplists.written_short)),
}
_USER = {"username": Rule("username", _held_to(partial(refuse_nul, key="username"), proplists.written_text))}
_LINK = {
    "mechanism": Rule("mechanism", _MECHANISM),
    "prefetch_count": Rule("prefetch-count", proplists.or_none(proplists.whole(0, 65535))),
    "reconnect_delay": Rule("reconnect-delay", proplists.seconds),
    "heartbeat": Rule("heartbeat", proplists.or_none(proplists.whole(0, 65535))),
    "expires": Rule("expires", proplists.or_none(proplists.whole(1, _MAX_MILLISECONDS))),
    "message_ttl": Rule("message-ttl", proplists.or_none(proplists.whole(0, _MAX_MILLISECONDS))),
    "max_hops": Rule("max-hops", proplists.whole(1, MAX_HOPS)),
    "ha_policy": Rule(
        "ha-policy", proplists.or_none(_ha_policy), "no current broker supports it: set a policy upstream"
    ),
}
_TLS = {
    **{key: Rule(key, _held_to(partial(check_file, key=key), proplists.written_text)) for key in sorted(FILE_KEYS)},
    "verify": Rule("verify", _verify),
    "fail_if_no_peer_cert": Rule("fail_if_no_peer_cert", proplists.flag),
    "depth": Rule("depth", proplists.whole(0, 255)),
    "server_name_indication": Rule("server_name_indication", _server_name),
}
PROPERTIES = (*_ENDPOINT, *_USER, *_SECRETS, *_LINK, "ssl_options")


def read_connection(
    owner: str, term: Term, defaults: BrokerDefaults, *, secrets: Secrets, problems: LegacyProblems
) -> LegacyConnection:
    given = property_list(term, f"connection {quoted(owner)}", problems)
    if "host" not in given.found:
        problems.add(given.at, f'connection {quoted(owner)} names no host; add {{host, "…"}}')
    tls = _tls_options(owner, given, secrets=secrets, problems=problems)
    speaks_tls = "protocol" in given.found and proplists.text_of(given.found["protocol"].value) == "amqps"
    entries = (
        *given.entries(_ENDPOINT, problems),
        *_login(owner, given, defaults, secrets=secrets, problems=problems),
        *_link(given, problems),
        *((BlockEntry("ssl-options", tls),) if speaks_tls and tls is not None else ()),
    )
    notes = (*given.notes, *given.without_counterpart(PROPERTIES), *_left_out(given, speaks_tls=speaks_tls))
    return LegacyConnection(
        Block(entries, notes),
        sizes_prefetch=_is_silent(given, "prefetch_count"),
        keeps_heartbeat=_is_silent(given, "heartbeat"),
        gains_verification=speaks_tls and not any(entry.key == "verify" for entry in (tls or Block()).entries),
    )


def _is_silent(given: PropertyList, key: str) -> bool:
    return key not in given.found or proplists.is_unset(given.found[key].value)


def _login(
    owner: str, given: PropertyList, defaults: BrokerDefaults, *, secrets: Secrets, problems: LegacyProblems
) -> Iterator[BlockEntry]:
    yield from given.entries(_USER, problems)
    if "username" not in given.found and defaults.user is not None:
        yield BlockEntry("username", proplists.literal(defaults.user), "default_user of {rabbit, […]}, as in 2.x")
    if "password" in given.found:
        problems.attempt("password", proplists.text, given.found["password"].value)
    if "password" in given.found or defaults.has_password:
        yield secrets.entry(owner, "PASSWORD")


def _link(given: PropertyList, problems: LegacyProblems) -> Iterator[BlockEntry]:
    yield from given.entries(_LINK, problems)
    if "reconnect_delay" not in given.found:
        yield BlockEntry("reconnect-delay", 1, "2.x's default; the agent's is 5")


def _tls_options(owner: str, given: PropertyList, *, secrets: Secrets, problems: LegacyProblems) -> Block | None:
    if "ssl_options" not in given.found or proplists.is_unset(given.found["ssl_options"].value):
        return None
    options = property_list(given.found["ssl_options"].value, "ssl_options", problems)
    entries = tuple(options.entries(_TLS, problems))
    if "password" in options.found:
        problems.attempt("password", proplists.text, options.found["password"].value)
        entries = (*entries, secrets.entry(owner, "KEY_PASSWORD"))
    notes = options.notes
    if "keyfile" in options.found and "certfile" not in options.found:
        entries = tuple(entry for entry in entries if entry.key != "keyfile")
        notes = (*notes, "keyfile: does nothing without certfile, omitted")
    unknown = options.without_counterpart((*_TLS, *_SECRETS))
    return Block(entries, (*notes, *(f"ssl_options {note}" for note in unknown)))


def _left_out(given: PropertyList, *, speaks_tls: bool) -> Iterator[str]:
    if "ssl_options" in given.found and not speaks_tls:
        line = given.found["ssl_options"].at.line
        yield f"ssl_options (line {line}): 2.x used them with protocol amqps only; omitted"
    policy = given.found.get("ha_policy")
    if policy is not None and isinstance(policy.value, Tuple):
        nodes = [found for item in policy.value.items[1:] for found in _texts(item)]
        named = f" ({', '.join(nodes)})" if nodes else ""
        yield f"ha_policy (line {policy.at.line}): its list of nodes{named} has no counterpart, omitted"


def _texts(term: Term) -> Iterator[str]:
    """A text, or those of a list."""
    texts = [proplists.text_of(term)]
    if not texts[0]:
        texts = [proplists.text_of(item) for item in proplists.items_of(term) or ()]
    yield from (found for found in texts if found)
