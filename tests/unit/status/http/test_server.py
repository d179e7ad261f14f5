"""The HTTP server on a real socket; what links do with what is asked of them is shown elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from dataclasses import replace
from urllib.parse import quote

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.amqp.data.splice import Counts
from agent.core.fields import from_tagged
from agent.core.links.lifecycle import NO_LONGER_DEFINED, Failed, LinkState, Phase, Unwanted, step
from agent.core.links.upstream_steps import Known
from agent.core.model import AddressSource, Link
from agent.core.permissions import Grant, Need, Permission, grant_command, needs_of
from agent.core.rules import hops
from agent.core.rules.hops import GroupedBinding, Site
from agent.errors import CannotStartError, Failure, FailureKind, PermanentError, Side
from agent.status.entry import Gauges
from tests.unit.core.some_links import shovel_link
from tests.unit.status.serving import TOKEN, Serve, Served
from tests.unit.status.test_board import BROKEN, LINK, RUNNING

PAUSED = LinkState(started=True, paused=True)


async def test_probes_tell_the_process_from_its_work(serve: Serve) -> None:
    served = await serve()
    assert (await served.ask("/livez"))[0] == 200
    status, answer = await served.ask("/readyz")
    assert (status, "not been read" in answer["error"]) == (503, True)
    served.board.ready = True
    assert (await served.ask("/readyz"))[0] == 200


async def test_links_one_and_all(serve: Serve) -> None:
    served = await serve()
    status, links = await served.ask("/api/links")
    assert (status, [link["id"] for link in links]) == (200, [LINK.id])
    assert (await served.ask(f"/api/links/{LINK.id}"))[1]["exchange"] == "orders"
    assert (await served.ask("/api/links?vhost=other"))[1] == []
    status, answer = await served.ask("/api/links/ffffffff")
    assert (status, "ffffffff" in answer["error"]) == (404, True)


async def test_a_link_tells_what_to_do_about_it(serve: Serve) -> None:
    served = await serve()
    served.board.cluster = "dc2"
    served.board.clusters.downstream = frozenset({("h", 5672)})  # where the shovels go to
    assert (await served.ask(f"/api/links/{LINK.id}"))[1]["advice"] is None
    denied = Failure(
        FailureKind.PERMISSION, Side.DOWNSTREAM, is_permanent=True, user="fed", vhost="/", permission="configure"
    )
    others = [replace(shovel_link(), id=link_id) for link_id in ("00000002", "00000003")]
    links: list[Link] = [LINK, *others]
    for at, each in enumerate(links):
        served.board.put(each, LinkState(), Counts(), Gauges)
        broken = Failed("refused", replace(denied, object=str(at), object_type="queue"))
        served.board.changed(each.id, LinkState(phase=Phase.WAITING, started=True, broken=broken))
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    for each in links:
        assert cause["advice"].partition("Run ")[2] in (await served.ask(f"/api/links/{each.id}"))[1]["advice"]
    configure, write, _ = shlex.split(cause["advice"].split("`")[1])[5:]
    assert all(re.search(configure, name) for name in ("0", "1", "2", "federation-agent: leases"))
    assert re.search(write, "orders") and not re.search(write, "others")


async def test_it_advises_the_patterns_that_check_advises(serve: Serve) -> None:
    """Of all links of the user there, as one line replaces the other; `check` says so of a user without permissions."""
    served = await serve()
    served.board.cluster, other = "dc2", replace(LINK, id="00000002", remote_name="other", name="other")
    about = {"user": "u", "vhost": "/", "object": "there", "object_type": "exchange"}
    denied = Failed("refused", Failure(FailureKind.PERMISSION, Side.UPSTREAM, is_permanent=True, **about))
    served.board.put(other, RUNNING, Counts(), Gauges)
    served.board.changed(LINK.id, LinkState(phase=Phase.WAITING, started=True, broken=denied))
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    needs = [Need(Permission.CONFIGURE, "there", "declaring it, as it is missing")]
    for link in (LINK, other):
        both = needs_of(link, source_vhost="/", cluster="dc2", source_asks=False, destination_asks=False)
        needs += both.source
    assert cause["advice"].split("`")[1] == grant_command("/", "u", needs, Grant())
    assert grant_command("/", "u", needs, Grant()) in (await served.ask(f"/api/links/{LINK.id}"))[1]["advice"]


async def test_what_a_link_has_bound_is_written_bit_by_bit(serve: Serve) -> None:
    served = await serve()
    assert (await served.ask(f"/api/links/{LINK.id}/bindings"))[1] == {
        "status": "starting",
        "uris": [str(uri) for uri in LINK.uris],
        "known": None,
    }
    arguments = hops.with_entry((), hops.BOUND_FROM, hops.bound_entry(Site("dc2", "/"), "/:orders A", 1))
    groups = frozenset(GroupedBinding(f"key.{number}", arguments) for number in range(4_000))
    large = frozenset({GroupedBinding("large", arguments)})
    known = Known(Site("dc1", "/"), "federation: orders -> dc2", "A", (), groups, has_canary=True, left_out=large)
    served.board.put(LINK, RUNNING, Counts(), lambda: Gauges(known=known))
    async with aiohttp.ClientSession() as session:

        async def read() -> bytes:
            async with session.get(f"{served.url}/api/links/{LINK.id}/bindings") as answer:
                return await answer.read()

        shares: list[float] = []
        for _ in range(3):  # a collection of garbage takes as long as all of it
            reading = asyncio.create_task(read())
            longest, begun = 0.0, time.process_time()
            before = begun
            while not reading.done():
                await asyncio.sleep(0)
                now = time.process_time()
                longest, before = max(longest, now - before), now
            shares.append(longest / (before - begun))
        found = json.loads(await read())
    assert (found["known"]["notices_deletions"], found["known"]["noticing_is_refused"]) == (True, False)
    listed = [
        (GroupedBinding(key, from_tagged(table)), is_bound) for key, table, is_bound in found["known"]["bindings"]
    ]
    assert frozenset(group for group, is_bound in listed if is_bound) == groups
    assert frozenset(group for group, is_bound in listed if not is_bound) == large
    assert min(shares) < 1 / 6, "messages have their turn meanwhile"


@pytest.mark.parametrize("action", ["restart", "pause", "resume"])
async def test_what_may_be_done_to_a_link(serve: Serve, action: str) -> None:
    served = await serve()
    assert (await served.ask(f"/api/links/{LINK.id}/{action}", "POST"))[0] == 200
    assert served.asked == [(LINK.id, action)]
    assert (await served.ask(f"/api/links/ffffffff/{action}", "POST"))[0] == 404
    assert (await served.ask(f"/api/links/{LINK.id}/{action}"))[0] == 405


async def test_a_cause_is_acknowledged_by_whom_and_for_how_long(serve: Serve) -> None:
    served = await serve()
    served.board.changed(LINK.id, BROKEN)
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    assert cause["acknowledged"] is None
    ack = f"/api/causes/{cause['id']}/ack"
    status, found = await served.ask(ack, "POST", body={"by": "ann@ops", "reason": "known", "for": 7_200})
    assert (status, found["id"], found["acknowledged"]["by"]) == (200, cause["id"], "ann@ops")
    assert found["acknowledged"]["text"].endswith(" UTC: known, until 2027-01-15 10:00 UTC")
    assert (await served.ask("/api/causes"))[1]["causes"] == [found]
    assert (await served.ask("/api/summary"))[1]["verdict"].endswith(", acknowledged by ann@ops")
    assert (await served.ask("/api/causes"))[1]["level"] == "down"
    assert (await served.ask(ack, "POST"))[1]["acknowledged"]["by"] == "HTTP from 127.0.0.1"
    assert (await served.ask(ack, "DELETE"))[1]["acknowledged"] is None
    for method in ("POST", "DELETE"):
        status, answer = await served.ask("/api/causes/ffffffff/ack", method)
        assert (status, "no cause has the id 'ffffffff'" in answer["error"]) == (404, True)
    assert (await served.ask(ack))[0] == 405


@pytest.mark.parametrize("seconds", [0, -1, "2h", True, 1e99, float("nan")])
async def test_how_long_a_cause_is_acknowledged_has_bounds(serve: Serve, seconds: object) -> None:
    served = await serve()
    served.board.changed(LINK.id, BROKEN)
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    status, answer = await served.ask(f"/api/causes/{cause['id']}/ack", "POST", body={"for": seconds})
    assert (status, "`for` has to be a number of seconds" in answer["error"]) == (400, True)
    assert (await served.ask("/api/causes"))[1]["causes"][0]["acknowledged"] is None


async def test_to_acknowledge_needs_the_token(serve: Serve) -> None:
    served = await serve(token=TOKEN)
    served.board.changed(LINK.id, BROKEN)
    [cause] = (await served.ask("/api/causes"))[1]["causes"]
    ack = f"/api/causes/{cause['id']}/ack"
    assert [(await served.ask(ack, method))[0] for method in ("POST", "DELETE")] == [401, 401]
    assert (await served.ask(ack, "POST", token=TOKEN))[0] == 200


async def test_the_native_routes(serve: Serve) -> None:
    served = await serve()
    assert [link["id"] for link in (await served.ask("/api/federation-links"))[1]] == [LINK.id]
    assert [link["id"] for link in (await served.ask("/api/federation-links/%2F"))[1]] == [LINK.id]
    assert (await served.ask("/api/federation-links/other"))[1] == []
    restart = f"/api/federation-links/vhost/%2F/{LINK.id}/any/restart"
    assert (await served.ask(restart, "DELETE"))[0] == 204
    assert served.asked == [(LINK.id, "restart")]
    assert (await served.ask(restart.replace("%2F", "other"), "DELETE"))[0] == 404


async def test_the_native_routes_of_shovels(serve: Serve) -> None:
    served, link = await serve(), shovel_link()
    gauges = Gauges(remaining=7, in_flight=2)
    served.board.put(link, RUNNING, Counts(forwarded=3), lambda: gauges)
    [view] = (await served.ask("/api/shovels/%2F"))[1]
    assert view.items() >= {
        "name": "s", "vhost": "/", "type": "dynamic", "state": "running", "src_queue": "q", "src_uri": "amqp://h:5672",
        "dest_uri": "amqp://h:5672", "forwarded": 3, "remaining": 7, "remaining_unacked": 5, "pending": 0,
        "blocked_status": "running", "src_protocol": "amqp091", "dest_protocol": "amqp091",
    }.items()  # fmt: skip
    assert (await served.ask("/api/shovels/vhost/%2F/s/restart", "DELETE"))[0] == 204
    assert served.asked == [(link.id, "restart")]
    assert (await served.ask("/api/shovels/vhost/%2F/other/restart", "DELETE"))[0] == 404


@pytest.mark.parametrize("end", ["src", "dest"])
async def test_the_native_route_shows_which_end_of_a_shovel_is_local(serve: Serve, end: str) -> None:
    served, link = await serve(), shovel_link()
    shovel = replace(link.shovel, source_is_local=end == "src", destination_is_local=end == "dest")
    served.board.put(replace(link, shovel=shovel), RUNNING, Counts(), Gauges)
    [view] = (await served.ask("/api/shovels"))[1]
    assert [view["src_protocol"] == "local", view["dest_protocol"] == "local"] == [end == "src", end == "dest"]


async def test_the_native_route_of_a_shovel_from_an_address(serve: Serve) -> None:
    served, link = await serve(), shovel_link(AddressSource("/queues/q"))
    served.board.put(link, RUNNING, Counts(), Gauges)
    [view] = (await served.ask("/api/shovels"))[1]
    assert (view["src_protocol"], view["src_address"], view["dest_protocol"]) == ("amqp10", "/queues/q", "amqp091")
    assert not {"src_queue", "dest_address"} & view.keys()
    _, view = await served.ask(f"/api/links/{link.id}")
    assert view["source"] == "address /queues/q"


@pytest.mark.parametrize(("deletion", "status", "says"), [
    (None, 204, ""),
    ("agent.yaml:3:5 defines it: delete it there", 409, "agent.yaml:3:5"),
    (PermanentError("refused for user 'agent'"), 503, "can't be deleted: refused for user 'agent'"),
])  # fmt: skip
async def test_a_shovel_is_deleted_by_its_parameter(
    serve: Serve, deletion: str | Exception | None, status: int, says: str
) -> None:
    served = await serve(token=TOKEN)
    served.board.put(shovel_link(), RUNNING, Counts(), Gauges)
    served.deletion = deletion
    path = "/api/shovels/vhost/%2F/s"
    assert (await served.ask(path, "DELETE"))[0] == 401
    assert served.deleted == []
    answer = await served.ask(path, "DELETE", TOKEN)
    assert answer[0] == status
    assert says in (answer[1] or {"error": ""})["error"]
    assert served.deleted == [("/", "s")]
    assert (await served.ask("/api/shovels/vhost/%2F/other", "DELETE", TOKEN))[0] == 404
    assert (await served.ask("/api/shovels/vhost/other/s", "DELETE", TOKEN))[0] == 404
    assert served.deleted == [("/", "s")]


async def test_a_link_that_is_removed_is_no_trouble_and_takes_no_orders(serve: Serve) -> None:
    served = await serve()
    removing, _ = step(LinkState(), Unwanted(1.0))
    served.board.changed(LINK.id, removing)
    for action in ("restart", "pause", "resume"):
        status, answer = await served.ask(f"/api/links/{LINK.id}/{action}", "POST")
        assert (status, "define it again" in answer["error"]) == (409, True)
    restart = f"/api/federation-links/vhost/{quote(LINK.vhost, safe='')}/{LINK.id}/node/restart"
    assert (await served.ask(restart, "DELETE"))[0] == 404
    assert served.asked == []
    _, [native] = await served.ask("/api/federation-links")
    assert (native["status"], native["error"]) == ("shutdown", NO_LONGER_DEFINED)
    assert (await served.ask("/api/federation-links/state/down"))[1] == []
    _, [link] = await served.ask("/api/links")
    assert (link["status"], link["error"]) == ("removing", NO_LONGER_DEFINED)


@pytest.mark.parametrize("path", ["state/down", "state/down/", "%2F/state/down", "%2F/state/down/"])
async def test_a_link_that_starts_is_not_down_for_the_native_routes(serve: Serve, path: str) -> None:
    served = await serve()

    async def down() -> list[str]:
        return [link["id"] for link in (await served.ask(f"/api/federation-links/{path}"))[1]]

    assert await down() == []
    for state, told in ((BROKEN, [LINK.id]), (RUNNING, []), (PAUSED, [LINK.id])):
        served.board.changed(LINK.id, state)
        assert await down() == told


@pytest.mark.parametrize("path", ["federation-links/{}", "federation-links/{}/state/down", "shovels/{}", "shovels/{}/"])
async def test_a_vhost_that_is_not_there_is_told_from_one_without_links(serve: Serve, path: str) -> None:
    served = await serve()
    served.board.vhosts = frozenset({"/", "empty"})
    assert await served.ask(f"/api/{path.format('empty')}") == (200, [])
    status, answer = await served.ask(f"/api/{path.format('nowhere')}")
    assert (status, "'nowhere'" in answer["error"]) == (404, True)


async def test_changes_need_the_token_where_one_is_set(serve: Serve) -> None:
    served = await serve(token=TOKEN)
    restart = f"/api/links/{LINK.id}/restart"
    assert (await served.ask("/api/links"))[0] == 200
    assert (await served.ask(restart, "POST"))[0] == 401
    assert (await served.ask(restart, "POST", "wrong"))[0] == 401
    assert served.asked == []
    assert (await served.ask(restart, "POST", TOKEN))[0] == 200


async def test_looking_needs_it_too_where_others_can_reach_the_agent(serve: Serve) -> None:
    served = await serve(host="0.0.0.0", token=TOKEN)
    assert (await served.ask("/api/links"))[0] == 401
    assert (await served.ask("/api/links", token=TOKEN))[0] == 200
    assert (await served.ask("/livez"))[0] == 200
    opened = await serve(host="0.0.0.0", token=TOKEN, anonymous=True)
    assert (await opened.ask("/api/links"))[0] == 200
    assert (await opened.ask(f"/api/links/{LINK.id}/pause", "POST"))[0] == 401


async def test_metrics_are_what_prometheus_reads(serve: Serve) -> None:
    served = await serve()
    url = f"{served.url}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        families = {family.name for family in text_string_to_metric_families(await answer.text())}
    assert {"federation_agent_link_state", "federation_agent_forwarded_messages"} <= families


async def test_errors_are_json_and_never_tell_the_token(serve: Serve) -> None:
    served = await serve(token=TOKEN)
    status, answer = await served.ask("/nowhere")
    assert (status, answer) == (404, {"error": "no such path"})
    assert TOKEN not in str(await served.ask("/api/links", "POST"))


async def test_a_port_that_is_taken_is_said(serve: Serve) -> None:
    first = await serve()
    port = first.port
    with pytest.raises(CannotStartError, match=f"127.0.0.1:{port}"):
        await Served(port).server.start()
