"""The list of links: what is wrong and what to do, each link in words, finding some of many."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest
from playwright.sync_api import expect

from agent.amqp.data.splice import Counts
from agent.cli.link_table import in_order
from agent.core.links.lag import LagCritical
from agent.errors import FailureKind, Place, Problem, Severity
from agent.status.entry import Gauges
from agent.status.views import link_view
from tests.integration.page.conftest import Open, Serve
from tests.integration.page.measures import AFTER_FRAMES, SLOWLY
from tests.integration.page.scenes import (
    DENIED,
    LONG,
    MARKUP,
    PHONE,
    REFUSED,
    blocked,
    denied,
    expect_names,
    few,
    names,
)
from tests.integration.page.served import COMPLETED, Served, Shown, failed, link, queue_link, shovel_link

TOP: Final = "(node) => node.getBoundingClientRect().top"
LINES_OF_HEAD: Final = """() => {
  const shown = [...document.querySelectorAll(".top :is(p, a, button)")].filter((node) => node.offsetParent);
  const boxes = shown.map((node) => node.getBoundingClientRect()).sort((one, other) => one.top - other.top);
  let [lines, bottom] = [0, -Infinity];
  for (const box of boxes) {
    if (box.top >= bottom) lines += 1;
    bottom = Math.max(bottom, box.bottom);
  }
  return lines;
}"""
ODD = [MARKUP, "<script>document.title='owned'</script>", "a/b?c#d&e%20", "\u202eevil", "日本語", "'\"--", " "]


def test_the_gravest_come_first_with_reason_and_advice(serve: Serve, visit: Open) -> None:
    shown = few()
    shown[0] = replace(shown[0], counts=Counts(quarantined={"too_large": 2, "refused": 1}))
    shown[4] = replace(shown[4], counts=Counts(quarantined={"refused": 9}))
    served = serve()
    served.put(shown)
    page = visit(served.url).page
    expect_names(page, "stock", "orders.us", LONG, "audit", "prices", "orders.eu")
    causes = page.locator("#causes .cause")
    expect(causes).to_have_count(3)
    expect(page.locator("#attention-title")).to_have_text("Needs attention: 3 causes")
    expect(page.get_by_text("nothing confirmed for")).to_have_count(1)
    expect(causes.first.locator("summary")).to_have_text(
        re.compile(r"^Stalleddc2 \(downstream\): nothing confirmed for .*, 1 of 6 links stalled, 3,120 messages wait")
    )
    refused = causes.filter(has_text=str(REFUSED.error))
    expect(refused.locator("summary")).to_contain_text("1 of 6 links down")
    expect(refused.locator(".advice")).to_contain_text("Check that")
    expect(refused.locator(".advice")).to_be_hidden()
    refused.locator("summary").click()
    expect(refused.locator(".advice")).to_be_visible()
    expect(page).to_have_title("(3) dc2-a")
    assert "s3ntinel" not in page.content()
    for absent in ("#standby", "#move"):  # it has neither
        expect(page.locator(absent)).to_be_hidden()

    section = page.locator("#quarantine")
    expect(section).to_contain_text("12 messages of 2 links since this agent started")
    expect(section.locator("li")).to_have_text(["prices 9", "orders.eu 3"])
    expect(section).to_contain_text("federation-agent quarantine list -c FILE")
    section.get_by_role("link", name="orders.eu").click()
    command = "federation-agent quarantine list -c FILE --link 00000001"
    expect(page.locator("#detail-quarantine")).to_contain_text("3 messages in quarantine")
    expect(page.locator("#detail-quarantine-command")).to_have_text(command)
    expect(page.locator("#detail-quarantine-move")).to_contain_text(
        "--match x-quarantine-link=00000001 --to-queue QUEUE"
    )


@pytest.mark.thorough
def test_every_kind_of_link_with_its_name_and_what_is_known_of_it(serve: Serve, visit: Open) -> None:
    idle = "idle: consumers upstream take everything"
    served = serve()
    orders = Shown(link(3, "orders"), gauges=Gauges(backlog=0, backlog_is_exact=False))
    served.put(
        [
            Shown(queue_link(1, "jobs", remote="jobs there"), gauges=Gauges(note=idle)),
            Shown(shovel_link(2, "move once"), cluster=None, state=COMPLETED),
            orders,
        ]
    )
    page = visit(served.url).page
    jobs, shovel, row = (
        page.locator("#rows").get_by_role("row", name=name) for name in ("jobs", "move once", "orders")
    )
    for text in ("queue in / · upstream origin", "dc1 / jobs there", idle, "running"):
        expect(jobs).to_contain_text(text, ignore_case=True)
    for text in ("shovel in /", "source.example:5672 / queue from", "→ source.example:5672 / queue to", "finished"):
        expect(shovel).to_contain_text(text, ignore_case=True)
    expect(shovel).not_to_contain_text("upstream")
    expect(page.locator("#quarantine")).to_be_hidden()

    figures = page.locator("#figures")
    expect(figures).to_contain_text("waiting\N{EN DASH}")
    orders.gauges.backlog, orders.gauges.oldest_in_flight = 12_345, 61.0
    served.forward([orders], 1)
    expect(figures).to_contain_text("waitingat least 12.3K")
    expect(figures).to_contain_text("oldest unconfirmed1 min 1 s")
    expect(row.locator(".cell-lag")).to_contain_text("12.3K+")
    orders.gauges.backlog = None
    served.change(orders, REFUSED)
    expect(row.locator(".cell-lag")).to_contain_text("~12.3K")
    row.get_by_role("link", name="orders").click()
    expect(page.locator("#numbers")).to_contain_text(re.compile(r"Waitinglast known 12.3K, \d+ s ago"))


@pytest.mark.thorough
def test_a_link_that_is_behind_is_shown_as_well_nowhere(serve: Serve, visit: Open) -> None:
    served = serve()
    late = Shown(link(1, "orders", limit=LagCritical(messages=100)), gauges=Gauges(backlog=0))
    served.put([late, Shown(link(2, "prices"))])
    page = visit(served.url).page
    expect(page.locator("#states")).to_contain_text("Running2")
    late.gauges.backlog = 12_345
    served.forward([late], 1)
    cause = page.locator("#causes .cause")
    expect(cause.locator("summary")).to_contain_text("further behind than lag-critical")
    expect(cause.locator(".badge")).to_have_text("Behind")
    expect(cause).to_have_attribute("data-group", "degraded")
    expect(page).to_have_title("(1) dc2-a")
    page.locator("#states").get_by_role("link", name="Behind 1").click()
    expect_names(page, "orders")
    page.locator("#nav-topology").click()
    arrow = page.locator("#map .link[data-group=degraded]")
    expect(arrow).to_have_attribute("aria-label", re.compile("^orders .* behind, "))
    expect(page.locator("#legend [data-group=degraded]")).to_contain_text("1 cluster")


def causes(served: Served) -> None:
    """A downstream memory alarm with six live links blocked, old mistakes, links refused for one permission, and two
    links that have one name."""
    old = [Shown(link(at, f"old{at}", upstream=f"u{at}"), DENIED, cluster=f"old{at}") for at in range(8)]
    refused = [Shown(link(20 + at, f"x{at}"), denied(f"federation: x{at} -> dc2"), cluster="dc9") for at in range(12)]
    one_name = [
        Shown(link(50, "orders", upstream="dc1"), REFUSED, cluster="paris"),
        Shown(link(51, "orders", upstream="dc3"), REFUSED, cluster="rome"),
    ]
    live = [
        Shown(link(at, f"live{at}"), blocked("low on memory"), counts=Counts(forwarded=5), gauges=Gauges(backlog=100))
        for at in range(60, 66)
    ]
    served.put([*old, *refused, *one_name, *live])


@pytest.mark.thorough
def test_the_incident_comes_before_old_mistakes_and_every_cause_can_be_reached(serve: Serve, visit: Open) -> None:
    served = serve()
    causes(served)
    page = visit(served.url).page
    expect(page.locator("#attention-title")).to_have_text("Needs attention: 12 causes")
    shown = page.locator("#causes .cause")
    expect(shown.first.locator("summary")).to_contain_text("dc2 (downstream): memory alarm for")
    expect(shown.first.locator("summary")).to_contain_text("6 of 28 links blocked, 600 messages wait upstream")
    expect(shown.nth(0).locator(".advice")).to_contain_text("memory_breakdown")
    denied = shown.nth(1)
    expect(denied.locator("summary")).to_contain_text("12 of 28 links down")
    denied.locator("summary").click()
    expect(denied.locator(".advice code").first).to_contain_text("rabbitmqctl set_permissions -p / fed")
    expect(denied.locator(".advice")).not_to_contain_text("`")
    page.get_by_role("button", name="Show 4 more causes").click()
    expect(shown).to_have_count(12)
    shown.filter(has_text="rome").locator("summary").click()
    expect(shown.filter(has_text="rome").locator(".names a")).to_have_text("exchange orders in / from rome")

    denied.get_by_role("button", name="Restart …").click()
    expect(page.locator("#confirm-title")).to_have_text("Restart 12 links from dc9?")
    expect(page.locator("#confirm-names li").last).to_have_text("and 2 more links")
    page.locator("#confirm-go").click()
    expect(page.locator("#confirm")).not_to_be_visible()
    assert len(served.acted) == 12
    denied.get_by_role("link", name="show all 12 links").click()
    expect(page.locator("#found")).to_have_text("12 of 28 links")


def test_nothing_that_comes_later_moves_the_rows_and_the_incident_comes_before_remarks(
    serve: Serve, visit: Open
) -> None:
    """The agent says what is wrong 0.6 s after which links there are."""
    served = serve()
    causes(served)
    problem = Problem(Place("agent.yaml"), "policy 'q' matches no exchange", Severity.NOT_RUN)
    served.do(lambda: setattr(served.board, "notes", ("policy 'p' names no upstream",)))
    served.do(lambda: setattr(served.board, "not_run", (problem,)))
    served.do(lambda: setattr(served.board, "problems", ("agent.yaml:4:48: unknown key 'max-hop'",)))
    opened = visit("about:blank", viewport=PHONE, alone=True)
    page, opened.url = opened.page, served.url
    page.add_init_script(f"({SLOWLY})(['/api/causes', '/api/overview'])")
    opened.go()
    expect(page.locator("#rows tr").first).to_be_attached()
    expect(page.locator("#note-list li")).to_have_count(1)
    page.evaluate(AFTER_FRAMES, 3)
    assert page.evaluate("moved") == []
    parts = ["#attention", "#problems", "#not-run", "#notes", "#filter", "#table"]
    tops = [page.locator(part).evaluate(TOP) for part in parts]
    assert tops == sorted(tops)
    assert tops[0] < PHONE["height"] / 4
    assert page.evaluate(LINES_OF_HEAD) == 2
    for remark in ("#not-run", "#notes"):
        expect(page.locator(f"{remark} summary")).to_be_visible()
        expect(page.locator(f"{remark} li")).to_be_hidden()
    page.locator("#nav-topology").click()
    expect(page.locator("#problems")).to_be_in_viewport()
    expect(page.locator("#notes")).to_be_hidden()


def test_links_are_found_and_the_address_tells_how(serve: Serve, visit: Open) -> None:
    served = serve()
    links = few()
    served.put(links)
    opened = visit(served.url)
    page = opened.page
    page.locator("#search").fill("ORDERS tenant")
    expect_names(page, "orders.us")
    expect(page.locator("#found")).to_have_text("1 of 6 links")
    expect(page.locator("#announcement")).to_have_text("1 of 6 links")
    assert page.url.endswith("#/links?q=ORDERS+tenant")
    page.locator("#search").fill("")
    page.get_by_role("link", name="Paused 1").click()
    expect_names(page, "prices")
    page.go_back()
    page.locator("#heads a", has_text="Link").click()
    expect(page.locator("#heads .cell-name")).to_have_attribute("aria-sort", "ascending")
    expect_names(page, "audit", LONG, "orders.eu", "orders.us", "prices", "stock")
    page.locator("#heads a", has_text="Lag").click()
    expect(page.locator("#heads .cell-lag")).to_have_attribute("aria-sort", "descending")
    assert names(page)[:2] == ["stock", "orders.eu"]
    opened.go("#/links?state=invalid,backoff&sort=name")
    expect_names(page, LONG, "orders.us")
    page.locator("#rows a").first.click()
    page.locator("#back").click()
    expect_names(page, LONG, "orders.us")

    served.change(links[0], REFUSED)
    expect_names(page, LONG, "orders.eu", "orders.us")
    served.do(lambda: served.board.gone(links[1].link.id))
    expect_names(page, "orders.eu", "orders.us")
    served.put([replace(links[0], link=link(7, "another"), state=DENIED)])
    expect_names(page, "another", "orders.eu", "orders.us")
    opened.go("#/links?q=nothing-is-called-so")
    expect(page.locator("#no-match")).to_be_visible()


def test_names_are_text_and_never_markup(serve: Serve, visit: Open) -> None:
    served, peer = serve(), serve(cluster="dc1", token="t0ken", host="0.0.0.0")
    served.put([Shown(link(at, name, upstream="u", remote=name), cluster=name) for at, name in enumerate(ODD)])
    served.put([Shown(link(99, MARKUP, upstream="v"), failed(MARKUP), cluster=MARKUP)])
    served.do(lambda: setattr(served.board, "notes", (f"policy '{MARKUP}' names no upstream",)))
    peer.board.owner = MARKUP
    served.peers = [peer.url.replace("://", "://agent:t0ken@")]
    opened = visit(served.url)
    page = opened.page
    expect(page.locator("#rows tr")).to_have_count(len(ODD) + 1)
    shown = {*ODD, "\\u{202e}evil", '" "'} - {"\u202eevil", " "}
    assert set(page.locator("#rows .name").evaluate_all("all => all.map((each) => each.textContent)")) == shown
    expect(page.locator("#note-list")).to_contain_text(MARKUP)
    filtered = f"#/links?q={MARKUP}&from={MARKUP}&state={MARKUP}"
    for where, main in {
        "#/topology": "#map",
        "#/events": "#event-list",
        "#/fleet": "#agents",
        "#/links/00000063": "#present",
    }.items():
        opened.go(where)
        expect(page.locator(main)).to_contain_text("<img src=x")
        assert "\u202e" not in str(page.locator("main").text_content()), where
    opened.go(filtered)
    expect(page.locator("#from")).to_contain_text("<img src=x")
    assert page.locator("img, main script").count() == 0
    expect(page).to_have_title("(1) dc2-a")


@pytest.mark.thorough
def test_where_there_are_no_links_it_says_what_to_do(serve: Serve, visit: Open) -> None:
    served = serve()
    served.do(lambda: setattr(served.board, "notes", ("policy 'p' names no upstream", "another")))
    page = visit(served.url).page
    expect(page.locator("#empty")).to_contain_text("federation-upstream-set: all")
    expect(page.locator("#note-list li")).to_have_text(["policy 'p' names no upstream", "another"])
    expect(page.locator("#problems")).to_be_hidden()
    page.locator("#nav-topology").click()
    expect(page.locator("#map-empty")).to_be_visible()
    page.locator("#nav-fleet").click()
    expect(page.locator("#no-peers")).to_contain_text("agent.peers")
    expect(page.locator("#agents > li")).to_have_count(1)
    served.do(lambda: setattr(served.board, "problems", ("agent.yaml:4:48: unknown key 'max-hop'",)))
    served.do(lambda: setattr(served.board, "notes", ()))
    page.reload()
    expect(page.locator("#problem-list")).to_have_text("agent.yaml:4:48: unknown key 'max-hop'")
    expect(page.locator("#notes")).to_be_hidden()


@pytest.mark.thorough
def test_the_table_begins_with_the_incident_as_the_command_does(serve: Serve, visit: Open) -> None:
    """Old mistakes, and links that an alarm stopped; of one of those nothing is known to have flowed."""
    served = serve()
    old = [Shown(link(at, f"a-old{at}"), failed("no", FailureKind.INVALID, permanent=True)) for at in (1, 2)]
    live = [Shown(link(at, f"m-live{at}"), counts=Counts(), gauges=Gauges(backlog=1)) for at in (4, 3)]
    served.put([*old, *live, Shown(link(5, "z-idle"), blocked("low on memory")), Shown(link(6, "a-fine"))])
    served.put([Shown(link(7, "a", vhost="b")), Shown(link(8, "b", vhost="a")), Shown(shovel_link(9, "c"), COMPLETED)])
    served.forward(live, 5)
    served.change(live[0], blocked("low on memory"))
    served.change(live[1], failed("upstream dc1: connection refused"))
    page = visit(served.url).page
    expect_names(page, "m-live3", "m-live4", "z-idle", "a-old1", "a-old2", "c", "a-fine", "b", "a")
    board = served.board
    ordered = in_order(served.do(lambda: [link_view(board, entry) for entry in board]))
    assert [each.get("exchange") or each["name"] for each in ordered] == names(page)
