"""A real browser, and pages in it that may complain of nothing and ask nobody but the agent."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request, ViewportSize, expect, sync_playwright

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.integration.page.served import Served
from tests.lab.ports import Ports

__all__ = ["agent_of", "here", "site_on", "there"]

# The first is the same engine without a window that nobody sees, which takes a third less CPU.
NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# Tests run as root in containers too, and a browser of theirs has nothing to look up.
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
PATIENCE: Final = 60_000  # ms
AGENT_IS_AWAY: Final = "Failed to load resource"
USUAL: Final[ViewportSize] = {"width": 1280, "height": 720}
# A zone that no machine has: times that are not converted differ from those that are.
SHARED: Final[dict[str, Any]] = {
    "timezone_id": "Asia/Kathmandu",
    "permissions": ["clipboard-read", "clipboard-write"],
    "viewport": USUAL,
}


@dataclass(eq=False)
class Visit:
    """One page while a test looks at it, and what went wrong in it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    may_fail_to_load: bool = False

    def go(self, where: str = "") -> Page:
        """To another view, as a link there would lead."""
        self.page.goto(f"{self.url}{where}")
        return self.page

    @contextmanager
    def watched(self) -> Iterator[None]:
        watchers: dict[Any, Callable[..., None]] = {
            "console": self._said,
            "pageerror": self._failed,
            "request": self._asked,
        }
        for event, watcher in watchers.items():
            self.page.on(event, watcher)
        try:
            yield
        finally:
            for event, watcher in watchers.items():
                self.page.remove_listener(event, watcher)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} {message.location['url']}")

    def _failed(self, error: Error) -> None:
        self.errors.append(str(error))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.url):
            self.strangers.append(request.url)

    def check(self) -> None:
        told = [each for each in self.errors if not (self.may_fail_to_load and each.startswith(AGENT_IS_AWAY))]
        assert (told, self.strangers) == ([], [])


class Open(Protocol):
    def __call__(
        self, url: str, where: str = "", *, viewport: ViewportSize = USUAL, alone: bool = False, **context: Any
    ) -> Visit: ...


Serve = Callable[..., Served]


def chromium() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium: make setup"
    return found


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Of the package alone: its loop would be in the way of other tests' loops."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="package")
def page_ports() -> Iterator[Ports]:
    """No two tests have the same one, so what a browser stores for an address is of one test."""
    ports = Ports()
    yield ports
    ports.release()


class Empty(BaseHTTPRequestHandler):
    """A page of nothing: its icon is one that a browser doesn't ask for."""

    def do_GET(self) -> None:
        document = b'<!doctype html><link rel="icon" href="data:,">'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(document)))
        self.end_headers()
        self.wfile.write(document)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as the base calls it
        """Nobody reads it."""


@dataclass
class Tab:
    """A page that tests use one after the other: a new one costs three times as much as the way to another address."""

    page: Page
    empty: str

    def leave(self) -> None:
        """What is left behind asks nobody any more."""
        self.page.goto(self.empty)


@pytest.fixture(scope="package")
def tab(browser: Browser, page_ports: Ports) -> Iterator[Tab]:
    context = browser.new_context(**SHARED)
    context.set_default_timeout(PATIENCE)
    with ThreadingHTTPServer(("127.0.0.1", page_ports.take()), Empty) as server:
        threading.Thread(target=server.serve_forever, name="empty page", daemon=True).start()
        yield Tab(context.new_page(), f"http://127.0.0.1:{server.server_port}/")
        context.close()
        server.shutdown()


@pytest.fixture
def visit(browser: Browser, tab: Tab) -> Iterator[Open]:
    """`visit(url, "#/topology")`: the page there, in a tab that knows nothing of that address. If it is to be alone, or
    has options such as `color_scheme="dark"`, in a tab and with a memory of its own."""
    with ExitStack() as ends:
        visits: list[Visit] = []

        def go(
            url: str, where: str = "", *, viewport: ViewportSize = USUAL, alone: bool = False, **context: Any
        ) -> Visit:
            if alone or context:
                made = ends.enter_context(browser.new_context(viewport=viewport, **context))
                made.set_default_timeout(PATIENCE)
                page = made.new_page()
            else:
                assert all(each.page is not tab.page for each in visits), "there is one tab: go() leads elsewhere"
                page = tab.page
                page.set_viewport_size(viewport)
                ends.callback(tab.leave)
            visits.append(Visit(page, url))
            ends.enter_context(visits[-1].watched())
            visits[-1].go(where)
            return visits[-1]

        yield go
        for each in visits:
            each.check()


@pytest.fixture
def serve(page_ports: Ports) -> Iterator[Serve]:
    """`serve(token="…")`: a board of this test's own, served."""
    running: list[Served] = []

    def start(**options: Any) -> Served:
        running.append(Served(page_ports.take(), **options).start())
        return running[-1]

    yield start
    for each in running:
        each.stop()
