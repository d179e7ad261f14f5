"""When certificates and tokens expire, for `/metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent.core.addresses.expiry import Credential, Expiry
from agent.status.families import PREFIX, Family, Type, labelled

CERTIFICATE: Final = Family(
    f"{PREFIX}certificate_expiry_timestamp_seconds",
    Type.GAUGE,
    "When a certificate of the agent or of a broker expires.",
    labels=("peer", "vhost", "upstream", "certificate"),
)
TOKEN: Final = Family(
    f"{PREFIX}token_expiry_timestamp_seconds",
    Type.GAUGE,
    "When a password that is a JSON Web Token expires.",
    labels=("peer", "vhost", "upstream"),
)
FAMILIES: Final = (CERTIFICATE, TOKEN)


def exposition(expiries: Iterable[Expiry]) -> bytes:
    """Of several with the same labels, such as those of interchangeable endpoints, the first to expire is shown."""
    found: dict[tuple[str, str], float] = {}
    for each in expiries:
        labels = {"peer": each.peer, "vhost": each.vhost, "upstream": each.upstream}
        family = TOKEN if each.credential is Credential.JWT else CERTIFICATE
        more = {} if family is TOKEN else {"certificate": each.credential}
        key = family.name, labelled(labels | more)
        found[key] = min(each.at, found.get(key, each.at))
    lines = []
    for family in FAMILIES:
        lines.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.type}\n")
        lines += [f"{name}{{{labels}}} {at}\n" for (name, labels), at in found.items() if name == family.name]
    return "".join(lines).encode(errors="replace")
