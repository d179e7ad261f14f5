"""Actions on several links: those that were selected, those of an upstream, and what of them could not be done."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from agent.core.links.lifecycle import LinkState
from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import REFUSED, blocked
from tests.integration.page.served import PAUSED, RUNNING, Served, Shown, link

STANDBY = LinkState(started=True, standby="another runs it")
TALL: Final[ViewportSize] = {"width": 1440, "height": 1600}


def several(served: Served) -> None:
    served.put([Shown(link(at, f"x{at}"), RUNNING) for at in range(3)])
    served.put([Shown(link(at, f"y{at}", upstream="paris"), REFUSED, cluster="paris") for at in range(10, 22)])
    served.put([Shown(link(30, "z30"), PAUSED), Shown(link(31, "z31"), STANDBY)])


def bar(page: Page, action: str, at: str = "#selection") -> None:
    page.locator(at).get_by_role("button", name=f"{action} …").click()


def test_selected_links_are_acted_on_after_what_will_happen_was_shown(serve: Serve, visit: Open) -> None:
    served = serve()
    several(served)
    page = visit(served.url, "#/links?sort=name", viewport=TALL).page
    page.get_by_label("Select x0").check()
    page.get_by_label("Select y10").check()
    page.get_by_label("Select z30").check()
    page.get_by_label("Select z31").check()
    selected = page.locator("#selection-count")
    expect(selected).to_have_text("4 links selected")
    assert page.url.endswith("sort=name")  # a click on the box leads nowhere
    bar(page, "Restart")
    expect(page.locator("#confirm-title")).to_have_text("Restart 2 links of dc2?")
    effect = page.locator("#confirm-effect")
    expect(effect).to_contain_text("Each settles its messages in flight")
    expect(effect).to_contain_text("2 links: 1 running, 1 backoff.")
    expect(effect).to_contain_text("Left as they are: 1 paused, 1 standby.")
    expect(page.locator("#confirm-names li")).to_have_text(["x0", "y10"])
    page.locator("#confirm-cancel").click()
    assert served.acted == []
    bar(page, "Restart")
    page.get_by_role("button", name="Restart 2 links").click()
    expect(page.locator("#confirm")).not_to_be_visible()
    assert sorted(served.acted) == [("00000000", "restart"), ("0000000a", "restart")]
    page.get_by_role("button", name="Clear selection").click()
    expect(page.locator("#selection")).to_be_hidden()


@pytest.mark.thorough
def test_all_that_match_are_selected_and_a_range_with_shift(serve: Serve, visit: Open) -> None:
    served = serve()
    several(served)
    page = visit(served.url, "#/links?q=paris&sort=name").page
    expect(page.locator("#found")).to_have_text("12 of 17 links")
    selected = page.locator("#selection-count")
    page.evaluate(
        """() => { document.querySelector("#heads .choose").click();
            document.querySelector("#selection [data-action=restart]").click(); }"""
    )
    expect(page.locator("#confirm-title")).to_have_text("Restart 12 links from paris?")  # what was just selected
    page.locator("#confirm-cancel").click()
    expect(selected).to_have_text("12 links selected")
    page.get_by_label("Select all of these links").uncheck()
    expect(page.locator("#selection")).to_be_hidden()
    page.get_by_label("Select y11").click()
    page.get_by_label("Select y14").click(modifiers=["Shift"])
    expect(selected).to_have_text("4 links selected")
    served.do(lambda: served.board.gone("0000000c"))
    expect(selected).to_have_text("3 links selected")


@pytest.mark.thorough
def test_what_was_not_done_is_shown_and_can_be_tried_again(serve: Serve, visit: Open) -> None:
    """Looking needs no token here, but acting does."""
    served = serve(token="t0ken")
    several(served)
    opened = visit(served.url, "#/links/00000001")
    opened.may_fail_to_load = True  # being refused is told as such
    page = opened.page
    page.locator("#do-restart").click()
    page.locator("#confirm-go").click()
    page.locator("#token-cancel").click()
    expect(page.locator("#confirm-error")).to_contain_text("needs a token")
    assert served.acted == []
    page.locator("#confirm-cancel").click()

    opened.go("#/links?from=paris")
    expect(page.locator("#upstream-name")).to_have_text("All 12 links from paris:")
    expect(page.locator("#upstream").get_by_role("button", name="Resume …")).to_be_hidden()
    bar(page, "Pause", "#upstream")
    page.get_by_label("Reason, for others").fill("maintenance of paris")
    page.locator("#confirm-go").click()
    page.locator("#token-input").fill("t0ken")
    served.do(lambda: served.board.gone("0000000c"))
    with page.expect_request("**/pause") as asked:
        page.keyboard.press("Enter")
    assert asked.value.post_data_json == {"reason": "maintenance of paris"}
    expect(page.locator("#confirm-error")).to_contain_text("Not done for 1 link, such as y12: no link has the id")
    assert len(served.acted) == 11
    assert {action for _, action in served.acted} == {"pause"}


@pytest.mark.thorough
def test_a_thousand_links_are_restarted_with_progress(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, f"<b>x{at}</b>")) for at in range(1000)])
    page = visit(served.url).page
    page.get_by_label("Select all of these links").check()
    bar(page, "Restart")
    expect(page.locator("#confirm-names li").first).to_have_text("<b>x0</b>")
    page.get_by_role("button", name="Restart 1,000 links").click()
    expect(page.locator("#confirm-progress")).to_contain_text("of 1,000 done")
    expect(page.locator("#confirm")).not_to_be_visible(timeout=60_000)
    assert len(served.acted) == 1000


def test_a_cause_that_somebody_knows_moves_behind_others_and_back(serve: Serve, visit: Open) -> None:
    served = serve()
    several(served)
    served.put([Shown(link(40, "z40"), blocked("low on memory"))])
    page = visit(served.url, "#/links", viewport=TALL).page
    causes = page.locator("#causes > li")
    expect(causes).to_have_count(2)
    expect(causes.first).to_contain_text("memory alarm")
    buttons = causes.first.get_by_role("button", name=re.compile(" …$")).all()
    assert len({(box["y"], box["height"]) for button in buttons if (box := button.bounding_box())}) == 1
    causes.first.get_by_role("button", name="Acknowledge …").click()
    expect(page.locator("#confirm-title")).to_contain_text("Acknowledge dc2 (downstream): memory alarm for ")
    page.get_by_label("Reason").fill("disk is ordered")
    page.get_by_label("For", exact=True).select_option("1 hour")
    page.get_by_role("button", name="Acknowledge", exact=True).click()
    expect(page.locator("#confirm")).not_to_be_visible()
    expect(causes.last).to_contain_text(", acknowledged by HTTP from 127.0.0.1")
    expect(causes.first).not_to_contain_text("memory alarm")
    expect(causes.last).to_contain_text(re.compile(r"Acknowledged at [\d :-]+, until [\d :-]+: disk is ordered"))
    lines = [cause.locator(".cause-line") for cause in (causes.first, causes.last)]
    assert len({line.evaluate("(node) => getComputedStyle(node).color") for line in lines}) == 2
    causes.last.get_by_role("button", name="Take back acknowledgement …").click()
    expect(page.locator("#confirm-title")).to_contain_text("Take back acknowledgement of dc2 (downstream): ")
    expect(page.get_by_label("Reason")).to_be_hidden()
    page.get_by_role("button", name="Take back acknowledgement", exact=True).click()
    expect(causes.first).to_contain_text("memory alarm")
    expect(causes.first).not_to_contain_text("acknowledged by")
