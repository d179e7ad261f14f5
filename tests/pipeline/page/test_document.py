"""The page as text: what is in it, what must not be, and how large it gets."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from agent.pipeline.findings.model import (
    BEHIND,
    ClusterMove,
    Disruption,
    Fleet,
    LagTime,
    MessageAccount,
    ReportFindings,
    StandbyTime,
    TimeSpent,
)
from agent.pipeline.findings.publish import INCIDENTS_SHOWN, LINKS_SHOWN
from agent.pipeline.page.document import page
from agent.pipeline.page.formatting import HARD, TO
from agent.pipeline.schema import SECOND, Bucket
from agent.pipeline.window import Bounds
from tests.pipeline.page.sample_findings import DAY, HOUR, findings

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202egnp.exe", "x" * 400, "", "\x00", "'")
_VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Every tag is closed where it has to be; collects names, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data.replace(HARD, " ")


def outline(found: ReportFindings) -> Outline:
    told = Outline(page(found))
    assert told.open == []
    return told


def test_it_says_how_it_was_and_what_happened() -> None:
    text = outline(findings()).text
    assert "18 links, all together" in text
    assert "0.18 points worse than in the 31 d before (99.70 %)" in text
    assert "12 links to upstream eu-1 down for 29 min (5.8 link-hours), upstream eu-1: connection refused" in text
    assert "Objective of 99.9 % met with 99.93 %; 14 of 18 links met it; worse than in the period before." in text
    assert "3 links of agent dc2/dc2-a down" in text
    assert "not over" in text
    assert "UTC" in text
    assert "98 400".replace(" ", "\N{NARROW NO-BREAK SPACE}") in text


def test_what_cost_most_is_first_and_repeats_are_one_line() -> None:
    text = outline(findings()).text
    degraded = "50 links to upstream us-east blocked 7 times, for 18 min at most and 105 link-hours in all"
    assert 0 < text.index(degraded) < text.index("12 links to upstream eu-1 down")
    assert "down 7 times, for 15 min at most and 1 h in all, upstream lost." in text
    assert "27 lesser causes of trouble omitted." in text


def test_time_of_many_links_is_in_link_hours_and_a_share() -> None:
    found = findings(links=1000)
    spent = TimeSpent({Bucket.UP: 1000 * DAY / SECOND - 54_000.0, Bucket.DOWN: 54_000.0})
    text = outline(replace(found, fleet=replace(found.fleet, spent=spent))).text
    assert "Down15link-hours, 0.062 % of the time" in text
    assert "Degraded0link-hours, 0 % of the time" in text


def test_messages_that_max_hops_stopped_are_no_loss() -> None:
    found = findings()
    counts = replace(found.traffic.counts, dropped=5000, quarantined=0)
    made = page(replace(found, traffic=replace(found.traffic, counts=counts)))
    [figure] = re.findall(r"<div[^>]*><dt>Stopped by max-hops</dt>", made)
    assert "data-bucket" not in figure
    assert "Not delivered" not in made


def test_standbys_have_a_section_where_there_are_any() -> None:
    assert 'id="standby"' not in page(findings())
    longest = Bounds(findings().window.start, findings().window.start + HOUR)
    kept = StandbyTime("dc2", "origin", 9_999.0, 3_600.0, 0.0, longest, "<b>refused</b>")
    promoted = StandbyTime("dc3", None, 0.0, 0.0, 60.0, promotions=(longest.end,), promotion_count=3)
    told = outline(replace(findings(), standbys=(kept, promoted)))
    text = told.text[told.text.index("In stepOut of step") :]
    assert "dc2 of origin73.5 %1 h1 h, 1 Oct 00:00" in text
    assert ": <b>refused</b>" in text
    assert f"dc3 of no name{TO}{TO}{TO}1 Oct 2026 01:00 UTC, and 2 earlier ones" in text
    assert "b" not in told.tags - outline(findings()).tags


def test_a_move_whose_agents_know_little() -> None:
    assert 'id="moves"' not in page(findings())
    window = findings().window
    seen = ClusterMove("g", "old", None, 3, 0, None, 0, 0, 1, window.start, (), 2, 0, 1, 0, 0, 1, 2)
    unseen = replace(seen, source="other", looked_until=None, moved=1_234_567, when=Bounds(window.start, window.end))
    shown = outline(replace(findings(), moves=(seen, unseen)))
    text = shown.text[shown.text.index("At the last lookAccount") :].replace("\N{NARROW NO-BREAK SPACE}", " ")
    account = "2 taken, 1 quarantined, 1 not accounted for, no account of 2 queues"
    assert f"old to no name30{TO}nothing left, not known of 1 queue, 1 Oct 2026 00:00 UTC{account}" in text
    assert "other to no name31 234 567" in text
    assert f"not known{account}" in text


def test_links_lead_to_their_timelines() -> None:
    made = page(findings(links=45))
    there, wanted = (set(re.findall(rf'{name}="#?([^"]*)"', made)) for name in ("id", " href"))
    assert wanted - {"data:,"} <= there
    assert sum(one.startswith("link-") for one in wanted) >= 9


def test_links_of_one_name_in_two_clusters_are_told_apart() -> None:
    found = findings(links=2)
    first, second = found.worst
    namesake = replace(second, identity=replace(first.identity, link="0000002a", cluster="dc3"))
    text = outline(replace(found, worst=(first, namesake), timelines={})).text
    assert text.count("orders.0 from eu-1 to dc2") > 1, "in the table of links, and in the map"
    assert "orders.0 from eu-1 to dc3" in text


def test_names_are_text_and_never_markup() -> None:
    usual, hostile = outline(findings()), outline(findings(names=HOSTILE))
    assert hostile.tags == usual.tags
    assert hostile.attributes <= usual.attributes | {"title"}
    assert HOSTILE[0] in hostile.text
    assert "script" not in hostile.tags
    assert not any(name.startswith("on") for name in hostile.attributes)


@pytest.mark.parametrize("length", [HOUR // 60, HOUR, DAY, 31 * DAY, 365 * DAY, 3650 * DAY])
def test_windows_of_any_length(length: int) -> None:
    text = page(findings(length=length))
    assert outline(findings(length=length)).text
    assert len(text) < 1_000_000


def test_ten_thousand_links_make_no_larger_page() -> None:
    found = findings(links=10_000)
    incident = replace(found.failures.most_severe[0], error="x" * 400)
    found = replace(found, failures=replace(found.failures, most_severe=(incident,) * INCIDENTS_SHOWN, incidents=10**6))
    text = page(found)
    assert len(text) < 1_000_000
    assert f"{10_000 - LINKS_SHOWN:,} links more".replace(",", "\N{NARROW NO-BREAK SPACE}") in text


def test_nothing_to_show() -> None:
    found = replace(findings(links=0), fleet=Fleet(0, TimeSpent(), None, 0))
    told = outline(found)
    assert "No data on links in this window" in told.text
    filtered = outline(replace(found, link_filter="upstreams nonesuch"))
    assert "No link that --link, --upstream and --group choose has data" in filtered.text
    assert "svg" not in told.tags


def test_one_link_that_never_failed() -> None:
    found = findings(links=1)
    spent = TimeSpent({next(iter(found.worst[0].spent.seconds)): 0.0})
    link = replace(found.worst[0], spent=spent)
    text = outline(replace(found, worst=(link,), failures=type(found.failures)(), fleet=Fleet(1, spent, None, 0))).text
    assert "No link failed, and none was blocked, in this period" in text
    assert "No data for the 31 d before" in text


def test_a_cluster_not_reached_yet_is_told_as_such() -> None:
    found = findings(links=3)
    edge = replace(found.edges.busiest[0], source=None)
    text = outline(replace(found, edges=replace(found.edges, busiest=(edge,)))).text
    assert "not reached yet" in text


@pytest.mark.parametrize(
    ("books", "said"),
    [
        (MessageAccount(taken=2_170_000_000), "2.17 G messages taken, all accounted for."),
        (MessageAccount(2_170_000_000, 12, 2), "2.17 G messages taken, all accounted for but 12 on 2 links."),
        (
            MessageAccount(1, 1, 1, 1),
            "1 message taken, all accounted for but 1 on 1 link; 1 link not accounted for, or not all",
        ),
        (
            MessageAccount(7, upstream_links=2, entered=9),
            "all accounted for. Upstream, 9 messages entered the queues of 2 links: all accounted for.",
        ),
        (
            MessageAccount(
                *(7, 0, 0, 0, 1, 1),
                expired=30,
                repeated=2,
                unexplained_upstream=3,
                unexplained_upstream_links=1,
            ),
            ": 30 expired or were removed, 2 were forwarded twice, 3 on 1 link are not accounted for.",
        ),
        (MessageAccount(not_accounted_links=3), "Not accounted for: agents of 3 links don't count what they take."),
    ],
)
def test_what_became_of_messages_is_one_line(books: MessageAccount, said: str) -> None:
    text = outline(replace(findings(), account=books)).text
    assert said in text.replace("\N{NARROW NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("lag", "said"),
    [
        (LagTime(0.0, 0, 14), "None of 14 links with lag-critical was further behind."),
        (LagTime(1200.0, 1, 14), "1 of 14 links with lag-critical was further behind, 20 min in all."),
        (LagTime(4320.0, 2, 14), "2 of 14 links with lag-critical were further behind, 1.2 link-hours in all."),
    ],
)
def test_for_how_long_links_were_too_far_behind(lag: LagTime, said: str) -> None:
    found = findings()
    assert said in outline(replace(found, fleet=replace(found.fleet, lag=lag))).text
    assert "lag-critical" not in outline(found).text, "nothing is claimed where nothing is known"


def test_a_link_that_was_up_and_too_far_behind_is_among_the_worst() -> None:
    found = findings(links=2)
    spent = TimeSpent({Bucket.UP: 3600.0})
    behind, quiet = (replace(link, spent=spent, incidents=0) for link in found.worst)
    behind = replace(behind, lag_critical=1200.0)
    text = outline(replace(found, worst=(behind, quiet))).text
    worst, _, _ = text.partition("Links with the least availability")[2].partition("Timelines")
    assert "Lag critical" in worst
    assert "100 %0 s0 s0 s020 min" in worst, worst
    assert str(quiet.identity.name) not in worst
    assert "Lag critical" not in outline(found).text


def test_links_that_were_behind_are_among_what_happened() -> None:
    found = findings()
    span = Bounds(found.window.start, found.window.start + 2 * HOUR)
    one = Disruption(BEHIND, None, None, found.worst[0].identity, span, False, 1, 1, 1200.0, 1200.0, None, None)
    many = replace(one, scope="upstream", name="eu-1", links=3, seconds=4320.0)
    text = outline(replace(found, failures=replace(found.failures, disruptions=(many, one)))).text
    assert (
        f"1 Oct 00:00{TO}02:00 UTC: 3 links to upstream eu-1 further behind than lag-critical for 1.2 link-hours"
        in text
    )
    assert "orders.0 from eu-1 to dc2 further behind than lag-critical for 20 min in all." in text
