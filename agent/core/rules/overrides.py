"""What an upstream, a member of a set, and nobody says about a link → its settings."""

from __future__ import annotations

from typing import TypeVar

from agent.core.model import LinkOverrides, LinkSettings, Unset

T = TypeVar("T")


def link_settings(upstream: LinkOverrides, member: LinkOverrides) -> LinkSettings:
    """A key of the set's member wins over the upstream's, and both over the default."""
    default = LinkSettings()
    return LinkSettings(
        exchange=first(member.exchange, upstream.exchange, default=default.exchange),
        queue=first(member.queue, upstream.queue, default=default.queue),
        consumer_tag=first(member.consumer_tag, upstream.consumer_tag, default=default.consumer_tag),
        prefetch_count=_set(member.prefetch_count, upstream.prefetch_count, default=default.prefetch_count),
        reconnect_delay=first(member.reconnect_delay, upstream.reconnect_delay, default=default.reconnect_delay),
        max_hops=first(member.max_hops, upstream.max_hops, default=default.max_hops),
        ack_mode=first(member.ack_mode, upstream.ack_mode, default=default.ack_mode),
        trust_user_id=first(member.trust_user_id, upstream.trust_user_id, default=default.trust_user_id),
        expires=first(member.expires, upstream.expires, default=default.expires),
        message_ttl=first(member.message_ttl, upstream.message_ttl, default=default.message_ttl),
        queue_type=first(member.queue_type, upstream.queue_type, default=default.queue_type),
        ha_policy=first(member.ha_policy, upstream.ha_policy, default=default.ha_policy),
        bind_nowait=first(member.bind_nowait, upstream.bind_nowait, default=default.bind_nowait),
        channel_use_mode=first(member.channel_use_mode, upstream.channel_use_mode, default=default.channel_use_mode),
        resource_cleanup_mode=first(
            member.resource_cleanup_mode, upstream.resource_cleanup_mode, default=default.resource_cleanup_mode
        ),
        forward_unrouted=first(member.forward_unrouted, upstream.forward_unrouted, default=default.forward_unrouted),
        probe=_set(member.probe, upstream.probe, default=default.probe),
        lag_critical=_set(member.lag_critical, upstream.lag_critical, default=default.lag_critical),
        quarantine_after=_set(member.quarantine_after, upstream.quarantine_after, default=default.quarantine_after),
    )


def first(*given: T | None, default: T) -> T:
    """The first value that was written."""
    return next((value for value in given if value is not None), default)


def _set(*given: T | Unset | None, default: T | None) -> T | None:
    """The first value that was written, where None is one."""
    return next((value for value in given if not isinstance(value, Unset)), default)
