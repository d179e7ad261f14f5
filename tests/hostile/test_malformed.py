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

HARMLESS: Final = tuple(Message(b"%04d" % number) for number in range(20))
CUT_OR_LONG: Final = (Message(b"bad", class_id=61), Message(b"bad", b"\x80\0\x09abc"), Message(b"bad", b"\x10\0\2zz"))
UNREADABLE_HEADERS: Final = tuple(
    Message(b"bad", table(entries)) for entries in (b"\1kZ!", b"\1kU\0\0", b"\1kF\0\0\0\x20ab", b"\1kA\0\0\0\2Z!")
)
NOT_ACCEPTED: Final = (Message(b"bad", table(b"\2CCS\0\0\0\1a")), Message(b"bad", b"\1\0\3abc"))
NOBODY_READS: Final = "with properties that can't be read"


@pytest.mark.parametrize(
    ("malformed", "reconnects", "own", "reason"),
    [
        (CUT_OR_LONG, 0, 0, "unreadable"),
        (UNREADABLE_HEADERS, 1, 1, "unreadable"),
        (NOT_ACCEPTED, 0, 4, "closes_connection"),
    ],
    ids=["properties that don't add up", "headers that can't be read", "properties that close the channel"],
)
def test_malformed_messages_go_to_the_quarantine_and_hurt_no_link_that_shares_their_connection(
    scene: Scene, malformed: Sequence[Message], reconnects: int, own: int, reason: str
) -> None:
    backlog = Backlog([*HARMLESS[:10], *malformed, *HARMLESS[10:]])
    with HostileBroker(backlog) as hostile:
        begin_sharing(scene, hostile.uri)
        eventually(lambda: len(backlog.acknowledged) == len(backlog.messages), what="all are settled")
        scene.flow()
        links = {link["upstream"]: link for link in get(scene.agent, "/api/links")}
        assert links["origin"]["reconnects"] <= reconnects
        assert links["hostile"]["reconnects"] <= own
        assert links["hostile"]["quarantined"] == len(malformed)
        eventually(lambda: holds_nothing(scene), ignoring=AssertionError)
        assert hostile.published == [b"bad"] * len(malformed)
        told = scene.agent.logged("message put into quarantine")
        assert [each["reason"] for each in told] == [reason] * len(malformed)
        scene.stop()


@pytest.mark.thorough
def test_what_can_not_be_put_into_quarantine_is_held(scene: Scene) -> None:
    backlog = Backlog([*HARMLESS[:10], *CUT_OR_LONG, *HARMLESS[10:]], has_quarantine=False)
    fine = {place for place, message in enumerate(backlog.messages) if message.body != b"bad"}
    count = len(CUT_OR_LONG)
    with HostileBroker(backlog) as hostile:
        begin_sharing(scene, hostile.uri)
        eventually(lambda: backlog.acknowledged == fine, what="all but the malformed ones come through")
        scene.flow()

        def error() -> str:
            return {link["upstream"]: str(link["error"]) for link in get(scene.agent, "/api/links")}["hostile"]

        held = f"{count} messages can't be published downstream: {count} {NOBODY_READS}; "
        why = "what can't be published downstream can't be put into the quarantine: "
        eventually(lambda: error().startswith(held + why), what="the quarantine doesn't answer")
        assert "no confirm within" in error()
        delivered = backlog.deliveries
        eventually(lambda: backlog.deliveries >= delivered + count, what="they come again")
        assert backlog.acknowledged == fine
        scene.stop()


def errors(scene: Scene) -> list[str | None]:
    return [link["error"] for link in get(scene.agent, "/api/links")]


def holds_nothing(scene: Scene) -> bool:
    """This broker remembers no exchanges, which a link that connects again may note."""
    assert [error for error in errors(scene) if error and "is bound again" not in error] == []
    return True


def begin_sharing(scene: Scene, hostile_uri: str) -> None:
    """Both links into the same exchange of one vhost; the good one runs first and has messages on the way."""
    here, there, agent = scene.here, scene.there, scene.agent
    there.exchange()
    here.exchange().queue("k", name=GOOD).exchange("fed.bad").queue("k", name="bad", exchange="fed.bad")
    both = federated(there)
    agent.write({here.vhost: both}).start()
    agent.wait_for("running", (here.vhost, X, "origin"))
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
