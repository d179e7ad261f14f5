"""2.x federation settings as hypothesis makes them up: those that 2.x would have taken, and any."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import strategies as st

from agent.definitions.sources.legacy.erlang import Atom, Integer, List, String, Term, Tuple
from tests.unit.definitions.legacy.erlang import TERMS

Terms: TypeAlias = st.SearchStrategy[Term]

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
NAMES = TEXTS.filter(lambda name: "${env:" not in name and "${file:" not in name)
SET_NAMES = NAMES.filter(lambda name: name != "all")
_WHOLE = st.integers(1, 2**15 - 1).map(Integer)
_FLAGS = st.sampled_from([Atom("true"), Atom("false")])
_TEXTS = TEXTS.map(String)
_HOSTS = st.sampled_from(["h", "remote.example", "10.0.0.1", "::1"]).map(String)
_TLS: dict[str, Terms] = {
    **dict.fromkeys(("cacertfile", "certfile", "keyfile", "password", "versions"), _TEXTS),
    "server_name_indication": _HOSTS,
    "verify": st.sampled_from([Atom("verify_peer"), Integer(0)]),
    "fail_if_no_peer_cert": _FLAGS,
    "depth": st.integers(0, 255).map(Integer),
}
_CONNECTION: dict[str, Terms] = {
    "protocol": st.sampled_from(["amqp", "amqps"]).map(String),
    **dict.fromkeys(("virtual_host", "username", "password", "ha_policy", "unknown"), _TEXTS),
    "mechanism": st.sampled_from(["default", "EXTERNAL", "plain", "amqplain"]).map(Atom),
    **dict.fromkeys(("port", "prefetch_count", "reconnect_delay", "expires", "message_ttl", "max_hops"), _WHOLE),
    "heartbeat": st.one_of(_WHOLE, st.just(Atom("none"))),
}
_EXCHANGE: dict[str, Terms] = {
    "virtual_host": NAMES.map(String),
    **dict.fromkeys(("durable", "auto_delete", "internal"), _FLAGS),
}
_KEYS = (
    *("exchanges", "upstream_sets", "connections", "local_username", "local_nodename"),
    *("exchange", "type", "upstream_set", "arguments", "connection", "host", "ssl_options"),
    *(*_TLS, *_CONNECTION, *_EXCHANGE),
)


def proplist(**values: Term) -> List:
    return List(tuple(Tuple((Atom(key), value)) for key, value in values.items()))


def named_pairs(values: dict[str, Term]) -> List:
    return List(tuple(Tuple((String(name), value)) for name, value in values.items()))


def _proplists(mandatory: dict[str, Terms], optional: dict[str, Terms]) -> Terms:
    return st.fixed_dictionaries(mandatory, optional=optional).map(lambda given: proplist(**given))


@st.composite
def federations(draw: st.DrawFn) -> Term:
    """Settings as 2.x would have taken them."""
    connection = _proplists({"host": _HOSTS}, {**_CONNECTION, "ssl_options": _proplists({}, _TLS)})
    connections = draw(st.dictionaries(NAMES, connection, min_size=1, max_size=3))
    of_connections = st.sampled_from(sorted(connections)).map(String)
    member = _proplists({"connection": of_connections}, {"exchange": _TEXTS, "max_hops": _WHOLE})
    members: Terms = st.lists(member, max_size=3).map(tuple).map(List)
    sets = draw(st.dictionaries(SET_NAMES, members, min_size=1, max_size=3))
    mandatory: dict[str, Terms] = {
        "exchange": NAMES.filter(lambda name: not name.startswith("amq.")).map(String),
        "type": st.sampled_from(["topic", "fanout", "headers", "x-random"]).map(Atom),
        "upstream_set": st.sampled_from(sorted(sets)).map(String),
    }
    exchanges = draw(st.lists(_proplists(mandatory, _EXCHANGE), max_size=3))
    lists = {
        "exchanges": List(tuple(exchanges)),
        "upstream_sets": named_pairs(sets),
        "connections": named_pairs(connections),
    }
    local = draw(st.fixed_dictionaries({}, optional={"local_username": _TEXTS, "local_nodename": _TEXTS}))
    return proplist(**lists, **local)


def _near_settings(inner: Terms) -> Terms:
    key = st.one_of(st.sampled_from(_KEYS).map(Atom), NAMES.map(String))
    pair = st.builds(Tuple, st.tuples(key, inner))
    return st.builds(List, st.lists(st.one_of(pair, inner), max_size=5).map(tuple))


ANY_SETTINGS = _near_settings(st.recursive(st.one_of(TERMS, _WHOLE, _TEXTS), _near_settings, max_leaves=20))
