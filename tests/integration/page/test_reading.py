"""What a person reads and copies from the page: times in a zone, ids, addresses, errors."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from agent.amqp.data.target import Counts
from agent.cli.link_table import in_order
from agent.core.links.lifecycle import Blocked, LinkState, Phase
from agent.errors import Side
from agent.status.board import Gauges
from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import (
    COMPLETED,
    PAUSED,
    RUNNING,
    STALLED,
    Served,
    Shown,
    failed,
    link,
    shovel_link,
)

ERROR = "upstream oslo: login refused for user fed on oslo.example:5672"
REFUSED = "ACCESS_REFUSED - configure access to queue '{}' in vhost '/' refused for user 'fed'"


def blocked(why: str) -> LinkState:
    return LinkState(phase=Phase.OPEN, started=True, blocked=(Blocked(Side.DOWNSTREAM, why),))


def test_every_state_has_its_place_in_the_order(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(1, "a"), RUNNING), Shown(shovel_link(2, "b"), COMPLETED), Shown(link(3, "c"), failed("no"))])
    page = visit(served.url).page
    expect(page.locator("#rows .name")).to_have_text(["c", "b", "a"])
    places = page.evaluate(
        "async () => Object.values((await import('/page/states.js')).STATES).map(({ severity }) => severity)"
    )
    assert all(isinstance(place, int) for place in places), places


def test_times_have_a_zone_and_can_be_utc(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(1, "a"), failed(ERROR))])
    page = visit(served.url, "#/links/00000001", timezone_id="Asia/Kathmandu").page
    zone, since = page.locator("#zone"), page.locator("#detail-since")
    expect(zone).to_have_text("Times: UTC+5:45")
    expect(since).to_contain_text("UTC+5:45")
    there = page.locator("#transitions time").first.inner_text()
    zone.click()
    expect(zone).to_have_attribute("aria-pressed", "true")
    expect(since).to_have_text(re.compile(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, "))
    expect(page.locator("#transitions time").first).not_to_have_text(there)
    page.reload()
    expect(zone).to_have_text("Times: UTC")


def test_ids_addresses_and_errors_can_be_copied(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(1, "a"), failed(ERROR))])
    opened = visit(served.url, "#/links/00000001", permissions=["clipboard-read", "clipboard-write"])
    page = opened.page

    def copied(what: str, at: str = "#present") -> object:
        page.locator(at).get_by_role("button", name=f"Copy {what}").first.click()
        expect(page.locator(at).get_by_role("button", name="Copied")).to_be_visible()
        return page.evaluate("navigator.clipboard.readText()")

    assert copied("the id", "#facts") == "00000001"
    assert copied("the error", "#diagnosis") == ERROR
    assert copied("the address", "#facts .wide >> nth=0") == "amqp://origin.example:5672/%2f"
    opened.go("#/links")
    assert copied("the error", "#causes") == ERROR


def test_a_page_without_a_clipboard_copies_too(serve: Serve, visit: Open) -> None:
    """As it is where the agent is reached by name without TLS."""
    served = serve()
    served.put([Shown(link(1, "a"))])
    page = visit(served.url, "#/links/00000001").page
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()


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


def test_commands_in_advice_are_code(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(1, "a"), failed(REFUSED.format("q"), permanent=True))])
    page = visit(served.url).page
    advice = page.locator("#causes .advice").first
    expect(advice.locator("code").first).to_contain_text("rabbitmqctl set_permissions")
    expect(advice).not_to_contain_text("`")


def test_the_page_of_a_link_has_the_command_of_its_cause(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, f"x{at}"), failed(REFUSED.format(f"q{at}"), permanent=True)) for at in (1, 2)])
    opened = visit(served.url, permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    expect(page.locator("#causes .advice code")).to_have_count(2)
    command = page.locator("#causes .advice code").first.inner_text()
    assert command == "rabbitmqctl set_permissions -p / fed '^(federation|q1$|q2$)' '.*' '.*'"
    for at in (1, 2):
        opened.go(f"#/links/0000000{at}")
        advice = page.locator("#detail-advice")
        expect(advice.locator("code").first).to_have_text(command)
        expect(advice).to_contain_text(f"needs configure on queue 'q{at}', configure on queue 'q{3 - at}' in vhost '/'")
        advice.get_by_role("button", name="Copy the command").first.click()
        expect(advice.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == command


def test_advice_follows_the_state_and_the_error_of_a_link(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "a"), blocked("low on memory"))
    served.put([shown])
    page = visit(served.url, "#/links/00000001").page
    advice = page.locator("#detail-advice")
    expect(advice).to_contain_text("On dc2, rabbitmq-diagnostics memory_breakdown shows what uses the memory")
    for state, said in (
        (blocked("low on disk"), "On dc2, free disk space until it is above disk_free_limit"),
        (STALLED, "Messages wait and dc2 confirms none"),
        (PAUSED, "Run federation-agent resume 00000001 if the reason is over."),
        (failed(ERROR, permanent=True), "create the user on dc1"),
        (COMPLETED, "It has moved all that its definition asks for."),
    ):
        served.change(shown, state)
        expect(advice).to_contain_text(said)
    served.change(shown, RUNNING)
    expect(page.locator("#diagnosis")).to_be_hidden()


def scene(served: Served) -> None:
    """Old mistakes, and links that an alarm stopped; of one of those nothing is known to have flowed."""
    old = [Shown(link(at, f"a-old{at}"), failed("no", permanent=True)) for at in (1, 2)]
    live = [Shown(link(at, f"m-live{at}"), counts=Counts(), gauges=Gauges(backlog=1)) for at in (4, 3)]
    served.put([*old, *live, Shown(link(5, "z-idle"), blocked("low on memory")), Shown(link(6, "a-fine"))])
    served.put([Shown(link(7, "a", vhost="b")), Shown(link(8, "b", vhost="a")), Shown(shovel_link(9, "c"), COMPLETED)])
    served.forward(live, 5)
    served.change(live[0], blocked("low on memory"))
    served.change(live[1], failed("upstream dc1: connection refused"))


def test_the_table_begins_with_the_incident_as_the_command_does(serve: Serve, visit: Open) -> None:
    served = serve()
    scene(served)
    page = visit(served.url).page
    names = page.locator("#rows .name")
    expect(names).to_have_text(["m-live3", "m-live4", "z-idle", "a-old1", "a-old2", "c", "a-fine", "b", "a"])
    board = served.board
    ordered = in_order(served.do(lambda: [board.view(entry) for entry in board]))
    assert [each.get("exchange") or each["name"] for each in ordered] == names.all_inner_texts()


def test_a_link_that_was_stopped_has_one_rate(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "a"), gauges=Gauges(backlog=7, oldest_unconfirmed=3.0))
    served.put([shown])
    page = visit(served.url, "#/links/00000001").page
    rate = page.locator("#numbers div", has_text="Rate").locator("dd")
    readout = page.locator("#rate-readout")
    for _ in range(8):
        served.forward([shown], 50)
        page.wait_for_timeout(1_000)
    expect(readout).to_have_text(rate.inner_text())
    expect(rate).not_to_have_text("0/s")
    served.change(shown, blocked("low on memory"))
    served.forward([shown], 0)
    expect(rate).to_have_text("0/s")
    expect(readout).to_have_text("0/s", timeout=1_500)
    expect(page.locator("#rate-chart")).to_have_attribute("aria-label", re.compile("now 0/s"))
    shown.gauges.backlog = 2
    served.forward([shown], 0)
    expect(page.locator("#lag-readout")).to_have_text("2", timeout=1_500)
