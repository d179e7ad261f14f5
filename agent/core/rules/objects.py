"""The objects that a link declares upstream, with all arguments: brokers compare them, and the native plugin uses the
same."""

from __future__ import annotations

from typing import Final

from agent.core import fields
from agent.core.fields import Table
from agent.core.model import LinkSettings
from agent.core.rules.hops import Site

PURPOSE: Final = ("x-internal-purpose", fields.text("federation"))
NATIVE_TYPE: Final = "x-federation-upstream"
FALLBACK_TYPE: Final = "fanout"


def queue_arguments(settings: LinkSettings) -> Table:
    given = (("x-expires", settings.expires), ("x-message-ttl", settings.message_ttl))
    numbers = tuple((key, fields.long(value)) for key, value in given if value is not None)
    return (*numbers, PURPOSE, ("x-queue-type", fields.text(settings.queue_type)))


def internal_arguments(max_hops: int, downstream: Site) -> Table:
    """For an exchange of the plugin's own type, which itself drops messages that have reached max-hops."""
    return (
        ("x-max-hops", fields.long(max_hops)),
        ("x-downstream-name", fields.text(downstream.cluster or "")),
        ("x-downstream-vhost", fields.text(downstream.vhost)),
        PURPOSE,
    )
