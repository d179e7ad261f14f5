"""Free loopback ports that stay ours while a broker is away."""

import random
import socket
from pathlib import Path

# Below the kernel's default range for outgoing connections: there a client that retries a closed port would sooner
# or later be given that very port as its own and connect to itself.
LOWEST, HIGHEST = 20000, 32000


class Ports:
    """Allots ports; no other process is given one of them until `release`, or this one's end.

    One that is `kept` stays that of a broker which other workers of the lab use after this one has ended.
    """

    def __init__(self, kept: Path | None = None) -> None:
        """`kept` is a directory of the lab's, for those that are kept."""
        self._kept = kept
        self._claims: list[socket.socket] = []

    def take(self, *, kept: bool = False) -> int:
        for _ in range(1000):
            port = random.randint(LOWEST, HIGHEST)
            if not self._is_kept(port) and _is_free(port) and self._claim(port):
                if kept:
                    self._keep(port)
                return port
        raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1")

    def release(self) -> None:
        while self._claims:
            self._claims.pop().close()

    def _is_kept(self, port: int) -> bool:
        return self._kept is not None and (self._kept / str(port)).exists()

    def _keep(self, port: int) -> None:
        assert self._kept is not None, "only a lab keeps ports"
        self._kept.mkdir(exist_ok=True)
        (self._kept / str(port)).touch()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0federation-lab-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
