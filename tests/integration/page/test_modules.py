"""What the page's modules reckon, asked of them in the browser that runs them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from agent.cli.shortening import differences, shortened
from tests.integration.page.served import Served
from tests.lab.ports import Ports

Reckon = Callable[..., Any]
NONE = "\N{EN DASH}"


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    ports = Ports()
    served = Served(ports.take()).start()
    made = browser.new_page()
    made.goto(served.url)
    yield made
    made.close()
    served.stop()
    ports.release()


@pytest.fixture
def reckon(page: Page) -> Reckon:
    """`reckon("format", "duration", 61)`: what a function of a module answers."""

    def call(module: str, name: str, *arguments: Any) -> Any:
        given = [f"/page/{module}.js", name, list(arguments)]
        return page.evaluate("async ([path, name, given]) => (await import(path))[name](...given)", given)

    return call


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-3, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (599, "9 min 59 s"), (600, "10 min"),
     (3_599, "59 min"), (3_600, "1 h"), (90_000, "1 d 1 h")],
)  # fmt: skip
def test_durations(reckon: Reckon, seconds: float, told: str) -> None:
    assert reckon("format", "duration", seconds) == told


def test_numbers(reckon: Reckon) -> None:
    assert [reckon("format", "count", value) for value in (None, 0, 9_999, 12_345, 1_530_000)] == [
        NONE, "0", "9,999", "12.3K", "1.53M",
    ]  # fmt: skip
    assert [reckon("format", "rate", value) for value in (None, 0, 0.25, 9.96, 1_234.4)] == [
        NONE, "0/s", "0.3/s", "10.0/s", "1,234/s",
    ]  # fmt: skip
    assert [reckon("format", "bytes", value) for value in (0, 1_023, 1_536, 5 * 2**30)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "route",
    [
        {
            "view": "links",
            "q": "a b&c=d#e?f/g%",
            "state": "invalid,backoff",
            "from": "dc 1",
            "sort": "-lag",
            "range": "",
            "open": "",
        },
        {"view": "link", "id": "1a2b3c4d", "q": "", "state": "", "from": "", "sort": "", "range": "1h", "open": ""},
        {"view": "topology", "q": "", "state": "", "from": "", "sort": "", "range": "", "open": ""},
    ],
)
def test_an_address_leads_back_to_what_it_was_made_of(reckon: Reckon, route: dict[str, str]) -> None:
    assert reckon("router", "parse", reckon("router", "format", route)) == route


@pytest.mark.parametrize("address", ["", "#", "#/", "#/nowhere", "#/links?sort=evil", "#main"])
def test_any_other_address_is_the_list(reckon: Reckon, address: str) -> None:
    route = reckon("router", "parse", address)
    assert route["view"] == "links"
    assert reckon("router", "sortOf", route) == {"key": "state", "descending": False}


def test_a_malformed_id_is_taken_as_it_is(reckon: Reckon) -> None:
    assert reckon("router", "parse", "#/links/%E0%A4")["id"] == "%E0%A4"


def test_events_may_come_in_any_pieces(page: Page) -> None:
    text = (
        'retry: 2000\n\nevent: links\ndata: [{"id":"a"}]\n\n: still here\n\nevent: gone\ndata: {"id":"ü"}\n\nevent: la'
    )
    taken = page.evaluate(
        """async (text) => {
          const { EventText } = await import("/page/feed.js");
          const events = new EventText();
          return [...text].flatMap((piece) => [...events.take(piece)]);
        }""",
        text,
    )
    assert taken == [{"type": "links", "data": [{"id": "a"}]}, {"type": "gone", "data": {"id": "ü"}}]


def test_long_names_are_shortened_as_the_commands_do(page: Page) -> None:
    names = [f"production.europe.orders.region-{number:04d}.v{number % 3}" for number in range(40)]
    names += ["paris.orders.of.all.customers", "rome.orders.of.all.customers", "short", ""]
    for letters in (8, 16, 24):
        found = page.evaluate(
            """async ([names, letters]) => {
              const { differences, shortened } = await import("/page/names.js");
              const differs = differences(names);
              return names.map((name) => shortened(name, letters, differs.get(name)));
            }""",
            [names, letters],
        )
        differs = differences(names)
        assert found == [shortened(name, letters, differs[name]) for name in names]


def test_names_are_broken_behind_signs_into_lines_that_hold_all_of_them(page: Page) -> None:
    for name, letters, most, expected in (
        ("dc2-production-europe", 12, 4, ["dc2-", "production-", "europe"]),
        ("rabbit@frankfurt", 20, 2, ["rabbit@frankfurt"]),
        ("x" * 25, 10, 3, ["x" * 10, "x" * 10, "x" * 5]),
        ("a-" + "x" * 18, 10, 2, ["a-xxxxxxxx", "x" * 10]),
    ):
        lines = page.evaluate(
            """async ([name, letters, most]) => (await import("/page/names.js")).lined(name, letters, most)""",
            [name, letters, most],
        )
        assert lines == expected


def rates(page: Page, *totals: tuple[float, int], at: float) -> Any:
    return page.evaluate(
        """async ([totals, at]) => {
          const { Series } = await import("/page/series.js");
          const series = new Series();
          for (const [seconds, total] of totals) series.put(total, seconds * 1000);
          return series.rates(at * 1000);
        }""",
        [totals, at],
    )


def test_a_sparkline_has_the_rates_of_the_last_seconds(page: Page) -> None:
    assert rates(page, (0, 5), at=1) == []
    assert rates(page, (0, 0), (3, 100), (5, 200), (7, 300), at=8.5) == [50, 50, 50]
    assert rates(page, (0, 0), (3, 600), at=30)[-1] == 0


def test_a_total_that_shrinks_counts_from_there(page: Page) -> None:
    assert rates(page, (0, 1_000), (3, 5), (5, 25), at=8.5) == [10, 0]


def test_an_hour_without_a_word_is_an_hour_without_messages(page: Page) -> None:
    slots = rates(page, (0, 0), (3, 100), at=3_600)
    assert (set(slots), len(slots)) == ({0}, 59)


def test_a_stop_is_drawn_as_a_stop(page: Page) -> None:
    rates = page.evaluate(
        """async () => {
          const { History } = await import("/page/history.js");
          const sample = (seconds, forwarded) => ({ at: new Date(seconds * 1_000).toISOString(), forwarded });
          const history = new History();
          history.take({ transitions: [], samples: [sample(0, 0), sample(15, 150), sample(300, 150), sample(315, 300),
            sample(330, 300)] });
          return history.rates().map(([time, rate]) => [time / 1_000, rate]);
        }"""
    )
    assert rates == [[15, 10], [30, 0], [285, 0], [300, 0], [315, 10], [330, 0]]
