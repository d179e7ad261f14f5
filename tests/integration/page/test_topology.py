"""The topology with many clusters."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import WIDE, sixty
from tests.integration.page.served import Shown, link

IN_SIGHT: Final = """() => { const { top, bottom } = document.querySelector("#map .target").getBoundingClientRect();
    const head = document.querySelector("#map .head").getBoundingClientRect().top;
    return top >= 0 && bottom <= innerHeight && head >= 0 && head <= innerHeight; }"""


def test_sixty_clusters_fit_each_can_be_shown_and_ones_own_stays_in_sight(serve: Serve, visit: Open) -> None:
    served = serve()
    sixty(served)
    page = visit(served.url, "#/topology", viewport=WIDE).page
    clusters = page.locator("#map .box.source .title", has_text="site-")
    rest = page.locator("#map .box.rest .title")
    expect(rest).to_have_text(["+ 4 clusters", "43 clusters"])
    expect(clusters).to_have_count(6 + 5 + 2)
    assert int(page.locator("#map").get_attribute("height") or 0) < 1_000
    page.wait_for_function(IN_SIGHT)
    expect(page.locator("#legend")).to_contain_text("running43 clusters")
    expect(page.get_by_role("link", name="43 clusters, running · 86 links; show each")).to_be_visible()

    page.get_by_role("link", name="down, 10 clusters: show each").click()
    expect(clusters).to_have_count(10 + 5 + 2)
    assert page.url.endswith("#/topology?open=down")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_function(IN_SIGHT)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(IN_SIGHT)
    page.get_by_role("link", name="down, 10 clusters: show as one").click()
    expect(rest).to_have_text(["10 clusters", "43 clusters"])
    page.reload()
    expect(rest).to_have_text(["10 clusters", "43 clusters"])
    page.get_by_role("link", name="86 links from 43 clusters to dc2 running").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("86 of 120 links")


@pytest.mark.thorough
def test_each_of_sixty_clusters_can_be_shown_and_ones_own_stays_in_sight(serve: Serve, visit: Open) -> None:
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
        page.wait_for_function(IN_SIGHT)
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("link", name="running, 43 clusters: show as one").click()
    expect(page.locator("#map .box.rest .title")).to_have_text(["43 clusters"])


@pytest.mark.thorough
def test_a_few_clusters_are_all_shown(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, f"x{at}", upstream=f"dc{at}"), cluster=f"site-{at}") for at in range(12)])
    page = visit(served.url, "#/topology", viewport=WIDE).page
    expect(page.locator("#map .box.source")).to_have_count(12)
    expect(page.locator("#map .box.rest")).to_have_count(0)
