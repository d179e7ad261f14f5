"""The HTTP API of a running agent, asked whatever its description allows and forbids."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.integration.federation.conftest import AgentOf
from tests.integration.federation.sites import Site, federated
from tests.integration.status.asking import url
from tests.lab.node import Node

SCHEMATHESIS: Final = str(Path(sysconfig.get_path("scripts"), "schemathesis"))
EXAMPLES: Final = 10
DEADLINE: Final = 100.0


@pytest.mark.thorough
def test_no_question_breaks_it(agent_of: AgentOf, broker: Node, here: Site, there: Site) -> None:
    agent = agent_of(broker)
    here.exchange().queue("k")
    agent.write({here.vhost: federated(there)}).start()
    agent.wait_running(1)
    document = f"{url(agent)}/api/openapi.json"
    limits = ("--exclude-path", "/api/events", "--max-examples", str(EXAMPLES), "--seed", "1")  # events have no end
    done = subprocess.run(
        [SCHEMATHESIS, "run", document, "--checks", "all", "--no-color", *limits],
        cwd=agent.directory,
        env={**os.environ, "PYTHONWARNINGS": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test cases:" in done.stdout.lower()
    assert "unexpected error" not in agent.log.read_text()
    assert agent.terminate() == 0
