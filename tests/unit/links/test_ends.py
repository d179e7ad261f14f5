"""The two ends of a shovel, by both protocols."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.amqp.connect import plain
from agent.amqp10.terminus import Terminus
from agent.core import fields
from agent.core.model import AddressDestination, AddressSource, DeleteAfter, ShovelLink, ShovelSettings
from agent.links.ends import shovel_ends, wired
from tests.unit.core.some_links import shovel_link


def between(source: str, destination: str | None = None) -> ShovelLink:
    link = shovel_link(AddressSource(source))
    if destination is None:
        return link
    return replace(link, shovel=replace(link.shovel, destination=AddressDestination(destination)))


def test_ends_of_one_broker_are_shared_by_protocol_and_address() -> None:
    by_091, first, again, other = (
        shovel_ends(each, ()).source
        for each in (shovel_link(), between("/queues/q"), between("/queues/q"), between("r"))
    )
    assert (by_091.uris, by_091.terminus) == (first.uris, None)
    assert first == again
    assert len({by_091, first, other}) == 3


def test_messages_go_on_as_they_are_where_both_ends_speak_amqp10() -> None:
    filters = (("x-stream-offset", fields.text("first")),)
    link = between("a", "b")
    link = replace(link, shovel=replace(link.shovel, settings=ShovelSettings(consumer_arguments=filters)))
    ends = shovel_ends(link, ())
    assert ends.source.terminus == Terminus("a", is_source=True, is_bare=True, filters=filters)
    assert ends.destination.terminus == Terminus("b", is_source=False, is_bare=True)
    mixed = shovel_ends(between("a"), ())
    assert mixed.source.terminus == Terminus("a", is_source=True)
    assert wired(mixed.destination.terminus, "test") is plain


@pytest.mark.parametrize(("after", "is_counted"), [(DeleteAfter.NEVER, False), (7, True)])
def test_what_is_settled_is_counted_for_a_number_of_messages(after: DeleteAfter | int, *, is_counted: bool) -> None:
    link = between("a")
    link = replace(link, shovel=replace(link.shovel, settings=ShovelSettings(delete_after=after)))
    assert shovel_ends(link, ()).source.terminus == Terminus("a", is_source=True, is_counted=is_counted)
