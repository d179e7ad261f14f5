"""An upstream's keys, a member of a set's, and the defaults."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from agent.core.fields import EMPTY, text
from agent.core.links.read_limits import RateLimit
from agent.core.model import AckMode, ChannelUse, CleanupMode, LinkSettings, QueueType, SetMember
from agent.definitions.models.clusters import LinkSettingsModel, SetMemberModel, UpstreamModel
from agent.errors import Place

TEXT = st.none() | st.text(max_size=5)
COUNT = st.none() | st.integers(0, 9)
SETTINGS = st.builds(
    LinkSettings,
    exchange=TEXT,
    queue=TEXT,
    consumer_tag=TEXT,
    prefetch_count=COUNT,
    reconnect_delay=st.floats(0, 9),
    max_hops=st.integers(1, 9),
    ack_mode=st.sampled_from(AckMode),
    trust_user_id=st.booleans(),
    expires=COUNT,
    message_ttl=COUNT,
    queue_type=st.sampled_from(QueueType),
    ha_policy=TEXT,
    bind_nowait=st.booleans(),
    channel_use_mode=st.sampled_from(ChannelUse),
    resource_cleanup_mode=st.sampled_from(CleanupMode),
    forward_unrouted=st.booleans(),
    set_headers=st.sampled_from([EMPTY, (("a", text("b")),)]),
    remove_headers=st.sampled_from([(), ("a", "b*")]),
    rate_limit=st.none() | st.builds(RateLimit, messages=st.integers(1, 9)),
)
NAMES = [field.name for field in fields(LinkSettings)]
MEMBERS = st.builds(SetMember, st.just("u"), SETTINGS, st.frozensets(st.sampled_from(NAMES)))


def test_the_document_has_a_key_for_every_field() -> None:
    assert list(LinkSettingsModel.model_fields) == NAMES


@given(SETTINGS, MEMBERS)
def test_what_a_member_writes_wins_over_its_upstream_and_nothing_else_does(
    upstream: LinkSettings, member: SetMember
) -> None:
    found = member.over(upstream)
    for name in NAMES:
        expected = member.settings if name in member.written else upstream
        assert getattr(found, name) == getattr(expected, name)


def test_nothing_written_is_the_default_and_auto_is_a_value() -> None:
    plain = UpstreamModel.model_validate({"uri": "amqp://h"}).to_core("u", Place("here"))
    upstream = UpstreamModel.model_validate({"uri": "amqp://h", "prefetch-count": 100}).to_core("u", Place("here"))
    silent, auto = (
        SetMemberModel.model_validate({"upstream": "u", **keys}).to_core() for keys in ({}, {"prefetch-count": "auto"})
    )
    assert silent.over(plain.settings) == plain.settings == LinkSettings()
    assert auto.over(upstream.settings).prefetch_count is None
    assert silent.over(upstream.settings).prefetch_count == 100
