"""The configuration of a standby the other way: the former source becomes the standby of its former standby.

It is made from the file as it is written, so what `${env:…}` and `${file:…}` stand for is in neither.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml as pyyaml

from agent.core.addresses import uri
from agent.definitions.document import yaml
from agent.definitions.sources.load import Configuration
from agent.errors import UriError, UsageError

_ADDRESS: Final = ("uri", "management", "ssl-options")
_OF_HOSTS: Final = ("uri", "management")
_VHOST: Final = re.compile(r"^(amqps?://(?:\$\{[^}]*\}|[^/?#])*)/[^?#]*")
"""In an address as it is written: what `${file:/…}` stands for may be in it."""


def reversed_standby(configuration: Configuration) -> str:
    """The text of the file. Raises UsageError where the file says too little of one side, or in another place."""
    raw: dict[str, Any] = yaml.compose_file(configuration.source).plain()
    name, standby, downstream = configuration.settings.standby, raw.get("standby"), raw.get("downstream")
    if name is None or not isinstance(standby, dict) or not isinstance(downstream, dict):
        raise UsageError(f"{configuration.source} has no section 'standby'")
    upstream = (raw.get("upstreams") or {}).get(name.of)
    if not isinstance(upstream, dict) or "uri" not in upstream:
        raise UsageError(
            f"upstream {name.of!r}: to be reversed it has to be in this file, in vhost '/', with 'uri' and 'management'"
        )
    if downstream.get("ssl-options"):
        raise UsageError(
            "downstream.ssl-options: an upstream with 'uri' has none; to be reversed, give each address its own TLS "
            "settings instead: amqps://…?cacertfile=…"
        )
    for side, addresses in (("downstream", downstream), (f"upstream {name.of!r}", upstream)):
        _check_logins(side, addresses)
    settings = {key: value for key, value in upstream.items() if key not in _ADDRESS}
    ends = {key: upstream[key] for key in _ADDRESS if key in upstream}
    origin = {key: _without_vhost(downstream[key]) for key in _OF_HOSTS if key in downstream} | settings
    found = {
        **({"agent": raw["agent"]} if raw.get("agent") else {}),
        "downstream": ends,
        "upstreams": {name.of: origin},
        "standby": standby,
    }
    return pyyaml.safe_dump(found, sort_keys=False, allow_unicode=True)


def _without_vhost(address: Any) -> Any:
    """As an upstream of all vhosts has it; that a downstream's URI may name one means nothing for a standby."""
    if isinstance(address, list):
        return [_without_vhost(each) for each in address]
    return _VHOST.sub(r"\1", address) if isinstance(address, str) else address


def _check_logins(side: str, addresses: dict[str, Any]) -> None:
    """Without a login of its own, an upstream's HTTP API has that of its URI, and the downstream's has guest's."""
    management = addresses.get("management")
    for each in management if isinstance(management, list) else [management]:
        try:
            has_login = "${" in str(each) or uri.parse_http(str(each)).has_login
        except UriError:
            has_login = True  # reported where the file is read
        if not has_login:
            raise UsageError(f"{side}: to be reversed, 'management' needs a login of its own: http://USER:PASSWORD@…")
