"""Several agents on one page."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import pair_of_agents


def test_both_directions_between_two_clusters_and_a_peer_that_is_away(serve: Serve, visit: Open) -> None:
    here, there = serve(cluster="dc2"), serve(cluster="dc1", token="t0ken", host="0.0.0.0")
    pair_of_agents(here, there)
    page = visit(here.url).page  # the browser speaks to this agent alone
    page.get_by_role("link", name="Fleet").click()
    expect(page.locator("#fleet-title")).to_be_focused()
    agents = page.locator("#agents > li")
    expect(agents).to_have_count(2)
    expect(agents.nth(0)).to_contain_text("dc2-a (this agent)")
    expect(agents.nth(0)).to_contain_text("1 of 4 links down")
    peer = agents.nth(1)
    expect(peer.get_by_role("link", name="dc1-a")).to_have_attribute("href", there.url)
    expect(peer).to_contain_text("Fine")
    pair = page.locator("#pairs .pair").filter(has_text="dc1 ⇄ dc2")
    expect(pair.locator(".way-line").nth(0)).to_contain_text("dc1 → dc23 links1 backoff2 running")
    expect(pair.locator(".way-line").nth(1)).to_contain_text("dc2 → dc12 links2 running")
    other = page.locator("#pairs .pair").filter(has_text="dc2 ⇄ dc9")
    expect(other.locator(".way-line").nth(0)).to_contain_text("not known: no agent beside dc9 is among the peers")

    there.stop_serving()
    expect(peer).to_contain_text("Not reached")
    expect(peer).to_contain_text("can't be reached")
    expect(page.locator("#pairs")).to_contain_text("as last known")
    expect(page.locator("#connection")).to_have_text("Live")
