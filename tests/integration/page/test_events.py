"""The view of what happened lately across links."""

from __future__ import annotations

from typing import Any, Final

from playwright.sync_api import Page, expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import RUNNING, Served, Shown, failed, link
from tests.integration.page.test_board import AFTER_FRAMES, TICKS, Work

REFUSED = failed("upstream paris: connection refused by paris.example:5672")


def outage(served: Served, number: int) -> list[Shown]:
    links = [Shown(link(at, f"x{at}", upstream="paris"), cluster="paris") for at in range(number)]
    served.put([*links, Shown(link(9_999, "elsewhere"))])
    for each in links:
        served.change(each, REFUSED)
    return links


def test_an_outage_is_one_line_and_the_latest_comes_first(serve: Serve, visit: Open) -> None:
    served = serve()
    links = outage(served, 30)
    page = visit(served.url).page
    page.get_by_role("link", name="Events").click()
    expect(page.locator("#events-title")).to_be_focused()
    latest = page.locator("#event-list .event").first
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
    page.locator("#event-list details[open] a", has_text="x7").click()
    expect(page.locator("#detail-title")).to_have_text("x7")


def test_events_are_found_by_words_and_kind(serve: Serve, visit: Open) -> None:
    served = serve()
    outage(served, 3)
    opened = visit(served.url, "#/events")
    page = opened.page
    events = page.locator("#event-list .event")
    page.locator("#event-search").fill("elsewhere")
    expect(events).to_have_count(2)
    page.locator("#event-search").fill("")
    page.locator("#event-states").select_option(label="to down")
    expect(events).to_have_count(1)
    assert "state=invalid" in page.url
    page.reload()
    expect(events).to_have_count(1)
    page.locator("#event-search").fill("nothing-is-called-so")
    expect(page.locator("#no-events")).to_be_visible()


def test_an_agent_that_starts_again_begins_its_events_again(serve: Serve, visit: Open) -> None:
    served = serve()
    outage(served, 3)
    opened = visit(served.url, "#/events")
    page = opened.page
    expect(page.locator("#event-list .event")).not_to_have_count(0)
    opened.may_fail_to_load = True
    served.do(served.board.close)  # ends the events; the page connects again
    served.do(served.board.recent.__init__)  # type: ignore[misc]  # as a new process has none
    expect(page.locator("#no-events")).to_be_visible()


def forwarding(served: Served, shown: Shown, hours: float) -> None:
    """A link's record of so many hours, as if it had forwarded a message a second."""

    def record() -> None:
        now = served.board.clock()
        for ago in range(int(hours * 3600), 0, -15):
            shown.counts.forwarded += 15
            shown.gauges.backlog = 5_000 if 7_200 <= ago < 7_300 else 10
            entry = served.board[shown.link.id]
            entry.history.sample(entry.look(now - ago))

    served.do(record)


def value_at(page: Page, chart: str, part: float) -> str:
    """What is shown when one points at this part of a chart's width."""
    box: Any = page.locator(f"#{chart}-chart").bounding_box()
    page.mouse.move(box["x"] + 60 + (box["width"] - 75) * part, box["y"] + 60)
    return page.locator(f"#{chart}-readout").inner_text()


def test_charts_show_values_at_clock_times_over_three_ranges(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "orders"))
    served.put([shown])
    forwarding(served, shown, 25)
    page = visit(served.url, "#/links/00000001", timezone_id="Asia/Tokyo", viewport={"width": 1440, "height": 900}).page
    expect(page.locator("#rate-readout")).to_contain_text("/s")
    assert "1.0/s at " in value_at(page, "rate", 0.5)
    assert value_at(page, "rate", 0.5).endswith("UTC+9")
    expect(page.locator("#lag-readout")).to_contain_text("10 at")
    expect(page.locator(".mark circle")).to_have_count(3)
    page.mouse.move(5, 5)
    expect(page.locator(".mark circle")).to_have_count(0)
    for label, limit in (("1 h", 80), ("24 h", 200)):
        page.get_by_role("link", name=label, exact=True).click()
        expect(page.locator("#ranges [aria-current]")).to_have_text(label)
        expect(page.locator("#rate-chart .line")).to_have_count(1)
        assert page.locator("#rate-chart .line").get_attribute("d").count("L") < limit  # type: ignore[union-attr]
        assert "1.0/s at " in value_at(page, "rate", 0.5)
    expect(page.locator("#lag-chart .tick").first).to_have_text("0")
    expect(page.locator("#lag-chart .tick", has_text="10K")).to_have_count(1)  # the peak two hours ago isn't lost
    page.reload()
    expect(page.locator("#ranges [aria-current]")).to_have_text("24 h")
    page.locator("#rate-chart").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#rate-readout")).to_contain_text("1.0/s at ")


def test_two_thousand_changes_stay_smooth(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(at, f"x{at}", upstream=f"dc{at % 200}"), cluster=None) for at in range(1000)]
    served.put(links)
    page = visit(served.url, "#/events").page
    expect(page.locator("#event-list .event")).to_have_count(100)
    page.get_by_role("button", name="Show earlier ones").click()
    expect(page.locator("#event-list .event")).to_have_count(200)
    work = Work(page)
    for at in range(TICKS):
        served.change(links[at], REFUSED)
        page.evaluate(AFTER_FRAMES, 60)
    assert work.seconds() / TICKS < 0.3


CUT_OFF: Final = """[...document.querySelectorAll(".chart .tick")].filter((tick) => {
  const [inner, outer] = [tick.getBoundingClientRect(), tick.closest("svg").getBoundingClientRect()];
  return inner.left < outer.left - 0.5 || inner.right > outer.right + 0.5;
}).map((tick) => tick.textContent)"""


def test_no_label_of_a_chart_is_cut_off(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "orders"))
    shown.gauges.oldest_unconfirmed = 700.0
    shown.gauges.backlog = 12_345_678
    served.put([shown])

    def record() -> None:
        entry = served.board[shown.link.id]
        for ago in (60, 30):
            entry.history.sample(entry.look(served.board.clock() - ago))

    served.do(record)
    page = visit(served.url, "#/links/00000001", viewport={"width": 390, "height": 900}).page
    expect(page.locator("#age-chart .tick", has_text="20 min")).to_be_visible()
    assert page.evaluate(f"() => {CUT_OFF}") == []


def test_a_time_at_the_end_of_a_chart_is_not_cut_off(serve: Serve, visit: Open) -> None:
    """There is one every five minutes."""
    served = serve()
    served.put([Shown(link(1, "orders"))])
    page = visit(served.url, "#/links/00000001", viewport={"width": 390, "height": 900}).page
    expect(page.locator("#rate-chart .tick").first).to_be_visible()
    cut = page.evaluate(
        f"""async () => {{
          const {{ Chart, Cursor }} = await import("/page/charts.js");
          const chart = new Chart("rate", new Cursor(), {{ show: String, label: "x", ceiling: () => 2 }});
          const end = Date.parse("2026-11-23T22:50:00Z");
          chart.show([[end - 60_000, 1], [end, 1]], [end - 900_000, end]);
          return {CUT_OFF};
        }}"""
    )
    assert cut == []
