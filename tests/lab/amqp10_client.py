"""A user's program for AMQP 1.0: Apache Qpid Proton, which shares no code with the agent.

A message is a mapping: `body` (a text, as data) or `value`, `properties` (the application's), `annotations`, and what
else `amqp10_program.py` lists. `send_bytes` and `take_bytes` are for messages that have to be looked at as bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from tests.lab.node import Node
from tests.lab.waiting import DEADLINE

PYTHON: Final = os.environ.get("FEDERATION_AGENT_SYSTEM_PYTHON", "/usr/bin/python3")  # which Debian's packages are for
PROGRAM: Final = Path(__file__).with_name("amqp10_program.py")
BROKER: Final = Path(__file__).with_name("amqp10_broker.py")

Message = Mapping[str, Any]


class Amqp10Client:
    """Sends to queues of a vhost and takes from them; `is_old` if the node has the plugin of RabbitMQ 3."""

    def __init__(self, node: Node, vhost: str, *, is_old: bool = False, patience: float = DEADLINE) -> None:
        url = f"amqp://guest:guest@127.0.0.1:{node.amqp_port}"
        self._prefix = "/amq/queue/" if is_old else "/queues/"
        self._process = subprocess.Popen(
            [PYTHON, str(PROGRAM), url, f"vhost:{vhost}", str(patience)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, queue: str, *messages: Message) -> list[str]:
        """The outcome of each, such as "accepted"."""
        return [str(each) for each in _answered(self._ask("send", queue, messages))]

    def take(self, queue: str, count: int) -> list[dict[str, Any]]:
        """So many messages, or those that come in time."""
        return [dict(each) for each in _answered(self._ask("take", queue, count))]

    def send_bytes(self, queue: str, message: bytes) -> str:
        """The outcome, such as "accepted", or why there is none."""
        answer = self._ask("send_bytes", queue, [message.hex()])
        return str(answer[0]) if isinstance(answer, list) else str(answer)

    def take_bytes(self, queue: str) -> bytes | str:
        """The next message, or why there is none."""
        answer = self._ask("take_bytes", queue, 1)
        return bytes.fromhex(answer[0]) if isinstance(answer, list) else str(answer["error"])

    def _ask(self, what: str, queue: str, *rest: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, f"{self._prefix}{quote(queue, safe='')}", *rest]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=DEADLINE)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _answered(answer: Any) -> list[Any]:
    assert isinstance(answer, list), answer
    return answer
