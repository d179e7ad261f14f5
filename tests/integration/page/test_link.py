"""One link: what it is and does, what to do about it, its charts, and what is copied from it."""

from __future__ import annotations

import re
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from agent.core.links.lifecycle import LinkState
from agent.errors import FailureKind
from agent.status.entry import Gauges
from tests.integration.page.conftest import Open, Serve
from tests.integration.page.scenes import DENIED, REFUSED_QUEUE, WIDE, blocked, converting, denied, few, forwarding
from tests.integration.page.served import COMPLETED, PAUSED, RUNNING, STALLED, Shown, failed, link

ERROR = "upstream oslo: login refused for user fed on oslo.example:5672"


def test_what_it_is_and_what_can_be_done_with_it_now(serve: Serve, visit: Open) -> None:
    served = serve()
    links = few()
    served.put([*links, Shown(link(7, "b"), LinkState(started=True, standby="another runs it"))])
    opened = visit(served.url, "#/links/00000003")
    page = opened.page
    expect(page.locator("#detail-title")).to_have_text("orders.us")
    expect(page.locator("#detail-reason")).to_have_text(str(DENIED.error))
    expect(page.locator("#detail-advice")).to_contain_text("create the user on dc3")
    expect(page.locator("#transitions li")).to_have_count(2)
    expect(page.locator(".chart")).to_have_count(3)

    opened.go("#/links/00000001")
    buttons = page.locator("#present .actions button:visible")
    expect(buttons).to_have_text(["Restart", "Pause"])
    expect(page.locator("#diagnosis")).to_be_hidden()
    page.locator("#do-pause").focus()
    served.change(links[0], PAUSED)
    expect(buttons).to_have_text(["Resume"])
    expect(page.locator("#detail-advice")).to_contain_text("Run federation-agent resume 00000001 if the reason is")
    expect(page.locator("#do-resume")).to_be_focused()
    page.keyboard.press("Enter")
    served.change(links[0], RUNNING)
    expect(buttons).to_have_text(["Restart", "Pause"])
    page.locator("#confirm-go").click()
    expect(page.locator("#confirm")).not_to_be_visible()
    expect(page.locator("#detail-title")).to_be_focused()
    opened.go("#/links/00000007")
    expect(buttons).to_have_text(["Pause"])
    opened.may_fail_to_load = True  # there is no history of what isn't there
    opened.go("#/links/ffffffff")
    expect(page.locator("#missing")).to_contain_text("ffffffff")

    def delete_exchange() -> None:
        links[0].counts.forwarded += 1
        served.board.object_deleted("00000001")
        served.board.gone("00000001")

    served.do(delete_exchange)
    opened.go("#/links/00000001")
    expect(page.locator("#missing")).to_contain_text("exchange 'orders.eu' in vhost '/' was deleted")
    expect(page.locator("#missing")).to_contain_text("run `federation-agent forget 00000001`")


def test_a_shovel_shows_what_conversion_lost_and_its_limit_and_nothing_that_only_federation_has(
    serve: Serve, visit: Open
) -> None:
    served = serve()
    shovel = converting(2)
    served.put([Shown(link(1, "orders")), shovel])
    opened = visit(served.url, "#/links/00000002")
    page = opened.page
    lost, limit, *federated = (
        page.locator("#numbers, #facts").get_by_text(name, exact=True).locator("xpath=following-sibling::dd")
        for name in ("Lost in conversion", "Rate limit", "Upstream", "Policy", "Bindings", "Last probe")
    )
    expect(page.locator(".hops")).to_have_text("dc1 / address /queues/orders → source.example:5672 / queue to")
    expect(lost).to_have_text("milliseconds of a time (1,204 messages); footer (3 messages)")
    expect(limit).to_have_text("500 messages/s; holds messages back now")
    for each in (lost, limit):
        expect(each).to_be_visible()
    for each in federated:
        expect(each).to_be_hidden()
    shovel.gauges.limited_by = ""
    served.forward([shovel], 1)
    expect(limit).to_have_text("500 messages/s; holds nothing back now")

    opened.go("#/links/00000001")
    for each in federated:
        expect(each).to_be_visible()
    for each in (lost, limit):
        expect(each).to_be_hidden()


@pytest.mark.thorough
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
        (failed(ERROR, FailureKind.LOGIN, permanent=True), "create the user on dc1"),
        (COMPLETED, "It has moved all that its definition asks for."),
    ):
        served.change(shown, state)
        expect(advice).to_contain_text(said)
    served.change(shown, RUNNING)
    expect(page.locator("#diagnosis")).to_be_hidden()


def point_at_middle(page: Page, chart: str) -> None:
    """Of a chart, between its labels and its end."""
    width = page.locator(f"#{chart}-chart").evaluate("(chart) => chart.clientWidth")
    page.locator(f"#{chart}-chart").hover(position={"x": 60 + (width - 75) / 2, "y": 60})


