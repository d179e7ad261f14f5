"""The page beside a real agent between real brokers: what happens to a link is seen, and may be brought about."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.integration.federation.conftest import AgentOf, SiteOn
from tests.integration.federation.running import Agent
from tests.integration.federation.sites import Site, X, federated
from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import Shown, link
from tests.integration.shovels.shoveling import shovel
from tests.lab.node import Node
from tests.lab.proxy import Proxy


def status(page: Page, name: str) -> None:
    """Until the link's row says so."""
    expect(page.locator("#rows .badge")).to_have_text(name)


def act(page: Page, action: str) -> None:
    page.get_by_role("button", name=action, exact=True).click()
    page.locator("#confirm-go").click()
    expect(page.locator("#confirm")).not_to_be_visible()


@pytest.fixture
def proxy(there: Site, proxy_to: Callable[[Node | int], Proxy]) -> Proxy:
    return proxy_to(there.node)


@pytest.fixture
def agent(agent_of: AgentOf, here: Site, there: Site, proxy: Proxy, serve: Serve) -> Agent:
    """With one link, and a peer that has one in the other direction."""
    peer = serve(cluster=there.node.cluster_name, token="t0ken", host="0.0.0.0")
    peer.put([Shown(link(1, "back"), cluster=here.node.cluster_name)])
    peers = [peer.url.replace("://", "://agent:t0ken@").rstrip("/")]
    here.exchange().queue("k")
    sections = federated(there) | {"upstreams": {"origin": {"uri": there.node.uri(there.vhost, port=proxy.port)}}}
    made = agent_of(here.node)
    return made.write({here.vhost: sections}, agent=made.settings(peers=peers)).start()


def test_what_an_agent_does_is_seen_and_may_be_brought_about(
    agent: Agent, here: Site, there: Site, proxy: Proxy, visit: Open
) -> None:
    agent.wait_for("running", (here.vhost, X, "origin"))
    opened = visit(f"http://127.0.0.1:{agent.port}/")
    page = opened.page
    goes_down_and_comes_back(page, here, there, proxy)
    is_acted_on(page, agent, here, there)
    is_drawn(page, here)
    is_seen_beside_its_peer(page, agent, here, there)
    opened.may_fail_to_load = True
    page.locator("#nav-links").click()
    agent.kill()
    expect(page.locator("#unreachable-text")).to_contain_text("has not answered since")
    expect(page.locator("body")).to_have_attribute("data-connection", "away")
    agent.start()
    expect(page.locator("#unreachable")).to_be_hidden()
    status(page, "Running")


@pytest.fixture
def sites(here: Site, there: Site, native_broker: Node, site_on: SiteOn) -> tuple[Site, Site, Site]:
    return here, there, site_on(native_broker)


def test_a_shovel_is_drawn_between_its_two_clusters_each_of_which_is_one_box(
    sites: tuple[Site, Site, Site], agent_of: AgentOf, proxy: Proxy, visit: Open
) -> None:
    """The upstream is known by two addresses, one of which only shovels use."""
    here, there, third = sites
    here.exchange().queue("k", name="src")
    there.queue(name="src", exchange="amq.topic")
    elsewhere = {"src-uri": there.node.uri(there.vhost, port=proxy.port)}
    moves = {
        "between": shovel(there, third) | elsewhere,
        "back": shovel(here, there),
        "in": shovel(there, here) | elsewhere,
    }
    agent = agent_of(here.node).write({here.vhost: federated(there) | {"shovels": moves}}).start()
    agent.wait_for("running", (here.vhost, X, "origin"), *((here.vhost, name, "") for name in moves))
    dc2, dc1, dc3 = (site.node.cluster_name for site in (here, there, third))
    page = visit(f"http://127.0.0.1:{agent.port}/", "#/topology").page
    ways = {X: (dc1, dc2), "between": (dc1, dc3), "back": (dc2, dc1), "in": (dc1, dc2)}
    for name, (source, destination) in ways.items():
        expect(page.get_by_role("link", name=f"{name} from {source} to {destination}: running")).to_be_attached()
    expect(page.locator("#map .box title")).to_have_text([dc1, dc3, dc2])
    expect(page.locator("#map .unknown")).to_have_count(0)
    expect(page.locator("#legend")).to_contain_text("running1 cluster")
    page.locator("#nav-links").click()
    path = page.locator("#rows").get_by_role("row", name="between").locator(".cell-path")
    expect(path).to_have_text(f"{dc1} / queue src→ {dc3} / queue dest")


def goes_down_and_comes_back(page: Page, here: Site, there: Site, proxy: Proxy) -> None:
    status(page, "Running")
    expect(page.locator("#rows .source")).to_have_text(f"{there.node.cluster_name} / {X}")
    expect(page.locator("#agent-more")).to_contain_text(f"beside {here.node.cluster_name}")
    assert there.publish(["one", "two"]) == 2
    assert here.take(2) == ["one", "two"]
    page.set_viewport_size({"width": 1920, "height": 900})  # wide enough for the totals
    expect(page.locator("#rows .cell-forwarded")).to_have_text("2")
    proxy.refuse()
    proxy.cut()
    status(page, "Backoff")
    expect(page.locator("#causes .cause-reason")).to_contain_text("origin")
    expect(page).to_have_title("(1) " + page.locator("#agent").inner_text())
    expect(page.locator("#announcement")).to_have_text(f"1 link down: {X}.")
    proxy.accept()
    status(page, "Running")
    expect(page.locator("#attention")).to_be_hidden()


def is_acted_on(page: Page, agent: Agent, here: Site, there: Site) -> None:
    before = agent.history(here.vhost, X)
    page.locator("#rows a").click()
    expect(page.locator("#detail-title")).to_have_text(X)
    expect(page.locator("#transitions li").first).to_contain_text("Running")
    expect(page.locator("#transitions")).to_contain_text("Backoff")
    state = page.locator("#detail-state")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#confirm-title")).to_have_text(f"Pause {X}?")
    expect(page.locator("#confirm-cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(state).to_have_text("Running")
    act(page, "Pause")
    expect(state).to_have_text("Paused")
    assert there.publish(["kept meanwhile"]) == 1
    act(page, "Resume")
    expect(state).to_have_text("Running")
    assert here.take(1) == ["kept meanwhile"]
    act(page, "Restart")
    expect(page.locator("#transitions .badge", has_text="Running")).to_have_count(4)
    assert agent.history(here.vhost, X) == [*before, "paused", *2 * ["starting", "running"]]


def is_drawn(page: Page, here: Site) -> None:
    page.locator("#nav-topology").click()
    arrow = page.locator("#map .link")
    expect(arrow).to_have_attribute("data-group", "up")
    expect(page.locator("#map .target")).to_contain_text(here.node.cluster_name[:8])
    arrow.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_have_text(X)


def is_seen_beside_its_peer(page: Page, agent: Agent, here: Site, there: Site) -> None:
    page.locator("#nav-fleet").click()
    expect(page.locator("#agents > li")).to_have_count(2)
    ways = page.locator("#pairs .pair .way-line")
    expect(ways).to_have_count(2)
    for way in (
        f"{there.node.cluster_name} → {here.node.cluster_name}",
        f"{here.node.cluster_name} → {there.node.cluster_name}",
    ):
        expect(ways.filter(has_text=way)).to_contain_text("1 link")
    assert "t0ken" not in page.content() + agent.log.read_text()
