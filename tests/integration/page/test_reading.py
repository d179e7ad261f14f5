"""What a person reads and copies from the page: times in a zone, ids, addresses, errors."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.integration.page.conftest import Open, Serve
from tests.integration.page.served import COMPLETED, RUNNING, Shown, failed, link, shovel_link

ERROR = "upstream oslo: login refused for user fed on oslo.example:5672"


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
    refused = "ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'fed'"
    served = serve()
    served.put([Shown(link(1, "a"), failed(refused, permanent=True))])
    page = visit(served.url).page
    advice = page.locator("#causes .advice").first
    expect(advice.locator("code").first).to_contain_text("rabbitmqctl set_permissions")
    expect(advice).not_to_contain_text("`")
