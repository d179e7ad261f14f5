"""What a shovel's session leaves to the next one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.amqp.connection_pool import Shared
from agent.amqp.data.splice import Counts
from agent.core.model import ShovelSettings
from agent.errors import TransientError
from agent.links.brokers import Brokers
from agent.links.connections import Connections
from agent.links.shovel import session
from agent.links.shovel.session import Memory, ShovelSession
from agent.links.shovel.until import Former
from tests.unit.core.some_links import shovel_link


class CutShort:
    """A flow whose source answers with messages, and is cut off before it is known that it has begun."""

    acknowledged = 3
    acknowledged_for_sure = 2
    source_has_read_all = False

    def __init__(self, *_: object, **__: object) -> None:
        """Whatever it is made of."""

    async def start(self, _: object) -> None:
        raise TransientError("cut off")


async def test_what_is_forwarded_before_it_is_known_to_have_begun_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Flow", CutShort)
    monkeypatch.setattr(session, "rewriter_of", lambda *_, **__: None)
    link, memory = shovel_link(), Memory()
    link = replace(link, shovel=replace(link.shovel, settings=ShovelSettings(delete_after=5)))
    nothing: Any = SimpleNamespace(connection=None, capture=lambda *_, **__: None, room=None, cluster="here")
    ends: Any = SimpleNamespace(source=None, destination=None)
    opened = ShovelSession(
        link,
        cast("Connections", nothing),
        ends,
        apart=False,
        counts=Counts(),
        memory=memory,
        brokers=cast("Brokers", nothing),
    )
    with pytest.raises(TransientError):
        await opened._begin(cast("Shared", nothing), cast("Shared", nothing), control=cast("Shared", nothing))
    assert memory.former == Former(3, in_doubt=1)
