"""A standby and a move on the page: there only while the agent has one."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.measures import check_accessible
from tests.integration.page.scenes import PHONE, move, standby
from tests.tiers import thorough


@pytest.mark.parametrize("theme", ["light", thorough("dark")])
def test_a_standby_with_its_doubts_and_the_commands_for_it(serve: Serve, visit: Open, theme: str) -> None:
    served = serve()
    standby(served)
    page = visit(served.url, color_scheme=theme, bypass_csp=True).page
    section = page.locator("#standby")
    expect(section.locator("#standby-verdict")).to_have_text("In step with origin")
    expect(section.locator("#standby-figures dd")).to_have_text(["< 1 s", "2", "4", "3,612"])
    section.get_by_text("3 queues in doubt").click()
    expect(section.locator("#standby-doubt-list li").first).to_have_text("shop/invoices it has a maximum length")
    expect(section).to_contain_text("federation-agent standby promote -c FILE --failover --dry-run")
    expect(page.locator("#move")).to_be_hidden()
    check_accessible(page, {})


def test_a_standby_that_is_not_in_step_says_why_and_a_promoted_one_since_when(serve: Serve, visit: Open) -> None:
    away, promoted = serve(), serve()
    standby(away, follow_error="<b>refused</b>")
    standby(promoted, promoted_at="2026-11-27T10:00:00Z")
    opened = visit(away.url)
    expect(opened.page.locator("#standby-verdict")).to_have_text("Not in step with origin")
    expect(opened.page.locator("#standby-why li")).to_contain_text("<b>refused</b>")
    opened.may_fail_to_load = True
    opened.url = promoted.url
    page = opened.go()
    expect(page.locator("#standby-verdict")).to_contain_text("it doesn't follow origin any more")
    expect(page.locator("#standby-why")).to_be_hidden()
    expect(page.locator("#standby")).to_contain_text("federation-agent standby reverse -c FILE --write reversed.yaml")


def test_a_move_with_what_waits_and_no_verdict(serve: Serve, visit: Open) -> None:
    served = serve()
    move(served)
    page = visit(served.url, viewport=PHONE).page
    section = page.locator("#move")
    expect(section.locator("h2")).to_have_text("Move from old")
    expect(page.locator("#standby")).to_be_hidden()
    expect(section).to_contain_text("3 queues: 2 links run here, 1 doesn't work or is behind")
    expect(section).to_contain_text("1,800 messages wait at the source; 3,000 messages have arrived")
    expect(section).to_contain_text("federation-agent migrate status FILE")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
