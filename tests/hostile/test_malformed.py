"""Messages that make a broker close the connection they come by: other links of the same vhost share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.hostile.backlog import Backlog, Message, table
from tests.hostile.peer import HostileBroker
from tests.hostile.scene import GOOD, Scene
from tests.integration.federation.sites import X, federated, policies
from tests.integration.status.asking import get
from tests.lab.waiting import eventually

pytestmark = pytest.mark.timeout(120)

HARMLESS: Final = tuple(Message(b"%04d" % number) for number in range(20))
CUT_OR_LONG: Final = (Message(b"bad", class_id=61), Message(b"bad", b"\x80\0\x09abc"), Message(b"bad", b"\x10\0\2zz"))
UNREADABLE_HEADERS: Final = tuple(
    Message(b"bad", table(entries)) for entries in (b"\1kZ!", b"\1kU\0\0", b"\1kF\0\0\0\x20ab", b"\1kA\0\0\0\2Z!")
)
NOT_ACCEPTED: Final = (Message(b"bad", table(b"\2CCS\0\0\0\1a")), Message(b"bad", b"\1\0\3abc"))
NOBODY_READS: Final = "with properties that can't be read"
CLOSES: Final = "over which it closes the connection or channel"


@pytest.mark.parametrize(
    ("malformed", "reconnects", "own", "why"),
    [(CUT_OR_LONG, 0, 0, NOBODY_READS), (UNREADABLE_HEADERS, 1, 1, NOBODY_READS), (NOT_ACCEPTED, 0, 4, CLOSES)],
    ids=["properties that don't add up", "headers that can't be read", "properties that close the channel"],
)
def test_malformed_messages_are_held_and_hurt_no_link_that_shares_their_connection(
    scene: Scene, malformed: Sequence[Message], reconnects: int, own: int, why: str
) -> None:
    backlog = Backlog([*HARMLESS[:10], *malformed, *HARMLESS[10:]])
    fine = {place for place, message in enumerate(backlog.messages) if message.body != b"bad"}
    with HostileBroker(backlog) as hostile:
        begin_sharing(scene, hostile.uri)
        eventually(lambda: backlog.acknowledged == fine, 30, what="all but the malformed ones come through")
        for _ in range(2):
            scene.flow()
            links = {link["upstream"]: link for link in get(scene.agent, "/api/links")}
            assert links["origin"]["reconnects"] <= reconnects
            assert links["hostile"]["reconnects"] <= own
            count = len(malformed)
            expected = f"{count} messages can't be published downstream: {count} {why}"
            assert links["hostile"]["error"] == expected
            delivered = backlog.deliveries
            eventually(lambda: backlog.deliveries >= delivered + count, what="they come again")  # noqa: B023
        scene.stop()


def begin_sharing(scene: Scene, hostile_uri: str) -> None:
    """Both links into the same exchange of one vhost; the good one runs first and has messages on the way."""
    here, there, agent = scene.here, scene.there, scene.agent
    there.exchange()
    here.exchange().queue("k", name=GOOD).exchange("fed.bad").queue("k", name="bad", exchange="fed.bad")
    both = federated(there)
    agent.write({here.vhost: both}).start()
    agent.wait_for("running", (here.vhost, X, "origin"), deadline=60)
    upstreams = both["upstreams"] | {"hostile": {"uri": hostile_uri, "reconnect-delay": 1}}
    only = {"pattern": r"^fed\.bad$", "apply-to": "exchanges", "priority": 9}
    agent.write(
        {
            here.vhost: {
                "upstreams": upstreams,
                "policies": {
                    "federate": policies()["federate"] | {"definition": {"federation-upstream": "origin"}},
                    "bad": only | {"definition": {"federation-upstream": "hostile"}},
                },
            }
        }
    )
