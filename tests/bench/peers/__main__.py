"""A peer's process, such as `by_pika SOURCE DESTINATION QUEUE`: ready when all is imported, it begins with the end of
its input."""

from __future__ import annotations

import sys
from importlib import import_module


def main(module: str, source: str, destination: str, queue: str) -> None:
    move = import_module(f"tests.bench.peers.{module}").move
    print("ready", flush=True)
    sys.stdin.read()
    move(source, destination, queue)


if __name__ == "__main__":
    main(*sys.argv[1:])
