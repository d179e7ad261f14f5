"""Several agents on one page."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import RUNNING, Served, Shown, failed, link
from tests.integration.page.test_board import check_accessible

REFUSED = failed("connection refused")


def pair_of_agents(serve: Serve) -> tuple[Served, Served]:
    here, there = serve(cluster="dc2"), serve(cluster="dc1", token="t0ken", host="0.0.0.0")
    here.peers = [there.url.replace("://", "://agent:t0ken@")]
    here.put([Shown(link(at, f"x{at}"), RUNNING if at else REFUSED, cluster="dc1") for at in range(3)])
    here.put([Shown(link(9, "y"), cluster="dc9")])
    there.put([Shown(link(at, f"z{at}"), cluster="dc2") for at in range(2)])
    return here, there


def test_both_directions_between_two_clusters(serve: Serve, visit: Open) -> None:
    here, there = pair_of_agents(serve)
    opened = visit(here.url, bypass_csp=True)
    page = opened.page
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("#fleet-title")).to_be_focused()
    agents = page.locator("#agents > li")
    expect(agents).to_have_count(2)
    expect(agents.nth(0)).to_contain_text("dc2-a (this agent)")
    expect(agents.nth(0)).to_contain_text("1 of 4 links down")
    expect(agents.nth(1).get_by_role("link", name="dc1-a")).to_have_attribute("href", there.url)
    expect(agents.nth(1)).to_contain_text("Fine")
    pair = page.locator("#pairs .pair").filter(has_text="dc1 ⇄ dc2")
    expect(pair.locator(".way-line").nth(0)).to_contain_text("dc1 → dc23 links1 backoff2 running")
    expect(pair.locator(".way-line").nth(1)).to_contain_text("dc2 → dc12 links2 running")
    other = page.locator("#pairs .pair").filter(has_text="dc2 ⇄ dc9")
    expect(other.locator(".way-line").nth(0)).to_contain_text("not known: no agent beside dc9 is among the peers")
    check_accessible(page, {})
    assert opened.strangers == []  # the browser speaks to this agent alone


def test_a_peer_that_is_away_is_shown_as_last_known(serve: Serve, visit: Open) -> None:
    here, there = pair_of_agents(serve)
    page = visit(here.url, "#/fleet").page
    peer = page.locator("#agents > li").nth(1)
    expect(peer).to_contain_text("Fine")
    there.stop_serving()
    expect(peer).to_contain_text("Not reached")
    expect(peer).to_contain_text("can't be reached")
    expect(page.locator("#pairs")).to_contain_text("as last known")
    expect(page.locator("#connection")).to_have_text("Live")


def test_without_peers_it_says_how_to_have_some(serve: Serve, visit: Open) -> None:
    page = visit(serve().url, "#/fleet").page
    expect(page.locator("#no-peers")).to_contain_text("agent.peers")
    expect(page.locator("#agents > li")).to_have_count(1)


def test_names_of_peers_are_text(serve: Serve, visit: Open) -> None:
    here, there = pair_of_agents(serve)
    there.board.owner = "<img src=x onerror=\"document.title='owned'\">"
    page = visit(here.url, "#/fleet").page
    expect(page.locator("#agents > li").nth(1)).to_contain_text("<img src=x")
    assert page.locator("#view-fleet img").count() == 0
