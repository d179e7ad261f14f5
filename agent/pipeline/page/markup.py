"""HTML and SVG as text, with the one place where text from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from agent.core.text import printable

_BLANKS: Final = "\t\n"
"""Other characters that are forbidden in documents, invisible, or change the direction of text are escaped."""
_VOID: Final = frozenset({"meta", "link", "br", "hr", "col"})


class Markup(str):
    """Text that is HTML already; any other string is shown as text."""

    __slots__ = ()


Child = str | int | None
Attribute = str | int | float | bool | None


def element(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """`class_` and `data_x` become `class` and `data-x`; an attribute that is None or False is omitted."""
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opening if tag in _VOID else f"{opening}{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    return Markup("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None or isinstance(child, Markup):
        return child or ""
    return escape(printable(str(child), keep=_BLANKS), quote=False)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    # A number with the precision that a drawing needs.
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f" {name}" if value is True else f' {name}="{escape(printable(text, keep=_BLANKS), quote=True)}"'


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[Child]], *, class_: str = "") -> Markup:
    """A table that remains one for a screen reader if a narrow window stacks its cells. The first cell of a row is its
    header."""
    head = element("tr", *(element("th", text, scope="col", role="columnheader") for text in heads), role="row")
    body = (_table_row(heads, cells) for cells in rows)
    return element(
        "table",
        element("caption", label, class_="unseen"),
        element("thead", head, role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        class_=f"stacked {class_}".strip(),
        role="table",
    )


def _table_row(heads: Sequence[str], cells: Sequence[Child]) -> Markup:
    first, *rest = cells
    others = [element("td", cell, data_head=head, role="cell") for head, cell in zip(heads[1:], rest, strict=True)]
    return element("tr", element("th", first, scope="row", role="rowheader"), *others, role="row")


def section(key: str, title: str, *children: Child, note: Child = None) -> Markup:
    paragraph = element("p", note, class_="note") if note else None
    return element(
        "section", element("h2", title, id=f"{key}-title"), paragraph, *children, id=key, aria_labelledby=f"{key}-title"
    )


def nothing(text: str) -> Markup:
    return element("p", text, class_="nothing")
