"""An upstream's keys, a member of a set's, and the defaults."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import (
    UNSET,
    AckMode,
    ChannelUse,
    CleanupMode,
    LinkOverrides,
    LinkSettings,
    QueueType,
    Unset,
)
from agent.core.rules.resolve import link_settings
from agent.definitions.models.clusters import LinkSettingsModel

TEXT = st.none() | st.text(max_size=5)
COUNT = st.none() | st.integers(0, 9)
FLAG = st.none() | st.booleans()
OVERRIDES = st.builds(
    LinkOverrides,
    exchange=TEXT,
    queue=TEXT,
    consumer_tag=TEXT,
    prefetch_count=COUNT | st.just(UNSET),
    reconnect_delay=st.none() | st.floats(0, 9),
    max_hops=COUNT,
    ack_mode=st.none() | st.sampled_from(AckMode),
    trust_user_id=FLAG,
    expires=COUNT,
    message_ttl=COUNT,
    queue_type=st.none() | st.sampled_from(QueueType),
    ha_policy=TEXT,
    bind_nowait=FLAG,
    channel_use_mode=st.none() | st.sampled_from(ChannelUse),
    resource_cleanup_mode=st.none() | st.sampled_from(CleanupMode),
    forward_unrouted=FLAG,
)


def names_of(kind: type[LinkSettings | LinkOverrides]) -> list[str]:
    return [field.name for field in fields(kind)]


def written(overrides: LinkOverrides) -> dict[str, Any]:
    """By the one rule there is: what differs from an override that holds nothing was written."""
    nothing = LinkOverrides()
    values = {name: getattr(overrides, name) for name in names_of(LinkOverrides)}
    return {name: value for name, value in values.items() if value is not getattr(nothing, name)}


def test_overrides_have_the_fields_of_settings_and_their_types() -> None:
    of_settings, of_overrides = get_type_hints(LinkSettings), get_type_hints(LinkOverrides)
    assert list(of_overrides) == list(of_settings)
    for name, kind in of_overrides.items():
        nothing = Unset if name in {"prefetch_count", "quarantine_after", "probe", "lag_critical"} else NoneType
        assert set(get_args(kind)) == {*(get_args(of_settings[name]) or (of_settings[name],)), nothing}


def test_the_document_has_a_key_for_every_field() -> None:
    assert list(LinkSettingsModel.model_fields) == names_of(LinkOverrides)


@given(OVERRIDES, OVERRIDES)
def test_a_member_wins_over_its_upstream_and_both_over_the_defaults(
    upstream: LinkOverrides, member: LinkOverrides
) -> None:
    found, default = link_settings(upstream, member), LinkSettings()
    for name in names_of(LinkSettings):
        expected = written(member).get(name, written(upstream).get(name, getattr(default, name)))
        assert getattr(found, name) == expected


@given(OVERRIDES)
def test_what_is_written_alone_counts_wherever_it_is_written(overrides: LinkOverrides) -> None:
    nothing = LinkOverrides()
    assert link_settings(overrides, nothing) == link_settings(nothing, overrides) == link_settings(overrides, overrides)


def test_nothing_written_is_the_default_and_auto_is_a_value() -> None:
    assert link_settings(LinkOverrides(), LinkOverrides()) == LinkSettings()
    upstream, auto = LinkOverrides(prefetch_count=100), LinkOverrides(prefetch_count=None)
    assert link_settings(upstream, auto).prefetch_count is None
    assert link_settings(upstream, LinkOverrides()).prefetch_count == 100
