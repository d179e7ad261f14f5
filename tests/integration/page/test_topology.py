"""The topology with many clusters."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import PAUSED, RUNNING, STALLED, Served, Shown, failed, link

REFUSED = failed("connection refused")
WIDE = {"width": 1440, "height": 900}


def sixty(served: Served) -> None:
    """Ten down, five degraded, two paused, the others running."""
    states = [*[REFUSED] * 10, *[STALLED] * 5, *[PAUSED] * 2, *[RUNNING] * 43]
    served.put(
        [
            Shown(link(at * 10 + each, f"x{each}.{at}", upstream=f"dc{at}"), state, cluster=f"site-{at:02}")
            for at, state in enumerate(states)
            for each in range(2)
        ]
    )


def own_cluster_is_seen(page: Page) -> bool:
    box = page.locator("#map .target").bounding_box()
    size = page.viewport_size
    assert box is not None
    assert size is not None
    return box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


def test_sixty_clusters_fit_and_those_in_trouble_are_shown(serve: Serve, visit: Open) -> None:
    served = serve()
    sixty(served)
    page = visit(served.url, "#/topology", viewport=WIDE).page
    expect(page.locator("#map .box.rest .title")).to_have_text(["+ 4 clusters", "43 clusters"])
    expect(page.locator("#map .box.source .title", has_text="site-")).to_have_count(6 + 5 + 2)
    assert int(page.locator("#map").get_attribute("height") or 0) < 1_000
    assert own_cluster_is_seen(page)
    expect(page.locator("#legend")).to_contain_text("running43 clusters")


def test_each_cluster_of_a_state_can_be_shown_and_ones_own_stays_in_sight(serve: Serve, visit: Open) -> None:
    served = serve()
    sixty(served)
    page = visit(served.url, "#/topology", viewport=WIDE).page
    page.get_by_role("link", name="43 clusters, running · 86 links; show each").click()
    assert page.url.endswith("#/topology?open=up")
    page.get_by_role("link", name="down, 10 clusters: show each").click()
    expect(page.locator("#map .box.source .title", has_text="site-")).to_have_count(60)
    assert int(page.locator("#map").get_attribute("height") or 0) > 2_000
    for part in (0, 0.5, 1):
        page.evaluate("(part) => scrollTo(0, part * document.documentElement.scrollHeight)", part)
        page.wait_for_function(
            """() => { const { top, bottom } = document.querySelector("#map .target").getBoundingClientRect();
                return top >= 0 && bottom <= innerHeight; }"""
        )
        ends = page.locator("#map .head").first.evaluate("(head) => head.getBoundingClientRect().top")
        assert 0 <= ends <= 900, part
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("link", name="running, 43 clusters: show as one").click()
    expect(page.locator("#map .box.rest .title")).to_have_text(["43 clusters"])
    page.reload()
    expect(page.locator("#map .box.rest .title")).to_have_text(["43 clusters"])


NARROW = {"width": 390, "height": 844}
OUTSIDE = """() => [...document.querySelectorAll("#map .box")].flatMap((box) => {
    const frame = box.querySelector("rect").getBoundingClientRect();
    return [...box.querySelectorAll("text")].filter((words) => {
      const { left, right, top, bottom } = words.getBoundingClientRect();
      return left < frame.left || right > frame.right || top < frame.top || bottom > frame.bottom;
    }).map((words) => words.textContent);
  })"""
OVERLAPPING = """() => {
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
    page = visit(served.url, "#/topology", viewport=NARROW).page
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


def test_a_few_clusters_are_all_shown(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, f"x{at}", upstream=f"dc{at}"), cluster=f"site-{at}") for at in range(12)])
    page = visit(served.url, "#/topology", viewport=WIDE).page
    expect(page.locator("#map .box.source")).to_have_count(12)
    expect(page.locator("#map .box.rest")).to_have_count(0)


def test_clusters_that_are_one_box_lead_to_their_links(serve: Serve, visit: Open) -> None:
    served = serve()
    sixty(served)
    page = visit(served.url, "#/topology", viewport=WIDE).page
    page.get_by_role("link", name="86 links from 43 clusters running").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("86 of 120 links")
