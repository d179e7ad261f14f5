"""The one place where text from outside is made harmless, given everything that could do harm."""

import pytest

from agent.pipeline.page.markup import Markup, element, join

HOSTILE = ["<script>alert(1)</script>", '" onload="x', "'", "&amp;", "]]>", "<!--", "</style>", "\x00\x1b\ud800"]


def test_elements() -> None:
    inner = element("b", "1 < 2", class_="loud", data_x=1.50, hidden=True, title=None)
    assert inner == '<b class="loud" data-x="1.5" hidden>1 &lt; 2</b>'
    assert element("p", inner, None, 3) == f"<p>{inner}3</p>"
    assert element("br") == "<br>"


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text: str) -> None:
    made = element("a", text, title=text)
    inside = made.removeprefix('<a title="').removesuffix("</a>")
    title, _, child = inside.partition('">')
    assert not set('<"') & set(title)
    assert not set("<>") & set(child)
    made.encode()


def test_what_can_not_be_seen_is_shown() -> None:
    assert element("p", "\x1b[1m\u202egpj\u2066\x00") == "<p>\\x1b[1m\\u202egpj\\u2066\\x00</p>"
    assert element("p", "two\nlines\t\u00a0") == "<p>two\nlines\t\u00a0</p>"


def test_what_is_joined_is_markup_and_what_is_not_is_text() -> None:
    assert join("<", Markup("<br>"), None) == "&lt;<br>"
    assert isinstance(join("x"), Markup)
