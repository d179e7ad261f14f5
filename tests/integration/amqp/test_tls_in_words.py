"""The table in docs/tls.md: what is wrong with TLS is said as it says, and nothing is listed that doesn't happen."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from agent.amqp.connect import connect_any
from agent.core.addresses.uri import parse
from agent.errors import BrokerError
from tests.integration.conftest import TlsBroker
from tests.lab.certificates import Authority
from tests.lab.node import Node
from tests.lab.stranger import hang_up, served
from tests.lab.waiting import DEADLINE

PAGE: Final = Path(__file__).parents[3] / "docs/tls.md"
NOT_TRUSTED: Final = "its certificate is not trusted: "
CLOSED: Final = "closed by the server right after TLS began: "


@dataclass(frozen=True, slots=True)
class Sides:
    plain: Node
    trusted: TlsBroker
    strict: TlsBroker
    expired: TlsBroker
    leaf: str
    """A server that sends its certificate without that of its authority; where it listens."""
    stranger: Authority


@pytest.fixture
async def sides(
    broker: Node, tls_broker: TlsBroker, strict_tls_broker: TlsBroker, expired_tls_broker: TlsBroker, tmp_path: Path
) -> AsyncIterator[Sides]:
    authority, stranger = (Authority.create(tmp_path, name) for name in ("ours", "stranger"))
    own = authority.server(names="DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certfile, own.keyfile)
    async with served(hang_up, tls=context) as port:
        leaf = f"127.0.0.1:{port}?cacertfile={authority.cacertfile}"
        yield Sides(broker, tls_broker, strict_tls_broker, expired_tls_broker, leaf, stranger)


Case = tuple[tuple[str, ...], Callable[[Sides], str]]
CASES: Final[tuple[Case, ...]] = (
    (
        (f"{NOT_TRUSTED}unable to get local issuer certificate",),
        lambda at: f"amqps://{at.leaf.partition('?')[0]}?cacertfile={at.stranger.cacertfile}",
    ),
    (
        ("self-signed certificate in certificate chain",),
        lambda at: at.trusted.amqps(f"cacertfile={at.stranger.cacertfile}"),
    ),
    (
        (f"{NOT_TRUSTED}Hostname mismatch",),
        lambda at: at.trusted.amqps(f"{at.trusted.trust}&server_name_indication=other.example"),
    ),
    ((f"{NOT_TRUSTED}IP address mismatch",), lambda at: f"amqps://{at.leaf}"),
    ((f"{NOT_TRUSTED}certificate has expired",), lambda at: at.expired.amqps(at.expired.trust)),
    (  # TLS 1.3 refuses after the handshake, and the alert may be overtaken by the end of the connection
        ("a client certificate is required", f"{CLOSED}if it requires a client certificate"),
        lambda at: at.strict.amqps(at.strict.trust),
    ),
    (
        ("the client certificate is refused", f"{CLOSED}check certfile"),
        lambda at: at.strict.amqps(f"{at.strict.trust}&{at.trusted.show('guest')}"),
    ),
    (("can't be used",), lambda at: at.trusted.amqps("cacertfile=/nowhere/ca.pem")),
    (("the server doesn't speak TLS",), lambda at: at.plain.uri().replace("amqp:", "amqps:")),
    (("this is a TLS port",), lambda at: f"amqp://localhost:{at.trusted.amqps_port}"),
)


@pytest.mark.parametrize(("texts", "uri"), CASES, ids=[case[0][0] for case in CASES])
async def test_it_is_said_as_the_page_says(sides: Sides, texts: tuple[str, ...], uri: Callable[[Sides], str]) -> None:
    with pytest.raises(BrokerError) as caught:
        await connect_any([parse(uri(sides))], where="upstream origin", name="test", within=DEADLINE)
    assert any(text in str(caught.value) for text in texts)


def test_the_page_lists_these_and_no_others() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## When it doesn't work\n")[2]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][2:]
    assert sorted(text for cell in cells for text in re.findall(r"`([^`]+)`", cell)) == sorted(
        text for texts, _ in CASES for text in texts
    )
