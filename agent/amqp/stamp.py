"""What an exchange link adds to every message: its entry in `x-received-from`."""

from __future__ import annotations

from agent.amqp.wire.properties import USER_ID, Properties
from agent.amqp.wire.tables import encode_value, short_string
from agent.core import fields, hops
from agent.core.hops import RECEIVED_FROM, Site, Verdict


class Stamp:
    """Judges and marks messages on their way from `upstream` to an exchange of `downstream`."""

    def __init__(
        self, uri: str, exchange: str, *, upstream: Site, downstream: Site, max_hops: int, trust_user_id: bool
    ) -> None:
        self._downstream = downstream
        self._max_hops = max_hops
        self._trust_user_id = trust_user_id
        self._entries = {
            redelivered: hops.received_entry(uri, exchange, redelivered=redelivered, upstream=upstream)
            for redelivered in (False, True)
        }

    @property
    def mark(self) -> bytes:
        return short_string(RECEIVED_FROM)

    @property
    def trusts(self) -> int:
        """The property flags that may pass as they are."""
        return USER_ID if self._trust_user_id else 0

    def entry(self, *, redelivered: bool) -> bytes:
        return self.mark + encode_value(fields.array(self._entries[redelivered]))

    def rewrite(self, properties: Properties, *, redelivered: bool) -> Properties | str:
        headers = properties.headers
        verdict = hops.judge(headers, self._max_hops, self._downstream)
        if verdict is not Verdict.FORWARD:
            return verdict.value
        kept = properties if self._trust_user_id else properties.without_user_id()
        return kept.with_headers(hops.with_entry(headers, RECEIVED_FROM, self._entries[redelivered]))
