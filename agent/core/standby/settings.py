"""An operator's settings of a standby, and the links that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from agent.core.addresses.uri import HttpUrl
from agent.core.links.lag import LagCritical
from agent.core.migration.objects import ObjectKey, ObjectKind
from agent.core.migration.selection import VhostSelection
from agent.core.model import (
    DEFAULT_VHOST,
    ApplyTo,
    Definitions,
    LinkSettings,
    Policy,
    SetMember,
    Upstream,
    UpstreamSet,
    VhostDefinitions,
)
from agent.core.rules.names import STANDBY
from agent.core.rules.policies import OF_STANDBY
from agent.core.text import age, listed
from agent.errors import Place

MOST_HOPS: Final = 100
"""Messages that the source got through links have to come, too; loops end at a cluster that a message has been to."""
_FIXED: Final = LinkSettings(max_hops=MOST_HOPS, lag_critical=LagCritical(seconds=60.0))
_FIXED_KEYS: Final = frozenset({"max_hops", "exchange", "forward_unrouted"})
"""Each exchange comes from its namesake, and what is unroutable there comes by the alternate exchange's own link. Also
`lag_critical` where the upstream has none: a standby that is behind isn't in step."""


@dataclass(frozen=True, slots=True)
class StandbySettings:
    """`of` is the upstream of the source, `keep` the seconds for which messages stay, without end if None. What the
    source consumed `trim_after` seconds ago goes earlier, unless that is None. `consumer_timeout`: the seconds after
    which the source's brokers take back what isn't acknowledged, None if that isn't known."""

    of: str
    vhosts: Mapping[str, VhostSelection]
    keep: float | None
    trim_after: float | None
    consumer_timeout: float | None
    place: Place

    @property
    def in_words(self) -> str:
        vhosts = listed([repr(vhost) for vhost in self.vhosts])
        taken = [] if self.trim_after is None else [f"what the source consumed {age(self.trim_after)} ago"]
        taken += [] if self.keep is None else [f"what is older than {age(self.keep)}"]
        return (
            f"standby of upstream {self.of!r}: what is missing here of vhost{'s'[: len(self.vhosts) > 1]} {vhosts} is "
            f"copied, exchanges get links, and {' and '.join(taken) or 'nothing'} is taken out of the copies"
        )

    def upstream(self, vhost: str, definitions: Definitions) -> Upstream | None:
        """The source as a vhost defines it, or else as the vhost "/" does, for all."""
        own = definitions.of(vhost).upstreams.get(self.of)
        return own or definitions.of(DEFAULT_VHOST).upstreams.get(self.of)

    def management(self, definitions: Definitions) -> tuple[HttpUrl, ...]:
        """The source's HTTP API, which is the same for all vhosts."""
        found = (self.upstream(vhost, definitions) for vhost in self.vhosts)
        return next((upstream.management for upstream in found if upstream is not None), ())

    def follows(self, key: ObjectKey) -> bool:
        """True if patterns choose the exchange, queue or policy."""
        return any(choice.pattern.matches(key.name) is not False for choice in self.vhosts[key.vhost].choices[key.kind])

    def federates(self, exchange: ObjectKey, *, is_internal: bool) -> bool:
        """True if the exchange has a link of its own."""
        return not is_internal and self.follows(exchange)

    def links(self, definitions: Definitions) -> Definitions:
        """The definitions that federate the exchanges. `definitions` are those that have the upstream."""
        return Definitions({vhost: self._of_vhost(vhost, definitions) for vhost in self.vhosts})

    def _of_vhost(self, vhost: str, definitions: Definitions) -> VhostDefinitions:
        upstream = self.upstream(vhost, definitions)
        keys = _FIXED_KEYS
        if upstream is None or upstream.settings.lag_critical is None:
            keys |= {"lag_critical"}
        is_own = self.of in definitions.of(vhost).upstreams
        return VhostDefinitions(
            upstreams={} if upstream is None or is_own else {self.of: upstream},
            upstream_sets={STANDBY: UpstreamSet(STANDBY, (SetMember(self.of, _FIXED, keys),), self.place)},
            policies={policy.name: policy for policy in self._policies(vhost)},
        )

    def _policies(self, vhost: str) -> Iterator[Policy]:
        """They win over all others, and nothing else federates in these vhosts (`resolve`)."""
        for number, choice in enumerate(self.vhosts[vhost].choices[ObjectKind.EXCHANGE]):
            name = f"{STANDBY} {number + 1}" if number else STANDBY
            yield Policy(name, choice.pattern.text, ApplyTo.EXCHANGES, inf, OF_STANDBY, choice.place)
