"""What is in a queue is moved once, and the account says what became of each message."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, Final

import pytest

from agent.core.rules.quarantine import LINK, move_command
from agent.core.rules.quarantine import QUEUE as QUARANTINE
from tests.integration.federation.conftest import SiteOn
from tests.integration.federation.sites import Site
from tests.integration.moves.scene import NEW, OLD, Moves, fill, publish, queue, waits
from tests.lab.lab import Lab
from tests.lab.node import Node
from tests.lab.user_program import messages, numbered
from tests.lab.user_program import publish as publish_all
from tests.lab.waiting import DEADLINE

SID: Final = pytest.mark.versions
BROKERS: Final = [pytest.param(None, id="own"), pytest.param("sid", id="sid", marks=SID)]
LIMIT: Final = 65_536
MANY: Final = 1_200
"""More than are in flight."""


@pytest.fixture
def at(broker_on: Callable[..., Node], site_on: SiteOn, request: pytest.FixtureRequest) -> Site:
    """A site of the release that the test asks for."""
    return site_on(broker_on(request.param))


on_releases = pytest.mark.parametrize("at", BROKERS, indirect=True)


def on_releases_with(own: str, sid: str) -> pytest.MarkDecorator:
    """A queue of either type, on this machine's release and on the newest one."""
    pairs = [pytest.param(None, own, id=f"own-{own}"), pytest.param("sid", sid, id=f"sid-{sid}", marks=SID)]
    return pytest.mark.parametrize(("at", "kind"), pairs, indirect=["at"])


@on_releases_with("classic", "quorum")
def test_all_is_moved_in_order_as_it_is(at: Site, kind: str, moves: Moves) -> None:
    queue(at, kind=kind)
    queue(at, NEW, kind=kind)
    bodies = fill(at, MANY, headers={"n": 1, "x-death": "mine"})
    account = moves.run(at.uri, "--to-queue", NEW)
    assert (account["there"], account["moved"], account["left"], account["waiting"]) == (MANY, MANY, {}, 0)
    found = messages(at.uri, NEW, MANY)
    assert [each.body.decode() for each in found] == bodies
    assert {(each.headers["n"], each.headers["x-death"], each.delivery_mode) for each in found} == {(1, "mine", 2)}
    assert moves.run(at.uri, "--to-queue", NEW, status=5)["taken"] == 0


def test_to_another_broker_whose_user_is_another(here: Site, there: Site, moves: Moves) -> None:
    """A message keeps no user id that the destination would refuse."""
    queue(there)
    here.exchange("orders", "direct").queue("k", name=NEW, exchange="orders")
    bodies = fill(there, 10)
    assert moves.run(there.uri, "--to", here.uri, "--to-exchange", "orders", "--key", "k")["moved"] == 10
    assert here.take(10, queue=NEW) == bodies


def test_a_limit_and_what_comes_meanwhile(here: Site, moves: Moves) -> None:
    queue(here)
    queue(here, NEW)
    bodies = fill(here, 30)
    account = moves.run(here.uri, "--to-queue", NEW, "--limit", "10")
    assert (account["taken"], account["waiting"]) == (10, 20)
    assert here.take(10, queue=NEW) == bodies[:10]
    assert moves.run(here.uri, "--to-queue", NEW, "--until-empty", "--limit", "5")["moved"] == 5
    assert moves.run(here.uri, "--to-queue", NEW, "--until-empty", "--rate", "20")["moved"] == 15
    assert here.take(20, queue=NEW) == bodies[10:]


def test_a_rate_holds(here: Site, moves: Moves) -> None:
    queue(here)
    queue(here, NEW)
    fill(here, 30)
    assert moves.run(here.uri, "--to-queue", NEW, "--rate", "20")["seconds"] >= 0.9, "a second's worth may come at once"
    waits(here, 30, NEW)


@on_releases
def test_what_is_refused_stays_in_its_order(at: Site, moves: Moves) -> None:
    """A full queue refuses by basic.nack."""
    queue(at)
    queue(at, NEW, arguments={"x-max-length": 7, "x-overflow": "reject-publish"})
    bodies = fill(at, 20)
    account = moves.run(at.uri, "--to-queue", NEW, status=4)
    assert (account["moved"], account["left"], account["waiting"]) == (7, {"refused": 13}, 13)
    assert at.take(7, queue=NEW) == bodies[:7]
    assert at.take(13, queue=OLD) == bodies[7:]


