"""When certificates and tokens end."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.addresses.expiry import certificate_expiry, token_expiry
from agent.network import read_certificates
from tests.lab.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("authority"))


def token(claims: Any) -> str:
    parts: list[Any] = [{}, claims, 0]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


async def test_a_certificate_ends_when_openssl_says(authority: Authority) -> None:
    [der] = await read_certificates(str(authority.cacertfile))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=authority.cacertfile)
    [told] = context.get_ca_certs()
    assert certificate_expiry(der) == ssl.cert_time_to_seconds(str(told["notAfter"]))


async def test_every_certificate_of_a_chain_is_read(authority: Authority, tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_text(f"a note\n{authority.server().certfile.read_text()}{authority.cacertfile.read_text()}")
    assert len(await read_certificates(str(chain))) == 2
    assert await read_certificates(str(tmp_path / "missing.pem")) == []


async def test_a_certificate_cut_anywhere_is_an_error_or_has_its_end_already(authority: Authority) -> None:
    [der] = await read_certificates(str(authority.cacertfile))
    end = certificate_expiry(der)
    for length in range(len(der)):
        try:
            assert certificate_expiry(der[:length]) == end
        except ValueError:
            continue


@given(st.binary(max_size=200))
def test_garbage_is_no_certificate(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        certificate_expiry(garbage)


@pytest.mark.parametrize(
    ("claims", "end"),
    [
        ({"exp": 1_800_000_000}, 1_800_000_000.0),
        ({"exp": 1_800_000_000.5, "sub": "agent"}, 1_800_000_000.5),
        ({"sub": "agent"}, None),
        ({"exp": "soon"}, None),
        ({"exp": True}, None),
        ({"exp": -1}, None),
        ({"exp": 1e300}, None),
        (["exp"], None),
    ],
)
def test_a_token_ends_when_it_claims(claims: Any, end: float | None) -> None:
    assert token_expiry(token(claims)) == end


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_a_password_is_hardly_ever_a_token(password: str) -> None:
    assert token_expiry(password) is None
