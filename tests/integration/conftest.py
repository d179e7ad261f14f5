"""Brokers that speak TLS, or take tokens, which all workers share."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.federation.conftest import agent_of, here, site_on, there
from tests.lab.certificates import Authority, tls_conf
from tests.lab.lab import Lab
from tests.lab.node import DEFAULT_PLUGINS, Node
from tests.lab.tokens import TokenBroker

__all__ = ["agent_of", "here", "site_on", "there"]


@pytest.fixture(scope="session")
def token_broker(lab: Lab) -> TokenBroker:
    return lab.once("tokens", lambda: TokenBroker.start(lab, directory(lab, "tokens")))


def directory(lab: Lab, name: str) -> Path:
    made = lab.directory / f"{name}-files"
    made.mkdir()
    return made


@dataclass(frozen=True, slots=True)
class TlsBroker:
    """A broker with TLS ports besides the plain ones; client certificates may log in (EXTERNAL)."""

    node: Node
    authority: Authority
    amqps_port: int
    https_port: int

    def amqps(self, query: str = "", *, host: str = "localhost", login: str = "guest:guest@") -> str:
        return f"amqps://{login}{host}:{self.amqps_port}/%2F?{query}"

    def https(self, query: str = "", *, host: str = "localhost") -> str:
        return f"https://guest:guest@{host}:{self.https_port}?{query}"

    @property
    def trust(self) -> str:
        """The query parameter that makes a client trust it."""
        return f"cacertfile={self.authority.cacertfile}"

    def show(self, user: str) -> str:
        """Query parameters by which a client shows a certificate of that name."""
        client = self.authority.client(user)
        return f"certfile={client.certfile}&keyfile={client.keyfile}"


def start(
    lab: Lab, name: str, *, certificate: str = "server", extra: tuple[str, ...] = (), more_plugins: tuple[str, ...] = ()
) -> TlsBroker:
    authority = Authority.create(directory(lab, name))
    server = authority.expired() if certificate == "expired" else authority.server()
    amqps, https = lab.ports.take(), lab.ports.take()
    conf = [
        f"listeners.ssl.1 = 127.0.0.1:{amqps}",
        *tls_conf(authority, server),
        "management.ssl.ip = 127.0.0.1",
        f"management.ssl.port = {https}",
        *tls_conf(authority, server, prefix="management.ssl"),
        "auth_mechanisms.1 = PLAIN",
        "auth_mechanisms.2 = AMQPLAIN",
        "auth_mechanisms.3 = EXTERNAL",
        "ssl_cert_login_from = common_name",
        *extra,
    ]
    plugins = (*DEFAULT_PLUGINS, "rabbitmq_auth_mechanism_ssl", *more_plugins)
    return TlsBroker(lab.node(name, plugins=plugins, conf=conf).start(), authority, amqps, https)


@pytest.fixture(scope="session")
def tls_broker(lab: Lab) -> TlsBroker:
    return lab.once("tls", lambda: start(lab, "tls"))


@pytest.fixture(scope="session")
def strict_tls_broker(lab: Lab) -> TlsBroker:
    """One that lets nobody in without a certificate of its own authority's."""
    strict = ("ssl_options.fail_if_no_peer_cert = true", "management.ssl.fail_if_no_peer_cert = true")
    return lab.once("strict", lambda: start(lab, "strict", extra=strict))


@pytest.fixture(scope="session")
def expired_tls_broker(lab: Lab) -> TlsBroker:
    """One whose own certificate has expired."""
    return lab.once("expired", lambda: start(lab, "expired", certificate="expired"))
