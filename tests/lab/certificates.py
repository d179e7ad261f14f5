"""A certificate authority of a test's own, made with the `openssl` command."""

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DAYS: Final = "2"
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    certfile: Path
    keyfile: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates into its directory, which the broker has to be able to read.

    Workers share a broker's authority and sign at the same time, for the same name too: files and serial
    numbers are each certificate's own.
    """

    directory: Path
    own: Certificate

    @classmethod
    def create(cls, directory: Path, name: str = "ca") -> "Authority":
        own = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
        subject = ["-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *_KEY, "-nodes", *_files(own), *subject, "-days", _DAYS)
        return cls(directory, own)

    @property
    def cacertfile(self) -> Path:
        return self.own.certfile

    def server(self, name: str = "server", *, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
        return self._sign(name, f"subjectAltName={names}")

    def client(self, name: str, *, password: str | None = None) -> Certificate:
        """A client's, whose common name the broker can take as the user."""
        return self._sign(name, "extendedKeyUsage=clientAuth", password=password)

    def expired(self, name: str = "expired") -> Certificate:
        return self._sign(name, "subjectAltName=DNS:localhost,IP:127.0.0.1", days="-1")

    def _sign(self, name: str, extension: str, *, password: str | None = None, days: str = _DAYS) -> Certificate:
        unique = secrets.token_hex(8)
        stem = self.directory / f"{name}-{unique}"
        made = Certificate(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        extensions.write_text(f"{extension}\n")
        locked = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        _openssl("req", *_KEY, *locked, "-keyout", made.keyfile, "-out", request, "-subj", f"/CN={name}")
        issuer: list[str | Path] = ["-CA", self.own.certfile, "-CAkey", self.own.keyfile, "-set_serial", f"0x1{unique}"]
        _openssl("x509", "-req", "-in", request, *issuer, "-out", made.certfile, "-days", days, "-extfile", extensions)
        return made


def tls_conf(authority: Authority, server: Certificate, *, prefix: str = "ssl_options") -> list[str]:
    """Lines of rabbitmq.conf: who the broker is, whom it trusts, and that clients may show a certificate."""
    return [
        f"{prefix}.cacertfile = {authority.cacertfile}",
        f"{prefix}.certfile = {server.certfile}",
        f"{prefix}.keyfile = {server.keyfile}",
        f"{prefix}.verify = verify_peer",
        f"{prefix}.fail_if_no_peer_cert = false",
    ]


def _files(certificate: Certificate) -> tuple[str | Path, ...]:
    return "-keyout", certificate.keyfile, "-out", certificate.certfile


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
