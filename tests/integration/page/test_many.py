"""Thousands of links and changes."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.measures import AFTER_FRAMES, TICKS, Work
from tests.integration.page.scenes import REFUSED
from tests.integration.page.served import Shown, link

pytestmark = pytest.mark.thorough


def test_two_thousand_links_stay_smooth(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(at, f"team{at % 37}.x{at}", upstream=f"dc{at % 9}")) for at in range(2000)]
    served.put(links)
    page = visit(served.url, "#/links?sort=-rate").page
    expect(page.locator("#found")).to_have_text("2,000 links")
    assert page.locator("#rows tr").count() < 60
    took: list[float] = []
    for tick in range(TICKS):
        work = Work(page)
        served.forward(links[tick * 200 : tick * 200 + 200], 50)
        page.evaluate(AFTER_FRAMES, 30)
        took.append(work.seconds())
    assert min(took) < 0.1, took
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last = page.locator("#rows tr").last
    expect(last).to_have_attribute("aria-rowindex", "2001")
    last.locator("a").click()
    expect(page.locator("#detail-title")).to_be_focused()
    page.go_back()
    expect(last).to_have_attribute("aria-rowindex", "2001")
    expect(last).to_be_in_viewport()
    took.clear()
    for word in ("team1", "dc7", "x19", "none", ""):
        work = Work(page)
        page.locator("#search").fill(word)
        page.evaluate(AFTER_FRAMES, 1)
        took.append(work.seconds())
    assert sorted(took)[2] < 0.1, took


def test_two_thousand_changes_stay_smooth(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(at, f"x{at}", upstream=f"dc{at % 200}"), cluster=None) for at in range(1000)]
    served.put(links)
    page = visit(served.url, "#/events").page
    expect(page.locator("#event-list .event")).to_have_count(100)
    page.get_by_role("button", name="Show earlier ones").click()
    expect(page.locator("#event-list .event")).to_have_count(200)
    took: list[float] = []
    for at in range(TICKS):
        work = Work(page)
        served.change(links[at], REFUSED)
        page.evaluate(AFTER_FRAMES, 60)
        took.append(work.seconds())
    assert min(took) < 0.3, took
