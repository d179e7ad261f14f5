"""Free loopback ports that stay ours while a broker is away."""

import random
import socket

# Below the kernel's default range for outgoing connections: there a client that retries a closed port would sooner
# or later be given that very port as its own and connect to itself.
LOWEST, HIGHEST = 20000, 32000


class Ports:
    """Allots ports; no other lab on this machine is given one of them until `release`, or the process's end."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def take(self) -> int:
        for _ in range(1000):
            port = random.randint(LOWEST, HIGHEST)
            if _is_free(port) and self._claim(port):
                return port
        raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST} on 127.0.0.1")

    def release(self) -> None:
        while self._claims:
            self._claims.pop().close()

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