ONE_RATE: Final = """() => {
  const rate = [...document.querySelectorAll("#numbers dt")].find(({ textContent }) => textContent === "Rate");
  return rate.nextSibling.textContent === document.querySelector("#rate-readout").textContent;
}"""


def test_charts_show_values_at_clock_times_and_the_rate_of_now(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "orders"), gauges=Gauges(backlog=7, oldest_in_flight=3.0))
    served.put([shown])
    forwarding(served, shown, 1.1)
    page = visit(served.url, "#/links/00000001").page
    readout = page.locator("#rate-readout")
    expect(readout).to_contain_text("/s")
    point_at_middle(page, "rate")
    expect(readout).to_have_text(re.compile(r"^1\.0/s at .* UTC\+5:45$"))
    expect(page.locator("#lag-readout")).to_contain_text("10 at")
    expect(page.locator(".mark circle")).to_have_count(3)
    page.mouse.move(5, 5)
    expect(page.locator(".mark circle")).to_have_count(0)

    rate = page.locator("#numbers div", has_text="Rate").locator("dd")
    served.forward([shown], 50)
    expect(rate).not_to_have_text("0/s")
    page.wait_for_function(ONE_RATE)
    served.change(shown, blocked("low on memory"))
    shown.gauges.backlog = 2
    served.forward([shown], 0)
    expect(rate).to_have_text("0/s")
    expect(readout).to_have_text("0/s")
    expect(page.locator("#rate-chart")).to_have_attribute("aria-label", re.compile("now 0/s"))
    expect(page.locator("#lag-readout")).to_have_text("2")

    page.get_by_role("link", name="1 h", exact=True).click()
    expect(page.locator("#ranges [aria-current]")).to_have_text("1 h")
    page.reload()
    expect(page.locator("#ranges [aria-current]")).to_have_text("1 h")
    expect(page.locator("#rate-chart .line")).to_have_count(1)
    page.locator("#rate-chart").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("1.0/s at ")


@pytest.mark.thorough
def test_charts_have_three_ranges(serve: Serve, visit: Open) -> None:
    served = serve()
    shown = Shown(link(1, "orders"))
    served.put([shown])
    forwarding(served, shown, 25)
    page = visit(served.url, "#/links/00000001", viewport=WIDE).page
    for label, limit in (("15 min", 200), ("1 h", 80), ("24 h", 200)):
        page.get_by_role("link", name=label, exact=True).click()
        expect(page.locator("#ranges [aria-current]")).to_have_text(label)
        expect(page.locator("#rate-chart .line")).to_have_count(1)
        assert str(page.locator("#rate-chart .line").get_attribute("d")).count("L") < limit
        point_at_middle(page, "rate")
        expect(page.locator("#rate-readout")).to_contain_text("1.0/s at ")
    expect(page.locator("#lag-chart .tick").first).to_have_text("0")
    expect(page.locator("#lag-chart .tick", has_text="10K")).to_have_count(1)  # the peak two hours ago isn't lost


# It is read where it changes, as it does so for a moment only.
PRESSED: Final = """(button) => new Promise((done) => {
  new MutationObserver(() => done(button.ariaLabel)).observe(button, { attributeFilter: ["aria-label"] });
  button.click();
})"""


def copied(page: Page, what: str, at: str) -> object:
    assert page.locator(at).get_by_role("button", name=f"Copy {what}").first.evaluate(PRESSED) == "Copied"
    return page.evaluate("navigator.clipboard.readText()")


@pytest.mark.thorough
def test_ids_addresses_errors_and_commands_can_be_copied(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, f"x{at}"), denied(f"q{at}")) for at in (1, 2)])
    served.put([Shown(link(3, "a"), failed(ERROR, FailureKind.LOGIN))])
    opened = visit(served.url)
    page = opened.page

    command = "rabbitmqctl set_permissions -p / fed '^(federation|q1$|q2$)' '.*' '.*'"
    cause = "#causes .cause >> nth=0"
    expect(page.locator(cause).locator(".advice code").first).to_have_text(command)
    assert copied(page, "the error", cause) == REFUSED_QUEUE.format("q2")  # of what began last
    for at in (1, 2):  # the page of a link has the command of its cause
        opened.go(f"#/links/0000000{at}")
        advice = page.locator("#detail-advice")
        expect(advice.locator("code").first).to_have_text(command)
        expect(advice).to_contain_text(f"needs configure on queue 'q{at}', configure on queue 'q{3 - at}' in vhost '/'")
    assert copied(page, "the command", "#detail-advice") == command
    opened.go("#/links/00000003")
    expect(page.locator("#detail-title")).to_have_text("a")
    assert copied(page, "the id", "#facts") == "00000003"
    assert copied(page, "the error", "#diagnosis") == ERROR
    assert copied(page, "the address", "#facts .wide >> nth=0") == "amqp://origin.example:5672/%2f"

    # As it is where the agent is reached by name without TLS.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    button = page.locator("#transitions").get_by_role("button", name="Copy the error").first
    assert button.evaluate(PRESSED) == "Copied"
