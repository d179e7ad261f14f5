"""TLS settings, spelled as RabbitMQ's clients do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from agent.core.addresses.url_text import Tls, check_file, check_server_name
from agent.definitions.document.findings import Spot
from agent.definitions.models.keys import SnakeKeys
from agent.definitions.models.value_types import INTEGRAL, SecretText, Text, accepted_by, key


class SslOptionsModel(SnakeKeys):
    """TLS settings of an upstream that is written without a URI, or of the downstream."""

    noun = "ssl-options"

    cacertfile: Annotated[Text, accepted_by(partial(check_file, key="cacertfile"))] = key(
        "File with the certificates of the authorities to trust."
    )
    certfile: Annotated[Text, accepted_by(partial(check_file, key="certfile"))] = key(
        "File with the agent's own certificate."
    )
    keyfile: Annotated[Text, accepted_by(partial(check_file, key="keyfile"))] = key(
        "File with the private key of `certfile`."
    )
    verify: Literal["verify_peer", "verify_none"] = key("`verify_peer`, the default, or `verify_none`.")
    fail_if_no_peer_cert: bool = key("Accepted for compatibility; it applies to servers.")
    password: SecretText = key("Password of `keyfile`.")
    depth: Annotated[int, Field(ge=0, le=255), INTEGRAL] = key(
        "Accepted for compatibility; chains may have any length."
    )
    server_name_indication: Annotated[Text, accepted_by(check_server_name)] = key(
        "Host name that the peer's certificate has to match; the host by default. `disable` accepts any certificate "
        "signed by the authorities."
    )

    @classmethod
    def rules(cls, raw: Mapping[str, Any], spot: Spot) -> None:
        if "keyfile" in raw and "certfile" not in raw:
            spot.error("keyfile is given without certfile", "keyfile", key=True)

    def to_core(self) -> Tls:
        return Tls(**(self.written() | {"verify": self.verify != "verify_none"}))


def warn_unverified(spot: Spot) -> None:
    spot.warn("verify_none: the server's identity is not checked; set cacertfile instead", "ssl-options", "verify")
