"""A user's program for AMQP 1.0, which shares no code with the agent: Apache Qpid Proton.

A message is a mapping: `body` (a text, as data) or `value`, `properties` (the application's), `annotations`, and what
else `proton_program.py` lists.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.lab.node import Node

PYTHON: Final = os.environ.get("FEDERATION_AGENT_SYSTEM_PYTHON", "/usr/bin/python3")  # which Debian's packages are for
PROGRAM: Final = Path(__file__).with_name("proton_program.py")
DEADLINE: Final = 60.0

Message = Mapping[str, Any]


def send(node: Node, vhost: str, address: str, messages: Iterable[Message]) -> list[str]:
    """The outcome of each, such as "accepted"."""
    return [str(each) for each in _run("send", node, vhost, address, list(messages))]


def take(node: Node, vhost: str, address: str, count: int) -> list[dict[str, Any]]:
    """So many messages, or those that come within seconds."""
    return [dict(each) for each in _run("take", node, vhost, address, count)]


def _run(what: str, node: Node, vhost: str, *arguments: object) -> list[Any]:
    url = f"amqp://guest:guest@127.0.0.1:{node.amqp_port}"
    asked = json.dumps([what, url, f"vhost:{vhost}", *arguments])
    program = [PYTHON, str(PROGRAM)]
    done = subprocess.run(program, check=False, input=asked, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
