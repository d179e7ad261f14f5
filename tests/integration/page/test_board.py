"""The page over a board that the test fills: finding links, many of them, odd names, tokens, and who can use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from agent.amqp.data.splice import Counts
from agent.core.links.lifecycle import Blocked, LinkState, Phase
from agent.errors import Side
from agent.status.board import Gauges
from tests.integration.page.conftest import Open
from tests.integration.page.served import (
    COMPLETED,
    PAUSED,
    RUNNING,
    STALLED,
    STARTING,
    Served,
    Shown,
    failed,
    link,
    queue_link,
    shovel_link,
)

Serve = Callable[..., Served]
AXE: Final = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
REFUSED = failed("upstream paris: connection refused by paris.example:5672; see that a broker listens there")
DENIED = failed("upstream oslo: login refused for user fed on oslo.example:5672", permanent=True)
LONG = "billing.invoices." + "created-and-paid." * 12 + "at-last"
MARKUP = "<img src=x onerror=\"document.title='owned'\">"
ODD = [MARKUP, "<script>document.title='owned'</script>", "a/b?c#d&e%20", "\u202eevil", "日本語", "'\"--", " "]


def few() -> list[Shown]:
    return [
        Shown(link(1, "orders.eu", remote="orders"), gauges=Gauges(in_flight=12, bindings=3, prefetch=500, backlog=41)),
        Shown(link(2, LONG, upstream="paris"), REFUSED, cluster=None),
        Shown(link(3, "orders.us", upstream="oslo", vhost="tenant"), DENIED, cluster="dc3"),
        Shown(link(4, "stock"), STALLED, gauges=Gauges(backlog=3_120, oldest_unconfirmed=41.2)),
        Shown(link(5, "prices"), PAUSED),
        Shown(link(6, "audit"), STARTING),
    ]


def names(page: Page) -> list[str]:
    return page.locator("#rows .name").all_inner_texts()


def expect_names(page: Page, *wanted: str) -> None:
    expect(page.locator("#rows .name")).to_have_text(list(wanted))


def test_the_gravest_come_first_with_reason_and_advice(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    page = visit(served.url).page
    expect_names(page, "stock", "orders.us", LONG, "audit", "prices", "orders.eu")
    causes = page.locator("#causes .cause")
    expect(causes).to_have_count(3)
    expect(page.locator("#verdict")).to_have_text(
        re.compile(
            r"^dc2 \(downstream\): nothing confirmed for .*, 1 of 6 links stalled, 3,120 messages wait upstream; 2"
        )
    )
    refused = causes.filter(has_text=str(REFUSED.error))
    expect(refused.locator("summary")).to_contain_text("1 of 6 links down")
    expect(refused.locator(".advice")).to_contain_text("Check that")
    expect(refused.locator(".advice")).to_be_hidden()
    refused.locator("summary").click()
    expect(refused.locator(".advice")).to_be_visible()
    expect(page).to_have_title("(3) dc2-a")
    assert "s3ntinel" not in page.content()


def test_every_kind_of_link_with_its_name_and_why_nothing_moves(serve: Serve, visit: Open) -> None:
    idle = "idle: consumers upstream take everything"
    served = serve()
    served.put(
        [
            Shown(queue_link(1, "jobs", remote="jobs there"), gauges=Gauges(note=idle)),
            Shown(shovel_link(2, "move once"), cluster=None, state=COMPLETED),
            Shown(link(3, "orders")),
        ]
    )
    page = visit(served.url).page
    rows = page.locator("#rows")
    jobs, shovel = rows.get_by_role("row", name="jobs"), rows.get_by_role("row", name="move once")
    for text in ("queue in / · upstream origin", "dc1 / jobs there", idle, "running"):
        expect(jobs).to_contain_text(text, ignore_case=True)
    for text in ("shovel in /", "source.example:5672/%2f / queue from", "→ queue to", "finished"):
        expect(shovel).to_contain_text(text, ignore_case=True)
    expect(shovel).not_to_contain_text("upstream")
    shovel.get_by_role("link", name="move once").click()
    expect(page.locator("#detail-title")).to_contain_text("move once")


def test_what_fails_for_one_reason_is_one_cause(serve: Serve, visit: Open) -> None:
    served = serve()
    away = failed("downstream 127.0.0.1:5672: connection refused: check the port and that the broker runs")
    served.put([Shown(link(at, f"x{at}", upstream=f"dc{at % 3}"), away, cluster=f"dc{at % 3}") for at in range(6)])
    served.put([Shown(link(at, f"x{at}", upstream="paris"), REFUSED, cluster="paris") for at in range(6, 11)])
    page = visit(served.url).page
    causes = page.locator("#causes .cause")
    expect(causes).to_have_count(2)
    causes.nth(1).locator("summary").click()
    causes.nth(1).get_by_role("link", name="all 5 links from paris: backoff").click()
    expect(page.locator("#found")).to_have_text("5 of 11 links")
    causes.nth(0).get_by_role("link", name="all 6 links with this error: backoff").click()
    expect(page.locator("#found")).to_have_text("6 of 11 links")


def test_of_what_waits_there_is_no_number_where_none_is_known(serve: Serve, visit: Open) -> None:
    served = serve()
    first, second = Shown(link(1, "x"), gauges=Gauges(backlog=0, backlog_is_exact=False)), Shown(link(2, "y"))
    served.put([first, second])
    figure = visit(served.url).page.locator("#figures div", has_text="waiting").locator("dd")
    expect(figure).to_have_text("\u2013")
    first.gauges.backlog = 12_345
    served.forward([first], 1)
    expect(figure).to_have_text("at least 12.3K")


def test_links_of_a_cause_are_told_from_others_of_their_name(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(
        [
            Shown(link(1, "orders", upstream="dc1"), REFUSED, cluster="paris"),
            Shown(link(2, "orders", upstream="dc3"), REFUSED, cluster="rome"),
        ]
    )
    page = visit(served.url).page
    names = page.locator("#causes .names a")
    expect(names).to_have_text(["exchange orders in / from rome", "exchange orders in / from paris"])


def test_the_incident_comes_before_old_mistakes_and_every_cause_can_be_reached(serve: Serve, visit: Open) -> None:
    """A downstream memory alarm with six live links blocked, old mistakes, and links refused for one permission."""
    error = "ACCESS_REFUSED - configure access to queue 'federation: x{} -> dc2' in vhost '/' refused for user 'fed'"
    alarm = LinkState(phase=Phase.OPEN, started=True, blocked=(Blocked(Side.DOWNSTREAM, "low on memory"),))
    served = serve()
    served.put(
        [
            *(Shown(link(at, f"old{at}", upstream=f"u{at}"), DENIED, cluster=f"old{at}") for at in range(10)),
            *(
                Shown(link(at, f"x{at}"), failed(error.format(at), permanent=True), cluster="dc9")
                for at in range(20, 221)
            ),
            *(
                Shown(link(at, f"live{at}"), alarm, counts=Counts(forwarded=5), gauges=Gauges(backlog=100))
                for at in range(300, 306)
            ),
        ]
    )
    page = visit(served.url).page
    expect(page.locator("#verdict")).to_contain_text("dc2 (downstream): memory alarm for")
    expect(page.locator("#verdict")).to_contain_text(
        "6 of 217 links blocked, 600 messages wait upstream; 11 more causes"
    )
    causes = page.locator("#causes .cause")
    expect(causes.nth(0)).to_contain_text("memory_breakdown")
    expect(causes.nth(1).locator("summary")).to_contain_text("201 of 217 links down")
    causes.nth(1).locator("summary").click()
    expect(causes.nth(1).locator(".advice")).to_contain_text("rabbitmqctl set_permissions -p / fed")
    page.get_by_role("button", name="Show 4 more causes").click()
    expect(causes).to_have_count(12)


def test_links_are_found_and_the_address_tells_how(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
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
    opened.go("#/links?q=nothing-is-called-so")
    expect(page.locator("#no-match")).to_be_visible()


def test_an_address_points_at_one_link(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    opened = visit(served.url, "#/links/00000003")
    page = opened.page
    expect(page.locator("#detail-title")).to_have_text("orders.us")
    expect(page.locator("#detail-reason")).to_have_text(str(DENIED.error))
    expect(page.locator("#transitions li")).to_have_count(2)
    expect(page.locator(".chart")).to_have_count(3)
    opened.may_fail_to_load = True  # there is no history of what isn't there
    opened.go("#/links/ffffffff")
    expect(page.locator("#missing")).to_contain_text("ffffffff")


def test_what_changes_is_seen_at_once(serve: Serve, visit: Open) -> None:
    served = serve()
    links = few()
    served.put(links)
    page = visit(served.url, "#/links?q=orders.eu").page
    expect(page.locator("#rows .badge")).to_have_text("Running")
    served.change(links[0], REFUSED)
    expect(page.locator("#rows .badge")).to_have_text("Backoff")
    served.do(lambda: served.board.gone(links[0].link.id))
    expect(page.locator("#rows tr")).to_have_count(0)
    served.put([replace(links[0], link=link(7, "orders.eu.2"))])
    expect_names(page, "orders.eu.2")


def test_rows_stay_where_one_points(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(number, f"x{number}")) for number in range(1, 4)]
    served.put(links)
    page = visit(served.url).page
    expect_names(page, "x1", "x2", "x3")
    page.locator("#rows a").nth(1).focus()
    served.change(links[2], STALLED)
    expect(page.locator("#rows .badge").nth(2)).to_have_text("Stalled")
    assert names(page) == ["x1", "x2", "x3"]
    page.locator("#search").focus()
    expect_names(page, "x3", "x1", "x2")


def test_a_pointer_that_merely_lies_there_holds_nothing(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(number, f"x{number}")) for number in range(1, 4)]
    served.put(links)
    page = visit(served.url).page
    page.clock.install()
    page.reload()
    expect_names(page, "x1", "x2", "x3")
    page.locator("#rows a").nth(1).focus()
    served.change(links[2], STALLED)
    expect(page.locator("#rows .badge").nth(2)).to_have_text("Stalled")
    page.clock.fast_forward(11_000)
    expect_names(page, "x3", "x1", "x2")


def test_an_agent_that_says_nothing_any_more_is_away(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    page = visit(served.url).page
    page.clock.install()
    page.reload()
    expect(page.locator("#connection")).to_have_text("Live")
    page.clock.fast_forward(26_000)
    expect(page.locator("#unreachable-text")).to_contain_text("it sent nothing for too long")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#unreachable")).to_be_hidden()


def test_the_title_tells_of_a_page_that_nobody_looks_at(serve: Serve, visit: Open) -> None:
    served = serve()
    links = few()
    served.put(links)
    opened = visit(served.url)
    page = opened.page
    expect(page).to_have_title("(3) dc2-a")
    page.evaluate("window.requestAnimationFrame = () => 0")  # as it is in the background
    served.change(links[0], REFUSED)
    expect(page).to_have_title("(4) dc2-a")
    opened.may_fail_to_load = True
    served.stop_serving()
    expect(page).to_have_title("(?) dc2-a")


def test_what_is_not_known_is_not_told_as_nothing(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(1, "a"), REFUSED), Shown(link(2, "b"), REFUSED)]
    served.put(links)
    opened = visit(served.url)
    figures = opened.page.locator("#figures")
    expect(figures).to_contain_text("waiting\N{EN DASH}")
    served.put([Shown(link(3, "c"), gauges=Gauges(backlog=7, oldest_unconfirmed=61))])
    expect(figures).to_contain_text("waitingat least 7")
    expect(figures).to_contain_text("oldest unconfirmed1 min 1 s")
    opened.go("#/links/00000001")
    expect(opened.page.locator("#numbers")).to_contain_text("Oldest unconfirmed\N{EN DASH}")


def test_a_backlog_that_is_old_or_may_be_larger_says_so(serve: Serve, visit: Open) -> None:
    served = serve()
    old, more = Shown(link(1, "a"), gauges=Gauges(backlog=849)), Shown(link(2, "b"))
    more.gauges.backlog, more.gauges.backlog_is_exact = 7, False
    served.put([old, more])
    served.do(served.board.tick)
    old.gauges.backlog = None
    served.change(old, REFUSED)
    page = visit(served.url).page
    expect(page.locator("#rows .cell-lag")).to_contain_text(["~849", "7+"])
    page.goto(f"{served.url}#/links/00000001")
    expect(page.locator("#numbers")).to_contain_text(re.compile(r"Waitinglast known 849, \d+ s ago"))


def test_only_what_does_something_is_offered_and_keys_stay_with_it(serve: Serve, visit: Open) -> None:
    served = serve()
    running = Shown(link(1, "a"))
    served.put([running, Shown(link(2, "b"), LinkState(started=True, standby="another runs it"))])
    opened = visit(served.url, "#/links/00000001")
    page = opened.page
    buttons = page.locator("#present .actions button:visible")
    expect(buttons).to_have_text(["Restart", "Pause"])
    page.locator("#do-pause").focus()
    served.change(running, PAUSED)
    expect(buttons).to_have_text(["Resume"])
    expect(page.locator("#do-resume")).to_be_focused()
    page.keyboard.press("Enter")
    served.change(running, RUNNING)
    expect(buttons).to_have_text(["Restart", "Pause"])
    page.locator("#confirm-go").click()
    expect(page.locator("#confirm")).not_to_be_visible()
    expect(page.locator("#detail-title")).to_be_focused()
    opened.go("#/links/00000002")
    expect(buttons).to_have_text(["Pause"])


def test_where_there_are_no_links_it_says_what_to_do(serve: Serve, visit: Open) -> None:
    served = serve()
    page = visit(served.url).page
    expect(page.locator("#empty")).to_contain_text("federation-upstream-set: all")
    page.locator("#nav-topology").click()
    expect(page.locator("#map-empty")).to_be_visible()
    served.do(lambda: setattr(served.board, "problems", ("agent.yaml:4:48: unknown key 'max-hop'",)))
    page.reload()
    expect(page.locator("#problem-list")).to_have_text("agent.yaml:4:48: unknown key 'max-hop'")
    expect(page.locator("#notes")).to_be_hidden()


def test_what_is_odd_is_shown_as_text_while_it_lasts(serve: Serve, visit: Open) -> None:
    served = serve()
    served.do(lambda: setattr(served.board, "notes", (f"policy {MARKUP!r} names no upstream", "another")))
    page = visit(served.url).page
    expect(page.locator("#note-list li")).to_have_text([f"policy {MARKUP!r} names no upstream", "another"])
    expect(page.locator("#problems")).to_be_hidden()
    assert page.locator("#notes img").count() == 0
    served.do(lambda: setattr(served.board, "notes", ()))
    page.reload()
    expect(page.locator("#agent-more")).to_contain_text("dc2")
    expect(page.locator("#notes")).to_be_hidden()


def test_names_are_text_and_never_markup(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put([Shown(link(at, name, upstream="u", remote=name), cluster=name) for at, name in enumerate(ODD)])
    served.put([Shown(link(99, MARKUP, upstream="v"), failed(MARKUP), cluster=MARKUP)])
    opened = visit(served.url)
    page = opened.page
    expect(page.locator("#rows tr")).to_have_count(len(ODD) + 1)
    shown = {*ODD, "\\u{202e}evil", '" "'} - {"\u202eevil", " "}
    assert set(page.locator("#rows .name").evaluate_all("all => all.map((each) => each.textContent)")) == shown
    for where in ("#/topology", "#/links/00000063", f"#/links?q={MARKUP}&from={MARKUP}&state={MARKUP}"):
        opened.go(where)
        expect(page.locator("h1:visible")).to_have_count(1)
    assert page.locator("img, main script").count() == 0
    expect(page).to_have_title("(1) dc2-a")


def test_the_token_is_asked_for_and_kept_in_the_tab_alone(serve: Serve, visit: Open) -> None:
    served = serve(token="t0ken", host="0.0.0.0")
    served.put(few())
    opened = visit(served.url)
    opened.may_fail_to_load = True  # being refused is told as such
    page = opened.page
    page.locator("#token-input").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("The agent refused that token.")
    page.locator("#token-input").fill("t0ken\N{RIGHT DOUBLE QUOTATION MARK}")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_have_text("A token can't contain these characters. Copy it again.")
    page.locator("#token-input").fill("t0ken")
    page.keyboard.press("Enter")
    expect(page.locator("#rows tr")).to_have_count(6)
    expect(page.locator("#token")).not_to_be_visible()
    assert "t0ken" not in page.url + str(page.evaluate("JSON.stringify(localStorage) + document.cookie"))
    page.reload()
    expect(page.locator("#rows tr")).to_have_count(6)
    page.locator("#forget").click()
    expect(page.locator("#token-input")).to_be_visible()


def test_an_action_asks_for_the_token_where_looking_needs_none(serve: Serve, visit: Open) -> None:
    served = serve(token="t0ken")
    served.put(few())
    opened = visit(served.url, "#/links/00000001")
    opened.may_fail_to_load = True
    page = opened.page
    page.locator("#do-restart").click()
    page.locator("#confirm-go").click()
    page.locator("#token-cancel").click()
    expect(page.locator("#confirm-error")).to_contain_text("needs a token")
    assert served.acted == []
    page.locator("#confirm-go").click()
    page.locator("#token-input").fill("t0ken")
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).not_to_be_visible()
    assert served.acted == [("00000001", "restart")]


def test_the_theme_follows_the_system_until_one_is_chosen(serve: Serve, visit: Open) -> None:
    page = visit(serve().url, color_scheme="dark").page
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    page.locator("#theme").click()
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == light
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "false")


def test_keys_lead_everywhere(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    page = visit(served.url).page
    expect(page.locator("#rows tr")).to_have_count(6)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.locator("#rows a").first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#rows a").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_be_focused()
    page.go_back()
    expect(page.locator("#links-title")).to_be_focused()


@pytest.mark.parametrize(("theme", "rules"), [("light", {}), ("dark", {"runOnly": ["color-contrast"]})])
def test_nothing_is_in_the_way_of_those_who_see_or_point_otherwise(
    serve: Serve, visit: Open, theme: str, rules: dict[str, object]
) -> None:
    served = serve()
    served.put(few())
    opened = visit(served.url, color_scheme=theme, bypass_csp=True)
    page = opened.page
    for where, shown in {
        "#/links": "#rows tr >> nth=5",
        "#/topology": "#map .link >> nth=5",
        "#/events": "#event-list .event >> nth=5",
        "#/fleet": "#agents > li",
        "#/links/00000002": "#transitions li >> nth=1",
        "#/links?q=none": "#no-match",
    }.items():
        opened.go(where)
        expect(page.locator(shown)).to_be_visible()
        check_accessible(page, rules)
    opened.go("#/links")
    page.get_by_label("Select all of these links").check()
    check_accessible(page, rules)
    page.locator("#selection [data-action=pause]").click()
    check_accessible(page, rules)
    page.keyboard.press("Escape")
    opened.may_fail_to_load = True
    served.stop_serving()
    expect(page.locator("#unreachable")).to_be_visible()
    check_accessible(page, rules)


def check_accessible(page: Page, rules: dict[str, object]) -> None:
    """Themes differ in colours alone, so one of them is looked at for nothing else."""
    page.evaluate(AXE)
    found = page.evaluate("(options) => axe.run(options)", {"resultTypes": ["violations"]} | rules)["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


def test_nothing_sticks_out_at_any_width(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    opened = visit(served.url)
    page = opened.page
    for where in ("#/links", "#/topology", "#/events", "#/fleet", "#/links/00000002", "#/links?from=dc1"):
        opened.go(where)
        expect(page.locator("h1:visible")).to_have_count(1)
        for width in (320, 768, 1440, 3840):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(AFTER_FRAMES, 2)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (where, width)


def test_two_thousand_links_stay_smooth(serve: Serve, visit: Open) -> None:
    served = serve()
    links = [Shown(link(at, f"team{at % 37}.x{at}", upstream=f"dc{at % 9}")) for at in range(2000)]
    served.put(links)
    page = visit(served.url, "#/links?sort=-rate").page
    expect(page.locator("#found")).to_have_text("2,000 links")
    assert page.locator("#rows tr").count() < 60
    work = Work(page)
    for tick in range(TICKS):
        served.forward(links[tick * 200 : tick * 200 + 200], 50)
        page.evaluate(AFTER_FRAMES, 30)
    assert work.seconds() / TICKS < 0.1
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    last = page.locator("#rows tr").last
    expect(last).to_have_attribute("aria-rowindex", "2001")
    last.locator("a").click()
    expect(page.locator("#detail-title")).to_be_focused()
    page.go_back()
    expect(last).to_have_attribute("aria-rowindex", "2001")
    expect(last).to_be_in_viewport()
    work = Work(page)
    for word in (words := ("team1", "dc7", "x19", "none", "")):
        page.locator("#search").fill(word)
        page.evaluate(AFTER_FRAMES, 1)
    assert work.seconds() / len(words) < 0.1


class Work:
    """What the page's main thread has worked since; a clock on the wall would tell how busy the machine is."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._begun = self._total()

    def seconds(self) -> float:
        return self._total() - self._begun

    def _total(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


TICKS: Final = 3
AFTER_FRAMES: Final = """(frames) => new Promise((done) => {
  requestAnimationFrame(function next() {
    frames -= 1;
    if (frames > 0) requestAnimationFrame(next);
    else setTimeout(done);
  });
})"""


def test_quarantined_messages_are_shown_with_what_to_do(serve: Serve, visit: Open) -> None:
    shown = few()
    shown[0] = replace(shown[0], counts=Counts(quarantined={"too_large": 2, "refused": 1}))
    shown[4] = replace(shown[4], counts=Counts(quarantined={"refused": 9}))
    served = serve()
    served.put(shown)
    page = visit(served.url).page
    section = page.locator("#quarantine")
    expect(section).to_contain_text("12 messages of 2 links since this agent started")
    expect(section.locator("li")).to_have_text(["prices 9", "orders.eu 3"])
    expect(section).to_contain_text("federation-agent quarantine list -c FILE")
    section.get_by_role("link", name="orders.eu").click()
    command = "federation-agent quarantine list -c FILE --link 00000001"
    expect(page.locator("#detail-quarantine")).to_contain_text("3 messages in quarantine")
    expect(page.locator("#detail-quarantine-command")).to_have_text(command)


def test_without_quarantined_messages_nothing_is_shown_of_them(serve: Serve, visit: Open) -> None:
    served = serve()
    served.put(few())
    page = visit(served.url).page
    expect_names(page, "stock", "orders.us", LONG, "audit", "prices", "orders.eu")
    expect(page.locator("#quarantine")).to_be_hidden()
