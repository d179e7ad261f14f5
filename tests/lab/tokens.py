"""A broker whose users log in with tokens (OAuth 2) that a key of this test run signs."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, Node

EVERYTHING: Final = ("read:*/*/*", "write:*/*/*", "configure:*/*")  # the third part: routing keys of topic exchanges


@dataclass(frozen=True, slots=True)
class TokenBroker:
    node: Node
    key: Path

    def token(self, seconds: float, scopes: Iterable[str] = EVERYTHING) -> str:
        """For a user who may do everything, for so long."""
        scope = [f"rabbitmq.{each}" for each in scopes]
        claims = {"sub": "agent", "aud": ["rabbitmq"], "scope": scope, "exp": int(time.time() + seconds)}
        signed = b".".join(_encoded(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "k"}, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signature = subprocess.run(command, input=signed, capture_output=True, check=True).stdout
        return b".".join((signed, _encoded(signature))).decode()

    def uri(self, token: str, vhost: str = "") -> str:
        return f"amqp://agent:{token}@127.0.0.1:{self.node.amqp_port}{vhost and '/' + vhost}"

    @classmethod
    def start(cls, lab: Lab, directory: Path) -> TokenBroker:
        key, public = directory / "key.pem", directory / "public.pem"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], capture_output=True, check=True)
        subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-out", public], capture_output=True, check=True)
        for each in (directory, public):  # the broker may run as a user of its own
            each.chmod(0o755)
        conf = [
            "auth_backends.1 = internal",
            "auth_backends.2 = rabbit_auth_backend_oauth2",
            "auth_oauth2.resource_server_id = rabbitmq",
            f"auth_oauth2.signing_keys.k = {public}",
            "auth_oauth2.default_key = k",
        ]
        plugins = (*DEFAULT_PLUGINS, "rabbitmq_auth_backend_oauth2")
        return cls(lab.node("tokens", plugins=plugins, conf=conf).start(), key)


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
