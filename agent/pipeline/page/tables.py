"""Tables that remain tables for a screen reader if a narrow window stacks their cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.pipeline.page.markup import Child, Markup, element


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[Child]], *, class_: str = "") -> Markup:
    """The first cell of a row is its header."""
    head = element("tr", *(element("th", text, scope="col", role="columnheader") for text in heads), role="row")
    body = [_row(heads, cells) for cells in rows]
    return element(
        "table",
        element("caption", label, class_="unseen"),
        element("thead", head, role="rowgroup"),
        element("tbody", *body, role="rowgroup"),
        class_=f"stacked {class_}".strip(),
        role="table",
    )


def _row(heads: Sequence[str], cells: Sequence[Child]) -> Markup:
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
