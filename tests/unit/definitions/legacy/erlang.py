"""Erlang terms: how tests make them up and write them down."""

from __future__ import annotations

from hypothesis import strategies as st

from agent.definitions.sources.legacy.erlang import Atom, Binary, Float, Integer, List, Map, String, Term, Tuple

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_SCALARS: st.SearchStrategy[Term] = st.one_of(
    st.builds(Atom, TEXT.filter(bool)),
    st.builds(Integer, st.integers(-(2**70), 2**70)),
    st.builds(Float, st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(String, TEXT),
    st.builds(Binary, st.binary(max_size=12)),
)


def _nested(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    items = st.lists(inner, max_size=4).map(tuple)
    pair = st.builds(Tuple, st.tuples(inner, inner))
    return st.one_of(
        st.builds(Tuple, items), st.builds(List, items), st.builds(Map, st.lists(pair, max_size=3).map(tuple))
    )


TERMS: st.SearchStrategy[Term] = st.recursive(_SCALARS, _nested, max_leaves=20)


def write(term: Term) -> str:
    """Erlang's syntax, with quotes wherever they may be."""
    match term:
        case Atom(name):
            return "'" + _escaped(name, "'") + "'"
        case String(text):
            return '"' + _escaped(text, '"') + '"'
        case Binary(data):
            return f"<<{','.join(str(byte) for byte in data)}>>"
        case Integer(value):
            return str(value)
        case Float(value):
            mantissa, e, exponent = repr(value).partition("e")
            return mantissa + ("" if "." in mantissa else ".0") + e + exponent
        case Tuple(items):
            return "{" + ", ".join(write(item) for item in items) + "}"
        case List(items):
            return "[" + ",\n ".join(write(item) for item in items) + "]"
        case Map(items):
            pairs = [f"{write(pair.items[0])} => {write(pair.items[1])}" for pair in items]
            return "#{" + ", ".join(pairs) + "}"


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", "\\\\").replace(quote, "\\" + quote)
