"""What a version promises is recorded, so that a break of it is a decision; docs/upgrade.md says when it may be one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agent.version import VERSION
from tests.acceptance.command import ROOT
from tests.recorded import data_contract, promises

RECORD = "where that is meant, record it: python -m tests.recorded"


def test_what_is_promised_is_as_recorded() -> None:
    recorded, found = set(promises.FILE.read_text().splitlines()[1:]), set(promises.lines())
    broken, added = sorted(recorded - found), sorted(found - recorded)
    assert not broken, f"this breaks what {VERSION} promises (docs/upgrade.md); {RECORD}"
    assert not added, f"this is promised from now on; {RECORD}"
    assert promises.FILE.read_text() == promises.text(), RECORD


@pytest.mark.parametrize(
    "line",
    [
        "api GET /api/links 200 application/json []: Link",
        "api Link.backlog: integer|null",
        "command links --output, -o [text|wide|json|yaml]",
        "command quarantine list --link",
        "command report --input required",
        "configuration downstream.uri: string",
        "configuration agent?.stall-after? default 30.0",
        "environment FEDERATION_AGENT_CONFIG",
        "exit options CANNOT_START: 3",
        "exit standby NO_STANDBY: 5",
        "export forwarded: long",
        "migration vhosts.*.queues?.*.convert? = quorum",
        "metric federation_agent_link_state gauge {kind, vhost, name, upstream, state}",
        "table availability.up_seconds: decimal(18,6)",
    ],
)
def test_each_kind_of_promise_is_among_them(line: str) -> None:
    assert line in promises.lines()


def test_the_data_contract_is_as_the_tables_are() -> None:
    assert data_contract.FILE.read_text() == data_contract.text(), RECORD


def test_the_data_contract_has_each_column_with_its_type_and_each_table_with_its_meaning() -> None:
    contract = yaml.safe_load(data_contract.FILE.read_text())
    found = {
        table["name"]: {column["name"]: column["physicalType"] for column in table["properties"]}
        for table in contract["schema"]
    }
    assert found == data_contract.columns()
    assert found["traffic"]["transfer_le"] == "array<double>"
    assert all(table["dataGranularityDescription"] for table in contract["schema"])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy").rglob("*.yaml")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_manifests_name_the_image_of_this_version(path: Path) -> None:
    tags = re.findall(r"image: federation-agent[\w-]*:(\S+)|newTag: (\S+)", path.read_text())
    assert {tag for pair in tags for tag in pair if tag} <= {VERSION}


def test_the_changelog_begins_with_this_version() -> None:
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == VERSION


def test_artefacts_in_the_documents_are_of_this_version() -> None:
    found = re.findall(r"federation[-_]agent[-_:](\d+(?:\.\d+)*)", (ROOT / "docs/install.md").read_text())
    assert len(found) > 3
    assert set(found) == {VERSION}