@on_releases_with("quorum", "classic")
def test_what_no_queue_takes_stays(at: Site, kind: str, moves: Moves) -> None:
    """Messages that differ in their headers alone; brokers from 4.0 on return them with others."""
    queue(at, kind=kind)
    at.exchange("by-headers", "headers").queue(
        "", name=NEW, exchange="by-headers", arguments={"x-match": "all", "n": 1}
    )
    headers: dict[str, Any] = {"z": 1.5, "list": [1, "a"], "b": bytearray(b"bytes"), "a": True}
    publish(at, OLD, (("same", {**headers, "n": number % 3, "number": number}) for number in range(30)))
    account = moves.run(at.uri, "--to-exchange", "by-headers", status=4)
    assert (account["moved"], account["left"], account["waiting"]) == (10, {"unroutable": 20}, 20)
    assert [each.headers["number"] for each in messages(at.uri, NEW, 10)] == [n for n in range(30) if n % 3 == 1]
    assert [each.headers["number"] for each in messages(at.uri, OLD, 20)] == [n for n in range(30) if n % 3 != 1]


def test_a_queue_that_is_deleted_meanwhile_takes_nothing_more(here: Site, moves: Moves) -> None:
    """All that comes back is left, and the scan ends it."""
    queue(here)
    here.exchange("nowhere", "direct")
    bodies = fill(here, MANY)
    account = moves.run(here.uri, "--to-exchange", "nowhere", "--scan", "100", status=4)
    assert account["moved"] == 0
    assert account["left"]["unroutable"] >= 100
    assert "--scan" in account["notes"][0]
    waits(here, MANY)
    assert here.take(MANY, queue=OLD) == bodies


def test_what_is_too_large_stays_and_the_rest_is_moved(lab: Lab, here: Site, site_on: SiteOn, moves: Moves) -> None:
    """The destination closes the channel over it; what it takes is known from then on."""
    narrow = site_on(lab.shared("narrow", conf=[f"max_message_size = {LIMIT}"]))
    queue(narrow, NEW)
    queue(here)
    bodies = [f"{number:03}{'x' * (LIMIT if number % 10 == 5 else 10)}" for number in range(40)]
    publish_all(here.uri, "", OLD, bodies)
    account = moves.run(here.uri, "--to", narrow.uri, "--to-queue", NEW, status=4)
    assert (account["moved"], account["left"]) == (36, {"too_large": 4})
    assert here.take(4, queue=OLD) == [each for each in bodies if len(each) > LIMIT]
    arrived = narrow.take(36, queue=NEW)
    assert list(dict.fromkeys(arrived)) == [each for each in bodies if len(each) < LIMIT], "some may come twice"


@on_releases_with("quorum", "quorum")
def test_a_match_passes_the_others_which_keep_their_order(at: Site, kind: str, moves: Moves) -> None:
    queue(at, kind=kind)
    queue(at, NEW, kind=kind)
    publish(at, OLD, ((body, {"n": int(body) % 3, "eu": int(body) % 2 == 0}) for body in numbered(3_000)))
    account = moves.run(at.uri, "--to-queue", NEW, "--match", "n=1", "--match", "eu=true")
    assert (account["moved"], account["left"], account["waiting"]) == (500, {"not_chosen": 2_500}, 2_500)
    assert account["counts_deliveries"] is (at.node.release.root.name != "sid"), "4.3 forgives what is returned"
    chosen = [body for body in numbered(3_000) if int(body) % 6 == 4]
    assert at.take(500, queue=NEW) == chosen
    assert at.take(2_500, queue=OLD) == [body for body in numbered(3_000) if body not in set(chosen)]


def test_a_scan_and_a_limit_bound_a_match(here: Site, moves: Moves) -> None:
    queue(here)
    queue(here, NEW)
    publish(here, OLD, ((body, {"n": int(body) % 10}) for body in numbered(100)))
    account = moves.run(here.uri, "--to-queue", NEW, "--match", "n=9", "--scan", "30", status=4)
    assert (account["moved"], account["left"]) == (3, {"not_chosen": 30})
    assert account["counts_deliveries"] is False, "a classic queue doesn't"
    assert moves.run(here.uri, "--to-queue", NEW, "--match", "n=9", "--limit", "2")["moved"] == 2
    assert here.take(5, queue=NEW) == numbered(100)[9:50:10]
    assert moves.run(here.uri, "--to-queue", NEW, "--match", "n=x", status=5)["left"] == {"not_chosen": 95}


@on_releases_with("quorum", "classic")
def test_a_dry_run_moves_nothing(at: Site, kind: str, moves: Moves) -> None:
    queue(at, kind=kind)
    queue(at, NEW)
    publish(at, OLD, ((body, {"n": int(body) % 2, "raw": bytearray(b"\xff")}) for body in numbered(50)))
    account = moves.run(at.uri, "--to-queue", NEW, "--match", "n=1", "--dry-run")
    assert account["destinations"] == [{"exchange": "", "routing_key": NEW, "messages": 25}]
    assert [each["headers"]["n"] for each in account["first"]] == [1] * 10
    waits(at, 50)
    account = moves.run(at.uri, "--to-queue", NEW, "--dry-run")
    assert (account["destinations"][0]["messages"], account["taken"]) == (50, 10), "no more is looked at than is shown"
    waits(at, 50)
    assert moves.run(at.uri, "--to-queue", NEW)["moved"] == 50


