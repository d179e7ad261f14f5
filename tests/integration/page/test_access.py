"""Who may look, how one moves about, and how the page tells that it isn't current."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import REFUSED, expect_names, few, names
from tests.integration.page.served import STALLED, Shown, failed, link


def test_the_token_is_asked_for_and_kept_in_the_tab_alone(serve: Serve, visit: Open) -> None:
    served = serve(token="t0ken", host="0.0.0.0")
    served.put(few())
    opened = visit(served.url)
    opened.may_fail_to_load = True  # being refused is told as such
    page = opened.page
    page.locator("#token-input").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("The agent refused that token.")
    page.locator("#token-input").fill("t0ken\N{RIGHT DOUBLE QUOTATION MARK}")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("A token can't contain these characters. Copy it again.")
    page.locator("#token-input").fill("t0ken")
    page.keyboard.press("Enter")
    expect(page.locator("#rows tr")).to_have_count(6)
    expect(page.locator("#token")).not_to_be_visible()
    assert "t0ken" not in page.url + str(page.evaluate("JSON.stringify(localStorage) + document.cookie"))
    page.reload()
    expect(page.locator("#rows tr")).to_have_count(6)
    page.locator("#forget").click()
    expect(page.locator("#token-input")).to_be_visible()


def test_keys_lead_everywhere_and_what_was_chosen_is_remembered(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    page = visit(served.url).page
    expect(page.locator("#rows tr")).to_have_count(6)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.locator("#rows a").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#rows a").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_be_focused()

    theme, zone, since = page.locator("#theme"), page.locator("#zone"), page.locator("#detail-since")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    expect(theme).to_have_attribute("aria-pressed", "false")
    theme.click()
    dark = page.evaluate(ground)
    assert dark != light
    expect(zone).to_have_text("Times: UTC+5:45")
    expect(since).to_contain_text("UTC+5:45")
    there = page.locator("#transitions time").first.inner_text()
    zone.click()
    expect(zone).to_have_attribute("aria-pressed", "true")
    expect(since).to_have_text(re.compile(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, "))
    expect(page.locator("#transitions time").first).not_to_have_text(there)
    page.reload()
    expect(zone).to_have_text("Times: UTC")
    expect(theme).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(ground) == dark
    page.go_back()
    expect(page.locator("#links-title")).to_be_focused()


@pytest.mark.thorough
def test_rows_stay_where_one_points_and_an_agent_that_says_nothing_any_more_is_away(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(number, f"x{number}")) for number in range(1, 4)]
    served.put(links)
    opened = visit(served.url, alone=True)  # a clock can't be taken out of a tab again
    page = opened.page
    page.clock.install()
    page.reload()
    expect_names(page, "x1", "x2", "x3")
    badges = page.locator("#rows .badge")
    page.locator("#rows a").nth(1).focus()
    served.change(links[2], STALLED)
    expect(badges.nth(2)).to_have_text("Stalled")
    assert names(page) == ["x1", "x2", "x3"]
    page.locator("#search").focus()
    expect_names(page, "x3", "x1", "x2")

    page.locator("#rows a").nth(1).focus()  # a pointer that merely lies there holds nothing
    served.change(links[1], failed("no"))
    expect(badges.nth(2)).to_have_text("Backoff")
    assert names(page) == ["x3", "x1", "x2"]
    page.clock.fast_forward(11_000)
    expect_names(page, "x3", "x2", "x1")

    page.clock.fast_forward(26_000)
    expect(page.locator("#unreachable-text")).to_contain_text("it sent nothing for too long")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#unreachable")).to_be_hidden()


@pytest.mark.thorough
def test_the_title_tells_of_a_page_that_nobody_looks_at(serve: Serve, visit: Open) -> None:
    served = serve()
    links = few()
    served.put(links)
    opened = visit(served.url)
    page = opened.page
    expect(page).to_have_title("(3) dc2-a")
    page.evaluate("window.requestAnimationFrame = () => 0")  # as it is in the background
    served.change(links[0], REFUSED)
    expect(page).to_have_title("(4) dc2-a")
    opened.may_fail_to_load = True
    served.stop_serving()
    expect(page).to_have_title("(?) dc2-a")
