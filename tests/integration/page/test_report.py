"""The report's page in a real browser, from a file: complete without network, and for everybody who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from agent.pipeline.findings.model import ReportFindings
from agent.pipeline.page.document import page as made
from tests.integration.page.measures import check_accessible
from tests.pipeline.page.sample_findings import DAY, HOUR, findings

PHONE: Final[ViewportSize] = {"width": 360, "height": 740}
DESK: Final[ViewportSize] = {"width": 1280, "height": 900}
PAPER: Final[ViewportSize] = {"width": 703, "height": 1030}  # A4 within its margins
LONG: Final = ("x" * 400, "<script>document.title='owned'</script>", "\u202eevil", "日本語 注文", "a b", "")
Read = Callable[..., Page]


@pytest.fixture
def read(browser: Browser, tmp_path: Path) -> Iterator[Read]:
    """`read(findings(), viewport=PHONE)`: the page for them, which may complain of nothing and ask nobody."""
    wrong: list[str] = []
    with ExitStack() as contexts:

        def show(found: ReportFindings, **context: Any) -> Page:
            file = tmp_path / "report.html"
            file.write_text(made(found))
            page = contexts.enter_context(browser.new_context(**context)).new_page()
            page.on("console", lambda said: wrong.append(said.text))
            page.on(
                "request", lambda tables: wrong.append(tables.url) if not tables.url.startswith(file.as_uri()) else None
            )
            page.goto(file.as_uri())
            return page

        yield show
    assert [said for said in wrong if said != "data:,"] == []


GROUND: Final = "getComputedStyle(document.body).backgroundColor"
TEXT: Final = "getComputedStyle(document.body).color"
WIDTH: Final = "document.documentElement.scrollWidth"
CUT: Final = (
    "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1).length"
)


def test_it_fits_a_telephone_in_the_dark_and_paper(read: Read) -> None:
    page = read(findings(40, 31 * DAY, names=LONG), viewport=PHONE, color_scheme="dark")
    assert page.title() == "Federation report"
    assert page.evaluate(GROUND) == "rgb(15, 20, 27)"
    assert page.evaluate(WIDTH) <= PHONE["width"]
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    assert page.evaluate(TEXT) == "rgb(23, 32, 43)"
    assert page.evaluate(WIDTH) <= PAPER["width"]
    assert page.evaluate(CUT) == 0


@pytest.mark.thorough
def test_everybody_can_read_it(read: Read) -> None:
    # Past the page's own rule against scripts, so that axe can be brought in.
    for viewport, scheme in ((DESK, "dark"), (PHONE, "light")):
        found = findings(8, 9 * DAY, names=LONG)
        check_accessible(read(found, viewport=viewport, color_scheme=scheme, bypass_csp=True))


@pytest.mark.thorough
def test_nothing_is_wider_than_the_window_and_it_is_printed_as_a_document(read: Read) -> None:
    for links, length in ((40, 365 * DAY), (1, HOUR), (0, HOUR)):
        assert read(findings(links, length, names=LONG), viewport=PHONE).evaluate(WIDTH) <= PHONE["width"]
    page = read(findings(18, 31 * DAY, names=LONG), viewport=PAPER)
    page.emulate_media(media="print")
    assert page.evaluate(WIDTH) <= PAPER["width"]
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