@pytest.mark.versions
def test_looking_counts_as_no_delivery_where_the_release_allows(
    broker_on: Callable[..., Node], site_on: SiteOn, moves: Moves
) -> None:
    at = site_on(broker_on("sid"))
    queue(at, kind="quorum", arguments={"x-delivery-limit": 2})
    queue(at, NEW)
    fill(at, 5)
    for _ in range(5):
        moves.run(at.uri, "--to-queue", NEW, "--dry-run")
    assert moves.run(at.uri, "--to-queue", NEW)["moved"] == 5


def test_what_is_missing_or_makes_no_sense_is_an_error(here: Site, moves: Moves) -> None:
    queue(here)
    source = ("--from", here.uri, "--queue")
    assert "queue 'none' doesn't exist" in moves.refused(*source, "none", "--to-queue", NEW, status=4)
    assert "queue 'none' doesn't exist" in moves.refused(*source, OLD, "--to-queue", "none", status=4)
    assert "exchange 'none' doesn't exist" in moves.refused(*source, OLD, "--to-exchange", "none", status=4)
    assert "are the same queue" in moves.refused(*source, OLD, "--to-queue", OLD)
    assert "give one of" in moves.refused(*source, OLD)
    assert "--key needs" in moves.refused(*source, OLD, "--redrive", "--key", "k")
    assert "longer than 255 bytes" in moves.refused(*source, OLD, "--to-exchange", "amq.direct", "--key", "k" * 256)
    assert "write HEADER=VALUE" in moves.refused(*source, OLD, "--redrive", "--match", "n")
    assert "without -c" in moves.refused("--from", "origin", "--queue", OLD, "--redrive")


def test_ends_have_the_names_of_a_configuration(here: Site, there: Site, moves: Moves) -> None:
    queue(there)
    queue(here, NEW)
    fill(there, 3)
    config = moves.directory / "agent.yaml"
    vhosts = {here.vhost: {"upstreams": {"origin": {"uri": there.uri}}}}
    config.write_text(json.dumps({"downstream": {"uri": here.uri}, "vhosts": vhosts}))
    named = ("-c", str(config), "--to", f"{here.vhost}/downstream", "--to-queue", NEW)
    assert "did you mean 'origin'" in moves.refused(*named, "--from", "origni", "--queue", OLD)
    assert moves.run("origin", *named)["moved"] == 3
    assert here.take(3, queue=NEW) == numbered(3)


def test_the_command_that_a_link_shows_takes_its_messages_out_of_quarantine(
    here: Site, there: Site, moves: Moves
) -> None:
    queue(there, QUARANTINE)
    queue(there, NEW)
    for number in range(4):
        publish(there, QUARANTINE, [(str(number), {LINK: f"0000000{number % 2}"})])
    config = moves.directory / "agent.yaml"
    upstreams = {"the origin": {"uri": there.uri}}
    config.write_text(json.dumps({"downstream": {"uri": here.uri}, "vhosts": {here.vhost: {"upstreams": upstreams}}}))
    shown = move_command("00000001", vhost=here.vhost, upstream="the origin")
    values = {"FILE": str(config), "QUEUE": NEW}
    _, *command = (values.get(word, word) for word in shlex.split(shown))
    ran = moves.lab.agents.run(command, cwd=moves.directory, environment={}, deadline=DEADLINE)
    assert ran.status == 0, ran
    assert there.take(2, queue=NEW) == ["1", "3"]
    waits(there, 2, QUARANTINE)


@on_releases
def test_it_needs_the_permissions_that_are_documented(at: Site, moves: Moves, name: Callable[[str], str]) -> None:
    """docs/permissions.md; brokers of 4.3 also want `configure` of whoever looks whether a queue exists."""
    queue(at)
    queue(at, NEW)
    fill(at, 3)
    user, admin = name("mover"), at.node.admin
    admin.user(user, "secret")
    try:
        uri = at.uri.replace("guest:guest", f"{user}:secret")
        looks = f"^({OLD}|{NEW})$" if at.node.release.root.name == "sid" else "^$"
        allowed = {"configure": looks, "read": f"^{OLD}$", "write": r"^amq\.default$"}
        for lacking in sorted(key for key, pattern in allowed.items() if pattern != "^$"):
            admin.permissions(at.vhost, user, **(allowed | {lacking: "^$"}))
            ran = moves.lab.agents.run(
                ("move", "--from", uri, "--queue", OLD, "--to-queue", NEW),
                cwd=moves.directory,
                environment={},
                deadline=DEADLINE,
            )
            assert ran.status == 4, ran
            assert "refused for user" in ran.err, ran
        admin.permissions(at.vhost, user, **allowed)
        assert moves.run(uri, "--to-queue", NEW)["moved"] == 3
    finally:
        admin.delete("users", user)
