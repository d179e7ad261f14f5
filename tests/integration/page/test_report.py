"""The page in a real browser, from a file: complete without network, and for everybody who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page

from agent.pipeline.findings.model import Findings
from agent.pipeline.page.document import page as made
from tests.pipeline.page.found import DAY, HOUR, findings

AXE: Final = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
PHONE: Final = {"width": 360, "height": 740}
DESK: Final = {"width": 1280, "height": 900}
PAPER: Final = {"width": 703, "height": 1030}  # A4 within its margins
LONG: Final = ("x" * 400, "<script>document.title='owned'</script>", "\u202eevil", "日本語 注文", "a b", "")
Read = Callable[..., Page]


@pytest.fixture
def read(browser: Browser, tmp_path: Path) -> Iterator[Read]:
    """`read(findings(), viewport=PHONE)`: the page for them, which may complain of nothing and ask nobody."""
    wrong: list[str] = []
    with ExitStack() as contexts:

        def show(found: Findings, **context: Any) -> Page:
            file = tmp_path / "report.html"
            file.write_text(made(found))
            page = contexts.enter_context(browser.new_context(**context)).new_page()
            page.on("console", lambda said: wrong.append(said.text))
            page.on(
                "request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(file.as_uri()) else None
            )
            page.goto(file.as_uri())
            return page

        yield show
    assert [said for said in wrong if said != "data:,"] == []


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")])
def test_everybody_can_read_it(read: Read, viewport: dict[str, int], scheme: str) -> None:
    # Past the page's own rule against scripts, so that axe can be brought in.
    page = read(findings(8, 9 * DAY, names=LONG), viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []


@pytest.mark.parametrize(
    ("links", "length", "viewport"),
    [(18, 31 * DAY, PHONE), (40, 365 * DAY, PHONE), (1, HOUR, PHONE), (0, HOUR, PHONE), (18, 31 * DAY, PAPER)],
)
def test_nothing_is_wider_than_the_window(read: Read, links: int, length: int, viewport: dict[str, int]) -> None:
    page = read(findings(links, length, names=LONG), viewport=viewport)
    if viewport == PAPER:
        page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.title() == "Federation report"


def test_it_is_dark_where_that_is_wanted_and_light_on_paper(read: Read) -> None:
    page = read(findings(), color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.body).color"
    assert page.evaluate(ground) == "rgb(15, 20, 27)"
    page.emulate_media(media="print")
    assert page.evaluate(text) == "rgb(23, 32, 43)"


def test_heat_maps_are_whole_on_paper(read: Read) -> None:
    page = read(findings(40, 31 * DAY), viewport=PAPER)
    page.emulate_media(media="print")
    cut = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
