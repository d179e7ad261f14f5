"""The page in every theme and width, for everybody who reads it."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.measures import AFTER_FRAMES, check_accessible
from tests.integration.page.scenes import PHONE, REFUSED, few, pair_of_agents
from tests.integration.page.served import PAUSED, RUNNING, STALLED, Shown, link

pytestmark = pytest.mark.thorough

CONTRAST: Final = {"runOnly": ["color-contrast"]}


@pytest.mark.parametrize(("theme", "rules"), [("light", {}), ("dark", CONTRAST)])
def test_nothing_is_in_the_way_of_those_who_see_or_point_otherwise(
    serve: Serve, visit: Open, theme: str, rules: dict[str, object]
) -> None:
    served, there = serve(), serve(cluster="dc1", token="t0ken", host="0.0.0.0")
    pair_of_agents(served, there)
    served.put([each for each in few() if each.link.id > "00000002"])
    opened = visit(served.url, color_scheme=theme, bypass_csp=True)
    page = opened.page
    for where, shown in {
        "#/links": "#rows tr >> nth=5",
        "#/topology": "#map .link >> nth=3",
        "#/events": "#event-list .event >> nth=5",
        "#/fleet": "#agents > li >> nth=1",
        "#/links/00000003": "#transitions li >> nth=1",
        "#/links?q=none": "#no-match",
    }.items():
        opened.go(where)
        expect(page.locator(shown)).to_be_visible()
        check_accessible(page, rules)
    opened.go("#/links")
    page.get_by_label("Select all of these links").check()
    check_accessible(page, rules)
    page.locator("#selection [data-action=pause]").click()
    check_accessible(page, rules)
    page.keyboard.press("Escape")
    opened.may_fail_to_load = True
    served.stop_serving()
    expect(page.locator("#unreachable")).to_be_visible()
    check_accessible(page, rules)


def test_the_theme_follows_the_system_until_one_is_chosen(serve: Serve, visit: Open) -> None:
    page = visit(serve().url, color_scheme="dark").page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    page.locator("#theme").click()
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == light
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "false")


def test_nothing_sticks_out_at_any_width(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    opened = visit(served.url)
    page = opened.page
    for where in ("#/links", "#/topology", "#/events", "#/fleet", "#/links/00000002", "#/links?from=dc1"):
        opened.go(where)
        expect(page.locator("h1:visible")).to_have_count(1)
        for width in (320, 768, 1440, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(AFTER_FRAMES, 2)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (where, width)


def test_an_address_is_not_broken_within_its_port(serve: Serve, visit: Open) -> None:
    served = serve()
    name = "rabbit-upstream.messaging.eu-central"
    served.put([Shown(link(1, "a", upstream=name))])
    page = visit(served.url, "#/links/00000001", viewport={"width": 390, "height": 900}).page
    shown = page.locator("#facts .wide dd span span").first
    expect(shown).to_have_text(f"amqp://{name}.example:5672/%2f")
    lines = """(node) => { const range = document.createRange(); return [...node.childNodes]
        .filter((each) => each.data?.startsWith(":5672"))
        .map((each) => { range.selectNodeContents(each); return range.getClientRects().length; }); }"""
    for width in range(320, 480, 8):
        page.set_viewport_size({"width": width, "height": 900})
        assert shown.evaluate(lines) == [1], width


CUT_OFF: Final = """[...document.querySelectorAll(".chart .tick")].filter((tick) => {
  const [inner, outer] = [tick.getBoundingClientRect(), tick.closest("svg").getBoundingClientRect()];
  return inner.left < outer.left - 0.5 || inner.right > outer.right + 0.5;
}).map((tick) => tick.textContent)"""


def test_no_label_of_a_chart_is_cut_off(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "orders"))
    shown.gauges.oldest_in_flight = 700.0
    shown.gauges.backlog = 12_345_678
    served.put([shown])

    def record() -> None:
        entry = served.board[shown.link.id]
        for ago in (60, 30):
            entry.history.add_sample(entry.sample_at(served.board.clock() - ago))

    served.do(record)
    page = visit(served.url, "#/links/00000001", viewport={"width": 390, "height": 900}).page
    expect(page.locator("#age-chart .tick", has_text="20 min")).to_be_visible()
    assert page.evaluate(f"() => {CUT_OFF}") == []
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
    assert cut == [], "nor is a time at the end; there is one every five minutes"


OUTSIDE: Final = """() => [...document.querySelectorAll("#map .box")].flatMap((box) => {
    const frame = box.querySelector("rect").getBoundingClientRect();
    return [...box.querySelectorAll("text")].filter((words) => {
      const { left, right, top, bottom } = words.getBoundingClientRect();
      return left < frame.left || right > frame.right || top < frame.top || bottom > frame.bottom;
    }).map((words) => words.textContent);
  })"""
OVERLAPPING: Final = """() => {
    const shown = [...document.querySelectorAll("#map .link")].map((link) => {
      const sign = link.querySelector(".sign").getBoundingClientRect();
      const words = link.querySelector(".label").getBoundingClientRect();
      const right = Math.max(sign.right, words.right);
      return { left: sign.left, right, top: sign.top, bottom: sign.bottom, name: link.getAttribute("aria-label") };
    });
    const boxes = [...document.querySelectorAll("#map .box rect")].map((box) => box.getBoundingClientRect());
    const meets = (one, other) =>
      one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
    return shown.filter((label, at) =>
      boxes.some((box) => meets(label, box)) || shown.some((other, its) => its !== at && meets(label, other)),
    ).map(({ name }) => name);
  }"""


def test_on_a_telephone_names_are_whole_or_differ_and_nothing_overlaps(serve: Serve, visit: Open) -> None:
    served = serve(cluster="dc2-production-europe")
    states = [*[REFUSED] * 3, *[STALLED] * 2, *[PAUSED] * 2, *[RUNNING] * 3]
    links = [
        Shown(
            link(at * 20 + each, f"x{each}.{at}", upstream=f"dc{at}"), state,
            cluster=f"rabbit@a-rather-long-name-of-a-broker-{at:02}.frankfurt.example.com",
        )
        for at, state in enumerate(states)
        for each in range(1 + 11 * (at % 3 == 0))
    ]  # fmt: skip
    served.put(links)
    served.put([Shown(link(900, "short", upstream="u"), cluster="rabbit@frankfurt-production-1")])
    page = visit(served.url, "#/topology", viewport=PHONE).page
    expect(page.locator("#map .box.source")).to_have_count(11)
    served.forward([each for each in links if each.state is RUNNING], 1_234_567)
    expect(page.locator("#map .label", has_text="/s").first).to_be_visible()
    titles = page.locator("#map .source .title").all_text_contents()
    assert len(set(titles)) == 11
    assert "rabbit@frankfurt-production-1" in titles
    assert all(any(f"{at:02}" in title for title in titles) for at in range(10))
    assert page.locator("#map .target .title").text_content() == "dc2-production-europe"
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPPING) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
