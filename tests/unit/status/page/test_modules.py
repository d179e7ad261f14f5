"""What the page's modules reckon, by Node's own test runner: one process for all of them, and none is a browser."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from agent.cli.link_table import SEVERITY, differences, in_order, shortened
from agent.cli.links import described
from tests.unit.cli.test_link_table import NOW, link

FOLDER: Final = Path(__file__).parent
PLAIN: Final = {"NO_COLOR": "1", "NODE_OPTIONS": ""}
AS_COMMANDS_DO: Final[dict[str, Any]] = json.loads((FOLDER / "as_commands_do.json").read_text("utf-8"))


def test_modules_of_the_page() -> None:
    node = shutil.which("node")
    assert node, "no Node.js: make setup"
    command = [node, "--test", "--test-reporter=spec", str(FOLDER / "static/all.js")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | PLAIN)
    passed = re.search(r"pass (\d+)", ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert passed
    assert int(passed[1]) >= len(list(FOLDER.glob("static/*.test.js"))), ran.stdout


def test_the_page_orders_and_shortens_as_the_commands_do() -> None:
    """Both are held to one file; the modules' side of it is in `states`, `filter` and `names`."""
    assert list(SEVERITY) == AS_COMMANDS_DO["severity"]
    assert [link["id"] for link in in_order(AS_COMMANDS_DO["links"])] == AS_COMMANDS_DO["order"]
    names, found = AS_COMMANDS_DO["names"], AS_COMMANDS_DO["shortened"]
    differs = differences(names)
    assert {letters: [shortened(name, int(letters), differs[name]) for name in names] for letters in found} == found


def test_the_page_shows_the_command_that_takes_messages_out_of_quarantine_as_describe_does() -> None:
    for vhost, upstream, source in AS_COMMANDS_DO["moves"]:
        shown = "\n".join(described(link(10, quarantined=1, vhost=vhost, upstream=upstream), now=NOW))
        assert (
            f"move -c FILE --from {source} --queue 'federation-agent: quarantine' --match x-quarantine-link=" in shown
        )
