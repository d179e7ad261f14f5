"""The view of what happened lately across links."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import outage
from tests.integration.page.served import RUNNING, Shown, link


def test_an_outage_is_one_line_and_the_latest_comes_first(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(5_000 + at, f"y{at}", upstream=f"dc{at}"), cluster=None) for at in range(60)])
    links = outage(served, 30)
    opened = visit(served.url)
    page = opened.page
    page.get_by_role("link", name="Events").click()
    expect(page.locator("#events-title")).to_be_focused()
    events = page.locator("#event-list .event")
    latest = events.first
    expect(latest).to_contain_text("Backoff")
    expect(latest.locator("summary")).to_have_text("30 links from paris")
    expect(latest).to_contain_text("connection refused by paris.example:5672")
    latest.locator("summary").click()
    expect(latest.locator(".names li")).to_have_count(30)
    for each in links[:2]:
        served.change(each, RUNNING)
    expect(latest.locator("summary")).to_have_text("2 links from paris")
    expect(latest).to_contain_text("was backoff")
    served.do(lambda: served.board.gone(links[0].link.id))
    expect(latest).to_contain_text("Removed")
    expect(latest.locator("a")).to_have_count(0)
    expect(page.locator("#event-list details[open] a", has_text="x7")).to_have_count(1)  # opened lines stay so

    expect(events).to_have_count(100)
    page.get_by_role("button", name="Show earlier ones").click()
    expect(page.get_by_role("button", name="Show earlier ones")).to_be_hidden()
    assert events.count() > 100
    page.locator("#event-search").fill("elsewhere")
    expect(events).to_have_count(2)
    page.locator("#event-search").fill("paris")
    page.locator("#event-states").select_option(label="to down")
    expect(events).to_have_count(1)
    assert "state=invalid" in page.url
    page.reload()
    expect(events).to_have_count(1)
    page.locator("#event-list summary").click()
    page.locator("#event-list details[open] a", has_text="x7").click()
    expect(page.locator("#detail-title")).to_have_text("x7")
    opened.go("#/events?q=nothing-is-called-so")
    expect(page.locator("#no-events")).to_be_visible()


@pytest.mark.thorough
def test_an_agent_that_starts_again_begins_its_events_again(serve: Serve, visit: Open) -> None:
    served = serve()
    outage(served, 3)
    opened = visit(served.url, "#/events")
    page = opened.page
    expect(page.locator("#event-list .event")).not_to_have_count(0)
    opened.may_fail_to_load = True
    served.do(served.board.close)  # ends the events; the page connects again
    served.do(served.board.transitions.__init__)  # type: ignore[misc]  # as a new process has none
    expect(page.locator("#no-events")).to_be_visible()
