"""A real browser, and pages in it that may complain of nothing and ask nobody but the agent."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.integration.page.served import Served
from tests.lab.ports import Ports

__all__ = ["agent_of", "here", "site_on", "there"]

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
# Tests run as root in containers too, and a browser of theirs has nothing to look up.
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE: Final = 15_000  # ms
AGENT_IS_AWAY: Final = "Failed to load resource"


@dataclass(eq=False)
class Visit:
    """One page, and what went wrong in it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    may_fail_to_load: bool = False

    def go(self, where: str = "") -> Page:
        """To another view, as a link there would lead."""
        self.page.goto(f"{self.url}{where}")
        return self.page

    def check(self) -> None:
        told = [each for each in self.errors if not (self.may_fail_to_load and each.startswith(AGENT_IS_AWAY))]
        assert (told, self.strangers) == ([], [])


class Open(Protocol):
    def __call__(self, url: str, where: str = "", **context: Any) -> Visit: ...


Serve = Callable[..., Served]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Of the package alone: its loop would be in the way of other tests' loops."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium: make setup"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """`visit(url, "#/topology", color_scheme="dark")`: a page in a browser without a past."""
    with ExitStack() as contexts:
        visits: list[Visit] = []

        def go(url: str, where: str = "", **context: Any) -> Visit:
            made = contexts.enter_context(browser.new_context(**context))
            made.set_default_timeout(PATIENCE)
            opened = Visit(made.new_page(), url)
            visits.append(opened)
            opened.page.on("console", lambda said: opened.errors.append(said.text) if said.type == "error" else None)
            opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
            opened.page.on(
                "request",
                lambda request: None if request.url.startswith(url) else opened.strangers.append(request.url),
            )
            opened.go(where)
            return opened

        yield go
        for each in visits:
            each.check()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """`serve(token="…")`: a board of this test's own, served."""
    ports, running = Ports(), list[Served]()

    def start(**options: Any) -> Served:
        running.append(Served(ports.take(), **options).start())
        return running[-1]

    yield start
    for each in running:
        each.stop()
    ports.release()
